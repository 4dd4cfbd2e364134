"""The GCS client against a real GCS without nodes, of the installed Ray or the one that RAYTIDE_TEST_RAY names."""

import signal
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs.channel import connect_gcs
from raytide.autoscaler.gcs.client import Gcs, announce_metrics, is_autoscaler_v2, session_name
from raytide.autoscaler.gcs.credentials import GcsAccess, gcs_access
from raytide.autoscaler.model import (
    RESOURCE_UNIT_SCALING,
    Demand,
    Drained,
    DrainReason,
    FailedRequest,
    Gang,
    GcsState,
    HeadDirectories,
    PendingInstance,
    PendingRequest,
    Report,
    Request,
)
from support.fake_gcs import UNKNOWN_NODE
from support.ray_processes import BareGcs, Ray

RAY = Ray.under_test()
CPU = Request((("CPU", RESOURCE_UNIT_SCALING),))


@pytest.fixture
async def gcs() -> AsyncIterator[BareGcs]:
    async with BareGcs(RAY) as gcs:
        yield gcs


@pytest.fixture
def client(gcs: BareGcs) -> Gcs:
    return gcs.client


async def test_check_alive_returns_the_version(client: Gcs) -> None:
    assert await client.check_alive() == ".".join(map(str, RAY.version))


@pytest.mark.rule("AS:G-1", "AS:B-27")
async def test_an_empty_cluster_has_an_empty_state_with_increasing_versions(client: Gcs) -> None:
    states = [await client.state() for _ in range(2)]
    assert states == [GcsState(version=number, session="session_test") for number in (1, 2)]


@pytest.mark.rule("AS:G-10", "AS:B-5")
async def test_it_keeps_the_report_with_the_highest_version(client: Gcs) -> None:
    assert await client.reported_version() == 0
    full = Report(
        gcs_version=10**9,
        version=7,
        pending_requests=(PendingRequest("gpu", 3, 100),),
        pending_instances=(PendingInstance("gpu", "pod-1", "10.0.0.1", "pulling"),),
        failed_requests=(FailedRequest("gpu", 2, "no quota", 90, 95),),
        infeasible=(Demand(CPU, 4),),
        infeasible_gangs=(Gang("aa:PACK|PENDING", (CPU,)),),
        infeasible_constraint=(Demand(CPU, 100),),
    )
    await client.report(full)
    await client.report(Report(gcs_version=1, version=6))
    assert await client.reported_version() == 7


@pytest.mark.rule("AS:G-12")
async def test_an_unknown_node_may_be_drained_and_a_deadline_in_the_past_is_rejected(client: Gcs) -> None:
    drained = await client.drain(UNKNOWN_NODE, reason=DrainReason.IDLE_TERMINATION, message="idle")
    assert drained == Drained(is_accepted=True)
    with pytest.raises(ApiStatusError) as caught:
        await client.drain(UNKNOWN_NODE, reason=DrainReason.IDLE_TERMINATION, message="idle", deadline_ms=-1)
    assert caught.value.reason == "Aborted"


async def test_an_id_that_would_kill_it_is_never_sent(gcs: BareGcs) -> None:
    with pytest.raises(ApiStatusError, match="is not a node ID"):
        await gcs.client.drain("ab", reason=DrainReason.IDLE_TERMINATION, message="")
    await gcs.client.state()
    assert gcs.is_running


async def test_its_store_is_read_and_written(client: Gcs) -> None:
    assert (await is_autoscaler_v2(client), await session_name(client)) == (False, "")
    await client.kv_put("__autoscaler_v2_enabled", b"1", namespace="__autoscaler")
    for name in ("before", "session_test"):
        await client.kv_put("session_name", name.encode(), namespace="session")
    await announce_metrics(client, "10.0.0.1:44217")
    assert (await is_autoscaler_v2(client), await session_name(client)) == (True, "session_test")
    assert await client.kv_get("AutoscalerMetricsAddress") == b"10.0.0.1:44217"


async def test_without_a_head_the_directories_are_rays_default(client: Gcs) -> None:
    assert await client.head_directories() == HeadDirectories("/tmp/ray", "")


@pytest.mark.rule("AS:B-17")
async def test_killed_and_back_as_another_one_it_is_found_again(gcs: BareGcs) -> None:
    await gcs.client.report(Report(gcs_version=1, version=7))
    gcs.kill()
    with pytest.raises(ApiUnavailableError):
        await gcs.client.state()
    gcs.session = "session_next"
    gcs.start()
    await gcs.until_it_answers()
    assert (await gcs.client.state(), await gcs.client.reported_version()) == (
        GcsState(version=1, session="session_next"),
        0,
    )


async def test_a_stopped_gcs_is_unavailable_until_it_continues(gcs: BareGcs) -> None:
    client = connect_gcs(gcs.address, GcsAccess(), timeout_s=0.2)
    await client.state()
    gcs.signal(signal.SIGSTOP)
    for _ in range(4):
        with pytest.raises(ApiUnavailableError):
            await client.state()
    gcs.signal(signal.SIGCONT)
    await gcs.until_it_answers(client)
    assert (await client.state()).session == "session_test"
    await client.close()


# --- credentials ---

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "geheim"}
needs_tokens = pytest.mark.skipif(not RAY.has_tokens, reason="Ray before 2.52 knows no tokens")


@needs_tokens
async def test_a_token_opens_every_call() -> None:
    async with BareGcs(RAY, TOKEN) as gcs:
        assert (await gcs.client.state()).session == "session_test"
        await gcs.client.report(Report(gcs_version=1, version=7))
        assert await gcs.client.reported_version() == 7
        await gcs.client.kv_put("x", b"1")
        assert await gcs.client.kv_get("x") == b"1"
        drained = await gcs.client.drain(UNKNOWN_NODE, reason=DrainReason.IDLE_TERMINATION, message="")
        assert drained == Drained(is_accepted=True)
        await gcs.client.head_directories()


@needs_tokens
@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**TOKEN, "RAY_AUTH_TOKEN": "falsch"}, "rejects the token from RAY_AUTH_TOKEN"),
        ({}, "RAY_AUTH_MODE is not token"),
    ],
    ids=["a wrong token", "no token"],
)
async def test_what_is_wrong_with_the_token_is_reported(environ: Mapping[str, str], words: str) -> None:
    async with BareGcs(RAY, TOKEN) as gcs:
        client = connect_gcs(gcs.address, gcs_access(environ))
        with pytest.raises(ApiStatusError, match=words) as caught:
            await client.state()
        assert caught.value.status == 401
        await client.close()


async def test_mutual_tls_opens_and_nothing_less_does(tmp_path: Path) -> None:
    async with BareGcs(RAY, tls(tmp_path / "ours")) as gcs:
        assert (await gcs.client.state()).session == "session_test"
        for less in ({}, tls(tmp_path / "others")):
            client = connect_gcs(gcs.address, gcs_access(less))
            with pytest.raises(ApiUnavailableError):
                await client.state()
            await client.close()


def tls(folder: Path) -> dict[str, str]:
    """An authority and one certificate for both directions, as Ray wants them; its private key is not secret."""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray")])
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(hours=1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    contents = {"RAY_TLS_SERVER_CERT": certificate, "RAY_TLS_SERVER_KEY": private_key, "RAY_TLS_CA_CERT": certificate}
    folder.mkdir()
    for variable, content in contents.items():
        (folder / variable).write_bytes(content)
    return {"RAY_USE_TLS": "1", **{variable: str(folder / variable) for variable in contents}}
