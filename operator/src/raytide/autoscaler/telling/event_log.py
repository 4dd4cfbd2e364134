"""How do Ray's drivers hear what the autoscaler does?

One JSON object per line in `events/event_AUTOSCALER.log`, which Ray's log monitor forwards to every driver as
`(autoscaler +12s) …`. Events of a plan come in, lines go out; a sentence that stands is not repeated, because a driver
reads each of them (B-14). Written by the loop's listeners in main.py; where the folder is not ours to write, the container's output
has the same sentences. Rules AS §5.4.
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

from raytide.autoscaler.ordering.orders import ClusterEvent, Level
from raytide.autoscaler.settings import LogSettings
from raytide.autoscaler.telling.monitor_log import open_file

EVENT_FILE: Final = "events/event_AUTOSCALER.log"
EVENT_ID_DIGITS: Final = 36
SEVERITIES: Final = {Level.DEBUG: "DEBUG", Level.INFO: "INFO", Level.WARNING: "WARNING"}


class EventLog:
    """One file of events; without a file nothing is written, and nothing is lost but the drivers' copy."""

    def __init__(self, logs: Path, settings: LogSettings, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._host = socket.gethostname()
        self._file = open_file(logs / EVENT_FILE, settings) if settings.has_events else None

    def tell(self, events: Iterable[ClusterEvent]) -> None:
        """Write them in their order."""
        if self._file is None:
            return
        for event in events:
            self._file.handle(_record(self._line(event)))

    def close(self) -> None:
        """No more events."""
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
            "message": event.message,
            "timestamp": str(int(self._now().timestamp())),
            "custom_fields": {},
        }
        return msgspec.json.encode(entry).decode()


def _record(line: str) -> logging.LogRecord:
    """As a log handler takes it: rotation and trouble are its business."""
    return logging.LogRecord(EVENT_FILE, logging.INFO, "", 0, line, None, None)
