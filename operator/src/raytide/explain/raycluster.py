"""Explanation of a RayCluster.

Takes the object, its pods and the nodes and events that could be read, and returns its blockers, worker groups and stages.
What a condition or the autoscaler's record says is passed on with its reason and message; the wanted sizes come from the
functions that the operator uses, so that this cannot disagree with it. Own reasons exist only for what no condition has:
the object is not reconciled, managed by another controller, suspended or paused. Called by explain.py (SC:S21, D19).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from raytide.api import constants
from raytide.api.autoscaler_decision import parse_record
from raytide.api.conditions import ConditionJson, find_condition, timestamp
from raytide.api.pod import PodView
from raytide.api.pod_failure import REJECTIONS, failing_pod, failure_of, failure_of_rejection
from raytide.api.quantity import MAX_INT32
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.api.record_fields import stored_diagnoses
from raytide.diagnosis import catalogue
from raytide.diagnosis.catalogue import DRAINING
from raytide.diagnosis.model import Diagnosis, Stage
from raytide.diagnosis.render import text_of
from raytide.explain import messages
from raytide.explain.findings import Findings, blocker, terminating
from raytide.explain.holders import pending
from raytide.explain.model import RAYCLUSTER, Blocker, GroupLine, Need, Objects, Phase, PodLine, Size, StageLine
from raytide.raycluster import causes
from raytide.raycluster.conditions import most_frequent_failure
from raytide.raycluster.conditions_scaling import contended_groups, contention
from raytide.raycluster.desired_replicas import ScalingState, scaling_by_status, wanted_pods
from raytide.raycluster.failures import kept_groups, names_to_delete
from raytide.raycluster.observed import Observed, observe
from raytide.raycluster.spec_queries import is_managed_by_us, needs_rays_autoscaler
from raytide.raycluster.suspension import Suspension, suspension_of

KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class _Context:
    """One RayCluster with everything that was read for it."""

    cluster: RayCluster
    objects: Objects
    now: datetime

    @property
    def conditions(self) -> Sequence[ConditionJson]:
        return tuple(self.cluster.status.get("conditions") or ())

    def condition(self, kind: str) -> ConditionJson | None:
        """The condition if it is present and True."""
        found = find_condition(self.conditions, kind)
        return found if found is not None and found.get("status") == "True" else None

    @property
    def has_pods(self) -> bool:
        return self.objects.pods is not None

    @cached_property
    def observed(self) -> Observed:
        unready = frozenset(name for name, node in self.objects.nodes.items() if not node.is_ready)
        pods = [pod for pod in self.objects.pods or () if isinstance(pod, PodView)]
        return observe(
            self.cluster.metadata.uid,
            pods=pods,
            services=(),
            unready_nodes=unready,
            kept_groups=kept_groups(self.cluster),
            names_to_delete=names_to_delete(self.cluster),
            seen_at=self.now,
        )

    @cached_property
    def scaling(self) -> ScalingState:
        """As the operator computes it; if pods cannot be read, with the record if that makes the size that the status wants."""
        if self.has_pods:
            return scaling_by_status(self.cluster, self.observed)
        by_spec = ScalingState(self.cluster.is_autoscaled)
        record = parse_record(self.cluster.metadata.annotations.get(constants.AUTOSCALER_DECISION_ANNOTATION))
        if not self.cluster.is_autoscaled or self.is_paused or self.condition(constants.AUTOSCALER_DOWN) is not None:
            return by_spec
        is_by_spec = self.total(by_spec) == self.cluster.status.get("desiredWorkerReplicas")
        by_record = ScalingState(is_autoscaled=True, record=record)
        return by_spec if is_by_spec and self.total(by_record) != self.total(by_spec) else by_record

    def total(self, scaling: ScalingState) -> int:
        """Workers that are wanted unless the cluster is suspended."""
        groups = self.cluster.spec.worker_group_specs
        return sum(wanted_pods(group, scaling.desired_replicas_of(group)) for group in groups)

    @property
    def is_paused(self) -> bool:
        paused = self.cluster.metadata.annotations.get(constants.AUTOSCALER_ANNOTATION) == constants.PAUSED
        return self.cluster.is_autoscaled and paused

    @property
    def has_rays_autoscaler(self) -> bool:
        return self.cluster.is_autoscaled and needs_rays_autoscaler(self.cluster)

    @property
    def head_name(self) -> str:
        return causes.head_name(self.cluster, self.observed)

    def wanted(self, group: WorkerGroupSpec) -> int:
        """Wanted pods of the group; none while the cluster is suspended."""
        if suspension_of(self.cluster) is not Suspension.NONE:
            return 0
        return wanted_pods(group, self.scaling.desired_replicas_of(group))

    @cached_property
    def stored(self) -> tuple[Diagnosis, ...]:
        """What the operator found to be missing."""
        return stored_diagnoses(self.cluster.status)

    def reported(self, group: str) -> Diagnosis | None:
        """Why workers of the group are missing, and how many, by the status."""
        return next((found for found in self.stored if found.group == group and found.count), None)

    def rejection(self, group: str) -> Diagnosis | None:
        """Why the API server rejects creates of the group, by the status."""
        return next((found for found in self.stored if found.group == group and found.reason in REJECTIONS), None)

    def blocker(self, found: Diagnosis, *, since: str = "") -> Blocker:
        """The diagnosis with what it needs of the cluster."""
        return blocker(found, causes.workload_of(self.cluster), since=since)


def explain_raycluster(cluster: RayCluster, objects: Objects, now: datetime) -> Findings:
    """Everything about one RayCluster; the caller sorts and bounds it."""
    ctx = _Context(cluster, objects, now)
    blockers, size = tuple(_blockers(ctx)), _size(ctx)
    return Findings(
        blockers=blockers,
        groups=tuple(_group_lines(ctx, blockers)),
        stages=tuple(_stages(ctx)),
        pods=tuple(_pod_lines(ctx)),
        notes=tuple(_notes(ctx)),
        summary=messages.workers_ready(size),
        size=size,
        needs=tuple(_needs(ctx)),
    )


def _needs(ctx: _Context) -> Iterator[Need]:
    """Its pods without a node, where those of all workloads are known."""
    if ctx.objects.cluster is not None:
        groups = {pod.name: pod.group for pod in ctx.objects.pods or () if isinstance(pod, PodView)}
        yield from pending(ctx.objects.cluster, RAYCLUSTER, *ctx.cluster.key, groups)


# --- blockers --------------------------------------------------------------------------------------------------------


def _blockers(ctx: _Context) -> Iterator[Blocker]:
    yield from _of_object(ctx)
    if not is_managed_by_us(ctx.cluster.spec.managed_by) or suspension_of(ctx.cluster) is not Suspension.NONE:
        return
    yield from _of_autoscaler(ctx)
    yield from _of_record(ctx)
    yield from _of_spec_bounds(ctx)
    yield from _of_head(ctx)
    yield from _of_services(ctx)
    for group in ctx.cluster.spec.worker_group_specs:
        yield from _of_group(ctx, group)


def _of_object(ctx: _Context) -> Iterator[Blocker]:
    """What concerns the whole object."""
    cluster, meta = ctx.cluster, ctx.cluster.metadata
    if meta.deletion_timestamp:
        yield ctx.blocker(terminating(meta), since=meta.deletion_timestamp)
    if not is_managed_by_us(cluster.spec.managed_by):
        controller = cluster.spec.managed_by or ""
        found = Diagnosis(catalogue.MANAGED_BY_OTHER, message=messages.managed_by(controller))
        yield ctx.blocker(found.having(controller=controller))
        return
    invalid = ctx.condition(constants.INVALID)
    if invalid is not None:
        yield _of_condition(ctx, invalid)
    elif is_behind(cluster.status, meta.generation):
        seen = cluster.status.get("observedGeneration")
        since = "" if isinstance(seen, int) else meta.creation_timestamp
        found = Diagnosis(catalogue.NOT_RECONCILED, message=messages.not_reconciled(meta.generation, seen))
        yield ctx.blocker(found, since=since)
    phase = suspension_of(cluster)
    if phase is not Suspension.NONE:
        queue = meta.labels.get(KUEUE_QUEUE_LABEL, "")
        stored = find_condition(ctx.conditions, constants.SUSPENDED)
        since = str(stored.get("lastTransitionTime") or "") if stored and phase is Suspension.SUSPENDED else ""
        found = Diagnosis(catalogue.SUSPENDED, message=messages.suspended(phase.value)).having(queue=queue)
        yield ctx.blocker(found, since=since)


def is_behind(status: Mapping[str, Any], generation: int) -> bool:
    """Whether the status is of an older generation, or missing."""
    seen = status.get("observedGeneration")
    return not isinstance(seen, int) or seen < generation


def _of_condition(ctx: _Context, condition: ConditionJson, *, pod: str = "") -> Blocker:
    found = Diagnosis(str(condition.get("reason") or "Other"), message=str(condition.get("message") or ""))
    return ctx.blocker(found.having(pod=pod), since=str(condition.get("lastTransitionTime") or ""))


def _of_autoscaler(ctx: _Context) -> Iterator[Blocker]:
    """The autoscaler is paused or down, or another client writes `replicas`."""
    if ctx.is_paused:
        yield ctx.blocker(Diagnosis(catalogue.AUTOSCALER_PAUSED, message=messages.AUTOSCALER_PAUSED))
        return
    down = find_condition(ctx.conditions, constants.AUTOSCALER_DOWN)
    if down is not None:  # False for the first five minutes: the autoscaler is down, its last decision applies
        yield _of_condition(ctx, down, pod=ctx.head_name)
    contended = ctx.condition(constants.REPLICAS_CONTENDED)
    if contended is not None:
        found = contention(str(contended.get("reason") or "Other"), contended_groups(ctx.cluster, ctx.scaling))
        yield ctx.blocker(found, since=str(contended.get("lastTransitionTime") or ""))


def _of_record(ctx: _Context) -> Iterator[Blocker]:
    """The autoscaler's reasons: from its record, which the condition ScalingLimited repeats, or else from that."""
    limited = ctx.condition(constants.SCALING_LIMITED)
    since = str(limited.get("lastTransitionTime") or "") if limited else ""
    record = ctx.scaling.record
    if record is None:
        if limited is not None and not ctx.is_paused:
            yield _of_condition(ctx, limited, pod=ctx.head_name)
        return
    for group in ctx.cluster.spec.worker_group_specs:
        decision = ctx.scaling.decision_of(group)
        for why in decision.why if decision else ():
            yield from _of_why(ctx, why, group.group_name, since)
    for why in record.why:
        yield from _of_why(ctx, why, "", since)


