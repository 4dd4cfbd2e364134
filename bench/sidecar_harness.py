"""The shared environment of the sidecar's benchmarks.

The API process of the other benchmarks behind a TLS door, a GCS over gRPC with as many nodes as asked for, both in this
process or others, and `raytide autoscaler` as it runs in a head pod. CPU and memory are read from /proc of the child that
does the work; ticks are counted by the GCS's answers.
"""

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from raytide.autoscaler.model import HEAD_TYPE
from raytide_sandbox.certificates import make_certificates
from support.fake_gcs import GcsServer, GcsWorld

from harness import CLUSTERS, RAYTIDE, Harness, free_port, harness, rss_mb

NAME = "demo"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class TlsProxy:
    """TLS in front of the API process: the sidecar requires it."""

    def __init__(self, behind: int) -> None:
        self.behind = behind

    async def open(self, folder: Path) -> int:
        """Listen; returns the port."""
        made = make_certificates(datetime.now(UTC), ["127.0.0.1"])
        for name, content in (("ca.crt", made.authority), ("tls.crt", made.server), ("tls.key", made.server_key)):
            (folder / name).write_bytes(content)
        (folder / "token").write_text("token")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0, ssl=tls)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.behind)
        with suppress(OSError, ssl.SSLError):
            await asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer))


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction."""
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


class Sidecar:
    """The process, its world and what it costs."""

    def __init__(self, ours: Harness, world: GcsWorld) -> None:
        self.ours = ours
        self.world = world
        self.metrics_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, api_port: int, gcs_address: str, interval_s: int) -> None:
        """As a head pod's second container."""
        environ = {
            **os.environ,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT_HTTPS": str(api_port),
            "RAYTIDE_SERVICE_ACCOUNT_DIR": str(folder),
            "RAYTIDE_OPERATOR_VERSION": "bench",
            "RAY_HEAD_POD_NAME": f"{NAME}-head",
            "AUTOSCALER_UPDATE_INTERVAL_S": str(interval_s),
            "AUTOSCALER_METRIC_PORT": str(self.metrics_port),
            "RAYTIDE_AUTOSCALER_HEALTH_PORT": "0",
        }
        flags = ["--cluster-name", NAME, "--cluster-namespace", "bench", "--gcs-address", gcs_address]
        log = (folder / "sidecar.log").open("wb")
        self.process = subprocess.Popen(
            [str(RAYTIDE), "autoscaler", *flags], env=environ, stdout=log, stderr=subprocess.STDOUT
        )

    def pid(self) -> int:
        """Of the child that does the work."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def rss_mb(self) -> tuple[float, float]:
        """Of the loop, and of the supervisor."""
        return rss_mb(self.pid()), rss_mb(self.process.pid)

    def cpu_s(self) -> float:
        """CPU time so far, all threads."""
        words = Path(f"/proc/{self.pid()}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS_PER_S

    async def ticks(self) -> tuple[int, float]:
        """How many turns there were, and how long all of them took."""
        async with self.ours.session.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            text = await answer.text()
        found = re.findall(r"^raytide_autoscaler_tick_seconds_(count|sum)\{.*\} (\S+)$", text, re.MULTILINE)
        values = dict(found)
        return int(float(values.get("count", 0))), float(values.get("sum", 0))

    async def turned(self, more: int, *, within_s: float = 300) -> list[float]:
        """Wait for so many turns; returns how long each of them took."""
        lasted: list[float] = []
        before, sum_before = await self.ticks()
        async with asyncio.timeout(within_s):
            while len(lasted) < more:
                await asyncio.sleep(0.1)
                count, total = await self.ticks()
                if count > before:
                    lasted += [(total - sum_before) / (count - before)] * (count - before)
                    before, sum_before = count, total
        return lasted

    async def replicas(self) -> int:
        """The replicas in the RayCluster."""
        spec = (await self.ours.call("GET", f"{CLUSTERS}/{NAME}"))["spec"]
        count: int = spec["workerGroupSpecs"][0]["replicas"]
        return count


def manifest(workers: int, cpus: int) -> dict:
    """One group of machines."""

    def template(role: str, cpu: int) -> dict:
        resources = {"limits": {"cpu": str(cpu), "memory": "2Gi"}}
        return {"spec": {"containers": [{"name": role, "image": "rayproject/ray:2.60.0", "resources": resources}]}}

    group = {"groupName": "g", "replicas": workers, "minReplicas": 0, "maxReplicas": 1500}
    options = {"idleTimeoutSeconds": 3600, "version": "v2"}
    spec = {
        "rayVersion": "2.60.0",
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": options,
        "headGroupSpec": {"template": template("head", 1)},
        "workerGroupSpecs": [{**group, "template": template("w", cpus)}],
    }
    metadata = {"name": NAME, "namespace": "bench"}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


async def populate(ours: Harness, world: GcsWorld, workers: int, cpus: int) -> None:
    """The RayCluster, its pods of the size pods really have, and their Ray nodes, all busy."""
    made = await ours.call("POST", CLUSTERS, manifest(workers, cpus))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": NAME, "uid": made["metadata"]["uid"]}
    names = [(f"{NAME}-head", HEAD_TYPE), *((f"{NAME}-g-worker-{n:05d}", "g") for n in range(workers))]

    async def add(name: str, group: str) -> None:
        labels = {"ray.io/cluster": NAME, "ray.io/group": group}
        labels["ray.io/node-type"] = "head" if group == HEAD_TYPE else "worker"
        metadata = {"name": name, "namespace": "bench", "labels": labels}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
        container = {"name": "ray", "image": "ray", "args": ["x" * 1500]}
        container["env"] = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(30)]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        await ours.call("POST", "/api/v1/namespaces/bench/pods", pod)
        is_head = group == HEAD_TYPE
        resources = {"CPU": float(0 if is_head else cpus), "memory": 2.0 * 2**30, "object_store_memory": 1e9}
        node = world.add_node(name, group, resources={**resources, f"node:{name}": 1.0})
        world.make_busy(name)
        del node

    for start in range(0, len(names), 50):
        await asyncio.gather(*(add(*one) for one in names[start : start + 50]))


@asynccontextmanager
async def sidecar(workers: int, *, cpus: int = 16, interval_s: int = 1) -> AsyncIterator[Sidecar]:
    """A cluster of that size and the sidecar that looks after it, after its first turns."""
    with tempfile.TemporaryDirectory(prefix="rt") as name:
        folder = Path(name)
        world = GcsWorld(temp_dir=name)
        async with harness() as ours, GcsServer(world) as gcs:
            await populate(ours, world, workers, cpus)
            one = Sidecar(ours, world)
            port = await TlsProxy(int(ours.base.rpartition(":")[2])).open(folder)
            one.start(folder, port, gcs.address, interval_s)
            try:
                async with asyncio.timeout(60):
                    while not world.reports:
                        assert one.process.poll() is None, (folder / "sidecar.log").read_text()
                        await asyncio.sleep(0.1)
                await one.turned(3)
                yield one
            finally:
                one.process.send_signal(signal.SIGTERM)
                try:
                    one.process.wait(15)
                except subprocess.TimeoutExpired:
                    one.process.kill()
                if sys.exc_info()[0] is not None:
                    print((folder / "sidecar.log").read_text()[-3000:], file=sys.stderr)
