"""Demo of three elastic TrainingJobs with real PaddlePaddle that share a cluster.

Starts a sandbox of 3 nodes with 8 CPUs each and the operator, submits three copies of `samples/trainingjob.yaml` one after the other,
and prints their resizes with the reasons: the first job fills the cluster, with the second and the third all have equal shares, the
first ends and the others are scaled up. At the end all tasks of all jobs are done, and the loss has decreased. All steps have
deadlines; the exit code is 1 if one fails. Where PaddlePaddle cannot run, "not run" and the reason are printed. Called by
`make demo-elastic`.
"""

import argparse
import asyncio
import contextlib
import copy
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from paddle_env import IMAGE, PaddleMissingError, provide_paddle
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import CONFIG_MAPS

from demo import RAYTIDE, UNFORMATTED, cancel_on_signals, run_and_clean_up, run_exclusively, start_sandbox
from demo_cluster import DemoError, Json
from demo_elastic_cluster import ElasticCluster, JobSnapshot
from demo_operator import DemoOperator
from demo_transcript import State, Transcript

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "trainingjob.yaml"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide" / "demo-elastic"
MASTERS = STATE / "masters"

JOBS = FIRST, SECOND, THIRD = "first", "second", "third"
NODES, NODE_CPUS = 3, 8
CAPACITY = 12
"""Number of trainers for which there is capacity: four per node, in addition to masters and parameter servers."""
LEAST = 3
TASKS = 12
TRAINED_TASKS = 5 * TASKS
"""Number of tasks after which the loss has clearly decreased."""
CPU = {"master": "50m", "pserver": "100m", "trainer": "1900m"}


def demo_job(sample: Json, name: str) -> Json:
    """The sample with this name, up to the size of the cluster and without cooldowns."""
    job = copy.deepcopy(sample)
    job["metadata"]["name"] = name
    spec = job["spec"]
    spec["volumes"][1] = {"name": "state", "hostPath": {"path": str(MASTERS / name)}}
    for role, cpu in CPU.items():
        for part in ("requests", "limits"):
            spec[role]["resources"][part] = {"cpu": cpu, "memory": "256Mi"}
    spec["trainer"] |= {"min-instance": LEAST, "max-instance": CAPACITY}
    spec["scaling"] = {"rebalance": True, "growCooldownSeconds": 0, "shrinkCooldownSeconds": 0}
    (container,) = spec["master"]["template"]["spec"]["containers"]
    command = container["command"]
    command[-1] = command[-1].replace("--tasks 60 --passes 5", f"--tasks {TASKS} --passes 1000")
    return job


