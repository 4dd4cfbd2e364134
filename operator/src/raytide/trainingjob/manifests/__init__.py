"""Pods and services of a TrainingJob as JSON objects."""
