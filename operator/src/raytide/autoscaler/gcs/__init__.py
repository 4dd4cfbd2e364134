"""Client of Ray's GCS."""
