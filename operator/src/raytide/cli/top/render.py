"""Lanes as text: drawn in a terminal by rich, or as plain lines.

Names and messages come from objects that other users write: they are made printable, and never parsed as markup. Without rich,
which the container image leaves out, and without a terminal, lines are plain. Called by `raytide top`.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import click

from raytide.cli.columns import columns, printable
from raytide.cli.output import encoded
from raytide.explain.model import Phase, Verdict
from raytide.explain.overview import Lane, as_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BAR: Final = 20
"""Width of a bar, in characters."""
LEAST_NAME: Final = 40
"""How much of a name a terminal shows at least: a third of its width, or this."""
_COLORS: Final = {Verdict.NOTHING_MISSING: "green", Verdict.WAITS: "yellow", Verdict.CAN_NEVER_RUN: "red"}
_WORDS: Final = {Verdict.NOTHING_MISSING: "", Verdict.WAITS: "waits", Verdict.CAN_NEVER_RUN: "can never run"}


class Screen(ABC):
    """Where lanes are shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - most have nothing to restore
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal, if it was changed."""

    @abstractmethod
    def show(self, lanes: list[Lane], errors: list[str], *, has_namespaces: bool) -> None:
        """Show these lanes and what cannot be read; called when something has changed."""


def screen(*, is_terminal: bool) -> Screen:
    """The screen for this standard output."""
    if is_terminal:
        try:
            return TerminalScreen()
        except ModuleNotFoundError:
            pass
    return PlainScreen()


def once_as(output: str, lanes: list[Lane], *, has_namespaces: bool) -> str:
    """All lanes as `table`, `json` or `yaml`."""
    if output != "table":
        return encoded(output, as_json(lanes))
    titles, rows = table(lanes, has_namespaces=has_namespaces)
    return columns(titles, rows) if rows else "there are neither RayClusters nor TrainingJobs"


def table(lanes: list[Lane], *, has_namespaces: bool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows of the plain table."""
    titles = ("KIND", *(("NAMESPACE",) if has_namespaces else ()), "NAME", "READY", "WANTED", "STATE", "REASON")
    return titles, [row(lane, has_namespaces=has_namespaces) for lane in lanes]


def row(lane: Lane, *, has_namespaces: bool) -> tuple[str, ...]:
    """One row of the plain table."""
    where = (printable(lane.namespace),) if has_namespaces else ()
    state = lane.size.phase.value.lower() or _WORDS[lane.verdict] or "-"
    return (lane.kind, *where, printable(lane.name), *_numbers(lane), state, reason(lane) or "-")


def _numbers(lane: Lane) -> tuple[str, str]:
    """Ready and wanted; what a suspended workload wants once it is resumed stands in brackets, and one that has ended wants nothing."""
    match lane.size.phase:
        case Phase.SUSPENDED:
            return str(lane.ready), f"({lane.size.needed})"
        case Phase.SUCCEEDED | Phase.FAILED:
            return "-", "-"
    return str(lane.ready), str(lane.wanted)


def reason(lane: Lane) -> str:
    """Reason, message and number of other reasons."""
    more = f" (and {lane.more} more)" if lane.more else ""
    return printable(f"{lane.reason}: {lane.message}" if lane.message else lane.reason) + more


def bar(lane: Lane, width: int = BAR) -> str:
    """`████░░░░`: ready of wanted; at least one block of each that there is."""
    if lane.wanted <= 0:
        return "·" * width if not lane.ready else "█" * width
    ready = min(lane.ready, lane.wanted)
    filled = ready * width // lane.wanted
    filled = min(max(filled, int(ready > 0)), width - int(ready < lane.wanted))
    return "█" * filled + "░" * (width - filled)


class PlainScreen(Screen):
    """Prints the table once, and then each lane that has changed as one more row."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str, str], Lane] | None = None
        self._errors: list[str] = []

    def show(self, lanes: list[Lane], errors: list[str], *, has_namespaces: bool) -> None:
        """Print what is new."""
        current = {(lane.kind, lane.namespace, lane.name): lane for lane in lanes}
        if self._shown is None:
            click.echo(once_as("table", lanes, has_namespaces=has_namespaces))
        else:
            for key, lane in current.items():
                if self._shown.get(key) != lane:
                    click.echo("   ".join(row(lane, has_namespaces=has_namespaces)))
            for kind, namespace, name in self._shown.keys() - current.keys():
                click.echo(f"{kind}   {printable(f'{namespace}/{name}' if has_namespaces else name)}   deleted")
        for error in errors:
            if error not in self._errors:
                click.echo(f"not read: {printable(error)}", err=True)
        self._shown, self._errors = current, errors


class TerminalScreen(Screen):
    """Draws the lanes in place, as many as the terminal has lines for."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console  # noqa: PLC0415 - only in a terminal
        from rich.live import Live  # noqa: PLC0415 - same

        self._console: Console = console or Console()
        self._live: Live = Live(console=self._console, auto_refresh=False, screen=self._console.is_terminal)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, lanes: list[Lane], errors: list[str], *, has_namespaces: bool) -> None:
        """Draw the lanes."""
        size = self._console.size
        room = max(1, size.height - 3 - len(errors))
        self._live.update(
            drawn(lanes, errors, lines=room, has_namespaces=has_namespaces, width=size.width), refresh=True
        )


def drawn(
    lanes: list[Lane], errors: list[str], *, lines: int, has_namespaces: bool, width: int = 80
) -> "RenderableType":
    """The lanes for a terminal of that width; those that do not fit are counted."""
    from rich.console import Group  # noqa: PLC0415 - only in a terminal
    from rich.table import Table  # noqa: PLC0415 - same
    from rich.text import Text  # noqa: PLC0415 - same

    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    one_line: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    found.add_column(Text("WORKLOAD"), max_width=max(LEAST_NAME, width // 3), **one_line)
    found.add_column(Text("READY OF WANTED"), **one_line)
    found.add_column(Text(""), **one_line)
    found.add_column(
        Text("REASON")
    )  # the only column that may wrap is the one that gets narrower; its texts do not wrap
    for lane in lanes[:lines]:
        name = f"{lane.namespace}/{lane.name}" if has_namespaces else lane.name
        color = _COLORS[lane.verdict]
        found.add_row(
            Text(printable(name), style="bold"),
            Text(bar(lane), style=color),
            Text("/".join(_numbers(lane)) if lane.size.phase is not Phase.SUCCEEDED else "✓"),
            Text(reason(lane), style=color, **one_line),
        )
    counts = _counts(lanes)
    hidden = f"; {len(lanes) - lines} more do not fit" if len(lanes) > lines else ""
    footer = [
        Text(f"{counts}{hidden}", style="dim"),
        *(Text(f"not read: {printable(each)}", style="red") for each in errors),
    ]
    return Group(found, *footer)


def _counts(lanes: list[Lane]) -> str:
    parts = [f"{sum(lane.verdict is verdict for lane in lanes)} {word}" for verdict, word in _WORDS.items() if word]
    return f"{len(lanes)} workload{'s' if len(lanes) != 1 else ''}: {', '.join(parts)}"
