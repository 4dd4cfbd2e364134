"""Pictures of docs/concepts.md, in docs/figures.

`python tools/generators/concept_pictures.py` writes them; tests/unit/tools/test_diagrams.py compares them with this description. The
sizes in `fair-sharing.svg` are computed by the planner of the operator for the cluster and the jobs below.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from diagram import TEXT_SIZE, TITLE_SIZE, Area, Arrow, Box, Diagram, Label, draw
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import ClusterSnapshot, Node, Participant, ParticipantId, Shape

FIGURES: Final = Path(__file__).parents[2] / "docs/figures"
SMALL: Final = 13
"""Size of titles of narrow boxes."""


def _heading(x: int, y: int, text: str) -> Label:
    return Label(x, y, text, TITLE_SIZE, is_bold=True)


def _small(x: int, y: int, width: int, title: str, *lines: str, kind: str = "", is_external: bool = False) -> Box:
    height = 34 + 16 * len(lines)
    return Box(title, x, y, width, height, lines, kind=kind, is_external=is_external, title_size=SMALL)


# --- from demand to nodes ------------------------------------------------------------------------------------------------

_WIDE, _STEP = 114, 134
_UP = (
    ("Ray program", ("tasks, actors,", "placement groups"), True),
    ("GCS", ("requested and", "used resources"), True),
    ("autoscaler", ("sizes of the", "worker groups"), False),
    ("RayCluster", ("replicas,", "workersToDelete"), True),
    ("operator", ("wanted minus", "existing pods"), False),
    ("pods", ("quota, policies,", "images"), True),
    ("nodes", ("scheduler,", "node provisioner"), True),
)
_DOWN = (
    ("idle", ("longer than", "idleTimeoutSeconds")),
    ("replicas", ("lowered by", "the autoscaler")),
    ("drain", ("Ray accepts it, or", "the worker stays")),
    ("named", ("the pod is in", "workersToDelete")),
    ("deleted", ("by the operator,", "by name and uid")),
    ("gone", ("until then the pod", "counts")),
)
_STAGES = (
    (40, 248, "demand", "NoFittingGroup"),
    (308, 114, "decision", "MaxReached, HeadDown"),
    (442, 248, "wanted", "Suspended, ManagedByOther"),
    (710, 114, "pods", "QuotaExceeded"),
    (844, 114, "nodes", "Unschedulable"),
)
SCALING: Final = Diagram(
    file=FIGURES / "scaling.svg",
    title="From the demand of a Ray program to nodes, and back",
    description=(
        "A Ray program's tasks, actors and placement groups reach the GCS; the autoscaler beside it computes the sizes of the worker "
        "groups and writes them to the RayCluster; the operator creates the missing pods; the scheduler places them on nodes. Each of "
        "the five stages demand, decision, wanted, pods and nodes has reasons for which a workload stops there. An idle worker is "
        "removed in six steps: "
        "replicas are lowered, Ray drains the node, the pod is named in workersToDelete, the operator deletes it, and it counts until "
        "it is gone."
    ),
    width=1000,
    height=392,
    boxes=(
        *(
            _small(40 + _STEP * number, 66, _WIDE, title, *lines, is_external=is_external)
            for number, (title, lines, is_external) in enumerate(_UP)
        ),
        *(_small(40 + 156 * number, 292, 136, title, *lines) for number, (title, lines) in enumerate(_DOWN)),
    ),
    arrows=(
        *(Arrow(((40 + _STEP * n + _WIDE, 99), (40 + _STEP * (n + 1), 99))) for n in range(len(_UP) - 1)),
        *(Arrow(((40 + 156 * n + 136, 325), (40 + 156 * (n + 1), 325))) for n in range(len(_DOWN) - 1)),
    ),
    labels=(
        _heading(40, 24, "More workers"),
        Label(174, 52, "head pod"),
        *(Label(x + width // 2, 172, stage, SMALL, "middle", is_bold=True) for x, width, stage, _ in _STAGES),
        *(Label(x + width // 2, 190, reasons, TEXT_SIZE - 1, "middle") for x, width, _, reasons in _STAGES),
        Label(40, 216, "Stages of raytide why, with examples of reasons for which a workload stops there"),
        _heading(40, 276, "Fewer workers"),
    ),
    areas=(
        Area("frame", 166, 38, 264, 106),
        *(Area("outline", x, 154, width, 1) for x, width, _, _ in _STAGES),
        Area("line", 40, 240, 918, 0),
    ),
)


# --- replicas and hosts --------------------------------------------------------------------------------------------------


def _hosts(x: int, y: int, *, failed: int | None = None) -> tuple[Box, ...]:
    return tuple(
        Box(f"host {number}", x + 72 * number, y, 62, 34, title_size=TEXT_SIZE, kind="bad" if number == failed else "")
        for number in range(4)
    )


REPLICAS: Final = Diagram(
    file=FIGURES / "replica-groups.svg",
    title="Replicas of one host and of four hosts",
    description=(
        "With numOfHosts 1 a replica is one pod, and only a failed pod is replaced. With numOfHosts 4 a replica is four pods with "
        "host indices 0 to 3; when one of them fails, all four are replaced."
    ),
    width=1000,
    height=236,
    boxes=(
        *(
            Box(f"pod {n}", 50 + 84 * n, 66, 74, 34, title_size=TEXT_SIZE, kind="bad" if n == 1 else "")
            for n in range(3)
        ),
        *(
            Box(f"pod {n}", 50 + 84 * n, 170, 74, 34, title_size=TEXT_SIZE, kind="good" if n == 1 else "")
            for n in range(3)
        ),
        *_hosts(370, 66, failed=2),
        *_hosts(680, 66),
        *(replace(box, kind="good") for box in _hosts(370, 170)),
        *_hosts(680, 170),
    ),
    arrows=(
        Arrow(((171, 104), (171, 162)), "pod 1 fails: only it is replaced", (179, 137), "start"),
        Arrow(
            ((545, 112), (545, 156)),
            "host 2 fails: the whole replica is replaced, under a new name",
            (553, 137),
            "start",
        ),
    ),
    labels=(
        _heading(40, 24, "numOfHosts: 1, replicas: 3"),
        Label(40, 44, "3 pods"),
        _heading(360, 24, "numOfHosts: 4, replicas: 2"),
        Label(360, 44, "8 pods: replica 0"),
        Label(670, 44, "replica 1"),
    ),
    areas=(
        Area("frame", 360, 56, 298, 54),
        Area("frame", 670, 56, 298, 54),
        Area("frame", 360, 160, 298, 54),
        Area("frame", 670, 160, 298, 54),
    ),
)


# --- expectations --------------------------------------------------------------------------------------------------------

EXPECTATIONS: Final = Diagram(
    file=FIGURES / "expectations.svg",
    title="A cache that lags, and the input of the plan",
    description=(
        "The operator creates a pod. The API server stores it at once; the informer cache has it when the watch event arrives. In "
        "between, the input of the plan includes the pod as expected, so it is not created a second time. After 30 seconds without the "
        "event, the pods are listed again and the request is repeated."
    ),
    width=1000,
    height=300,
    boxes=(
        _small(190, 40, 130, "POST pod a"),
        _small(330, 94, 628, "a", kind="good"),
        _small(190, 148, 340, "no pod"),
        _small(540, 148, 418, "a", kind="good"),
        _small(330, 202, 200, "a: expected", kind="good"),
        _small(540, 202, 418, "a: exists", kind="good"),
    ),
    labels=(
        Label(40, 62, "operator", SMALL, is_bold=True),
        Label(40, 116, "API server", SMALL, is_bold=True),
        Label(40, 170, "informer cache", SMALL, is_bold=True),
        Label(40, 224, "input of the plan", SMALL, is_bold=True),
        Label(543, 142, "the watch event arrives"),
        Label(
            40,
            266,
            "Every pass counts one pod, so no second one is created. If no event arrives within 30 s, the pods are listed again",
        ),
        Label(40, 284, "and the same request is repeated with the same name."),
    ),
    arrows=(Arrow(((255, 74), (255, 111), (330, 111))), Arrow(((535, 128), (535, 148)))),
    areas=(Area("line", 40, 246, 918, 0),),
)


# --- fair sharing --------------------------------------------------------------------------------------------------------

CPUS = 24
_TRAINER = Shape({"cpu": 1000, "pods": 1}, {"cpu": 1000})
_BARS = ("bar1", "bar2", "bar3")
JOBS: Final = (("first", 2, 20, 0), ("second", 2, 20, 0), ("urgent", 4, 12, 10))
"""Name, minimum, maximum and priority, in the order in which they are created."""


def sizes(count: int) -> list[int]:
    """Trainers of each of the first jobs, once the operator has shared the cluster among these."""
    current = [0] * count
    for number in range(count):
        started = [min(JOBS[number][1], CPUS)]
        current[number : number + 1] = started
        for _ in range(8):
            jobs = tuple(
                Participant(
                    id=ParticipantId("TrainingJob", "default", name),
                    floor=floor,
                    ceiling=ceiling,
                    current=size,
                    shape=_TRAINER,
                    priority=priority,
                    created_at=f"2026-01-01T00:00:0{order}Z",
                    placed={"node-1": size},
                    rebalances=True,
                )
                for order, ((name, floor, ceiling, priority), size) in enumerate(zip(JOBS, current, strict=False))
                if order <= number
            )
            used = sum(current[: number + 1])
            node = Node("node-1", {"cpu": 1000 * CPUS, "pods": 110}, {"cpu": 1000 * used, "pods": used})
            for resize in allocate(ClusterSnapshot((node,), jobs)).resizes:
                current[[name for name, *_ in JOBS].index(resize.id.name)] = resize.after
    return current


def _shares(x: int, count: int, heading: str) -> tuple[list[Label], list[Area]]:
    """One column: each job's minimum, size and maximum."""
    labels, areas = [_heading(x, 24, heading)], []
    for order, ((name, floor, ceiling, _), size) in enumerate(zip(JOBS, sizes(count), strict=False)):
        y, unit = 62 + 62 * order, 13
        score = (size - floor) / (ceiling - floor)
        labels.append(Label(x, y - 8, f"{name}: {size} trainers ({floor} to {ceiling}), score {score:.2f}"))
        areas += [
            Area(_BARS[order], x, y, unit * size, 20),
            Area("outline", x, y, unit * ceiling, 20),
            Area("outline", x + unit * floor, y - 4, 1, 28),
        ]
    return labels, areas


