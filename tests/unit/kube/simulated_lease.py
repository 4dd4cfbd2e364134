"""A simulated Lease, a network, and processes that can be frozen.

Everything lives in one loop in virtual time. A request travels, is carried out at one instant, and its answer travels
back; either may be lost. A `Replica` is an elector with a writer; freezing it stops its code between two awaits, as
SIGSTOP does, while the network and the others go on.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from raytide.api.errors import ApiUnavailableError
from raytide.api.lease import LeaseTiming
from raytide.api.meta import Key
from raytide.kube.client import Client
from raytide.kube.leader_election import Elector
from raytide.kube.transport import Response
from raytide.runtime.clock import Clock

KEY = Key("system", "ray-operator-leader")


@dataclass
class Trip:
    """What happens to one request: seconds there and back, and whether either way loses it."""

    there_s: float = 0.005
    back_s: float = 0.005
    is_request_lost: bool = False
    is_answer_lost: bool = False


class LeaseServer:
    """The Lease and nothing else."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.history: list[tuple[float, str, str]] = []
        """(moment, method, holder) of every write that was carried out."""
        self.status: int | None = None
        """A response for all requests instead of the actual one."""
        self._versions = itertools.count(1)

    def carry_out(self, method: str, body: bytes | None) -> Response:
        if self.status is not None:
            return response(self.status, "Forbidden" if self.status == 403 else "InternalError")
        if method == "GET":
            return response(404, "NotFound") if self.lease is None else Response(200, json.dumps(self.lease).encode())
        wanted = json.loads(body or b"")
        if method == "POST" and self.lease is not None:
            return response(409, "AlreadyExists")
        if method == "PUT":
            if self.lease is None:
                return response(404, "NotFound")
            if wanted["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return response(409, "Conflict")
        wanted["metadata"]["resourceVersion"] = str(next(self._versions))
        self.lease = wanted
        self.history.append((asyncio.get_running_loop().time(), method, self.holder))
        return Response(200, json.dumps(wanted).encode())

    @property
    def holder(self) -> str:
        return (self.lease or {}).get("spec", {}).get("holderIdentity", "")


def response(status: int, reason: str) -> Response:
    return Response(status, json.dumps({"kind": "Status", "reason": reason, "message": reason}).encode())


class Wire:
    """One replica's way to the server."""

    def __init__(self, server: LeaseServer, trip: Callable[[], Trip] = Trip) -> None:
        self.trip = trip
        self.is_cut = False
        self.calls: list[str] = []
        self._server = server
        self._in_flight: set[asyncio.Task[Response]] = set()

    async def request(
        self, method: str, _path: str, *, body: bytes | None = None, timeout_s: float, **_: Any
    ) -> Response:
        self.calls.append(method)
        delivery = asyncio.get_running_loop().create_task(self._deliver(method, body))
        self._in_flight.add(delivery)
        delivery.add_done_callback(self._in_flight.discard)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(delivery)
        except TimeoutError:
            raise ApiUnavailableError("no answer", is_outcome_unknown=method != "GET") from None

    async def _deliver(self, method: str, body: bytes | None) -> Response:
        trip = self.trip()
        await asyncio.sleep(trip.there_s)
        if self.is_cut or trip.is_request_lost:
            await asyncio.sleep(1000)
        answer = self._server.carry_out(method, body)
        await asyncio.sleep(trip.back_s)
        if self.is_cut or trip.is_answer_lost:
            await asyncio.sleep(1000)
        return answer

    def hang_up(self) -> None:
        for delivery in self._in_flight:
            delivery.cancel()


class Process:
    """Runs coroutines that can be stopped all at once, between any two awaits."""

    def __init__(self) -> None:
        self._runs = asyncio.Event()
        self._runs.set()

    def freeze(self) -> None:
        self._runs.clear()

    def thaw(self) -> None:
        self._runs.set()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await _Stoppable(work(), self._runs)


class _Stoppable:
    def __init__(self, work: Coroutine[Any, Any, None], runs: asyncio.Event) -> None:
        self._work = work
        self._runs = runs

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            while not self._runs.is_set():
                try:
                    yield from self._runs.wait().__await__()
                except asyncio.CancelledError as error:  # arrives when it is thawed, as every signal but SIGKILL
                    thrown = error
            try:
                awaited = steps.throw(thrown) if thrown is not None else steps.send(None)
            except StopIteration:
                return
            thrown = None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - whatever was thrown in is thrown on
                thrown = error


@dataclass
class Replica:
    """One elector, and a writer that writes as often as its gate lets it."""

    server: LeaseServer
    identity: str
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    trip: Callable[[], Trip] = Trip
    drain_s: float = 0.0

    def __post_init__(self) -> None:
        self.wire = Wire(self.server, self.trip)
        client = Client(self.wire, clock=Clock(), timeout_s=self.timing.call_timeout_s)
        self.elector = Elector(client, KEY, identity=self.identity, clock=Clock(), timing=self.timing)
        self.process = Process()
        self.began: list[float] = []
        self.ended: list[float] = []
        self.breaks = False
        self.unanswered_s = 0.0
        """For how long a write of its term may still be carried out."""
        self._stopping = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> "Replica":
        in_term = partial(self.process.run, self.lead)
        running = partial(self.elector.run, in_term, unanswered_s=lambda: self.unanswered_s)
        self.task = asyncio.get_running_loop().create_task(self.process.run(running))
        return self

    async def lead(self) -> None:
        loop = asyncio.get_running_loop()
        self.began.append(loop.time())
        try:
            await self._stopping.wait()
            if self.breaks:
                raise RuntimeError("broken")
            await asyncio.sleep(self.drain_s)
        finally:
            self.ended.append(loop.time())

    def stop(self) -> None:
        """SIGTERM."""
        self.elector.stop()
        self._stopping.set()

    async def kill(self) -> None:
        """SIGKILL: it receives no responses and sends no requests."""
        self.wire.is_cut = True
        self.process.thaw()
        if self.task is not None:
            self.elector._is_leading = False  # what is dead writes nothing; the judge must not count it
            self.elector._client = Client(Nowhere(), clock=Clock())
            self.task.cancel()
            with suppress(asyncio.CancelledError, ApiUnavailableError):
                await self.task
        self.wire.hang_up()

    @property
    def may_write(self) -> bool:
        return self.elector.may_write_s() > 0


class Nowhere:
    async def request(self, *_args: Any, **_options: Any) -> Response:
        raise ApiUnavailableError("dead")
