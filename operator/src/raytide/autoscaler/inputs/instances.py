"""Which nodes does the cluster have, are on their way, or are leaving?

Takes the pods, the Ray nodes, how many pods are asked for, names to delete and drains under way, and gives one instance
each with its status in Ray's words (AS §3); nothing is remembered but timers, so a restart changes nothing (D12). A pod
that leaves, or a Ray node without a pod, is no capacity; a raylet that restarted is the same instance; a Ray node nobody
launched is capacity and nothing else (V-9, B-24). Pure; called by tick.py, and a thousand dead nodes cost one look each.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.inputs.lifecycle import (
    DEFAULT_LIMITS,
    NO_RAY_NODE,
    NO_RESTARTS,
    Ask,
    Deaths,
    Stage,
    Stay,
    TimeLimits,
    Timers,
    ask_again,
    must_end,
    next_asks,
    next_restarts,
    next_stay,
    paused,
    status_of,
)
from raytide.autoscaler.inputs.sight import Seen, Sight, head_of
from raytide.autoscaler.inputs.startup import restart_count, startup_of
from raytide.autoscaler.inputs.steady import UNKNOWN, Known, Steady
from raytide.autoscaler.model import COUNTABLE, HEAD_TYPE, Instance, NodeStatus, NodeType, RayNode, Status

MOST_ASKS: Final = 10_000
"""Of one group: `replicas: 2000000000` must not fill our memory."""
NO_TIMERS: Final = Timers()


@dataclass(frozen=True, slots=True)
class Instances:
    """All instances, head first, then pods as they were created, then what is asked for, then unmanaged Ray nodes."""

    instances: tuple[Instance, ...] = ()
    timers: Timers = field(default_factory=Timers)
    to_end: frozenset[str] = frozenset()
    """Pods that are of no use any more and that nobody has told to end: name them, no drain is needed (AS §3.4 l)."""
    overdue: frozenset[str] = frozenset()
    """Instances on their way out for so long that it is worth a word (AS §3.4 j)."""
    is_head_running: bool = False
    """Without it nothing is scaled (AS §3.4 k)."""
    pods: Mapping[str, PodView] = field(default_factory=dict)
    """By instance id."""
    known: Known = field(default=UNKNOWN, compare=False, repr=False)
    """For the next look."""

    def by_group(self) -> dict[str, list[Instance]]:
        """The instances of each group, in order."""
        found: dict[str, list[Instance]] = {}
        for instance in self.instances:
            found.setdefault(instance.node_type, []).append(instance)
        return found

    def last_joined_s(self) -> dict[str, float]:
        """By group, when the last one of those that are there registered; a group of which none did is not here."""
        found: dict[str, float] = {}
        for name, stay in self.timers.stays.items():
            pod = self.pods.get(name)
            if pod is not None and stay.joined_s is not None:
                found[pod.group] = max(stay.joined_s, found.get(pod.group, stay.joined_s))
        return found


def instances(
    sight: Sight, timers: Timers = NO_TIMERS, limits: TimeLimits = DEFAULT_LIMITS, known: Known = UNKNOWN
) -> Instances:
    """Every instance of this moment, the timers and what is known for the next."""
    seen = Seen.of(sight, known)
    head = head_of([pod for pod in seen.pods.pods if pod.is_head], seen)
    workers = [pod for pod in seen.pods.pods if not pod.is_head]
    look = _Look(sight, seen, timers, limits, _is_running(head, sight, seen))
    there = workers if head is None else [head, *workers]
    stays: dict[str, Stay] = {}
    found: list[Instance] = []
    steady: dict[str, Steady] = {}
    moving: list[PodView] = []
    for pod in there:
        node, held = seen.node_of(pod), seen.steady.get(pod.name)
        if held is None or node is None or not look.holds(held, pod, node):
            stay, instance = look.at(pod, node)
            moving.append(pod)
            held = Steady(pod, node, stay, instance) if node is not None and stay.stage is Stage.RUNNING else None
        if held is not None:
            steady[pod.name], stay, instance = held, held.stay, held.instance
        stays[pod.name] = stay
        found.append(instance)
    staying = [pod for pod in workers if stays[pod.name].stage is not Stage.LEAVING]
    asked, asks = _asked(sight, seen, staying, timers, limits)
    moving = [pod for pod in moving if not pod.is_head]
    came = {pod.group for pod in moving if pod.name not in timers.stays}
    return Instances(
        instances=(*(instance for instance in found if not _is_nothing(instance)), *asked, *_unmanaged(seen, head)),
        timers=Timers(
            stays=stays,
            asks=asks,
            stalled_s=_since(asks, came, timers.stalled_s, sight.now_s),
            came_s=_since({pod.group for pod in workers}, came, timers.came_s, sight.now_s),
            deaths=_deaths(moving, stays, timers, sight.now_s) if look.is_head_running else timers.deaths,
        ),
        to_end=_to_end(moving, stays, seen, sight.now_s, limits),
        overdue=_overdue(stays, sight.now_s, limits),
        is_head_running=look.is_head_running,
        pods={pod.name: pod for pod in there},
        known=Known(seen.pods, seen.skipped, steady),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """At one pod after the other."""

    sight: Sight
    seen: Seen
    timers: Timers
    limits: TimeLimits
    is_head_running: bool

    def holds(self, held: Steady, pod: PodView, node: RayNode) -> bool:
        """Whether a pod with a running Ray node is what it was, and nothing around it says otherwise."""
        return (
            held.pod is pod
            and held.node is node
            and self.timers.stays.get(pod.name) is held.stay
            and node.node_id not in self.sight.drains
            and (pod.is_head or (pod.name not in self.sight.to_delete and self.seen.is_in_spec(pod)))
        )

    def at(self, pod: PodView, node: RayNode | None) -> tuple[Stay, Instance]:
        """Since when a pod is where it is, and its instance."""
        now_s = self.sight.now_s
        stage = _stage(pod, node, self.sight, self.seen)
        old, node_id, step, restarts = self.timers.stays.get(pod.name), node.node_id if node else "", "", NO_RESTARTS
        if stage in NO_RAY_NODE:
            restarts = next_restarts(old.restarts if old else None, restart_count(pod), now_s)
            step = startup_of(pod, is_crash_loop=restarts.is_crash_loop(now_s, self.limits.broken_s)).step
        stay = next_stay(old, stage, node_id, now_s, step, restarts=restarts)
        stay = stay if self.is_head_running else paused(stay, now_s)
        status = status_of(stay, now_s, self.limits)
        is_forgotten = stay.stage is Stage.VANISHED and status in COUNTABLE
        shown = Status.RAY_RUNNING if is_forgotten else status
        return stay, _instance(pod, node, shown, self.seen, is_forgotten=is_forgotten)


def _is_running(head: PodView | None, sight: Sight, seen: Seen) -> bool:
    if head is None:
        return seen.bare_head is not None
    return _stage(head, seen.node_of(head), sight, seen) is Stage.RUNNING


# --- what is there ---------------------------------------------------------------------------------------------------


def _stage(pod: PodView, node: RayNode | None, sight: Sight, seen: Seen) -> Stage:
    is_ordered = not pod.is_head and (pod.name in sight.to_delete or not seen.is_in_spec(pod))
    if pod.is_terminating or pod.is_finished or is_ordered:
        return Stage.LEAVING
    if node is None:
        return Stage.STARTING if pod.node_name or pod.is_running else Stage.UNPLACED
    if node.status is NodeStatus.DEAD:
        return Stage.DEAD
    if node.status is NodeStatus.DRAINING:
        return Stage.DRAINING
    return Stage.DRAIN_ASKED if node.node_id in sight.drains else Stage.RUNNING


def _instance(pod: PodView, node: RayNode | None, status: Status, seen: Seen, *, is_forgotten: bool) -> Instance:
    """One pod's instance; while its Ray node is not there, it promises what its type has (AS:S-3, AS:S-4).

    One that the GCS has forgotten may be at work: it counts, and has nothing free for others.
    """
    bare = Instance(
        instance_id=pod.name,
        node_type=HEAD_TYPE if pod.is_head else "" if pod.group in seen.skipped else pod.group,
        status=status,
        is_head=pod.is_head,
        pod=pod.name,
        replica=pod.replica_name,
    )
    if node is not None and node.is_alive:
        return _with_node(bare, node)
    promised = _as_promised(bare, seen.types.get(bare.node_type))
    return replace(promised, available=()) if is_forgotten else promised


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


def _as_promised(bare: Instance, node_type: NodeType | None) -> Instance:
    if node_type is None or bare.status not in COUNTABLE:
        return bare
    return replace(bare, total=node_type.resources, available=node_type.resources, labels=node_type.labels)


def _is_nothing(instance: Instance) -> bool:
    """A pod of a group nobody can read, without a Ray node: no capacity, and nothing to be done about it."""
    return instance.is_unmanaged and instance.status is not Status.RAY_RUNNING


def _unmanaged(seen: Seen, head: PodView | None) -> tuple[Instance, ...]:
    """Ray nodes without a pod of ours: what somebody joined by hand, and a head that is no pod."""
    found = [
        _with_node(Instance(node.node_id, "", Status.RAY_RUNNING), node)
        for node in seen.bare
        if node.status is not NodeStatus.DRAINING
    ]
    if head is None and seen.bare_head is not None:
        bare = Instance(seen.bare_head.node_id, HEAD_TYPE, Status.RAY_RUNNING, is_head=True)
        found.insert(0, _with_node(bare, seen.bare_head))
    return tuple(found)


# --- what is asked for -----------------------------------------------------------------------------------------------


def _asked(
    sight: Sight, seen: Seen, staying: Sequence[PodView], timers: Timers, limits: TimeLimits
) -> tuple[list[Instance], dict[str, tuple[Ask, ...]]]:
    """An instance for each pod asked for and not there, and since when it is asked for."""
    wanted = sight.types.wanted if sight.wanted is None else sight.wanted
    pods_by_group: dict[str, list[PodView]] = {}
    for pod in staying:
        pods_by_group.setdefault(pod.group, []).append(pod)
    found: list[Instance] = []
    asks: dict[str, tuple[Ask, ...]] = {}
    for name, node_type in seen.types.items():
        pods = pods_by_group.get(name, [])
        missing = 0 if node_type.is_head or name in seen.suspended else min(wanted.get(name, 0) - len(pods), MOST_ASKS)
        if missing > 0:
            open_asks = next_asks(timers.asks.get(name, ()), missing, sight.now_s)
            answers = [ask_again(ask, sight.now_s, limits) for ask in open_asks]
            asks[name] = tuple(ask for _, ask in answers)
            found += _requested(node_type, pods, [status for status, _ in answers])
    return found, asks


def _requested(node_type: NodeType, pods: Sequence[PodView], statuses: Sequence[Status]) -> list[Instance]:
    replicas = _replicas_to_fill(node_type, pods, len(statuses))
    return [
        _as_promised(
            Instance(f"{node_type.name}-requested-{index}", node_type.name, status, replica=replica), node_type
        )
        for index, (status, replica) in enumerate(zip(statuses, replicas, strict=True))
    ]


def _replicas_to_fill(node_type: NodeType, pods: Sequence[PodView], missing: int) -> list[str]:
    """Of a multi-host group: to which replica each missing host belongs, incomplete ones first (B-8)."""
    hosts = node_type.num_of_hosts
    if hosts == 1:
        return [""] * missing
    sizes = Counter(pod.replica_name for pod in pods)
    gaps = [name for name, size in sizes.items() for _ in range(hosts - size)]
    new = [f"{node_type.name}-requested-replica-{index // hosts}" for index in range(max(0, missing - len(gaps)))]
    return [*gaps[:missing], *new]


def _since(
    groups: Iterable[str], came: Collection[str], before_s: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """By group, when a pod of it came last: each counts once, when it is first seen, whatever becomes of it later."""
    return {group: now_s if group in came else before_s.get(group, now_s) for group in groups}


def _deaths(workers: Iterable[PodView], stays: Mapping[str, Stay], timers: Timers, now_s: float) -> dict[str, Deaths]:
    """A pod counts once, when it is first seen to have ended; one that registers wipes the slate of its group."""
    found = dict(timers.deaths)
    for pod in workers:
        stay, old = stays[pod.name], timers.stays.get(pod.name)
        if stay.joined_s == now_s:
            found.pop(pod.group, None)
        elif (
            pod.is_finished and not stay.node_id and stay.since_s == now_s and (old is None or old.stage in NO_RAY_NODE)
        ):
            count = found[pod.group].count if pod.group in found else 0
            found[pod.group] = Deaths(count + 1, now_s, f"pod {pod.name} ended before its Ray node registered")
    return found


# --- what has to end -------------------------------------------------------------------------------------------------


def _to_end(
    workers: Iterable[PodView], stays: Mapping[str, Stay], seen: Seen, now_s: float, limits: TimeLimits
) -> frozenset[str]:
    return frozenset(
        pod.name for pod in workers if pod.group not in seen.skipped and must_end(stays[pod.name], now_s, limits)
    )


def _overdue(stays: Mapping[str, Stay], now_s: float, limits: TimeLimits) -> frozenset[str]:
    leaving = (Stage.DRAINING, Stage.DEAD, Stage.LEAVING)
    return frozenset(
        name for name, stay in stays.items() if stay.stage in leaving and now_s - stay.since_s > limits.warn_s
    )
