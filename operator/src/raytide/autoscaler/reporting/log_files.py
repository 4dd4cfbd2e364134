"""Log files of the sidecar, in the directory of Ray's current session.

Opens `monitor.log` and the event log once the directory is known, and again when Ray starts a new session, which has a
new directory under the same path. Called by sidecar/main.py as a listener of the loop.
"""

import logging
from pathlib import Path

from raytide.autoscaler.reporting import monitor_log
from raytide.autoscaler.reporting.event_log import EventLog
from raytide.autoscaler.reporting.log_settings import LogSettings
from raytide.autoscaler.reporting.tick import Tick
from raytide.runtime.clock import Clock


class LogFiles:
    """`monitor.log` and the events for drivers, in the directory of Ray's current session."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._directory: Path | None = None
        self._session = ""
        self._monitor: logging.Handler | None = None
        self._events: EventLog | None = None

    def open(self, directory: Path) -> None:
        """Write to that directory from now on."""
        self.close()
        self._directory = directory
        self._monitor = monitor_log.write_to(directory, self._settings)
        self._events = EventLog(directory, self._settings, now=Clock().now)

    def write(self, tick: Tick) -> None:
        """Write the tick's events; a new session of Ray has a new directory under the same path."""
        session = tick.gcs.session if tick.gcs is not None else self._session
        if self._directory is not None and self._session not in ("", session):
            self.open(self._directory)
        self._session = session
        if tick.plan is not None and self._events is not None:
            self._events.write(tick.plan.events)

    def close(self) -> None:
        """Close the files."""
        if self._monitor is not None:
            logging.getLogger().removeHandler(self._monitor)
            self._monitor.close()
        if self._events is not None:
            self._events.close()
