"""Write docs/conditions.md and docs/events.md, or check that they are current.

The pages have every condition, reason and event that the operator writes, from the code (reason_texts.py), so that none of it can
differ from what users see. It fails for a reason that the code can write (reason_sources.py) and the pages do not have.
`python tools/generators/reasons.py` writes, `--check` changes nothing.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from condition_reasons import raycluster_conditions, trainingjob_conditions
from event_reasons import raycluster_events, trainingjob_events
from raytide.api import constants
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.kube.event_recorder import WARNING
from reason_sources import written_reasons
from reason_texts import KINDS, RAYCLUSTER, TRAININGJOB, Condition, Event, MissingEntryError

ROOT: Final = Path(__file__).resolve().parents[2]


def conditions() -> dict[str, tuple[Condition, ...]]:
    """The conditions of each kind; fails for a reason of the code that none of them has."""
    found = {RAYCLUSTER: raycluster_conditions(), TRAININGJOB: trainingjob_conditions()}
    listed = {
        reason.described.name
        for each in found[RAYCLUSTER]
        if each.described.name == constants.SCALING_LIMITED
        for reason in each.reasons
    }
    if listed != {*map(str, LIMIT_REASONS), constants.OTHER_LIMIT}:
        raise MissingEntryError(
            f"reasons of ScalingLimited: {sorted(listed ^ {*map(str, LIMIT_REASONS), constants.OTHER_LIMIT})}"
        )
    for kind in KINDS:
        names = {reason.described.name for each in found[kind] for reason in each.reasons}
        _require(kind, "conditions", names, written_reasons(kind).conditions)
    return found


def events() -> dict[str, tuple[Event, ...]]:
    """The events of each kind; fails for a reason of the code that none of them has, and for a warning without a remedy."""
    found = {RAYCLUSTER: raycluster_events(), TRAININGJOB: trainingjob_events()}
    for kind in KINDS:
        _require(kind, "events", {event.described.name for event in found[kind]}, written_reasons(kind).events)
        for event in found[kind]:
            if event.type == WARNING and not event.described.cure:
                raise MissingEntryError(f"the warning {event.described.name} of a {kind} has no text on what to do")
    return found


def _require(kind: str, page: str, listed: Collection[str], written: Collection[str]) -> None:
    if missing := sorted(set(written) - set(listed)):
        raise MissingEntryError(f"docs/{page}.md has no {', '.join(missing)}, which the code writes for a {kind}")


CONDITIONS_INTRODUCTION: Final = (
    "# Conditions\n\n<!-- Written by tools/generators/reasons.py (`make reasons`): change the docstrings in the code. -->\n\n"
    "Every condition in `status.conditions` of a RayCluster or a TrainingJob, with every reason, generated from the code of this version.\n"
    "Words in upper case stand for names, numbers and texts. [`raytide why`](why.md) shows what blocks one object and what to do about it;\n"
    "[events](events.md) show what happened.\n"
)
EVENTS_INTRODUCTION: Final = (
    "# Events\n\n<!-- Written by tools/generators/reasons.py (`make reasons`): change the docstrings in the code. -->\n\n"
    "Every event that the operator posts about a RayCluster or a TrainingJob, generated from the code of this version. Words in upper case\n"
    "stand for names, numbers and texts. If one pass makes several writes of the same kind, the operator posts one event with their number\n"
    "and the first and last name, such as `Created 3 pods FIRST … LAST`. Events about the spec are posted once per generation.\n"
    "`kubectl describe` shows the events of an object. The API server deletes events after an hour by default;\n"
    "[conditions](conditions.md) stay in the status.\n"
)


def conditions_page() -> str:
    """docs/conditions.md."""
    parts = [CONDITIONS_INTRODUCTION]
    for kind, found in conditions().items():
        parts.append(f"## {kind}\n")
        for each in found:
            parts.append(f"### {each.described.name} of a {kind}\n\n{each.described.meaning}\n")
            if each.messages:
                parts.append(f"Message: {_code(each.messages)}.\n")
            if each.remark:
                parts.append(f"{each.remark}\n")
            has_messages = any(reason.messages for reason in each.reasons)
            head = ("status", "reason", "means", *(("message",) if has_messages else ()), "what to do")
            rows = [
                (
                    reason.status,
                    f"`{reason.described.name}`",
                    reason.described.meaning,
                    *((_code(reason.messages),) if has_messages else ()),
                    reason.described.cure,
                )
                for reason in each.reasons
            ]
            parts.append(_table(head, rows))
    return "\n".join(parts)


def events_page() -> str:
    """docs/events.md."""
    parts = [EVENTS_INTRODUCTION]
    for kind, found in events().items():
        rows = [
            (
                event.type,
                f"`{event.described.name}`",
                event.described.meaning,
                _code(event.messages),
                event.described.cure,
            )
            for event in found
        ]
        parts.append(f"## Events of a {kind}\n\nPosted by `{kind.lower()}-controller`.\n")
        parts.append(_table(("type", "reason", "when", "message", "what to do"), rows))
    return "\n".join(parts)


def _code(texts: Iterable[str]) -> str:
    return " or ".join(f"`{text}`" for text in texts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def build_all() -> dict[Path, str]:
    """Every file that is written here, as it should be."""
    return {ROOT / "docs" / "conditions.md": conditions_page(), ROOT / "docs" / "events.md": events_page()}


def main() -> None:
    """Write, or with `--check` compare."""
    try:
        built = build_all()
    except MissingEntryError as error:
        sys.exit(str(error))
    if "--check" in sys.argv[1:]:
        old = [path for path, text in built.items() if not path.exists() or path.read_text() != text]
        if old:
            sys.exit("\n".join(f"{path} is not current, run `make reasons`" for path in old))
        return
    for path, text in built.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
