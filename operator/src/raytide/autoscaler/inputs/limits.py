"""Which groups cannot get the nodes they were promised, and what does that leave?

Takes the instances, the words of Kubernetes about their pods and about refused creates, and the back-off that stands in
the record; gives effective node types and instances for the scheduler, so that demand goes to the next fitting group in
the same tick (SC:S2, SC:S13, B-16). A blocked group may have what it has; when its back-off has passed, one replica is
tried; a worker that registers clears it. Back-off lives in the record alone, so a restart changes nothing. Pure; called
by tick.py before the scheduler.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from raytide.api.conditions import ConditionJson, moment_of, timestamp
from raytide.api.pod import PodView
from raytide.api.pod_trouble import Cause
from raytide.api.scaling import Backoff, Why
from raytide.autoscaler.inputs.instances import Instances
from raytide.autoscaler.inputs.lifecycle import DEFAULT_LIMITS, NO_RAY_NODE, Deaths, Stay, TimeLimits
from raytide.autoscaler.inputs.node_autoscaler import UNKNOWN, NodeAutoscaler, wait_s
from raytide.autoscaler.inputs.node_types import NodeTypes
from raytide.autoscaler.inputs.refusals import refusal_of
from raytide.autoscaler.inputs.startup import NOT_PLACED, Unready, limit_s, startup_of
from raytide.autoscaler.model import COUNTABLE, UNSEEN, Instance, NodeType, Status

FIRST_BACKOFF_S: Final = 30.0
LONGEST_BACKOFF_S: Final = 300.0
RECOVERY_S: Final = 600.0
"""How long a failure lowers a group's score (AS:S-23)."""
MOST_RECENT_S: Final = 10.0
NEVER: Final = float("-inf")


class Stuck(StrEnum):
    """Causes without a pod; the others are those of startup.py and api/pod_trouble.py."""

    NO_POD = "NoPodCreated"


NO_ROOM: Final = frozenset({Cause.QUOTA, Cause.FORBIDDEN, Stuck.NO_POD, *NOT_PLACED})
"""Nothing is wrong with such a pod: it may wait for room as long as nobody else can do its work."""
RESTING: Final = "Backoff"
REASONS: Final = frozenset({*Cause, *Stuck, *Unready})


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a group gets no nodes at present."""

    reason: str
    """A code, as in conditions: `QuotaExceeded`, `Unschedulable`, `NeverRegistered`, …"""
    detail: str
    count: int = 0
    """Nodes that are no capacity for it."""
    is_room_missing: bool = False
    """Only room is missing: what waits may wait on, if nobody else can take its work."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler may reckon with."""

    types: tuple[NodeType, ...]
    """With what is available of each now: nothing of a blocked group."""
    instances: tuple[Instance, ...]
    """Without those that are stuck; the scheduler is asked by `fallback.choose`, which sees to both."""
    stuck: tuple[Instance, ...] = ()
    """No capacity; fallback.py says which of them are withdrawn."""
    blocked: Mapping[str, Blocked] = field(default_factory=dict)
    """By group."""
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    """By group, as it is to stand in the record from now on; a group that is not here has none."""
    availability: Mapping[str, float] = field(default_factory=dict)
    """For the scheduler (AS:S-22)."""
    recoverable: Mapping[str, float] = field(default_factory=dict)
    """For the scheduler (AS:S-23)."""
    look_again_s: float | None = None
    """Something may change by the clock alone in so many seconds."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known besides the instances."""

    now: datetime
    now_s: float
    conditions: Sequence[ConditionJson] = ()
    """`status.conditions` of the RayCluster."""
    backoffs: Mapping[str, Backoff | None] = field(default_factory=dict)
    """By group, as it stands in the record."""
    whys: Mapping[str, Sequence[Why]] = field(default_factory=dict)
    """By group, the reasons that stand in the record."""
    node_autoscaler: NodeAutoscaler = UNKNOWN
    """What it says about pods that no node can take."""


