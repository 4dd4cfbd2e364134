"""S1: a burst of 1,000 demands on an empty cluster, and a large cluster with a long queue (SC:S1)."""

import asyncio
import sys
import time

from raytide.autoscaler.model import Demand, Request, amounts_of
from sidecar_harness import Sidecar, sidecar

from harness import percentile, result

BURST, WORKERS, QUEUE, TURNS = 1000, 1337, 13_315, 30


def demand(count: int, cpus: float) -> list[Demand]:
    """So many tasks of one shape, each reported by itself, as from many raylets."""
    return [Demand(Request(amounts_of({"CPU": cpus}), selectors=((),)), 1)] * count


async def patches(one: Sidecar) -> int:
    """Writes to the RayCluster so far."""
    return (await one.ours.requests()).get("PATCH", 0)


async def burst() -> list[bool]:
    """From the demand to the number."""
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


async def queue() -> list[bool]:
    """Turns of a large cluster."""
    async with sidecar(WORKERS, interval_s=1) as one:
        one.world.tasks = demand(QUEUE, 2.0)
        lasted = await one.turned(TURNS)
        loop_mb, _ = one.rss_mb()
    return [
        result("S1", percentile(lasted, 0.99), f"s p99 of a turn with {WORKERS} workers and {QUEUE} demands", 1),
        result("S1", loop_mb, "MB", 256),
    ]


async def main() -> int:
    """Measure and print."""
    return 0 if all([*await burst(), *await queue()]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
