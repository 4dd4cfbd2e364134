"""On whose behalf is a log line written?

Holds the current pass in a context variable, so that every line of a reconcile, however deep, carries controller, key
and pass number; a formatter writes them as key=value. It never decides what is logged. Set by `runtime/controller`,
installed once by the commands (architecture §6).
"""

import logging
from contextvars import ContextVar
from typing import Final

PASS: Final[ContextVar[str]] = ContextVar("pass", default="")
"""`controller=… namespace=… name=… pass=…` while a reconcile runs, otherwise empty."""


class KeyValueFormatter(logging.Formatter):
    """`time level logger message`, followed by the current pass."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The line without its traceback."""
        current = PASS.get()
        line = super().formatMessage(record)
        return f"{line} {current}" if current else line


def install(level: int = logging.INFO) -> None:
    """Send everything to standard error in that form."""
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level, handlers=[to_stderr], force=True)
