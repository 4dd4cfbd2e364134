"""The effect of each fault on a client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from raytide_sandbox.apiserver.request_response import Response
from support import virtual_time
from support.faults.script import Rule, Script
from support.faults.transport import Faulty
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
    Stale,
    Stall,
    Swap,
    WatchFault,
)

pytestmark = pytest.mark.looptime

PATH = "/api/v1/namespaces/default/pods"
SILENCE_S = 60.0


class LostError(Exception):
    def __init__(self, message: str, *, is_outcome_unknown: bool) -> None:
        super().__init__(message)
        self.is_outcome_unknown = is_outcome_unknown


class RejectedError(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(str(response.status))
        self.response = response


class Errors:
    def lost(self, message: str, *, is_outcome_unknown: bool) -> Exception:
        return LostError(message, is_outcome_unknown=is_outcome_unknown)

    def rejected(self, response: Response) -> Exception:
        return RejectedError(response)


def line(name: str, kind: str = "MODIFIED") -> bytes:
    return msgspec.json.encode({"type": kind, "object": {"metadata": {"name": name}}}) + b"\n"


class Server:
    """Executes requests, and sends the same lines to every watch, one second apart."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = lines
        self.done: list[tuple[float, str]] = []
        self.is_closed = False

    async def request(self, method: str, *_: Any, **__: Any) -> Response:
        self.done.append((now(), method))
        return Response(200, f"answer {len(self.done)}".encode())

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        for each in self.lines:
            await asyncio.sleep(1.0)
            yield each

    async def close(self) -> None:
        self.is_closed = True


def now() -> float:
    return virtual_time.elapsed_s()


def faulty(
    server: Server, fault: CallFault | None = None, *, line_fault: WatchFault | None = None, **rest: Any
) -> Faulty:
    script = Script(now_s=now)
    if fault:
        script.of_calls.append(Rule(fault))
    if line_fault:
        script.of_lines.append(Rule(line_fault))
    return Faulty(server, script, troubles=Errors(), **rest)


async def events_of(wire: Faulty, path: str = PATH) -> list[tuple[float, bytes | str]]:
    """When which piece came, and how it ended."""
    begun_at, pieces = now(), list[tuple[float, bytes | str]]()
    try:
        async for piece in wire.stream(path, silence_s=SILENCE_S):
            pieces.append((now() - begun_at, piece))
    except (LostError, RejectedError) as error:
        return [*pieces, (now() - begun_at, str(error))]
    return [*pieces, (now() - begun_at, "end")]


A, B, C = line("a"), line("b"), line("c")


class TestCalls:
    """One request each."""

    async def test_without_a_fault_everything_passes(self) -> None:
        server = Server()
        response = await faulty(server).request("POST", PATH, timeout_s=10.0)
        assert (response.body, server.done) == (b"answer 1", [(0.0, "POST")])

    async def test_a_delay_is_waited_for(self) -> None:
        server = Server()
        await faulty(server, Delay(4.0)).request("POST", PATH, timeout_s=10.0)
        assert server.done == [(4.0, "POST")]

    async def test_a_delay_beyond_the_timeout_executes_the_request_after_the_client_gave_up(self) -> None:
        server = Server()
        with pytest.raises(LostError) as caught:
            await faulty(server, Delay(14.0)).request("POST", PATH, timeout_s=10.0)
        assert (now(), caught.value.is_outcome_unknown, server.done) == (10.0, True, [])
        await asyncio.sleep(5.0)
        assert server.done == [(14.0, "POST")]

    async def test_a_scripted_response_is_returned_at_once_without_executing_the_request(self) -> None:
        server = Server()
        response = await faulty(server, Answer(429, retry_after_s=2)).request("POST", PATH, timeout_s=10.0)
        assert (response.status, response.headers["retry-after"], server.done) == (429, "2", [])

    @pytest.mark.parametrize(("fault", "done"), [(LoseRequest(), 0), (LoseAnswer(), 1)], ids=str)
    async def test_a_lost_call_ends_with_the_clients_timeout(self, fault: CallFault, done: int) -> None:
        server = Server()
        with pytest.raises(LostError) as caught:
            await faulty(server, fault).request("DELETE", PATH, timeout_s=10.0)
        assert (now(), caught.value.is_outcome_unknown, len(server.done)) == (10.0, True, done)

    async def test_a_refused_connection_has_a_known_outcome(self) -> None:
        server = Server()
        with pytest.raises(LostError) as caught:
            await faulty(server, RefuseConnection()).request("PATCH", PATH, timeout_s=10.0)
        assert (now(), caught.value.is_outcome_unknown, server.done) == (0.0, False, [])

    async def test_a_reset_fails_at_once_after_the_write_was_executed(self) -> None:
        server = Server()
        with pytest.raises(LostError) as caught:
            await faulty(server, Reset()).request("PATCH", PATH, timeout_s=10.0)
        assert (now(), caught.value.is_outcome_unknown, len(server.done)) == (0.0, True, 1)

    async def test_a_late_commit_is_announced_and_then_carried_out(self) -> None:
        server, received = Server(), list[bytes | None]()
        wire = faulty(server, CommitLate(5.0), on_late_commit=received.append)
        with pytest.raises(LostError):
            await wire.request("POST", PATH, timeout_s=10.0, body=b"pod")
        await asyncio.sleep(6.0)
        assert (received, server.done) == ([b"pod"], [(15.0, "POST")])

    async def test_closing_drops_delayed_requests(self) -> None:
        server = Server()
        wire = faulty(server, CommitLate(5.0))
        with pytest.raises(LostError):
            await wire.request("POST", PATH, timeout_s=10.0)
        await wire.close()
        await asyncio.sleep(60.0)
        assert (server.done, server.is_closed) == ([], True)

    async def test_a_stale_read_is_an_earlier_answer(self) -> None:
        server = Server()
        wire = faulty(server)
        first = await wire.request("GET", PATH, timeout_s=10.0)
        second = await wire.request("GET", PATH, timeout_s=10.0)
        wire._script.of_calls.append(Rule(Stale(lag_changes=1)))
        stale = await wire.request("GET", PATH, timeout_s=10.0)
        assert (first.body, second.body, stale.body) == (b"answer 1", b"answer 2", b"answer 1")

    async def test_a_stale_read_of_what_was_never_read_is_fresh(self) -> None:
        response = await faulty(Server(), Stale(lag_s=30.0)).request("GET", PATH, timeout_s=10.0)
        assert response.body == b"answer 1"

    @pytest.mark.parametrize(("is_after", "done"), [(False, 0), (True, 1)], ids=["before", "after"])
    async def test_a_killed_client_never_gets_an_answer(self, *, is_after: bool, done: int) -> None:
        server, killed = Server(), asyncio.Event()
        wire = faulty(server, Kill(is_after=is_after), on_kill=killed.set)
        call = asyncio.create_task(wire.request("POST", PATH, timeout_s=10.0))
        await asyncio.sleep(100.0)
        assert (killed.is_set(), call.done(), len(server.done)) == (True, False, done)
        call.cancel()


