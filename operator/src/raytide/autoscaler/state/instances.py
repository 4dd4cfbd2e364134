"""Instances of the cluster: running, launching and terminating nodes.

Takes the pods, the Ray nodes, the requested pod counts, names to delete and drains in progress. Returns one instance
each with its status in Ray's terms (AS §3). Only timers are remembered, so a restart changes nothing (D12). A
terminating pod, and a Ray node whose pod is gone, are no capacity; a restarted raylet is the same instance; a Ray node
that was not launched through the cluster only counts as capacity (V-9, B-24). Pure; called by cluster_state.py.
Each dead node is visited once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from raytide.api.pod import PodView
from raytide.autoscaler.model import COUNTABLE, HEAD_TYPE, Instance, NodeStatus, NodeType, RayNode, Status
from raytide.autoscaler.replicas import replicas_to_fill
from raytide.autoscaler.state.instance_cache import UNKNOWN, CachedInstance, InstanceCache
from raytide.autoscaler.state.instance_lifecycle import (
    DEFAULT_LIMITS,
    NO_RESTARTS,
    STAGES_BEFORE_RAY_NODE,
    EarlyExits,
    OpenRequest,
    Stage,
    StageEntry,
    TimeLimits,
    Timers,
    has_failed,
    next_open_requests,
    next_restarts,
    next_stage,
    paused,
    retry_request,
    status_of,
)
from raytide.autoscaler.state.observation import InstanceInputs, ObservedState, head_of
from raytide.autoscaler.state.pod_startup import is_crashed, restart_count, startup_of

MAX_OPEN_REQUESTS: Final = 10_000
"""Per group: `replicas: 2000000000` must not exhaust memory."""
NO_TIMERS: Final = Timers()


@dataclass(frozen=True, slots=True)
class Instances:
    """All instances: head first, pods by creation time, then requested ones, then unmanaged Ray nodes."""

    instances: tuple[Instance, ...] = ()
    timers: Timers = field(default_factory=Timers)
    failed_pods: frozenset[str] = frozenset()
    """Pods without further use that are not yet named for deletion; they need no drain (AS §3.4 l)."""
    overdue: frozenset[str] = frozenset()
    """Instances that have been stopping or terminating for so long that a warning is due (AS §3.4 j)."""
    is_head_running: bool = False
    """Without a running head nothing is scaled (AS §3.4 k)."""
    pods: Mapping[str, PodView] = field(default_factory=dict)
    """By instance id."""
    known: InstanceCache = field(default=UNKNOWN, compare=False, repr=False)
    """Cache for the next tick."""

    def by_group(self) -> dict[str, list[Instance]]:
        """Instances by group, in order."""
        found: dict[str, list[Instance]] = {}
        for instance in self.instances:
            found.setdefault(instance.node_type, []).append(instance)
        return found

    def last_registered_s(self) -> dict[str, float]:
        """By group, when the last of its current nodes registered; groups whose nodes were registered before are left out."""
        found: dict[str, float] = {}
        for name, entry in self.timers.stages.items():
            pod = self.pods.get(name)
            if pod is not None and entry.registered_s is not None:
                found[pod.group] = max(entry.registered_s, found.get(pod.group, entry.registered_s))
        return found


def instances(
    inputs: InstanceInputs,
    timers: Timers = NO_TIMERS,
    limits: TimeLimits = DEFAULT_LIMITS,
    known: InstanceCache = UNKNOWN,
) -> Instances:
    """All current instances, plus the timers and the cache for the next tick."""
    observed = ObservedState.of(inputs, known)
    head = head_of([pod for pod in observed.pods.pods if pod.is_head], observed)
    workers = [pod for pod in observed.pods.pods if not pod.is_head]
    classifier = _PodClassifier(inputs, observed, timers, limits, _is_running(head, inputs, observed))
    present = workers if head is None else [head, *workers]
    found, stages, cached, moving = _classify(present, observed, classifier)
    staying = [pod for pod in workers if stages[pod.name].stage is not Stage.TERMINATING]
    requested, open_requests = _requested_instances(inputs, observed, staying, timers, limits)
    moving = [pod for pod in moving if not pod.is_head]
    groups_with_new_pods = {pod.group for pod in moving if pod.name not in timers.stages}
    return Instances(
        instances=(
            *(instance for instance in found if not _is_nothing(instance)),
            *requested,
            *_unmanaged(observed, head),
        ),
        timers=Timers(
            stages=stages,
            open_requests=open_requests,
            stalled_s=_since(open_requests, groups_with_new_pods, timers.stalled_s, inputs.now_s),
            last_new_pod_s=_since(
                {pod.group for pod in workers}, groups_with_new_pods, timers.last_new_pod_s, inputs.now_s
            ),
            early_exits=_early_exits(moving, stages, timers, inputs.now_s)
            if classifier.is_head_running
            else timers.early_exits,
        ),
        failed_pods=_failed_pods(moving, stages, observed, inputs.now_s, limits),
        overdue=_overdue(stages, inputs.now_s, limits),
        is_head_running=classifier.is_head_running,
        pods={pod.name: pod for pod in present},
        known=InstanceCache(observed.pods, observed.skipped, cached),
    )


class _Classified(NamedTuple):
    """Instances of pods in their order, what is kept of each by its name, and the pods that were not in the cache."""

    found: list[Instance]
    stages: dict[str, StageEntry]
    cached: dict[str, CachedInstance]
    moving: list[PodView]


def _classify(pods: list[PodView], observed: ObservedState, classifier: "_PodClassifier") -> _Classified:
    """Classify the pods that have changed; the others are as in the cache."""
    result = _Classified([], {}, {}, [])
    for pod in pods:
        node, held = observed.node_of(pod), observed.cached.get(pod.name)
        if held is None or node is None or not classifier.is_still_valid(held, pod, node):
            entry, instance = classifier.classify(pod, node)
            result.moving.append(pod)
            is_kept = entry.stage is Stage.RUNNING
            held = CachedInstance(pod, node, entry, instance) if is_kept and node is not None else None
        if held is not None:
            result.cached[pod.name], entry, instance = held, held.entry, held.instance
        result.stages[pod.name] = entry
        result.found.append(instance)
    return result


@dataclass(frozen=True, slots=True)
class _PodClassifier:
    """Determines stage and instance of one pod at a time."""

    inputs: InstanceInputs
    observed: ObservedState
    timers: Timers
    limits: TimeLimits
    is_head_running: bool

    def is_still_valid(self, held: CachedInstance, pod: PodView, node: RayNode) -> bool:
        """Whether the cached entry of a pod with a running Ray node is still valid."""
        return (
            held.pod is pod
            and held.node is node
            and self.timers.stages.get(pod.name) is held.entry
            and node.node_id not in self.inputs.drains
            and (pod.is_head or (pod.name not in self.inputs.to_delete and self.observed.is_in_spec(pod)))
        )

    def classify(self, pod: PodView, node: RayNode | None) -> tuple[StageEntry, Instance]:
        """Stage and instance of one pod."""
        now_s = self.inputs.now_s
        stage = _stage(pod, node, self.inputs, self.observed)
        old, node_id, step, restarts = self.timers.stages.get(pod.name), node.node_id if node else "", "", NO_RESTARTS
        if stage in STAGES_BEFORE_RAY_NODE:
            known = old.restarts if old else None
            restarts = next_restarts(known, restart_count(pod), now_s, is_crashed=is_crashed(pod))
            step = startup_of(pod, is_crash_loop=restarts.is_crash_loop(now_s, self.limits.broken_s)).step
        entry = next_stage(old, stage, node_id, now_s, step, restarts=restarts)
        entry = entry if self.is_head_running else paused(entry, now_s)
        status = status_of(entry, now_s, self.limits)
        is_forgotten = entry.stage is Stage.VANISHED and status in COUNTABLE
        shown = Status.RAY_RUNNING if is_forgotten else status
        return entry, _instance(pod, node, shown, self.observed, is_forgotten=is_forgotten)


def _is_running(head: PodView | None, inputs: InstanceInputs, observed: ObservedState) -> bool:
    if head is None:
        return observed.bare_head is not None
    return _stage(head, observed.node_of(head), inputs, observed) is Stage.RUNNING


# --- pods and nodes --------------------------------------------------------------------------------------------------


def _stage(pod: PodView, node: RayNode | None, inputs: InstanceInputs, observed: ObservedState) -> Stage:
    is_named_for_deletion = not pod.is_head and (pod.name in inputs.to_delete or not observed.is_in_spec(pod))
    if pod.is_terminating or pod.is_finished or is_named_for_deletion:
        return Stage.TERMINATING
    if node is None:
        return Stage.STARTING if pod.node_name or pod.is_running else Stage.UNPLACED
    if node.status is NodeStatus.DEAD:
        return Stage.DEAD
    if node.status is NodeStatus.DRAINING:
        return Stage.DRAINING
    return Stage.DRAIN_REQUESTED if node.node_id in inputs.drains else Stage.RUNNING


def _instance(
    pod: PodView, node: RayNode | None, status: Status, observed: ObservedState, *, is_forgotten: bool
) -> Instance:
    """Instance of one pod; until its Ray node is alive it has the resources of its node type (AS:S-3, AS:S-4).

    A node the GCS no longer lists may still run tasks: it counts, and has no resources available.
    """
    bare = Instance(
        instance_id=pod.name,
        node_type=HEAD_TYPE if pod.is_head else "" if pod.group in observed.skipped else pod.group,
        status=status,
        is_head=pod.is_head,
        pod=pod.name,
        replica=pod.replica_name,
    )
    if node is not None and node.is_alive:
        return _with_node(bare, node)
    bare = _with_type_resources(bare, observed.types.get(bare.node_type))
    return replace(bare, available=()) if is_forgotten else bare


def _with_node(bare: Instance, node: RayNode) -> Instance:
    return Instance(  # spelled out: `replace` takes four times as long, and there are thousands
        bare.instance_id,
        bare.node_type,
        bare.status,
        is_head=bare.is_head,
        pod=bare.pod,
        replica=bare.replica,
        node_id=node.node_id,
        total=node.total,
        available=node.available,
        labels=node.labels,
        dynamic_labels=node.dynamic_labels,
        idle_ms=node.idle_ms,
    )


def _with_type_resources(bare: Instance, node_type: NodeType | None) -> Instance:
    if node_type is None or bare.status not in COUNTABLE:
        return bare
    return replace(bare, total=node_type.resources, available=node_type.resources, labels=node_type.labels)


def _is_nothing(instance: Instance) -> bool:
    """Whether it is a pod of an unreadable group without a Ray node: no capacity and no action possible."""
    return instance.is_unmanaged and instance.status is not Status.RAY_RUNNING


def _unmanaged(observed: ObservedState, head: PodView | None) -> tuple[Instance, ...]:
    """Ray nodes without a pod of this cluster: nodes joined by hand, and a head that is not a pod."""
    found = [
        _with_node(Instance(node.node_id, "", Status.RAY_RUNNING), node)
        for node in observed.bare
        if node.status is not NodeStatus.DRAINING
    ]
    if head is None and observed.bare_head is not None:
        bare = Instance(observed.bare_head.node_id, HEAD_TYPE, Status.RAY_RUNNING, is_head=True)
        found.insert(0, _with_node(bare, observed.bare_head))
    return tuple(found)


# --- requested instances ---------------------------------------------------------------------------------------------


def _requested_instances(
    inputs: InstanceInputs, observed: ObservedState, staying: Sequence[PodView], timers: Timers, limits: TimeLimits
) -> tuple[list[Instance], dict[str, tuple[OpenRequest, ...]]]:
    """An instance for each requested pod that does not exist yet, and the open requests by group."""
    desired_hosts = inputs.types.desired_hosts if inputs.desired_hosts is None else inputs.desired_hosts
    pods_by_group: dict[str, list[PodView]] = {}
    for pod in staying:
        pods_by_group.setdefault(pod.group, []).append(pod)
    requested: list[Instance] = []
    open_requests: dict[str, tuple[OpenRequest, ...]] = {}
    for name, node_type in observed.types.items():
        pods = pods_by_group.get(name, [])
        missing = (
            0
            if node_type.is_head or name in observed.suspended
            else min(desired_hosts.get(name, 0) - len(pods), MAX_OPEN_REQUESTS)
        )
        if missing > 0:
            requests = next_open_requests(timers.open_requests.get(name, ()), missing, inputs.now_s)
            retried = [retry_request(request, inputs.now_s, limits) for request in requests]
            open_requests[name] = tuple(request for _, request in retried)
            requested += _requested(node_type, pods, [status for status, _ in retried])
    return requested, open_requests


def _requested(node_type: NodeType, pods: Sequence[PodView], statuses: Sequence[Status]) -> list[Instance]:
    replicas = replicas_to_fill(node_type, Counter(pod.replica_name for pod in pods), len(statuses))
    return [
        _with_type_resources(
            Instance(f"{node_type.name}-requested-{index}", node_type.name, status, replica=replica), node_type
        )
        for index, (status, replica) in enumerate(zip(statuses, replicas, strict=True))
    ]


def _since(
    groups: Iterable[str], with_new_pods: Collection[str], before_s: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """By group, when a new pod last appeared; each pod counts once, when it is first observed."""
    return {group: now_s if group in with_new_pods else before_s.get(group, now_s) for group in groups}


def _early_exits(
    workers: Iterable[PodView], stages: Mapping[str, StageEntry], timers: Timers, now_s: float
) -> dict[str, EarlyExits]:
    """By group, pods that ended before their Ray node registered, each counted once; a node that registers resets it."""
    counts = dict(timers.early_exits)
    for pod in workers:
        entry, old = stages[pod.name], timers.stages.get(pod.name)
        has_registered_now = entry.registered_s == now_s
        has_ended_now = pod.is_finished and entry.since_s == now_s
        had_ray_node = bool(entry.node_id) or (old is not None and old.stage not in STAGES_BEFORE_RAY_NODE)
        if has_registered_now:
            counts.pop(pod.group, None)
        elif has_ended_now and not had_ray_node:
            count = counts[pod.group].count if pod.group in counts else 0
            counts[pod.group] = EarlyExits(count + 1, now_s, f"pod {pod.name} ended before its Ray node registered")
    return counts


# --- instances to terminate ------------------------------------------------------------------------------------------


def _failed_pods(
    workers: Iterable[PodView],
    stages: Mapping[str, StageEntry],
    observed: ObservedState,
    now_s: float,
    limits: TimeLimits,
) -> frozenset[str]:
    return frozenset(
        pod.name for pod in workers if pod.group not in observed.skipped and has_failed(stages[pod.name], now_s, limits)
    )


def _overdue(stages: Mapping[str, StageEntry], now_s: float, limits: TimeLimits) -> frozenset[str]:
    terminating_stages = (Stage.DRAINING, Stage.DEAD, Stage.TERMINATING)
    return frozenset(
        name
        for name, entry in stages.items()
        if entry.stage in terminating_stages and now_s - entry.since_s > limits.warn_s
    )
