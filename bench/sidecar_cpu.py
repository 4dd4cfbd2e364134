"""P9: CPU of the sidecar per turn, and its requests, with 1,000 steady nodes and no demand."""

import asyncio
import sys

from sidecar_harness import Sidecar, sidecar

from harness import result

NODES, TURNS = 1000, 60


def answered(one: Sidecar) -> int:
    """Turns so far, by the questions that the GCS answered."""
    return one.world.calls["GetClusterResourceState"]


async def main() -> int:
    """Measure and print."""
    async with sidecar(NODES) as one:
        await one.turned(5)
        before, cpu_before, turns_before = await one.ours.requests(), one.cpu_s(), answered(one)
        async with asyncio.timeout(300):
            while answered(one) < turns_before + TURNS:  # metrics are not scraped meanwhile: that costs CPU
                await asyncio.sleep(0.1)
        turns = answered(one) - turns_before
        cpu_ms = (one.cpu_s() - cpu_before) / turns * 1000
        after = await one.ours.requests()
    asked = {kind: count - before.get(kind, 0) for kind, count in after.items() if count != before.get(kind, 0)}
    print(f"requests in {turns} turns: {asked}")
    lists = sum(count for kind, count in asked.items() if kind.startswith("LIST"))
    met = [
        result("P9", float(lists), "LISTs", 0),
        result("P9", cpu_ms, f"ms CPU per turn with {NODES} nodes", 20),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
