"""Fault scripts: rules that select a fault for a call or a watch line.

A `Script` selects calls and lines by number, predicate or time, counts what it saw and records each fault it applied.
Its faults are those of types.py; it never sends, sleeps or reads a clock by itself. Called by `transport.py` in process
and by `proxy.py` over HTTP, once per call or line, when it occurs (D17; RM:F1–F7, F14).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.request_info import parse_target
from support.faults.types import CallFault, WatchFault

# --- what rules match ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One request, or the opening of one watch, as a rule sees it; `number` counts both from 0."""

    number: int
    method: str
    path: str
    query: Mapping[str, str]
    plural: str
    """`pods`, `rayclusters`, …; empty for paths that name no resource."""
    name: str
    subresource: str
    is_watch: bool = False
    namespace: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Lower-case names; only those that the caller passed."""

    @property
    def agent(self) -> str:
        """The client's User-Agent."""
        return self.headers.get("user-agent", "")

    @property
    def is_write(self) -> bool:
        """True for POST, PUT, PATCH and DELETE."""
        return self.method in ("POST", "PUT", "PATCH", "DELETE")

    @property
    def is_list(self) -> bool:
        """True for a LIST, of which each page is one call."""
        return self.method == "GET" and not self.name and not self.is_watch

    def __str__(self) -> str:
        verb = "WATCH" if self.is_watch else self.method
        return f"{verb} {self.path}"


@dataclass(frozen=True, slots=True)
class Line:
    """One watch line as a rule sees it; `number` counts non-bookmark lines from 0, while rules or recording exist."""

    number: int
    plural: str
    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    namespace: str
    name: str
    agent: str = ""
    """The user agent of the watching client."""

    def __str__(self) -> str:
        return f"{self.type} {self.plural} {self.name}"


F = TypeVar("F")
S = TypeVar("S")


@dataclass(slots=True)
class Rule(Generic[S, F]):
    """Applies `fault` to matching subjects within its time span: skips the first `skip`, then hits `times` of them."""

    fault: F
    matches: Callable[[S], bool] = lambda _subject: True
    skip: int = 0
    times: int | None = 1
    """None: no limit."""
    from_s: float = float("-inf")
    until_s: float = float("inf")
    """Start and end on the script's clock."""

    def meets(self, subject: S, now_s: float) -> bool:
        """True when this subject is hit; updates the counters."""
        if not (self.from_s <= now_s < self.until_s) or self.times == 0 or not self.matches(subject):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _WatchLine(msgspec.Struct, gc=False):
    type: str
    object: _Object = msgspec.field(default_factory=_Object)


_lines: Final = msgspec.json.Decoder(_WatchLine)


@dataclass(slots=True)
class Script:
    """The faults of calls and of watch lines; the first rule that fits wins.

    - Call `call` and `line` once per call and line, in order; they return None for "no fault".
    - `met` lists the faults applied; with `is_recording`, `calls` and `lines` keep all that was seen.
    - `last_met_s` is the time of the last fault, None before the first.
    """

    now_s: Callable[[], float]
    """A clock that never goes back."""
    of_calls: list[Rule[Call, CallFault]] = field(default_factory=list)
    of_lines: list[Rule[Line, WatchFault]] = field(default_factory=list)
    is_recording: bool = False
    calls: list[Call] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    last_met_s: float | None = None
    _calls_seen: int = 0
    _lines_seen: int = 0

    def clear(self) -> None:
        """Remove all rules."""
        self.of_calls.clear()
        self.of_lines.clear()

    def recount(self) -> None:
        """Restart the numbering at 0 and drop the recorded calls and lines, for example after a test's setup."""
        self._calls_seen = self._lines_seen = 0
        self.calls.clear()
        self.lines.clear()

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        is_watch: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> CallFault | None:
        """The fault of this request, or None."""
        number, self._calls_seen = self._calls_seen, self._calls_seen + 1
        if not self.of_calls and not self.is_recording:
            return None
        call = seen_call(number, method, path, query, is_watch=is_watch, headers=headers)
        if self.is_recording:
            self.calls.append(call)
        return self._fault(self.of_calls, call)

    def line(self, plural: str, line: bytes, *, agent: str = "") -> WatchFault | None:
        """The fault of this line, which came on a watch of `plural` by `agent`, or None."""
        if not self.of_lines and not self.is_recording:
            return None
        seen = seen_line(self._lines_seen, plural, line, agent=agent)
        if seen.type != "BOOKMARK":
            self._lines_seen += 1
            if self.is_recording:
                self.lines.append(seen)
        return self._fault(self.of_lines, seen)

    def _fault(self, rules: list[Rule[S, F]], subject: S) -> F | None:
        now_s = self.now_s()
        for rule in rules:
            if rule.meets(subject, now_s):
                self.met.append(f"{rule.fault} at {subject}")
                self.last_met_s = now_s
                return rule.fault
        return None


def seen_call(
    number: int,
    method: str,
    path: str,
    query: Mapping[str, str],
    *,
    is_watch: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Call:
    """Parse a request; one that names no resource has an empty plural."""
    known = headers or {}
    try:
        target = parse_target(path)
    except ApiStatusError:
        return Call(number, method, path, query, "", "", "", is_watch, headers=known)
    return Call(
        *(number, method, path, query, target.plural, target.name, target.subresource, is_watch),
        namespace=target.namespace,
        headers=known,
    )


def seen_line(number: int, plural: str, line: bytes, *, agent: str = "") -> Line:
    """Parse a watch line; one that cannot be decoded is an ERROR without a name."""
    try:
        decoded = _lines.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Line(number, plural, "ERROR", "", "", agent)
    metadata = decoded.object.metadata
    return Line(number, plural, decoded.type, metadata.namespace, metadata.name, agent)