def limit(
    found: Instances,
    types: NodeTypes,
    evidence: Evidence,
    time_limits: TimeLimits = DEFAULT_LIMITS,
    recovery_s: float = RECOVERY_S,
) -> Limits:
    """What is left of types and instances when blocked groups and stuck nodes are taken out."""
    facts = _Facts(found.by_group(), found.last_joined_s(), _newest(found))
    views = [
        _view(node_type, found, facts, evidence, time_limits)
        for node_type in types.types
        if not node_type.is_head and node_type.name not in types.suspended
    ]
    view_by_group = {view.name: view for view in views}
    stuck_ids = {instance_id for view in views for instance_id in view.stuck}
    backoffs = {view.name: view.backoff for view in views if view.backoff is not None}
    failed = {name: began(backoff) for name, backoff in backoffs.items()}
    return Limits(
        types=tuple(_effective(kind, view_by_group.get(kind.name)) for kind in types.types),
        instances=tuple(i for i in found.instances if i.instance_id not in stuck_ids),
        stuck=tuple(i for i in found.instances if i.instance_id in stuck_ids),
        blocked={view.name: view.blocked for view in views if view.blocked is not None},
        backoffs=backoffs,
        availability=_availability(failed),
        recoverable={
            name: _recoverable((evidence.now - moment).total_seconds(), recovery_s) for name, moment in failed.items()
        },
        look_again_s=_next_deadline(backoffs.values(), evidence.now),
    )


# --- one group -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _View:
    """One group: what is stuck in it, and how much more it may have."""

    name: str
    stuck: frozenset[str]
    """Instance ids."""
    blocked: Blocked | None
    backoff: Backoff | None
    available: int | None
    """Nodes; None: as many as its type says."""


@dataclass(frozen=True, slots=True)
class _Sticking:
    """One instance that does not come, and why."""

    instance: Instance | None
    """None: nothing of it is left."""
    reason: str
    detail: str
    is_groups_fault: bool = True
    """False where others of the group registered later: then it is this one alone."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is looked up for every group and gathered once: groups times pods is too much for one tick."""

    instances: Mapping[str, Sequence[Instance]]
    """By group."""
    last_joined_s: Mapping[str, float]
    """By group."""
    newest: datetime | None
    """When the newest pod of all was created."""


def _view(node_type: NodeType, found: Instances, facts: _Facts, evidence: Evidence, limits: TimeLimits) -> _View:
    mine = facts.instances.get(node_type.name, ())
    old = _credible(evidence.backoffs.get(node_type.name), evidence.now)
    if old is not None and _has_recovered(old, mine, found, evidence):
        old = None
    is_resting = old is not None and evidence.now < old.until
    last_joined_s = facts.last_joined_s.get(node_type.name, NEVER)
    judge = _Judge.of(node_type.name, found, evidence, limits, is_resting=is_resting, last_joined_s=last_joined_s)
    sticking = [verdict for instance in mine if (verdict := judge.verdict(instance)) is not None]
    sticking += judge.crash_loop(mine, began_s=_began_s(old, evidence))
    proof = next((verdict for verdict in sticking if verdict.is_groups_fault), None)
    backoff = _next_backoff(old, evidence.now, facts.newest, is_blocked=proof is not None)
    is_blocked = backoff is not None and evidence.now < backoff.until
    stuck = _stuck({verdict.instance.instance_id for verdict in sticking if verdict.instance is not None}, mine)
    if is_blocked:
        stuck |= {instance.instance_id for instance in mine if instance.status in UNSEEN}
    sound = [i for i in mine if i.status in COUNTABLE and i.instance_id not in stuck]
    return _View(
        node_type.name,
        frozenset(stuck),
        _blocked(node_type.name, proof, backoff, len(stuck), evidence) if backoff and is_blocked else None,
        backoff,
        None if backoff is None else 0 if is_blocked else _probe(node_type, sound),
    )


def _probe(node_type: NodeType, sound: Iterable[Instance]) -> int:
    """After the back-off one replica is tried; one that is on its way already is that one."""
    is_coming = any(instance.status is not Status.RAY_RUNNING for instance in sound)
    return 0 if is_coming else node_type.num_of_hosts


def _effective(node_type: NodeType, view: _View | None) -> NodeType:
    return node_type if view is None else replace(node_type, available=view.available)


