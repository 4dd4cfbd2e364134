"""Picture of the architecture: docs/figures/architecture.svg, written from the boxes and arrows below.

`python tools/generators/architecture_picture.py` writes the file; tests/unit/tools/test_diagrams.py compares it with this
description, and holds every box against the modules that it names and every pure box against the import contracts.
"""

import sys
from pathlib import Path
from typing import Final

from diagram import TITLE_SIZE, Area, Arrow, Box, Diagram, Label, draw

ROOT: Final = Path(__file__).parents[2]
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
ARCHITECTURE: Final = Diagram(
    file=ROOT / "docs/figures/architecture.svg",
    title="Architecture of Raytide",
    description=(
        "Events of the API server become keys in a work queue. A reconciler reads the resource, observes its objects through "
        "informers and expectations, plans as a pure function, executes the actions and reports the status. A sharing pass sizes "
        "TrainingJobs; the autoscaler in each head pod turns Ray's demand into replicas."
    ),
    width=1000,
    height=790,
    boxes=BOXES,
    arrows=ARROWS,
    labels=(
        Label(40, 540, "A sharing pass of the leader, when jobs, pods or nodes change", TITLE_SIZE, is_bold=True),
        Label(40, 678, "One loop of the autoscaler, in the head pod of each cluster", TITLE_SIZE, is_bold=True),
        Label(406, 30, "pure: functions of values"),
        Label(406, 50, "reads clocks, awaits, talks to servers"),
    ),
    areas=(
        Area("line", 40, 514, 920, 0),
        Area("line", 40, 648, 920, 0),
        Area("pure", 380, 20, 20, 12),
        Area("box", 380, 40, 20, 12),
    ),
)


def main() -> int:
    """Write the picture."""
    ARCHITECTURE.file.write_text(draw(ARCHITECTURE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
