"""Node autoscaler events: whether Cluster Autoscaler or Karpenter adds a node for a pod.

Takes the events of both about unschedulable pods and returns for which pods a node will be added, for which none will,
and how long a pod may wait. With an active node autoscaler a pod waits for its node and is not launched again in another group; without
one, or after its negative answer, the demand soon moves to another group (SC:S2). A setting decides where events cannot
be read. Pure; autoscaler/provider/node_events.py lists the events, group_availability.py reads the result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from raytide.api.node_autoscaler import Presence
from raytide.api.pod import PodView
from raytide.autoscaler.state.instance_lifecycle import TimeLimits


class Source(StrEnum):
    """Reporting component of the events, used to select them."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


SCALE_UP_REASONS: Final = frozenset({"TriggeredScaleUp", "Nominated"})
"""Event reasons that announce a node for the pod."""
NO_SCALE_UP_REASONS: Final = frozenset({"NotTriggerScaleUp", "FailedScheduling"})
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
    """The node autoscaler, as its events show it at one moment."""

    presence: Presence = Presence.AUTO
    can_list_events: bool = False
    """Whether its events can be listed; if not, only the setting counts."""
    has_sent_events: bool = False
    """Whether an event of it has been listed since this process started."""
    scale_up_by_pod: Mapping[str, bool] | None = None
    """By pod, whether it will add a node for the pod, according to its latest event; None: no events were listed."""

    def scales_up_for(self, pod: str) -> bool | None:
        """Whether it will add a node for the pod; None if no event is about this."""
        return None if self.scale_up_by_pod is None else self.scale_up_by_pod.get(pod)

    @property
    def is_active(self) -> bool:
        """Whether a node autoscaler adds nodes to this cluster."""
        return self.presence is Presence.PRESENT or (self.presence is Presence.AUTO and self.has_sent_events)


NO_WAIT: Final = -1.0
"""A limit that is already exceeded."""
UNKNOWN: Final = NodeAutoscaler()
"""No events, and none can be read."""


def unschedulable_timeout_s(
    pod: str, autoscaler: NodeAutoscaler, limits: TimeLimits, *, is_in_backoff: bool = False
) -> float:
    """Seconds that an unschedulable Ray pod may stay pending before it is given up.

    `is_in_backoff`: its worker group has failed a moment ago. Without an event about the pod it depends on whether such
    events exist in this cluster and can be read.
    """
    if autoscaler.presence is Presence.ABSENT:
        return NO_WAIT if is_in_backoff else limits.capacity_s
    match autoscaler.scales_up_for(pod):
        case True:
            return limits.node_s
        case False:
            return NO_WAIT
    if autoscaler.is_active and not is_in_backoff:
        return limits.node_s
    if is_in_backoff and not (autoscaler.is_active and autoscaler.can_list_events):
        return NO_WAIT
    return max(limits.capacity_s, limits.first_event_s) if autoscaler.can_list_events else limits.capacity_s


def latest_scale_ups(events: Iterable[PodEvent], pods: Iterable[PodView]) -> dict[str, bool]:
    """By pod, whether the cluster autoscaler will add a node for it, according to the latest event about the pod."""
    uids = {pod.name: pod.uid for pod in pods}
    latest: dict[str, PodEvent] = {}
    for event in events:
        concerns_pod = event.pod in uids and event.uid in ("", uids[event.pod])
        if concerns_pod and event.reason in SCALE_UP_REASONS | NO_SCALE_UP_REASONS:
            previous = latest.get(event.pod)
            if previous is None or _timestamp(previous) <= _timestamp(event):
                latest[event.pod] = event
    return {name: event.reason in SCALE_UP_REASONS for name, event in latest.items()}


def _timestamp(event: PodEvent) -> float:
    return event.at.timestamp() if event.at else 0.0
