"""In-process transport that injects the faults of a script.

`Faulty` wraps a transport, has the same two methods (`request`, `stream`), and applies the script's fault to each call
and watch line. It adds no fault of its own and passes everything else unchanged, in order. The client's exceptions are
created by the `ErrorFactory` it is given, because the sandbox does not import the client. Used by simulations in virtual
time; `proxy.py` does the same over HTTP (D17).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, cast

from raytide_sandbox.apiserver.request_response import Response
from support.faults.script import Script, seen_call, seen_line
from support.faults.types import (
    Answer,
    CallFault,
    Close,
    CommitLate,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Error,
    Garbage,
    HalfLine,
    Hang,
    Kill,
    LoseAnswer,
    LoseRequest,
    Overtake,
    RefuseConnection,
    Reset,
    ResponseHistory,
    Stale,
    Stall,
    Swap,
    WatchFault,
    answer,
    error_line,
)


class Wire(Protocol):
    """What carries requests: the interface of the operator's transport, without importing it."""

    async def request(self, method: str, path: str, *, timeout_s: float, **rest: Any) -> Any:
        """Send one request and return its whole answer with `status`, `body` and `headers`."""
        ...

    def stream(self, path: str, *, silence_s: float, **rest: Any) -> AsyncIterator[bytes]:
        """Yield the chunks of a body without end, such as a watch."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class ErrorFactory(Protocol):
    """Creates the exceptions that the client handles."""

    def lost(self, message: str, *, is_outcome_unknown: bool) -> Exception:
        """No complete answer was received."""
        ...

    def rejected(self, response: Any) -> Exception:
        """A stream was answered with a status other than 200."""
        ...


class Past(Protocol):
    """A source of old answers, such as `faults.types.ResponseHistory`."""

    def note(self, path: str, query: Mapping[str, str], response: Response, now_s: float) -> None:
        """Store the answer of a read at `now_s`."""
        ...

    def recall(self, path: str, query: Mapping[str, str], fault: Stale, now_s: float) -> Response | None:
        """The answer of a server that lags as `fault` asks; None when no answer is stored."""
        ...


class Faulty:
    """A transport that applies its script's faults to requests and streams.

    - Every fault of a call also applies to the opening of a watch, where nothing is committed.
    - `on_kill` ends the client; its call never returns.
    - `on_late_commit` receives the body of a request whose client gave up, right before it is sent.
    """

    def __init__(
        self,
        inner: Wire,
        script: Script,
        *,
        troubles: ErrorFactory,
        on_kill: Callable[[], None] = lambda: None,
        on_late_commit: Callable[[bytes | None], None] = lambda _body: None,
        past: Past | None = None,
    ) -> None:
        self._inner = inner
        self._script = script
        self._troubles = troubles
        self._on_kill = on_kill
        self._on_late_commit = on_late_commit
        self._past = past or ResponseHistory()
        self._late: set[asyncio.Task[Any]] = set()
        self._passed = asyncio.Condition()
        self._lines_of: dict[str, int] = {}

    async def close(self) -> None:
        """Cancel requests that wait to be committed late, and close the inner transport."""
        for task in self._late:
            task.cancel()
        await self._inner.close()

    # --- calls -----------------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, *, timeout_s: float, **rest: Any) -> Any:
        """Send one request, subject to the script's fault."""
        query = rest.get("query") or {}
        fault = self._script.call(method, path, query, headers=rest.get("headers"))
        if fault is None:
            return await self._sent(method, path, timeout_s=timeout_s, **rest)
        return await self._spoiled(fault, method, path, timeout_s=timeout_s, **rest)

    async def _sent(self, method: str, path: str, *, timeout_s: float, **rest: Any) -> Any:
        response = await self._inner.request(method, path, timeout_s=timeout_s, **rest)
        if method == "GET":
            self._past.note(path, rest.get("query") or {}, response, self._script.now_s())
        return response

    async def _spoiled(self, fault: CallFault, method: str, path: str, *, timeout_s: float, **rest: Any) -> Any:
        match fault:
            case Answer():
                return answer(fault)
            case RefuseConnection():
                raise self._troubles.lost("connection refused", is_outcome_unknown=False)
            case Stale():
                old = self._past.recall(path, rest.get("query") or {}, fault, self._script.now_s())
                return old or await self._sent(method, path, timeout_s=timeout_s, **rest)
            case Delay(for_s) if for_s < timeout_s:
                return await self._on_the_way(for_s, method, path, timeout_s=timeout_s - for_s, **rest)
            case Delay(for_s):
                self._commit_later(for_s, method, path, timeout_s=timeout_s, **rest)
            case CommitLate(after_s):
                self._commit_later(timeout_s + after_s, method, path, timeout_s=timeout_s, **rest)
            case LoseRequest():
                pass
            case Kill(is_after=False):
                await self._killed()
            case Kill() | LoseAnswer() | Reset():
                await self._sent(method, path, timeout_s=timeout_s, **rest)
                if isinstance(fault, Kill):
                    await self._killed()
                if isinstance(fault, Reset):
                    raise self._troubles.lost(
                        "the connection broke in the middle of the answer", is_outcome_unknown=True
                    )
        await asyncio.sleep(timeout_s)
        raise self._troubles.lost("timed out", is_outcome_unknown=True)

    async def _on_the_way(self, for_s: float, method: str, path: str, **rest: Any) -> Any:
        """Deliver the request after the delay, even if the client gives up or is killed meanwhile."""
        is_awaited = True

        async def arrive() -> Any:
            await asyncio.sleep(for_s)
            if not is_awaited:
                self._on_late_commit(rest.get("body"))
            return await self._sent(method, path, **rest)

        arriving = asyncio.get_running_loop().create_task(arrive())
        self._late.add(arriving)
        arriving.add_done_callback(self._late.discard)
        try:
            return await asyncio.shield(arriving)
        except asyncio.CancelledError:
            is_awaited = False
            arriving.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise

    async def _killed(self) -> None:
        self._on_kill()
        await asyncio.Event().wait()

    def _commit_later(self, after_s: float, method: str, path: str, **rest: Any) -> None:
        async def commit() -> None:
            await asyncio.sleep(after_s)
            self._on_late_commit(rest.get("body"))
            await self._inner.request(method, path, **rest)

        task = asyncio.get_running_loop().create_task(commit())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    # --- streams ---------------------------------------------------------------------------------------------------

    async def stream(self, path: str, *, silence_s: float, **rest: Any) -> AsyncIterator[bytes]:
        """Open a watch and yield its bytes, subject to the script's faults."""
        query = rest.get("query") or {}
        headers = rest.get("headers") or {}
        fault = self._script.call("GET", path, query, is_watch=True, headers=headers)
        if fault is not None:
            await self._opened_badly(fault, silence_s)
        plural = seen_call(0, "GET", path, query).plural
        chunks = cast("AsyncGenerator[bytes, None]", self._inner.stream(path, silence_s=silence_s, **rest))
        async with aclosing(chunks):
            lines = _Lines(self, self._script, plural, silence_s, agent=headers.get("user-agent", ""))
            async for line in lines.of(chunks):
                yield line

    async def _opened_badly(self, fault: CallFault, silence_s: float) -> None:
        match fault:
            case Answer():
                raise self._troubles.rejected(answer(fault))
            case Delay(for_s):
                await asyncio.sleep(for_s)
            case Kill():
                await self._killed()
            case Reset() | RefuseConnection():
                raise self._troubles.lost("the connection was refused or reset", is_outcome_unknown=False)
            case LoseRequest() | LoseAnswer() | CommitLate():
                await asyncio.sleep(silence_s)
                raise self._troubles.lost("no answer to the watch", is_outcome_unknown=False)
            case Stale():
                pass  # a watch starts at the version that the client names

    async def record_line(self, plural: str) -> None:
        """Count a delivered line of `plural`, and wake the lines that wait to be overtaken."""
        self._lines_of[plural] = self._lines_of.get(plural, 0) + 1
        async with self._passed:
            self._passed.notify_all()

    async def wait_overtaken(self, plural: str, longest_s: float) -> None:
        """Return when a line of another resource was delivered, or after `longest_s` seconds."""

        def others() -> int:
            return sum(count for kind, count in self._lines_of.items() if kind != plural)

        before = others()
        try:
            async with asyncio.timeout(longest_s), self._passed:
                await self._passed.wait_for(lambda: others() > before)
        except TimeoutError:
            return

    def lost(self, message: str) -> Exception:
        """The client's exception for a broken stream."""
        return self._troubles.lost(message, is_outcome_unknown=False)


