"""What can go wrong between a client and a Kubernetes API server, and when does it?

Faults are plain values: of one call (late, refused, lost before or after it was carried out, answered from the past) and
of one watch line (lost, twice, late, spoiled, the stream cut, deaf or expired). A `Script` says which call or line, by
number, predicate or time, meets which fault, counts what it saw, and keeps a record of it. It never sends, sleeps or
reads a clock by itself. Carried out by `faulty.py` in process and by `fault_proxy.py` over HTTP (D17; RM:F1–F7, F14).
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from raytide.sandbox.apiserver.calls import parse_target
from raytide.sandbox.apiserver.messages import Response
from raytide.sandbox.apiserver.status import ApiStatus

# --- what may happen to a call -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits so long before it reaches the server; the client's patience runs meanwhile."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The server, or something before it, answers this instead of doing anything."""

    status: int
    retry_after_s: int | None = None
    """Sent as Retry-After; real servers send it with 429 and with some 503."""
    reason: str = ""
    """Empty: the usual one of that status."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nobody listens: the connection is refused at once."""


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """Nobody ever hears of it; the client waits until its patience ends."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """It is carried out, and the answer is lost; the client waits until its patience ends."""


@dataclass(frozen=True, slots=True)
class Reset:
    """It is carried out, and the connection breaks in the middle of the answer's body."""


@dataclass(frozen=True, slots=True)
class CommitLate:
    """The client gives up; so long after that the request arrives after all and is carried out."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Stale:
    """A GET or LIST is answered from the past: as it was `lag_s` ago, and at least `lag_changes` changes ago."""

    lag_s: float = 0.0
    lag_changes: int = 0


@dataclass(frozen=True, slots=True)
class Kill:
    """The client is killed right before its request leaves, or after it was carried out and before the answer."""

    is_after: bool = False


CallFault: TypeAlias = Delay | Answer | Refuse | LoseRequest | LoseAnswer | Reset | CommitLate | Stale | Kill

FORBIDDEN: Final = Answer(403, message="RBAC: access was withdrawn")
"""A role was taken away; give the rule an end to give it back."""
UNAUTHORIZED: Final = Answer(401, message="the token is not accepted any more")
"""A token was rotated and the client still shows the old one."""

# --- what may happen to a watch line -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drop:
    """The line is lost.

    An API server never loses a line of a watch that it keeps open, and a client may rely on that. So a dropped line is
    followed by what the protocol uses to say so: an `ERROR` 410. `is_silent` leaves even that out, as no server does.
    """

    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The line comes twice."""


@dataclass(frozen=True, slots=True)
class Stall:
    """This line and all that follow on this stream come so much later."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Overtake:
    """The line comes only after a line of another stream came, or so many seconds have gone by.

    Lines of one stream keep their order, as they do in Kubernetes; those of different kinds have none among each other.
    """

    longest_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Swap:
    """The line changes places with the next one of the same stream, if that is about another object.

    No API server does this; it is here to see what a client makes of a broken one. A bookmark never overtakes a line.
    """


@dataclass(frozen=True, slots=True)
class Close:
    """The server ends the stream in good order, after this line."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks before this line."""


@dataclass(frozen=True, slots=True)
class Hang:
    """From this line on nothing comes any more, and the connection stays open."""


@dataclass(frozen=True, slots=True)
class Error:
    """The server says ERROR inside the stream instead of this line, and ends it: 410 expired, 500 in trouble."""

    code: int = 410


@dataclass(frozen=True, slots=True)
class Garbage:
    """These bytes come before the line."""

    junk: bytes = b'}{"type":"\xff\xfe"}\n'


@dataclass(frozen=True, slots=True)
class HalfLine:
    """The line comes in two pieces; with `is_cut` the connection breaks after the first."""

    is_cut: bool = False


WatchFault: TypeAlias = Drop | Duplicate | Stall | Overtake | Swap | Close | Cut | Hang | Error | Garbage | HalfLine

# --- who meets them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One request, or the opening of one watch, as a script sees it; `number` counts all of them from 0."""

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
    """As far as whoever asks knows them; names are lower-case."""

    @property
    def agent(self) -> str:
        """The client's name for itself."""
        return self.headers.get("user-agent", "")

    @property
    def is_write(self) -> bool:
        """Whether it may change something."""
        return self.method in ("POST", "PUT", "PATCH", "DELETE")

    @property
    def is_list(self) -> bool:
        """Whether it reads a whole collection, page by page."""
        return self.method == "GET" and not self.name and not self.is_watch

    def __str__(self) -> str:
        verb = "WATCH" if self.is_watch else self.method
        return f"{verb} {self.path}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a watch as a script sees it; `number` counts the lines of all watches but bookmarks from 0."""

    number: int
    plural: str
    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    namespace: str
    name: str
    agent: str = ""
    """Who follows this watch."""

    def __str__(self) -> str:
        return f"{self.type} {self.plural} {self.name}"


