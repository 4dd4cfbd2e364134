"""Which lines and events does a change of mind make?

Takes what stood, what was decided and why, gives one log line per group whose number or names change, one per reason that
is new, and the sentences that Ray shows to drivers, spelled as Ray's autoscaler does (AS §5.4). What was said stands until
it no longer holds: it is not said again each tick (B-14). Called by tick.py; written by the shell.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.scaling import GroupDecision, Why
from raytide.autoscaler.model import Amounts, Cause, Decision, Demand
from raytide.autoscaler.ordering.orders import ClusterEvent, Level, LogLine
from raytide.autoscaler.ordering.standing import Standing
from raytide.autoscaler.ordering.targets import Fate, GroupTarget
from raytide.autoscaler.telling.reasons import NO_FITTING_GROUP, shape_of, whole

WORDS_BY_CAUSE: Final[Mapping[Cause, str]] = {
    Cause.IDLE: "idle",
    Cause.MAX_NUM_NODE_PER_TYPE: "max number of worker nodes per type reached",
    Cause.MAX_NUM_NODES: "max number of worker nodes reached",
    Cause.OUTDATED: "outdated",
}
LOUD: Final = frozenset({NO_FITTING_GROUP})
"""Reasons that a person has to act on."""
MOST_NAMED: Final = 5
"""Pods in one line."""


@dataclass(frozen=True, slots=True)
class Resizing:
    """One group's change, with all that explains it."""

    group: str
    before: GroupDecision
    after: GroupDecision
    target: GroupTarget | None = None
    launches: int = 0
    withdrawn: int = 0
    raised: int | None = None
    """Another writer's number that was adopted."""

    @property
    def is_change(self) -> bool:
        """Whether number or names differ."""
        is_same_size = self.before.replicas == self.after.replicas
        return not is_same_size or set(self.before.delete) != set(self.after.delete)


def resizing_lines(resizings: Iterable[Resizing]) -> tuple[LogLine, ...]:
    """One line per group that changes."""
    return tuple(_line(one) for one in resizings if one.is_change)


def rival_line(standing: Standing, orders: Mapping[str, GroupDecision]) -> LogLine:
    """The same order once more, because somebody wrote another."""
    differing = [
        f"{group.name}: {group.standing_replicas} instead of {orders[group.name].replicas}"
        for group in standing.groups
        if group.name in orders and group.standing_replicas != orders[group.name].replicas
    ]
    message = "another writer changed the spec, ordering the same again"
    return LogLine(Level.WARNING, message, (("found", ", ".join(differing) or "other names"),))


def reason_lines(
    reasons: Mapping[str, tuple[Why, ...]], said: frozenset[str]
) -> tuple[tuple[LogLine, ...], frozenset[str]]:
    """A line per reason that is new, and all that stand now; counts may move without a word."""
    standing = {f"{group}/{why.reason}": (group, why) for group, found in reasons.items() for why in found}
    lines = tuple(
        LogLine(
            Level.WARNING if why.reason in LOUD else Level.INFO, f"{why.reason}: {why.message}", _values(group, why)
        )
        for word, (group, why) in standing.items()
        if word not in said
    )
    return lines, frozenset(standing)


def overdue_lines(pods: Collection[str], said: frozenset[str]) -> tuple[tuple[LogLine, ...], frozenset[str]]:
    """One line that names the pods which have been leaving for long and were not told of before, and all that stand now."""
    words = {f"overdue/{pod}": pod for pod in sorted(pods)}
    new = [pod for word, pod in words.items() if word not in said]
    if not new:
        return (), frozenset(words)
    others = f" and {len(new) - MOST_NAMED} more" if len(new) > MOST_NAMED else ""
    message = f"{counted(len(new), 'pod')} on the way out for long: {', '.join(new[:MOST_NAMED])}{others}"
    return (LogLine(Level.WARNING, message, (("overdue", len(words)),)),), frozenset(words)


