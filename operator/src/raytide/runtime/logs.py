"""Log format: key=value lines that carry the current pass.

A context variable holds the current pass, so that every line of a reconcile carries controller, key and pass number; a
formatter writes key=value lines. It does not decide what is logged. Set by `controller/controller`, installed once by
the commands (architecture §6).
"""

import logging
from contextvars import ContextVar
from typing import Final

PASS: Final[ContextVar[str]] = ContextVar("pass", default="")
"""`controller=… namespace=… name=… pass=…` during a reconcile, otherwise empty."""
LONGEST_LINE: Final = 16_384
"""Characters; text from users may have a million."""


class KeyValueFormatter(logging.Formatter):
    """`time level logger message`, followed by the current pass; a traceback begins on the next line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """Format the line without its traceback."""
        current = PASS.get()
        line = super().formatMessage(record)
        if len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}… ({len(line) - LONGEST_LINE} more characters)"
        return _escaped(f"{line} {current}" if current else line)


def _escaped(line: str) -> str:
    """Escape unprintable characters, so that text from users cannot forge a line or send terminal commands."""
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def install(level: int = logging.INFO) -> None:
    """Send all logs to standard error in that format."""
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level, handlers=[to_stderr], force=True)
