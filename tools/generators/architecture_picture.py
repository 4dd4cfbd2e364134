"""Picture of the architecture: docs/figures/architecture.svg, written from the boxes and arrows below.

`python tools/generators/architecture_picture.py` writes the file; tests/unit/tools/test_architecture_picture.py compares it with this
description, holds every box against the modules that it names and every pure box against the import contracts, and
checks that texts fit their boxes and that boxes do not overlap.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docs/figures/architecture.svg"
WIDTH: Final = 1000
HEIGHT: Final = 790
TITLE_SIZE: Final = 14
TEXT_SIZE: Final = 11
WIDTH_PER_SIZE: Final = 0.58
"""Width of one character of the sans-serif font, in font sizes; measured in Chromium with DejaVu Sans, which is wide."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the system."""

    title: str
    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Modules and packages below `operator/src/raytide/` that it stands for."""
    is_pure: bool = False
    """Whether its modules are functions of values, as the contracts in pyproject.toml enforce."""
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way of data: through points, with a label at a position of its own."""

    points: tuple[tuple[int, int], ...]
    label: str = ""
    at: tuple[int, int] = (0, 0)
    anchor: str = "middle"


BOXES: Final = (
    Box("kubectl, GitOps, RayJob", 40, 16, 210, 34, is_external=True),
    Box("kubelet, kube-scheduler", 750, 16, 210, 34, is_external=True),
    Box("Kubernetes API server", 40, 96, 920, 34, is_external=True),
    Box("kopf", 40, 190, 180, 66, ("events become keys", "in a thread of its own"), ("manager/kopf_source.py",)),
    Box(
        "informers",
        260,
        190,
        230,
        66,
        ("list, watch, store frozen views", "index by owner"),
        ("kube/reflector.py", "kube/informer.py"),
    ),
    Box("executor", 780, 190, 180, 66, ("uid preconditions", "back-off per group"), ("controller/executor.py",)),
    Box("work queue", 40, 316, 180, 66, ("one key runs once", "keys take turns"), ("controller/workqueue.py",)),
    Box(
        "expectations",
        260,
        316,
        230,
        66,
        ("views of the watch", "overlaid with own writes"),
        ("controller/expectations.py",),
    ),
    Box(
        "plan",
        530,
        316,
        210,
        66,
        ("desired objects, and", "the difference to what exists"),
        ("raycluster/plan.py", "trainingjob/plan.py"),
        is_pure=True,
    ),
    Box(
        "status",
        780,
        316,
        180,
        66,
        ("conditions, events", "written once per pass"),
        ("raycluster/status.py", "trainingjob/status.py"),
        is_pure=True,
    ),
    Box(
        "reconciler",
        40,
        440,
        920,
        50,
        ("GET the resource → observe its objects → plan → execute → report status",),
        ("raycluster/reconciler.py", "trainingjob/reconciler.py"),
    ),
    Box(
        "snapshot",
        40,
        556,
        210,
        66,
        ("jobs, nodes, all pods,", "quotas; incremental"),
        ("fairshare/snapshot.py",),
        is_pure=True,
    ),
    Box(
        "allocate",
        300,
        556,
        220,
        66,
        ("minimums, growth,", "rebalancing, reasons"),
        ("fairshare/algorithm",),
        is_pure=True,
    ),
    Box(
        "patches",
        570,
        556,
        200,
        66,
        ("one per job, guarded,", "with its sharing record"),
        ("fairshare/patch_plan.py", "fairshare/patcher.py"),
    ),
    Box("Ray GCS", 40, 694, 100, 66, ("gRPC",), is_external=True),
    Box("gcs", 180, 694, 120, 66, ("protocol,", "questions"), ("autoscaler/gcs",)),
    Box("state", 340, 694, 130, 66, ("instances,", "node types"), ("autoscaler/state",), is_pure=True),
    Box(
        "scheduling",
        510,
        694,
        130,
        66,
        ("launches,", "infeasible"),
        ("autoscaler/scheduling",),
        is_pure=True,
    ),
    Box("scaling", 680, 694, 130, 66, ("replicas, drains,", "one JSON patch"), ("autoscaler/scaling",), is_pure=True),
    Box("reporting", 850, 694, 110, 66, ("reasons,", "ray status"), ("autoscaler/reporting",)),
)
ARROWS: Final = (
    Arrow(((145, 50), (145, 96)), "RayCluster, TrainingJob", (153, 78), "start"),
    Arrow(((855, 96), (855, 50)), "pods", (847, 78), "end"),
    Arrow(((130, 130), (130, 190)), "watch", (138, 164), "start"),
    Arrow(((375, 130), (375, 190)), "watch: resources, pods, services, nodes", (383, 164), "start"),
    Arrow(((870, 190), (870, 130)), "POST, DELETE, PATCH", (862, 164), "end"),
    Arrow(((130, 256), (130, 316)), "key", (138, 290), "start"),
    Arrow(((300, 256), (300, 286), (190, 286), (190, 316)), "key", (245, 280)),
    Arrow(((400, 256), (400, 316)), "views", (408, 290), "start"),
    Arrow(((490, 349), (530, 349))),
    Arrow(((700, 316), (700, 223), (780, 223)), "actions", (694, 270), "end"),
    Arrow(((740, 349), (780, 349))),
    Arrow(((130, 382), (130, 440)), "key", (138, 414), "start"),
    Arrow(((635, 440), (635, 382)), "observed values", (643, 414), "start"),
    Arrow(((250, 589), (300, 589))),
    Arrow(((520, 589), (570, 589))),
    Arrow(((770, 589), (960, 589)), "spec.trainer.replicas", (866, 582)),
    Arrow(((140, 727), (180, 727))),
    Arrow(((300, 727), (340, 727))),
    Arrow(((470, 727), (510, 727))),
    Arrow(((640, 727), (680, 727))),
    Arrow(((810, 727), (850, 727))),
    Arrow(((745, 694), (745, 668), (960, 668)), "RayCluster: replicas, workersToDelete", (958, 661), "end"),
)
HEADINGS: Final = (
    (40, 540, "A sharing pass of the leader, when jobs, pods or nodes change"),
    (40, 678, "One loop of the autoscaler, in the head pod of each cluster"),
)
RULES: Final = (514, 648)
"""Lines between the three parts, by their height."""
STYLE: Final = """
text { font-family: sans-serif; fill: #1f2328; }
.box { fill: #f6f8fa; stroke: #57606a; }
.pure { fill: #dafbe1; stroke: #1a7f37; }
.external { fill: #ffffff; stroke: #57606a; stroke-dasharray: 4 3; }
.arrow { fill: none; stroke: #0969da; stroke-width: 1.5; }
.head { fill: #0969da; }
.rule { stroke: #d0d7de; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .box { fill: #21262d; stroke: #8b949e; }
  .pure { fill: #12361f; stroke: #3fb950; }
  .external { fill: #0d1117; stroke: #8b949e; }
  .arrow { stroke: #58a6ff; }
  .head { fill: #58a6ff; }
  .rule { stroke: #30363d; }
  .page { fill: #0d1117; }
}
"""
DESCRIPTION: Final = (
    "Events of the API server become keys in a work queue. A reconciler reads the resource, observes its objects through "
    "informers and expectations, plans as a pure function, executes the actions and reports the status. A sharing pass sizes "
    "TrainingJobs; the autoscaler in each head pod turns Ray's demand into replicas."
)


