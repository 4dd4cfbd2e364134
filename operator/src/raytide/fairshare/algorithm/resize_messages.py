"""Messages of resizes, and which names they may contain.

Input: one segment of a participant. Output: the sizes, the reason and the claimant as a sentence. Every reader of an
object can read its messages, even without access to other namespaces: for the reader of a namespace only participants
and pods in it are named, all others are counted. Without a reader everything is named, for the operator's log and for
`raytide plan`, which shows what its user may read (FD:SEC-F7). Called by allocate.py, pending_reasons.py and
release_unschedulable.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from raytide.api.sharing_record import (
    ADMITTED,
    AWAITING_NODES,
    REACHING_MINIMUM,
    REBALANCED,
    RECLAIMED,
    RELEASED,
    SIZE_NOT_ALLOWED,
    YIELDED_TO_PODS,
)
from raytide.fairshare.algorithm.model import ParticipantId
from raytide.fairshare.algorithm.participant_state import ParticipantState, ResizeStep, largest_size

_NAMED: Final = 3
"""How many receivers are named in a sentence."""

RESERVED_FOR_IT: Final = "free capacity is reserved for it"
"""Follows the reason why a participant waits that has a reservation."""

Shares = Mapping[ParticipantId, ParticipantState]


def sentence(
    participant: ParticipantState, segment: ResizeStep, participants: Shares, *, reader: str | None = None
) -> str:
    """The message for readers of that namespace; None: with all names."""
    sizes = f"{segment.before}→{segment.after}"
    if segment.is_growth:
        return _larger(participant, segment, sizes)
    why = _why_smaller(participant, segment, participants, reader)
    if segment.reason not in RELEASED and participant.release_message_for(reader):
        why = f"{why}; {participant.release_message_for(reader)}"
    return f"ScaledDown {sizes}{why}"


def job_name(id_: ParticipantId, reader: str | None) -> str:
    """A participant's name, or a phrase without it."""
    return str(id_) if _is_readable(id_.namespace, reader) else "a job of another namespace"


def pod_name(name: str, reader: str | None) -> str:
    """A pod's namespace/name, or a phrase without it."""
    return name if _is_readable(name.partition("/")[0], reader) else "a pod of another namespace"


def _is_readable(namespace: str, reader: str | None) -> bool:
    return reader is None or namespace == reader


def _larger(participant: ParticipantState, segment: ResizeStep, sizes: str) -> str:
    later = "" if segment.is_released else ", as soon as terminating pods are gone"
    if segment.reason == ADMITTED:
        return f"Admitted with {segment.after}: its minimum of {participant.spec.floor} fits{later}"
    if segment.reason == AWAITING_NODES:
        return f"Admitted with {segment.after} without capacity, so that a node autoscaler adds nodes for them"
    if segment.reason == REACHING_MINIMUM:
        return f"ScaledUp {sizes} to reach its minimum of {participant.spec.floor}{later}"
    if segment.reason == REBALANCED:
        return f"ScaledUp {sizes} with capacity from other jobs{later}"
    return f"ScaledUp {sizes} into free capacity{later}"


def _why_smaller(participant: ParticipantState, segment: ResizeStep, participants: Shares, reader: str | None) -> str:
    if segment.reason in (RECLAIMED, YIELDED_TO_PODS):
        needs = _needs([participants[each] for each in segment.for_ids], reader) + _pods(segment.for_pods, reader)
        needs += _receivers(participant, [participants[each] for each in segment.receivers], reader)
        return f" for {', and for '.join(needs) or 'its own pods that have no node'}"
    if segment.reason == REBALANCED:
        return f" for {', and for '.join(_receivers(participant, [participants[each] for each in segment.receivers], reader))}"
    if segment.reason in RELEASED:
        return f": {participant.release_message_for(reader)}"
    if segment.reason == SIZE_NOT_ALLOWED:
        return f": {segment.before} is not an allowed size"
    if (largest := largest_size(participant.spec)) < participant.spec.ceiling:
        return f": {largest} is the largest allowed size up to its maximum of {participant.spec.ceiling}"
    return f": its maximum is {participant.spec.ceiling}"


def _receivers(donor: ParticipantState, receivers: Sequence[ParticipantState], reader: str | None) -> list[str]:
    """One phrase for each reason why jobs grow with what the donor gives."""
    groups: dict[str, list[ParticipantId]] = {}
    for each in receivers:
        groups.setdefault(_claim(donor, each), []).append(each.spec.id)
    return [f"{_names(ids, reader)}, which {_CLAIMS[claim][len(ids) > 1]}" for claim, ids in groups.items()]


_CLAIMS: Final = {
    "tenant": ("belongs to a tenant with a lower share", "belong to tenants with lower shares"),
    "priority": ("has a higher priority", "have a higher priority"),
    "gpus": ("needs the capacity to use idle GPUs", "need the capacity to use idle GPUs"),
    "score": ("is less fulfilled", "are less fulfilled"),
}
"""Why a participant gets what another one has above its minimum: for one, and for several."""


def _claim(donor: ParticipantState, receiver: ParticipantState) -> str:
    if receiver.tenant is not donor.tenant:
        return "tenant"
    if receiver.spec.priority > donor.spec.priority:
        return "priority"
    return "gpus" if receiver.has_gpus and not donor.has_gpus else "score"


def _names(ids: Sequence[ParticipantId], reader: str | None) -> str:
    """The first few that may be named, and how many others there are."""
    known = [str(id_) for id_ in ids if _is_readable(id_.namespace, reader)]
    hidden, more = len(ids) - len(known), len(known[_NAMED:])
    named = ", ".join(known[:_NAMED]) + (f" and {more} more" if more else "")
    return " and ".join(filter(None, (named, _hidden_jobs(hidden))))


def _needs(claimants: Sequence[ParticipantState], reader: str | None) -> list[str]:
    """One phrase for each claimant that may be named, and one for all others."""
    known = [each for each in claimants if _is_readable(each.spec.id.namespace, reader)]
    hidden = [each for each in claimants if not _is_readable(each.spec.id.namespace, reader)]
    words = [f"{each.spec.id}, which needs {_missing(each)} to reach its minimum" for each in known]
    if hidden:
        missing, one = sum(map(_missing, hidden)), len(hidden) == 1
        verb, whose = ("needs", "its minimum") if one else ("need", "their minimum")
        words.append(f"{_hidden_jobs(len(hidden))}, which {verb} {missing} to reach {whose}")
    return words


def _missing(claimant: ParticipantState) -> int:
    return max(1, claimant.spec.floor - sum(claimant.spec.placed.values()))


def _hidden_jobs(count: int) -> str:
    if not count:
        return ""
    return "a job of another namespace" if count == 1 else f"{count} jobs of other namespaces"


def _pods(pods: Sequence[str], reader: str | None) -> list[str]:
    """One phrase for all of them; empty if there are none."""
    if not pods:
        return []
    has = "have" if len(pods) > 1 else "has"
    if not _is_readable(pods[0].partition("/")[0], reader):
        named = f"{len(pods)} pods of other namespaces" if len(pods) > 1 else "a pod of another namespace"
        return [f"{named}, which {has} a higher priority and no node"]
    more = len(pods) - 1
    others = f" and {more} more {'pods' if more > 1 else 'pod'} of other workloads" if more else ""
    return [f"{pods[0]}{others}, which {has} a higher priority and no node"]
