"""How does a RayCluster follow its demand, second by second?

Takes looks at the cluster (what Ray asks for, the replicas that are wanted, pods, Ray nodes, tasks done), keeps those at
which something changed, and shows them as a growing table, or as a line per change where there is no terminal. From the
same looks it tells how long the first worker, the whole capacity and the way back to zero took. Used by the demo.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.table import Table

from raytide.api.errors import ApiUnavailableError

MAX_ROWS = 12
"""Shown while it moves; the first ones scroll away."""


@dataclass(frozen=True, slots=True)
class Look:
    """What stands at one moment."""

    demand: int = 0
    """Tasks, actors and bundles of placement groups for which Ray has no room now."""
    wanted: int = 0
    """Replicas in the RayCluster's spec: the autoscaler's word."""
    pods: int = 0
    ready_pods: int = 0
    nodes: int = 0
    """Workers that joined Ray, those on their way out not counted."""
    leaving: int = 0
    """Ray nodes that are being drained."""
    done: int = 0
    """Tasks that ended."""

    def cells(self) -> tuple[str, ...]:
        """As columns of the table."""
        nodes = f"{self.nodes} + {self.leaving} draining" if self.leaving else str(self.nodes)
        return str(self.demand), str(self.wanted), f"{self.ready_pods}/{self.pods} Ready", nodes, str(self.done)


COLUMNS = ("demand", "wanted", "pods", "Ray nodes", "tasks done")


@dataclass(slots=True)
class Timeline:
    """The looks at which something changed, with their seconds since the first demand was made."""

    console: Console
    monotonic: Callable[[], float] = time.monotonic
    looks: list[tuple[float, Look]] = field(default_factory=list)
    idle_since_s: float | None = None
    """When the last task had ended."""
    _started: float = 0.0
    _has_begun: bool = False
    """Whether there was any demand."""
    _done: int = 0
    _following: asyncio.Task[None] | None = None

    @property
    def now_s(self) -> float:
        """Seconds since then."""
        return self.monotonic() - self._started

    @property
    def last(self) -> Look:
        """What was seen last; raises what ended the looking before its time."""
        if self._following is not None and self._following.done():
            self._following.result()
        return self.looks[-1][1] if self.looks else Look()

    def task_ended(self) -> None:
        """One more."""
        self._done += 1

    def demand_ended(self, at_monotonic_s: float) -> None:
        """Nobody has needed a worker since then."""
        self.idle_since_s = at_monotonic_s - self._started

    def note(self, look: Look) -> None:
        """Keep it if anything is new."""
        look = replace(look, done=self._done)
        if look.demand and not self._has_begun:
            self._started, self._has_begun = self.monotonic(), True
        if not self._has_begun:
            return
        if self.looks and look == self.looks[-1][1]:
            return
        self.looks.append((self.now_s, look))
        if not self.console.is_terminal:
            words = (f"{name} {cell}" for name, cell in zip(COLUMNS, look.cells(), strict=True))
            self.console.print(f"  +{self.now_s:.0f} s  " + "  ".join(words), highlight=False, soft_wrap=True)

    @contextlib.asynccontextmanager
    async def followed(self, look: Callable[[], Awaitable[Look]], *, every_s: float = 0.25) -> AsyncIterator[None]:
        """Look again and again, until the block ends; a look that fails is made up for by the next."""

        async def follow() -> None:
            while True:
                with contextlib.suppress(ApiUnavailableError):
                    self.note(await look())
                await asyncio.sleep(every_s)

        self._following = asyncio.create_task(follow())
        try:
            yield
        finally:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None

    def table(self, most_rows: int = MAX_ROWS) -> Table:
        """What happened so far, the present at the bottom."""
        table = Table("s", *COLUMNS, title="demand → wanted → pods → Ray nodes", title_justify="left")
        for at_s, look in self.looks[-most_rows:]:
            table.add_row(f"+{at_s:.0f}", *look.cells())
        return table

    async def is_at_zero(self) -> tuple[bool, str]:
        """Whether no worker is left."""
        look = self.last
        is_gone = look.wanted == look.pods == look.nodes + look.leaving == 0
        return is_gone, f"{look.pods} pods, {look.nodes + look.leaving} Ray nodes"

    # --- how long ----------------------------------------------------------------------------------------------------

    @property
    def first_worker_s(self) -> float | None:
        """From the demand to the first Ray node."""
        return self._first(lambda look: look.nodes > 0)

    @property
    def capacity_s(self) -> float | None:
        """From the demand to as many Ray nodes as were wanted at the most."""
        most = max((look.wanted for _, look in self.looks), default=0)
        return self._first(lambda look: look.nodes >= most > 0)

    @property
    def zero_s(self) -> float | None:
        """From the end of the last task to no worker at all."""
        idle_since_s = self.idle_since_s
        if idle_since_s is None:
            return None
        at_s = self._first(lambda look: look.pods == look.nodes + look.leaving == 0, after_s=idle_since_s)
        return None if at_s is None else at_s - idle_since_s

    def _first(self, is_it: Callable[[Look], bool], *, after_s: float = 0.0) -> float | None:
        return next((at_s for at_s, look in self.looks if at_s >= after_s and is_it(look)), None)

    def sum_up(self) -> None:
        """The end: all that moved, where it was not printed line by line already, and how long it took."""
        if self.console.is_terminal:
            self.console.print(self.table(len(self.looks)))
        self.console.print(self._figures())

    def _figures(self) -> Table:
        table = Table("from", "to", "seconds", title="how fast it followed", title_justify="left")
        for since, until, seconds in (
            ("the first task waits", "the first worker", self.first_worker_s),
            ("the first task waits", "all the workers it gets", self.capacity_s),
            ("the last task ended", "no worker any more", self.zero_s),
        ):
            table.add_row(since, until, "-" if seconds is None else f"{seconds:.1f}")
        return table
