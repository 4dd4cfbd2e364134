"""Log lines and driver events for a change of decisions.

Takes the previous and the new decisions and their reasons. Returns one log line per group whose count or names change,
one per new reason, and the messages Ray shows to drivers, worded as Ray's autoscaler words them (AS §5.4). A message in
effect is not repeated until it no longer holds (B-14). Called by collect.py and autoscaler/sidecar/reconcile.py; written by
the loop.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.autoscaler_decision import GroupDecision
from raytide.autoscaler.model import Amounts, Demand, SchedulingReply, TerminationCause
from raytide.autoscaler.request_text import shape_of, whole
from raytide.autoscaler.scaling.group_decisions import GroupResult
from raytide.autoscaler.scaling.group_targets import Disposition, GroupTarget
from raytide.autoscaler.scaling.limit_reasons import NO_FITTING_GROUP
from raytide.autoscaler.spec_group import SpecGroup
from raytide.autoscaler.state.snapshot import Answers, ClusterEvent, Drain, Level, LogLine
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import counted, text_of

TEXT_BY_CAUSE: Final[Mapping[TerminationCause, str]] = {
    TerminationCause.IDLE: "idle",
    TerminationCause.MAX_NUM_NODE_PER_TYPE: "max number of worker nodes per type reached",
    TerminationCause.MAX_NUM_NODES: "max number of worker nodes reached",
    TerminationCause.OUTDATED: "outdated",
}
LOUD: Final = frozenset({NO_FITTING_GROUP})
"""Reasons that need an action of the user."""
MAX_NAMED: Final = 5
"""Pods named in one line."""


def resizing_lines(groups: Iterable[GroupResult]) -> tuple[LogLine, ...]:
    """One line per resized group."""
    return tuple(_line(one) for one in groups if one.is_resized)


def conflict_line(decisions: Iterable[tuple[SpecGroup, GroupDecision]]) -> LogLine:
    """The line for writing an unchanged decision again because another writer changed the spec."""
    differing = [
        f"{group.name}: {group.spec_replicas} instead of {decision.replicas}"
        for group, decision in decisions
        if group.spec_replicas != decision.replicas
    ]
    message = "another writer changed spec.workerGroupSpecs, the autoscaler writes its decision again"
    return LogLine(Level.WARNING, message, (("found", ", ".join(differing) or "workersToDelete"),))


def reason_lines(
    reasons: Mapping[str, tuple[Diagnosis, ...]], reported_keys: frozenset[str]
) -> tuple[tuple[LogLine, ...], frozenset[str]]:
    """A line per new reason, and the keys of all reasons in effect; changed counts alone make no line."""
    current = {f"{group}/{why.reason}": (group, why) for group, found in reasons.items() for why in found}
    lines = tuple(
        LogLine(
            Level.WARNING if why.reason in LOUD else Level.INFO, f"{why.reason}: {text_of(why)}", _values(group, why)
        )
        for key, (group, why) in current.items()
        if key not in reported_keys
    )
    return lines, frozenset(current)


def overdue_lines(pods: Collection[str], reported_keys: frozenset[str]) -> tuple[tuple[LogLine, ...], frozenset[str]]:
    """One line with the pods newly overdue for termination, and the keys of all that are overdue."""
    keys = {f"overdue/{pod}": pod for pod in sorted(pods)}
    new = [pod for key, pod in keys.items() if key not in reported_keys]
    if not new:
        return (), frozenset(keys)
    others = f" and {len(new) - MAX_NAMED} more" if len(new) > MAX_NAMED else ""
    message = f"{counted(len(new), 'pod')} not gone long after termination was requested: {', '.join(new[:MAX_NAMED])}{others}"
    return (LogLine(Level.WARNING, message, (("overdue", len(keys)),)),), frozenset(keys)


def drained_line(group: str, nodes: int) -> LogLine:
    """Nodes of a group accepted their drains, and their pods are named in `workersToDelete`."""
    message = f"group {group}: {counted(nodes, 'node')} accepted the drain, the operator deletes the pods"
    return LogLine(Level.INFO, message, (("group", group), ("named", nodes)))


def not_drained_lines(drains: Iterable[Drain], answers: Answers) -> tuple[LogLine, ...]:
    """One line for each drain that was sent and not accepted, or not answered."""
    lines = []
    for drain in drains:
        if drain.node_id not in answers:  # not sent
            continue
        answer = answers[drain.node_id]
        if answer is None or not answer.is_accepted:
            lines.append(_not_drained_line(drain, None if answer is None else answer.message))
    return tuple(lines)


def _not_drained_line(drain: Drain, rejection: str | None) -> LogLine:
    """A drain that was not accepted; `rejection` is the GCS's message, None without an answer."""
    why = "the GCS did not answer" if rejection is None else rejection
    values = (("group", drain.group), ("pod", drain.pod), ("node", drain.node_id))
    return LogLine(Level.INFO, f"pod {drain.pod} was not drained: {why}", values)


