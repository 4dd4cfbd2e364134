"""The Ray job of the demo: submission in the head pod, and progress.

The job runs tasks of one CPU, then a STRICT_SPREAD placement group with a task in each bundle. It prints a line per task with the
pod that it ran on, from which the methods of `Job` compute whether a state is reached. If the job fails, they raise DemoError
with the end of its output. Used by demo.py.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from demo_cluster import DemoCluster, DemoError
from demo_scaling import Timeline

SUBMIT = (
    "env",
    "PYTHONUNBUFFERED=1",
    "ray",
    "job",
    "submit",
    "--address",
    "http://127.0.0.1:8265",
    "--",
    "python",
    "-c",
)
LAST_OUTPUT_CHARS = 1500
PROGRAM = """
import os, time, ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

@ray.remote(num_cpus=1)
def where():
    time.sleep(2)
    return os.environ["RAY_CLOUD_INSTANCE_ID"]

ray.init()
waiting = [where.remote() for _ in range({tasks})]
while waiting:
    (done,), waiting = ray.wait(waiting)
    print("DEMO-TASK", ray.get(done), flush=True)
gang = placement_group([{{"CPU": 1}}] * {bundles}, strategy="STRICT_SPREAD")
ray.get(gang.ready())
members = [where.options(scheduling_strategy=In(gang, i)).remote() for i in range({bundles})]
pods = ray.get(members)
print("DEMO-GANG", time.monotonic(), *pods, flush=True)
"""


class Job:
    """A job and its progress."""

    def __init__(self, cluster: DemoCluster, head: str, timeline: Timeline) -> None:
        self._cluster = cluster
        self._head = head
        self._timeline = timeline
        self._tasks: list[str] = []
        """The pod of each finished task."""
        self._gang: list[str] = []
        self._call: asyncio.Task[tuple[str, int]] | None = None

    @asynccontextmanager
    async def running(self, tasks: int, bundles: int) -> AsyncIterator[None]:
        """Submit the job and read its output until the block ends."""
        program = PROGRAM.format(tasks=tasks, bundles=bundles)
        self._call = asyncio.create_task(self._cluster.execute(self._head, [*SUBMIT, program], on_line=self._read_line))
        try:
            yield
        finally:
            self._call.cancel()
            await asyncio.gather(self._call, return_exceptions=True)

    def _read_line(self, line: str) -> None:
        word, *values = line.split() or [""]
        if word == "DEMO-TASK":
            self._tasks += values
            self._timeline.task_ended()
        elif word == "DEMO-GANG":
            ended_at, *self._gang = values
            self._timeline.demand_ended(float(ended_at))

    def _check(self) -> None:
        """Raise DemoError if the job has failed."""
        if self._call is None or not self._call.done():
            return
        output, code = self._call.result()
        if code:
            raise DemoError(
                f"the job ended with exit code {code}; its output ends with:\n{output[-LAST_OUTPUT_CHARS:]}"
            )

    async def has_capacity(self) -> tuple[bool, str]:
        """Whether all desired workers have joined Ray, and their number."""
        self._check()
        last = self._timeline.last
        return self._timeline.capacity_s is not None, f"{last.nodes} of {last.wanted} workers in Ray"

    async def has_done(self, tasks: int) -> tuple[bool, str]:
        """Whether all tasks have finished, and their number."""
        self._check()
        return len(self._tasks) == tasks, f"{len(self._tasks)} of {tasks} tasks on {len(set(self._tasks))} workers"

    async def has_spread(self, bundles: int) -> tuple[bool, str]:
        """Whether the placement group was created, on as many workers as it has bundles; raises DemoError if on fewer."""
        self._check()
        workers = len(set(self._gang))
        if self._gang and workers != bundles:
            raise DemoError(f"the {bundles} bundles were on {workers} workers: {', '.join(self._gang)}")
        return bool(self._gang), f"on {workers} workers" if workers else "the placement group is pending"

    async def has_ended(self) -> tuple[bool, str]:
        """Whether the job has succeeded."""
        self._check()
        is_done = self._call is not None and self._call.done()
        return is_done, "SUCCEEDED" if is_done else "running"
