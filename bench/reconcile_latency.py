"""P6: from a RayCluster created to its first pod seen by a watch, with an idle operator.

Also with 10,000 pods of another cluster in its cache. Percentiles over 200 and 100 rounds.
"""

import asyncio
import sys
import time

import msgspec

from harness import CLUSTERS, Harness, cluster, harness, percentile, result


async def first_pods(ours: Harness, seen: dict[str, float], ready: asyncio.Event) -> None:
    """Note when the first pod of each cluster comes by."""
    url = ours.base + "/api/v1/namespaces/bench/pods?watch=true"
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


async def main() -> int:
    """Measure and print."""
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
    met = [
        result("P6", percentile(full, 0.99), "ms p99 with 10,000 pods cached", 100),
        result("P6", percentile(idle, 0.5), "ms p50", 15),
        result("P6", percentile(idle, 0.99), "ms p99", 35),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
