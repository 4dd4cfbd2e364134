"""GROWTH: cost of a decision by demands, nodes and node types. Writes a table and a plot into docs/figures.

Each series changes one number and keeps the others; the nodes are half free and equal per type, or all different, which
is the worst case. Ray's own scheduler is asked the same, in the same run, as long as it needs less than ten seconds of
CPU. `make bench P=GROWTH`, or this file with `--alone` to leave Ray out; the plot is a plain SVG without any library.
"""

import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from packing import cpu_seconds, demands, node_types, ray_cpu_seconds, running
from raytide.autoscaler.model import SchedulingRequest

from harness import result

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
RAY_LIMIT_S = 10
BAR = 1.3
"""The exponent of growth with demands that we promise to stay below; Ray's is about 1, but of a thousand times as much."""
SHAPES = 64


@dataclass(frozen=True)
class Point:
    """One measurement."""

    series: str
    number: int
    ours_ms: float
    rays_ms: float | None


@dataclass(frozen=True)
class Series:
    """What changes, and in which steps."""

    name: str
    label: str
    numbers: tuple[int, ...]

    def question(self, number: int) -> SchedulingRequest:
        """The cluster and demand with this number."""
        sizes = {"demands": 10_000, "nodes": 1000, "types": 10, self.name.partition(",")[0]: number}
        known = node_types(sizes["types"])
        free = None if "different" in self.name else 0.5
        each = max(1, sizes["demands"] // SHAPES)
        return SchedulingRequest(known, running(sizes["nodes"], known, free), demands(SHAPES, each))


ALL = (
    Series("demands", "demands (64 shapes; 1,000 half-free nodes, 10 types)", (100, 1000, 10_000, 100_000)),
    Series("nodes", "nodes, half free (10,000 demands, 10 types)", (10, 100, 1000, 5000)),
    Series("nodes, all different", "nodes, all different (10,000 demands, 10 types)", (10, 100, 1000, 2000)),
    Series("types", "node types (10,000 demands, 1,000 half-free nodes)", (1, 5, 20, 50)),
)


def measure(series: Series, *, is_alone: bool) -> list[Point]:
    """All points of a series; Ray is not measured further once it took too long."""
    points: list[Point] = []
    is_ray_in_time = not is_alone
    for number in series.numbers:
        question = series.question(number)
        ours_ms = 1000 * min(cpu_seconds(question))
        rays = ray_cpu_seconds(question, RAY_LIMIT_S) if is_ray_in_time else None
        is_ray_in_time = rays is not None
        points.append(Point(series.name, number, ours_ms, None if rays is None else 1000 * rays))
        ray_text = "-" if rays is None else f"{1000 * rays:.0f} ms"
        print(f"{series.name} {number}: {ours_ms:.1f} ms, Ray {ray_text}", flush=True)
    return points


def exponent(points: Sequence[Point]) -> float:
    """Of growth, between the last two points."""
    before, last = points[-2:]
    return math.log(last.ours_ms / before.ours_ms) / math.log(last.number / before.number)


WIDTH, HEIGHT, LEFT, TOP, GAP = 420, 260, 60, 40, 70
LEAST_MS, MOST_MS = 1.0, 100_000.0


def panel(series: Series, points: Sequence[Point], column: int, row: int) -> list[str]:
    """One diagram, both axes logarithmic."""
    x0, y0 = LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP)
    first, last = math.log10(series.numbers[0]), math.log10(series.numbers[-1])

    def x(number: int) -> float:
        return x0 + WIDTH * (math.log10(number) - first) / (last - first)

    def y(ms: float) -> float:
        height = (math.log10(max(ms, LEAST_MS)) - math.log10(LEAST_MS)) / math.log10(MOST_MS / LEAST_MS)
        return y0 + HEIGHT * (1 - height)

    lines = [
        f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{x0}" y="{y0 - 10}">{series.label}</text>',
    ]
    for power in range(6):
        ms = 10.0**power
        lines += [
            f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y(ms):.1f}" y2="{y(ms):.1f}" stroke="#ddd"/>',
            f'<text x="{x0 - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"}</text>',
        ]
    lines += [f'<text x="{x(n):.1f}" y="{y0 + HEIGHT + 16}" text-anchor="middle">{n:,}</text>' for n in series.numbers]
    ours = [(x(point.number), y(point.ours_ms)) for point in points]
    rays = [(x(point.number), y(point.rays_ms)) for point in points if point.rays_ms is not None]
    return lines + curve(ours, "#0b6e4f") + curve(rays, "#b23a48")


def curve(places: Sequence[tuple[float, float]], colour: str) -> list[str]:
    """Dots joined by lines."""
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    joined = [
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{colour}" stroke-width="2"/>'
        for a, b in pairwise(places)
    ]
    return dots + joined


def plot(points: dict[str, list[Point]]) -> str:
    """All series in two rows, with a legend."""
    width, height = 2 * (WIDTH + GAP) + LEFT, 2 * (HEIGHT + GAP) + TOP
    drawn = [
        line for place, series in enumerate(ALL) for line in panel(series, points[series.name], place % 2, place // 2)
    ]
    legend = [
        f'<text x="{LEFT}" y="{height - 14}" fill="#0b6e4f">Raytide</text>',
        f'<text x="{LEFT + 70}" y="{height - 14}" fill="#b23a48">Ray 2.60 (where it needs less than {RAY_LIMIT_S} s)</text>',
        f'<text x="{LEFT + 400}" y="{height - 14}">CPU time of one decision, best of five</text>',
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *drawn, *legend, "</svg>\n"])


def main() -> int:
    """Measure, print, write."""
    points = {series.name: measure(series, is_alone="--alone" in sys.argv) for series in ALL}
    FIGURES.mkdir(exist_ok=True)
    with (FIGURES / "scheduler-growth.csv").open("w", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["series", "number", "raytide_cpu_ms", "ray_cpu_ms"])
        for one in (point for series in points.values() for point in series):
            writer.writerow([one.series, one.number, f"{one.ours_ms:.1f}", f"{one.rays_ms:.0f}" if one.rays_ms else ""])
    (FIGURES / "scheduler-growth.svg").write_text(plot(points))
    return 0 if result("GROWTH", exponent(points["demands"]), "exponent of growth with demands", BAR) else 1


if __name__ == "__main__":
    sys.exit(main())
