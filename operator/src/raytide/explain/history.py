"""History of lanes: when each workload, and each of its groups, had how many ready workers of those wanted, and why not more, in bounded memory.

Takes lanes with the time, in any order of workloads, and returns the steps of one workload. At most `WINDOW_S` back and at most
`max_bytes` in total: when the steps need more, those of the workload with the largest number are merged to twice its resolution,
so that workloads that rarely change keep exact times. A clock that is set back moves the earlier steps back with it. Reads no
clock and does no I/O. Called by `raytide ui`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from raytide.explain.overview import GroupSize, Lane

WINDOW_S: Final = 6 * 3600
TRIM_S: Final = 600
"""Steps that are older than the window are removed when there are this many seconds of them."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Encoded steps of all workloads together. Allocated are at most an eighth more, and 700 bytes for each workload and group."""
MAX_WORKLOADS: Final = 10_000
"""Workloads beyond this have no history."""
MAX_GROUPS: Final = 5_000
"""Worker groups and roles of all workloads together; those beyond this have no history."""
MAX_REASONS: Final = 1_000
"""Different reasons that are stored; those beyond are shown as OTHER."""
MAX_REASON: Final = 64
OTHER: Final = "Other"
COARSEST_S: Final = WINDOW_S // 4


class Step(NamedTuple):
    """From `at` on, in seconds since 1970, a workload has these numbers."""

    at: int
    wanted: int
    ready: int
    reason: str = ""


_Code: TypeAlias = tuple[int, int, int, int]
"""A step as a plain tuple, because there are millions: time on the axis of the history, wanted, ready, number of the reason."""


class Key(NamedTuple):
    """A workload."""

    kind: str
    namespace: str
    name: str


def key_of(lane: Lane) -> Key:
    """The workload of that lane."""
    return Key(lane.kind, lane.namespace, lane.name)


class History:
    """Steps of many workloads."""

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, max_workloads: int = MAX_WORKLOADS, max_groups: int = MAX_GROUPS
    ) -> None:
        self._max_bytes, self._max_workloads, self._max_groups = max_bytes, max_workloads, max_groups
        self._series: dict[Key, _Series] = {}
        self._groups: dict[Key, dict[str, _Series]] = {}
        self._group_count = 0
        self._size = 0
        self._reasons: dict[str, int] = {"": 0, OTHER: 1}
        self._names: list[str] = ["", OTHER]
        self._latest: int | None = None
        self._offset = 0
        """What is added to a time of the axis for the wall time; the axis never goes back."""

    def __len__(self) -> int:
        """Number of workloads with steps."""
        return len(self._series)

    @property
    def size_bytes(self) -> int:
        """Bytes of the encoded steps."""
        return self._size

    def record(self, lane: Lane, now: datetime) -> None:
        """Add the numbers of a workload, if they differ from its last ones."""
        at = self._on_axis(now)
        key = key_of(lane)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= self._max_workloads:
                return
            series = self._series[key] = _Series()
        self._append(series, at, lane)
        self._record_groups(key, lane.groups, at)
        while self._size > self._max_bytes and self._merge_largest():
            pass

    def remove(self, key: Key) -> None:
        """Forget a workload that was deleted."""
        series = self._series.pop(key, None)
        if series is not None:
            self._size -= series.size
        self._record_groups(key, (), 0)

    def steps(
        self, key: Key, now: datetime, *, group: str = "", window_s: int = WINDOW_S, resolution_s: int = 1
    ) -> list[Step]:
        """The steps of a workload or of one of its groups in the window, the first at its beginning if it was known then."""
        series = self._groups.get(key, {}).get(group) if group else self._series.get(key)
        if series is None:
            return []
        start = self._on_axis(now) - min(window_s, WINDOW_S)
        return [
            Step(at + self._offset, wanted, ready, self._names[reason])
            for at, wanted, ready, reason in merged(from_start(series.codes(), start), resolution_s)
        ]

    def _append(self, series: "_Series", at: int, sizes: Lane | GroupSize) -> None:
        if sizes.ready is None:
            return
        before = series.size
        series.append((at, max(0, sizes.wanted), max(0, sizes.ready), self._number_of(sizes.reason)))
        if at - series.oldest > WINDOW_S + TRIM_S:
            series.trim(at - WINDOW_S)
        self._size += series.size - before

    def _record_groups(self, key: Key, groups: Sequence[GroupSize], at: int) -> None:
        """Add the numbers of the groups, and forget those that are gone."""
        known = self._groups.get(key, {})
        names = {group.name for group in groups}
        for name in [name for name in known if name not in names]:
            self._size -= known.pop(name).size
            self._group_count -= 1
        for group in groups:
            series = known.get(group.name)
            if series is None:
                if self._group_count >= self._max_groups:
                    continue
                series = known[group.name] = _Series()
                self._group_count += 1
            self._append(series, at, group)
        if known:
            self._groups[key] = known
        else:
            self._groups.pop(key, None)

    def _on_axis(self, now: datetime) -> int:
        wall = int(now.timestamp())
        if self._latest is not None and wall < self._latest:
            self._offset -= self._latest - wall
        self._latest = wall
        return wall - self._offset

    def _number_of(self, reason: str) -> int:
        short = reason[:MAX_REASON]
        number = self._reasons.get(short)
        if number is None:
            if len(self._names) >= MAX_REASONS:
                return self._reasons[OTHER]
            number = self._reasons[short] = len(self._names)
            self._names.append(short)
        return number

    def _merge_largest(self) -> bool:
        """Halve the resolution of the workload with the most bytes; False if nothing can be merged any more."""
        groups = (series for found in self._groups.values() for series in found.values())
        largest = max(chain(self._series.values(), groups), key=lambda series: series.size)
        before = largest.size
        is_merged = largest.merge()
        self._size += largest.size - before
        return is_merged


