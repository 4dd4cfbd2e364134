"""Explanations: why a participant is not larger, and what would change that.

Input: the snapshot and its plan. Output: sentences for users: what the participant has and wants, its planned size, which
sentence of ADR 0023 decided, which node comes closest to one more instance and what is missing there, which participants
hold that, which other rules apply, and what would help. `differences` shows what submitted participants change for the
others. Decides nothing: the plan is taken as it is. Called by `raytide plan` (TJ §7 items 8 and 15).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.api.pod_requirements import PODS, Amounts, PodConstraints
from raytide.cli.columns import printable
from raytide.cli.plan.sentences import deciding
from raytide.explain.messages import counted
from raytide.fairshare.algorithm.format_quantity import spell, spell_with_name
from raytide.fairshare.algorithm.model import (
    HELD_BY_RANK_ZERO,
    Allocation,
    ClusterSnapshot,
    Node,
    Participant,
    ParticipantId,
    Quota,
    Resize,
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
_SUSPENDED: Final = (
    "suspending that job (spec.suspend: true) until this one has started: trainer 0 then starts elsewhere"
)


# --- the answer --------------------------------------------------------------------------------------------------------


def explain(snapshot: ClusterSnapshot, allocation: Allocation, id_: ParticipantId) -> str:
    """The explanation for one participant, in lines; raises KeyError if it is not managed."""
    participants = {participant.id: participant for participant in snapshot.participants}
    participant, sizes = participants[id_], sizes_after(snapshot, allocation)
    waiting = next((waiting for waiting in allocation.waiting if waiting.id == id_), None)
    resizes = [resize for resize in allocation.resizes if resize.id == id_]
    lines = [_size_line(participant, sizes[id_]), *map(_resize_line, resizes)]
    lines += deciding(resizes, waiting, rebalances=participant.takes_by_rebalancing)
    if sizes[id_] >= participant.ceiling and waiting is None:
        return _text([*lines, "It is at its maximum; a higher maximum would let it grow."])
    planned = _PlannedCapacity(snapshot, allocation)
    short = planned.missing(participant.shape)
    first = (
        _pending_pod_lines(participant, snapshot, waiting) if waiting is not None and waiting.is_capacity_kept else []
    )
    obstacles = [
        *_waiting_lines(waiting),
        *_rule_lines(participant),
        *_node_lines(participant.shape, planned),
        *_load_limit_lines(participant, snapshot, short),
        *_quota_lines(participant, snapshot),
        *_tenant_lines(participant, snapshot),
        *first,
    ]
    holder_lines = list(_holder_lines(participant, snapshot, sizes, short)) if short else []
    remedy_lines = list(_remedy_lines(participant, sizes[id_], planned, snapshot))
    remedy_lines += [_SUSPENDED] if waiting is not None and waiting.reason == HELD_BY_RANK_ZERO else []
    remedy_lines += ["capacity for these pending pods of other workloads, or their deletion"] if first else []
    lines += _section("Obstacles:", obstacles)
    lines += _section(f"Holders of {_either(sorted(short))} on nodes where it may run:", holder_lines)
    lines += _section("What would help:", remedy_lines)
    return _text(lines)


def _text(lines: Iterable[str]) -> str:
    """The lines, none of which is another one's text."""
    return "\n".join(map(printable, lines))


def differences(
    before: tuple[ClusterSnapshot, Allocation],
    after: tuple[ClusterSnapshot, Allocation],
    submitted: Iterable[ParticipantId],
) -> tuple[str, ...]:
    """What the submitted participants get, and what every other participant has more or less because of them."""
    submitted_ids = set(submitted)
    size_without, size_with = sizes_after(*before), sizes_after(*after)
    waiting_by_id = {waiting.id: waiting for waiting in after[1].waiting if waiting.is_below_floor}
    lines = [
        _outcome(participant, size_with[participant.id], waiting_by_id.get(participant.id))
        for participant in after[0].participants
        if participant.id in submitted_ids
    ]
    current = {participant.id: participant.current for participant in before[0].participants}
    changed = [
        _change(id_, current[id_], size_without[id_], size_with[id_])
        for id_ in sorted(size_without)
        if size_without[id_] != size_with[id_]
    ]
    return (*lines, *(changed or [f"the size of no {'other ' if submitted_ids else ''}job changes"]))