class Elastic:
    """The jobs of the demo and their state."""

    def __init__(self, cluster: ElasticCluster, console: Console, sample: Json) -> None:
        self.cluster, self._console, self._sample = cluster, console, sample
        self._started = time.monotonic()
        self._jobs: dict[str, JobSnapshot] = {}
        self._printed: set[str] = set()
        self._following: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Take snapshots of the jobs until the block ends."""
        self._following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(ApiUnavailableError):
                self._jobs = {job.name: job for job in await self.cluster.snapshots()}
                for name in self._jobs:
                    await self._print_resizes(name)
            await asyncio.sleep(0.25)

    async def _print_resizes(self, name: str) -> None:
        for resize in await self.cluster.resizes(name):
            key = json.dumps([name, resize], sort_keys=True)
            if key not in self._printed:
                self._printed.add(key)
                self._print(name, resize.get("message") or f"{resize['from']}→{resize['to']} {resize['reason']}")

    def _print(self, name: str, text: str) -> None:
        at_s = time.monotonic() - self._started
        self._console.print(f"  +{at_s:.0f} s  {name}: {text}", **UNFORMATTED, markup=False)

    async def submit(self, name: str) -> None:
        """Submit a job."""
        (MASTERS / name).mkdir(parents=True)
        await self.cluster.submit(demo_job(self._sample, name))
        self._print(name, f"submitted: {LEAST} to {CAPACITY} trainers")

    async def end(self, name: str) -> None:
        """Have a job end its training."""
        await self.cluster.finish(name)
        self._print(name, "the training is to end with the current pass")

    def now(self) -> dict[str, JobSnapshot]:
        """The last snapshots; raises the exception that ended `following`, if one did."""
        if self._following is not None and self._following.done():
            self._following.result()
        return self._jobs

    async def has(self, **running: int) -> State:
        """Whether each job has this number of desired and running trainers, and other jobs have none."""
        jobs = self.now().values()
        seen = ", ".join(f"{job.name} {job.running} of {job.wanted}" for job in jobs if job.wanted)
        wanted = {name: (count, count) for name, count in running.items()}
        found = {job.name: (job.wanted, job.running) for job in jobs if job.wanted or job.running}
        return found == wanted, seen

    async def has_done(self, name: str, tasks: int) -> State:
        """Whether the job has finished this number of tasks, and its loss."""
        job = self.now()[name]
        return job.done >= tasks, f"{job.done} tasks" + ("" if job.loss is None else f", loss {job.loss:.4f}")

    async def has_ended(self, *names: str) -> State:
        """Whether these jobs have succeeded; raises DemoError if one has failed."""
        phases = {name: self.now()[name].phase for name in names}
        if "Failed" in phases.values():
            raise DemoError(f"a job failed: {phases}")
        return set(phases.values()) == {"Succeeded"}, ", ".join(f"{name} {phase}" for name, phase in phases.items())


async def run_jobs(transcript: Transcript, elastic: Elastic) -> None:
    """Run one job, then three, then two."""
    async with transcript.step("the first job fills the cluster", deadline_s=90) as step:
        await elastic.submit(FIRST)
        await step.until(lambda: elastic.has(first=CAPACITY))
    async with transcript.step("it trains", deadline_s=180) as step:
        await step.until(lambda: elastic.has_done(FIRST, TRAINED_TASKS))
    async with transcript.step("with a second job, both have 6 trainers", deadline_s=120) as step:
        await elastic.submit(SECOND)
        await step.until(lambda: elastic.has(first=6, second=6))
    async with transcript.step("with a third job, all have 4 trainers", deadline_s=120) as step:
        await elastic.submit(THIRD)
        await step.until(lambda: elastic.has(first=4, second=4, third=4))
    async with transcript.step("all of them train", deadline_s=180) as step:
        await step.until(lambda: elastic.has_done(THIRD, TRAINED_TASKS))
    async with transcript.step("the first job ends", deadline_s=90) as step:
        await elastic.end(FIRST)
        await step.until(lambda: elastic.has_ended(FIRST))
    async with transcript.step("the others are scaled up into its capacity, 6 trainers each", deadline_s=90) as step:
        await step.until(lambda: elastic.has(second=6, third=6))
    async with transcript.step("they end, too", deadline_s=90) as step:
        await asyncio.gather(elastic.end(SECOND), elastic.end(THIRD))
        await step.until(lambda: elastic.has_ended(SECOND, THIRD))
    async with transcript.step("all tasks are done, the loss has decreased", deadline_s=5) as step:
        states = {name: json.loads((MASTERS / name / "tasks.json").read_text()) for name in JOBS}
        step.note("; ".join(check_outcome(name, state) for name, state in states.items()))


def check_outcome(name: str, state: Json) -> str:
    """Description of a finished training; raises DemoError if tasks are missing or the loss has not decreased."""
    done = sorted((one["pass"], one["task"]) for one in state["done"])
    passes = done[-1][0] + 1 if done else 0
    wanted = [(number, task) for number in range(passes) for task in range(TASKS)]
    if not state["finished"] or state["dropped"] or not done or done != wanted:
        missing = sorted(set(wanted) - set(done))
        raise DemoError(f"{name} has not done all its tasks: {missing or state['dropped'] or 'it is not finished'}")
    losses = [one["loss"] for one in state["done"]]
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    if last > first / 2:
        raise DemoError(f"{name}: the loss went from {first:.4f} to {last:.4f}")
    return f"{name} {passes} passes, loss {first:.2f} → {last:.4f}"


async def run_steps(
    transcript: Transcript, operator: DemoOperator, console: Console, isolation: str, paddle: Path
) -> str:
    """Run all steps; the cluster is never kept."""
    sample, programs = yaml.safe_load_all(SAMPLE.read_text())
    shutil.rmtree(MASTERS, ignore_errors=True)
    options = (f"--isolation={isolation}", f"--image={IMAGE}={paddle}", f"--nodes={NODES}", f"--node-cpu={NODE_CPUS}")
    await start_sandbox(transcript, operator, *options)
    async with ElasticCluster.at(operator.kubeconfig) as cluster:
        await cluster.create(CONFIG_MAPS, programs)
        elastic = Elastic(cluster, console, sample)
        async with elastic.following():
            await run_jobs(transcript, elastic)
    return ""


async def main(isolation: str) -> int:
    """Run the demo; returns the exit code."""
    cancel_on_signals()
    console, operator = Console(), DemoOperator(STATE, RAYTIDE)
    transcript = Transcript(console, "raytide demo-elastic")
    try:
        paddle = await asyncio.to_thread(provide_paddle)
    except PaddleMissingError as error:
        console.print(f"not run: {error}", **UNFORMATTED)
        return 0
    steps = partial(run_steps, transcript, operator, console, isolation, paddle)
    code, _ = await run_and_clean_up(transcript, operator, steps)
    return code


def run() -> int:
    """Run the demo with the options of the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--isolation", choices=["auto", "ns", "plain"], default="auto", help="how pods are kept apart")
    chosen = parser.parse_args()
    return run_exclusively(STATE, lambda: main(chosen.isolation))


if __name__ == "__main__":
    sys.exit(run())
