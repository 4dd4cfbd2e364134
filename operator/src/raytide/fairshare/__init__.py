"""The sizes of all TrainingJobs, in one pass over one snapshot."""
