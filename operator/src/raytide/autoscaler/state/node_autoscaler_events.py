"""Node autoscaler events: whether Cluster Autoscaler or Karpenter adds a node for a pod.

Takes the events of both about unschedulable pods and returns which pods get a node, which do not, and how long a pod
may wait. With an active node autoscaler a pod waits for its node and is not launched again in another group; without
one, or after its negative answer, the demand soon moves to another group (SC:S2). A setting decides where events cannot
be read. Pure; autoscaler/provider/node_events.py lists the events, group_availability.py reads the result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.state.instance_lifecycle import TimeLimits


class Presence(StrEnum):
    """Whether a node autoscaler adds nodes to this cluster (RAYTIDE_AUTOSCALER_NODE_AUTOSCALER)."""

    AUTO = "auto"
    """Detected from events."""
    PRESENT = "present"
    ABSENT = "absent"


class Source(StrEnum):
    """Reporting component of the events, used to select them."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


COMING: Final = frozenset({"TriggeredScaleUp", "Nominated"})
"""Event reasons that announce a node for the pod."""
NOT_COMING: Final = frozenset({"NotTriggerScaleUp", "FailedScheduling"})
"""Event reasons that rule a node out: no node group fits, or all are at their maximum or out of stock."""


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event about one pod, with its last timestamp."""

    pod: str
    uid: str
    reason: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeAutoscaler:
    """The node autoscaler as observed at one moment."""

    presence: Presence = Presence.AUTO
    is_readable: bool = False
    """Whether its events can be read; if not, only the setting counts."""
    has_spoken: bool = False
    """Whether any event of it was seen since this process started."""
    answers: Mapping[str, bool] | None = None
    """By pod, its latest answer: whether a node is added."""

    def answer(self, pod: str) -> bool | None:
        """Whether a node is added for the pod; None if no event says so either way."""
        return None if self.answers is None else self.answers.get(pod)

    @property
    def is_at_work(self) -> bool:
        """Whether a node autoscaler adds nodes to this cluster."""
        return self.presence is Presence.PRESENT or (self.presence is Presence.AUTO and self.has_spoken)


AT_ONCE: Final = -1.0
"""A limit that is already exceeded."""
UNKNOWN: Final = NodeAutoscaler()
"""No events, and none can be read."""


def wait_s(pod: str, autoscaler: NodeAutoscaler, limits: TimeLimits, *, is_in_backoff: bool = False) -> float:
    """Seconds an unschedulable pod may wait for a node; `is_in_backoff`: its group is in backoff."""
    if autoscaler.presence is Presence.ABSENT:
        return AT_ONCE if is_in_backoff else limits.capacity_s
    match autoscaler.answer(pod):
        case True:
            return limits.node_s
        case False:
            return AT_ONCE
    if autoscaler.is_at_work and not is_in_backoff:
        return limits.node_s
    if is_in_backoff and not (autoscaler.is_at_work and autoscaler.is_readable):
        return AT_ONCE
    return max(limits.capacity_s, limits.answer_s) if autoscaler.is_readable else limits.capacity_s


def answers_of(events: Iterable[PodEvent], pods: Iterable[PodView]) -> dict[str, bool]:
    """By pod, whether a node is added for it according to the latest event."""
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
