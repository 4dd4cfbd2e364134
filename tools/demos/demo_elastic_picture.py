"""How do several jobs share a cluster, second by second?

Takes looks at the jobs (trainers wanted and running, score, progress, loss) and what was decided about them, and shows
three things: a bar per job as it is now, a column chart of the shares since the beginning below the line of what fits,
and what happened, in the operator's words. The same picture is written as an SVG at the end. Used by demo_elastic.py.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

COLOURS = ("dodger_blue2", "dark_orange", "green3", "medium_purple1")
MAX_COLUMNS = 96
"""Of the chart: the whole time is drawn in so many at most."""
BESIDE_COLUMNS = 22
EVENTS = 14
WIDTH = 124
FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fetched from elsewhere by whoever looks at the picture: it does without."""
TITLE = "make demo-elastic: the trainers of three jobs on 3 nodes of 8 CPUs"


@dataclass(frozen=True, slots=True)
class JobLook:
    """One job at one moment."""

    name: str
    wanted: int = 0
    running: int = 0
    least: int = 0
    most: int = 0
    phase: str = ""
    done: int = 0
    """Tasks."""
    loss: float | None = None
    """Of the last tasks."""

    @property
    def score(self) -> float:
        """Fulfilment: 0 at the minimum, 1 at the maximum."""
        return (self.wanted - self.least) / (self.most - self.least) if self.most > self.least else 1.0


@dataclass(frozen=True, slots=True)
class Happening:
    """What was decided, or what the demo did."""

    at_s: float
    job: str
    words: str


@dataclass(slots=True)
class Picture:
    """The looks so far; `slots` trainers fit into the cluster."""

    slots: int
    monotonic: Callable[[], float] = time.monotonic
    looks: list[tuple[float, Mapping[str, JobLook]]] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    _began: float | None = None

    @property
    def now_s(self) -> float:
        """Seconds since the picture began."""
        if self._began is None:
            self._began = self.monotonic()
        return self.monotonic() - self._began

    @property
    def jobs(self) -> list[str]:
        """All that were ever there, as they came."""
        return list(dict.fromkeys(name for _, look in self.looks for name in look))

    def note(self, jobs: Iterable[JobLook]) -> None:
        """What is there now."""
        self.looks.append((self.now_s, {job.name: job for job in jobs}))

    def note_event(self, job: str, words: str) -> None:
        """Something happened."""
        self.happenings.append(Happening(self.now_s, job, words))

    # --- drawing -----------------------------------------------------------------------------------------------------
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """All of it, as wide as there is room."""
        yield Group(self.bars(), Text(), self.chart(options.max_width), Text(), self.transcript())

    def colour(self, job: str) -> str:
        """Always the same for a job."""
        return COLOURS[self.jobs.index(job) % len(COLOURS)] if job in self.jobs else "white"

    def bars(self) -> Table:
        """A row per job, and what is taken of what there is."""
        table = Table("job", f"trainers, {self.slots} fit", "wanted", "score", "phase", "tasks", "loss", expand=False)
        look = self.looks[-1][1] if self.looks else {}
        for job in look.values():
            coming = max(0, job.wanted - job.running)
            bar = Text("█" * 2 * job.running + "░" * 2 * coming, style=self.colour(job.name))
            bar.append(" " * 2 * max(0, self.slots - job.running - coming))
            loss = "" if job.loss is None else f"{job.loss:.4f}"
            wanted = f"{job.wanted} of {job.least}–{job.most}"
            table.add_row(job.name, bar, wanted, f"{job.score:.2f}", job.phase, str(job.done), loss)
        return table

    def chart(self, width: int = WIDTH) -> Text:
        """Running trainers over time, one job on another; each row is a trainer, the line is what fits."""
        columns = self._columns(max(1, min(MAX_COLUMNS, width - BESIDE_COLUMNS)))
        chart = Text()
        for row in range(self.slots, 0, -1):
            chart.append(f"{row:>4} ", style="dim")
            for owner, cells in groupby(_owner(look, row) for look in columns):
                count = sum(1 for _ in cells)
                chart.append(count * ("█" if owner else " "), style=_filled(self.colour(owner)) if owner else "")
            chart.append("▏ all that fits\n" if row == self.slots else "▏\n", style="dim")
        chart.append("   s " + self._ticks(len(columns)) + "\n", style="dim")
        for job in self.jobs:
            chart.append(f"     █ {job}", style=self.colour(job))
        return chart

    def _columns(self, count: int) -> list[Mapping[str, JobLook]]:
        """The look that held at each of so many moments."""
        if not self.looks:
            return []
        end_s = self.looks[-1][0]
        columns, at = [], 0
        for number in range(count):
            moment_s = end_s * (number + 1) / count
            while at + 1 < len(self.looks) and self.looks[at + 1][0] <= moment_s:
                at += 1
            columns.append(self.looks[at][1])
        return columns

    def _ticks(self, count: int) -> str:
        end_s = self.looks[-1][0] if self.looks else 0.0
        texts = (f"{end_s * number / count:<12.0f}" for number in range(0, count, 12))
        return "".join(texts)

    def transcript(self) -> Table:
        """What happened last, and why."""
        table = Table("s", "job", "what happened", expand=False, show_header=True)
        for happening in self.happenings[-EVENTS:]:
            words = Text(happening.words, style=self.colour(happening.job), overflow="fold")
            table.add_row(f"+{happening.at_s:.0f}", happening.job, words)
        return table

    def save(self, path: Path) -> None:
        """As an SVG, with everything that happened."""
        console = Console(record=True, width=WIDTH, file=_Nowhere(), force_terminal=True, color_system="truecolor")
        console.print(Group(self.chart(), Text(), self.transcript()))
        path.write_text(FONT.sub("", console.export_svg(title=TITLE)))


def _filled(colour: str) -> str:
    """A cell without a seam to the next, where glyphs are drawn one by one."""
    return f"{colour} on {colour}"


def _owner(look: Mapping[str, JobLook], row: int) -> str:
    """Whose trainer is the `row`th from below; empty: nobody's."""
    below = 0
    for job in look.values():
        below += job.running
        if row <= below:
            return job.name
    return ""


class _Nowhere:
    """A file that keeps nothing: the console is asked for its record."""

    def write(self, text: str) -> int:
        """Forget it."""
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""
