"""The GCS client over a real connection: replies, errors, timeouts, tokens, TLS, and a GCS that restarts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs import channel
from raytide.autoscaler.gcs.channel import LONGEST_MESSAGE, connect_gcs
from raytide.autoscaler.gcs.client import Gcs, GcsClient, announce_metrics, is_autoscaler_v2, session_name
from raytide.autoscaler.gcs.credentials import GcsAccess, gcs_access
from raytide.autoscaler.model import HEAD_TYPE, Drained, DrainReason, HeadDirectories, NodeStatus, Report
from raytide_sandbox.certificates import Authority
from support.deadlines import PATIENCE
from support.fake_gcs import UNKNOWN_NODE, GcsServer, GcsWorld, fake_gcs


@pytest.fixture
def world() -> GcsWorld:
    return GcsWorld()


@pytest.fixture
async def server(world: GcsWorld) -> AsyncIterator[GcsServer]:
    async with GcsServer(world) as server:
        yield server


@pytest.fixture
async def client(server: GcsServer) -> AsyncIterator[Gcs]:
    client = connect_gcs(server.address, GcsAccess())
    yield client
    await client.close()


@pytest.fixture(params=["over gRPC", "in one process"])
async def either(request: pytest.FixtureRequest, world: GcsWorld) -> AsyncIterator[GcsClient]:
    if request.param == "in one process":
        yield fake_gcs(world)
        return
    async with GcsServer(world) as server:
        client = connect_gcs(server.address, GcsAccess())
        yield client
        await client.close()


async def until_it_answers(client: Gcs) -> None:
    async with asyncio.timeout(10 * PATIENCE):
        while True:
            try:
                await client.check_alive()
            except ApiUnavailableError:
                await asyncio.sleep(0.02)
            else:
                return


async def until_it_cannot_connect(client: Gcs) -> None:
    """The first call may still be sent on the connection that the server has closed."""
    async with asyncio.timeout(5 * PATIENCE):
        while True:
            with pytest.raises(ApiUnavailableError) as rejected:
                await client.state()
            if "Failed to connect" in str(rejected.value):
                return


async def until_called(world: GcsWorld, times: int) -> None:
    async with asyncio.timeout(5 * PATIENCE):
        while world.calls["GetClusterResourceState"] < times:  # noqa: ASYNC110 - the world keeps a plain count
            await asyncio.sleep(0.01)


# --- every call ---


async def test_the_state_comes_as_it_is(either: GcsClient, world: GcsWorld) -> None:
    node = world.add_node("pod-1", "gpu", resources={"GPU": 2.0})
    state = await either.state()
    assert (state.nodes, state.session, state.version) == ((node,), "session_1", 1)


@pytest.mark.rule("AS:G-10", "AS:B-5")
async def test_a_report_is_kept_unless_its_version_is_lower(either: GcsClient, world: GcsWorld) -> None:
    assert await either.reported_version() == 0
    await either.report(Report(gcs_version=1, version=5))
    await either.report(Report(gcs_version=1, version=4))
    assert await either.reported_version() == 5
    assert len(world.reports) == 2


@pytest.mark.rule("AS:G-12")
async def test_an_idle_node_may_be_drained_and_a_busy_one_not(either: GcsClient, world: GcsWorld) -> None:
    idle, busy = world.add_node("idle"), world.add_node("busy")
    world.make_idle("idle")
    drain = [
        await either.drain(node.node_id, reason=DrainReason.IDLE_TERMINATION, message="idle for 60 s", deadline_ms=7)
        for node in (idle, busy)
    ]
    assert [answer.is_accepted for answer in drain] == [True, False]
    assert drain[1].message
    assert [world.node(name).status for name in ("idle", "busy")] == [NodeStatus.DEAD, NodeStatus.RUNNING]
    assert (world.drains[0].message, world.drains[0].deadline_ms) == ("idle for 60 s", 7)


@pytest.mark.rule("AS:G-12", "FD:AS-A21")
@pytest.mark.parametrize("work", [GcsWorld.make_busy, GcsWorld.make_idle], ids=["busy", "idle"])
async def test_a_preempted_node_drains_although_it_is_busy_and_has_no_idle_time(
    either: GcsClient, world: GcsWorld, work: Callable[[GcsWorld, str], None]
) -> None:
    node = world.add_node("pod")
    work(world, "pod")
    answer = await either.drain(node.node_id, reason=DrainReason.PREEMPTION, message="")
    (shown,) = (await either.state()).nodes
    assert (answer, shown.status, shown.idle_ms) == (Drained(is_accepted=True), NodeStatus.DRAINING, 0)


@pytest.mark.parametrize("node_id", ["", "ab", "ab" * 29])
async def test_an_id_that_would_kill_the_gcs_is_never_sent(either: GcsClient, world: GcsWorld, node_id: str) -> None:
    with pytest.raises(ApiStatusError, match="is not a node ID"):
        await either.drain(node_id, reason=DrainReason.IDLE_TERMINATION, message="")
    assert not world.calls


async def test_what_ray_keeps_in_its_store_is_read_and_written(either: GcsClient, world: GcsWorld) -> None:
    assert (await is_autoscaler_v2(either), await session_name(either), await either.kv_get("x")) == (False, "", None)
    world.kv = {("__autoscaler", "__autoscaler_v2_enabled"): b"1", ("session", "session_name"): b"s"}
    await announce_metrics(either, "10.0.0.1:44217")
    await either.kv_put("x", b"1", namespace="ours")
    await either.kv_put("x", b"2", namespace="ours")
    assert (await is_autoscaler_v2(either), await session_name(either)) == (True, "s")
    assert world.kv["", "AutoscalerMetricsAddress"] == b"10.0.0.1:44217"
    assert await either.kv_get("x", namespace="ours") == b"2"


async def test_the_heads_directories_come_from_its_entry(either: GcsClient, world: GcsWorld) -> None:
    world.add_node("worker", "gpu")
    world.add_node("head", HEAD_TYPE)
    directories = await either.head_directories()
    assert directories == HeadDirectories("/tmp/ray", "/tmp/ray/session_1")
    assert directories.logs == "/tmp/ray/session_latest/logs"


async def test_an_older_rays_directories_come_from_its_store(either: GcsClient, world: GcsWorld) -> None:
    world.kv = {("session", "temp_dir"): b"/t", ("session", "session_dir"): b"/t/s"}
    assert await either.head_directories() == HeadDirectories("/t", "/t/s")
    world.kv.clear()
    assert await either.head_directories() == HeadDirectories("/tmp/ray", "")


async def test_check_alive_returns_the_version_of_ray(either: GcsClient) -> None:
    assert await either.check_alive() == "2.60.0"


# --- rejections ---


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        (grpc.StatusCode.ABORTED, ApiStatusError, 409),
        (grpc.StatusCode.INVALID_ARGUMENT, ApiStatusError, 400),
        (grpc.StatusCode.PERMISSION_DENIED, ApiStatusError, 403),
        (grpc.StatusCode.UNIMPLEMENTED, ApiStatusError, 501),
        (grpc.StatusCode.DATA_LOSS, ApiStatusError, 500),
        (grpc.StatusCode.UNAVAILABLE, ApiUnavailableError, None),
        (grpc.StatusCode.INTERNAL, ApiUnavailableError, None),
        (grpc.StatusCode.UNKNOWN, ApiUnavailableError, None),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ApiUnavailableError, None),
    ],
)
async def test_the_grpc_code_determines_whether_the_call_may_be_retried(code, kind, status, client, server) -> None:
    async def reject(request, context) -> None:
        await context.abort(code, "because")

    server.service = lambda details: grpc.unary_unary_rpc_method_handler(reject)
    with pytest.raises(kind, match=r"CheckAlive at .*: because") as caught:
        await client.check_alive()
    assert getattr(caught.value, "status", None) == status


@pytest.mark.parametrize(
    ("call", "is_unknown"),
    [
        pytest.param(
            lambda client: client.drain(UNKNOWN_NODE, reason=DrainReason.PREEMPTION, message=""), True, id="a drain"
        ),
        pytest.param(lambda client: client.state(), False, id="a read"),
    ],
)
async def test_a_slow_gcs_is_unavailable_and_the_outcome_of_a_drain_is_unknown(
    call: Callable[[Gcs], Awaitable[object]], *, is_unknown: bool, server: GcsServer, world: GcsWorld
) -> None:
    world.delay_s = 30
    client = connect_gcs(server.address, GcsAccess(), timeout_s=0.05)
    with pytest.raises(ApiUnavailableError) as caught:
        await call(client)
    assert caught.value.is_outcome_unknown is is_unknown
    await client.close()


async def test_garbage_for_a_state_is_unavailable_and_the_next_state_is_read(
    client: Gcs, server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def babble(request, context) -> bytes:
        return b"\xff\xff\xff"

    with monkeypatch.context() as patched:
        patched.setattr(server, "service", lambda details: grpc.unary_unary_rpc_method_handler(babble))
        with pytest.raises(ApiUnavailableError, match="reply cannot be decoded"):
            await client.state()
    assert (await client.state()).session == "session_1"


async def test_a_large_cluster_is_not_too_large(client: Gcs, world: GcsWorld) -> None:
    world.raw_state = b"\x0a\x84\x80\x80\x04" + b"\x3a\xff\xff\xff\x03" + b"s" * (8 * 1024 * 1024 - 1)
    assert len((await client.state()).session) == 8 * 1024 * 1024 - 1


# --- away and back ---


@pytest.mark.rule("AS:B-17")
async def test_a_gcs_that_comes_back_as_another_one_is_found_again(
    client: Gcs, server: GcsServer, world: GcsWorld
) -> None:
    assert (await client.state()).session == "session_1"
    await server.stop()
    await until_it_cannot_connect(client)
    world.restart("session_2")
    await server.start()
    await until_it_answers(client)
    state = await client.state()
    assert (state.session, state.version) == ("session_2", 1)


@pytest.mark.rule("AS:B-17")
async def test_a_peer_that_vanishes_without_a_fin_gets_a_new_connection(world: GcsWorld, server: GcsServer) -> None:
    opened: list[asyncio.StreamWriter] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        if len(opened) == 1:
            return  # the connection stays open, but is never read
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(65536):
            sink.write(chunk)
        sink.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        client = connect_gcs(f"127.0.0.1:{port}", GcsAccess(), timeout_s=1.5)  # a busy machine answers within it, too
        try:
            await until_it_answers(client)
            assert len(opened) >= 2  # on a busy machine the second one may time out as well
        finally:
            await client.close()
            for writer in opened:
                writer.close()
                await writer.wait_closed()


async def test_calls_in_flight_and_later_calls_fail_when_the_client_is_closed(client: Gcs, world: GcsWorld) -> None:
    await client.state()
    world.delay_s = 30
    call = asyncio.create_task(client.state())
    await until_called(world, 2)
    async with asyncio.timeout(5 * PATIENCE):
        await client.close()
        with pytest.raises(ApiUnavailableError, match="was closed"):
            await call
    with pytest.raises(ApiUnavailableError, match="was closed"):
        await client.state()


async def test_a_cancelled_caller_is_cancelled(client: Gcs, world: GcsWorld) -> None:
    world.delay_s = 30
    call = asyncio.create_task(client.state())
    await until_called(world, 1)
    async with asyncio.timeout(5 * PATIENCE):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


# --- tokens ---


def client_with(server: GcsServer, **environ: str) -> Gcs:
    return connect_gcs(server.address, gcs_access(environ))


async def test_the_right_token_opens_and_a_rotated_one_is_used_at_once(
    server: GcsServer, world: GcsWorld, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    client = client_with(server, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(path))
    for token in ("first", "second"):
        world.token = token
        path.write_text(token)
        assert (await client.state()).session == "session_1"
    await client.close()


async def test_a_wrong_token_is_rejected_with_its_place_and_without_itself(server: GcsServer, world: GcsWorld) -> None:
    world.token = "right"
    client = client_with(server, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="geheim")
    with pytest.raises(ApiStatusError, match="the GCS rejects the token from RAY_AUTH_TOKEN") as caught:
        await client.state()
    assert (caught.value.status, caught.value.reason) == (401, "Unauthenticated")
    assert "geheim" not in str(caught.value)
    await client.close()


async def test_the_error_without_a_token_names_the_variable_to_set(server: GcsServer, world: GcsWorld) -> None:
    world.token = "right"
    client = client_with(server, RAY_AUTH_TOKEN="right")
    with pytest.raises(ApiStatusError, match="requires a token, but RAY_AUTH_MODE is not token"):
        await client.state()
    await client.close()


# --- mutual TLS ---


class Keys:
    """Files of one authority, as Ray's environment names them."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        self.folder = folder
        folder.mkdir()
        self.authority = Authority.create(now)
        self.write("ca", self.authority.certificate)
        self.renew()

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def renew(self) -> None:
        client = self.authority.issue_client(datetime.now(UTC), "sidecar")
        self.write("cert", client.certificate)
        self.write("key", client.key)

    def server_credentials(self) -> grpc.ServerCredentials:
        identity = self.authority.issue_server(datetime.now(UTC), "gcs", ["127.0.0.1"])
        return grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)], self.authority.certificate, require_client_auth=True
        )

    def environ(self) -> dict[str, str]:
        names = {"RAY_TLS_SERVER_CERT": "cert", "RAY_TLS_SERVER_KEY": "key", "RAY_TLS_CA_CERT": "ca"}
        return {"RAY_USE_TLS": "1", **{variable: str(self.folder / name) for variable, name in names.items()}}


