"""Children and status of a RayCluster."""
