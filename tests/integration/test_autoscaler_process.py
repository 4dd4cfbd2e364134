"""The autoscaler as a process: the real command, the API over TLS, a GCS over gRPC, signals and faults."""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from integration.cluster_under_test import RAYCLUSTERS
from integration.clusters import APIS, new_cluster
from integration.embedded_cluster import PATIENCE_S, until
from raytide.api.errors import ApiUnavailableError
from raytide.autoscaler.model import HEAD_TYPE, Demand, Request, amounts_of
from support.builders import group, raycluster
from support.fake_gcs import GcsServer, GcsWorld
from support.image_packages import only_image_packages
from support.ports import free_port
from support.tls_proxy import TlsProxy

pytestmark = pytest.mark.slow


class Sidecar:
    """`raytide autoscaler` as a process."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.process = None
        self._reading: list[asyncio.Task[None]] = []

    async def start(self, *flags: str, **environ: str) -> "Sidecar":
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "raytide", "autoscaler", *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environ},
        )
        self._reading = [
            asyncio.create_task(self._read(stream)) for stream in (self.process.stdout, self.process.stderr)
        ]
        return self

    async def _read(self, stream) -> None:
        async for line in stream:
            self.lines.append(line.decode().rstrip())

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def child(self) -> int | None:
        """The loop's process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    async def end(self, number: int = signal.SIGTERM) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await asyncio.gather(*self._reading)
        return code


@pytest.fixture(params=APIS)
async def cluster(request):
    cluster = new_cluster(request)
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
def namespace():
    return f"scaled-{secrets.token_hex(4)}"


