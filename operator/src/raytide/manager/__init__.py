"""The operator's process: settings, controllers, and kopf as a source of keys."""
