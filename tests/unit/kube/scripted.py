"""A scripted API server.

Requests are answered from a list (or by a function), streams are played from lists of chunks, pauses and troubles, in
virtual time. Every call is recorded. Used by the tests of everything above `kube/transport`.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raytide.api.errors import ApiUnavailableError
from raytide.kube.transport import Response, StreamStatusError


@dataclass(frozen=True)
class Call:
    """One request or stream as it reached the transport."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    timeout_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"null")


Answer = Response | Exception | Callable[[Call], "Response | Exception"]
HANG = object()
"""In a stream's script: nothing comes any more, until the reader's patience ends."""


def answer(body: object = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
    return Response(status, raw, headers or {})


def status_error(status: int, reason: str = "", message: str = "", **more: Any) -> Response:
    headers = more.pop("headers", None)
    return answer({"kind": "Status", "reason": reason, "message": message, **more}, status=status, headers=headers)


def line(kind: str, body: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


@dataclass
class ScriptedTransport:
    """Plays answers in order; a call without an answer is a failed test."""

    answers: deque[Answer] = field(default_factory=deque)
    streams: deque[Iterable[Any]] = field(default_factory=deque)
    calls: list[Call] = field(default_factory=list)
    watches: list[Call] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    takes_s: float = 0.0
    responder: Callable[[Call], Response | Exception] | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float,
    ) -> Response:
        call = Call(method, path, dict(query or {}), dict(headers or {}), body, timeout_s)
        self.calls.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
            return self._answer(call)
        finally:
            self.in_flight -= 1

    def _answer(self, call: Call) -> Response:
        if self.answers:
            reply: Answer = self.answers.popleft()
        elif self.responder is not None:
            reply = self.responder
        else:
            raise AssertionError(f"unexpected {call.method} {call.path}")
        if callable(reply):
            reply = reply(call)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float,
    ) -> AsyncIterator[bytes]:
        self.watches.append(Call("WATCH", path, dict(query or {}), dict(headers or {}), None, silence_s))
        script: Iterable[Any] = self.streams.popleft() if self.streams else [HANG]
        for step in script:
            if step is HANG:
                await asyncio.sleep(silence_s)
                raise ApiUnavailableError("silent")
            if isinstance(step, Response):
                raise StreamStatusError(step)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, int | float):
                await asyncio.sleep(step)
            else:
                yield step

    async def close(self) -> None:
        return None

    def of(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]