@pytest.fixture
def world(tmp_path):
    world = GcsWorld(temp_dir=str(tmp_path))
    world.kv["session", "session_name"] = b"session_1"
    world.kv["__autoscaler", "__autoscaler_v2_enabled"] = b"1"
    (tmp_path / "session_1" / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to("session_1")
    world.add_node("demo-head", HEAD_TYPE, resources={})
    return world


@pytest.fixture
async def gcs(world):
    async with GcsServer(world) as server:
        yield server


def add_head(cluster, namespace) -> None:
    """A RayCluster without workers, and its head pod."""
    obj = raycluster(group("cpu", replicas=0), namespace=namespace, enableInTreeAutoscaling=True)
    owner = cluster.apply(obj)["metadata"]["uid"]
    labels = {"ray.io/cluster": "demo", "ray.io/group": HEAD_TYPE, "ray.io/node-type": "head"}
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "demo", "uid": owner, "controller": True}
    metadata = {"name": "demo-head", "namespace": namespace, "labels": labels, "ownerReferences": [reference]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    cluster.create("pods", {**pod, "spec": {"containers": [{"name": "ray", "image": "ray"}]}})


@pytest.fixture
async def start(cluster, gcs, namespace, tmp_path):
    """Starts sidecars of the RayCluster `demo` in a cluster that is there."""
    started = []
    folder = tmp_path / "account"
    folder.mkdir()
    plane = getattr(cluster, "plane", None)
    (folder / "token").write_text(plane.admin_token if plane else "a token")
    add_head(cluster, namespace)
    async with TlsProxy(folder, cluster.port) as tls_proxy:

        async def start_one(**environ) -> Sidecar:
            given = {
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT_HTTPS": str(tls_proxy.port),
                "RAYTIDE_SERVICE_ACCOUNT_DIR": str(folder),
                "RAYTIDE_OPERATOR_VERSION": "test",
                "RAY_HEAD_POD_NAME": "demo-head",
                "AUTOSCALER_UPDATE_INTERVAL_S": "1",
                "AUTOSCALER_METRIC_PORT": "0",
                "RAYTIDE_AUTOSCALER_HEALTH_PORT": "0",
                **environ,
            }
            flags = ["--cluster-name", "demo", "--cluster-namespace", namespace, "--gcs-address", gcs.address]
            started.append(await Sidecar().start(*flags, **given))
            return started[-1]

        yield start_one
        for one in started:
            if one.process.returncode is None:
                await one.end()


def replicas(cluster, namespace):
    return cluster.get(RAYCLUSTERS, namespace, "demo")["spec"]["workerGroupSpecs"][0]["replicas"]


def ask_for(world, count):
    world.tasks = [Demand(Request(amounts_of({"CPU": 1.0}), selectors=((),)), count)]


async def page(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_demand_becomes_replicas_and_is_reported_to_ray(cluster, world, start, namespace, tmp_path):
    sidecar = await start()
    await until("a report", lambda: world.reports)
    ask_for(world, 3)
    await until("three replicas", lambda: replicas(cluster, namespace) == 3)
    await until("a report of it", lambda: world.kept.pending_instance_requests)
    assert world.kv["", "AutoscalerMetricsAddress"].startswith(b"127.0.0.1:")
    logs = tmp_path / "session_latest" / "logs"
    assert await sidecar.end() == 0  # also between the report and its event for drivers
    assert "cpu: 0 -> 3" in (logs / "monitor.log").read_text()
    assert "connected to the GCS of Ray 2.60.0" in sidecar.log
    events = [msgspec.json.decode(line) for line in (logs / "events/event_AUTOSCALER.log").read_text().splitlines()]
    assert {event["source_type"] for event in events} == {"AUTOSCALER"}
    assert [event for event in events if "cpu" in event["message"]]


async def test_the_packages_of_the_container_image_are_enough(cluster, world, start, namespace, tmp_path):
    sidecar = await start(**only_image_packages(tmp_path / "image"))
    await until("a report", lambda: world.reports)
    ask_for(world, 1)
    await until("one replica", lambda: replicas(cluster, namespace) == 1)
    assert await sidecar.end() == 0


@pytest.mark.rule("D12")
async def test_a_killed_loop_is_restarted(cluster, world, start, namespace):
    sidecar = await start()
    await until("a report", lambda: world.reports)
    before = sidecar.child()
    os.kill(before, signal.SIGKILL)
    ask_for(world, 2)
    await until("another child", lambda: sidecar.child() not in (None, before))
    await until("two replicas", lambda: replicas(cluster, namespace) == 2)
    assert "ended with signal 9" in sidecar.log
    assert sidecar.process.returncode is None


async def test_sigterm_during_a_gcs_outage_ends_it_at_once_with_0(start, gcs):
    await gcs.stop()
    sidecar = await start()
    await until("it waits", lambda: "does not answer, retrying" in sidecar.log)
    began = asyncio.get_running_loop().time()
    assert await sidecar.end() == 0
    assert asyncio.get_running_loop().time() - began < 5
    assert "Traceback" not in sidecar.log


@pytest.mark.rule("AS:B-17")
async def test_a_gcs_outage_does_not_end_the_loop(cluster, world, gcs, start, namespace):
    sidecar = await start()
    await until("a report", lambda: world.reports)
    child = sidecar.child()
    await gcs.stop()
    await until("it is missed", lambda: "does not return the cluster state" in sidecar.log)
    ask_for(world, 2)
    await gcs.start()
    await until("two replicas", lambda: replicas(cluster, namespace) == 2)
    assert sidecar.child() == child


async def test_pages_of_health_and_metrics(world, start):
    health, metrics = free_port(), free_port()
    sidecar = await start(RAYTIDE_AUTOSCALER_HEALTH_PORT=str(health), AUTOSCALER_METRIC_PORT=str(metrics))
    await until("two turns", lambda: world.calls["GetClusterResourceState"] >= 2)
    status, words = await page(health, "/healthz")
    assert status == 200, words
    _, text = await page(metrics, "/metrics")
    assert 'autoscaler_active_nodes{NodeType="headgroup",SessionName="session_1"} 1.0' in text
    assert 'autoscaler_pending_nodes{NodeType="cpu",SessionName="session_1"} 0.0' in text
    assert re.search(r"^process_resident_memory_bytes", text, re.MULTILINE)
    assert await sidecar.end() == 0


@pytest.mark.rule("AS:L-6")
async def test_a_token_that_ray_does_not_accept_is_read_again_by_a_new_process(
    world, start, tmp_path, namespace, cluster
):
    world.token = "right"
    token = tmp_path / "ray-token"
    token.write_text("wrong")
    sidecar = await start(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    await until("two tries", lambda: sidecar.log.count("rejects the credentials") >= 2)
    token.write_text("right")
    ask_for(world, 1)
    await until("one replica", lambda: replicas(cluster, namespace) == 1)
    assert "Traceback" not in sidecar.log
    assert "wrong" not in sidecar.log


async def test_unwritable_logs_cost_one_line_each(world, start, tmp_path):
    (tmp_path / "session_latest").unlink()
    sidecar = await start()
    await until("two turns", lambda: world.calls["GetClusterResourceState"] >= 2)
    assert await sidecar.end() == 0
    assert sidecar.log.count("cannot write") == 2


async def test_the_log_directory_is_queried_again_after_an_error(world, start, tmp_path):
    world.errors["GetAllNodeInfo"] = ApiUnavailableError("not yet")
    sidecar = await start()
    await until("it goes on without", lambda: "log directory is unknown" in sidecar.log)
    world.errors.clear()
    monitor_log = tmp_path / "session_1" / "logs" / "monitor.log"
    await until("it writes there", monitor_log.exists)


async def test_the_metrics_address_is_written_again_to_a_new_gcs(world, start):
    await start()
    await until("the metrics' address", lambda: ("", "AutoscalerMetricsAddress") in world.kv)
    world.restart("session_2")
    await until("the address once more", lambda: ("", "AutoscalerMetricsAddress") in world.kv)


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        ([], {}, "Missing option '--cluster-name'"),
        (
            ["--cluster-name", "$(RAY_CLUSTER_NAME)", "--cluster-namespace", "x"],
            {},
            "environment variable in its place is not set",
        ),
        (["--cluster-name", "x", "--cluster-namespace", "x", "--gcs-address", "there"], {}, "host:port"),
        (
            ["--cluster-name", "x", "--cluster-namespace", "x"],
            {"AUTOSCALER_METRIC_PORT": "many"},
            "AUTOSCALER_METRIC_PORT",
        ),
    ],
    ids=["no flags", "an unexpanded variable", "no port", "a bad variable"],
)
async def test_bad_flags_and_variables_end_it_with_2_and_a_line(flags, environ, words):
    sidecar = await Sidecar().start(*flags, **environ)
    assert await sidecar.ended() == 2
    assert words in sidecar.log
    assert "Traceback" not in sidecar.log


async def test_a_missing_service_account_is_logged_repeatedly_with_the_remedy(tmp_path):
    sidecar = await Sidecar().start(
        *("--cluster-name", "x", "--cluster-namespace", "x"),
        RAYTIDE_SERVICE_ACCOUNT_DIR=str(tmp_path),
        KUBERNETES_SERVICE_HOST="127.0.0.1",
    )
    await until("a second try", lambda: sidecar.log.count("automountServiceAccountToken") >= 2)
    assert await sidecar.end() == 0
    assert "Traceback" not in sidecar.log


@pytest.mark.rule("FD:UX-5")
async def test_outside_a_pod_it_ends_at_once_and_names_no_option_that_it_lacks(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    sidecar = await Sidecar().start(
        *("--cluster-name", "x", "--cluster-namespace", "x"), RAYTIDE_SERVICE_ACCOUNT_DIR=str(tmp_path)
    )
    assert await sidecar.ended() == 2
    assert "KUBERNETES_SERVICE_HOST" in sidecar.log
    assert "--kubeconfig" not in sidecar.log
