"""What does Ray hear about the autoscaler?

Takes the instances, the decision and what is blocked, gives the report behind `ray status`, the dashboard and Ray's
warnings (AS §5.3, §5.5). Infeasible is only what no node of any type could hold, because Ray warns and may cancel tasks
by that list (B-14, AS:G-11); the version is the time in milliseconds and never below that of the report the GCS keeps,
which would drop it in silence (B-5). Called by telling.py; gcs_messages.py writes it as Ray counts it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from raytide.api.pod import PodView
from raytide.api.pod_trouble import trouble_of
from raytide.autoscaler.inputs.fitting import could_hold
from raytide.autoscaler.model import (
    STARTING,
    Decision,
    Demand,
    FailedRequest,
    GcsState,
    Instance,
    NodeType,
    PendingInstance,
    PendingRequest,
    Report,
)


@dataclass(frozen=True, slots=True)
class FailedGroup:
    """A group that gets no nodes at present: for what reason, how many it is short of, and since when."""

    group: str
    reason: str
    message: str = ""
    count: int = 1
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """All that a report depends on."""

    state: GcsState
    instances: tuple[Instance, ...]
    decision: Decision
    coming: Mapping[str, int]
    """By group, nodes asked for or to be asked for that have no pod yet."""
    types: tuple[NodeType, ...]
    pods: Mapping[str, PodView]
    now: datetime
    at_least: int = 0
    """The version may not be lower."""
    asked_for_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By group, for how many seconds each of them has been asked for, the oldest first; the others are asked for now."""
    failed: tuple[FailedGroup, ...] = ()
    leaving: Collection[str] = ()
    """Pods that were named: no longer pending."""


def build_report(told: Reported) -> Report:
    """The report of this tick."""
    now_s = int(told.now.timestamp())
    return Report(
        gcs_version=told.state.version,
        version=report_version(told.now, told.at_least),
        pending_requests=tuple(_pending_requests(told)),
        pending_instances=tuple(_pending_instances(told)),
        failed_requests=tuple(_failed_request(failed, now_s) for failed in told.failed),
        infeasible=told.decision.impossible,
        infeasible_gangs=told.decision.impossible_gangs,
        infeasible_constraint=_impossible_constraint(told),
    )


def report_version(now: datetime, at_least: int) -> int:
    """Milliseconds since the epoch; a clock that went back goes on counting where it was."""
    return max(int(now.timestamp() * 1000), at_least)


def _pending_requests(told: Reported) -> Iterable[PendingRequest]:
    """One entry for all nodes of a group that were asked for at the same second."""
    now_s = told.now.timestamp()
    for name, count in told.coming.items():
        ages_s = [*told.asked_for_s.get(name, ())][:count]
        moments = Counter(int(now_s - age_s) for age_s in ages_s)
        moments[int(now_s)] += count - len(ages_s)
        yield from (PendingRequest(name, many, at_s) for at_s, many in sorted(moments.items()) if many > 0)


def _pending_instances(told: Reported) -> Iterable[PendingInstance]:
    for instance in told.instances:
        if instance.status in STARTING and instance.pod and instance.pod not in told.leaving:
            pod = told.pods.get(instance.pod)
            yield PendingInstance(instance.node_type, instance.pod, pod.pod_ip if pod else "", _details(pod))


def _details(pod: PodView | None) -> str:
    """The words behind a pending pod in `ray status`: what blocks it, else how far it is."""
    if pod is None:
        return "pod created"
    trouble = trouble_of(pod)
    if trouble is not None:
        return f"{trouble.cause.value}: {trouble.detail}"
    return "waiting for ray to start" if pod.is_running else f"pod {pod.phase or 'Pending'}".lower()


def _failed_request(failed: FailedGroup, now_s: int) -> FailedRequest:
    since_s = now_s if failed.since is None else int(failed.since.timestamp())
    said = f"{failed.reason}: {failed.message}" if failed.message else failed.reason
    return FailedRequest(failed.group, failed.count, said, started_at_s=since_s, failed_at_s=since_s)


def _impossible_constraint(told: Reported) -> tuple[Demand, ...] | None:
    """What `request_resources()` asked for, if part of it fits no node at all; for mere lack of room Ray need not warn."""
    asked = told.state.constraint
    if not asked or not told.decision.is_constraint_unmet:
        return None
    is_impossible = any(not any(could_hold(kind, demand.request) for kind in told.types) for demand in asked)
    return asked if is_impossible else None