def text_width(text: str, size: int) -> float:
    """Width in pixels that a text takes at most."""
    return len(text) * size * WIDTH_PER_SIZE


def draw() -> str:
    """The picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        "<title>Architecture of Raytide</title>",
        f"<desc>{escape(DESCRIPTION)}</desc>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        *(f'<line class="rule" x1="40" x2="960" y1="{height}" y2="{height}"/>' for height in RULES),
        *(_text(x, y, text, TITLE_SIZE, "start", is_bold=True) for x, y, text in HEADINGS),
        *(part for arrow in ARROWS for part in _arrow(arrow)),
        *(part for box in BOXES for part in _box(box)),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> Iterator[str]:
    kind = "external" if box.is_external else "pure" if box.is_pure else "box"
    yield f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6"/>'
    middle = box.x + box.width // 2
    first = box.y + (box.height - TITLE_SIZE - 16 * len(box.lines)) // 2 + TITLE_SIZE - 2
    yield _text(middle, first, box.title, TITLE_SIZE, "middle", is_bold=True)
    for number, line in enumerate(box.lines, 1):
        yield _text(middle, first + 16 * number + 1, line, TEXT_SIZE, "middle")


def _arrow(arrow: Arrow) -> Iterator[str]:
    path = " ".join(f"{x},{y}" for x, y in arrow.points)
    yield f'<polyline class="arrow" points="{path}" marker-end="url(#head)"/>'
    if arrow.label:
        yield _text(*arrow.at, arrow.label, TEXT_SIZE, arrow.anchor)


def _legend() -> Iterator[str]:
    yield '<rect class="pure" x="380" y="20" width="20" height="12" rx="3"/>'
    yield _text(406, 30, "pure: functions of values", TEXT_SIZE, "start")
    yield '<rect class="box" x="380" y="40" width="20" height="12" rx="3"/>'
    yield _text(406, 50, "reads clocks, awaits, talks to servers", TEXT_SIZE, "start")


def _text(x: int, y: int, text: str, size: int, anchor: str, *, is_bold: bool = False) -> str:
    weight = ' font-weight="bold"' if is_bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def segments(arrow: Arrow) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The straight pieces of an arrow."""
    return pairwise(arrow.points)


def main() -> int:
    """Write the picture."""
    FILE.write_text(draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
