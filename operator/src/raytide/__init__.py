"""Kubernetes operator for RayCluster and TrainingJob, with an autoscaler sidecar for Ray."""

from raytide.api import constants

__version__ = constants.VERSION
