"""The faults between a client and a Kubernetes API server.

Faults are plain values: of one call (delayed, rejected, lost before or after its commit, answered with an error or from
the past) and of one watch line (lost, repeated, late, corrupted, the stream cut, silent or expired). script.py selects
them; this module also builds their bytes. Nothing is sent. Applied by `transport.py` in process and by `proxy.py` over
HTTP (D17; RM:F1–F7, F14).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.request_response import Response

# --- faults of a call ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delay:
    """The request reaches the server `for_s` late; the client's timeout runs meanwhile."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The server, or a proxy before it, answers this without carrying out the request."""

    status: int
    retry_after_s: int | None = None
    """Sent as Retry-After; real servers send it with 429 and with some 503."""
    reason: str = ""
    """Empty: the usual reason of that status."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class RefuseConnection:
    """The connection is refused at once; the request is not sent."""


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """The request never reaches the server; the client waits until its timeout."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The request is carried out and its answer is lost; the client waits until its timeout."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The request is carried out, and the connection breaks in the middle of the answer's body."""


@dataclass(frozen=True, slots=True)
class CommitLate:
    """The client gives up; `after_s` later the request reaches the server and is carried out."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Stale:
    """A GET or LIST gets an old answer: as of `lag_s` ago, and at least `lag_changes` changes ago."""

    lag_s: float = 0.0
    lag_changes: int = 0


@dataclass(frozen=True, slots=True)
class Kill:
    """The client is killed before its request leaves, or with `is_after` between its commit and the answer."""

    is_after: bool = False


CallFault: TypeAlias = Delay | Answer | RefuseConnection | LoseRequest | LoseAnswer | Reset | CommitLate | Stale | Kill

FORBIDDEN: Final = Answer(403, message="RBAC: access was withdrawn")
"""A role was revoked; give the rule an `until_s` to restore it."""
UNAUTHORIZED: Final = Answer(401, message="the token is not accepted any more")
"""A token was rotated, and the client still sends the old one."""

# --- faults of a watch line ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drop:
    """The line is lost.

    An API server never loses a line of an open watch, and a client may rely on that. So an `ERROR` 410 replaces the
    line and ends the stream. With `is_silent` the line is just missing, which no real server does.
    """

    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The line is delivered twice."""


@dataclass(frozen=True, slots=True)
class Stall:
    """This line and all later ones of the stream are delayed by `for_s`."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Overtake:
    """The line waits until a line of another resource is delivered, or for `longest_s` seconds.

    Lines of one stream keep their order, as in Kubernetes; lines of different resources have no order.
    """

    longest_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Swap:
    """The line changes places with the next one of the same stream, if that is about another object.

    No API server does this; it tests a client against a broken one. A bookmark never overtakes a line.
    """


@dataclass(frozen=True, slots=True)
class Close:
    """The server ends the stream cleanly after this line."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks before this line."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Neither this line nor a later one is delivered, and the connection stays open."""


@dataclass(frozen=True, slots=True)
class Error:
    """An ERROR line replaces this one and ends the stream: 410 expired, 500 internal error."""

    code: int = 410


@dataclass(frozen=True, slots=True)
class Garbage:
    """These bytes are inserted before the line."""

    junk: bytes = b'}{"type":"\xff\xfe"}\n'


@dataclass(frozen=True, slots=True)
class HalfLine:
    """The line is delivered in two pieces; with `is_cut` the connection breaks after the first."""

    is_cut: bool = False


WatchFault: TypeAlias = Drop | Duplicate | Stall | Overtake | Swap | Close | Cut | Hang | Error | Garbage | HalfLine

# --- their bytes -----------------------------------------------------------------------------------------------------

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
    return msgspec.json.encode(ApiStatusError(code, reason or REASONS.get(code, ""), message or "on purpose").body())


def answer(fault: Answer) -> Response:
    """Build the response that the client receives."""
    headers = {"content-type": "application/json"}
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(fault.retry_after_s)
    return Response(fault.status, _status(fault.status, fault.reason, fault.message), headers)


def error_line(code: int) -> bytes:
    """Build the ERROR line of a watch."""
    return b'{"type":"ERROR","object":' + _status(code, "", "") + b"}\n"


class ResponseHistory:
    """Earlier answers, recorded to be replayed as those of a lagging server.

    Stores up to `depth` answers of status 200 per path and query, without immediate repetitions. If none is old enough,
    the oldest stored one is returned, or None if there is none.
    """

    def __init__(self, depth: int = 64) -> None:
        self._depth = depth
        self._answers: dict[tuple[str, str], deque[tuple[float, Response]]] = {}

    def note(self, path: str, query: Mapping[str, str], response: Response, now_s: float) -> None:
        """Store the answer of a read at `now_s`."""
        known = self._answers.setdefault(_request_key(path, query), deque(maxlen=self._depth))
        if response.status == 200 and not (known and known[-1][1].body == response.body):
            known.append((now_s, response))

    def recall(self, path: str, query: Mapping[str, str], fault: Stale, now_s: float) -> Response | None:
        """The answer of a server that lags as `fault` asks; None when no answer is stored."""
        known = list(self._answers.get(_request_key(path, query), ()))
        late = known[: len(known) - fault.lag_changes] or known[:1]
        old = [response for at_s, response in late if at_s <= now_s - fault.lag_s] or [r for _, r in late[:1]]
        return old[-1] if old else None


def _request_key(path: str, query: Mapping[str, str]) -> tuple[str, str]:
    return path, "&".join(f"{key}={query[key]}" for key in sorted(query) if key not in ("timeout", "timeoutSeconds"))
