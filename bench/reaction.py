"""REACTION: from a job's event to the first patch that resizes it, with an idle operator as a process of its own.

Two events on the embedded API: a new elastic job that may grow into free room, and a new GPU job, a gang that waits for its
admission. The clock starts when the POST is sent and ends when a watch shows the new `spec.trainer.replicas`. In between
lie the settling time of one second, by which flocks of events become one pass, and for the growth its first pods.
"""

import asyncio
import sys
import time
from pathlib import Path

import msgspec
import yaml

from harness import Harness, harness, percentile, result, spread

CRD = Path(__file__).parents[1] / "crds" / "paddlepaddle.org_trainingjobs.yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/bench/trainingjobs"
ROUNDS = 20
BAR_S = 1.5
PAUSE_S = 2.0
"""Until everything is calm again: what a new round finds must not be the settling of the one before."""


def trainingjob(name: str, resources: dict[str, str]) -> dict:
    """An elastic job of 1 to 3 trainers."""
    trainer = {"min-instance": 1, "max-instance": 3, "entrypoint": "true", "resources": {"requests": resources}}
    trainer["resources"] = {"requests": resources, "limits": resources}
    metadata = {"name": name, "namespace": "bench"}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": metadata,
        "spec": {"trainer": trainer},
    }


async def prepare(ours: Harness) -> None:
    """The CRD, and a node with capacity for all pods."""
    await ours.call("POST", DEFINITIONS, yaml.safe_load(CRD.read_text()))
    node = await ours.call("GET", "/api/v1/nodes/node-0")
    node["status"] = {
        "allocatable": {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "64", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await ours.call("PUT", "/api/v1/nodes/node-0/status", node)


async def resizes(ours: Harness, seen: dict[str, float], ready: asyncio.Event) -> None:
    """Note when each job's size was written first."""
    async with ours.session.get(f"{ours.base}{JOBS}?watch=true", timeout=None) as answer:
        ready.set()
        async for line in answer.content:
            found = msgspec.json.decode(line)["object"]
            if found["spec"]["trainer"].get("replicas", 1) > 1 or (
                "nvidia.com/gpu" in line.decode() and ("replicas" in found["spec"]["trainer"])
            ):
                seen.setdefault(found["metadata"]["name"], time.perf_counter())


async def reactions(ours: Harness, seen: dict[str, float], prefix: str, resources: dict[str, str]) -> list[float]:
    """Seconds from POST to the first resize, one job after the other."""
    times = []
    for number in range(ROUNDS):
        name = f"{prefix}{number}"
        started = time.perf_counter()
        await ours.call("POST", JOBS, trainingjob(name, resources))
        async with asyncio.timeout(30):
            while name not in seen:
                await asyncio.sleep(0.002)
        times.append(seen[name] - started)
        await ours.call("DELETE", f"{JOBS}/{name}")
        await asyncio.sleep(PAUSE_S)
    print(f"{prefix}: {spread(times)} s, most {max(times):.2f} s", flush=True)
    return times


async def main() -> int:
    """Measure and print."""
    async with harness() as ours:
        await prepare(ours)
        await ours.start_operator()
        seen: dict[str, float] = {}
        ready = asyncio.Event()
        watching = asyncio.create_task(resizes(ours, seen, ready))
        await ready.wait()
        growing = await reactions(ours, seen, "growing", {"cpu": "1", "memory": "1Gi"})
        gangs = await reactions(ours, seen, "gang", {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"})
        watching.cancel()
    met = [
        result("REACTION", percentile(gangs, 0.9), "s p90 from a GPU job to its admission", BAR_S),
        result("REACTION", percentile(growing, 0.9), "s p90 from a job to its first growth", BAR_S),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