def _blocked(group: str, proof: _Sticking | None, backoff: Backoff, count: int, evidence: Evidence) -> Blocked:
    """Why; while a group rests and nothing is stuck in it any more, that is what was said when it was blocked."""
    if proof is not None:
        return Blocked(proof.reason, proof.detail, count, is_room_missing=proof.reason in NO_ROOM)
    said = next((why for why in evidence.whys.get(group, ()) if why.reason in REASONS), None)
    if said is not None:
        return Blocked(said.reason, said.message, said.count, is_room_missing=said.reason in NO_ROOM)
    return Blocked(RESTING, f"it was blocked; one replica is tried at {timestamp(backoff.until)}", count)


def _stuck(ids: set[str], mine: Sequence[Instance]) -> set[str]:
    """A host that does not come makes its whole replica useless, unless others of it work (B-8)."""
    replicas = {instance.replica for instance in mine if instance.replica and instance.instance_id in ids}
    replicas -= {instance.replica for instance in mine if instance.status is Status.RAY_RUNNING}
    return ids | {i.instance_id for i in mine if i.replica in replicas and i.status in COUNTABLE}


# --- one instance ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Judge:
    """Whether the instances of one group are coming, and if not, why."""

    found: Instances
    now_s: float
    limits: TimeLimits
    is_resting: bool
    """The group is in its back-off: what has trouble needs no second look."""
    refused: tuple[str, str] | None
    """What the API said when a pod of the group was to be created."""
    is_silent: bool
    """No pod for long, while other groups got theirs: if nobody gets any, it is not the group."""
    last_joined_s: float
    """When one of the group registered last."""
    deaths: Deaths | None
    node_autoscaler: NodeAutoscaler

    @classmethod
    def of(
        cls,
        group: str,
        found: Instances,
        evidence: Evidence,
        limits: TimeLimits,
        *,
        is_resting: bool,
        last_joined_s: float,
    ) -> "_Judge":
        others = (came_s for name, came_s in found.timers.came_s.items() if name != group)
        since_s = found.timers.stalled_s.get(group, evidence.now_s)
        return cls(
            found=found,
            now_s=evidence.now_s,
            limits=limits,
            is_resting=is_resting,
            refused=refusal_of(evidence.conditions, group),
            is_silent=evidence.now_s - since_s > limits.silent_s and max(others, default=since_s) > since_s,
            last_joined_s=last_joined_s,
            deaths=found.timers.deaths.get(group),
            node_autoscaler=evidence.node_autoscaler,
        )

    def verdict(self, instance: Instance) -> _Sticking | None:
        """Why this one does not come; None if it may yet."""
        if instance.status in UNSEEN:
            return self._no_pod(instance)
        pod, stay = self.found.pods.get(instance.instance_id), self.found.timers.stays.get(instance.instance_id)
        if pod is None or stay is None or stay.stage not in NO_RAY_NODE:
            return None
        startup = startup_of(pod, is_crash_loop=stay.restarts.is_crash_loop(self.now_s, self.limits.broken_s))
        is_known = self.is_resting and isinstance(startup.reason, Cause) and startup.reason != Cause.UNSCHEDULABLE
        node_s = wait_s(pod.name, self.node_autoscaler, self.limits, is_resting=self.is_resting)
        if self.now_s - stay.since_s <= limit_s(startup, self.limits, node_s=node_s) and not is_known:
            return None
        is_groups_fault = startup.reason in NO_ROOM or self.last_joined_s <= stay.since_s
        return _Sticking(instance, startup.reason, f"pod {pod.name}: {startup.detail}", is_groups_fault)

    def crash_loop(self, mine: Iterable[Instance], began_s: float) -> list[_Sticking]:
        """Pods that ended early and are gone: nothing is stuck, and the group is blocked all the same."""
        if self.deaths is None or self.deaths.last_s <= began_s or self.is_resting:
            return []
        if any(i.status is Status.RAY_RUNNING for i in mine) and self.deaths.count < FLUKES:
            return []
        return [_Sticking(None, Cause.CRASH, f"{self.deaths.detail} ({self.deaths.count} in a row)")]

    def _no_pod(self, instance: Instance) -> _Sticking | None:
        if self.refused is not None:
            return _Sticking(instance, *self.refused)
        if instance.status is Status.ALLOCATION_FAILED or self.is_silent:
            return _Sticking(
                instance, Stuck.NO_POD, "the operator was asked for a pod and neither made one nor said why"
            )
        return None


