"""Availability of worker groups: blocked groups, stuck instances and backoff.

Takes the instances, the pod conditions, rejected creates, scale gates and the backoff in the decision record. Returns
effective node types and instances for the scheduler, so that demand moves to the next feasible group in the same tick
(SC:S2, SC:S13, B-16). A blocked group keeps its nodes and gets no new ones; after its backoff one replica is tried, and a
worker that registers clears the backoff. Backoff is stored in the record only, so a restart changes nothing. A scale gate
blocks a group without a backoff, because its controller removes it when the group can get nodes again. Pure; called by
cluster_state.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from raytide.api.autoscaler_decision import Backoff
from raytide.api.conditions import parse_timestamp, timestamp
from raytide.api.pod import PodView
from raytide.api.pod_failure import Cause
from raytide.autoscaler.model import COUNTABLE, STARTING, UNSEEN, Instance, NodeType, Status
from raytide.autoscaler.replicas import touched_replicas
from raytide.autoscaler.state.instance_lifecycle import (
    DEFAULT_LIMITS,
    STAGES_BEFORE_RAY_NODE,
    EarlyExits,
    StageEntry,
    TimeLimits,
)
from raytide.autoscaler.state.instances import Instances
from raytide.autoscaler.state.node_autoscaler_events import UNKNOWN, NodeAutoscaler, unschedulable_timeout_s
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.pod_startup import NOT_PLACED, Unready, limit_s, startup_of
from raytide.autoscaler.state.replica_failures import rejection_of
from raytide.diagnosis.model import Diagnosis

FIRST_BACKOFF_S: Final = 30.0
LONGEST_BACKOFF_S: Final = 300.0
RECOVERY_S: Final = 600.0
"""How long a failure lowers a group's score (AS:S-23)."""
MAX_RECENT_S: Final = 10.0
NEVER: Final = float("-inf")
MAX_NAMED: Final = 3
"""Scale gates named in one message; others are counted."""


class Stuck(StrEnum):
    """Reasons without a pod; the others are those of pod_startup.py and api/pod_failure.py."""

    NO_POD = "NoPodCreated"
    """The operator has created no requested pod of the group within its time limit, and gives no reason; the group backs off."""
    SCALE_GATED = "ScaleGated"
    """`scaleStrategy.scaleGate` of the group has an entry: the controller that wrote it reports that the group cannot get nodes."""


NO_CAPACITY: Final = frozenset({Cause.QUOTA, Cause.FORBIDDEN, Cause.INVALID, *Stuck, *NOT_PLACED})
"""Reasons that only mean missing capacity: the pod is sound and may stay pending while no other group fits its demand.
"""
IN_BACKOFF: Final = "Backoff"
"""The group was blocked before; the message has the time at which one replica is tried."""
REASONS: Final = frozenset({*Cause, *Stuck, *Unready})


@dataclass(frozen=True, slots=True)
class UnavailableGroup:
    """Why a group gets no new nodes at present."""

    diagnosis: Diagnosis
    """Its reason is that of conditions: `QuotaExceeded`, `Unschedulable`, `NeverRegistered`, …; it counts the stuck instances."""
    is_capacity_missing: bool = False
    """Only capacity is missing: pending instances may keep waiting if no other group can take their demand."""
    since: datetime | None = None
    """When the group was last found blocked; None: now."""
    may_request: bool = True
    """Whether nodes may be requested for demand that no other group can take, if only capacity is missing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Input for the scheduler."""

    types: tuple[NodeType, ...]
    """With the number of nodes available of each now: 0 for a blocked group."""
    instances: tuple[Instance, ...]
    """Without the stuck ones; `fallback.schedule_with_fallback` passes both to the scheduler."""
    stuck: tuple[Instance, ...] = ()
    """They provide no capacity; autoscaler/scheduling/fallback.py decides which of them are withdrawn."""
    blocked: Mapping[str, UnavailableGroup] = field(default_factory=dict)
    """By group."""
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    """By group, the backoff to record; a group without an entry has none."""
    availability: Mapping[str, float] = field(default_factory=dict)
    """Input for the scheduler (AS:S-22)."""
    recoverable: Mapping[str, float] = field(default_factory=dict)
    """Input for the scheduler (AS:S-23)."""
    requeue_after_s: float | None = None
    """Seconds until the next backoff ends; None: no backoff is running."""