def fair_sharing() -> Diagram:
    """Three states of one cluster."""
    columns = [
        _shares(40, 1, "One job"),
        _shares(360, 2, "A second job"),
        _shares(680, 3, "A job of higher priority"),
    ]
    return Diagram(
        file=FIGURES / "fair-sharing.svg",
        title=f"Three TrainingJobs on {CPUS} CPUs",
        description=(
            "Filled: trainers that a job has; outline: its maximum; line: its minimum. "
            + " ".join(f"{labels[0].text}: {'; '.join(label.text for label in labels[1:])}." for labels, _ in columns)
        ),
        width=1000,
        height=250,
        labels=(
            *(label for labels, _ in columns for label in labels),
            Label(
                40,
                238,
                f"{CPUS} CPUs, 1 CPU per trainer. Filled: trainers that the job has; outline: its maximum; line: its minimum.",
            ),
        ),
        areas=tuple(area for _, areas in columns for area in areas),
    )


def diagrams() -> tuple[Diagram, ...]:
    """All pictures of the page."""
    return (SCALING, REPLICAS, EXPECTATIONS, fair_sharing())


def main() -> int:
    """Write them."""
    for diagram in diagrams():
        diagram.file.write_text(draw(diagram))
    return 0


if __name__ == "__main__":
    sys.exit(main())
