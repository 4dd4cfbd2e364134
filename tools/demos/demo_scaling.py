"""Timeline of a RayCluster that is scaled by demand.

Takes snapshots of the cluster (demand, desired replicas, pods, Ray nodes, finished tasks), keeps those with changes, and shows them as a
table, or as a line per change without a terminal. Computes the durations until the first worker, the full capacity and the
scale-down to zero. Used by demo.py.
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
"""Number of rows while the demo runs; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the cluster at one moment."""

    demand: int = 0
    """Tasks, actors and bundles of placement groups that are pending."""
    wanted: int = 0
    """Replicas in the spec of the RayCluster, set by the autoscaler."""
    pods: int = 0
    ready_pods: int = 0
    nodes: int = 0
    """Workers that have joined Ray, without those being drained."""
    draining: int = 0
    """Ray nodes that are being drained."""
    done: int = 0
    """Finished tasks."""

    def cells(self) -> tuple[str, ...]:
        """Cells of a row of the table."""
        nodes = f"{self.nodes} + {self.draining} draining" if self.draining else str(self.nodes)
        return str(self.demand), str(self.wanted), f"{self.ready_pods}/{self.pods} Ready", nodes, str(self.done)


COLUMNS = ("demand", "wanted", "pods", "Ray nodes", "tasks done")


@dataclass(slots=True)
class Timeline:
    """The snapshots with changes, with their seconds since the first demand."""

    console: Console
    monotonic: Callable[[], float] = time.monotonic
    snapshots: list[tuple[float, Snapshot]] = field(default_factory=list)
    idle_since_s: float | None = None
    """Seconds since the first demand when the last task finished; None before."""
    _started: float = 0.0
    _has_started: bool = False
    """Whether there has been demand."""
    _done: int = 0
    _following: asyncio.Task[None] | None = None

    @property
    def now_s(self) -> float:
        """Seconds since the first demand."""
        return self.monotonic() - self._started

    @property
    def last(self) -> Snapshot:
        """The last snapshot; raises the exception that ended `following`, if one did."""
        if self._following is not None and self._following.done():
            self._following.result()
        return self.snapshots[-1][1] if self.snapshots else Snapshot()

    def task_ended(self) -> None:
        """Count a finished task."""
        self._done += 1

    def demand_ended(self, at_monotonic_s: float) -> None:
        """Set the time at which the last task finished, on the monotonic clock."""
        self.idle_since_s = at_monotonic_s - self._started

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot if there has been demand and something has changed."""
        snapshot = replace(snapshot, done=self._done)
        if snapshot.demand and not self._has_started:
            self._started, self._has_started = self.monotonic(), True
        if not self._has_started or (self.snapshots and snapshot == self.snapshots[-1][1]):
            return
        self.snapshots.append((self.now_s, snapshot))
        if not self.console.is_terminal:
            words = (f"{name} {cell}" for name, cell in zip(COLUMNS, snapshot.cells(), strict=True))
            self.console.print(f"  +{self.now_s:.0f} s  " + "  ".join(words), highlight=False, soft_wrap=True)

    @contextlib.asynccontextmanager
    async def following(self, take: Callable[[], Awaitable[Snapshot]], *, every_s: float = 0.25) -> AsyncIterator[None]:
        """Take snapshots until the block ends; those for which the API is unavailable are omitted."""

        async def follow() -> None:
            while True:
                with contextlib.suppress(ApiUnavailableError):
                    self.add(await take())
                await asyncio.sleep(every_s)

        self._following = asyncio.create_task(follow())
        try:
            yield
        finally:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None

    def table(self, most_rows: int = MAX_ROWS) -> Table:
        """The last snapshots, the newest at the bottom."""
        table = Table("s", *COLUMNS, title="demand → wanted → pods → Ray nodes", title_justify="left")
        for at_s, snapshot in self.snapshots[-most_rows:]:
            table.add_row(f"+{at_s:.0f}", *snapshot.cells())
        return table

    async def has_no_workers(self) -> tuple[bool, str]:
        """Whether all workers are deleted, and their number."""
        last = self.last
        is_gone = last.wanted == last.pods == last.nodes + last.draining == 0
        return is_gone, f"{last.pods} pods, {last.nodes + last.draining} Ray nodes"

    # --- durations ---------------------------------------------------------------------------------------------------

    @property
    def first_worker_s(self) -> float | None:
        """From the first demand to the first worker in Ray."""
        return self._first(lambda snapshot: snapshot.nodes > 0)

    @property
    def capacity_s(self) -> float | None:
        """From the first demand to as many workers in Ray as the largest number of desired replicas."""
        most = max((snapshot.wanted for _, snapshot in self.snapshots), default=0)
        return self._first(lambda snapshot: snapshot.nodes >= most > 0)

    @property
    def scale_down_s(self) -> float | None:
        """From the end of the last task to the end of the last worker."""
        if self.idle_since_s is None:
            return None
        at_s = self._first(lambda last: last.pods == last.nodes + last.draining == 0, after_s=self.idle_since_s)
        return None if at_s is None else at_s - self.idle_since_s

    def _first(self, is_reached: Callable[[Snapshot], bool], *, after_s: float = 0.0) -> float | None:
        return next((at_s for at_s, snapshot in self.snapshots if at_s >= after_s and is_reached(snapshot)), None)

    def print_summary(self) -> None:
        """Print the durations, and all snapshots if they were not printed line by line."""
        if self.console.is_terminal:
            self.console.print(self.table(len(self.snapshots)))
        table = Table("from", "to", "seconds", title="durations", title_justify="left")
        for since, until, seconds in (
            ("the first task is pending", "the first worker is in Ray", self.first_worker_s),
            ("the first task is pending", "all desired workers are in Ray", self.capacity_s),
            ("the last task finished", "all workers are deleted", self.scale_down_s),
        ):
            table.add_row(since, until, "-" if seconds is None else f"{seconds:.1f}")
        self.console.print(table)