@dataclass(frozen=True, slots=True)
class AvailabilityInputs:
    """Inputs other than the instances."""

    now: datetime
    now_s: float
    status: Mapping[str, Any] = field(default_factory=dict)
    """That of the RayCluster, with the API server's rejections."""
    backoffs: Mapping[str, Backoff | None] = field(default_factory=dict)
    """By group, the backoff in the record."""
    reasons: Mapping[str, Sequence[Diagnosis]] = field(default_factory=dict)
    """By group, the reasons in the record."""
    gates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By group, the types of its scale gates."""
    node_autoscaler: NodeAutoscaler = UNKNOWN
    """What it reported about unschedulable pods."""


def assess_availability(
    found: Instances,
    types: NodeTypes,
    inputs: AvailabilityInputs,
    time_limits: TimeLimits = DEFAULT_LIMITS,
    recovery_s: float = RECOVERY_S,
) -> Limits:
    """Take blocked groups and stuck instances out of the types and instances the scheduler uses."""
    groups = _GroupIndex(found.by_group(), found.last_registered_s(), _newest(found))
    views = [
        _view(node_type, found, groups, inputs, time_limits)
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
            name: _recoverable((inputs.now - moment).total_seconds(), recovery_s) for name, moment in failed.items()
        },
        requeue_after_s=_next_deadline(backoffs.values(), inputs.now),
    )


# --- one group -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _View:
    """One group: its stuck instances and how many more nodes it may get."""

    name: str
    stuck: frozenset[str]
    """Instance ids."""
    blocked: UnavailableGroup | None
    backoff: Backoff | None
    available: int | None
    """Nodes; None: limited by the node type only."""


@dataclass(frozen=True, slots=True)
class _StuckInstance:
    """One instance that does not become a running node, and why."""

    instance: Instance | None
    """None: its pod is gone."""
    diagnosis: Diagnosis
    is_groups_fault: bool = True
    """False if another instance of the group registered later: then only this instance has a problem."""


@dataclass(frozen=True, slots=True)
class _GroupIndex:
    """Facts about all groups, gathered once per tick: looking at every pod for every group costs too much."""

    instances: Mapping[str, Sequence[Instance]]
    """By group."""
    last_registered_s: Mapping[str, float]
    """By group."""
    newest: datetime | None
    """Creation time of the newest pod in the cluster."""


def _view(
    node_type: NodeType, found: Instances, groups: _GroupIndex, inputs: AvailabilityInputs, limits: TimeLimits
) -> _View:
    mine = groups.instances.get(node_type.name, ())
    gates = inputs.gates.get(node_type.name, ())
    old = _valid_backoff(inputs.backoffs.get(node_type.name), inputs.now)
    if old is not None and (gates or _has_recovered(old, mine, found, inputs)):
        old = None
    is_in_backoff = old is not None and inputs.now < old.until
    last_registered_s = groups.last_registered_s.get(node_type.name, NEVER)
    detector = _StuckDetector.of(
        node_type.name, found, inputs, limits, is_in_backoff=is_in_backoff, last_registered_s=last_registered_s
    )
    stuck_instances = [verdict for instance in mine if (verdict := detector.verdict(instance)) is not None]
    stuck_instances += detector.crash_loop(mine, began_s=_began_s(old, inputs))
    group_failure = next((verdict for verdict in stuck_instances if verdict.is_groups_fault), None)
    is_failing = group_failure is not None and not gates
    backoff = _next_backoff(old, inputs.now, groups.newest, is_blocked=is_failing)
    is_blocked = bool(gates) or (backoff is not None and inputs.now < backoff.until)
    stuck = _stuck({verdict.instance.instance_id for verdict in stuck_instances if verdict.instance is not None}, mine)
    if is_blocked:
        stuck |= {instance.instance_id for instance in mine if instance.status in UNSEEN}
    if gates:
        stuck = _stuck(stuck | {i.instance_id for i in mine if i.status in STARTING and not _is_placed(i, found)}, mine)
    blocked: UnavailableGroup | None = None
    if gates:
        blocked = _gated(gates, len(stuck))
    elif backoff is not None and is_blocked:
        blocked = _blocked(node_type.name, group_failure, backoff, len(stuck), inputs)
    sound = [i for i in mine if i.status in COUNTABLE and i.instance_id not in stuck]
    available = 0 if is_blocked else None if backoff is None else _probe(node_type, sound)
    return _View(node_type.name, frozenset(stuck), blocked, backoff, available)


def _probe(node_type: NodeType, sound: Iterable[Instance]) -> int:
    """Nodes to try after the backoff: one replica, or none if one is already launching."""
    is_coming = any(instance.status is not Status.RAY_RUNNING for instance in sound)
    return 0 if is_coming else node_type.num_of_hosts


def _effective(node_type: NodeType, view: _View | None) -> NodeType:
    return node_type if view is None else replace(node_type, available=view.available)


def _gated(gates: Sequence[str], count: int) -> UnavailableGroup:
    named, others = ", ".join(gates[:MAX_NAMED]), len(gates) - MAX_NAMED
    gated = Diagnosis(Stuck.SCALE_GATED.value, count).having(
        gates=named + (f" and {others} others" if others > 0 else "")
    )
    return UnavailableGroup(gated, is_capacity_missing=True, may_request=False)


def _is_placed(instance: Instance, found: Instances) -> bool:
    """Whether its pod has a Kubernetes node: it will run whatever the gate says."""
    pod = found.pods.get(instance.instance_id)
    return pod is None or bool(pod.node_name) or pod.is_running


def _blocked(
    group: str, group_failure: _StuckInstance | None, backoff: Backoff, count: int, inputs: AvailabilityInputs
) -> UnavailableGroup:
    """The reason a group is blocked; the recorded one if the group is in backoff and nothing is stuck any more."""
    if group_failure is not None:
        found = replace(group_failure.diagnosis, count=count)
        return UnavailableGroup(found, found.reason in NO_CAPACITY, began(backoff))
    recorded = next((why for why in inputs.reasons.get(group, ()) if why.reason in REASONS), None)
    if recorded is not None:
        return UnavailableGroup(recorded, recorded.reason in NO_CAPACITY, began(backoff))
    waits = Diagnosis(IN_BACKOFF, count).having(until=timestamp(backoff.until))
    return UnavailableGroup(waits, since=began(backoff))


def _stuck(ids: set[str], mine: Sequence[Instance]) -> set[str]:
    """Add the other hosts of a replica with a stuck host, unless a host of that replica is running (B-8)."""
    running = {instance.replica for instance in mine if instance.status is Status.RAY_RUNNING}
    whole = touched_replicas((i for i in mine if i.replica not in running), ids)
    return ids | {i.instance_id for i in mine if i.instance_id in whole and i.status in COUNTABLE}


# --- one instance ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StuckDetector:
    """Decides whether the instances of one group are launching or stuck."""

    found: Instances
    now_s: float
    limits: TimeLimits
    is_in_backoff: bool
    """The group is in backoff: an instance with a known failure counts as stuck at once."""
    rejected: Diagnosis | None
    """The API server's rejection of the group's pods."""
    is_silent: bool
    """The group got no pod for `silent_s` while other groups did; if no group gets pods, the group is not at fault."""
    last_registered_s: float
    """When an instance of the group last registered."""
    early_exits: EarlyExits | None
    node_autoscaler: NodeAutoscaler

    @classmethod
    def of(
        cls,
        group: str,
        found: Instances,
        inputs: AvailabilityInputs,
        limits: TimeLimits,
        *,
        is_in_backoff: bool,
        last_registered_s: float,
    ) -> "_StuckDetector":
        others = (last_new_pod_s for name, last_new_pod_s in found.timers.last_new_pod_s.items() if name != group)
        since_s = found.timers.stalled_s.get(group, inputs.now_s)
        return cls(
            found=found,
            now_s=inputs.now_s,
            limits=limits,
            is_in_backoff=is_in_backoff,
            rejected=rejection_of(inputs.status, group),
            is_silent=inputs.now_s - since_s > limits.silent_s and max(others, default=since_s) > since_s,
            last_registered_s=last_registered_s,
            early_exits=found.timers.early_exits.get(group),
            node_autoscaler=inputs.node_autoscaler,
        )

    def verdict(self, instance: Instance) -> _StuckInstance | None:
        """Why this instance is stuck; None while it may still become ready."""
        if instance.status in UNSEEN:
            return self._no_pod(instance)
        pod, entry = self.found.pods.get(instance.instance_id), self.found.timers.stages.get(instance.instance_id)
        if pod is None or entry is None or entry.stage not in STAGES_BEFORE_RAY_NODE:
            return None
        startup = startup_of(pod, is_crash_loop=entry.restarts.is_crash_loop(self.now_s, self.limits.broken_s))
        is_known = self.is_in_backoff and startup.reason in set(Cause) and startup.reason != Cause.UNSCHEDULABLE
        node_s = unschedulable_timeout_s(pod.name, self.node_autoscaler, self.limits, is_in_backoff=self.is_in_backoff)
        lasted_s = self.now_s - entry.since_s
        if startup.reason == Cause.CRASH:  # it may have run for a while between two crashes
            lasted_s = max(lasted_s, entry.restarts.crashing_for_s)
        if lasted_s <= limit_s(startup, self.limits, node_s=node_s) and not is_known:
            return None
        is_groups_fault = startup.reason in NO_CAPACITY or self.last_registered_s <= entry.since_s
        found = replace(startup.diagnosis, message=f"pod {pod.name}: {startup.diagnosis.message}").having(pod=pod.name)
        return _StuckInstance(instance, found, is_groups_fault)

    def crash_loop(self, mine: Iterable[Instance], began_s: float) -> list[_StuckInstance]:
        """Why the group is unavailable if its pods end before their Ray node registers, although no instance is stuck."""
        if self.early_exits is None or self.early_exits.last_s <= began_s or self.is_in_backoff:
            return []
        if any(i.status is Status.RAY_RUNNING for i in mine) and self.early_exits.count < FAILURES_UNTIL_BLOCKED:
            return []
        text = f"{self.early_exits.detail} ({self.early_exits.count} in a row)"
        return [_StuckInstance(None, Diagnosis(Cause.CRASH.value, message=text))]

    def _no_pod(self, instance: Instance) -> _StuckInstance | None:
        if self.rejected is not None:
            return _StuckInstance(instance, self.rejected)
        if instance.status is Status.ALLOCATION_FAILED or self.is_silent:
            text = "the operator has neither created the requested pod nor reported an error: see its log"
            return _StuckInstance(instance, Diagnosis(Stuck.NO_POD.value, message=text))
        return None


FAILURES_UNTIL_BLOCKED: Final = 3
"""Early pod failures in a row after which a group with running nodes counts as failing."""


# --- backoff ---------------------------------------------------------------------------------------------------------


def delay_s(n: int) -> float:
    """Duration of the n-th backoff: 30 s, doubled each time, at most 5 minutes."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(max(n, 1) - 1, 10))


