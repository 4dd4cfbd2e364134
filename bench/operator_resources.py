"""Memory and requests of the operator on the embedded API: P7, P7F and P8."""

import asyncio
import sys
import tempfile
from pathlib import Path

from raytide.api.meta import ACCESS_REVIEWS
from support.hostile_environment import HostileEnv
from support.hostile_objects import HOSTILE

from harness import CLUSTERS, Harness, Met, cluster, harness, result, rss_mb, run


async def memory_by_pods() -> Met:
    """PF:P7: resident memory, idle and with 1,000, 4,000 and 10,000 pods in the informer's cache."""
    met = []
    async with harness() as ours:
        pid = await ours.start_operator()
        stored = 0
        for pods, bar in ((0, 95), (1000, 115), (4000, 150), (10_000, 210)):
            if pods:
                # stored by the API process with one request; names are numbered consecutively
                await ours.call("POST", f"/bench/ballast/{pods - stored}/{stored}")
                stored = pods
            await asyncio.sleep(5 + pods / 2000)
            met.append(result("P7", rss_mb(pid), f"MB with {pods} pods", bar))
    return met


async def memory_under_hostile_objects() -> Met:
    """PF:P7F: peak resident memory under each hostile object, with a hundred healthy clusters, in 512 MiB.

    Also printed is the longest step of one of the operator's loops in milliseconds of CPU.
    """
    met = []
    with tempfile.TemporaryDirectory(prefix="rt") as folder:
        env = HostileEnv(Path(folder))
        try:
            await env.start()
            for name, hostile in HOSTILE.items():
                cost = await env.meet(hostile)
                await env.clear()
                met.append(result("P7F", cost["peak_mib"], f"MiB peak: {name}", 256))
                print(f"  longest step {cost['cpu_s'] * 1000:.0f} ms of CPU", flush=True)
        finally:
            await env.stop()
    return met


COUNT, WORKERS, IDLE_S = 50, 16, 60


async def ready_clusters(ours: Harness) -> int:
    """The number of RayClusters in state ready."""
    items = (await ours.call("GET", CLUSTERS))["items"]
    return sum(item.get("status", {}).get("state") == "ready" for item in items)


async def requests_of_start(ours: Harness) -> dict[str, int]:
    """Wait until a started operator has sent its access reviews, one per permission; returns the requests so far."""
    reviews, before = f"POST {ACCESS_REVIEWS.plural}", await ours.requests()
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(1)
            now = await ours.requests()
            if now.get(reviews) and now.get(reviews) == before.get(reviews):
                return now
            before = now


async def requests_per_pod() -> Met:
    """PF:P8: requests per pod while 50 clusters of 1 + 16 pods are created, and in steady state."""
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
    return [
        result("P8", made, "POST per pod", 1.0),
        result("P8", float(writes), "writes while idle for a minute", 0),
        result("P8", float(after.get("LIST", 0)), "LISTs while idle for a minute", 0),
        result("P8", changed / pods, "writes per pod, events apart", 1.15),
        result("P8", sum(during.values()) / pods, "requests per pod, reads and events too", 1.15),
    ]


FIGURES = {"P7": memory_by_pods, "P7F": memory_under_hostile_objects, "P8": requests_per_pod}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
