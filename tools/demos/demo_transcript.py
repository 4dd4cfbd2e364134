"""How does a long story look on a terminal?

Steps with a title and a deadline go in; a live line says what is waited for and for how long, below whatever moves beside
it; a finished step leaves one line, and a table with times ends it. A step that runs out of time fails with what it saw
last. Used by the demos.
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

Seen = tuple[bool, str]
"""Whether the state is reached, and what was seen."""


class Step:
    """One step that is being told."""

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
        """Show what is seen at the moment."""
        self.seen = seen
        line = f"{self.title}: [dim]{seen}[/] ({self.took_s:.0f} of at most {self._deadline_s:.0f} s)"
        self._spinner.update(text=line)

    def shown(self, beside: Callable[[], RenderableType] | None) -> RenderableType:
        """The line, and what moves above it."""
        return self._spinner if beside is None else Group(beside(), self._spinner)

    async def until(self, look: Callable[[], Awaitable[Seen]]) -> None:
        """Look four times a second until the state is reached; the step's deadline is the limit."""
        while True:
            try:
                is_reached, seen = await look()
            except ApiUnavailableError as error:
                is_reached, seen = False, f"the API does not answer: {error}"
            self.note(seen)
            if is_reached:
                return
            await asyncio.sleep(0.25)


class Transcript:
    """The steps told so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed: list[tuple[str, float, bool]] = []

    @property
    def is_on_terminal(self) -> bool:
        """Whether anything can move."""
        return self._console.is_terminal

    @property
    def is_complete(self) -> bool:
        """Whether every step that began also succeeded."""
        return all(succeeded for _, _, succeeded in self._printed)

    def fail(self) -> None:
        """What failed was between two steps, or clearing up before the first."""
        if self.is_complete:
            self._printed.append(("between the steps", 0.0, False))

    @asynccontextmanager
    async def step(
        self, title: str, *, deadline_s: float, beside: Callable[[], RenderableType] | None = None
    ) -> AsyncIterator[Step]:
        """Tell one step; raises DemoError with what was seen last when its time is over."""
        step = Step(title, deadline_s)
        succeeded = False
        async with self._drawn(lambda: step.shown(beside)):
            try:
                async with asyncio.timeout(deadline_s):
                    yield step
                succeeded = True
            except TimeoutError:
                raise DemoError(
                    f"{title}: not within {deadline_s:.0f} s; last seen: {step.seen or 'nothing'}"
                ) from None
            except (ApiStatusError, ApiUnavailableError, ClientError) as error:
                raise DemoError(f"{title}: {error or type(error).__name__}") from error
            finally:
                self._printed.append((title, step.took_s, succeeded))
        self._console.print(
            f"[green]✓[/] {title} [dim]{step.took_s:.1f} s  {step.seen}[/]", highlight=False, soft_wrap=True
        )

    @asynccontextmanager
    async def _drawn(self, view: Callable[[], RenderableType]) -> AsyncIterator[None]:
        """Draw the view until the block ends, by the event loop: it changes the lanes, and a thread would read them meanwhile."""

        async def draw(live: Live) -> None:
            while True:
                live.refresh()
                await asyncio.sleep(_REFRESH_S)

        with Live(get_renderable=view, console=self._console, auto_refresh=False, transient=True) as live:
            drawing = asyncio.create_task(draw(live))
            try:
                yield
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)

    def table(self, heading: str = "raytide demo") -> None:
        """The whole story with times."""
        table = Table("step", "seconds", "", title=heading, title_justify="left")
        for title, seconds, succeeded in self._printed:
            table.add_row(title, f"{seconds:.1f}", "[green]ok[/]" if succeeded else "[red]failed[/]")
        table.add_row("all", f"{sum(seconds for _, seconds, _ in self._printed):.1f}", "")
        self._console.print(table)