def sizes_after(snapshot: ClusterSnapshot, allocation: Allocation) -> dict[ParticipantId, int]:
    """Size of every participant once the plan is carried out."""
    sizes = {participant.id: participant.current for participant in snapshot.participants}
    sizes.update((resize.id, resize.after) for resize in allocation.resizes)
    return sizes


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = [f"  - {line}" for line in lines]
    return [title, *found] if found else []


# --- what it has -------------------------------------------------------------------------------------------------------


def _size_line(participant: Participant, planned_size: int) -> str:
    bounds = f"{participant.floor} to {participant.ceiling}" if participant.is_elastic else f"{participant.floor}"
    size_text = (
        f"has {participant.current} of {bounds}"
        if participant.current or not participant.is_gang
        else f"is not admitted; its bounds are {bounds}"
    )
    score = (
        f" (score {float(participant.score_at(max(participant.current, participant.floor))):.2f})"
        if participant.is_elastic and participant.current
        else ""
    )
    plan_text = (
        "this plan does not change it"
        if planned_size == participant.current
        else f"this plan scales it to {planned_size}"
    )
    return f"{participant.id} {size_text}{score}; {plan_text}."


def _resize_line(resize: Resize) -> str:
    return f"{resize.before} -> {resize.after}: {resize.reason}: {resize.full_message or resize.message}"


def _waiting_lines(waiting: Waiting | None) -> list[str]:
    if waiting is None:
        return []
    sentence = f"{waiting.reason}: {waiting.full_message or waiting.message}"
    return (
        [sentence, f"{RESERVED_FOR_IT}: gangs behind it start only on capacity that it does not need"]
        if waiting.is_reserving
        else [sentence]
    )


def _rule_lines(participant: Participant) -> Iterator[str]:
    if not participant.is_elastic and participant.current >= participant.floor:
        yield "its minimum equals its maximum: its size is fixed"
    elif not participant.is_scaling_enabled:
        yield "scaling is disabled for it"
    elif not participant.may_grow:
        yield "it is in a cooldown: its last resize is recent or not complete"


# --- nodes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gap:
    """What one node lacks for one more pod."""

    node: Node
    free: Amounts
    missing: Amounts


class _PlannedCapacity:
    """Every usable node with what is free there once the plan is carried out."""

    def __init__(self, snapshot: ClusterSnapshot, allocation: Allocation) -> None:
        shapes = {participant.id: participant.shape for participant in snapshot.participants}
        used: dict[str, dict[str, int]] = {
            node.name: {name: node.used.get(name, 0) - node.terminating.get(name, 0) for name in _names(node)}
            for node in snapshot.nodes
        }
        for resize in allocation.resizes:
            for name, count in resize.nodes.items():
                _add(used.get(name, {}), shapes[resize.id], count)
        self.unusable: Final = sum(not node.is_usable for node in snapshot.nodes)
        self._node_lines = [node for node in snapshot.nodes if node.is_usable]
        self._used = used

    def gaps(self, shape: Shape) -> list[_Gap]:
        """The nodes that admit such a pod, by what they lack, the least first; nodes that lack nothing lead."""
        allowed = (node for node in self._node_lines if admits(node, shape.constraints))
        return sorted((self._node_gap(node, shape) for node in allowed), key=lambda gap: _distance(gap, shape))

    def excluded(self, constraints: PodConstraints) -> int:
        """How many usable nodes its constraints keep it from."""
        return sum(not admits(node, constraints) for node in self._node_lines)

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