def _of_why(ctx: _Context, why: Diagnosis, group: str, since: str) -> Iterator[Blocker]:
    if why.reason == DRAINING:
        return  # nothing is missing: see _notes
    yield ctx.blocker(causes.of_limit(ctx.cluster, ctx.observed, group, why), since=since)


def _of_spec_bounds(ctx: _Context) -> Iterator[Blocker]:
    """`replicas` of the spec beyond `maxReplicas`, where the spec decides."""
    for group in ctx.cluster.spec.worker_group_specs:
        maximum = group.max_replicas
        is_above = maximum is not None and group.replicas is not None and group.replicas > maximum
        if is_above and ctx.scaling.decision_of(group) is None:
            message = messages.replicas_clamped(group.replicas or 0, maximum or 0)
            count = (group.replicas or 0) - (maximum or 0)
            found = Diagnosis(catalogue.REPLICAS_CLAMPED, count, message, group.group_name)
            yield ctx.blocker(found.having(limit=f"maxReplicas {maximum} of group {group.group_name}"))


def _of_head(ctx: _Context) -> Iterator[Blocker]:
    """The head is missing or not ready: workers wait for it."""
    ready = find_condition(ctx.conditions, constants.HEAD_POD_READY)
    head = ctx.observed.head
    if head is not None:
        if head.is_running_and_ready and not head.is_terminating:
            return
    elif ready is None or ready.get("status") == "True":
        return  # not reconciled, or pods cannot be read
    failure = failure_of(head) if head is not None else None
    if failure is None:
        failure = ctx.rejection(constants.HEAD_GROUP)
    since = str(ready.get("lastTransitionTime") or "") if ready and ready.get("status") == "False" else ""
    name = head.name if head else ctx.head_name
    if failure is not None:
        gates = ", ".join(head.scheduling_gates) if head is not None else ""
        found = replace(failure, count=1, group=constants.HEAD_GROUP)
        yield ctx.blocker(found.having(pod=name, gates=gates), since=since)
        return
    if head is not None and head.node_name in ctx.observed.unready_nodes:
        yield _of_node(ctx, head, since)
        return
    condition = " ".join(str(ready.get(part) or "") for part in ("reason", "message")) if ready else ""
    text = messages.head_not_ready(condition.strip())
    found = Diagnosis(catalogue.HEAD_NOT_READY, 1, text, constants.HEAD_GROUP)
    yield ctx.blocker(found.having(pod=name), since=since)


