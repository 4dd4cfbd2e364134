"""Autoscaling state report for the GCS.

Takes the instances, the decision and the blocked groups, and returns the report behind `ray status`, the dashboard and
Ray's warnings (AS §5.3, §5.5). Only demand that no node of any type could hold is infeasible, because Ray warns and may
cancel tasks by that list (B-14, AS:G-11). The version is the time in milliseconds, and never below that of the report
the GCS holds, because the GCS ignores older ones silently (B-5). Called by collect.py; autoscaler/gcs/messages.py
encodes it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from raytide.api.pod import PodView
from raytide.api.pod_failure import failure_of
from raytide.api.printable import escaped
from raytide.autoscaler.model import (
    STARTING,
    FailedRequest,
    GcsState,
    Instance,
    PendingInstance,
    PendingRequest,
    Report,
    SchedulingReply,
)
from raytide.autoscaler.state.group_availability import UnavailableGroup
from raytide.diagnosis.render import text_of


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """Inputs for a report."""

    gcs: GcsState
    instances: tuple[Instance, ...]
    reply: SchedulingReply
    pending_counts: Mapping[str, int]
    """By group, nodes requested or about to be requested that have no pod yet."""
    pods: Mapping[str, PodView]
    now: datetime
    at_least: int = 0
    """Lower bound of the report version."""
    request_ages_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By group, for how many seconds each node has been requested, oldest first; further nodes are requested now."""
    blocked: Mapping[str, UnavailableGroup] = field(default_factory=dict)
    """By group, why it gets no nodes at present."""
    leaving: Collection[str] = ()
    """Pods named for deletion: no longer pending."""


def build_report(inputs: ReportInputs) -> Report:
    """The report of this tick."""
    now_s = int(inputs.now.timestamp())
    return Report(
        gcs_version=inputs.gcs.version,
        version=report_version(inputs.now, inputs.at_least),
        pending_requests=tuple(_pending_requests(inputs)),
        pending_instances=tuple(_pending_instances(inputs)),
        failed_requests=tuple(_failed_request(name, why, now_s) for name, why in inputs.blocked.items()),
        infeasible=inputs.reply.impossible,
        infeasible_gangs=inputs.reply.impossible_gangs,
        infeasible_constraint=inputs.gcs.constraint if inputs.reply.impossible_constraint else None,
    )


def report_version(now: datetime, at_least: int) -> int:
    """Milliseconds since the epoch, but never below `at_least` if the clock went back."""
    return max(int(now.timestamp() * 1000), at_least)


def _pending_requests(inputs: ReportInputs) -> Iterable[PendingRequest]:
    """One entry per group and second of the request."""
    now_s = inputs.now.timestamp()
    for name, count in inputs.pending_counts.items():
        ages_s = [*inputs.request_ages_s.get(name, ())][:count]
        count_by_second = Counter(int(now_s - age_s) for age_s in ages_s)
        count_by_second[int(now_s)] += count - len(ages_s)
        yield from (
            PendingRequest(name, number, at_s) for at_s, number in sorted(count_by_second.items()) if number > 0
        )


def _pending_instances(inputs: ReportInputs) -> Iterable[PendingInstance]:
    for instance in inputs.instances:
        if instance.status in STARTING and instance.pod and instance.pod not in inputs.leaving:
            pod = inputs.pods.get(instance.pod)
            yield PendingInstance(instance.node_type, instance.pod, pod.pod_ip if pod else "", _details(pod))


def _details(pod: PodView | None) -> str:
    """Status text of a pending pod in `ray status`: what blocks it, else its phase."""
    if pod is None:
        return "pod created"
    failure = failure_of(pod)
    if failure is not None:
        return escaped(f"{failure.reason}: {failure.message}")
    return "waiting for ray to start" if pod.is_running else escaped(f"pod {pod.phase or 'Pending'}".lower())


def _failed_request(group: str, why: UnavailableGroup, now_s: int) -> FailedRequest:
    since_s = now_s if why.since is None else int(why.since.timestamp())
    found, text = why.diagnosis, text_of(why.diagnosis)
    reason = f"{found.reason}: {text}" if text else found.reason
    return FailedRequest(group, max(1, found.count), escaped(reason), started_at_s=since_s, failed_at_s=since_s)
