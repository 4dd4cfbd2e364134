"""What does the demo's Ray job do, and how far is it?

Submits one real Ray job in the head pod, as a user would: tasks of one CPU, then a STRICT_SPREAD placement group with a
task in each bundle. The job prints a line per task with the pod that it ran on, and this module turns the lines into
answers for the story's waits. A job that fails ends the wait at once, with its last words. Used by the demo only.
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
    """One job, and what it has said so far."""

    def __init__(self, cluster: DemoCluster, head: str, timeline: Timeline) -> None:
        self._cluster = cluster
        self._head = head
        self._timeline = timeline
        self._tasks: list[str] = []
        """The pod of each task that ended."""
        self._gang: list[str] = []
        self._words = "starting"
        self._call: asyncio.Task[tuple[str, int]] | None = None

    @asynccontextmanager
    async def running(self, tasks: int, bundles: int) -> AsyncIterator[None]:
        """Submitted, and watched until the block ends."""
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
        """Raises DemoError when the job ended in any way but well."""
        if self._call is None or not self._call.done():
            return
        output, code = self._call.result()
        if code:
            raise DemoError(f"the job ended with exit code {code}; its last words:\n{output[-LAST_OUTPUT_CHARS:]}")

    # --- questions ---------------------------------------------------------------------------------------------------

    async def has_capacity(self) -> tuple[bool, str]:
        """Whether every worker that is wanted has joined Ray."""
        self._check()
        look = self._timeline.last
        return self._timeline.capacity_s is not None, f"{look.nodes} of {look.wanted} workers in Ray"

    async def has_done(self, tasks: int) -> tuple[bool, str]:
        """Whether all tasks ended."""
        self._check()
        return len(self._tasks) == tasks, f"{len(self._tasks)} of {tasks} tasks on {len(set(self._tasks))} workers"

    async def has_spread(self, bundles: int) -> tuple[bool, str]:
        """Whether the placement group stood, on as many workers as it has bundles."""
        self._check()
        workers = len(set(self._gang))
        if self._gang and workers != bundles:
            raise DemoError(f"the {bundles} bundles stood on {workers} workers: {', '.join(self._gang)}")
        return bool(self._gang), f"on {workers} workers" if workers else "the placement group is waiting"

    async def has_ended(self) -> tuple[bool, str]:
        """Whether the job ended well."""
        self._check()
        return (
            self._call is not None and self._call.done(),
            "SUCCEEDED" if self._call and self._call.done() else "running",
        )