class _Lines:
    """Applies faults to the lines of one stream."""

    def __init__(self, wire: Faulty, script: Script, plural: str, silence_s: float, *, agent: str) -> None:
        self._wire = wire
        self._script = script
        self._agent = agent
        self._plural = plural
        self._silence_s = silence_s
        self._is_over = False
        self._held: bytes | None = None

    async def of(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the bytes of every line as the client receives them."""
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                async for piece in self._after(line + b"\n"):
                    yield piece
                await self._wire.record_line(self._plural)
                if self._is_over:
                    return
        if self._held is not None:
            yield self._held
        if rest:
            yield rest

    async def _after(self, line: bytes) -> AsyncIterator[bytes]:
        fault = self._script.line(self._plural, line, agent=self._agent)
        held, self._held = self._held, None
        if isinstance(fault, Swap) and held is None:
            self._held = line
            return
        is_overtaken = held is not None and self._may_swap(held, line)
        if held is not None and not is_overtaken:
            yield held
        async for piece in self._spoiled(fault, line):
            yield piece
        if held is not None and is_overtaken:
            yield held

    def _may_swap(self, held: bytes, line: bytes) -> bool:
        """True when `line` is about another object and is no bookmark."""
        first, second = (seen_line(0, self._plural, each) for each in (held, line))
        is_same = (first.namespace, first.name) == (second.namespace, second.name)
        return not is_same and second.type in ("ADDED", "MODIFIED", "DELETED")

    async def _spoiled(self, fault: WatchFault | None, line: bytes) -> AsyncIterator[bytes]:
        match fault:
            case Stall(for_s):
                await asyncio.sleep(for_s)
            case Overtake(longest_s):
                await self._wire.wait_overtaken(self._plural, longest_s)
            case Cut():
                raise self._wire.lost("the connection broke")
            case Hang():
                await asyncio.sleep(self._silence_s)
                raise self._wire.lost(f"nothing came for {self._silence_s:.0f} s")
            case HalfLine(is_cut):
                yield line[: len(line) // 2]
                if is_cut:
                    raise self._wire.lost("the connection broke in the middle of a line")
                line = line[len(line) // 2 :]
            case Error() | Drop(is_silent=False):
                line = error_line(fault.code if isinstance(fault, Error) else 410)
                self._is_over = True
            case Drop():
                return
            case Garbage(junk):
                yield junk
            case Duplicate():
                yield line
            case Close():
                self._is_over = True
            case None | Swap():
                pass
        yield line
