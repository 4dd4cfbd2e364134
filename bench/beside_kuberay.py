"""Raytide and KubeRay, one after the other, on the same real control plane in the same run: KUBERAY.

`KUBERAY=<path>` is a manager built from KubeRay's source, which is not in this repository. Each round starts each operator and measures
three workloads: one cluster scaled from 0 to 1,000 workers; 50 clusters of a head and 20 workers; and small clusters created while
another one is scaled to 1,000 workers, from their POST until a watch shows their first pod. KubeRay runs twice, with its defaults and
with limits that are not reached here. The first round is a warm-up, and the order of the operators rotates. Prints a table, and
with BENCH_OUT=<folder> writes it as CSV and SVG. BENCH_PODS and BENCH_ROUNDS make it smaller.
"""

import asyncio
import csv
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from control_plane import HOME, ControlPlaneHarness, FirstPods, control_plane_harness
from pod_creation import CLUSTERS_AT_ONCE, PODS_WANTED, ROUNDS, operator_creates, waits
from support.kuberay import KubeRayProcess, crds_without_schema
from support.operator_process import OperatorProcess

from harness import Met, cluster, result, run

RAISED = ("--reconcile-concurrency=10", "--qps=5000", "--burst=10000")
"""Of KubeRay: as many concurrent reconciles as Raytide, and more requests per second than the control plane can handle here."""
OURS, DEFAULT, UNLIMITED = "Raytide", "KubeRay, defaults", "KubeRay, raised limits"
COLORS = {OURS: "#264b96", DEFAULT: "#c9a227", UNLIMITED: "#0b6e4f"}


@dataclass
class Figures:
    """Results of one operator, a value per round (of waits: several)."""

    one: list[float] = field(default_factory=list)
    """Pods per second, one cluster."""
    many: list[float] = field(default_factory=list)
    """Pods per second, many clusters."""
    cpu_ms: list[float] = field(default_factory=list)
    """CPU milliseconds of the operator per pod of one cluster."""
    waits_ms: list[float] = field(default_factory=list)
    """Milliseconds until the first pod of a small cluster."""
    rss_mb: list[float] = field(default_factory=list)
    """Resident memory after 1,000 pods, in MB."""


TITLES: Mapping[str, str] = {
    "one": "one cluster 0 → 1,000 workers, pods/s",
    "many": "50 clusters of 1 + 20, pods/s",
    "cpu_ms": "CPU of the operator, ms per pod",
    "waits_ms": "first pod of a small cluster meanwhile, ms (median)",
    "rss_mb": "memory of the operator with 1,000 pods, MB",
}


async def measure_operator(ours: ControlPlaneHarness, seen: FirstPods, name: str, number: int) -> Figures:
    """Measure one operator in one round, in a new process; all clusters are deleted afterwards."""
    figures = Figures()
    await ours.start_operator()
    try:
        rate, cpu_ms, _ = await operator_creates(ours, [cluster("one", PODS_WANTED)], PODS_WANTED + 1)
        figures.one.append(rate)
        figures.cpu_ms.append(cpu_ms)
        figures.rss_mb.append(ours.operator.rss_mb)
        await ours.clear()
        clusters = [cluster(f"many-{each}", 20) for each in range(CLUSTERS_AT_ONCE)]
        rate, _, _ = await operator_creates(ours, clusters, CLUSTERS_AT_ONCE * 21)
        figures.many.append(rate)
        await ours.clear()
        figures.waits_ms += [1000 * each for each in await waits(ours, seen, number)]
    finally:
        await asyncio.to_thread(ours.operator.stop)
    print(f"round {number}, {name}: {in_words(figures)}", flush=True)
    return figures


def in_words(figures: Figures) -> str:
    """The results of a round in one line."""
    return (
        f"{figures.one[0]:.0f} and {figures.many[0]:.0f} pods/s, {figures.cpu_ms[0]:.2f} ms CPU per pod, "
        f"{figures.rss_mb[0]:.0f} MB, first pods after {' '.join(f'{each:.0f}' for each in figures.waits_ms)} ms"
    )


async def operators_of(ours: ControlPlaneHarness, program: Path) -> dict[str, OperatorProcess]:
    """The operators to compare, not started; KubeRay's service account has all permissions."""
    for crd in crds_without_schema():
        await ours.admin.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    account = await ours.admin.powerful_account(HOME, ours.folder, "kuberay")
    return {
        OURS: ours.operator,
        DEFAULT: KubeRayProcess(program, account, ours.folder / "kuberay.log"),
        UNLIMITED: KubeRayProcess(program, account, ours.folder / "kuberay-raised.log", *RAISED),
    }