F = TypeVar("F")
S = TypeVar("S")


@dataclass(slots=True)
class Rule(Generic[S, F]):
    """The subjects that meet a fault: those that match, after the first `skip` of them, `times` of them, in its time."""

    fault: F
    matches: Callable[[S], bool] = lambda _subject: True
    skip: int = 0
    times: int | None = 1
    """None: for ever."""
    from_s: float = float("-inf")
    until_s: float = float("inf")
    """On the clock of whoever asks."""

    def meets(self, subject: S, now_s: float) -> bool:
        """Whether this one is hit; counts."""
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
    """Which call and which watch line meets which fault; the first rule that fits wins.

    - `call` and `line` are asked once per call and line, in the order these happen, and answer None for "nothing".
    - `met` lists what happened to whom; with `is_recording`, `calls` and `lines` keep all that was seen.
    - `last_met_s` is when the last fault was met, None before the first.
    """

    now_s: Callable[[], float]
    """Any clock that never goes back."""
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
        """No more trouble from now on."""
        self.of_calls.clear()
        self.of_lines.clear()

    def recount(self) -> None:
        """The next call and the next line are number 0: what came before was only the way to where it begins."""
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
        """What happens to this request."""
        number, self._calls_seen = self._calls_seen, self._calls_seen + 1
        if not self.of_calls and not self.is_recording:
            return None
        call = seen_call(number, method, path, query, is_watch=is_watch, headers=headers)
        if self.is_recording:
            self.calls.append(call)
        return self._fault(self.of_calls, call)

    def line(self, plural: str, line: bytes, *, agent: str = "") -> WatchFault | None:
        """What happens to this line, which came on a watch of `plural` that `agent` follows."""
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
    """A request taken apart; one that names no resource has an empty plural."""
    known = headers or {}
    try:
        target = parse_target(path)
    except ApiStatus:
        return Call(number, method, path, query, "", "", "", is_watch, headers=known)
    return Call(
        *(number, method, path, query, target.plural, target.name, target.subresource, is_watch),
        namespace=target.namespace,
        headers=known,
    )


def seen_line(number: int, plural: str, line: bytes, *, agent: str = "") -> Line:
    """A watch line taken apart; one that cannot be read is an ERROR without a name."""
    try:
        decoded = _lines.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Line(number, plural, "ERROR", "", "", agent)
    metadata = decoded.object.metadata
    return Line(number, plural, decoded.type, metadata.namespace, metadata.name, agent)


# --- what they look like on the wire ---------------------------------------------------------------------------------

REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _status(code: int, reason: str, message: str) -> bytes:
    return msgspec.json.encode(ApiStatus(code, reason or REASONS.get(code, ""), message or "on purpose").body())


def answer(fault: Answer) -> Response:
    """The response that a client gets."""
    headers = {"content-type": "application/json"}
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(fault.retry_after_s)
    return Response(fault.status, _status(fault.status, fault.reason, fault.message), headers)


def error_line(code: int) -> bytes:
    """An ERROR as it comes inside a watch."""
    return b'{"type":"ERROR","object":' + _status(code, "", "") + b"}\n"


class Memory:
    """Answers of earlier, to be given once more: the past of a server that cannot be asked about it.

    Remembers different answers only, `depth` of them per path and query. Where nothing old enough was ever read the
    oldest one that is known is given, and None where nothing is.
    """

    def __init__(self, depth: int = 64) -> None:
        self._depth = depth
        self._answers: dict[tuple[str, str], deque[tuple[float, Response]]] = {}

    def note(self, path: str, query: Mapping[str, str], response: Response, now_s: float) -> None:
        """This was the truth at that moment."""
        known = self._answers.setdefault(_question(path, query), deque(maxlen=self._depth))
        if response.status == 200 and not (known and known[-1][1].body == response.body):
            known.append((now_s, response))

    def recall(self, path: str, query: Mapping[str, str], fault: Stale, now_s: float) -> Response | None:
        """What a server that lags so much would say."""
        known = list(self._answers.get(_question(path, query), ()))
        late = known[: len(known) - fault.lag_changes] or known[:1]
        old = [response for at_s, response in late if at_s <= now_s - fault.lag_s] or [r for _, r in late[:1]]
        return old[-1] if old else None


def _question(path: str, query: Mapping[str, str]) -> tuple[str, str]:
    return path, "&".join(f"{key}={query[key]}" for key in sorted(query) if key not in ("timeout", "timeoutSeconds"))