class TestStreams:
    """Three lines, a second apart; the fault meets the first."""

    @pytest.mark.parametrize(
        ("fault", "pieces"),
        [
            pytest.param(None, [(1, A), (2, B), (3, C), (3, "end")], id="nothing"),
            pytest.param(Duplicate(), [(1, A), (1, A), (2, B), (3, C), (3, "end")], id="twice"),
            pytest.param(Drop(is_silent=True), [(2, B), (3, C), (3, "end")], id="lost without an error"),
            pytest.param(Stall(5.0), [(6, A), (7, B), (8, C), (8, "end")], id="late, and all behind it"),
            pytest.param(Swap(), [(2, B), (2, A), (3, C), (3, "end")], id="behind the next"),
            pytest.param(Close(), [(1, A), (1, "end")], id="closed"),
            pytest.param(Cut(), [(1, "the connection broke")], id="cut"),
            pytest.param(Hang(), [(61, "nothing came for 60 s")], id="deaf"),
            pytest.param(Garbage(b"junk\n"), [(1, b"junk\n"), (1, A), (2, B), (3, C), (3, "end")], id="garbage"),
            pytest.param(
                HalfLine(),
                [(1, A[: len(A) // 2]), (1, A[len(A) // 2 :]), (2, B), (3, C), (3, "end")],
                id="in two pieces",
            ),
            pytest.param(
                HalfLine(is_cut=True),
                [(1, A[: len(A) // 2]), (1, "the connection broke in the middle of a line")],
                id="half a line",
            ),
        ],
    )
    async def test_arrive_so(self, fault: WatchFault | None, pieces: list[tuple[float, bytes | str]]) -> None:
        assert await events_of(faulty(Server(A, B, C), line_fault=fault)) == pieces

    @pytest.mark.parametrize(("fault", "code"), [(Drop(), 410), (Error(410), 410), (Error(500), 500)], ids=str)
    async def test_an_error_takes_the_place_of_the_line_and_ends_it(self, fault: WatchFault, code: int) -> None:
        (_, piece), (_, last) = await events_of(faulty(Server(A, B), line_fault=fault))
        assert isinstance(piece, bytes)
        event = msgspec.json.decode(piece)
        assert (event["type"], event["object"]["code"], last) == ("ERROR", code, "end")

    @pytest.mark.parametrize(
        "second", [line("a", "DELETED"), line("", "BOOKMARK")], ids=["the same object", "a bookmark"]
    )
    async def test_some_lines_are_never_swapped(self, second: bytes) -> None:
        pieces = await events_of(faulty(Server(A, second), line_fault=Swap()))
        assert pieces == [(2, A), (2, second), (2, "end")]

    async def test_a_swapped_line_without_a_successor_is_not_lost(self) -> None:
        assert await events_of(faulty(Server(A), line_fault=Swap())) == [(1, A), (1, "end")]

    async def test_an_overtaken_event_waits_for_an_event_of_another_stream(self) -> None:
        wire = faulty(Server(A, B), line_fault=Overtake())
        slow = asyncio.create_task(events_of(wire))
        await asyncio.sleep(0.5)
        await events_of(wire, "/api/v1/namespaces/default/services")
        assert await slow == [(1.5, A), (2.5, B), (2.5, "end")]

    async def test_a_line_that_is_not_overtaken_comes_after_a_while(self) -> None:
        assert await events_of(faulty(Server(A), line_fault=Overtake(5.0))) == [(6, A), (6, "end")]

    @pytest.mark.parametrize(
        ("fault", "end"),
        [
            pytest.param(Answer(403), (0, "403"), id="refused"),
            pytest.param(Reset(), (0, "the connection was refused or reset"), id="reset"),
            pytest.param(LoseRequest(), (60, "no answer to the watch"), id="unanswered"),
            pytest.param(Delay(3.0), (4, "end"), id="opened late"),
            pytest.param(Stale(1.0), (1, "end"), id="stale means nothing to a watch"),
        ],
    )
    async def test_may_open_badly(self, fault: CallFault, end: tuple[float, str]) -> None:
        assert (await events_of(faulty(Server(A), fault)))[-1] == end

    async def test_lines_in_one_chunk_and_half_lines_are_distinguished(self) -> None:
        whole = A + B + C
        pieces = await events_of(faulty(Server(whole[:10], whole[10:]), line_fault=Duplicate()))
        assert [piece for _, piece in pieces] == [A, A, B, C, "end"]
