"""Who says how large a worker group is, and who of it has to go?

Takes a RayCluster (spec, decision record, conditions) and its pods, and gives per group the replicas wanted and the names
to delete: those of the spec; under autoscaling those of the record while it is valid, and for five minutes longer (D19).
It never leaves [min, max], and remembers nothing: what has to outlive a restart stands in the record (`foreign`) and in
the condition AutoscalerDown (since when). Called by plan.py and status.py; rules of D19, RM:I4, RM:I7, SC:S6, RC:WG-2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from raytide.api import names
from raytide.api.conditions import find_condition, moment_of
from raytide.api.config import AutoscalerMode
from raytide.api.pod import PodView
from raytide.api.quantity import MAX_INT32
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.api.scaling import DecisionRecord, GroupDecision, clamp_between, parse_record
from raytide.raycluster.observed import Observed
from raytide.raycluster.validation_facts import needs_rays_autoscaler

DRAINS_REMOVED_GROUPS: Final = 2
"""The first version of a record whose sidecar says when workers of removed groups may go."""
LATER: Final = datetime.max.replace(tzinfo=UTC)
STALE_AFTER: Final = timedelta(minutes=5)
REPLACED_AFTER: Final = timedelta(seconds=2)
"""How long a worker that exited 0 may be missing under autoscaling: its autoscaler is about to name it."""
CLOCK_TOLERANCE: Final = timedelta(seconds=2)
"""A node's clock that is further ahead than this is not believed."""
CLOCK_GRAIN: Final = timedelta(seconds=1)
"""Kubernetes tells times in whole seconds: what ended at 12:00:00 may have ended at 12:00:00.999."""


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """What one group is to be: so many replicas (not hosts), between min and max, without the named pods."""

    replicas: int
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the record that is there is not valid."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a RayCluster is scaled at this moment."""

    is_autoscaled: bool = False
    record: DecisionRecord | None = None
    """The record that is obeyed; None: the spec rules."""
    fault: Fault | None = None
    """Set when there is a record and it is not valid, obeyed for a while longer or not."""

    is_record_due: bool = False
    """There is no record yet, and our autoscaler runs: it writes one as soon as it has something to say."""

    def order_of(self, group: WorkerGroupSpec) -> GroupOrder:
        """What that group is to be."""
        in_spec = frozenset(group.scale_strategy.workers_to_delete)
        decision = self.decision_of(group)
        if decision is None:
            return GroupOrder(clamp_replicas(group), in_spec)
        raised = decision.foreign_raise(group.replicas) or 0
        return GroupOrder(clamp(max(decision.replicas, raised), group), in_spec.union(decision.delete))

    def decision_of(self, group: WorkerGroupSpec) -> GroupDecision | None:
        """What the autoscaler decided about it; None where the spec rules."""
        return None if self.record is None else self.record.groups.get(group.group_name)

    def last_stay_of(self, pod: PodView) -> datetime | None:
        """Until when a worker whose group has left the spec is left to its autoscaler; None: it may go now (SC:S14).

        The autoscaler drains it first, names it in the record once it may go, and says when it has to. One that has not
        looked yet does so within seconds, or its record stops being valid.
        """
        if pod.is_finished or (self.record is None and not self.is_record_due):
            return None
        if self.record is None:
            return LATER
        if self.record.version < DRAINS_REMOVED_GROUPS:
            return None
        decision = self.record.groups.get(pod.group)
        if decision is None or decision.deadline is None:
            return LATER
        return None if pod.name in decision.delete else decision.deadline

    def may_choose_victims(self, *, is_random_delete_enabled: bool) -> bool:
        """Whether workers nobody named may be deleted because there are too many (RC:SH-5).

        Under autoscaling only where the operator was told so, and never beside an autoscaler that drains before it names.
        """
        has_record = self.record is not None or self.fault is not None
        return not self.is_autoscaled or (is_random_delete_enabled and not has_record)


def scaling_of(cluster: RayCluster, observed: Observed, mode: AutoscalerMode = "raytide") -> Scaling:
    """How that cluster is scaled, seen at `observed.seen_at`; `mode` says whose autoscaler is the rule here."""
    record = _record_to_judge(cluster)
    if record is None:
        return Scaling(cluster.is_autoscaled, is_record_due=_is_record_due(cluster, observed, mode))
    fault = fault_of(record, cluster, observed)
    if fault is not None and (mode == "ray" or needs_rays_autoscaler(cluster)):
        return Scaling(True)  # left over from before: whoever scales it now leaves no record, as in KubeRay
    if fault is None or (record.cluster == cluster.metadata.uid and not is_stale(cluster, observed.seen_at)):
        return Scaling(True, record, fault)
    return Scaling(True, None, fault)