def _next_backoff(old: Backoff | None, now: datetime, newest: datetime | None, *, is_blocked: bool) -> Backoff | None:
    """The backoff still in force, the next one if the trial replica failed too, or none once it has expired."""
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


def _valid_backoff(old: Backoff | None, now: datetime) -> Backoff | None:
    """The recorded backoff, capped at its longest possible value in case this or an earlier head's clock ran ahead."""
    if old is None:
        return None
    latest = now.replace(microsecond=0) + timedelta(seconds=delay_s(old.n))
    return old if old.until <= latest + timedelta(seconds=1) else replace(old, until=latest)


def began(backoff: Backoff) -> datetime:
    """When the group was last found blocked."""
    return backoff.until - timedelta(seconds=delay_s(backoff.n))


def _began_s(backoff: Backoff | None, inputs: AvailabilityInputs) -> float:
    """The same on the monotonic clock of this process; minus infinity without a backoff."""
    if backoff is None:
        return NEVER
    return inputs.now_s - (inputs.now - began(backoff)).total_seconds()


def _has_recovered(old: Backoff, mine: Iterable[Instance], found: Instances, inputs: AvailabilityInputs) -> bool:
    """Whether a worker of the group registered since it was blocked.

    This process saw it register, or its pod is newer than the backoff; a worker that was running when this process
    started proves nothing.
    """
    began_s = _began_s(old, inputs)
    return any(
        _has_joined_after(found.timers.stages.get(i.instance_id), began_s)
        or _is_younger(found.pods.get(i.instance_id), old.newest)
        for i in mine
        if i.status is Status.RAY_RUNNING
    )