def _of_node(ctx: _Context, pod: PodView, since: str) -> Blocker:
    node = pod.node_name
    exists = ctx.objects.nodes[node].exists
    found = Diagnosis(catalogue.NODE_NOT_READY, 1, messages.node_not_ready(node, exists=exists), pod.group)
    return ctx.blocker(found.having(pod=pod.name, node=node), since=since)


def _of_services(ctx: _Context) -> Iterator[Blocker]:
    """Rejections of services and RBAC objects; those of pods are reported with their group."""
    condition = ctx.condition(constants.REPLICA_FAILURE)
    since = str(condition.get("lastTransitionTime") or "") if condition else ""
    yield from (ctx.blocker(found, since=since) for found in ctx.stored if not found.group)
    if condition is not None and not ctx.stored:  # KubeRay's, or KubeRay's CRD drops what is stored
        yield ctx.blocker(failure_of_rejection(str(condition.get("message") or "")), since=since)


def _of_group(ctx: _Context, group: WorkerGroupSpec) -> Iterator[Blocker]:
    """Why workers of the group are missing."""
    name = group.group_name
    if group.suspend:
        yield ctx.blocker(Diagnosis(catalogue.GROUP_SUSPENDED, message=messages.group_suspended(name), group=name))
        return
    stored = ctx.condition(constants.WORKERS_MISSING)
    since = str(stored.get("lastTransitionTime") or "") if stored else ""
    pods = ctx.observed.group(name)
    wanted = ctx.wanted(group)
    if ctx.has_pods:
        missing = wanted - sum(pod.is_running_and_ready and not pod.is_terminating for pod in pods)
        failure = most_frequent_failure(pods, ctx.rejection(name))
    else:
        reported = ctx.reported(name)
        missing = reported.count if reported else 0
        failure = None if reported is None or reported.reason == constants.WAITING_FOR_PODS else reported
    if missing <= 0:
        return
    if failure is not None:
        yield ctx.blocker(
            causes.of_group(replace(failure, count=missing), ctx.cluster, name, ctx.observed), since=since
        )
        return
    lost = next((pod for pod in pods if pod.node_name in ctx.observed.unready_nodes), None)
    if lost is not None:
        yield _of_node(ctx, lost, since)
        return
    if ctx.has_pods and len(pods) < wanted:
        if ctx.condition(constants.INVALID) is not None:
            return  # the operator makes no pods of an invalid spec
        message = messages.pods_missing(wanted - len(pods), wanted)
        yield ctx.blocker(Diagnosis(catalogue.PODS_MISSING, missing, message, name), since=since)
        return
    message = messages.workers_starting(missing, max(wanted, missing))
    failing = failing_pod(pods)
    found = Diagnosis(constants.WAITING_FOR_PODS, missing, message, name)
    yield ctx.blocker(found.having(pod=failing.name if failing is not None else ""), since=since)


