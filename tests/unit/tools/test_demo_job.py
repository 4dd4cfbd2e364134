"""The demo's job: progress, workers, and that a failure ends every wait."""

import asyncio
import io

import pytest
from rich.console import Console

from demo_cluster import DemoError
from demo_job import Job
from demo_scaling import Timeline


class SpeakingCluster:
    """Says these lines, and ends with this code."""

    def __init__(self, *lines: str, code: int = 0) -> None:
        self.lines, self.code = lines, code
        self.is_connected = asyncio.Event()

    async def execute(self, pod, command, *, on_line):
        assert (pod, *command[-3:-1]) == ("head", "python", "-c")
        for line in self.lines:
            on_line(line)
        self.is_connected.set()
        return "\n".join(self.lines), self.code


def job_of(cluster):
    return Job(cluster, "head", Timeline(Console(file=io.StringIO()), monotonic=lambda: 10.0))


async def test_progress_is_read_from_the_lines_of_the_job():
    cluster = SpeakingCluster("Ray says much", "DEMO-TASK a", "DEMO-TASK b", "DEMO-GANG 7.5 a b", "")
    job = job_of(cluster)
    async with job.running(2, 2):
        await cluster.is_connected.wait()
        assert await job.has_done(2) == (True, "2 of 2 tasks on 2 workers")
        assert await job.has_spread(2) == (True, "on 2 workers")
        assert (await job.has_ended())[0]


async def test_a_failed_job_ends_the_wait_with_its_last_output():
    cluster = SpeakingCluster("it broke", code=1)
    job = job_of(cluster)
    async with job.running(2, 2):
        await cluster.is_connected.wait()
        with pytest.raises(DemoError, match=r"exit code 1; its output ends with:\nit broke"):
            await job.has_done(2)


async def test_bundles_that_share_a_worker_are_a_failure():
    cluster = SpeakingCluster("DEMO-GANG 7.5 a a b")
    job = job_of(cluster)
    async with job.running(0, 3):
        await cluster.is_connected.wait()
        with pytest.raises(DemoError, match="the 3 bundles were on 2 workers"):
            await job.has_spread(3)
