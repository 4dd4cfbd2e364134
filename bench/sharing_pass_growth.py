"""P10GROWTH: CPU time of a sharing pass by jobs and nodes. Writes a table and a plot into docs/figures.

100 to 3,000 jobs on 50 to 2,000 nodes, as in sharing_pass_time.py: from scratch is the worst of the passes that follow when all jobs are
new, after one change the worse of a job that ends and one that comes, when all jobs run. CPU time of `build_snapshot()` and
`allocate()` together, best of three. The result line is the exponent of growth after one change, from 1,000 to 3,000 jobs on
2,000 nodes. Plain SVG without any library.
"""

import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sharing_pass_time import changes, halves
from training_pools import Crowd, crowd, passes

from harness import result

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
JOBS, NODES = (100, 300, 1000, 3000), (50, 500, 2000)
RUNS = 3
BAR = 1.3
CHANGES = ("a job of middle size ends", "a new job comes")
COLOURS = {50: "#c9a227", 500: "#0b6e4f", 2000: "#264b96"}


@dataclass(frozen=True)
class Point:
    """One cluster: CPU milliseconds of a pass."""

    jobs: int
    nodes: int
    scratch_ms: float
    change_ms: float
    divide_ms: float
    """The planner's part of `change_ms`."""


def measure(jobs: int, nodes: int) -> Point:
    """All passes of one cluster."""
    stages = list(passes(crowd(jobs, nodes)))
    calm = stages[-1]
    scratch = max(sum(fastest(now)) for now in stages[:-1])
    known = changes(calm)
    worst = max((fastest(known[name], calm) for name in CHANGES), key=sum)
    return Point(jobs, nodes, scratch, sum(worst), worst[1])


def fastest(now: Crowd, calm: Crowd | None = None) -> tuple[float, float]:
    """CPU of `build_snapshot()` and of `allocate()`."""
    snapshot, plan = halves(now, calm, RUNS).values()
    return min(snapshot), min(plan)


def exponent(points: Sequence[Point]) -> float:
    """Of growth with jobs, between the two largest on most nodes."""
    before, last = [point for point in points if point.nodes == NODES[-1]][-2:]
    return math.log(last.change_ms / before.change_ms) / math.log(last.jobs / before.jobs)


WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 280, 70, 40, 80
LEAST_MS, MOST_MS = 1.0, 10_000.0


def panel(title: str, values: dict[int, list[tuple[int, float]]], column: int, bar_ms: float) -> list[str]:
    """One diagram, both axes logarithmic, with the bar for 1,000 jobs on 500 nodes as a dashed line."""
    x0 = LEFT + column * (WIDTH + GAP)
    first, last = math.log10(JOBS[0]), math.log10(JOBS[-1])

    def x(jobs: int) -> float:
        return x0 + WIDTH * (math.log10(jobs) - first) / (last - first)

    def y(ms: float) -> float:
        return TOP + HEIGHT * (1 - math.log10(max(ms, LEAST_MS) / LEAST_MS) / math.log10(MOST_MS / LEAST_MS))

    lines = [
        f'<rect x="{x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{x0}" y="{TOP - 10}">{title}</text>',
        f'<path d="M{x0} {y(bar_ms):.1f}h{WIDTH}" stroke="#b23a48" stroke-dasharray="6 4"/>',
    ]
    for power in range(5):
        ms = 10.0**power
        label = f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"
        lines.append(f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y(ms):.1f}" y2="{y(ms):.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{x0 - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{label}</text>')
    lines += [f'<text x="{x(n):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{n:,}</text>' for n in JOBS]
    for nodes, line in values.items():
        spots = [(x(jobs), y(ms)) for jobs, ms in line]
        lines += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLOURS[nodes]}"/>' for a, b in spots]
        lines += [
            f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{COLOURS[nodes]}" stroke-width="2"/>'
            for a, b in pairwise(spots)
        ]
    return lines


def plot(points: Sequence[Point]) -> str:
    """From scratch, and after one change."""
    width, height = LEFT + 2 * (WIDTH + GAP), TOP + HEIGHT + 60

    def lines_of(name: str) -> dict[int, list[tuple[int, float]]]:
        return {n: [(point.jobs, getattr(point, name)) for point in points if point.nodes == n] for n in NODES}

    legend = [
        f'<text x="{LEFT + place * 110}" y="{height - 12}" fill="{COLOURS[nodes]}">{nodes:,} nodes</text>'
        for place, nodes in enumerate(NODES)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *panel("CPU of a pass from scratch, by TrainingJobs", lines_of("scratch_ms"), 0, 1000),
            *panel("CPU of a pass after one change, by TrainingJobs", lines_of("change_ms"), 1, 50),
            *legend,
            f'<text x="{LEFT + 350}" y="{height - 12}" fill="#b23a48">dashed: the bar for 1,000 jobs on 500 nodes</text>',
            "</svg>\n",
        ]
    )


def main() -> int:
    """Measure, print, write."""
    points = []
    for nodes in NODES:
        for jobs in JOBS:
            points.append(measure(jobs, nodes))
            last = points[-1]
            print(
                f"{jobs} jobs, {nodes} nodes: from scratch {last.scratch_ms:.0f} ms, after one change "
                f"{last.change_ms:.0f} ms, {last.divide_ms:.0f} ms of that in divide()",
                flush=True,
            )
    FIGURES.mkdir(exist_ok=True)
    with (FIGURES / "training-plan-growth.csv").open("w", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["jobs", "nodes", "scratch_cpu_ms", "change_cpu_ms", "divide_cpu_ms"])
        for one in points:
            row = (one.scratch_ms, one.change_ms, one.divide_ms)
            writer.writerow([one.jobs, one.nodes, *(f"{value:.1f}" for value in row)])
    (FIGURES / "training-plan-growth.svg").write_text(plot(points))
    return 0 if result("P10GROWTH", exponent(points), "exponent of growth with jobs after one change", BAR) else 1


if __name__ == "__main__":
    sys.exit(main())