# --- groups, stages, pods --------------------------------------------------------------------------------------------------


def _group_lines(ctx: _Context, blockers: Sequence[Blocker]) -> Iterator[GroupLine]:
    reasons: dict[str, str] = {}
    for each in blockers:
        reasons.setdefault(each.group, each.reason)
    reported = {} if ctx.has_pods else _ready_by_status(ctx)
    for group in ctx.cluster.spec.worker_group_specs:
        hosts = max(0, group.num_of_hosts)
        pods = [pod for pod in ctx.observed.group(group.group_name) if not pod.is_terminating]
        yield GroupLine(
            group.group_name,
            (group.min_replicas or 0) * hosts,
            _max_pods(group),
            ctx.wanted(group),
            len(pods) if ctx.has_pods else None,
            sum(pod.is_running_and_ready for pod in pods) if ctx.has_pods else reported.get(group.group_name),
            reasons.get(group.group_name, ""),
        )


def _ready_by_status(ctx: _Context) -> dict[str, int]:
    """Ready workers of each group that the status tells.

    `diagnoses` has the groups that lack some; `readyWorkerReplicas` without these is what all other groups have. It is theirs if each has
    what it wants, or if there is one. A status of before the last change of a size tells less.
    """
    groups = ctx.cluster.spec.worker_group_specs
    lacking = {group.group_name: found for group in groups if (found := ctx.reported(group.group_name))}
    ready = {
        group.group_name: max(0, ctx.wanted(group) - lacking[group.group_name].count)
        for group in groups
        if group.group_name in lacking
    }
    rest = [group for group in groups if group.group_name not in lacking]
    left = _number(ctx.cluster.status, "readyWorkerReplicas") - sum(ready.values())
    if len(rest) == 1 and left >= 0:
        ready[rest[0].group_name] = left
    elif sum(map(ctx.wanted, rest)) == left:
        ready |= {group.group_name: ctx.wanted(group) for group in rest}
    return ready


