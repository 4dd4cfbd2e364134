"""Output of the steps of a demo.

Each step has a title and a deadline. While it runs, a terminal shows its state and duration, below a live view; when it has ended, one
line is printed, and after the last step a table with all durations. A step that exceeds its deadline fails with its last state.
Used by the demos.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import ClientError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from raytide.api.errors import ApiStatusError, ApiUnavailableError

from demo_cluster import DemoError

_REFRESH_S: Final = 0.25

State = tuple[bool, str]
"""Whether a state is reached, and a description of the current state."""


class Step:
    """A running step."""

    def __init__(self, title: str, deadline_s: float) -> None:
        self.title = title
        self._spinner = Spinner("dots", title)
        self._deadline_s = deadline_s
        self._started = time.monotonic()
        self.seen = ""

    @property
    def took_s(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self._started

    def note(self, seen: str) -> None:
        """Show the current state."""
        self.seen = seen
        line = f"{self.title}: [dim]{seen}[/] ({self.took_s:.0f} of at most {self._deadline_s:.0f} s)"
        self._spinner.update(text=line)

    def render(self, view: Callable[[], RenderableType] | None) -> RenderableType:
        """The line of the step, below the live view."""
        return self._spinner if view is None else Group(view(), self._spinner)

    async def until(self, check: Callable[[], Awaitable[State]]) -> None:
        """Call `check` four times a second until the state is reached."""
        while True:
            try:
                is_reached, seen = await check()
            except ApiUnavailableError as error:
                is_reached, seen = False, f"the API does not answer: {error}"
            self.note(seen)
            if is_reached:
                return
            await asyncio.sleep(0.25)


class Transcript:
    """The steps so far."""

    def __init__(self, console: Console, title: str = "raytide demo") -> None:
        self.console = console
        self._title = title
        self._printed: list[tuple[str, float, bool]] = []

    @property
    def is_complete(self) -> bool:
        """Whether all steps have succeeded."""
        return all(succeeded for _, _, succeeded in self._printed)

    def fail(self) -> None:
        """Record a failure between two steps or before the first."""
        if self.is_complete:
            self._printed.append(("between the steps", 0.0, False))

    @asynccontextmanager
    async def step(
        self, title: str, *, deadline_s: float, view: Callable[[], RenderableType] | None = None
    ) -> AsyncIterator[Step]:
        """Run a step; raises DemoError with the last state if it exceeds its deadline."""
        step = Step(title, deadline_s)
        succeeded = False
        async with self._drawn(lambda: step.render(view)):
            try:
                async with asyncio.timeout(deadline_s):
                    yield step
                succeeded = True
            except TimeoutError:
                message = f"{title}: not within {deadline_s:.0f} s; last state: {step.seen or 'none'}"
                raise DemoError(message) from None
            except (ApiStatusError, ApiUnavailableError, ClientError) as error:
                raise DemoError(f"{title}: {error or type(error).__name__}") from error
            finally:
                self._printed.append((title, step.took_s, succeeded))
        line = f"[green]✓[/] {title} [dim]{step.took_s:.1f} s  {step.seen}[/]"
        self.console.print(line, highlight=False, soft_wrap=True)

    @asynccontextmanager
    async def _drawn(self, view: Callable[[], RenderableType]) -> AsyncIterator[None]:
        """Draw the view until the block ends, in the event loop, which also changes the lanes: a thread could read them meanwhile."""

        async def draw(live: Live) -> None:
            while True:
                live.refresh()
                await asyncio.sleep(_REFRESH_S)

        with Live(get_renderable=view, console=self.console, auto_refresh=False, transient=True) as live:
            drawing = asyncio.create_task(draw(live))
            try:
                yield
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)

    def print_table(self) -> None:
        """Print all steps with their durations."""
        table = Table("step", "seconds", "", title=self._title, title_justify="left")
        for title, seconds, succeeded in self._printed:
            table.add_row(title, f"{seconds:.1f}", "[green]ok[/]" if succeeded else "[red]failed[/]")
        table.add_row("all", f"{sum(seconds for _, seconds, _ in self._printed):.1f}", "")
        self.console.print(table)
