"""Desired replicas of each worker group, and the workers to delete by name.

Takes a RayCluster (spec, decision record, conditions) and its pods, and returns per group the replicas and the names to
delete: those of the spec; under autoscaling those of the record while it is valid, and for five minutes longer (D19).
The result is always within [min, max]. It keeps no state: what has to survive a restart is in the record (`foreign`)
and in the condition AutoscalerDown (since when). Called by plan.py and status.py; D19, RM:I4, RM:I7, SC:S6, RC:WG-2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, parse_record
from raytide.api.conditions import find_condition, parse_timestamp
from raytide.api.config import AutoscalerMode
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.raycluster import messages
from raytide.raycluster.observed import Observed
from raytide.raycluster.spec_queries import needs_rays_autoscaler

LATER: Final = datetime.max.replace(tzinfo=UTC)
STALE_AFTER: Final = timedelta(minutes=5)
REPLACED_AFTER: Final = timedelta(seconds=2)
"""How long a worker that exited 0 is not replaced under autoscaling: its autoscaler is about to name it."""
CLOCK_TOLERANCE: Final = timedelta(seconds=2)
"""Times further ahead of ours than this are ignored as errors of a node's clock."""
CLOCK_GRAIN: Final = timedelta(seconds=1)
"""Kubernetes stores whole seconds: a container that ended at 12:00:00 may have ended at 12:00:00.999."""


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """The target of one group: replicas (not hosts), between min and max, and names of pods to delete."""

    replicas: int
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """Why the existing record is not valid."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ScalingState:
    """How a RayCluster is scaled at this moment."""

    is_autoscaled: bool = False
    record: DecisionRecord | None = None
    """The record that is obeyed; None when the spec applies."""
    record_problem: RecordProblem | None = None
    """Set when a record exists and is not valid, whether it is still obeyed or not."""

    is_record_due: bool = False
    """Whether there is no record yet, but Raytide's autoscaler runs and will write one."""

    def desired_replicas_of(self, group: WorkerGroupSpec) -> DesiredReplicas:
        """The target of that group."""
        in_spec = frozenset(group.scale_strategy.workers_to_delete)
        decision = self.decision_of(group)
        if decision is None:
            return DesiredReplicas(clamp_replicas(group), in_spec)
        raised = decision.replicas_to_adopt(group.replicas) or 0
        return DesiredReplicas(group.clamp(max(decision.replicas, raised)), in_spec.union(decision.delete))

    def decision_of(self, group: WorkerGroupSpec) -> GroupDecision | None:
        """The autoscaler's decision about that group; None where the spec applies."""
        return None if self.record is None else self.record.groups.get(group.group_name)

    def keep_until(self, pod: PodView) -> datetime | None:
        """Until when to keep a worker whose group was removed from the spec; None: delete it now (SC:S14).

        The autoscaler first drains it, names it in the record once it is drained, and sets a deadline. An autoscaler
        that has not seen the removal yet does so within seconds, or its record stops being valid.
        """
        if pod.is_finished or (self.record is None and not self.is_record_due):
            return None
        if self.record is None:
            return LATER
        decision = self.record.groups.get(pod.group)
        if decision is None or decision.deadline is None:
            return LATER
        return None if pod.name in decision.delete else decision.deadline

    def may_choose_victims(self, *, is_random_delete_enabled: bool) -> bool:
        """Whether surplus workers that are not named for deletion may be deleted (RC:SH-5).

        Under autoscaling only if the operator's option allows it, and never with a record: its author drains first.
        """
        has_record = self.record is not None or self.record_problem is not None
        return not self.is_autoscaled or (is_random_delete_enabled and not has_record)


def scaling_of(cluster: RayCluster, observed: Observed, mode: AutoscalerMode = "raytide") -> ScalingState:
    """How that cluster is scaled at `observed.seen_at`; `mode` is the operator's default autoscaler."""
    record = _record_to_judge(cluster)
    if record is None:
        return ScalingState(cluster.is_autoscaled, is_record_due=_is_record_due(cluster, observed, mode))
    problem = record_problem(record, cluster, observed)
    if problem is not None and (mode == "ray" or needs_rays_autoscaler(cluster)):
        return ScalingState(True)  # a leftover record: the autoscaler that scales it now writes none, as in KubeRay
    if problem is None or (record.cluster == cluster.metadata.uid and not is_stale(cluster, observed.seen_at)):
        return ScalingState(True, record, problem)
    return ScalingState(True, None, problem)