def _line(one: Resizing) -> LogLine:
    values: list[tuple[str, str | int | float]] = [
        ("group", one.group),
        ("from", one.before.replicas),
        ("to", one.after.replicas),
        ("named", len(set(one.after.delete) - set(one.before.delete))),
    ]
    return LogLine(Level.INFO, f"group {one.group}: {_why(one)}", tuple(values))


def _why(one: Resizing) -> str:
    """The change in one sentence."""
    leaving = {} if one.target is None else _leaving(one.target)
    parts = [
        *([f"{one.raised} replicas set by another writer are adopted once"] if one.raised is not None else []),
        *([f"{counted(one.launches, 'more node')} needed"] if one.launches else []),
        *(f"{count} {word}" for word, count in leaving.items()),
        *([f"{one.withdrawn} asked for, no longer needed"] if one.withdrawn else []),
    ]
    gone = len(set(one.before.delete) - set(one.after.delete))
    if gone:
        parts.append(f"{counted(gone, 'named pod')} gone")
    if not parts:
        parts.append("as many as stay" if one.after.replicas < one.before.replicas else "between minimum and maximum")
    is_same = one.before.replicas == one.after.replicas
    change = f"stays at {one.after.replicas}" if is_same else f"{one.before.replicas} -> {one.after.replicas}"
    return f"{change} ({', '.join(parts)})"


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _leaving(target: GroupTarget) -> dict[str, int]:
    count_by_word: dict[str, int] = {}
    for unit in target.units:
        if unit.fate in (Fate.LEAVES, Fate.NAMED):
            word = WORDS_BY_CAUSE[unit.cause] if unit.cause else "of no use any more"
            count_by_word[word] = count_by_word.get(word, 0) + len(unit.hosts)
    return count_by_word


def _values(group: str, why: Why) -> tuple[tuple[str, str | int | float], ...]:
    whose = (("group", group),) if group else ()
    return (*whose, ("reason", why.reason), ("count", why.count))


# --- for drivers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What drivers may hear about."""

    added: Mapping[str, int] = field(default_factory=dict)
    """By group, nodes."""
    removed: Mapping[tuple[str, Cause], int] = field(default_factory=dict)
    resources: Amounts = ()
    """Of the whole cluster, once all this has happened."""


def resize_events(told: Told) -> tuple[ClusterEvent, ...]:
    """What is added, what is removed, and what the cluster will have."""
    sentences = [
        *(f"Adding {count} node(s) of type {group}." for group, count in told.added.items() if count),
        *(
            f"Removing {count} nodes of type {group} ({WORDS_BY_CAUSE[cause]})."
            for (group, cause), count in told.removed.items()
            if count
        ),
    ]
    if sentences:
        sentences.append(_resized(told.resources))
    return tuple(ClusterEvent(Level.INFO, sentence) for sentence in sentences)


def impossible_events(decision: Decision) -> dict[str, ClusterEvent]:
    """What no node could ever hold; mere lack of room is no warning (B-14).

    By what it is about, without counts, which move in every loop: a driver is warned once.
    """
    ending = "Add suitable node types to this cluster to resolve this issue."
    sentences = {}
    if decision.impossible:
        named = decision.impossible[:100]
        shapes = ", ".join(_counted(demand) for demand in named)
        about = f"impossible/{sorted(shape_of(demand.request) for demand in named)}"
        sentences[about] = f"No available node types can fulfill resource requests {shapes}. {ending}"
    for gang in decision.impossible_gangs[:100]:
        shapes = ", ".join(_counted(Demand(bundle)) for bundle in gang.bundles)
        sentences[f"impossible/{gang.details}"] = (
            f"No available node types can fulfill placement group requests (detail={gang.details}): {shapes}. {ending}"
        )
    return {about: ClusterEvent(Level.WARNING, sentence) for about, sentence in sentences.items()}


def _counted(demand: Demand) -> str:
    return f"{shape_of(demand.request)}*{demand.count}"


def _resized(resources: Amounts) -> str:
    words = [f"{whole(resources, 'CPU')} CPUs"]
    words += [f"{whole(resources, name)} {name}s" for name in ("GPU", "TPU") if whole(resources, name)]
    return f"Resized to {', '.join(words)}."
