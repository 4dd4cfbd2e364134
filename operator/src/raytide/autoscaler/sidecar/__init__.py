"""The process of the autoscaler in head pods: settings, main and the loop."""
