"""P7: resident memory of the operator, idle and with 1,000, 4,000 and 10,000 pods in its cache."""

import asyncio
import sys

from harness import harness, result, rss_mb

BARS = {0: 95, 1000: 115, 4000: 150, 10000: 210}


async def main() -> int:
    """Measure and print."""
    met = []
    async with harness() as ours:
        pid = await ours.start_operator()
        stored = 0
        for pods, bar in BARS.items():
            if pods:
                # stored from the outside in one go, names go on where they ended
                await ours.call("POST", f"/bench/ballast/{pods - stored}/{stored}")
                stored = pods
            await asyncio.sleep(5 + pods / 2000)
            met.append(result("P7", rss_mb(pid), f"MB with {pods} pods", bar))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
