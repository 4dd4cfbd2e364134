"""Time from the creation of an object until its controller acts, with an idle operator: P6, P6K and REACTION.

P6 is the time from a RayCluster's POST until a watch shows its first pod, also with 10,000 pods of another cluster in the informer's
cache, and P6K the same on a real control plane. REACTION is the time from a TrainingJob's POST until a watch shows its new size.
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import yaml

from api_process import ballast_pod
from control_plane import (
    IN_FLIGHT,
    ControlPlaneHarness,
    FirstPods,
    bare_cluster,
    control_plane_harness,
    foreign_cluster,
    operator_stopped,
    pod_template,
    probed,
)

from harness import CLUSTERS, PODS, Harness, Met, cluster, harness, percentile, result, run, spread

# --- P6 --------------------------------------------------------------------------------------------------------------------


async def first_pods(ours: Harness, seen: dict[str, float], ready: asyncio.Event) -> None:
    """Store the time at which the first pod of each cluster is added."""
    url = f"{ours.base}{PODS}?watch=true"
    async with ours.session.get(url, timeout=None) as answer:
        ready.set()
        async for line in answer.content:
            event = msgspec.json.decode(line)
            labels = event["object"]["metadata"].get("labels") or {}
            if event["type"] == "ADDED":
                seen.setdefault(labels.get("ray.io/cluster", ""), time.perf_counter())


async def reactions(ours: Harness, seen: dict[str, float], prefix: str, rounds: int) -> list[float]:
    """Milliseconds from POST to the first pod, one cluster after the other."""
    times = []
    for number in range(rounds):
        name = f"{prefix}{number}"
        started = time.perf_counter()
        await ours.call("POST", CLUSTERS, cluster(name, 0))
        async with asyncio.timeout(10):
            while name not in seen:
                await asyncio.sleep(0.001)
        times.append((seen[name] - started) * 1000)
        await asyncio.sleep(0.1)
    return times


async def first_pod() -> Met:
    """PF:P6: on the embedded API; percentiles over 200 and 100 rounds."""
    async with harness() as ours:
        await ours.start_operator()
        seen: dict[str, float] = {}
        ready = asyncio.Event()
        watching = asyncio.create_task(first_pods(ours, seen, ready))
        await ready.wait()
        await reactions(ours, seen, "warm", 10)
        idle = await reactions(ours, seen, "idle", 200)
        await ours.call("POST", "/bench/ballast/10000/0")
        await asyncio.sleep(5)
        full = await reactions(ours, seen, "full", 100)
        watching.cancel()
    return [
        result("P6", percentile(full, 0.99), "ms p99 with 10,000 pods cached", 100),
        result("P6", percentile(idle, 0.5), "ms p50", 15),
        result("P6", percentile(idle, 0.99), "ms p99", 35),
    ]


# --- P6K -------------------------------------------------------------------------------------------------------------------

BALLAST = int(os.environ.get("BENCH_PODS", "10000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "200"))
PAUSE_S = 0.6
"""Pause until the status of the last cluster is written and the operator is idle."""


async def kube_reactions(
    begin: Callable[[str], Awaitable[object]], seen: FirstPods, prefix: str, rounds: int
) -> list[float]:
    """Milliseconds from the call of `begin` to the first pod, one cluster after the other."""
    now = asyncio.get_running_loop().time
    times = []
    for number in range(rounds):
        name = f"{prefix}{number}"
        started = now()
        await begin(name)
        async with asyncio.timeout(30):
            times.append((await seen.of(name) - started) * 1000)
        await asyncio.sleep(PAUSE_S)
    return times


async def fill(ours: ControlPlaneHarness) -> None:
    """Create pods of a RayCluster of another controller."""
    owner = await foreign_cluster(ours, "ballast")
    numbers = itertools.count()

    async def create() -> None:
        headers = {"Content-Type": "application/json"}
        while (number := next(numbers)) < BALLAST:
            body = msgspec.json.encode(ballast_pod("bench", owner, number))
            async with ours.session.post(ours.base + PODS, data=body, headers=headers) as answer:
                assert answer.status == 201, await answer.text()

    await asyncio.gather(*(create() for _ in range(IN_FLIGHT)))


async def first_pod_on_a_control_plane() -> Met:
    """PF:P6K: on a real control plane, also for a bare client that sends the three required requests.

    Percentiles over 200, 100 and 100 rounds. BENCH_PODS and BENCH_ROUNDS make it smaller during development.
    """
    async with control_plane_harness() as ours:
        await ours.start_operator()
        seen = FirstPods()

        def create(name: str) -> Awaitable[object]:
            return ours.call("POST", CLUSTERS, probed(name, 0))

        async with seen.following(ours):
            await kube_reactions(create, seen, "warm", 10)
            template = await pod_template(ours, "head")
            idle = await kube_reactions(create, seen, "idle", ROUNDS)
            async with operator_stopped(ours):
                bare = await kube_reactions(partial(bare_cluster, ours, template), seen, "bare", ROUNDS // 2)
                await fill(ours)
            await asyncio.sleep(5)
            full = await kube_reactions(create, seen, "full", ROUNDS // 2)
    print(f"without an operator p50 {percentile(bare, 0.5):.1f} ms, p99 {percentile(bare, 0.99):.1f} ms")
    return [
        result("P6K", percentile(full, 0.99), f"ms p99 with {BALLAST} pods cached", 100),
        result("P6K", percentile(idle, 0.5), "ms p50", 15),
        result("P6K", percentile(idle, 0.99), "ms p99", 35),
    ]


# --- REACTION --------------------------------------------------------------------------------------------------------------

CRD = Path(__file__).parents[1] / "crds" / "paddlepaddle.org_trainingjobs.yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/bench/trainingjobs"
RESIZES = 20
RESIZE_BAR_S = 1.5
RESIZE_PAUSE_S = 2.0
"""Pause until the cluster is in its steady state: resizes of the round before must not overlap with the next."""


def trainingjob(name: str, resources: dict[str, str]) -> dict:
    """An elastic job of 1 to 3 trainers."""
    trainer = {"min-instance": 1, "max-instance": 3, "entrypoint": "true"}
    trainer["resources"] = {"requests": resources, "limits": resources}
    metadata = {"name": name, "namespace": "bench"}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": metadata,
        "spec": {"trainer": trainer},
    }


async def prepare(ours: Harness) -> None:
    """Create the CRD, and add capacity for all pods to the node."""
    await ours.call("POST", DEFINITIONS, yaml.safe_load(CRD.read_text()))
    node = await ours.call("GET", "/api/v1/nodes/node-0")
    node["status"] = {
        "allocatable": {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "64", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await ours.call("PUT", "/api/v1/nodes/node-0/status", node)


async def resizes(ours: Harness, seen: dict[str, float], ready: asyncio.Event) -> None:
    """Store the time of the first resize of each job."""
    async with ours.session.get(f"{ours.base}{JOBS}?watch=true", timeout=None) as answer:
        ready.set()
        async for line in answer.content:
            found = msgspec.json.decode(line)["object"]
            if found["spec"]["trainer"].get("replicas", 1) > 1 or (
                "nvidia.com/gpu" in line.decode() and ("replicas" in found["spec"]["trainer"])
            ):
                seen.setdefault(found["metadata"]["name"], time.perf_counter())


async def job_reactions(ours: Harness, seen: dict[str, float], prefix: str, resources: dict[str, str]) -> list[float]:
    """Seconds from POST to the first resize, one job after the other."""
    times = []
    for number in range(RESIZES):
        name = f"{prefix}{number}"
        started = time.perf_counter()
        await ours.call("POST", JOBS, trainingjob(name, resources))
        async with asyncio.timeout(30):
            while name not in seen:
                await asyncio.sleep(0.002)
        times.append(seen[name] - started)
        await ours.call("DELETE", f"{JOBS}/{name}")
        await asyncio.sleep(RESIZE_PAUSE_S)
    print(f"{prefix}: {spread(times)} s, most {max(times):.2f} s", flush=True)
    return times


async def first_resize() -> Met:
    """PF:REACTION: from a job's event to the first patch that resizes it, on the embedded API.

    Two cases: a new elastic job for which there is free capacity, and a new GPU job, a gang that waits for its admission. The time is
    from the POST until a watch shows the new `spec.trainer.replicas`. It includes the delay of one second in which events are batched
    into one pass, and for the scale-up the creation of the first pods of the job.
    """
    async with harness() as ours:
        await prepare(ours)
        await ours.start_operator()
        seen: dict[str, float] = {}
        ready = asyncio.Event()
        watching = asyncio.create_task(resizes(ours, seen, ready))
        await ready.wait()
        growing = await job_reactions(ours, seen, "growing", {"cpu": "1", "memory": "1Gi"})
        gangs = await job_reactions(ours, seen, "gang", {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"})
        watching.cancel()
    return [
        result("REACTION", percentile(gangs, 0.9), "s p90 from a GPU job to its admission", RESIZE_BAR_S),
        result("REACTION", percentile(growing, 0.9), "s p90 from a job to its first growth", RESIZE_BAR_S),
    ]


FIGURES = {"P6": first_pod, "P6K": first_pod_on_a_control_plane, "REACTION": first_resize}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
