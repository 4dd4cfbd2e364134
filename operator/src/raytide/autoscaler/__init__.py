"""The autoscaler of a RayCluster: how many workers the demand needs, and which of them can be removed."""
