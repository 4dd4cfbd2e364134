"""Memory and CPU of the autoscaler's sidecar, and its reaction to demands: P7S, P9, P9B and S1.

The API process of the other benchmarks runs behind a TLS proxy, a GCS over gRPC in this process, and `raytide autoscaler` as in a head
pod. CPU and memory are read from /proc of its child process, which runs the loop; turns are counted by the responses of the GCS.
P9B calls `reconcile()` in this process.
"""

import asyncio
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from raytide.autoscaler.model import HEAD_TYPE, Demand, GcsState, NodeStatus, RayNode, Request, amounts_of
from raytide.autoscaler.sidecar.reconcile import reconcile
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from raytide.runtime.gc_tuning import tune_gc
from support.builders import group, head, pod, raycluster
from support.fake_gcs import GcsServer, GcsWorld
from support.tls_proxy import TlsProxy

from harness import CLUSTERS, PODS, RAYTIDE, Harness, Met, free_port, harness, percentile, result, rss_mb, run

# --- a sidecar -------------------------------------------------------------------------------------------------------------

NAME = "demo"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Sidecar:
    """The process with its GCS, and its CPU and memory."""

    def __init__(self, ours: Harness, world: GcsWorld) -> None:
        self.ours = ours
        self.world = world
        self.metrics_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, api_port: int, gcs_address: str, interval_s: int) -> None:
        """Start it as in the second container of a head pod."""
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
        """PID of the child process, which runs the loop."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def rss_mb(self) -> tuple[float, float]:
        """Resident memory of the loop and of its supervisor."""
        return rss_mb(self.pid()), rss_mb(self.process.pid)

    def cpu_s(self) -> float:
        """CPU time so far, all threads."""
        words = Path(f"/proc/{self.pid()}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS_PER_S

    async def ticks(self) -> tuple[int, float]:
        """Number of turns so far, and the sum of their seconds."""
        async with self.ours.session.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            text = await answer.text()
        found = re.findall(r"^raytide_autoscaler_tick_seconds_(count|sum)\{.*\} (\S+)$", text, re.MULTILINE)
        values = dict(found)
        return int(float(values.get("count", 0))), float(values.get("sum", 0))

    async def turned(self, more: int, *, within_s: float = 300) -> list[float]:
        """Wait for this number of turns; returns the seconds of each."""
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
    """A RayCluster with one worker group."""

    def template(role: str, cpu: int) -> dict:
        resources = {"limits": {"cpu": str(cpu), "memory": "2Gi"}}
        return {"spec": {"containers": [{"name": role, "image": "rayproject/ray:2.60.0", "resources": resources}]}}

    workers_of = {"groupName": "g", "replicas": workers, "minReplicas": 0, "maxReplicas": 1500}
    options = {"idleTimeoutSeconds": 3600, "version": "v2"}
    spec = {
        "rayVersion": "2.60.0",
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": options,
        "headGroupSpec": {"template": template("head", 1)},
        "workerGroupSpecs": [{**workers_of, "template": template("w", cpus)}],
    }
    metadata = {"name": NAME, "namespace": "bench"}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


async def populate(ours: Harness, world: GcsWorld, workers: int, cpus: int) -> None:
    """Create the RayCluster, its pods, as large as real ones, and their Ray nodes, all busy."""
    made = await ours.call("POST", CLUSTERS, manifest(workers, cpus))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": NAME, "uid": made["metadata"]["uid"]}
    names = [(f"{NAME}-head", HEAD_TYPE), *((f"{NAME}-g-worker-{n:05d}", "g") for n in range(workers))]

    async def add(name: str, kind: str) -> None:
        labels = {"ray.io/cluster": NAME, "ray.io/group": kind}
        labels["ray.io/node-type"] = "head" if kind == HEAD_TYPE else "worker"
        metadata = {"name": name, "namespace": "bench", "labels": labels}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
        container = {"name": "ray", "image": "ray", "args": ["x" * 1500]}
        container["env"] = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(30)]
        made_of = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        await ours.call("POST", PODS, made_of)
        is_head = kind == HEAD_TYPE
        resources = {"CPU": float(0 if is_head else cpus), "memory": 2.0 * 2**30, "object_store_memory": 1e9}
        world.add_node(name, kind, resources={**resources, f"node:{name}": 1.0})
        world.make_busy(name)

    for start in range(0, len(names), 50):
        await asyncio.gather(*(add(*one) for one in names[start : start + 50]))


@asynccontextmanager
async def sidecar(workers: int, *, cpus: int = 16, interval_s: int = 1) -> AsyncIterator[Sidecar]:
    """A cluster of this size and its sidecar, after its first turns."""
    with tempfile.TemporaryDirectory(prefix="rt") as name:
        folder = Path(name)
        world = GcsWorld(temp_dir=name)
        (folder / "token").write_text("token")
        async with (
            harness() as ours,
            GcsServer(world) as gcs,
            TlsProxy(folder, int(ours.base.rpartition(":")[2])) as tls,
        ):
            await populate(ours, world, workers, cpus)
            one = Sidecar(ours, world)
            one.start(folder, tls.port, gcs.address, interval_s)
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
                    await asyncio.to_thread(one.process.wait, 15)  # the proxy closes its connections meanwhile
                except subprocess.TimeoutExpired:
                    one.process.kill()
                if sys.exc_info()[0] is not None:
                    print((folder / "sidecar.log").read_text()[-3000:], file=sys.stderr)


# --- P7S, P9 ---------------------------------------------------------------------------------------------------------------


async def memory() -> Met:
    """PF:P7S: resident memory with 10 nodes, after a few turns and a scaling decision."""
    nodes = 10
    async with sidecar(nodes) as one:
        one.world.tasks = [Demand(Request(amounts_of({"CPU": 15.0}), selectors=((),)), 5)]
        async with asyncio.timeout(30):
            while await one.replicas() < nodes + 5:
                await asyncio.sleep(0.1)
        await one.turned(20)
        loop_mb, supervisor_mb = one.rss_mb()
    print(f"the supervisor beside it: {supervisor_mb:.1f} MB, most of it shared with the loop")
    return [result("P7S", loop_mb, f"MB with {nodes} nodes", 60)]


def answered(one: Sidecar) -> int:
    """Number of turns so far, by the responses of the GCS."""
    return one.world.calls["GetClusterResourceState"]


async def cpu_per_turn() -> Met:
    """PF:P9: CPU per turn, and requests, with 1,000 steady nodes and no demand."""
    nodes = 1000
    async with sidecar(nodes) as one:
        await one.turned(5)
        before, cpu_before, turns_before = await one.ours.requests(), one.cpu_s(), answered(one)
        async with asyncio.timeout(300):
            while answered(one) < turns_before + 60:  # metrics are not scraped meanwhile: that costs CPU
                await asyncio.sleep(0.1)
        turns = answered(one) - turns_before
        cpu_ms = (one.cpu_s() - cpu_before) / turns * 1000
        after = await one.ours.requests()
    asked = {kind: count - before.get(kind, 0) for kind, count in after.items() if count != before.get(kind, 0)}
    print(f"requests in {turns} turns: {asked}")
    lists = sum(count for kind, count in asked.items() if kind.startswith("LIST"))
    return [result("P9", float(lists), "LISTs", 0), result("P9", cpu_ms, f"ms CPU per turn with {nodes} nodes", 20)]


# --- P9B -------------------------------------------------------------------------------------------------------------------

POD_COUNT, GROUPS, FEW_GROUPS = 10_000, 50, 5
TURNS, WARM_UP = 7, 5
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30


def snapshots(groups: int) -> list[Snapshot]:
    """Snapshots of the same cluster, every five seconds."""
    rng = random.Random(1)
    each = POD_COUNT // groups
    cluster = raycluster(
        *(group(f"g{number}", each, high=2 * each) for number in range(groups)), enableInTreeAutoscaling=True
    )
    pods, nodes = [head()], [RayNode("head", NodeStatus.IDLE, head().name, "headgroup")]
    for number in range(POD_COUNT):
        name, kind = f"demo-worker-{number:05d}", f"g{number % groups}"
        pods.append(pod(name, group=kind, node_name=f"node-{number}"))
        total = {"CPU": 1, "memory": 2 * GIB, "object_store_memory": GIB, f"node:10.0.{number >> 8}.{number & 255}": 1}
        left = {**total, "object_store_memory": rng.randrange(1, GIB)}
        del left["CPU"]
        nodes.append(RayNode(f"{number:056x}", NodeStatus.RUNNING, name, kind, amounts_of(total), amounts_of(left)))
    state = GcsState(version=1, session="session", nodes=tuple(nodes))
    return [
        Snapshot(cluster, tuple(pods), state, EPOCH + timedelta(seconds=5 * turn), 1000.0 + 5 * turn)
        for turn in range(WARM_UP + TURNS)
    ]


def mean_cpu_ms(groups: int) -> float:
    """Mean CPU milliseconds of a turn in the steady state."""
    state, times = ReconcilerState(), []
    for snapshot in snapshots(groups):
        started = time.process_time()
        plan = reconcile(snapshot, state)
        times.append(1000 * (time.process_time() - started))
        state = plan.state
        assert plan.reply is not None, plan.why_not
    assert not plan.reply.launches
    assert not plan.reply.terminations
    print(f"{POD_COUNT} pods in {groups} groups: best {min(times[WARM_UP:]):.0f} ms, first {times[0]:.0f} ms CPU")
    return statistics.mean(times[WARM_UP:])


def cpu_per_decision() -> Met:
    """PF:P9B: CPU of one decision with 10,000 steady pods in 50 groups; for comparison in 5 groups.

    P9 includes what the process spends on reading and writing; this is only `reconcile()`, with the state of earlier turns. The
    nodes of the groups are busy, each with another amount of object store in use.
    """
    tune_gc()  # as the sidecar does
    few = mean_cpu_ms(FEW_GROUPS)
    print(f"{POD_COUNT} pods in {FEW_GROUPS} groups: mean {few:.0f} ms CPU, no bar")
    yield result("P9B", mean_cpu_ms(GROUPS), f"ms CPU per turn, {POD_COUNT} pods in {GROUPS} groups", 200)


# --- S1 --------------------------------------------------------------------------------------------------------------------

BURST, WORKERS, QUEUE, QUEUE_TURNS = 1000, 1337, 13_315, 30


def demand(count: int, cpus: float) -> list[Demand]:
    """Tasks of one shape, reported one by one, as by many raylets."""
    return [Demand(Request(amounts_of({"CPU": cpus}), selectors=((),)), 1)] * count


async def patches(one: Sidecar) -> int:
    """Number of patches of the RayCluster so far."""
    return (await one.ours.requests()).get("PATCH", 0)


async def burst() -> Met:
    """Time and patches from the demands until `replicas` has their number."""
    async with sidecar(0, interval_s=5) as one:
        before = await patches(one)
        one.world.tasks = demand(BURST, 15.0)
        began = time.perf_counter()
        async with asyncio.timeout(60):
            while await one.replicas() < BURST:
                await asyncio.sleep(0.02)
        took_s = time.perf_counter() - began
        written = await patches(one) - before
    return [result("S1", took_s, f"s until replicas={BURST}", 10), result("S1", float(written), "writes", 3)]


async def queue() -> Met:
    """Duration of turns, and memory, with a large cluster."""
    async with sidecar(WORKERS, interval_s=1) as one:
        one.world.tasks = demand(QUEUE, 2.0)
        lasted = await one.turned(QUEUE_TURNS)
        loop_mb, _ = one.rss_mb()
    return [
        result("S1", percentile(lasted, 0.99), f"s p99 of a turn with {WORKERS} workers and {QUEUE} demands", 1),
        result("S1", loop_mb, "MB", 256),
    ]


async def demand_burst() -> Met:
    """PF:S1: a burst of 1,000 demands on an empty cluster, and a large cluster with a long queue (SC:S1)."""
    return [*await burst(), *await queue()]


FIGURES = {"P7S": memory, "P9": cpu_per_turn, "P9B": cpu_per_decision, "S1": demand_burst}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
