"""Output of a plan as text.

Takes a `PlanResult`; returns a table, or YAML or JSON in the stable form documented in docs/plan.md. Prints nothing itself. Called by `raytide plan`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from raytide.cli.columns import columns, printable
from raytide.cli.output import encoded
from raytide.diagnosis.render import counted
from raytide.fairshare.algorithm.model import (
    Allocation,
    ClusterSnapshot,
    Participant,
    ParticipantId,
    Resize,
    Waiting,
)
from raytide.fairshare.pod_placement import NO_PODS
from raytide.fairshare.victims import name_victims
from raytide.simulator.passes import SharingPass, sizes_after
from raytide.simulator.simulate import PlanResult

MAX_NAMED: Final = 3
"""Pods or nodes of one resize that the table names; `-o json` names all."""


def render(result: PlanResult, output: str) -> str:
    """The plan as `table`, `yaml` or `json`."""
    if output != "table":
        return encoded(output, as_json(result))
    return _tables(result)


def as_json(result: PlanResult) -> dict[str, Any]:
    """The documented form: resizes in order of execution, waiting sorted by name; with submitted objects also the passes."""
    is_submitted = result.before is not None
    return {
        "resizes": [
            {
                "kind": each.id.kind,
                "namespace": each.id.namespace,
                "name": each.id.name,
                **({"pass": number} if is_submitted else {}),
                "from": each.before,
                "to": each.after,
                "reason": each.reason,
                "message": _message(each),
                "victims": list(_victims(which, each)),
                "placements": _placements(each),
            }
            for number, which, each in _resizes(result)
        ],
        "waiting": [
            {
                "namespace": each.id.namespace,
                "name": each.id.name,
                "reason": each.reason,
                "message": _message(each),
                "reservesCapacity": each.is_reserving,
            }
            for each in result.waiting
        ],
        **({"rayClusters": [each.as_json() for each in result.clusters]} if result.clusters else {}),
        **({"quiet": result.is_quiet} if is_submitted else {}),
    }


def effect_sentences(result: PlanResult) -> tuple[str, ...]:
    """What the submitted objects get, RayClusters first, and what other jobs have more or less because of them."""
    after = (result.snapshot, result.allocation)
    changes = differences(result.before or after, after, result.submitted)
    return (*(line for each in result.clusters for line in each.sentences()), *changes)


# --- differences -------------------------------------------------------------------------------------------------------


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


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables(result: PlanResult) -> str:
    parts = [_summary(result)]
    if result.allocation.resizes:
        rows = [
            (str(number), *_resize(each, _where(_victims(which, each), _placements(each))))
            for number, which, each in _resizes(result)
        ]
        titles = ("PASS", "JOB", "FROM", "TO", "REASON", "MESSAGE")
        skipped = int(len(result.passes) == 1)
        parts.append(columns(titles[skipped:], [map(printable, row[skipped:]) for row in rows]))
    if result.waiting:
        sizes = {each.id: each for each in result.snapshot.participants}
        waiting = (_waiting(each, sizes.get(each.id), is_new=each.id in result.submitted) for each in result.waiting)
        titles = ("WAITING", "HAS", "MIN", "MAX", "REASON", "MESSAGE")
        parts.append(columns(titles, [map(printable, row) for row in waiting]))
    if result.before is not None:
        names = " and ".join([*map(str, result.submitted), *(each.name for each in result.clusters)])
        lines = [f"If {printable(names)} were submitted:"]
        lines += [f"  {printable(line)}" for line in effect_sentences(result)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _summary(result: PlanResult) -> str:
    pool = result.snapshot
    usable = sum(node.is_usable for node in pool.nodes)
    below = sum(each.is_below_floor for each in result.allocation.waiting)
    counts = [
        counted(len(pool.participants), "job"),
        f"{usable} of {counted(len(pool.nodes), 'node')} usable",
        counted(len(result.allocation.resizes), "resize"),
        f"{below} below minimum",
    ]
    text = ", ".join(counts) + "."
    if result.before is None or not result.allocation.resizes:
        return text
    passes = f"{len(result.passes)} pass{'' if len(result.passes) == 1 else 'es'}"
    if result.is_quiet:
        return f"{text} Nothing changes after {passes}."
    return f"{text} The sizes still change after {passes}: what follows is not shown."


def _message(each: Resize | Waiting) -> str:
    """Include names of other namespaces: the user has read those objects."""
    return each.full_message or each.message


def _resizes(result: PlanResult) -> Iterator[tuple[int, SharingPass, Resize]]:
    """Each resize with the number of its pass, from 1, and that pass."""
    for number, which in enumerate(result.passes, 1):
        yield from ((number, which, each) for each in which.allocation.resizes)


def _victims(which: SharingPass, each: Resize) -> tuple[str, ...]:
    """The pods that a scale-down removes, those of an unfinished one included."""
    return name_victims(which.trainers.get(each.id, NO_PODS), (each,), each.after)


def _placements(each: Resize) -> dict[str, int]:
    """Node -> number of trainers that a scale-up is planned to get there."""
    return {node: number for node, number in each.nodes.items() if number > 0}


def _where(victims: Sequence[str], placements: Mapping[str, int]) -> str:
    """Which pods are removed, and where new ones come, if it is short."""
    if 0 < len(victims) <= MAX_NAMED:
        return f"; removes {', '.join(victims)}"
    if 0 < len(placements) <= MAX_NAMED:
        return f"; planned on {', '.join(f'{node} ({number})' for node, number in placements.items())}"
    return ""


def _resize(each: Resize, where: str) -> tuple[str, ...]:
    return str(each.id), str(each.before), str(each.after), each.reason, _message(each) + where


def _waiting(each: Waiting, one: Participant | None, *, is_new: bool) -> tuple[str, ...]:
    has = ("-", "-", "-") if one is None else ("new" if is_new else str(one.current), str(one.floor), str(one.ceiling))
    return str(each.id), *has, each.reason, _message(each)
