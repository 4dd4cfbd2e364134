"""How is a plan printed?

Takes an `Answer`, gives text: a table for people, or the same as YAML or JSON for programs, whose form is documented in
docs/plan.md and does not change; and the long explanation of one job. Prints nothing itself. Called by `raytide plan`.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from raytide.cli.planning.answer import Answer
from raytide.elastic.explain import differences, explain
from raytide.elastic.model import Participant, ParticipantId, Resize, Waiting


class NotThere(Exception):  # noqa: N818 - a sentence for the user
    """The job that was asked about takes no part; the message says why as far as that is known."""


def rendered(answer: Answer, output: str) -> str:
    """The plan as `table`, `yaml` or `json`."""
    if output == "json":
        return json.dumps(as_json(answer), indent=2, ensure_ascii=False)
    if output == "yaml":
        return yaml.safe_dump(as_json(answer), sort_keys=False, allow_unicode=True, width=10_000).rstrip()
    return _tables(answer)


def as_json(answer: Answer) -> dict[str, Any]:
    """The documented form: resizes in the order in which they are carried out, waiting in the order of names."""
    return {
        "resizes": [
            {
                "kind": each.id.kind,
                "namespace": each.id.namespace,
                "name": each.id.name,
                "from": each.before,
                "to": each.after,
                "reason": each.reason,
                "message": _message(each),
            }
            for each in answer.division.resizes
        ],
        "waiting": [
            {"namespace": each.id.namespace, "name": each.id.name, "reason": each.reason, "message": _message(each)}
            for each in answer.waiting
        ],
    }


def explanation(answer: Answer, id_: ParticipantId) -> str:
    """Why that job is not larger; raises NotThere."""
    for each in answer.invalid:
        if each.id == id_:
            raise NotThere(f"{id_} takes no part: {each.message}")
    known = sorted(str(each.id) for each in answer.pool.participants)
    if str(id_) not in known:
        raise NotThere(
            f"{id_} takes no part: there is no such job, or it has ended, is suspended, or its gang timed out just now"
            f" (taking part: {', '.join(known) or 'nobody'})"
        )
    return explain(answer.pool, answer.division, id_)


# --- tables ------------------------------------------------------------------------------------------------------------


def _tables(answer: Answer) -> str:
    parts = [_summary(answer)]
    if answer.division.resizes:
        parts.append(_columns(("JOB", "FROM", "TO", "REASON", "MESSAGE"), map(_resize, answer.division.resizes)))
    if answer.waiting:
        sizes = {each.id: each for each in answer.pool.participants}
        rows = [_waiting(each, sizes.get(each.id), is_new=each.id in answer.submitted) for each in answer.waiting]
        parts.append(_columns(("WAITING", "HAS", "MIN", "MAX", "REASON", "MESSAGE"), rows))
    if answer.before is not None:
        lines = differences(answer.before, (answer.pool, answer.division), answer.submitted)
        parts.append("\n".join([f"If {_listed(answer.submitted)} were submitted:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts)


def _summary(answer: Answer) -> str:
    pool = answer.pool
    usable = sum(node.is_usable for node in pool.nodes)
    below = sum(each.is_below_floor for each in answer.division.waiting)
    told = [
        _count(len(pool.participants), "job"),
        f"{usable} of {_count(len(pool.nodes), 'node')} usable",
        _count(len(answer.division.resizes), "resize"),
        f"{below} below minimum",
    ]
    return ", ".join(told) + "."


def _message(each: Resize | Waiting) -> str:
    """With the names of other namespaces: whoever asks has read those objects."""
    return each.full_message or each.message


def _resize(each: Resize) -> tuple[str, ...]:
    return str(each.id), str(each.before), str(each.after), each.reason, _message(each)


def _waiting(each: Waiting, one: Participant | None, *, is_new: bool) -> tuple[str, ...]:
    has = ("-", "-", "-") if one is None else ("new" if is_new else str(one.current), str(one.floor), str(one.ceiling))
    return str(each.id), *has, each.reason, _message(each)


def _columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned, as kubectl prints; the last column may be as long as it likes."""
    lines = [tuple(titles), *(tuple(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles) - 1)]
    return "\n".join(
        "   ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(ids: Sequence[ParticipantId]) -> str:
    return " and ".join(str(each) for each in ids)