def why_unschedulable(snapshot: ClusterSnapshot, shape: Shape) -> str:
    """Why one more pod of that shape fits on no node of the snapshot, in words."""
    return "; ".join(_node_lines(shape, _PlannedCapacity(snapshot, Allocation())))


def _node_lines(shape: Shape, planned: _PlannedCapacity) -> Iterator[str]:
    gaps = planned.gaps(shape)
    if excluded := planned.excluded(shape.constraints):
        yield f"{counted(excluded, 'node')} excluded by node selector, affinity or taints"
    if planned.unusable:
        yield f"{counted(planned.unusable, 'node')} not usable: not ready, or cordoned"
    if not gaps:
        yield "it may run on none of the usable nodes"
    elif gaps[0].missing:
        first = gaps[0]
        lacks = ", ".join(_lack(name, amount, first, shape) for name, amount in first.missing.items())
        others = f", of {len(gaps)} that it may run on" if len(gaps) > 1 else ""
        yield f"node {first.node.name} comes closest{others}: it lacks {lacks}"


def _lack(name: str, amount: int, gap: _Gap, shape: Shape) -> str:
    wanted = {PODS: 1, **shape.requests}[name]
    there = max(0, gap.free[name])
    total = gap.node.allocatable.get(name, 0)
    return f"{spell_with_name(name, amount)} (it requests {spell_with_name(name, wanted)}; {spell(name, there)} of {spell(name, total)} free)"


# --- sums --------------------------------------------------------------------------------------------------------------


def _load_limit_lines(participant: Participant, snapshot: ClusterSnapshot, short: Amounts) -> Iterator[str]:
    """Sums that end growth before the nodes do (TJ §3 rows 5 and 15); a node that lacks the same explains it better."""
    state = begin(snapshot)
    pod = state.capacity.pod(participant.shape)
    wanted = {**participant.shape.requests, **participant.shape.limits} if participant.uses_limits else {}
    asked = participant.shape.requests
    for name in sorted(name for name in wanted.keys() - {PODS} if name not in short or wanted[name] != asked.get(name)):
        percent = snapshot.options.max_load_percent.get(name, _FULL)
        bound, left = state.load.bound(pod, name), state.load.left_by_limits(pod, name)
        if left < wanted[name]:
            yield (
                f"counted by limits, {spell(name, bound - left)} of {spell_with_name(name, bound)} are used before this plan"
                f"{f' (growth may use up to {percent} %)' if percent < _FULL else ''}"
            )
    for name, percent in sorted(snapshot.options.max_load_percent.items()):
        if percent < _FULL and (amount := participant.shape.requests.get(name, 0)):
            bound, left = state.load.bound(pod, name), state.load.left_by_requests(pod, name)
            if left < amount:
                yield f"growth may use up to {percent} % of {name}: {spell(name, bound - left)} of {spell_with_name(name, bound)} are used"


def _quota_lines(participant: Participant, snapshot: ClusterSnapshot) -> Iterator[str]:
    for quota in _exceeded_quotas(participant, snapshot):
        for name, amount in _charge(participant.shape).items():
            if quota.free.get(name, amount) < amount:
                left = spell(name, max(0, quota.free[name]))
                yield f"ResourceQuota {quota.namespace}/{quota.name} allows {left} more of {name}, one instance needs {spell(name, amount)}"


def _tenant_lines(participant: Participant, snapshot: ClusterSnapshot) -> Iterator[str]:
    """The quota and borrowing limit of its tenant, where they are used up before this plan."""
    state = begin(snapshot)
    tenant, pod = state.tenants.by_name(participant.tenant), state.capacity.pod(participant.shape)
    if (short := tenant.shortfall([(pod, 1)])) is not None:
        left, wanted = spell(short.resource, short.left), spell(short.resource, short.wanted)
        yield f"tenant {participant.tenant} may use {left} more of {short.resource}, one instance needs {wanted}"


