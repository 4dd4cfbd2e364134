"""Event log of the autoscaler for Ray drivers.

Writes one JSON object per line to `events/event_AUTOSCALER.log`, which Ray's log monitor forwards to every driver as
`(autoscaler +12s) …`. It takes the events of a plan; an event in effect is not repeated, because drivers print each one
(B-14). Written by the loop's listeners in autoscaler/sidecar/main.py. If the folder is not writable, the same messages are
still in the container's output. Rules AS §5.4.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from raytide.api.printable import escaped
from raytide.autoscaler.reporting.log_settings import LogSettings
from raytide.autoscaler.reporting.monitor_log import open_file
from raytide.autoscaler.state.snapshot import ClusterEvent, Level

EVENT_FILE: Final = "events/event_AUTOSCALER.log"
EVENT_ID_DIGITS: Final = 36
SEVERITIES: Final = {Level.DEBUG: "DEBUG", Level.INFO: "INFO", Level.WARNING: "WARNING"}


class EventLog:
    """One event file; if it cannot be opened, events are dropped."""

    def __init__(self, logs: Path, settings: LogSettings, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._host = socket.gethostname()
        self._file = open_file(logs / EVENT_FILE, settings) if settings.has_events else None

    def write(self, events: Iterable[ClusterEvent]) -> None:
        """Write the events in order."""
        if self._file is None:
            return
        for event in events:
            self._file.handle(_record(self._line(event)))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _line(self, event: ClusterEvent) -> str:
        entry = {
            "event_id": (uuid4().hex + uuid4().hex)[:EVENT_ID_DIGITS],
            "source_type": "AUTOSCALER",
            "source_hostname": self._host,
            "source_pid": os.getpid(),
            "severity": SEVERITIES[event.severity],
            "label": "",
            "message": escaped(event.message),
            "timestamp": str(int(self._now().timestamp())),
            "custom_fields": {},
        }
        return msgspec.json.encode(entry).decode()


def _record(line: str) -> logging.LogRecord:
    """Wrap a line for the log handler, which does rotation and error handling."""
    return logging.LogRecord(EVENT_FILE, logging.INFO, "", 0, line, None, None)
