"""P8: requests of the operator per pod while 50 clusters of 1 + 16 pods are created, and in steady state."""

import asyncio
import sys

from raytide.api.meta import ACCESS_REVIEWS

from harness import CLUSTERS, Harness, cluster, harness, result

COUNT, WORKERS, IDLE_S = 50, 16, 60


async def ready_clusters(ours: Harness) -> int:
    """The number of RayClusters in state ready."""
    items = (await ours.call("GET", CLUSTERS))["items"]
    return sum(item.get("status", {}).get("state") == "ready" for item in items)


async def requests_of_start(ours: Harness) -> dict[str, int]:
    """What a started operator has sent when its access reviews, one per permission and start, have ended."""
    reviews, before = f"POST {ACCESS_REVIEWS.plural}", await ours.requests()
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(1)
            now = await ours.requests()
            if now.get(reviews) and now.get(reviews) == before.get(reviews):
                return now
            before = now


async def main() -> int:
    """Measure and print."""
    async with harness() as ours:
        await ours.start_operator()
        before = await requests_of_start(ours)
        await asyncio.gather(*(ours.call("POST", CLUSTERS, cluster(f"c{n}", WORKERS)) for n in range(COUNT)))
        async with asyncio.timeout(120):
            while await ready_clusters(ours) < COUNT:
                await asyncio.sleep(0.5)
        await asyncio.sleep(3)
        busy = await ours.requests()
        await asyncio.sleep(IDLE_S)
        idle = await ours.requests()
    during = {k: n - before.get(k, 0) for k, n in busy.items() if n != before.get(k, 0)}
    after = {k: n - busy.get(k, 0) for k, n in idle.items() if n != busy.get(k, 0)}
    pods = COUNT * (WORKERS + 1)
    print(f"while {pods} pods came: {dict(sorted(during.items()))}\nidle for {IDLE_S} s: {after}")
    writes = sum(n for kind, n in after.items() if kind.split()[0] in ("POST", "PATCH", "PUT", "DELETE"))
    made = during.get("POST pods", 0) / pods
    events = during.get("POST events", 0)
    changed = sum(n for kind, n in during.items() if kind.split()[0] in ("POST", "PATCH", "PUT", "DELETE")) - events
    met = [
        result("P8", made, "POST per pod", 1.0),
        result("P8", float(writes), "writes while idle for a minute", 0),
        result("P8", float(after.get("LIST", 0)), "LISTs while idle for a minute", 0),
        result("P8", changed / pods, "writes per pod, events apart", 1.15),
        result("P8", sum(during.values()) / pods, "requests per pod, reads and events too", 1.15),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
