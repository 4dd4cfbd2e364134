"""P3 and P12: pods created per second on a real control plane, and the operator's CPU for each of them.

One cluster 0 → 1,000 and 50 clusters of 1 + 20, alternating with a bare client that posts the same pods with as many in
flight and reads one watch of them. The first round warms everything and does not count; of the others the mean does.
How much of the machine's CPU lay idle meanwhile is told too: at 1 or 2 % everything there is was used, and the machine sets
the pace. BENCH_PODS and BENCH_ROUNDS make it smaller while it is being worked on.
"""

import asyncio
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bare import bare_creates, operator_away, pod_template
from control_plane import ControlPlaneHarness, control_plane_harness

from harness import cluster, result, spread

PODS_WANTED = int(os.environ.get("BENCH_PODS", "1000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
CLUSTERS_AT_ONCE = max(1, PODS_WANTED // 20)
SETTLED_S = 1.5
"""Statuses and events that follow the last pod belong to the price."""


@dataclass
class Figures:
    """What the rounds gave."""

    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    cpu_ms_one: list[float] = field(default_factory=list)
    cpu_ms_many: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    """Of the machine's CPU while there were pods to create, percent."""


def machine_ticks() -> tuple[int, int]:
    """What the machine's CPUs have counted so far: idle, and all."""
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


async def measure(ours: ControlPlaneHarness) -> Figures:
    """All rounds."""
    figures = Figures()
    template: dict = {}
    for number in range(ROUNDS):
        one = await operator_creates(ours, [cluster("big", PODS_WANTED - 1)], PODS_WANTED)
        template = template or await pod_template(ours, "worker")
        await ours.clear()
        many_clusters = [cluster(f"many{index}", 20) for index in range(CLUSTERS_AT_ONCE)]
        many = await operator_creates(ours, many_clusters, 21 * CLUSTERS_AT_ONCE)
        await ours.clear()
        async with operator_away(ours):
            bare = await bare_creates(ours, template, PODS_WANTED)
        await ours.clear()
        print(
            f"round {number}: one cluster {one[0]:.0f}/s, {CLUSTERS_AT_ONCE} × 20 {many[0]:.0f}/s, bare {bare:.0f}/s; "
            f"operator {one[1]:.2f} and {many[1]:.2f} ms per pod{' (not counted)' if number == 0 else ''}",
            flush=True,
        )
        if number or ROUNDS == 1:
            figures.one.append(one[0])
            figures.many.append(many[0])
            figures.bare.append(bare)
            figures.cpu_ms_one.append(one[1])
            figures.cpu_ms_many.append(many[1])
            figures.idle += [one[2], many[2]]
    return figures


async def main(*, is_about_cpu: bool = False) -> int:
    """Measure and print; the lines of P3, or of P12 alone."""
    async with control_plane_harness() as ours:
        await ours.start_operator()
        figures = await measure(ours)
    print(f"one cluster {spread(figures.one)}/s, many {spread(figures.many)}/s, bare client {spread(figures.bare)}/s")
    print(f"of the machine's CPU {spread(figures.idle)} % lay idle")
    one, many, bare = (statistics.mean(values) for values in (figures.one, figures.many, figures.bare))
    met = [
        result("P12", statistics.mean(figures.cpu_ms_many), "ms of CPU per pod, 50 × 20", 1.2),
        result("P12", statistics.mean(figures.cpu_ms_one), "ms of CPU per pod, one cluster", 1.2),
    ]
    if not is_about_cpu:
        met += [
            result("P3", many, "pods/s, 50 × 20", 450, more_is_better=True),
            result("P3", 100 * one / bare, "% of the bare client", 90, more_is_better=True),
            result("P3", one, "pods/s, one cluster", 500, more_is_better=True),
        ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
