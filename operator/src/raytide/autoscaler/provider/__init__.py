"""The sidecar's requests to the API server."""
