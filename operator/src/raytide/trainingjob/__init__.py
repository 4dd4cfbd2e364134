"""Children and status of a TrainingJob, at the size that the sharing pass sets."""
