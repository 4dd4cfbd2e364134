"""Report, log lines and events of one tick.

Takes the snapshot and all decisions, and returns the report for the GCS, the lines for monitor.log and the events for
drivers. It only collects the input of gcs_report.py and messages.py, which write the texts. A report is made whenever
the GCS answered, with or without a decision, because `ray status` shows the last one until a new one arrives. Called by
autoscaler/sidecar/reconcile.py.
"""

from dataclasses import dataclass

from raytide.autoscaler.model import Report, SchedulingReply, TerminationCause
from raytide.autoscaler.reporting.gcs_report import ReportInputs, build_report
from raytide.autoscaler.reporting.messages import (
    ResizeFacts,
    conflict_line,
    impossible_events,
    overdue_lines,
    reason_lines,
    resize_events,
    resizing_lines,
)
from raytide.autoscaler.scaling.decision_patch import Change
from raytide.autoscaler.scaling.group_decisions import Outcomes
from raytide.autoscaler.scheduling.fallback import SchedulingRound
from raytide.autoscaler.state.cluster_state import ClusterState
from raytide.autoscaler.state.snapshot import ClusterEvent, LogLine, ReconcilerState, Snapshot


@dataclass(frozen=True, slots=True)
class Messages:
    """Log lines and events of this tick, and the keys of all that are in effect after it."""

    lines: tuple[LogLine, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    reported_keys: frozenset[str] = frozenset()


def report_of(
    snapshot: Snapshot,
    state: ReconcilerState,
    cluster: ClusterState,
    scheduled: SchedulingRound | None,
    outcomes: Outcomes,
) -> Report | None:
    """The report; None while the GCS does not answer."""
    if snapshot.gcs is None:
        return None
    return build_report(
        ReportInputs(
            gcs=snapshot.gcs,
            instances=cluster.found.instances,
            reply=SchedulingReply() if scheduled is None else scheduled.reply,
            pending_counts={o.group.name: o.launches + o.kept for o in outcomes.groups},
            pods={pod.name: pod for pod in snapshot.pods},
            now=snapshot.now,
            at_least=max(snapshot.reported_version, state.report_version),
            request_ages_s={
                name: [snapshot.monotonic_s - request.since_s for request in open_requests]
                for name, open_requests in cluster.found.timers.open_requests.items()
            },
            blocked={} if cluster.limits is None else cluster.limits.blocked,
            leaving=frozenset(name for o in outcomes.groups for name in o.desired.delete),
        )
    )


def collect_messages(
    state: ReconcilerState,
    cluster: ClusterState,
    scheduled: SchedulingRound | None,
    outcomes: Outcomes,
    written: Change,
) -> Messages:
    """Log lines and events; `written` is the kind of change that is written now."""
    lines, reported_keys = reason_lines(
        {**{outcome.group.name: outcome.desired.why for outcome in outcomes.groups}, "": outcomes.cluster_why},
        state.reported_keys,
    )
    late, overdue = overdue_lines(cluster.found.overdue, state.reported_keys)
    lines, reported_keys = (*lines, *late), reported_keys | overdue
    if written is Change.DECISION:
        lines = (*resizing_lines(outcomes.groups), *lines)
    elif written is Change.CONFLICT:
        lines = (conflict_line((outcome.group, outcome.desired) for outcome in outcomes.groups), *lines)
    if scheduled is None:
        return Messages(lines, (), reported_keys | state.reported_keys)
    reply = scheduled.reply
    impossible = impossible_events(reply)
    warnings = tuple(event for about, event in impossible.items() if about not in state.reported_keys)
    facts = _resize_facts(outcomes, reply) if written is Change.DECISION else ResizeFacts()
    return Messages(lines, (*resize_events(facts), *warnings), reported_keys | impossible.keys())


def _resize_facts(outcomes: Outcomes, reply: SchedulingReply) -> ResizeFacts:
    removed: dict[tuple[str, TerminationCause], int] = {}
    causes = {end.instance_id: end.cause for end in reply.terminations}
    for outcome in outcomes.groups:
        for replica in () if outcome.group_target is None else outcome.group_target.replica_states:
            for host in replica.hosts:
                if host.instance_id in causes:
                    key = outcome.group.name, causes[host.instance_id]
                    removed[key] = removed.get(key, 0) + 1
    added = {outcome.group.name: outcome.launches for outcome in outcomes.groups}
    return ResizeFacts(added, removed, reply.cluster_resources)