def _exceeded_quotas(participant: Participant, snapshot: ClusterSnapshot) -> list[Quota]:
    charge = _charge(participant.shape)
    return [
        quota
        for quota in snapshot.quotas
        if quota.is_for(participant.id)
        and any(quota.free.get(name, amount) < amount for name, amount in charge.items())
    ]


def _charge(shape: Shape) -> Mapping[str, int]:
    limits = {f"limits.{name}": amount for name, amount in shape.limits.items()}
    return {PODS: 1, **shape.requests, **limits}


# --- pending pods of other workloads -----------------------------------------------------------------------------------


def _pending_pod_lines(participant: Participant, snapshot: ClusterSnapshot, waiting: Waiting) -> list[str]:
    """Pending pods of other workloads that get free capacity before it does, on nodes where it may run."""
    allowed = [node for node in snapshot.nodes if node.is_usable and admits(node, participant.shape.constraints)]
    ahead = (
        pods for pods in snapshot.external_pods if not waiting.is_below_floor or pods.priority >= participant.priority
    )
    ahead_of_it = [pods for pods in ahead if any(_could_hold(node, pods.shape) for node in allowed)]
    if not ahead_of_it:
        return []
    count = sum(pods.count for pods in ahead_of_it)
    names = sorted(
        name
        for name in participant.shape.requests.keys() - {PODS}
        if any(name in pods.shape.requests for pods in ahead_of_it)
    )
    sums = ((name, sum(pods.shape.requests.get(name, 0) * pods.count for pods in ahead_of_it)) for name in names)
    wanted = " and ".join(spell_with_name(name, amount) for name, amount in sums)
    asked = f": {wanted}" if wanted else ""
    if count == 1:
        return [f"pod {ahead_of_it[0].name} of another workload is pending and receives free capacity first{asked}"]
    more = f"{count - 1} more of other workloads"
    return [f"pod {ahead_of_it[0].name} and {more} are pending and receive free capacity first{asked}"]


def _could_hold(node: Node, shape: Shape) -> bool:
    wants = ((name, amount) for name, amount in shape.requests.items() if name != PODS)
    return admits(node, shape.constraints) and all(node.allocatable.get(name, 0) >= amount for name, amount in wants)


# --- others ------------------------------------------------------------------------------------------------------------


def _holder_lines(
    participant: Participant, snapshot: ClusterSnapshot, sizes: Mapping[ParticipantId, int], short: Amounts
) -> Iterator[str]:
    """Participants that hold the missing resources on nodes that it may use, the largest holder first."""
    allowed = {node.name for node in snapshot.nodes if node.is_usable and admits(node, participant.shape.constraints)}
    held = []
    for other in snapshot.participants:
        count = sum(number for name, number in other.placed.items() if name in allowed)
        amounts = {name: other.shape.requests.get(name, 0) * count for name in sorted(short)}
        if other.id != participant.id and any(amounts.values()):
            held.append((amounts, other))
    held.sort(key=lambda resize: ([-amount for amount in resize[0].values()], resize[1].id))
    for amounts, other in held[:_SHOWN]:
        has = " and ".join(spell_with_name(name, amount) for name, amount in amounts.items() if amount)
        yield f"{other.id}: {has}, with {sizes[other.id]} of {other.floor} to {other.ceiling}; {_gives(other, participant, sizes)}"
    if len(held) > _SHOWN:
        yield f"{len(held) - _SHOWN} more"
    if rest := _external_pods_use(snapshot, allowed, short):
        yield f"pods of other workloads: {rest}"


