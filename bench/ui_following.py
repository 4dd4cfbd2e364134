"""UI: what an open page of `raytide ui` costs the operator: P3, P5 and P7 beside the same without it.

On a real control plane. Rounds alternate: without `raytide ui`, and with it following the whole cluster for a page that is open. In
each, one cluster goes from 0 to 1,000 workers while five small ones are created, as in P5. The history of the page is kept by
`raytide ui`, not by the operator: what the operator can lose is its share of the API server and of the processors, which here all
share two. The first pair does not count. BENCH_PODS and BENCH_ROUNDS make it smaller while it is being worked on.
"""

import asyncio
import os
import re
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from control_plane import HOME, ControlPlaneHarness, control_plane_harness
from first_pod_fairness import BIG, FirstPods, waits_meanwhile

from harness import CLUSTERS, cluster, percentile, result, spread

PAIRS = int(os.environ.get("BENCH_ROUNDS", "6"))
RAYTIDE = Path(sys.executable).parent / "raytide"
MOST_WORSE = 20
"""Percent."""


@dataclass
class Figures:
    """What the rounds of one kind gave."""

    pods_per_s: list[float] = field(default_factory=list)
    first_pod_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    """Of the operator, at the end of each round."""


@asynccontextmanager
async def page(ours: ControlPlaneHarness) -> AsyncIterator[None]:
    """`raytide ui` and a reader of its events, as an open page is one."""
    kubeconfig = await ours.admin.powerful_account(HOME, ours.folder, "page")
    words = ("ui", "--kubeconfig", kubeconfig, "-A", "--port", "0")
    with (ours.folder / "ui.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(RAYTIDE, *words, stdout=asyncio.subprocess.PIPE, stderr=log)
    reading = None
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        site, _, token = re.search(r"http://\S+", line)[0].partition("/#token=")
        headers = {"Authorization": f"Bearer {token}"}
        is_open = asyncio.Event()
        reading = asyncio.create_task(read_events(f"{site}/api/events", headers, is_open))
        await asyncio.wait_for(is_open.wait(), 30)
        yield
        if reading.done():
            reading.result()
    finally:
        if reading is not None:
            reading.cancel()
        process.terminate()
        await process.wait()


async def read_events(address: str, headers: dict[str, str], is_open: asyncio.Event) -> None:
    """Until cancelled; `is_open` is set with the first bytes."""
    patience = aiohttp.ClientTimeout(total=None)
    session = aiohttp.ClientSession(timeout=patience, read_bufsize=2**20)
    async with session, session.get(address, headers=headers) as answer:
        answer.raise_for_status()
        async for _ in answer.content.iter_any():
            is_open.set()
    raise RuntimeError("the page's events ended")


async def grow(ours: ControlPlaneHarness, seen: FirstPods, name: str, figures: Figures) -> None:
    """One big cluster, and small ones meanwhile, by an operator that has just started."""
    await ours.start_operator()
    started = asyncio.get_running_loop().time()
    await ours.call("POST", CLUSTERS, cluster(f"big-{name}", BIG))
    waits = await waits_meanwhile(ours, seen, f"small-{name}")
    pods = 1 + BIG + 2 * len(waits)
    figures.pods_per_s.append(pods / (await ours.wait_for_pods(pods) - started))
    figures.first_pod_s += waits
    figures.memory_mb.append(ours.operator.rss_mb)
    await ours.clear()
    await asyncio.to_thread(ours.operator.stop)


async def main() -> int:
    """Measure and print."""
    without, following = Figures(), Figures()
    async with control_plane_harness() as ours:
        seen = FirstPods()
        watching = asyncio.create_task(seen.follow(ours))
        await seen.is_open.wait()
        for number in range(PAIRS):
            first = number == 0 and PAIRS > 1
            await grow(ours, seen, f"a{number}", Figures() if first else without)
            async with page(ours):
                await grow(ours, seen, f"b{number}", Figures() if first else following)
        watching.cancel()
    for name, figures in (("without", without), ("with a page", following)):
        print(
            f"{name}: {spread(figures.pods_per_s)} pods/s, first pod median {percentile(figures.first_pod_s, 0.5):.3f} s, "
            f"p99 {percentile(figures.first_pod_s, 0.99):.3f} s, operator {spread(figures.memory_mb)} MB"
        )
    met = [
        result("P3 with a page", worse(without.pods_per_s, following.pods_per_s), "% fewer pods/s", MOST_WORSE),
        result("P5 with a page", -worse(without.first_pod_s, following.first_pod_s), "% later first pod", MOST_WORSE),
        result("P7 with a page", -worse(without.memory_mb, following.memory_mb), "% more memory", MOST_WORSE),
    ]
    return 0 if all(met) else 1


def worse(before: list[float], after: list[float]) -> float:
    """By how many percent the mean is smaller."""
    return 100 * (1 - statistics.mean(after) / statistics.mean(before))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
