"""Overview of many workloads: one line each, from the objects alone.

Takes a workload as it is stored and the time, and returns its numbers and its first blocker: the explanation without pods, which
the conditions give. Small and frozen, so that thousands may be kept. Called by `raytide top` and
`raytide ui`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from raytide.api.meta import Manifest
from raytide.api.sharing_record import REBALANCED, ResizeNote
from raytide.explain.encode import API_VERSION
from raytide.explain.explain import explain
from raytide.explain.model import RAYCLUSTER, GroupLine, Objects, Phase, Size, Verdict

KIND: Final = "Overview"
MAX_NAME: Final = 317
"""Characters of a namespace and a name."""
_ORDER: Final = (Verdict.CAN_NEVER_RUN, Verdict.WAITS, Verdict.NOTHING_MISSING)


class Resized(NamedTuple):
    """One resize that gave capacity to other workloads, or took some of theirs."""

    at: int
    """Seconds since 1970."""
    before: int
    after: int
    for_job: str = ""
    """namespace/name of a receiver in the same namespace."""
    for_uids: tuple[str, ...] = ()
    """uids of the receivers."""


class GroupSize(NamedTuple):
    """One worker group of a RayCluster, or one role of a TrainingJob."""

    name: str
    wanted: int
    ready: int | None
    """None if the status does not say."""
    reason: str = ""
    """Reason of its first blocker."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One workload."""

    kind: str
    namespace: str
    name: str
    wanted: int
    ready: int
    verdict: Verdict
    reason: str = ""
    """Reason of the first blocker; empty if there is none."""
    message: str = ""
    more: int = 0
    """How many other blockers there are."""
    uid: str = ""
    resizes: tuple[Resized, ...] = ()
    """What of its last resizes concerns other workloads, oldest first."""
    groups: tuple[GroupSize, ...] = ()
    """Its worker groups or roles, if there are several, at most MAX_GROUPS."""
    size: Size = field(default_factory=Size)
    """More about its size; `wanted` is what an active workload needs."""
    priority: str = ""
    """Name of the PriorityClass of its pods, for a RayCluster of its head; empty for the cluster's default."""


def lane_of(kind: str, obj: Manifest, now: datetime) -> Lane:
    """The lane of one workload."""
    found = explain(Objects(kind, obj), now)
    first = found.first
    return Lane(
        kind,
        found.namespace,
        found.name,
        found.size.needed if found.size.phase is Phase.ACTIVE else found.size.wanted,
        found.ready,
        found.verdict,
        first.reason if first else "",
        first.message if first else "",
        max(0, len(found.blockers) + found.more_blockers - 1),
        found.uid,
        tuple(_resized(note) for note in found.resizes if _concerns_others(note)),
        _sizes(found.groups),
        found.size,
        _priority(kind, obj),
    )


def _priority(kind: str, obj: Manifest) -> str:
    """Read as it is stored: a name that is none is no name."""
    path = ("spec", "headGroupSpec", "template", "spec") if kind == RAYCLUSTER else ("spec",)
    found: Any = obj
    for key in (*path, "priorityClassName"):
        found = found.get(key) if isinstance(found, dict) else None
    return found[:MAX_NAME] if isinstance(found, str) else ""


def _sizes(lines: Iterable[GroupLine]) -> tuple[GroupSize, ...]:
    """Groups of equal names are invalid, and one is shown."""
    groups = {line.name: GroupSize(line.name[:MAX_NAME], line.wanted, line.ready, line.reason) for line in lines}
    return tuple(groups.values()) if len(groups) > 1 else ()


def _concerns_others(note: ResizeNote) -> bool:
    return bool(note.for_job or note.for_uids) if note.after < note.before else note.reason == REBALANCED


def _resized(note: ResizeNote) -> Resized:
    return Resized(int(note.at.timestamp()), note.before, note.after, note.for_job[:MAX_NAME], note.for_uids)


def in_order(lanes: Iterable[Lane]) -> list[Lane]:
    """What can never run first, then what waits, then the rest, each by name."""
    return sorted(lanes, key=lambda lane: (_ORDER.index(lane.verdict), lane.namespace, lane.name, lane.kind))


def as_json(lanes: Iterable[Lane]) -> dict[str, Any]:
    """The overview as a JSON object; versioned as an explanation is."""
    return {"apiVersion": API_VERSION, "kind": KIND, "items": [lane_as_json(lane) for lane in lanes]}


def lane_as_json(lane: Lane) -> dict[str, Any]:
    """One item of the overview."""
    return {
        "kind": lane.kind,
        "namespace": lane.namespace,
        "name": lane.name,
        "wanted": lane.wanted,
        "ready": lane.ready,
        "verdict": lane.verdict.value,
        "reason": lane.reason,
        "message": lane.message,
        "more": lane.more,
        "needed": lane.size.needed,
        "maximum": lane.size.maximum,
        "phase": lane.size.phase.value,
        "phaseSince": lane.size.since or None,
        "priority": lane.priority,
    }