def _gives(other: Participant, participant: Participant, sizes: Mapping[ParticipantId, int]) -> str:
    """Whether the other participant would be scaled down for one below its minimum, and why not."""
    if not participant.may_preempt:
        cause = (
            "that have scheduling gates, or got no node before"
            if participant.is_unproven
            else "with preemptionPolicy: Never"
        )
        return f"it is not scaled down for pods {cause}"
    if other.tenant != participant.tenant and other.is_scaling_enabled and sizes[other.id] > other.floor:
        return "it belongs to another tenant, and is scaled down if that tenant has a higher share or borrows"
    if other.priority > participant.priority:
        return f"it has a higher priority ({other.priority} against {participant.priority})"
    if not other.is_scaling_enabled:
        return "scaling is disabled for it"
    if sizes[other.id] <= other.floor:
        return "it is at its minimum"
    is_minimum = participant.current < participant.floor
    if not other.may_shrink and (other.priority == participant.priority or not is_minimum):
        return "it is in a cooldown"
    if participant.rebalances and other.rebalances and other.priority < participant.priority:
        return f"it is scaled down to {other.floor} for jobs of a higher priority"
    if participant.rebalances and other.rebalances:
        return f"it is scaled down to {other.floor} for jobs below their minimum, and for others once they are much less fulfilled"
    return f"it is scaled down to {other.floor}, but only for jobs below their minimum"


def _external_pods_use(snapshot: ClusterSnapshot, allowed: set[str], short: Amounts) -> str:
    ours: dict[str, int] = {}
    for other in snapshot.participants:
        _add(ours, other.shape, sum(number for name, number in other.placed.items() if name in allowed))
        if other.companion is not None:
            there = sum(number for name, number in other.companion.placed.items() if name in allowed)
            _add(ours, other.companion.shape, there)
    used = {
        name: sum(node.used.get(name, 0) for node in snapshot.nodes if node.name in allowed) for name in sorted(short)
    }
    rest = {name: amount - ours.get(name, 0) for name, amount in used.items()}
    return " and ".join(spell_with_name(name, amount) for name, amount in rest.items() if amount > 0)


# --- what would help ---------------------------------------------------------------------------------------------------


def _remedy_lines(
    participant: Participant, size: int, planned: _PlannedCapacity, snapshot: ClusterSnapshot
) -> Iterator[str]:
    if size >= participant.floor and not (participant.is_elastic and participant.is_scaling_enabled):
        yield "a higher maximum" if participant.is_scaling_enabled else "enabling its scaling"
        return
    gaps = planned.gaps(participant.shape)
    step = (larger_size(participant, size) or size + 1) - size
    if not gaps:
        yield f"a node that it may run on, with {_requests_text(participant.shape)} free"
    elif gaps[0].missing:
        more = " and ".join(spell_with_name(name, amount) for name, amount in gaps[0].missing.items())
        yield f"{more} more free on node {gaps[0].node.name}, or another node with {_requests_text(participant.shape)} free"
    for quota in _exceeded_quotas(participant, snapshot):
        yield f"a larger ResourceQuota {quota.namespace}/{quota.name}, or fewer pods there"
    if step > 1:
        yield f"capacity for {step} at once: sizes between {size} and {size + step} are not allowed"
    if not participant.may_grow:
        yield "time: it is considered again when its cooldown ends"


def _requests_text(shape: Shape) -> str:
    return (
        " and ".join(spell_with_name(name, amount) for name, amount in shape.requests.items() if name != PODS)
        or "one pod"
    )


# --- differences -------------------------------------------------------------------------------------------------------


def _outcome(participant: Participant, size: int, waiting: Waiting | None) -> str:
    if waiting is not None:
        start = "waits" if participant.is_gang else f"starts with {size}, but not all of them fit"
        return f"{participant.id} {start}: {waiting.reason}: {waiting.message}"
    return f"{participant.id} starts with {size} of {participant.floor} to {participant.ceiling}"


def _change(id_: ParticipantId, now: int, without: int, having: int) -> str:
    if having < now:
        return f"{id_} is scaled down by {now - having} ({now} -> {having})"
    if having < without:
        return f"{id_} grows by {without - having} less ({now} -> {having}, not {without})"
    return f"{id_} has {having - without} more ({now} -> {having}, not {without})"


# --- formatting --------------------------------------------------------------------------------------------------------


def _either(names: list[str]) -> str:
    return " or ".join(names)
