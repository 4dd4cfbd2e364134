"""Node types, instances with their status, and blocked groups: the values of one loop."""
