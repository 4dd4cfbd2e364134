"""Container logs: the bytes that `kubectl logs` requests.

Input: a log file, the options of `kubectl logs` and a function that returns whether more may come. Yields bytes as they
arrive. The file holds the container's output and nothing else; a `LogClock` records the size of the file once a second,
so `timestamps` and `sinceSeconds` are exact to a second. Called by kubelet/server.py and remotecommand.py.
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from raytide_sandbox.rfc3339 import parse_time

_CHUNK: Final = 64 * 1024
_FOLLOW_PERIOD_S: Final = 0.2
_BLOCK: Final = 64 * 1024
_LINES: Final = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of `kubectl logs`."""

    is_following: bool = False
    has_timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


def read_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """The options of a request; raises ValueError for invalid numbers."""
    since = parse_time(query.get("sinceTime"))
    if "sinceSeconds" in query:
        since = now - timedelta(seconds=int(query["sinceSeconds"]))
    tail, limit = query.get("tailLines"), query.get("limitBytes")
    return LogOptions(
        is_following=is_true(query.get("follow")),
        has_timestamps=is_true(query.get("timestamps")),
        tail_lines=None if tail is None else max(0, int(tail)),
        limit_bytes=None if limit is None else max(0, int(limit)),
        since=since,
    )


def is_true(text: str | None) -> bool:
    """Whether the value of a query parameter means true."""
    return text in {"true", "1", "True"}


@dataclass(slots=True)
class LogClock:
    """The times at which a growing file reached its sizes."""

    sizes: list[int] = field(default_factory=list)
    moments: list[datetime] = field(default_factory=list)

    def note(self, size: int, now: datetime) -> None:
        """Record the file's current size."""
        if size > (self.sizes[-1] if self.sizes else 0):
            self.sizes.append(size)
            self.moments.append(now)

    def written_at(self, offset: int, now: datetime) -> datetime:
        """When the byte at `offset` was written, as far as recorded."""
        index = bisect_left(self.sizes, offset + 1)
        return self.moments[index] if index < len(self.moments) else now

    def offset_since(self, since: datetime) -> int:
        """The offset of the first byte not recorded as older."""
        index = bisect_left(self.moments, since)
        return self.sizes[index - 1] if index > 0 else 0


async def read_log(
    path: Path,
    options: LogOptions,
    clock: LogClock,
    *,
    may_grow: Callable[[], bool],
    now: Callable[[], datetime],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[bytes]:
    """Yield the requested bytes; when following, until `may_grow` is false and everything has been read."""
    offset = clock.offset_since(options.since) if options.since else 0
    if options.tail_lines is not None:
        offset = max(offset, tail_offset(path, options.tail_lines))
    left = options.limit_bytes
    stamped = _Stamps(clock, offset, now) if options.has_timestamps else None
    while True:
        is_last = not (options.is_following and may_grow())
        while chunk := _read(path, offset):
            offset += len(chunk)
            shown = stamped.stamp(chunk) if stamped else chunk
            shown = shown if left is None else shown[:left]
            left = None if left is None else left - len(shown)
            yield shown
            if left == 0:
                return
        if is_last:
            return
        await pause(_FOLLOW_PERIOD_S)


def tail_offset(path: Path, lines: int) -> int:
    """Offset of the last `lines` lines, found by reading backwards in blocks."""
    try:
        with path.open("rb") as file:
            end = position = file.seek(0, 2)
            if lines == 0:
                return end
            wanted = lines + (1 if _ends_with_newline(file, end) else 0)
            while position > 0:
                begin = max(0, position - _BLOCK)
                file.seek(begin)
                block = file.read(position - begin)
                count = block.count(b"\n")
                if count >= wanted:
                    return begin + _nth_from_end(block, wanted) + 1
                wanted -= count
                position = begin
    except OSError:
        pass
    return 0


def _ends_with_newline(file: BinaryIO, end: int) -> bool:
    if end == 0:
        return False
    file.seek(end - 1)
    return file.read(1) == b"\n"


def _nth_from_end(block: bytes, count: int) -> int:
    position = len(block)
    for _ in range(count):
        position = block.rindex(b"\n", 0, position)
    return position


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK)
    except FileNotFoundError:
        return b""


class _Stamps:
    """Prefixes every line with its time, across chunks."""

    def __init__(self, clock: LogClock, offset: int, now: Callable[[], datetime]) -> None:
        self._clock = clock
        self._offset = offset
        self._now = now
        self._is_at_line_start = True

    def stamp(self, chunk: bytes) -> bytes:
        shown = bytearray()
        for line in _LINES.findall(chunk):
            if self._is_at_line_start:
                shown += self._prefix()
            shown += line
            self._offset += len(line)
            self._is_at_line_start = line.endswith(b"\n")
        return bytes(shown)

    def _prefix(self) -> bytes:
        moment = self._clock.written_at(self._offset, self._now()).astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
