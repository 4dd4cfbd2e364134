"""P6K: P6 on a real control plane: from a RayCluster created to its first pod seen by a watch, with an idle operator.

Also with 10,000 pods of another cluster in its cache. Percentiles over 200 and 100 rounds. BENCH_PODS and BENCH_ROUNDS
make it smaller while it is being worked on.
"""

import asyncio
import itertools
import os
import sys

import msgspec

from api_process import ballast_pod
from p5 import FirstPods
from plane import PODS, PlaneRig, plane_rig, probed

from rig import CLUSTERS, percentile, result

BALLAST = int(os.environ.get("BENCH_PODS", "10000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "200"))
IN_FLIGHT = 32
PAUSE_S = 0.6
"""Until the status of the last cluster is written: the operator is to be idle."""


async def reactions(ours: PlaneRig, seen: FirstPods, prefix: str, rounds: int) -> list[float]:
    """Milliseconds from POST to the first pod, one cluster after the other."""
    now = asyncio.get_running_loop().time
    times = []
    for number in range(rounds):
        name = f"{prefix}{number}"
        manifest = probed(name, 0)
        started = now()
        await ours.call("POST", CLUSTERS, manifest)
        async with asyncio.timeout(30):
            times.append((await seen.of(name) - started) * 1000)
        await asyncio.sleep(PAUSE_S)
    return times


async def fill(ours: PlaneRig) -> None:
    """Pods of a RayCluster that is somebody else's."""
    spec = {"managedBy": "kueue.x-k8s.io/multikueue", "rayVersion": "2.60.0"}
    container = {"name": "ray-head", "image": "rayproject/ray:2.60.0"}
    spec["headGroupSpec"] = {"template": {"spec": {"containers": [container]}}}
    manifest = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ballast"}, "spec": spec}
    owner = (await ours.call("POST", CLUSTERS, manifest))["metadata"]["uid"]
    numbers = itertools.count()

    async def create() -> None:
        headers = {"Content-Type": "application/json"}
        while (number := next(numbers)) < BALLAST:
            body = msgspec.json.encode(ballast_pod("bench", owner, number))
            async with ours.session.post(ours.base + PODS, data=body, headers=headers) as answer:
                assert answer.status == 201, await answer.text()

    await asyncio.gather(*(create() for _ in range(IN_FLIGHT)))


async def main() -> int:
    """Measure and print."""
    async with plane_rig() as ours:
        await ours.start_operator()
        seen = FirstPods()
        following = asyncio.create_task(seen.follow(ours))
        await seen.is_open.wait()
        await reactions(ours, seen, "warm", 10)
        idle = await reactions(ours, seen, "idle", ROUNDS)
        await fill(ours)
        await asyncio.sleep(5)
        full = await reactions(ours, seen, "full", ROUNDS // 2)
        following.cancel()
    met = [
        result("P6K", percentile(full, 0.99), f"ms p99 with {BALLAST} pods cached", 100),
        result("P6K", percentile(idle, 0.5), "ms p50", 15),
        result("P6K", percentile(idle, 0.99), "ms p99", 35),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
