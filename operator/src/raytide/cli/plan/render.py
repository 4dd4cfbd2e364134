"""Output of a plan as text.

Takes an `PlanResult`; returns a table, or YAML or JSON in the stable form documented in docs/plan.md, or the explanation of
one job. Prints nothing itself. Called by `raytide plan`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from raytide.api.meta import Key
from raytide.cli.columns import columns, printable
from raytide.cli.output import encoded
from raytide.cli.plan.explain import differences, explain
from raytide.cli.plan.passes import SharingPass
from raytide.cli.plan.simulate import PlanResult
from raytide.explain.messages import counted
from raytide.fairshare.algorithm.model import Participant, ParticipantId, Resize, Waiting
from raytide.fairshare.pod_placement import NO_PODS
from raytide.fairshare.victims import name_victims

MAX_NAMED: Final = 3
"""Pods or nodes of one resize that the table names; `-o json` names all."""


class NotFoundError(Exception):
    """The requested job is not managed; the message gives the reason as far as it is known."""


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


def explain_job(result: PlanResult, id_: ParticipantId) -> str:
    """Explain why that job is not larger; raises NotFoundError."""
    for each in result.invalid:
        if each.id == id_:
            raise NotFoundError(f"TrainingJob {id_} is not part of the plan: {each.message}")
    known = sorted(str(each.id) for each in result.snapshot.participants)
    if str(id_) not in known:
        raise NotFoundError(
            f"TrainingJob {id_} is not part of the plan: it does not exist, has ended, is suspended, or its gang timed out recently"
            f" (jobs in the plan: {', '.join(known) or 'none'}); `raytide why {id_.name} -n {id_.namespace}` explains one that exists"
        )
    return explain(result.snapshot, result.allocation, id_)


def of_raycluster(key: Key) -> str:
    """The answer to --explain for the name of a RayCluster."""
    return (
        f"{key.namespace}/{key.name} is a RayCluster, and a plan has TrainingJobs only: "
        f"`raytide why raycluster/{key.name} -n {key.namespace}` explains it"
    )


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
