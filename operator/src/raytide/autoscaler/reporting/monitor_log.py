"""Log output of the sidecar: container output and `monitor.log`.

Writes to the container's output as Ray's autoscaler does (below WARNING to stdout, from WARNING to stderr) and, once
the head has published its log folder, also to `monitor.log` there, with Ray's rotation, for dashboards and users. A record
is one line whatever text of tenants it has (FD:SEC3-6). If the file cannot be written, that is logged once and the
container's output is still complete. Installed by autoscaler/sidecar/main.py; rules AS §1.1.
"""

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from raytide.api.printable import escaped
from raytide.autoscaler.reporting.log_settings import LogSettings
from raytide.runtime.logs import LineFormatter

FORMAT: Final = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
"""Ray's own format, so that its tools find time and level."""
MONITOR_LOG: Final = "monitor.log"

log = logging.getLogger(__name__)


class QuietFile(RotatingFileHandler):
    """A rotating log file that reports a write error once instead of with a traceback per line."""

    def __init__(self, path: Path, settings: LogSettings) -> None:
        super().__init__(path, maxBytes=settings.rotation_bytes, backupCount=settings.rotated_files)
        self._has_complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the standard library's signature
        """Report the first error only; the container's output has every line."""
        if not self._has_complained:
            self._has_complained = True
            print(escaped(f"cannot write {self.baseFilename}: {sys.exc_info()[1]}"), file=sys.stderr)  # noqa: T201 - the log is what is broken


def install(settings: LogSettings) -> None:
    """Log to the container's output."""
    to_stdout, to_stderr = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stderr)
    to_stdout.addFilter(lambda record: record.levelno < logging.WARNING)
    to_stderr.setLevel(logging.WARNING)
    for output in (to_stdout, to_stderr):
        output.setFormatter(LineFormatter(FORMAT))
    logging.basicConfig(level=settings.level, handlers=[to_stdout, to_stderr], force=True)


def write_to(folder: Path, settings: LogSettings) -> logging.Handler | None:
    """Log to `monitor.log` as well; None, and one warning, if the folder is not writable."""
    handler = open_file(folder / MONITOR_LOG, settings)
    if handler is not None:
        handler.setFormatter(LineFormatter(FORMAT))
        logging.getLogger().addHandler(handler)
    return handler


def open_file(path: Path, settings: LogSettings) -> QuietFile | None:
    """Open a rotating file; None, and one warning, if it cannot be opened."""
    try:
        path.parent.mkdir(exist_ok=True)  # not its parents: Ray creates those, and one of them is a symlink
        return QuietFile(path, settings)
    except OSError as error:
        log.warning("cannot write %s (%s): its lines are in the container's output only", path, error.strerror)
        return None
