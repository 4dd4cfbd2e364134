"""Log formats: key=value lines or JSON objects that carry the current pass.

A context variable holds the current pass, so that every line of a reconcile carries controller, key and pass number; the
formatters write one line per record, with escapes for what text of tenants must not do to a log. It does not decide what is
logged. Set by `controller/controller`, installed once by the commands (architecture §6); the sidecar's log has its own format
(FD:SEC-F12, FD:SEC3-6).
"""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from raytide.api.printable import escaped

if TYPE_CHECKING:
    from logging import _SysExcInfoType

LogFormat: TypeAlias = Literal["text", "json"]

PASS: Final[ContextVar[str]] = ContextVar("pass", default="")
"""`controller=… namespace=… name=… pass=…` during a reconcile, otherwise empty."""
LONGEST_LINE: Final = 16_384
"""Characters; text from users may have a million."""
LONGEST_TRACEBACK: Final = 400
"""Lines; the message of an exception may have as many as a user wrote."""


class LineFormatter(logging.Formatter):
    """One line per record, whatever text of tenants it has; the lines of a traceback follow it and are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """Format the line without its traceback."""
        record.message = escaped(_shortened(record.message))
        return super().formatMessage(record)

    def formatException(self, ei: "_SysExcInfoType") -> str:  # noqa: N802 - the standard library's name
        """Format the traceback, so that the exception's message cannot pass for a record."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the standard library's name
        """Format the stack that a record was made with."""
        return _indented(stack_info)


class KeyValueFormatter(LineFormatter):
    """`time level logger message`, followed by the current pass."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """Format the line without its traceback."""
        current, line = PASS.get(), super().formatMessage(record)
        return f"{line} {escaped(current)}" if current else line


class JsonFormatter(logging.Formatter):
    """A JSON object per line: `level`, `ts`, `logger`, `msg` as in KubeRay's log, the current pass, and `stacktrace`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with its traceback; only ASCII, so that text from users cannot forge a line."""
        current = (word.partition("=") for word in PASS.get().split())
        line = {
            "level": record.levelname.lower(),
            "ts": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
            "msg": _shortened(record.getMessage()),
            **{name: value for name, _, value in current},
        }
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(line)


FORMATTERS: Final[dict[LogFormat, type[logging.Formatter]]] = {"text": KeyValueFormatter, "json": JsonFormatter}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}… ({len(text) - LONGEST_LINE} more characters)"


def _indented(text: str) -> str:
    """The lines of a traceback, bounded in number and length."""
    lines = text.splitlines()
    half, more = LONGEST_TRACEBACK // 2, len(lines) - LONGEST_TRACEBACK
    if more > 0:
        lines = [*lines[:half], f"… ({more} more lines)", *lines[-half:]]
    return "\n".join(f"  {escaped(_shortened(line))}" for line in lines)


def install(level: int = logging.INFO, log_format: LogFormat = "text") -> None:
    """Send all logs to standard error in that format."""
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(FORMATTERS[log_format]())
    logging.basicConfig(level=level, handlers=[to_stderr], force=True)
