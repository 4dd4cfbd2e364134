"""Clock, logs, health, HTTP endpoints and back-off; independent of Ray and Kubernetes."""
