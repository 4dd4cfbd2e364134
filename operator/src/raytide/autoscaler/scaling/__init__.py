"""Replicas and drains of one loop, as one JSON patch with the decision record."""
