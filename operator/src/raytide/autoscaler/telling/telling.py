"""What is said about this tick, to whom?

Takes the snapshot and all that was decided, gives the report for the GCS, the lines for monitor.log and the events for
drivers. It only gathers what report.py and saying.py need; the words are theirs. A report goes out whenever the GCS
answered, whether anything was decided or not, because `ray status` shows the last one for ever. Called by tick.py.
"""

from dataclasses import dataclass, replace

from raytide.autoscaler.inputs.limits import began
from raytide.autoscaler.model import Cause, Decision, Report
from raytide.autoscaler.ordering.deciding import Deciding
from raytide.autoscaler.ordering.group_orders import GroupOutcome, Outcomes
from raytide.autoscaler.ordering.orders import ClusterEvent, LogLine, Memory, Snapshot
from raytide.autoscaler.ordering.pacing import Change
from raytide.autoscaler.ordering.standing import Standing
from raytide.autoscaler.telling.report import FailedGroup, Reported, build_report
from raytide.autoscaler.telling.saying import (
    Resizing,
    Told,
    impossible_events,
    overdue_lines,
    reason_lines,
    resize_events,
    resizing_lines,
    rival_line,
)


@dataclass(frozen=True, slots=True)
class Words:
    """What is said now, and what then stands."""

    lines: tuple[LogLine, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    said: frozenset[str] = frozenset()


def report_of(snapshot: Snapshot, memory: Memory, deciding: Deciding, outcomes: Outcomes) -> Report | None:
    """The report; None while there is nobody to hear it."""
    if snapshot.gcs is None:
        return None
    blocked = {} if deciding.limits is None else deciding.limits.blocked
    backoffs = {} if deciding.limits is None else deciding.limits.backoffs
    since = {name: began(backoff) for name, backoff in backoffs.items()}
    return build_report(
        Reported(
            state=snapshot.gcs,
            instances=deciding.found.instances,
            decision=Decision() if deciding.choice is None else deciding.choice.decision,
            coming={o.group.name: o.launches + o.kept for o in outcomes.groups},
            types=deciding.types.types,
            pods={pod.name: pod for pod in snapshot.pods},
            now=snapshot.now,
            at_least=max(snapshot.reported_version, memory.report_version),
            asked_for_s={
                name: [snapshot.monotonic_s - ask.since_s for ask in asks]
                for name, asks in deciding.found.timers.asks.items()
            },
            failed=tuple(
                FailedGroup(name, found.reason, found.detail, max(1, found.count), since.get(name))
                for name, found in blocked.items()
            ),
            leaving=frozenset(name for o in outcomes.groups for name in o.order.delete),
        )
    )


def words_of(memory: Memory, standing: Standing, deciding: Deciding, outcomes: Outcomes, written: Change) -> Words:
    """Lines and events; `written` is the change that is written now."""
    orders = outcomes.orders()
    lines, said = reason_lines(
        {**{name: order.why for name, order in orders.items()}, "": outcomes.cluster_why}, memory.words
    )
    late, overdue = overdue_lines(deciding.found.overdue, memory.words)
    lines, said = (*lines, *late), said | overdue
    if written is Change.MIND:
        lines = (*resizing_lines(_resizing(outcome) for outcome in outcomes.groups), *lines)
    elif written is Change.RIVAL:
        lines = (rival_line(standing, orders), *lines)
    if deciding.choice is None:
        return Words(lines, (), said | memory.words)
    decision = deciding.choice.decision
    impossible = impossible_events(decision)
    warnings = tuple(event for about, event in impossible.items() if about not in memory.words)
    told = _told(outcomes, decision) if written is Change.MIND else Told()
    return Words(lines, (*resize_events(told), *warnings), said | impossible.keys())


def _resizing(outcome: GroupOutcome) -> Resizing:
    return Resizing(
        group=outcome.group.name,
        before=replace(outcome.before, replicas=outcome.group.clamp(outcome.before.replicas)),
        after=outcome.order,
        target=outcome.target,
        launches=outcome.launches,
        withdrawn=outcome.withdrawn,
        raised=outcome.raised,
    )


def _told(outcomes: Outcomes, decision: Decision) -> Told:
    removed: dict[tuple[str, Cause], int] = {}
    causes = {end.instance_id: end.cause for end in decision.terminations}
    for outcome in outcomes.groups:
        for unit in () if outcome.target is None else outcome.target.units:
            for host in unit.hosts:
                if host.instance_id in causes:
                    key = outcome.group.name, causes[host.instance_id]
                    removed[key] = removed.get(key, 0) + 1
    added = {outcome.group.name: outcome.launches for outcome in outcomes.groups}
    return Told(added, removed, decision.cluster_resources)