def from_start(codes: Iterable[_Code], start: int) -> Iterator[_Code]:
    """The codes from `start` on; the one that holds at `start` begins there."""
    held: _Code | None = None
    for code in codes:
        if code[0] <= start:
            held = code
            continue
        if held is not None:
            yield (start, *held[1:])
            held = None
        yield code
    if held is not None:
        yield (start, *held[1:])


def merged(codes: Iterable[_Code], resolution_s: int) -> Iterator[_Code]:
    """At most one code per `resolution_s`, the last one of each, without those that change nothing.

    It has the time of the first one: a merged step never begins later than what it stands for.
    """
    shown: tuple[int, ...] = ()
    held: _Code | None = None
    begin = slot = 0
    for code in codes:
        if held is not None and code[0] // resolution_s == slot:
            held = code
            continue
        if held is not None and shown != held[1:]:
            shown = held[1:]
            yield (begin, *held[1:])
        held, begin, slot = code, code[0], code[0] // resolution_s
    if held is not None and shown != held[1:]:
        yield (begin, *held[1:])


class _Series:
    """Steps of one workload: differences to the step before, as variable-length integers; the last one is not encoded."""

    __slots__ = ("_base", "_bytes", "_encoded", "_last", "resolution_s")

    def __init__(self) -> None:
        self.resolution_s = 1
        self._bytes = bytearray()
        self._base: _Code | None = None
        """What the first encoded difference refers to."""
        self._encoded: _Code | None = None
        """The last encoded step."""
        self._last: _Code | None = None

    @property
    def size(self) -> int:
        return len(self._bytes)

    @property
    def oldest(self) -> int:
        first = self._base or self._last
        return first[0] if first is not None else 0

    def append(self, code: _Code) -> None:
        last = self._last
        if last is None:
            self._last = code
        elif code[0] // self.resolution_s == last[0] // self.resolution_s:
            back = self._encoded is not None and self._encoded[1:] == code[1:]
            self._last = self._encoded if back else (last[0], *code[1:])
        elif code[1:] != last[1:]:
            if self._encoded is not last:
                self._encode(last)
            self._last = code

    def codes(self) -> Iterator[_Code]:
        """All steps, oldest first."""
        yield from self._decoded()
        if self._last is not None and self._last is not self._encoded:
            yield self._last

    def merge(self) -> bool:
        """Double the resolution; False if it is the coarsest."""
        if self.resolution_s >= COARSEST_S or not self._bytes:
            return False
        self.resolution_s *= 2
        self._replace(merged(self.codes(), self.resolution_s))
        return True

    def trim(self, start: int) -> None:
        """Remove what is older, and keep what holds at `start`."""
        self._replace(from_start(self.codes(), start))

    def _replace(self, codes: Iterable[_Code]) -> None:
        kept = list(codes)
        self._bytes, self._base, self._encoded, self._last = bytearray(), None, None, None
        for code in kept[:-1]:
            self._encode(code)
        self._last = kept[-1] if kept else None

    def _encode(self, code: _Code) -> None:
        before = self._encoded
        if before is None:
            self._base = code
        else:
            _put(self._bytes, code[0] - before[0])
            _put(self._bytes, _zigzag(code[1] - before[1]))
            _put(self._bytes, _zigzag(code[2] - before[2]))
            _put(self._bytes, code[3])
        self._encoded = code

    def _decoded(self) -> Iterator[_Code]:
        if self._base is None:
            return
        at, wanted, ready, _ = self._base
        yield self._base
        numbers = _numbers(self._bytes)
        for delta, more_wanted, more_ready, reason in zip(numbers, numbers, numbers, numbers, strict=True):
            at += delta
            wanted += more_wanted >> 1 ^ -(more_wanted & 1)
            ready += more_ready >> 1 ^ -(more_ready & 1)
            yield at, wanted, ready, reason


def _zigzag(number: int) -> int:
    """A whole number as a natural one: small numbers of either sign stay small."""
    return 2 * number if number >= 0 else -2 * number - 1


def _put(raw: bytearray, number: int) -> None:
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)


def _numbers(raw: bytearray) -> Iterator[int]:
    number = shift = 0
    for byte in raw:
        if byte < 0x80:
            yield number | byte << shift if shift else byte
            number = shift = 0
        else:
            number |= (byte & 0x7F) << shift
            shift += 7
