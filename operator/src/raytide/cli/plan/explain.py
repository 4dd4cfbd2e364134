"""Explanations: why a participant is not larger, and what would change that.

Input: the pool and its plan. Output: sentences for users: what the participant has and wants, its planned size, which
node comes closest to one more instance and what is missing there, which participants hold that, which other rules
apply, and what would help. `differences` shows what submitted participants change for the others. Decides nothing: the
plan is taken as it is. Called by `raytide plan` (TJ §7 items 8 and 15).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.fairshare.algorithm.format_quantity import spell, spell_with_name
from raytide.fairshare.algorithm.model import (
    PODS,
    Allocation,
    Amounts,
    ClusterSnapshot,
    Constraints,
    Node,
    Participant,
    ParticipantId,
    Quota,
    Shape,
    Waiting,
)
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.algorithm.participant_state import larger_size
from raytide.fairshare.algorithm.resize_messages import RESERVED_FOR_IT
from raytide.fairshare.algorithm.state import begin

_SHOWN: Final = 5
"""How many holders are named."""
_FULL: Final = 100


# --- the answer --------------------------------------------------------------------------------------------------------


def explain(pool: ClusterSnapshot, division: Allocation, id_: ParticipantId) -> str:
    """The explanation for one participant, in lines; raises KeyError if it is not managed."""
    everybody = {one.id: one for one in pool.participants}
    one, sizes = everybody[id_], sizes_after(pool, division)
    said = next((waiting for waiting in division.waiting if waiting.id == id_), None)
    lines = [_standing(one, sizes[id_]), *_resizes(division, one)]
    if sizes[id_] >= one.ceiling and said is None:
        return "\n".join([*lines, "It is at its maximum; a higher maximum would let it grow."])
    after = _After(pool, division)
    short = after.missing(one.shape)
    first = _first(one, pool, said) if said is not None and said.is_room_kept else []
    obstacles = [
        *_said(said),
        *_rules(one),
        *_nodes(one, after),
        *_sums(one, pool, short),
        *_quotas(one, pool),
        *_tenant(one, pool),
        *first,
    ]
    holders = list(_holders(one, pool, sizes, short)) if short else []
    helping = list(_would_help(one, sizes[id_], after, pool))
    helping += ["capacity for these pending pods of other workloads, or their deletion"] if first else []
    lines += _section("Obstacles:", obstacles)
    lines += _section(f"Holders of {_either(sorted(short))} on nodes where it may run:", holders)
    lines += _section("What would help:", helping)
    return "\n".join(lines)


def differences(
    before: tuple[ClusterSnapshot, Allocation],
    after: tuple[ClusterSnapshot, Allocation],
    submitted: Iterable[ParticipantId],
) -> tuple[str, ...]:
    """What the submitted participants get, and what every other participant has more or less because of them."""
    new = set(submitted)
    without, having = sizes_after(*before), sizes_after(*after)
    waiting = {one.id: one for one in after[1].waiting if one.is_below_floor}
    lines = [_outcome(one, having[one.id], waiting.get(one.id)) for one in after[0].participants if one.id in new]
    now = {one.id: one.current for one in before[0].participants}
    changed = [
        _change(id_, now[id_], without[id_], having[id_]) for id_ in sorted(without) if without[id_] != having[id_]
    ]
    return (*lines, *(changed or ["the size of no other job changes"]))


def sizes_after(pool: ClusterSnapshot, division: Allocation) -> dict[ParticipantId, int]:
    """Size of every participant once the plan is carried out."""
    sizes = {one.id: one.current for one in pool.participants}
    sizes.update((one.id, one.after) for one in division.resizes)
    return sizes


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = [f"  - {line}" for line in lines]
    return [title, *found] if found else []


# --- what it has -------------------------------------------------------------------------------------------------------


def _standing(one: Participant, after: int) -> str:
    bounds = f"{one.floor} to {one.ceiling}" if one.is_elastic else f"{one.floor}"
    begun = (
        f"has {one.current} of {bounds}"
        if one.current or not one.is_gang
        else f"is not admitted; its bounds are {bounds}"
    )
    score = f" (score {float(one.score_at(max(one.current, one.floor))):.2f})" if one.is_elastic and one.current else ""
    given = "this plan does not change it" if after == one.current else f"this plan scales it to {after}"
    return f"{one.id} {begun}{score}; {given}."


def _resizes(division: Allocation, one: Participant) -> list[str]:
    return [
        f"{each.before} -> {each.after}: {each.reason}: {each.full_message or each.message}"
        for each in division.resizes
        if each.id == one.id
    ]


def _said(waiting: Waiting | None) -> list[str]:
    if waiting is None:
        return []
    said = f"{waiting.reason}: {waiting.full_message or waiting.message}"
    return (
        [said, f"{RESERVED_FOR_IT}: gangs behind it start only on capacity that it does not need"]
        if waiting.is_reserving
        else [said]
    )


def _rules(one: Participant) -> Iterator[str]:
    if not one.is_elastic:
        yield "its minimum equals its maximum: its size is fixed"
    elif not one.is_scaling_enabled:
        yield "scaling is disabled for it"
    elif not one.may_grow:
        yield "it is in a cooldown: its last resize is recent or not complete"


# --- nodes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gap:
    """What one node lacks for one more pod."""

    node: Node
    free: Amounts
    missing: Amounts


class _After:
    """Every usable node with what is free there once the plan is carried out."""

    def __init__(self, pool: ClusterSnapshot, division: Allocation) -> None:
        shapes = {one.id: one.shape for one in pool.participants}
        used: dict[str, dict[str, int]] = {
            node.name: {name: node.used.get(name, 0) - node.leaving.get(name, 0) for name in _names(node)}
            for node in pool.nodes
        }
        for resize in division.resizes:
            for name, count in resize.nodes.items():
                _add(used.get(name, {}), shapes[resize.id], count)
        self.unusable: Final = sum(not node.is_usable for node in pool.nodes)
        self._nodes = [node for node in pool.nodes if node.is_usable]
        self._used = used

    def gaps(self, shape: Shape) -> list[_Gap]:
        """The nodes that admit such a pod, by what they lack, the least first; nodes that lack nothing lead."""
        allowed = (node for node in self._nodes if admits(node, shape.constraints))
        return sorted((self._node_gap(node, shape) for node in allowed), key=lambda gap: _distance(gap, shape))

    def excluded(self, constraints: Constraints) -> int:
        """How many usable nodes its constraints keep it from."""
        return sum(not admits(node, constraints) for node in self._nodes)

    def missing(self, shape: Shape) -> Amounts:
        """What the closest node lacks; empty if one more fits, or if no node admits the pod."""
        gaps = self.gaps(shape)
        return gaps[0].missing if gaps else {}

    def _node_gap(self, node: Node, shape: Shape) -> _Gap:
        used = self._used[node.name]
        wants = {PODS: 1, **shape.requests}
        free = {
            name: node.allocatable.get(name, 0) - used.get(name, 0)
            for name in wants
            if name != PODS or PODS in node.allocatable
        }
        missing = {name: wants[name] - left for name, left in free.items() if left < wants[name]}
        return _Gap(node, free, missing)


def _names(node: Node) -> set[str]:
    return {*node.allocatable, *node.used}


def _add(used: dict[str, int], shape: Shape, count: int) -> None:
    for name, amount in {PODS: 1, **shape.requests}.items():
        used[name] = used.get(name, 0) + amount * count


def _distance(gap: _Gap, shape: Shape) -> tuple[int, float, str]:
    parts = [amount / max(1, shape.requests.get(name, 1)) for name, amount in gap.missing.items()]
    return len(parts), sum(parts), gap.node.name


def _nodes(one: Participant, after: _After) -> Iterator[str]:
    gaps = after.gaps(one.shape)
    if excluded := after.excluded(one.shape.constraints):
        yield f"{_count(excluded, 'node')} excluded by node selector, affinity or taints"
    if after.unusable:
        yield f"{_count(after.unusable, 'node')} not usable: not ready, or cordoned"
    if not gaps:
        yield "it may run on none of the usable nodes"
    elif gaps[0].missing:
        first = gaps[0]
        lacks = ", ".join(_lack(name, amount, first, one.shape) for name, amount in first.missing.items())
        others = f", of {len(gaps)} that it may run on" if len(gaps) > 1 else ""
        yield f"node {first.node.name} comes closest{others}: it lacks {lacks}"


def _lack(name: str, amount: int, gap: _Gap, shape: Shape) -> str:
    wanted = {PODS: 1, **shape.requests}[name]
    there = max(0, gap.free[name])
    total = gap.node.allocatable.get(name, 0)
    return f"{spell_with_name(name, amount)} (it requests {spell_with_name(name, wanted)}; {spell(name, there)} of {spell(name, total)} free)"


# --- sums --------------------------------------------------------------------------------------------------------------


def _sums(one: Participant, pool: ClusterSnapshot, short: Amounts) -> Iterator[str]:
    """Sums that end growth before the nodes do (TJ §3 rows 5 and 15); a node that lacks the same explains it better."""
    state = begin(pool)
    pod = state.room.pod(one.shape)
    wanted = {**one.shape.requests, **one.shape.limits} if one.is_accounted_by_limits else {}
    asked = one.shape.requests
    for name in sorted(name for name in wanted.keys() - {PODS} if name not in short or wanted[name] != asked.get(name)):
        percent = pool.options.max_load_percent.get(name, _FULL)
        bound, left = state.load.bound(pod, name), state.load.left_by_limits(pod, name)
        if left < wanted[name]:
            yield (
                f"counted by limits, {spell(name, bound - left)} of {spell_with_name(name, bound)} are used before this plan"
                f"{f' (growth may use up to {percent} %)' if percent < _FULL else ''}"
            )
    for name, percent in sorted(pool.options.max_load_percent.items()):
        if percent < _FULL and (amount := one.shape.requests.get(name, 0)):
            bound, left = state.load.bound(pod, name), state.load.left_by_requests(pod, name)
            if left < amount:
                yield f"growth may use up to {percent} % of {name}: {spell(name, bound - left)} of {spell_with_name(name, bound)} are used"


def _quotas(one: Participant, pool: ClusterSnapshot) -> Iterator[str]:
    for quota in _refusing(one, pool):
        for name, amount in _charge(one.shape).items():
            if quota.free.get(name, amount) < amount:
                left = spell(name, max(0, quota.free[name]))
                yield f"ResourceQuota {quota.namespace}/{quota.name} allows {left} more of {name}, one instance needs {spell(name, amount)}"


def _tenant(one: Participant, pool: ClusterSnapshot) -> Iterator[str]:
    """The quota and borrowing limit of its tenant, where they are used up before this plan."""
    state = begin(pool)
    tenant, pod = state.tenants.of(one.tenant), state.room.pod(one.shape)
    if state.tenants.has_any and (short := state.tenants.shortfall(tenant, [(pod, 1)])) is not None:
        left, wanted = spell(short.resource, short.left), spell(short.resource, short.wanted)
        yield f"tenant {one.tenant} may use {left} more of {short.resource}, one instance needs {wanted}"


def _refusing(one: Participant, pool: ClusterSnapshot) -> list[Quota]:
    charge = _charge(one.shape)
    return [
        quota
        for quota in pool.quotas
        if quota.is_for(one.id) and any(quota.free.get(name, amount) < amount for name, amount in charge.items())
    ]


def _charge(shape: Shape) -> Mapping[str, int]:
    limits = {f"limits.{name}": amount for name, amount in shape.limits.items()}
    return {PODS: 1, **shape.requests, **limits}


# --- pending pods of other workloads -----------------------------------------------------------------------------------


def _first(one: Participant, pool: ClusterSnapshot, said: Waiting) -> list[str]:
    """Pending pods of other workloads that get free capacity before it does, on nodes where it may run."""
    allowed = [node for node in pool.nodes if node.is_usable and admits(node, one.shape.constraints)]
    ahead = (who for who in pool.external_pods if not said.is_below_floor or who.priority >= one.priority)
    waiting = [who for who in ahead if any(_could_hold(node, who.shape) for node in allowed)]
    if not waiting:
        return []
    count = sum(who.count for who in waiting)
    names = sorted(
        name for name in one.shape.requests.keys() - {PODS} if any(name in who.shape.requests for who in waiting)
    )
    sums = ((name, sum(who.shape.requests.get(name, 0) * who.count for who in waiting)) for name in names)
    wanted = " and ".join(spell_with_name(name, amount) for name, amount in sums)
    asked = f": {wanted}" if wanted else ""
    if count == 1:
        return [f"pod {waiting[0].name} of another workload is pending and receives free capacity first{asked}"]
    more = f"{count - 1} more of other workloads"
    return [f"pod {waiting[0].name} and {more} are pending and receive free capacity first{asked}"]


def _could_hold(node: Node, shape: Shape) -> bool:
    wants = ((name, amount) for name, amount in shape.requests.items() if name != PODS)
    return admits(node, shape.constraints) and all(node.allocatable.get(name, 0) >= amount for name, amount in wants)


# --- others ------------------------------------------------------------------------------------------------------------


def _holders(
    one: Participant, pool: ClusterSnapshot, sizes: Mapping[ParticipantId, int], short: Amounts
) -> Iterator[str]:
    """Participants that hold the missing resources on nodes that it may use, the largest holder first."""
    allowed = {node.name for node in pool.nodes if node.is_usable and admits(node, one.shape.constraints)}
    held = []
    for other in pool.participants:
        count = sum(number for name, number in other.placed.items() if name in allowed)
        amounts = {name: other.shape.requests.get(name, 0) * count for name in sorted(short)}
        if other.id != one.id and any(amounts.values()):
            held.append((amounts, other))
    held.sort(key=lambda each: ([-amount for amount in each[0].values()], each[1].id))
    for amounts, other in held[:_SHOWN]:
        has = " and ".join(spell_with_name(name, amount) for name, amount in amounts.items() if amount)
        yield f"{other.id}: {has}, with {sizes[other.id]} of {other.floor} to {other.ceiling}; {_gives(other, one, sizes)}"
    if len(held) > _SHOWN:
        yield f"{len(held) - _SHOWN} more"
    if rest := _external_pods_use(pool, allowed, short):
        yield f"pods of other workloads: {rest}"


def _gives(other: Participant, one: Participant, sizes: Mapping[ParticipantId, int]) -> str:
    """Whether the other participant would be scaled down for one below its minimum, and why not."""
    if other.tenant != one.tenant and other.is_scaling_enabled and sizes[other.id] > other.floor:
        return "it belongs to another tenant, and is scaled down if that tenant has a higher share or borrows"
    if other.priority > one.priority:
        return f"it has a higher priority ({other.priority} against {one.priority})"
    if not other.is_scaling_enabled:
        return "scaling is disabled for it"
    if sizes[other.id] <= other.floor:
        return "it is at its minimum"
    is_minimum = one.current < one.floor
    if not other.may_shrink and (other.priority == one.priority or not is_minimum):
        return "it is in a cooldown"
    if one.rebalances and other.rebalances and other.priority < one.priority:
        return f"it is scaled down to {other.floor} for jobs of a higher priority"
    if one.rebalances and other.rebalances:
        return f"it is scaled down to {other.floor} for jobs below their minimum, and for others once they are much less fulfilled"
    return f"it is scaled down to {other.floor}, but only for jobs below their minimum"


def _external_pods_use(pool: ClusterSnapshot, allowed: set[str], short: Amounts) -> str:
    ours: dict[str, int] = {}
    for other in pool.participants:
        _add(ours, other.shape, sum(number for name, number in other.placed.items() if name in allowed))
        if other.companion is not None:
            there = sum(number for name, number in other.companion.placed.items() if name in allowed)
            _add(ours, other.companion.shape, there)
    used = {name: sum(node.used.get(name, 0) for node in pool.nodes if node.name in allowed) for name in sorted(short)}
    rest = {name: amount - ours.get(name, 0) for name, amount in used.items()}
    return " and ".join(spell_with_name(name, amount) for name, amount in rest.items() if amount > 0)


# --- what would help ---------------------------------------------------------------------------------------------------


def _would_help(one: Participant, size: int, after: _After, pool: ClusterSnapshot) -> Iterator[str]:
    if not one.is_elastic or not one.is_scaling_enabled:
        yield "a higher maximum" if one.is_scaling_enabled else "enabling its scaling"
        return
    gaps = after.gaps(one.shape)
    step = (larger_size(one, size) or size + 1) - size
    if not gaps:
        yield f"a node that it may run on, with {_asked(one.shape)} free"
    elif gaps[0].missing:
        more = " and ".join(spell_with_name(name, amount) for name, amount in gaps[0].missing.items())
        yield f"{more} more free on node {gaps[0].node.name}, or another node with {_asked(one.shape)} free"
    for quota in _refusing(one, pool):
        yield f"a larger ResourceQuota {quota.namespace}/{quota.name}, or fewer pods there"
    if step > 1:
        yield f"capacity for {step} at once: sizes between {size} and {size + step} are not allowed"
    if not one.may_grow:
        yield "time: it is considered again when its cooldown ends"


def _asked(shape: Shape) -> str:
    return (
        " and ".join(spell_with_name(name, amount) for name, amount in shape.requests.items() if name != PODS)
        or "one pod"
    )


# --- differences -------------------------------------------------------------------------------------------------------


def _outcome(one: Participant, size: int, waiting: Waiting | None) -> str:
    if waiting is not None:
        start = "waits" if one.is_gang else f"starts with {size}, but not all of them fit"
        return f"{one.id} {start}: {waiting.reason}: {waiting.message}"
    return f"{one.id} starts with {size} of {one.floor} to {one.ceiling}"


def _change(id_: ParticipantId, now: int, without: int, having: int) -> str:
    if having < now:
        return f"{id_} is scaled down by {now - having} ({now} -> {having})"
    if having < without:
        return f"{id_} grows by {without - having} less ({now} -> {having}, not {without})"
    return f"{id_} has {having - without} more ({now} -> {having}, not {without})"


# --- formatting --------------------------------------------------------------------------------------------------------


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _either(names: list[str]) -> str:
    return " or ".join(names)
