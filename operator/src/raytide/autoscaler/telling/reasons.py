"""Why is a group not as large as somebody wants, and what is to be said about it?

Takes the decision, the types, what is blocked and what is leaving, gives the reasons for the record (which the operator
copies into conditions), each a code, a count and a sentence; reasons that concern no group stand under the head's name.
It promises the same words for the same situation, so that only a change of mind is ever written or said. Called by
tick.py; codes are those of conditions and of pod_trouble.py (SC:S21, B-14).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.scaling import Why
from raytide.autoscaler.inputs.fitting import could_hold
from raytide.autoscaler.model import (
    HEAD_TYPE,
    UNIT,
    Amounts,
    Decision,
    Demand,
    Gang,
    NodeType,
    Request,
    Selector,
)

MAX_REACHED: Final = "MaxReached"
NO_FITTING_GROUP: Final = "NoFittingGroup"
HEAD_DOWN: Final = "HeadDown"
DRAINING: Final = "Draining"
UPSCALING_LIMITED: Final = "UpscalingLimited"
INVALID_GROUP: Final = "InvalidGroup"
CONSTRAINT_UNMET: Final = "ConstraintUnmet"

MOST_SHAPES: Final = 3
"""Named in one sentence; the others are counted."""


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the reasons depend on."""

    types: tuple[NodeType, ...]
    decision: Decision
    nodes: Mapping[str, int]
    """By group, how many nodes are ordered."""
    limits: Mapping[str, Why] = field(default_factory=dict)
    """By group, why it gets no nodes at present."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By group, what is wrong with its spec; an empty name means the whole cluster."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """By group, nodes that still work off a drain."""
    held_back: Mapping[str, int] = field(default_factory=dict)
    """By group, nodes that the upscaling speed puts off."""


def reasons(now: Situation) -> dict[str, tuple[Why, ...]]:
    """By group, only where there are any; most telling first."""
    waiting = _waiting(now.decision)
    found = {kind.name: tuple(_of_group(kind, now, waiting)) for kind in now.types if not kind.is_head}
    for group, message in now.problems.items():
        if group not in found:
            found[group or HEAD_TYPE] = (*found.get(group or HEAD_TYPE, ()), Why(INVALID_GROUP, 1, message))
    found[HEAD_TYPE] = (*found.get(HEAD_TYPE, ()), *_of_cluster(now))
    return {group: why for group, why in found.items() if why}


def head_down(message: str) -> Why:
    """Nothing is scaled, because nobody knows what is needed."""
    return Why(HEAD_DOWN, 1, message)


def _of_group(kind: NodeType, now: Situation, all_waiting: Iterable[Demand]) -> Iterable[Why]:
    limit = now.limits.get(kind.name)
    if limit is not None:
        yield limit
    elif now.nodes.get(kind.name, 0) >= kind.max_nodes:
        waiting = [demand for demand in all_waiting if could_hold(kind, demand.request)]
        if waiting:
            yield Why(
                MAX_REACHED,
                _count(waiting),
                f"{_shapes(waiting)} wait: the group is at its maximum of "
                f"{kind.max_nodes // max(1, kind.num_of_hosts)}",
            )
    held_back = now.held_back.get(kind.name, 0)
    if held_back:
        yield Why(UPSCALING_LIMITED, held_back, f"{held_back} more follow, the upscaling mode is Conservative")
    leaving = now.leaving.get(kind.name, 0)
    if leaving:
        yield Why(DRAINING, leaving, f"{leaving} finish their work before they go")
    problem = now.problems.get(kind.name)
    if problem:
        yield Why(INVALID_GROUP, 1, problem)


def _of_cluster(now: Situation) -> Iterable[Why]:
    decision = now.decision
    impossible = [*decision.impossible, *_bundles(decision.impossible_gangs)]
    if impossible:
        yield Why(NO_FITTING_GROUP, _count(impossible), f"no node of any group could ever hold {_shapes(impossible)}")
    if decision.is_constraint_unmet:
        yield Why(CONSTRAINT_UNMET, 1, "request_resources() asks for more than the groups may have")


def _waiting(decision: Decision) -> list[Demand]:
    """What found no place now although some node could hold it, by what is asked for: the same of many gangs is one."""
    impossible, impossible_gangs = set(decision.impossible), set(decision.impossible_gangs)
    waiting = [
        *(demand for demand in decision.unplaced if demand not in impossible),
        *_bundles(gang for gang in decision.unplaced_gangs if gang not in impossible_gangs),
    ]
    counts: Counter[tuple[Amounts, tuple[Selector, ...]]] = Counter()
    for demand in waiting:
        counts[demand.request.amounts, demand.request.selectors] += demand.count
    return [Demand(Request(amounts, selectors), count) for (amounts, selectors), count in counts.items()]


def _bundles(gangs: Iterable[Gang]) -> list[Demand]:
    return [Demand(bundle) for gang in gangs for bundle in gang.bundles]


def _count(demands: Iterable[Demand]) -> int:
    return sum(demand.count for demand in demands)


# --- words -----------------------------------------------------------------------------------------------------------


def _shapes(demands: Iterable[Demand]) -> str:
    """`{CPU: 1} × 12, {GPU: 2} × 3 and 4 other shapes`."""
    count_by_shape: dict[str, int] = {}
    for demand in demands:
        shape = shape_of(demand.request)
        count_by_shape[shape] = count_by_shape.get(shape, 0) + demand.count
    named = [f"{shape} x {count}" for shape, count in sorted(count_by_shape.items())]
    others = len(named) - MOST_SHAPES
    return ", ".join(named[:MOST_SHAPES]) + (f" and {others} other shapes" if others > 0 else "")


def shape_of(request: Request) -> str:
    """One request in words, labels included."""
    resources = "{" + ", ".join(f"{name}: {_number(amount)}" for name, amount in request.amounts) + "}"
    if not request.selectors or not any(request.selectors):
        return resources
    alternatives = (
        " and ".join(f"{c.key} {'in' if c.is_in else 'not in'} [{', '.join(sorted(c.values))}]" for c in selector)
        or "any node"
        for selector in request.selectors
    )
    return f"{resources} where {' or else '.join(alternatives)}"


def whole(amounts: Amounts, name: str) -> int:
    """That resource in whole Ray units."""
    return dict(amounts).get(name, 0) // UNIT


def _number(amount: int) -> str:
    return f"{amount / UNIT:g}" if amount % UNIT else str(amount // UNIT)
