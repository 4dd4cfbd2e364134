"""What can go wrong between a client and a Kubernetes API server?

Faults are plain values: of one call (late, refused, lost before or after it was carried out, answered from the past) and
of one watch line (lost, twice, late, spoiled, the stream cut, deaf or expired). Who meets one is said by fault_script.py;
here is also what they look like on the wire. Nothing is sent. Carried out by `faulty.py` in process and by `fault_proxy.py`
over HTTP (D17; RM:F1–F7, F14).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

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
