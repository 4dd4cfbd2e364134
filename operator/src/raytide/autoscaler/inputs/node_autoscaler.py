"""Does a node autoscaler add a node for this pod?

Takes what Cluster Autoscaler and Karpenter say in events about pods that no node can take, gives for which of them a node
comes and for which none will, and how long such a pod may wait. Where one is at work a pod waits for its node and is not
made a second time in another group; where none is, and where it says no, its work goes elsewhere soon (SC:S2). A setting
decides where events cannot be read. Pure; the events are listed by node_events.py; read by limits.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.inputs.lifecycle import TimeLimits


class Presence(StrEnum):
    """Whether a node autoscaler adds nodes to this cluster (RAYTIDE_AUTOSCALER_NODE_AUTOSCALER)."""

    AUTO = "auto"
    """What the events say."""
    PRESENT = "present"
    ABSENT = "absent"


class Source(StrEnum):
    """Who writes the events: the component by which they are selected."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


COMING: Final = frozenset({"TriggeredScaleUp", "Nominated"})
"""Reasons with which a node autoscaler says that a node comes for the pod."""
NOT_COMING: Final = frozenset({"NotTriggerScaleUp", "FailedScheduling"})
"""And that none will: no node group fits, or all are at their maximum or out of stock."""


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What one of them said about one pod, and when for the last time."""

    pod: str
    uid: str
    reason: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeAutoscaler:
    """What is known of it at one moment."""

    presence: Presence = Presence.AUTO
    is_readable: bool = False
    """Whether its events can be read; if not, only the setting tells."""
    has_spoken: bool = False
    """Whether any event of it was seen since this process started."""
    answers: Mapping[str, bool] | None = None
    """By pod, its last word: whether a node comes."""

    def answer(self, pod: str) -> bool | None:
        """Whether a node comes for the pod; None while it has said nothing about it."""
        return None if self.answers is None else self.answers.get(pod)

    @property
    def is_at_work(self) -> bool:
        """Whether it adds nodes to this cluster."""
        return self.presence is Presence.PRESENT or (self.presence is Presence.AUTO and self.has_spoken)


AT_ONCE: Final = -1.0
"""A limit that is exceeded at the first look."""
UNKNOWN: Final = NodeAutoscaler()
"""Nothing is known, and nothing can be read."""


def wait_s(pod: str, autoscaler: NodeAutoscaler, limits: TimeLimits, *, is_resting: bool = False) -> float:
    """How many seconds a pod that no node can take may wait for one; less if its group is known to get none."""
    if autoscaler.presence is Presence.ABSENT:
        return AT_ONCE if is_resting else limits.capacity_s
    match autoscaler.answer(pod):
        case True:
            return limits.node_s
        case False:
            return AT_ONCE
    if autoscaler.is_at_work and not is_resting:
        return limits.node_s
    if is_resting and not (autoscaler.is_at_work and autoscaler.is_readable):
        return AT_ONCE
    return max(limits.capacity_s, limits.answer_s) if autoscaler.is_readable else limits.capacity_s


def answers_of(events: Iterable[PodEvent], pods: Iterable[PodView]) -> dict[str, bool]:
    """By pod, whether a node comes for it, as the latest event says."""
    uids = {pod.name: pod.uid for pod in pods}
    latest: dict[str, PodEvent] = {}
    for event in events:
        is_about = event.pod in uids and event.uid in ("", uids[event.pod])
        if is_about and event.reason in COMING | NOT_COMING:
            known = latest.get(event.pod)
            if known is None or _moment(known) <= _moment(event):
                latest[event.pod] = event
    return {name: event.reason in COMING for name, event in latest.items()}


def _moment(event: PodEvent) -> float:
    return event.at.timestamp() if event.at else 0.0
