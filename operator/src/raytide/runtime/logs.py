"""Log formats: key=value lines or JSON objects that carry the current pass.

A context variable holds the current pass, so that every line of a reconcile carries controller, key and pass number; the
formatters write one line per record. It does not decide what is logged. Set by `controller/controller`, installed once by
the commands (architecture §6).
"""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]

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
        line = _shortened(super().formatMessage(record))
        return _escaped(f"{line} {current}" if current else line)


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


def _escaped(line: str) -> str:
    """Escape unprintable characters, so that text from users cannot forge a line or send terminal commands."""
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def install(level: int = logging.INFO, log_format: LogFormat = "text") -> None:
    """Send all logs to standard error in that format."""
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(FORMATTERS[log_format]())
    logging.basicConfig(level=level, handlers=[to_stderr], force=True)
