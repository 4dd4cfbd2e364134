"""P6K: P6 on a real control plane: from a RayCluster created to its first pod seen by a watch, with an idle operator.

Also with 10,000 pods of another cluster in its cache, and without an operator: a bare client that sends the three requests
that have to be, one after the other. Percentiles over 200, 100 and 100 rounds. BENCH_PODS and BENCH_ROUNDS make it smaller
while it is being worked on.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from api_process import ballast_pod
from bare import bare_cluster, foreign_cluster, operator_away, pod_template
from control_plane import PODS, ControlPlaneHarness, control_plane_harness, probed
from first_pod_fairness import FirstPods

from harness import CLUSTERS, percentile, result

BALLAST = int(os.environ.get("BENCH_PODS", "10000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "200"))
IN_FLIGHT = 32
PAUSE_S = 0.6
"""Until the status of the last cluster is written: the operator is to be idle."""


async def reactions(
    begin: Callable[[str], Awaitable[object]], seen: FirstPods, prefix: str, rounds: int
) -> list[float]:
    """Milliseconds from the beginning to the first pod, one cluster after the other."""
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
    """Pods of a RayCluster of another controller."""
    owner = await foreign_cluster(ours, "ballast")
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
    async with control_plane_harness() as ours:
        await ours.start_operator()
        seen = FirstPods()
        following = asyncio.create_task(seen.follow(ours))
        await seen.is_open.wait()

        def create(name: str) -> Awaitable[object]:
            return ours.call("POST", CLUSTERS, probed(name, 0))

        await reactions(create, seen, "warm", 10)
        template = await pod_template(ours, "head")
        idle = await reactions(create, seen, "idle", ROUNDS)
        async with operator_away(ours):
            bare = await reactions(partial(bare_cluster, ours, template), seen, "bare", ROUNDS // 2)
            await fill(ours)
        await asyncio.sleep(5)
        full = await reactions(create, seen, "full", ROUNDS // 2)
        following.cancel()
    print(f"without an operator p50 {percentile(bare, 0.5):.1f} ms, p99 {percentile(bare, 0.99):.1f} ms")
    met = [
        result("P6K", percentile(full, 0.99), f"ms p99 with {BALLAST} pods cached", 100),
        result("P6K", percentile(idle, 0.5), "ms p50", 15),
        result("P6K", percentile(idle, 0.99), "ms p99", 35),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
