"""Do elastic jobs share a cluster fairly while they train for real?

Starts a sandbox of 3 nodes with 8 CPUs each and the operator, submits three copies of `samples/trainingjob.yaml` with real
PaddlePaddle one after the other and prints how their shares change, and why: the first fills the cluster, the second and the
third arrive and all meet at fair shares, the first ends and the others grow. At the end every task of every job is done, and
the loss has fallen. Every wait has a deadline and the exit code says whether all of it was so. `make demo-elastic` calls it;
where PaddlePaddle cannot run it says so and ends with 0.
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
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from paddle_env import IMAGE, PaddleMissingError, provide_paddle
from raytide.api.errors import ApiUnavailableError

from demo import PLAINLY, RAYTIDE, alone, cancel_on_signals, clear_up, sandbox, show_failure
from demo_cluster import DemoError
from demo_elastic_cluster import ElasticCluster, JobLook
from demo_operator import DemoOperator
from demo_transcript import Seen, Transcript

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "trainingjob.yaml"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide" / "demo-elastic"
MASTERS = STATE / "masters"

FIRST, SECOND, THIRD = "first", "second", "third"
NODES, NODE_CPUS = 3, 8
SLOTS = 12
"""Trainers that fit: four on each node, beside masters and parameter servers."""
LEAST = 3
TASKS = 12
LEARNED = 5 * TASKS
"""Tasks after which a loss has fallen for all to see."""
CPU = {"master": "50m", "pserver": "100m", "trainer": "1900m"}


def demo_job(sample: Json, name: str) -> Json:
    """The sample under another name: as large as the cluster, and quick to change its size."""
    job = copy.deepcopy(sample)
    job["metadata"]["name"] = name
    spec = job["spec"]
    spec["volumes"][1] = {"name": "state", "hostPath": {"path": str(MASTERS / name)}}
    for role, cpu in CPU.items():
        for part in ("requests", "limits"):
            spec[role]["resources"][part] = {"cpu": cpu, "memory": "256Mi"}
    spec["trainer"] |= {"min-instance": LEAST, "max-instance": SLOTS}
    spec["scaling"] = {"rebalance": True, "growCooldownSeconds": 0, "shrinkCooldownSeconds": 0}
    (container,) = spec["master"]["template"]["spec"]["containers"]
    container["command"][-1] = container["command"][-1].replace(
        "--tasks 60 --passes 5", f"--tasks {TASKS} --passes 1000"
    )
    return job


class Elastic:
    """The jobs, followed from the first look to the last."""

    def __init__(self, cluster: ElasticCluster, console: Console, sample: Json) -> None:
        self.cluster, self._console, self._sample = cluster, console, sample
        self._started = time.monotonic()
        self._jobs: dict[str, JobLook] = {}
        self._printed: set[str] = set()
        self._following: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Look again and again until the block ends."""
        self._following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(ApiUnavailableError):
                self._jobs = {look.name: look for look in await self.cluster.look()}
                for name in self._jobs:
                    await self._print_resizes(name)
            await asyncio.sleep(0.25)

    async def _print_resizes(self, name: str) -> None:
        for resize in await self.cluster.resizes(name):
            key = json.dumps([name, resize], sort_keys=True)
            if key not in self._printed:
                self._printed.add(key)
                self._print(name, resize.get("message") or f"{resize['from']}→{resize['to']} {resize['reason']}")

    def _print(self, name: str, happened: str) -> None:
        """What happened to a job, in the operator's words where it decided it."""
        at_s = time.monotonic() - self._started
        self._console.print(f"  +{at_s:.0f} s  {name}: {happened}", **PLAINLY, markup=False)

    async def submit(self, name: str) -> None:
        """One more job."""
        (MASTERS / name).mkdir(parents=True)
        await self.cluster.create(demo_job(self._sample, name))
        self._print(name, f"submitted: {LEAST} to {SLOTS} trainers")

    async def end(self, name: str) -> None:
        """Its loss is low enough."""
        await self.cluster.send_fault_tolerance(name)
        self._print(name, "told to end: its loss is low enough")

    def now(self) -> dict[str, JobLook]:
        """The last look; raises what ended the looking before its time."""
        if self._following is not None and self._following.done():
            self._following.result()
        return self._jobs

    async def has(self, **running: int) -> Seen:
        """Whether exactly so many trainers of each job are wanted and run."""
        now = self.now()
        seen = ", ".join(f"{look.name} {look.running} of {look.wanted}" for look in now.values() if look.wanted)
        wanted = {name: (count, count) for name, count in running.items()}
        found = {look.name: (look.wanted, look.running) for look in now.values() if look.wanted or look.running}
        return found == wanted, seen

    async def has_done(self, name: str, tasks: int) -> Seen:
        """Whether its trainers have done so many tasks."""
        look = self.now()[name]
        return look.done >= tasks, f"{look.done} tasks" + ("" if look.loss is None else f", loss {look.loss:.4f}")

    async def has_ended(self, *names: str) -> Seen:
        """Whether these jobs have succeeded."""
        phases = {name: self.now()[name].phase for name in names}
        if "Failed" in phases.values():
            raise DemoError(f"a job failed: {phases}")
        return set(phases.values()) == {"Succeeded"}, ", ".join(f"{name} {phase}" for name, phase in phases.items())


