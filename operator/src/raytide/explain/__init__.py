"""Explanations: why a RayCluster or a TrainingJob is not larger."""