def _is_record_due(cluster: RayCluster, observed: Observed, mode: AutoscalerMode) -> bool:
    is_ours = cluster.is_autoscaled and mode == "raytide" and not needs_rays_autoscaler(cluster)
    if not is_ours or cluster.metadata.annotations.get(names.AUTOSCALER_ANNOTATION) == names.PAUSED:
        return False
    head = observed.head
    return head is not None and head.is_container_running(names.AUTOSCALER_CONTAINER)


def fault_of(record: DecisionRecord, cluster: RayCluster, observed: Observed) -> Fault | None:
    """Why the record is not valid: made for another cluster or head, or nobody is there to make the next."""
    head = observed.head
    if record.cluster != cluster.metadata.uid:
        return Fault("RecordOfAnotherCluster", "the decision record was made for another RayCluster")
    if head is None:
        return Fault("HeadMissing", "there is no head pod")
    if head.uid != record.head:
        return Fault("HeadReplaced", f"the decision record was made beside another head pod than {head.name}")
    if head.node_name in observed.unready_nodes:
        return Fault("HeadNodeAway", f"node {head.node_name} of head pod {head.name} does not answer")
    if not head.is_container_running(names.AUTOSCALER_CONTAINER):
        return Fault("AutoscalerNotRunning", f"container {names.AUTOSCALER_CONTAINER} of {head.name} does not run")
    return None


def is_stale(cluster: RayCluster, now: datetime) -> bool:
    """Whether no record has been valid for too long, as the condition remembers; a fault nobody told of begins now."""
    told = find_condition(cluster.status.get("conditions") or (), names.AUTOSCALER_DOWN)
    if told is None:
        return False
    since = moment_of(str(told.get("lastTransitionTime")))
    return told.get("status") == "True" or (since is not None and now - since >= STALE_AFTER)


def _record_to_judge(cluster: RayCluster) -> DecisionRecord | None:
    """The record if it may count at all: autoscaling is on, and nobody has paused it."""
    annotations = cluster.metadata.annotations
    if not cluster.is_autoscaled or annotations.get(names.AUTOSCALER_ANNOTATION) == names.PAUSED:
        return None
    return parse_record(annotations.get(names.AUTOSCALER_DECISION_ANNOTATION))


# --- counts ------------------------------------------------------------------------------------------------------------


def clamp(replicas: int, group: WorkerGroupSpec) -> int:
    """A number between min and max; absent bounds are 0 and the largest int32 (RC:WG-2)."""
    most = MAX_INT32 if group.max_replicas is None else group.max_replicas
    return clamp_between(replicas, group.min_replicas or 0, most)


def clamp_replicas(group: WorkerGroupSpec) -> int:
    """What the spec asks for: `replicas` between min and max, absent replicas mean min (RC:WG-2)."""
    return clamp(group.min_replicas or 0 if group.replicas is None else group.replicas, group)


def wanted_pods(group: WorkerGroupSpec, order: GroupOrder) -> int:
    """How many pods the group should have; none while suspended (RC:WG-1, RC:WG-2)."""
    return 0 if group.suspend else order.replicas * max(0, group.num_of_hosts)


# --- workers that ended well ---------------------------------------------------------------------------------------------


def resting(pods: Iterable[PodView], now: datetime) -> dict[str, float]:
    """Name -> seconds for which a worker that exited 0 is left as it is, so that its autoscaler can name it.

    Ray's own sidecar drains a worker before it lowers `replicas`; a replacement made in between would only be drained in
    its turn (D19). A time that lies in the future is not believed.
    """
    left_by_name = {}
    for pod in pods:
        ended_at = moment_of(pod.ended_well_at) if pod.ended_well_at else None
        if ended_at is None or ended_at > now + CLOCK_TOLERANCE:
            continue
        left_s = (ended_at + REPLACED_AFTER + CLOCK_GRAIN - now).total_seconds()
        if left_s > 0:
            left_by_name[pod.name] = left_s
    return left_by_name
