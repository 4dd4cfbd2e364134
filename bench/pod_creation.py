"""Pods that the operator creates on a real control plane: P3, P5, P12 and UI.

P3 is the rate, P12 the CPU of the operator per pod, P5 the time until the first pod of a small RayCluster while a large one is scaled up;
UI is the effect of an open page of `raytide ui` on these. The first round is a warm-up; the result is the mean of the others. A bare
client sends the same requests in the same rounds. BENCH_PODS and BENCH_ROUNDS make it smaller during development.
"""

import asyncio
import os
import re
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from control_plane import (
    HOME,
    ControlPlaneHarness,
    FirstPods,
    bare_cluster,
    bare_creates,
    control_plane_harness,
    operator_stopped,
    pod_template,
    probed,
)

from harness import CLUSTERS, RAYTIDE, Met, cluster, percentile, result, run, spread

PODS_WANTED = int(os.environ.get("BENCH_PODS", "1000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
CLUSTERS_AT_ONCE = max(1, PODS_WANTED // 20)
SETTLED_S = 1.5
"""Status updates and events after the last pod count, too."""
SMALL_PER_ROUND = 5
APART_S = 0.2
MOST_WORSE = 20
"""Largest allowed difference with an open page, in percent."""

# --- P3, P12 ---------------------------------------------------------------------------------------------------------------


@dataclass
class Rates:
    """Results of each round."""

    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    cpu_ms_one: list[float] = field(default_factory=list)
    cpu_ms_many: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    """Idle CPU of the machine while pods were created, in percent."""


def machine_ticks() -> tuple[int, int]:
    """Ticks of all CPUs since the boot: idle, and total."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3], sum(ticks)


async def operator_creates(ours: ControlPlaneHarness, clusters: list[dict], pods: int) -> tuple[float, float, float]:
    """Pods per second from the first POST of a cluster to the last pod, CPU ms per pod, and percent of all CPU idle."""
    now = asyncio.get_running_loop().time
    cpu_s, started, before = ours.operator.cpu_s, now(), machine_ticks()
    creating = asyncio.create_task(ours.create_clusters(clusters))
    ended = await ours.wait_for_pods(pods)
    idle, ticks = (after - before for before, after in zip(before, machine_ticks(), strict=True))
    await creating
    await asyncio.sleep(SETTLED_S)
    return pods / (ended - started), (ours.operator.cpu_s - cpu_s) * 1000 / pods, 100 * idle / ticks


async def all_rounds(ours: ControlPlaneHarness) -> Rates:
    """Measure all rounds."""
    rates = Rates()
    template: dict = {}
    for number in range(ROUNDS):
        one = await operator_creates(ours, [cluster("big", PODS_WANTED - 1)], PODS_WANTED)
        template = template or await pod_template(ours, "worker")
        await ours.clear()
        many_clusters = [cluster(f"many{index}", 20) for index in range(CLUSTERS_AT_ONCE)]
        many = await operator_creates(ours, many_clusters, 21 * CLUSTERS_AT_ONCE)
        await ours.clear()
        async with operator_stopped(ours):
            bare = await bare_creates(ours, template, PODS_WANTED)
        await ours.clear()
        print(
            f"round {number}: one cluster {one[0]:.0f}/s, {CLUSTERS_AT_ONCE} × 20 {many[0]:.0f}/s, bare {bare:.0f}/s; "
            f"operator {one[1]:.2f} and {many[1]:.2f} ms per pod{' (not counted)' if number == 0 else ''}",
            flush=True,
        )
        if number or ROUNDS == 1:
            rates.one.append(one[0])
            rates.many.append(many[0])
            rates.bare.append(bare)
            rates.cpu_ms_one.append(one[1])
            rates.cpu_ms_many.append(many[1])
            rates.idle += [one[2], many[2]]
    return rates


async def creation_rate(*, is_about_cpu: bool) -> Met:
    """PF:P3 and PF:P12: pods created per second, and CPU of the operator per pod, or only the latter.

    One RayCluster from 0 to 1,000 pods and 50 of a head and 20 workers, alternating with a bare client that posts the same pods with
    the same concurrency and reads one watch. Also printed is the idle CPU of the machine: with 1 or 2 % the machine is the limit.
    """
    async with control_plane_harness() as ours:
        await ours.start_operator()
        rates = await all_rounds(ours)
    print(f"one cluster {spread(rates.one)}/s, many {spread(rates.many)}/s, bare client {spread(rates.bare)}/s")
    print(f"{spread(rates.idle)} % of the machine's CPU was idle")
    one, many, bare = (statistics.mean(values) for values in (rates.one, rates.many, rates.bare))
    met = [
        result("P12", statistics.mean(rates.cpu_ms_many), "ms of CPU per pod, 50 × 20", 1.2),
        result("P12", statistics.mean(rates.cpu_ms_one), "ms of CPU per pod, one cluster", 1.2),
    ]
    if not is_about_cpu:
        met += [
            result("P3", many, "pods/s, 50 × 20", 450, more_is_better=True),
            result("P3", 100 * one / bare, "% of the bare client", 90, more_is_better=True),
            result("P3", one, "pods/s, one cluster", 500, more_is_better=True),
        ]
    return met


# --- P5 --------------------------------------------------------------------------------------------------------------------


async def waits(ours: ControlPlaneHarness, seen: FirstPods, number: int) -> list[float]:
    """Seconds until the first pods of the small clusters of one round, while a big one is scaled up."""
    await ours.call("POST", CLUSTERS, cluster(f"big{number}", PODS_WANTED))
    times = await waits_meanwhile(ours, seen, f"small{number}")
    await ours.wait_for_pods(PODS_WANTED)
    await ours.clear()
    return times


async def waits_meanwhile(ours: ControlPlaneHarness, seen: FirstPods, prefix: str) -> list[float]:
    """Seconds until the first pods of small clusters, created one after the other until a big one has all of its pods."""
    now = asyncio.get_running_loop().time
    times = []
    for small in range(SMALL_PER_ROUND):
        await asyncio.sleep(APART_S)
        if await ours.count_pods() > PODS_WANTED:
            break
        name = f"{prefix}-{small}"
        started = now()
        await ours.call("POST", CLUSTERS, probed(name, 1))
        async with asyncio.timeout(60):
            times.append(await seen.of(name) - started)
    return times


async def bare_waits(ours: ControlPlaneHarness, seen: FirstPods, template: dict, number: int) -> list[float]:
    """The same with the bare client instead of the operator."""
    now = asyncio.get_running_loop().time
    times = []
    async with operator_stopped(ours):
        growing = asyncio.create_task(bare_creates(ours, template, PODS_WANTED))
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


async def fairness() -> Met:
    """PF:P5: time to the first pod of a one-worker cluster while another cluster scales from 0 to 1,000 workers.

    With default settings. Each round scales one large cluster and creates five small ones one after the other meanwhile; the time is
    from the POST of a small cluster until a watch shows its first pod. Then the same without the operator: a bare client creates as
    many pods, and sends the three requests that a small cluster requires.
    """
    async with control_plane_harness() as ours:
        await ours.start_operator()
        template = await example(ours)
        seen = FirstPods()
        times: list[float] = []
        bare: list[float] = []
        async with seen.following(ours):
            for number in range(ROUNDS):
                of_round = await waits(ours, seen, number)
                bare_of_round = await bare_waits(ours, seen, template, number)
                print(
                    f"round {number}: {in_ms(of_round)} ms; without an operator {in_ms(bare_of_round)} ms", flush=True
                )
                if number or ROUNDS == 1:
                    times += of_round
                    bare += bare_of_round
    print(f"{len(times)} small clusters, median {percentile(times, 0.5):.3f} s")
    print(f"without an operator median {percentile(bare, 0.5):.3f} s, p99 {percentile(bare, 0.99):.2f} s")
    return [result("P5", percentile(times, 0.99), "s p99 until the first pod", 0.15)]


def in_ms(times: list[float]) -> str:
    """The times in milliseconds as text."""
    return " ".join(f"{1000 * each:.0f}" for each in times)


# --- UI --------------------------------------------------------------------------------------------------------------------


@dataclass
class Costs:
    """Results of the rounds without a page, or with one."""

    pods_per_s: list[float] = field(default_factory=list)
    first_pod_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    """Of the operator, at the end of each round."""


@asynccontextmanager
async def page(ours: ControlPlaneHarness) -> AsyncIterator[None]:
    """`raytide ui` with a client that reads its events like an open page, until the block ends."""
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
    """Read events until cancelled; `is_open` is set with the first bytes."""
    session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), read_bufsize=2**20)
    async with session, session.get(address, headers=headers) as answer:
        answer.raise_for_status()
        async for _ in answer.content.iter_any():
            is_open.set()
    raise RuntimeError("the page's events ended")


async def grow(ours: ControlPlaneHarness, seen: FirstPods, name: str, costs: Costs) -> None:
    """Scale up one large cluster, and create small ones meanwhile, with a newly started operator."""
    await ours.start_operator()
    started = asyncio.get_running_loop().time()
    await ours.call("POST", CLUSTERS, cluster(f"big-{name}", PODS_WANTED))
    waits = await waits_meanwhile(ours, seen, f"small-{name}")
    pods = 1 + PODS_WANTED + 2 * len(waits)
    costs.pods_per_s.append(pods / (await ours.wait_for_pods(pods) - started))
    costs.first_pod_s += waits
    costs.memory_mb.append(ours.operator.rss_mb)
    await ours.clear()
    await asyncio.to_thread(ours.operator.stop)


async def with_a_page() -> Met:
    """P3, P5 and P7 while `raytide ui` follows the whole cluster for an open page, beside the same without it.

    Rounds alternate. In each, one cluster is scaled from 0 to 1,000 workers while five small ones are created, as in P5. `raytide ui`,
    not the operator, has the history for the page: the operator can only lose CPU time of the API server and of the two CPUs that
    all processes share here. The first pair of rounds is a warm-up.
    """
    without, following = Costs(), Costs()
    async with control_plane_harness() as ours:
        seen = FirstPods()
        async with seen.following(ours):
            for number in range(ROUNDS):
                first = number == 0 and ROUNDS > 1
                await grow(ours, seen, f"a{number}", Costs() if first else without)
                async with page(ours):
                    await grow(ours, seen, f"b{number}", Costs() if first else following)
    for name, costs in (("without", without), ("with a page", following)):
        print(
            f"{name}: {spread(costs.pods_per_s)} pods/s, first pod median {percentile(costs.first_pod_s, 0.5):.3f} s, "
            f"p99 {percentile(costs.first_pod_s, 0.99):.3f} s, operator {spread(costs.memory_mb)} MB"
        )
    return [
        result("P3 with a page", worse(without.pods_per_s, following.pods_per_s), "% fewer pods/s", MOST_WORSE),
        result("P5 with a page", -worse(without.first_pod_s, following.first_pod_s), "% later first pod", MOST_WORSE),
        result("P7 with a page", -worse(without.memory_mb, following.memory_mb), "% more memory", MOST_WORSE),
    ]


def worse(before: list[float], after: list[float]) -> float:
    """Decrease of the mean in percent."""
    return 100 * (1 - statistics.mean(after) / statistics.mean(before))


FIGURES = {
    "P3": partial(creation_rate, is_about_cpu=False),
    "P12": partial(creation_rate, is_about_cpu=True),
    "P5": fairness,
    "UI": with_a_page,
}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
