"""Each fault of the proxy as a client sees it: the sandbox's API, the proxy, and the product's transport."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest
from aiohttp import ClientSession, web

from integration.embedded_cluster import Cluster, until
from raytide.api.errors import ApiUnavailableError
from raytide.kube.http import HttpTransport
from raytide.kube.kubeconfig import load_client_config
from raytide.kube.transport import Response, StreamStatusError
from raytide_sandbox.certificates import Authority
from support.deadlines import PATIENCE
from support.faults.proxy import FaultProxy
from support.faults.script import Rule, Script
from support.faults.types import (
    FORBIDDEN,
    UNAUTHORIZED,
    Answer,
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
)
from support.faults.upstream import Upstream

SECRETS = "/api/v1/namespaces/default/secrets"
PATIENCE_S = 10.0 * PATIENCE
BRIEFLY_S = 0.25
"""The patience of a client that will not be answered."""


class Wire:
    """A proxy before a cluster, and a client of it."""

    transport: HttpTransport

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.script = Script(asyncio.get_running_loop().time)
        self.killed: list[str] = []
        self.lag_s = 0.0
        self.proxy = FaultProxy(
            Upstream(f"http://127.0.0.1:{cluster.port}"),
            self.script,
            lag_s=lambda: self.lag_s,
            on_kill=self.killed.append,
        )

    async def create(self, name: str, patience_s: float = PATIENCE_S) -> Response:
        body = msgspec.json.encode({"metadata": {"name": name}})
        headers = {"user-agent": "tester/1", "content-type": "application/json"}
        return await self.transport.request("POST", SECRETS, body=body, headers=headers, timeout_s=patience_s)

    async def get(self, path: str = SECRETS, **query: str) -> Response:
        return await self.transport.request("GET", path, query=query, timeout_s=PATIENCE_S)

    def names(self) -> set[str]:
        """What there really is."""
        return {m["metadata"]["name"] for m in self.cluster.all("secrets", "default")}

    def put(self, *names: str) -> None:
        """Made behind the proxy."""
        for name in names:
            self.cluster.store.create("secrets", {"metadata": {"name": name, "namespace": "default"}})

    async def watch(self, *, path: str = SECRETS, silence_s: float = 1.0) -> AsyncIterator[bytes]:
        """What comes, but for the sign that it is open."""
        headers = {"user-agent": "follower/1"}
        chunks = self.transport.stream(path, query={"watch": "1"}, headers=headers, silence_s=silence_s)
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk:
                    yield chunk


@pytest.fixture
async def wire(tmp_path) -> AsyncIterator[Wire]:
    cluster = Cluster()
    await cluster.start(has_crd=False)
    wire = Wire(cluster)
    async with wire.proxy:
        config = await load_client_config(wire.proxy.write_kubeconfig(tmp_path / "config", "t0"))
        wire.transport = await config.open_transport()
        yield wire
        await wire.transport.close()
    await cluster.stop()


async def take(lines: AsyncIterator[bytes], count: int) -> list[dict[str, Any]]:
    """So many watch events, then hang up."""
    text = b""
    async with aclosing(lines):
        async for chunk in lines:
            text += chunk
            if text.count(b"\n") >= count:
                break
    return [msgspec.json.decode(line) for line in text.splitlines()]


def names_of(events: list[dict[str, Any]]) -> list[str]:
    return [f"{e['type']} {e['object']['metadata']['name']}" for e in events]


# --- calls -------------------------------------------------------------------------------------------------------------


async def test_without_a_fault_everything_passes_and_is_remembered(wire):
    assert (await wire.create("a")).status == 201
    answer = await wire.get(SECRETS, labelSelector="x in (1,2)", limit="5")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert wire.names() == {"a"}
    post, get = wire.proxy.seen
    assert (post.agent, post.method, post.status) == ("tester/1", "POST", 201)
    path, _, query = get.url.partition("?")
    assert (path, parse_qs(query)) == (SECRETS, {"labelSelector": ["x in (1,2)"], "limit": ["5"]})


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Answer(409), "Conflict"),
        (Answer(422), "Invalid"),
        (Answer(429, retry_after_s=7), "TooManyRequests"),
        (Answer(500), "InternalError"),
        (Answer(503), "ServiceUnavailable"),
        (Answer(504), "Timeout"),
        (FORBIDDEN, "Forbidden"),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_an_answer_instead_of_the_server_s(wire, fault, words):
    wire.script.of_calls.append(Rule(fault))
    answer = await wire.create("a")
    assert (answer.status, msgspec.json.decode(answer.body)["reason"]) == (fault.status, words)
    assert answer.headers.get("retry-after") == ("7" if fault.retry_after_s else None)
    assert wire.names() == set()
    assert (await wire.create("a")).status == 201, "once is once"


async def test_a_late_request_arrives_late(wire):
    wire.script.of_calls.append(Rule(Delay(0.1)))
    began = asyncio.get_running_loop().time()
    assert (await wire.create("a")).status == 201
    assert asyncio.get_running_loop().time() - began >= 0.1


async def test_a_delayed_request_is_executed_after_its_client_timed_out(wire):
    wire.script.of_calls.append(Rule(Delay(BRIEFLY_S + 0.1)))
    with pytest.raises(ApiUnavailableError):
        await wire.create("a", BRIEFLY_S)
    assert wire.names() == set()
    await until("it arrived", lambda: wire.names() == {"a"})


async def test_a_lost_request_times_out_and_is_not_executed(wire):
    wire.script.of_calls.append(Rule(LoseRequest()))
    with pytest.raises(ApiUnavailableError) as caught:
        await wire.create("a", BRIEFLY_S)
    assert caught.value.is_outcome_unknown
    assert wire.names() == set()
    await until("it was noted", lambda: [seen.status for seen in wire.proxy.seen] == [0])


async def test_a_lost_response_times_out_after_the_request_was_executed(wire):
    wire.script.of_calls.append(Rule(LoseAnswer()))
    with pytest.raises(ApiUnavailableError) as caught:
        await wire.create("a", BRIEFLY_S)
    assert caught.value.is_outcome_unknown
    assert wire.names() == {"a"}


async def test_a_late_commit_comes_after_all_gave_up(wire):
    wire.script.of_calls.append(Rule(CommitLate(0.1)))
    with pytest.raises(ApiUnavailableError):
        await wire.create("a", BRIEFLY_S)
    assert wire.names() == set()
    await until("it was carried out", lambda: wire.names() == {"a"})


async def test_a_refused_connection_ends_at_once_and_nothing_happened(wire):
    wire.script.of_calls.append(Rule(RefuseConnection()))
    with pytest.raises(ApiUnavailableError, match=r"disconnected|reset|Errno"):
        await wire.create("a")
    assert wire.names() == set()


async def test_a_reset_breaks_the_body_in_the_middle(wire):
    wire.script.of_calls.append(Rule(Reset()))
    with pytest.raises(ApiUnavailableError, match=r"payload|Errno|disconnected"):
        await wire.create("a", BRIEFLY_S)
    assert wire.names() == {"a"}
    assert (await wire.create("b")).status == 201, "the next connection is a good one"


async def test_half_of_the_answer_is_on_the_wire_when_it_resets(wire):
    wire.put("a")
    whole = (await wire.get()).body
    wire.script.of_calls.append(Rule(Reset()))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(wire.proxy.server.rpartition(":")[2]))
    writer.write(f"GET {SECRETS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    arrived = b""
    with suppress(ConnectionResetError):
        while piece := await reader.read(1):
            arrived += piece
    writer.close()
    head, _, body = arrived.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == whole[: len(whole) // 2]


@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after the write"])
async def test_a_kill_is_reported_and_the_request_never_answered(wire, is_after):
    wire.script.of_calls.append(Rule(Kill(is_after)))
    with pytest.raises(ApiUnavailableError):
        await wire.create("a", BRIEFLY_S)
    assert wire.killed == ["tester/1"]
    assert wire.names() == ({"a"} if is_after else set())


async def test_a_stale_list_and_a_stale_get_are_answers_of_the_past(wire):
    wire.put("a")
    await wire.get()
    await wire.get(f"{SECRETS}/a")
    wire.cluster.edit("default", "a", lambda m: m.update(data={"k": "v"}), "secrets")
    wire.put("b")
    assert len(msgspec.json.decode((await wire.get()).body)["items"]) == 2
    wire.script.of_calls.append(Rule(Stale(lag_changes=1), times=2))
    assert len(msgspec.json.decode((await wire.get()).body)["items"]) == 1
    assert "data" not in msgspec.json.decode((await wire.get(f"{SECRETS}/a")).body)


async def test_rights_are_withdrawn_for_one_resource_and_given_back(wire):
    wire.script.of_calls.append(Rule(FORBIDDEN, lambda call: call.plural == "secrets", times=None))
    assert (await wire.create("a")).status == 403
    assert (await wire.get("/api/v1/namespaces/default")).status == 200
    wire.script.clear()
    assert (await wire.create("a")).status == 201


async def test_a_rotated_token_is_rejected_until_the_client_shows_the_new_one(wire, tmp_path):
    def shows_the_old_one(call) -> bool:
        return call.headers.get("authorization") != "Bearer t1"

    wire.script.of_calls.append(Rule(UNAUTHORIZED, shows_the_old_one, times=None))
    assert (await wire.get()).status == 401
    wire.proxy.write_kubeconfig(tmp_path / "config", "t1")
    assert (await wire.get()).status == 200


async def test_a_rule_may_match_a_client_and_one_of_its_calls(wire):
    wire.script.of_calls.append(Rule(Answer(503), lambda call: call.agent == "tester/1" and call.is_write, skip=1))
    assert (await wire.get()).status == 200
    assert [(await wire.create(name)).status for name in "abc"] == [201, 503, 201]


async def test_the_credentials_of_the_client_pass_and_others_get_those_of_the_upstream(tmp_path):
    shown: list[str | None] = []

    async def note(request: web.Request) -> web.Response:
        shown.append(request.headers.get("authorization"))
        return web.Response(text="{}")

    app = web.Application()
    app.router.add_get("/x", note)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    authority = Authority.create(datetime.now(UTC))
    serving = authority.issue_server(datetime.now(UTC), "proxy", ["127.0.0.1"])
    upstream = Upstream(f"http://127.0.0.1:{runner.addresses[0][1]}", token="admin")
    async with FaultProxy(upstream, Script(asyncio.get_running_loop().time), serving=serving) as proxy:
        for token in ("mine", ""):
            config = proxy.write_kubeconfig(tmp_path / "config", token, authority=authority.certificate)
            transport = await (await load_client_config(config)).open_transport()
            assert (await transport.request("GET", "/x", timeout_s=5)).status == 200
            await transport.close()
    await runner.cleanup()
    assert shown == ["Bearer mine", "Bearer admin"]


async def test_a_server_that_is_away_is_a_broken_connection(wire):
    await wire.cluster.stop()
    with pytest.raises(ApiUnavailableError, match=r"disconnected|reset|Errno"):
        await wire.get()


async def test_upgrades_are_rejected_with_501(wire):
    async with (
        ClientSession() as session,
        session.get(wire.proxy.server + "/x", headers={"Upgrade": "SPDY/3.1", "Connection": "Upgrade"}) as answer,
    ):
        assert answer.status == 501


# --- watches -------------------------------------------------------------------------------------------------------------


async def test_a_watch_passes_as_it_comes(wire):
    wire.put("a")
    lines = wire.watch()
    first = await anext(lines)
    wire.put("b")
    assert names_of([msgspec.json.decode(first)]) == ["ADDED a"]
    assert names_of(await take(lines, 1)) == ["ADDED b"]
    assert [seen.is_watch for seen in wire.proxy.seen] == [True]


LINES = [
    ("a lost line ends in an ERROR 410", Drop(), ["ERROR"]),
    ("a line lost in silence", Drop(is_silent=True), ["ADDED b", "ADDED c"]),
    ("a line comes twice", Duplicate(), ["ADDED a", "ADDED a", "ADDED b"]),
    ("a late line keeps its place", Stall(0.05), ["ADDED a", "ADDED b", "ADDED c"]),
    ("a line waits for one of another kind, but not for ever", Overtake(0.05), ["ADDED a", "ADDED b"]),
    ("two lines change places", Swap(), ["ADDED b", "ADDED a", "ADDED c"]),
    ("an ERROR 500 inside the stream", Error(500), ["ERROR"]),
    ("the end of the stream after a line", Close(), ["ADDED a"]),
    ("half a line and then the rest", HalfLine(), ["ADDED a", "ADDED b"]),
]


@pytest.mark.parametrize(("fault", "expected"), [row[1:] for row in LINES], ids=[row[0] for row in LINES])
async def test_a_watch_line_meets_its_fault(wire, fault, expected):
    wire.put("a", "b", "c")
    wire.script.of_lines.append(Rule(fault))
    events = await take(wire.watch(), len(expected))
    assert ["ERROR" if e["type"] == "ERROR" else names_of([e])[0] for e in events][: len(expected)] == expected


async def test_garbage_comes_before_a_line(wire):
    wire.put("a")
    wire.script.of_lines.append(Rule(Garbage()))
    async with aclosing(wire.watch()) as lines:
        assert (await anext(lines)).startswith(b'}{"type":"\xff\xfe"}\n')


@pytest.mark.parametrize("fault", [Cut(), HalfLine(is_cut=True)], ids=["before a line", "in a line"])
async def test_a_stream_is_cut(wire, fault):
    wire.put("a")
    wire.script.of_lines.append(Rule(fault))
    with pytest.raises(ApiUnavailableError, match=r"payload|Errno|disconnected"):
        await take(wire.watch(), 1)


async def test_a_stream_stops_sending_and_stays_open(wire):
    wire.put("a", "b")
    wire.script.of_lines.append(Rule(Hang(), skip=1))
    lines = wire.watch(silence_s=0.2)
    assert names_of([msgspec.json.decode(await anext(lines))]) == ["ADDED a"]
    with pytest.raises(ApiUnavailableError, match="Timeout on reading"):
        await anext(lines)


async def test_a_rule_may_match_the_watch_of_a_client_and_an_object(wire):
    wire.put("a", "b")
    wire.script.of_lines.append(Rule(Duplicate(), lambda line: line.agent == "follower/1" and line.name == "b"))
    assert names_of(await take(wire.watch(), 3)) == ["ADDED a", "ADDED b", "ADDED b"]


async def test_a_watch_may_be_rejected_or_never_answered(wire):
    wire.script.of_calls += [
        Rule(Answer(410), lambda call: call.is_watch),
        Rule(LoseRequest(), lambda call: call.is_watch),
    ]
    with pytest.raises(StreamStatusError) as rejected:
        await take(wire.watch(), 1)
    assert rejected.value.response.status == 410
    with pytest.raises(ApiUnavailableError):
        await take(wire.watch(silence_s=0.1), 1)


async def test_lines_lag_in_order_by_what_the_lag_was_when_they_came(wire):
    wire.lag_s = 0.2
    loop = asyncio.get_running_loop()
    began = loop.time()
    wire.put("a")
    following = asyncio.ensure_future(take(wire.watch(), 2))
    await until("the first line is on its way", lambda: wire.proxy.seen)
    await asyncio.sleep(0.05)
    wire.lag_s = 0.0
    wire.put("b")
    assert names_of(await following) == ["ADDED a", "ADDED b"]
    assert loop.time() - began >= 0.2


async def test_a_blackhole_drops_watch_data_and_passes_other_requests(wire):
    lines = wire.watch(silence_s=0.3)
    first = asyncio.ensure_future(anext(lines))
    await until("the watch is open", lambda: wire.proxy.seen)
    wire.put("a")
    assert names_of([msgspec.json.decode(await first)]) == ["ADDED a"]
    wire.proxy.hole.open()
    wire.put("b")
    assert (await wire.get()).status == 200
    with pytest.raises(ApiUnavailableError):
        await take(wire.watch(silence_s=0.1), 1)
    wire.proxy.hole.close()
    with pytest.raises(ApiUnavailableError, match="Timeout on reading"):
        await anext(lines)
    assert names_of(await take(wire.watch(), 2)) == ["ADDED a", "ADDED b"]