async def test_mutual_tls_opens_and_renewed_certificates_are_used(world: GcsWorld, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "ours")
    async with GcsServer(world, credentials=keys.server_credentials()) as server:
        client = client_with(server, **keys.environ())
        assert (await client.state()).session == "session_1"
        keys.renew()
        assert (await client.state()).session == "session_1"
        await client.close()


async def test_certificates_that_come_right_later_are_taken_up(world: GcsWorld, tmp_path: Path) -> None:
    keys, others = Keys(tmp_path / "ours"), Keys(tmp_path / "others")
    async with GcsServer(world, credentials=keys.server_credentials()) as server:
        client = client_with(server, **others.environ())
        with pytest.raises(ApiUnavailableError):
            await client.state()
        for name in ("ca", "cert", "key"):
            others.write(name, (keys.folder / name).read_bytes())
        await until_it_answers(client)
        await client.close()


async def test_a_client_without_tls_gets_no_reply_from_a_tls_server(world: GcsWorld, tmp_path: Path) -> None:
    async with GcsServer(world, credentials=Keys(tmp_path / "ours").server_credentials()) as server:
        client = connect_gcs(server.address, GcsAccess())
        with pytest.raises(ApiUnavailableError):
            await client.state()
        await client.close()


# --- virtual time ---