def scaling_by_status(cluster: RayCluster, observed: Observed) -> ScalingState:
    """The same for a reader who does not know the operator's mode, but has the status that it wrote (FD:ST3-1).

    A record that is not valid has the condition `AutoscalerDown` from the first pass on, unless Ray's autoscaler is the default: then
    the spec applies.
    """
    found = scaling_of(cluster, observed)
    conditions, head = cluster.status.get("conditions") or (), cluster.status.get("head")
    is_seen = observed.head is not None and isinstance(head, Mapping) and head.get("podName") == observed.head.name
    if found.record_problem is None or not is_seen or find_condition(conditions, constants.AUTOSCALER_DOWN) is not None:
        return found
    return scaling_of(cluster, observed, "ray")


def _is_record_due(cluster: RayCluster, observed: Observed, mode: AutoscalerMode) -> bool:
    is_ours = cluster.is_autoscaled and mode == "raytide" and not needs_rays_autoscaler(cluster)
    if not is_ours or cluster.metadata.annotations.get(constants.AUTOSCALER_ANNOTATION) == constants.PAUSED:
        return False
    head = observed.head
    return head is not None and head.is_container_running(constants.AUTOSCALER_CONTAINER)


def record_problem(record: DecisionRecord, cluster: RayCluster, observed: Observed) -> RecordProblem | None:
    """Why the record is not valid: made for another cluster or head, or its autoscaler does not run; None if valid."""
    head = observed.head
    if record.cluster != cluster.metadata.uid:
        return RecordProblem(constants.RECORD_OF_ANOTHER_CLUSTER, messages.RECORD_OF_ANOTHER_CLUSTER)
    if head is None:
        return RecordProblem(constants.HEAD_MISSING, messages.HEAD_MISSING)
    if head.uid != record.head:
        return RecordProblem(constants.HEAD_REPLACED, messages.head_replaced(head.name))
    if head.node_name in observed.unready_nodes:
        return RecordProblem(constants.HEAD_NODE_AWAY, messages.head_node_away(head.node_name, head.name))
    if not head.is_container_running(constants.AUTOSCALER_CONTAINER):
        return RecordProblem(constants.AUTOSCALER_NOT_RUNNING, messages.autoscaler_not_running(head.name))
    return None


def is_stale(cluster: RayCluster, now: datetime) -> bool:
    """Whether the record has been invalid too long, by the condition's age; without a condition the problem is new."""
    condition = find_condition(cluster.status.get("conditions") or (), constants.AUTOSCALER_DOWN)
    if condition is None:
        return False
    since = parse_timestamp(str(condition.get("lastTransitionTime")))
    return condition.get("status") == "True" or (since is not None and now - since >= STALE_AFTER)


def _record_to_judge(cluster: RayCluster) -> DecisionRecord | None:
    """The record, if autoscaling is on and not paused."""
    annotations = cluster.metadata.annotations
    if not cluster.is_autoscaled or annotations.get(constants.AUTOSCALER_ANNOTATION) == constants.PAUSED:
        return None
    return parse_record(annotations.get(constants.AUTOSCALER_DECISION_ANNOTATION))


# --- counts -----------------------------------------------------------------------------------------------------------


def clamp_replicas(group: WorkerGroupSpec) -> int:
    """The replicas of the spec, limited to min and max; absent replicas mean min (RC:WG-2)."""
    return group.clamp(group.min_replicas or 0 if group.replicas is None else group.replicas)


def wanted_pods(group: WorkerGroupSpec, order: DesiredReplicas) -> int:
    """How many pods the group should have; none while suspended (RC:WG-1, RC:WG-2)."""
    return 0 if group.suspend else order.replicas * max(0, group.num_of_hosts)


# --- workers that exited 0 --------------------------------------------------------------------------------------------


def within_exit_grace(pods: Iterable[PodView], now: datetime) -> dict[str, float]:
    """Name -> seconds for which a worker that exited 0 is not replaced, so that its autoscaler can name it.

    Ray's own sidecar drains a worker before it lowers `replicas`; a replacement created in between would be drained too
    (D19). A time in the future is ignored.
    """
    left_by_name = {}
    for pod in pods:
        ended_at = parse_timestamp(pod.ended_well_at) if pod.ended_well_at else None
        if ended_at is None or ended_at > now + CLOCK_TOLERANCE:
            continue
        left_s = (ended_at + REPLACED_AFTER + CLOCK_GRAIN - now).total_seconds()
        if left_s > 0:
            left_by_name[pod.name] = left_s
    return left_by_name