FLUKES: Final = 3
"""So many pods of a group that otherwise works may end early before it is the group's fault."""


# --- back-off --------------------------------------------------------------------------------------------------------


def delay_s(n: int) -> float:
    """How long a group rests for the n-th time: 30 s, twice that, … 5 minutes."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(max(n, 1) - 1, 10))


def _next_backoff(old: Backoff | None, now: datetime, newest: datetime | None, *, is_blocked: bool) -> Backoff | None:
    """The back-off that stands, the next one when what was tried failed too, or none when all is forgotten."""
    if old is not None and now < old.until:
        return old
    if is_blocked:
        n = 1 if old is None else old.n + 1
        until = now + timedelta(seconds=delay_s(n))
        until = until.replace(microsecond=0) + timedelta(seconds=until.microsecond > 0)
        return Backoff(n, until, newest)
    if old is not None and now > old.until + timedelta(seconds=RECOVERY_S):
        return None
    return old


def _credible(old: Backoff | None, now: datetime) -> Backoff | None:
    """What stands in the record; a clock that ran ahead, here or on an earlier head's node, does not make it longer."""
    if old is None:
        return None
    latest = now.replace(microsecond=0) + timedelta(seconds=delay_s(old.n))
    return old if old.until <= latest + timedelta(seconds=1) else replace(old, until=latest)


def began(backoff: Backoff) -> datetime:
    """When the group was found blocked last."""
    return backoff.until - timedelta(seconds=delay_s(backoff.n))


def _began_s(backoff: Backoff | None, evidence: Evidence) -> float:
    """The same on our own clock; before everything if it never was."""
    if backoff is None:
        return NEVER
    return evidence.now_s - (evidence.now - began(backoff)).total_seconds()


def _has_recovered(old: Backoff, mine: Iterable[Instance], found: Instances, evidence: Evidence) -> bool:
    """Whether a worker of the group registered since it was blocked.

    Seen by us, or told by the age of its pod; a worker that only was there when we started proves nothing.
    """
    began_s = _began_s(old, evidence)
    return any(
        _has_joined_after(found.timers.stays.get(i.instance_id), began_s)
        or _is_younger(found.pods.get(i.instance_id), old.newest)
        for i in mine
        if i.status is Status.RAY_RUNNING
    )


def _has_joined_after(stay: Stay | None, began_s: float) -> bool:
    return stay is not None and stay.joined_s is not None and stay.joined_s > began_s


def _is_younger(pod: PodView | None, newest: datetime | None) -> bool:
    """Both in the API server's time, so that no clock of a node decides."""
    created = None if pod is None else moment_of(pod.creation_timestamp)
    return created is not None and newest is not None and created > newest


def _newest(found: Instances) -> datetime | None:
    texts = max((pod.creation_timestamp for pod in found.pods.values()), default="")
    return moment_of(texts) if texts else None


def _availability(failed: Mapping[str, datetime]) -> dict[str, float]:
    """0 for the group that failed last, a little more for the others (AS:S-22)."""
    latest = max((moment.timestamp() for moment in failed.values()), default=0.0)
    return {name: 1.0 - moment.timestamp() / latest if latest > 0 else 0.0 for name, moment in failed.items()}


def _recoverable(age_s: float, window_s: float) -> float:
    """Nothing at first, then growing with time until all is forgotten (AS:S-23)."""
    if age_s < min(MOST_RECENT_S, window_s / 10):
        return 0.0
    return min(1.0, age_s / window_s)


def _next_deadline(backoffs: Iterable[Backoff], now: datetime) -> float | None:
    waits = [(backoff.until - now).total_seconds() for backoff in backoffs]
    return min((wait for wait in waits if wait > 0), default=None)
