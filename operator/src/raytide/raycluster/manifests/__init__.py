"""Pods, services and other children of a RayCluster as JSON objects."""