async def measure(program: Path) -> dict[str, Figures]:
    """Measure all rounds of all operators."""
    total = {name: Figures() for name in COLORS}
    async with control_plane_harness() as ours:
        operators = await operators_of(ours, program)
        seen = FirstPods()
        async with seen.following(ours):
            for number in range(ROUNDS):
                names = list(operators)
                for place in range(len(names)):
                    name = names[(number + place) % len(names)]
                    ours.operator = operators[name]
                    figures = await measure_operator(ours, seen, name, number * len(names) + place)
                    if number or ROUNDS == 1:
                        for each in TITLES:
                            getattr(total[name], each).extend(getattr(figures, each))
    return total


def middle(name: str, values: Sequence[float]) -> float:
    """The median of waits, the mean of other values."""
    return statistics.median(values) if name == "waits_ms" else statistics.mean(values)


def write(folder: Path, total: Mapping[str, Figures], version: str) -> None:
    """Write `beside-kuberay.csv` and `beside-kuberay.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "beside-kuberay.csv").open("w", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["operator", "figure", "middle", "least", "most", "values"])
        for name, figures in total.items():
            for each in TITLES:
                values = getattr(figures, each)
                amounts = (f"{value:.2f}" for value in (middle(each, values), min(values), max(values)))
                writer.writerow([name if name == OURS else f"{name} ({version})", each, *amounts, len(values)])
    (folder / "beside-kuberay.svg").write_text(plot(total, version))


WIDTH, ROW, BAR, LEFT, LABEL = 760, 22, 16, 12, 210
LABEL_OF_ALL = "Raytide beside KubeRay on one control plane"


def plot(total: Mapping[str, Figures], version: str) -> str:
    """SVG with a block of bars per figure, each with its own scale, and the range of all values as a line."""
    lines: list[str] = []
    top = 16
    for each, title in TITLES.items():
        longest = max(max(getattr(figures, each)) for figures in total.values())
        lines.append(f'<text x="{LEFT}" y="{top + 12}" class="title">{title}</text>')
        top += ROW
        for name, figures in total.items():
            values = getattr(figures, each)
            scale = (WIDTH - LABEL - 90) / longest
            end = LABEL + middle(each, values) * scale
            low, high = LABEL + min(values) * scale, LABEL + max(values) * scale
            center = top + BAR / 2
            lines += [
                f'<text x="{LABEL - 8}" y="{top + 12}" text-anchor="end">{name}</text>',
                f'<rect x="{LABEL}" y="{top}" width="{end - LABEL:.1f}" height="{BAR}" fill="{COLORS[name]}"/>',
                f'<path d="M{low:.1f} {center}H{high:.1f}M{low:.1f} {center - 4}v8M{high:.1f} {center - 4}v8" class="span"/>',
                f'<text x="{max(end, high) + 8:.1f}" y="{top + 12}">{in_digits(middle(each, values))}</text>',
            ]
            top += ROW
        top += 10
    lines.append(
        f'<text x="{LEFT}" y="{top + 8}" class="note">KubeRay {version}; line: least and most of all rounds</text>'
    )
    style = (
        "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.note{fill:#666}.span{stroke:#222;fill:none}.page{fill:#fff}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.note{fill:#aaa}.span{stroke:#ddd}.page{fill:#0d1117}}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 24}" role="img" aria-label="{LABEL_OF_ALL}">',
            f"<style>{style}</style>",
            f'<rect class="page" width="{WIDTH}" height="{top + 24}"/>',
            *lines,
            "</svg>\n",
        ]
    )


def in_digits(value: float) -> str:
    """The value with two decimals below ten, without decimals above."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def version_of(program: Path) -> str:
    """The module version that Go wrote into the program, or KUBERAY_VERSION."""
    if named := os.environ.get("KUBERAY_VERSION"):
        return named
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return next((line.strip() for line in printed.stdout.splitlines() if line.strip()), "of an unknown version")


async def beside_kuberay() -> Met:
    """Measure, print, write."""
    program = os.environ.get("KUBERAY")
    if not program or not os.access(program, os.X_OK):
        print(
            "say where KubeRay's manager is: make bench P=KUBERAY KUBERAY=<path>; `go build` in its ray-operator/ makes one"
        )
        sys.exit(2)
    version = version_of(Path(program))
    total = await measure(Path(program))
    for each, title in TITLES.items():
        print(f"{title}:")
        for name, figures in total.items():
            values = getattr(figures, each)
            print(
                f"  {name:24}{in_digits(middle(each, values)):>8} ({in_digits(min(values))} to {in_digits(max(values))})"
            )
    if folder := os.environ.get("BENCH_OUT"):
        write(Path(folder), total, version)
    ratio = statistics.mean(total[OURS].one) / statistics.mean(total[UNLIMITED].one)
    unit = "x the pods/s of KubeRay with raised limits, one cluster"
    return [result("KUBERAY", ratio, unit, 1.0, more_is_better=True)]


FIGURES = {"KUBERAY": beside_kuberay}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