async def run_demo(transcript: Transcript, elastic: Elastic) -> None:
    """From one job to three, to two, to none."""
    async with transcript.step("the first job fills the cluster", deadline_s=90) as step:
        await elastic.submit(FIRST)
        await step.until(lambda: elastic.has(first=SLOTS))
    async with transcript.step("its trainers train", deadline_s=180) as step:
        await step.until(lambda: elastic.has_done(FIRST, LEARNED))
    async with transcript.step("the second arrives: both meet at 6", deadline_s=120) as step:
        await elastic.submit(SECOND)
        await step.until(lambda: elastic.has(first=6, second=6))
    async with transcript.step("the third arrives: all meet at 4", deadline_s=120) as step:
        await elastic.submit(THIRD)
        await step.until(lambda: elastic.has(first=4, second=4, third=4))
    async with transcript.step("all of them train", deadline_s=180) as step:
        await step.until(lambda: elastic.has_done(THIRD, LEARNED))
    async with transcript.step("the first ends", deadline_s=90) as step:
        await elastic.end(FIRST)
        await step.until(lambda: elastic.has_ended(FIRST))
    async with transcript.step("the others grow into the capacity that it freed: 6 and 6", deadline_s=90) as step:
        await step.until(lambda: elastic.has(second=6, third=6))
    async with transcript.step("they end too", deadline_s=90) as step:
        await asyncio.gather(elastic.end(SECOND), elastic.end(THIRD))
        await step.until(lambda: elastic.has_ended(SECOND, THIRD))


async def check(transcript: Transcript) -> None:
    """What the masters have on disk: nothing is missing and everybody learned."""
    async with transcript.step("every task is done, the loss has fallen", deadline_s=5) as step:
        step.note(
            "; ".join(check_outcome(name, json.loads((MASTERS / name / "tasks.json").read_text())) for name in JOBS)
        )


JOBS = (FIRST, SECOND, THIRD)


def check_outcome(name: str, state: Json) -> str:
    """A sentence about a training that went well; raises DemoError about any other."""
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


async def play(transcript: Transcript, operator: DemoOperator, console: Console, isolation: str, paddle: Path) -> None:
    """From an empty sandbox to the end of the story."""
    sample, programs = yaml.safe_load_all(SAMPLE.read_text())
    shutil.rmtree(MASTERS, ignore_errors=True)
    options = [f"--isolation={isolation}", f"--image={IMAGE}={paddle}", f"--nodes={NODES}", f"--node-cpu={NODE_CPUS}"]
    async with transcript.step("sandbox up", deadline_s=60) as step:
        step.note((await sandbox("up", *options, state=STATE)).partition(": ")[2].partition("\n")[0])
    operator.start()
    async with ElasticCluster.at(operator.kubeconfig) as cluster:
        await cluster.create_programs(programs)
        elastic = Elastic(cluster, console, sample)
        async with elastic.followed():
            await run_demo(transcript, elastic)
        await check(transcript)


async def main(isolation: str) -> int:
    """Tell the whole story; 0 when all of it was so."""
    cancel_on_signals()
    console, operator = Console(), DemoOperator(STATE, RAYTIDE)
    transcript, was_interrupted = Transcript(console), False
    try:
        paddle = await asyncio.to_thread(provide_paddle)
    except PaddleMissingError as error:
        console.print(f"not run: {error}", **PLAINLY)
        return 0
    try:
        if await clear_up(operator, STATE):
            console.print("[dim]ended what an earlier demo left running[/]")
        await play(transcript, operator, console, isolation, paddle)
    except DemoError as error:
        transcript.fail()
        show_failure(console, error, STATE)
    except asyncio.CancelledError:
        was_interrupted = True
        console.print("[yellow]interrupted:[/] ending what the demo started", highlight=False)
    finally:
        await clear_up(operator, STATE)
    transcript.table("raytide demo-elastic")
    return 130 if was_interrupted else 0 if transcript.is_complete else 1


def run() -> int:
    """Read the command line; one demo at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--isolation", choices=["auto", "ns", "plain"], default="auto", help="how pods are kept apart")
    chosen = parser.parse_args()
    return alone(STATE, lambda: main(chosen.isolation))


if __name__ == "__main__":
    sys.exit(run())