def _stages(ctx: _Context) -> Iterator[StageLine]:
    cluster = ctx.cluster
    groups = cluster.spec.worker_group_specs
    record = ctx.scaling.record
    whys = [] if record is None else [*record.why, *(why for each in record.groups.values() for why in each.why)]
    at_maximum = max(
        (why.count for why in whys if why.reason == "MaxReached"), default=0
    )  # a request may suit several groups
    unplaced = at_maximum + sum(
        why.count for why in whys if why.reason in {"NoFittingGroup", "NodeBusy", "TopologyUnmet"}
    )
    yield StageLine(
        Stage.DEMAND,
        messages.demand(
            is_autoscaled=cluster.is_autoscaled,
            unplaced=unplaced,
            has_record=record is not None,
            is_head_down=any(why.reason == "HeadDown" for why in whys),
        ),
    )
    decided = sum(ctx.scaling.desired_replicas_of(group).replicas * max(0, group.num_of_hosts) for group in groups)
    yield StageLine(Stage.DECISION, _decision_text(ctx), decided)
    wanted = _wanted(ctx)
    yield StageLine(Stage.WANTED, messages.wanted([(group.group_name, ctx.wanted(group)) for group in groups]), wanted)
    if not ctx.has_pods:
        ready, available = (_number(cluster.status, key) for key in ("readyWorkerReplicas", "availableWorkerReplicas"))
        yield StageLine(Stage.PODS, messages.pods_by_status(available, ready), wanted, available)
        yield StageLine(Stage.NODES, messages.NODES_UNKNOWN)
        return
    names = {group.group_name for group in groups}
    workers = [pod for pod in ctx.observed.workers if pod.group in names and not pod.is_terminating]
    ready = sum(pod.is_running_and_ready for pod in workers)
    yield StageLine(Stage.PODS, messages.pods(ready, head=_head_text(ctx)), wanted, len(workers))
    placed = [pod for pod in workers if pod.node_name]
    text = messages.nodes(len({pod.node_name for pod in placed}), len(workers) - len(placed))
    yield StageLine(Stage.NODES, text, len(workers), len(placed))


