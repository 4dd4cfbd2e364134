"""P5: time to the first pod of a one-worker cluster while another cluster scales from 0 to 1,000 workers.

On a real control plane, at default settings. Each round scales one big cluster and creates five small ones one after the
other meanwhile; the time is from a small cluster's POST until a watch shows its first pod. The first round does not count.
Every round does the same once more without the operator: a bare client creates as many pods, and for each small cluster
sends the three requests that have to be. What the operator takes is to be read beside that.
BENCH_PODS and BENCH_ROUNDS make it smaller while it is being worked on.
"""

import asyncio
import os
import sys

from bare import bare_cluster, bare_creates, operator_away, pod_template
from control_plane import ControlPlaneHarness, control_plane_harness, probed

from harness import CLUSTERS, cluster, percentile, result

BIG = int(os.environ.get("BENCH_PODS", "1000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
SMALL_PER_ROUND = 5
APART_S = 0.2


class FirstPods:
    """When each cluster's first pod came by."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self._seen: dict[str, asyncio.Future[float]] = {}

    def of(self, name: str) -> asyncio.Future[float]:
        """The moment, once it is known."""
        return self._seen.setdefault(name, asyncio.get_running_loop().create_future())

    async def follow(self, ours: ControlPlaneHarness) -> None:
        """Watch until cancelled."""
        now = asyncio.get_running_loop().time
        async for event in ours.watch_pods(self.is_open, selector="probe=yes"):
            first = self.of(event["object"]["metadata"]["labels"]["ray.io/cluster"])
            if event["type"] == "ADDED" and not first.done():
                first.set_result(now())


async def waits(ours: ControlPlaneHarness, seen: FirstPods, number: int) -> list[float]:
    """Seconds that the small clusters of one round waited, all of them while the big one was growing."""
    await ours.call("POST", CLUSTERS, cluster(f"big{number}", BIG))
    times = await waits_meanwhile(ours, seen, f"small{number}")
    await ours.wait_for_pods(BIG)
    await ours.clear()
    return times


async def waits_meanwhile(ours: ControlPlaneHarness, seen: FirstPods, prefix: str) -> list[float]:
    """Seconds until the first pods of small clusters, created one after the other until a big one has its pods."""
    now = asyncio.get_running_loop().time
    times = []
    for small in range(SMALL_PER_ROUND):
        await asyncio.sleep(APART_S)
        if await ours.count_pods() > BIG:
            break
        name = f"{prefix}-{small}"
        started = now()
        await ours.call("POST", CLUSTERS, probed(name, 1))
        async with asyncio.timeout(60):
            times.append(await seen.of(name) - started)
    return times


async def bare_waits(ours: ControlPlaneHarness, seen: FirstPods, template: dict, number: int) -> list[float]:
    """The same without an operator."""
    now = asyncio.get_running_loop().time
    times = []
    async with operator_away(ours):
        growing = asyncio.create_task(bare_creates(ours, template, BIG))
        for small in range(SMALL_PER_ROUND):
            await asyncio.sleep(APART_S)
            if growing.done():
                break
            name = f"bare{number}-{small}"
            started = now()
            await bare_cluster(ours, template, name)
            async with asyncio.timeout(60):
                times.append(await seen.of(name) - started)
        await growing
        await ours.clear()
    return times


async def example(ours: ControlPlaneHarness) -> dict:
    """A worker pod as the operator sends it."""
    await ours.call("POST", CLUSTERS, cluster("example", 1))
    await ours.wait_for_pods(2)
    template = await pod_template(ours, "worker")
    await ours.clear()
    return template


async def main() -> int:
    """Measure and print."""
    async with control_plane_harness() as ours:
        await ours.start_operator()
        template = await example(ours)
        seen = FirstPods()
        following = asyncio.create_task(seen.follow(ours))
        await seen.is_open.wait()
        times: list[float] = []
        bare: list[float] = []
        for number in range(ROUNDS):
            of_round = await waits(ours, seen, number)
            bare_of_round = await bare_waits(ours, seen, template, number)
            print(f"round {number}: {in_ms(of_round)} ms; without an operator {in_ms(bare_of_round)} ms", flush=True)
            if number or ROUNDS == 1:
                times += of_round
                bare += bare_of_round
        following.cancel()
    print(f"{len(times)} small clusters, median {percentile(times, 0.5):.3f} s")
    print(f"without an operator median {percentile(bare, 0.5):.3f} s, p99 {percentile(bare, 0.99):.2f} s")
    return 0 if result("P5", percentile(times, 0.99), "s p99 until the first pod", 0.15) else 1


def in_ms(times: list[float]) -> str:
    """For people."""
    return " ".join(f"{1000 * each:.0f}" for each in times)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
