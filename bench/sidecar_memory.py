"""P7S: resident memory of the sidecar with 10 nodes, after a few turns and a scaling decision."""

import asyncio
import sys

from raytide.autoscaler.model import Demand, Request, amounts_of
from sidecar_harness import sidecar

from harness import result

NODES = 10


async def main() -> int:
    """Measure and print."""
    async with sidecar(NODES) as one:
        one.world.tasks = [Demand(Request(amounts_of({"CPU": 15.0}), selectors=((),)), 5)]
        async with asyncio.timeout(30):
            while await one.replicas() < NODES + 5:
                await asyncio.sleep(0.1)
        await one.turned(20)
        loop_mb, supervisor_mb = one.rss_mb()
    print(f"the supervisor beside it: {supervisor_mb:.1f} MB, most of it shared with the loop")
    return 0 if result("P7S", loop_mb, f"MB with {NODES} nodes", 60) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
