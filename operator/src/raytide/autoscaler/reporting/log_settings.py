"""Settings of the log output and of the event log.

Read from the environment by the sidecar's settings, used by monitor_log.py and event_log.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Log level, rotation and driver events."""

    level: int
    rotation_bytes: int
    """Zero: no rotation."""
    rotated_files: int
    has_events: bool
    """RAY_SCHEDULER_EVENTS: whether drivers receive events."""