def _line(one: GroupResult) -> LogLine:
    name, before, after = one.group.name, one.before, one.desired
    values: list[tuple[str, str | int | float]] = [
        ("group", name),
        ("from", before.replicas),
        ("to", after.replicas),
        ("named", len(set(after.delete) - set(before.delete))),
    ]
    return LogLine(Level.INFO, f"group {name}: {_why(one)}", tuple(values))


def _why(one: GroupResult) -> str:
    """The change in one sentence."""
    before, after, raised = one.before, one.desired, one.current.raised
    leaving = {} if one.group_target is None else _leaving(one.group_target)
    parts = [
        *([f"{raised} replicas set by another writer, adopted"] if raised is not None else []),
        *([f"{counted(one.launches, 'more node')} needed"] if one.launches else []),
        *(f"{count} {word}" for word, count in leaving.items()),
        *([f"{one.withdrawn} requested, no longer needed"] if one.withdrawn else []),
    ]
    gone = len(set(before.delete) - set(after.delete))
    if gone:
        parts.append(f"{counted(gone, 'named pod')} deleted")
    if not parts:
        parts.append(
            "only the remaining replicas"
            if after.replicas < before.replicas
            else "limited by minReplicas and maxReplicas"
        )
    is_same = before.replicas == after.replicas
    change = f"stays at {after.replicas}" if is_same else f"{before.replicas} -> {after.replicas}"
    return f"{change} ({', '.join(parts)})"


def _leaving(target: GroupTarget) -> dict[str, int]:
    count_by_word: dict[str, int] = {}
    for replica in target.replica_states:
        if replica.disposition in (Disposition.TO_DRAIN, Disposition.TO_DELETE):
            word = TEXT_BY_CAUSE[replica.cause] if replica.cause else "no longer needed"
            count_by_word[word] = count_by_word.get(word, 0) + len(replica.hosts)
    return count_by_word


def _values(group: str, why: Diagnosis) -> tuple[tuple[str, str | int | float], ...]:
    whose = (("group", group),) if group else ()
    return (*whose, ("reason", why.reason), ("count", why.count))


# --- for drivers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResizeFacts:
    """Changes reported to drivers."""

    added: Mapping[str, int] = field(default_factory=dict)
    """By group, nodes."""
    removed: Mapping[tuple[str, TerminationCause], int] = field(default_factory=dict)
    resources: Amounts = ()
    """Of the whole cluster after all these changes."""


def resize_events(facts: ResizeFacts) -> tuple[ClusterEvent, ...]:
    """Added nodes, removed nodes, and the resulting cluster resources."""
    sentences = [
        *(f"Adding {count} node(s) of type {group}." for group, count in facts.added.items() if count),
        *(
            f"Removing {count} nodes of type {group} ({TEXT_BY_CAUSE[cause]})."
            for (group, cause), count in facts.removed.items()
            if count
        ),
    ]
    if sentences:
        sentences.append(_resized(facts.resources))
    return tuple(ClusterEvent(Level.INFO, sentence) for sentence in sentences)


def impossible_events(reply: SchedulingReply) -> dict[str, ClusterEvent]:
    """Warnings for infeasible demand; missing capacity is no warning (B-14).

    Keyed by subject without counts, which vary from tick to tick, so that each subject is reported once.
    """
    ending = "Add suitable node types to this cluster to resolve this issue."
    sentences = {}
    if reply.impossible:
        named = reply.impossible[:100]
        shapes = ", ".join(_counted(demand) for demand in named)
        about = f"impossible/{sorted(shape_of(demand.request) for demand in named)}"
        sentences[about] = f"No available node types can fulfill resource requests {shapes}. {ending}"
    for gang in reply.impossible_gangs[:100]:
        shapes = ", ".join(_counted(Demand(bundle)) for bundle in gang.bundles)
        sentences[f"impossible/{gang.details}"] = (
            f"No available node types can fulfill placement group requests (detail={gang.details}): {shapes}. {ending}"
        )
    return {about: ClusterEvent(Level.WARNING, sentence) for about, sentence in sentences.items()}


def _counted(demand: Demand) -> str:
    return f"{shape_of(demand.request)}*{demand.count}"


def _resized(resources: Amounts) -> str:
    parts = [f"{whole(resources, 'CPU')} CPUs"]
    parts += [f"{whole(resources, name)} {name}s" for name in ("GPU", "TPU") if whole(resources, name)]
    return f"Resized to {', '.join(parts)}."