@pytest.mark.looptime
async def test_a_client_without_sockets_keeps_its_deadline_in_virtual_time(world: GcsWorld) -> None:
    world.delay_s = 3600
    client = fake_gcs(world, timeout_s=channel.TIMEOUT_S)
    started = asyncio.get_running_loop().time()
    with pytest.raises(ApiUnavailableError, match="Deadline"):
        await client.state()
    assert asyncio.get_running_loop().time() - started == channel.TIMEOUT_S


async def test_a_fake_that_is_away_or_fails_reports_it(world: GcsWorld) -> None:
    client = fake_gcs(world)
    world.is_away = True
    with pytest.raises(ApiUnavailableError, match="refused"):
        await client.state()
    world.is_away = False
    world.errors["DrainNode"] = ApiStatusError(409, "Aborted", "no")
    with pytest.raises(ApiStatusError):
        await client.drain(UNKNOWN_NODE, reason=DrainReason.PREEMPTION, message="")
    assert (await client.state()).session == "session_1"


@pytest.mark.rule("FD:AS-A22")
async def test_a_reply_larger_than_64_mib_is_rejected_with_a_message(client, server) -> None:
    async def flood(request, context) -> bytes:
        return b"\x0a" + b"\xff\xff\xff\x20" + b"x" * (LONGEST_MESSAGE + 1)

    server.service = lambda details: grpc.unary_unary_rpc_method_handler(flood)
    with pytest.raises(ApiUnavailableError, match="reads replies of at most 64 MiB and makes no decisions until"):
        await client.check_alive()