def _has_joined_after(entry: StageEntry | None, began_s: float) -> bool:
    return entry is not None and entry.registered_s is not None and entry.registered_s > began_s


def _is_younger(pod: PodView | None, newest: datetime | None) -> bool:
    """Both timestamps are the API server's, so node clocks do not matter."""
    created = None if pod is None else parse_timestamp(pod.creation_timestamp)
    return created is not None and newest is not None and created > newest


def _newest(found: Instances) -> datetime | None:
    texts = max((pod.creation_timestamp for pod in found.pods.values()), default="")
    return parse_timestamp(texts) if texts else None


def _availability(failed: Mapping[str, datetime]) -> dict[str, float]:
    """0 for the group that failed last, slightly more for earlier ones (AS:S-22)."""
    latest = max((moment.timestamp() for moment in failed.values()), default=0.0)
    return {name: 1.0 - moment.timestamp() / latest if latest > 0 else 0.0 for name, moment in failed.items()}


def _recoverable(age_s: float, window_s: float) -> float:
    """0 right after the failure, then growing linearly to 1 at the end of the window (AS:S-23)."""
    if age_s < min(MAX_RECENT_S, window_s / 10):
        return 0.0
    return min(1.0, age_s / window_s)


def _next_deadline(backoffs: Iterable[Backoff], now: datetime) -> float | None:
    waits = [(backoff.until - now).total_seconds() for backoff in backoffs]
    return min((wait for wait in waits if wait > 0), default=None)
