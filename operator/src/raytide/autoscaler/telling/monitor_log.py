"""Where do the sidecar's own words go?

To the container's output, as Ray's autoscaler splits it (below WARNING to stdout, from WARNING to stderr), and, once the
head has said where its logs are, to `monitor.log` among them, where dashboards and users look, with Ray's rotation. A
folder or disk that does not let us write is said once and costs no other line. Installed by main.py; rules AS §1.1.
"""

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from raytide.autoscaler.settings import LogSettings

FORMAT: Final = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
"""Ray's own, so that its tools find time and level."""
MONITOR_LOG: Final = "monitor.log"

log = logging.getLogger(__name__)


class QuietFile(RotatingFileHandler):
    """A log file that complains once when it cannot be written, instead of a traceback per line."""

    def __init__(self, path: Path, settings: LogSettings) -> None:
        super().__init__(path, maxBytes=settings.rotation_bytes, backupCount=settings.rotated_files)
        self._has_complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the standard library's signature
        """Said once; the container's output has every line anyway."""
        if not self._has_complained:
            self._has_complained = True
            print(f"{self.baseFilename} cannot be written: {sys.exc_info()[1]}", file=sys.stderr)  # noqa: T201 - the log is what is broken


def install(settings: LogSettings) -> None:
    """The container's output."""
    to_stdout, to_stderr = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stderr)
    to_stdout.addFilter(lambda record: record.levelno < logging.WARNING)
    to_stderr.setLevel(logging.WARNING)
    for output in (to_stdout, to_stderr):
        output.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=settings.level, handlers=[to_stdout, to_stderr], force=True)


def write_to(folder: Path, settings: LogSettings) -> logging.Handler | None:
    """`monitor.log` too, from now on; None, and one line that says why, where that folder is not ours to write."""
    handler = open_file(folder / MONITOR_LOG, settings)
    if handler is not None:
        handler.setFormatter(logging.Formatter(FORMAT))
        logging.getLogger().addHandler(handler)
    return handler


def open_file(path: Path, settings: LogSettings) -> QuietFile | None:
    """A rotating file; None, and one line that says why, where it cannot be opened."""
    try:
        path.parent.mkdir(exist_ok=True)  # not its parents: Ray makes those, and one of them is a link
        return QuietFile(path, settings)
    except OSError as error:
        log.warning("%s cannot be written (%s): its lines go to the container's output only", path, error.strerror)
        return None
