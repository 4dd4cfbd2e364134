"""Output of an explanation: text for a terminal, JSON or YAML for programs.

The text marks the first blocker with `>`, once in the table of stages and once in the list. Everything that comes from an object
is made printable before it is styled. Prints nothing itself. Called by `raytide why`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import click

from raytide.cli.columns import columns, printable
from raytide.cli.output import encoded
from raytide.explain.encode import as_json
from raytide.explain.messages import change, command_of, short_of
from raytide.explain.model import Blocker, Change, Explanation, Verdict

MARK: Final = ">"
_COLORS: Final = {Verdict.NOTHING_MISSING: "green", Verdict.WAITS: "yellow", Verdict.CAN_NEVER_RUN: "red"}


def render(explanation: Explanation, output: str) -> str:
    """The explanation as `text`, `yaml` or `json`. Programs get ASCII only: it is safe to print as well."""
    if output != "text":
        return encoded(output, as_json(explanation))
    return "\n\n".join(filter(None, _parts(explanation)))


def _parts(explanation: Explanation) -> Iterator[str]:
    name = printable(f"{explanation.kind} {explanation.namespace}/{explanation.name}")
    summary = printable(explanation.summary)
    yield f"{click.style(name, bold=True)}: {click.style(summary, fg=_COLORS[explanation.verdict])}"
    yield _stages(explanation)
    if len(explanation.groups) > 1 or explanation.blockers:
        yield _groups(explanation)
    for title, is_permanent in (("Can never run:", True), ("Waits:", False)):
        yield _blockers(title, explanation, is_permanent=is_permanent)
    if explanation.more_blockers:
        yield f"{explanation.more_blockers} more causes"
    fixes = (line for each in explanation.changes for line in _fix(each))
    yield _section("Fixes, each found by a simulation:", fixes)
    yield _pods(explanation)
    yield _section(
        "Recent warnings:", (_event(each.about, each.reason, each.message, each.at) for each in explanation.events)
    )
    yield _section("Notes:", explanation.notes)
    yield _section("Not read:", (each.error for each in explanation.unreadable))


def _fix(each: Change) -> Iterator[str]:
    yield f"- {change(each)}"
    if command := command_of(each):
        yield f"  $ {command}"


def _stages(explanation: Explanation) -> str:
    if not explanation.stages:
        return ""
    first = explanation.first.stage if explanation.first else None
    rows = [
        (
            MARK if line.stage is first else "!" if line.is_blocked else "",
            line.stage.value,
            "" if line.wanted is None else str(line.wanted),
            "" if line.found is None else str(line.found),
            printable(line.text),
        )
        for line in explanation.stages
    ]
    return columns((" ", "STAGE", "WANTED", "FOUND", ""), rows)


def _groups(explanation: Explanation) -> str:
    if not explanation.groups:
        return ""
    rows = [
        (
            printable(group.name),
            str(group.minimum),
            "-" if group.maximum is None else str(group.maximum),
            str(group.wanted),
            "?" if group.pods is None else str(group.pods),
            "?" if group.ready is None else str(group.ready),
            printable(group.reason),
        )
        for group in explanation.groups
    ]
    table = columns(("GROUP", "MIN", "MAX", "WANTED", "PODS", "READY", "REASON"), rows)
    return table + (f"\n{explanation.more_groups} more groups" if explanation.more_groups else "")


def _blockers(title: str, explanation: Explanation, *, is_permanent: bool) -> str:
    these = [each for each in explanation.blockers if each.is_permanent is is_permanent]
    if not these:
        return ""
    return "\n".join([title, *(line for each in these for line in _blocker(each, is_first=each is explanation.first))])


def _blocker(each: Blocker, *, is_first: bool) -> Iterator[str]:
    whose = f"group {each.group}: " if each.group else ""
    details = [each.stage.value, *([f"since {each.since}"] if each.since else [])]
    reason = click.style(printable(each.reason), bold=True)
    yield f"{MARK if is_first else ' '} {printable(whose)}{reason} ({printable(', '.join(details))})"
    short = [("", short_of(one)) for one in each.shortages]
    for word, text in (("", each.message), *short, ("held by: ", each.holder), ("fix:     ", each.fix)):
        if text:
            yield f"    {word}{printable(text)}"


def _pods(explanation: Explanation) -> str:
    if not explanation.pods:
        return ""
    rows = [
        tuple(map(printable, (pod.name, pod.phase, pod.node or "-", pod.reason or "-", pod.message)))
        for pod in explanation.pods
    ]
    table = columns(("POD NOT READY", "PHASE", "NODE", "REASON", "MESSAGE"), rows)
    return table + (f"\n{explanation.more_pods} more pods" if explanation.more_pods else "")


def _event(pod: str, reason: str, message: str, at: str) -> str:
    about = f"pod {pod}: " if pod else ""
    return f"{at} {about}{reason}: {message}".strip()


def _section(title: str, lines: Iterable[str]) -> str:
    found = [f"  {printable(line)}" for line in lines]
    return "\n".join([title, *found]) if found else ""