def _decision_text(ctx: _Context) -> str:
    if not ctx.cluster.is_autoscaled:
        return messages.DECIDED_BY_SPEC
    if ctx.is_paused:
        return messages.DECIDED_BY_SPEC_PAUSED
    if ctx.scaling.record is not None:
        at = ctx.scaling.record.at
        return messages.decided_by_record(timestamp(at) if at else "")
    if ctx.has_rays_autoscaler:
        return messages.DECIDED_BY_RAY
    return messages.DECIDED_BY_SPEC_YET


def _head_text(ctx: _Context) -> str:
    head = ctx.observed.head
    if head is None:
        return "missing"
    return "ready" if head.is_running_and_ready and not head.is_terminating else "not ready"


def _pod_lines(ctx: _Context) -> Iterator[PodLine]:
    for pod in ctx.observed.pods:
        if pod.is_running_and_ready and not pod.is_terminating:
            continue
        failure = failure_of(pod)
        reason = failure.reason if failure else "Terminating" if pod.is_terminating else ""
        yield PodLine(pod.name, pod.group, pod.phase, pod.node_name, reason, failure.message if failure else "")


def _notes(ctx: _Context) -> Iterator[str]:
    if ctx.has_rays_autoscaler and not ctx.is_paused:
        yield messages.rays_autoscaler(ctx.cluster.spec.ray_version)
    unsupported = ctx.condition(constants.UNSUPPORTED)
    if unsupported is not None:
        yield messages.unsupported(str(unsupported.get("message") or ""))
    record = ctx.scaling.record
    for name, decision in sorted(record.groups.items()) if record else ():
        yield from (messages.draining(name, text_of(why)) for why in decision.why if why.reason == DRAINING)
    for group in ctx.cluster.spec.worker_group_specs:
        maximum = group.max_replicas
        if maximum is not None and not group.suspend and ctx.scaling.desired_replicas_of(group).replicas >= maximum:
            yield messages.at_maximum(group.group_name, maximum)
    for pod in ctx.observed.kept:
        yield messages.failed_pod_kept(pod.name)


def _size(ctx: _Context) -> Size:
    limits = [_max_pods(group) for group in ctx.cluster.spec.worker_group_specs]
    maximum = sum(limit or 0 for limit in limits) if ctx.cluster.is_autoscaled and None not in limits else None
    phase, stored = suspension_of(ctx.cluster), find_condition(ctx.conditions, constants.SUSPENDED)
    if phase is Suspension.NONE:
        return Size(_wanted(ctx), _ready(ctx), _wanted(ctx), maximum)
    since = str(stored.get("lastTransitionTime") or "") if stored and phase is Suspension.SUSPENDED else ""
    return Size(0, _ready(ctx), ctx.total(ctx.scaling), maximum, Phase.SUSPENDED, since)


def _max_pods(group: WorkerGroupSpec) -> int | None:
    """The most pods that the group may have; None: no limit."""
    maximum = group.max_replicas
    return None if maximum is None or maximum >= MAX_INT32 else maximum * max(0, group.num_of_hosts)


def _wanted(ctx: _Context) -> int:
    return sum(map(ctx.wanted, ctx.cluster.spec.worker_group_specs))


def _ready(ctx: _Context) -> int:
    """Ready workers of the groups in the spec; those of the status, where pods cannot be read."""
    if not ctx.has_pods:
        return _number(ctx.cluster.status, "readyWorkerReplicas")
    names = {group.group_name for group in ctx.cluster.spec.worker_group_specs}
    workers = (pod for pod in ctx.observed.workers if pod.group in names)
    return sum(pod.is_running_and_ready and not pod.is_terminating for pod in workers)


def _number(status: Mapping[str, Any], key: str) -> int:
    found = status.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0
