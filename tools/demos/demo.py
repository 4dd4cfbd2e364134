"""Does the main job work on this machine: a RayCluster with real Ray that follows its demand, from nothing and back?

Starts a sandbox and the operator as processes of their own, applies `samples/raycluster-autoscaler.yaml` as a user would
(0 workers), submits a Ray job and shows how demand, wanted replicas, pods and Ray nodes follow each other, up and down to
zero; then deletes. Every wait has a deadline, and the exit code says whether all of it worked. `make demo` calls it; with
--keep the cluster stays and its addresses are printed. However it ends, Ctrl-C included, it clears up; what a killed demo
leaves, the next one clears up.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console, Group, RenderableType
from rich.markup import escape

from raytide.api.constants import DASHBOARD_PORT
from raytide.cli.top.render import drawn
from raytide.explain.overview import Lane
from raytide_sandbox.state_dir import AlreadyRunningError, StateDirectory

from demo_cluster import DemoCluster, DemoError
from demo_job import Job
from demo_operator import DemoOperator
from demo_scaling import Timeline
from demo_transcript import Transcript

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "raycluster-autoscaler.yaml"
RAYTIDE = Path(sys.executable).parent / "raytide"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide" / "demo"
PLAINLY: dict[str, Any] = {"highlight": False, "soft_wrap": True}
"""Lines to copy: as they are, however narrow the terminal."""

PATIENCE = {"name": "RAY_raylet_start_wait_time_s", "value": "60"}
"""Ray gives up after half a minute, which a busy laptop may need."""
IDLE_TIMEOUT_S = 5
"""Instead of the sample's minute, so that the demo is short."""
MAX_WORKERS = 4
TASKS = 12
GANG = 3
MAX_LANES = 4
"""Shown in a terminal; the demo has one workload."""


def call_sandbox(*words: str, state: Path = STATE) -> str:
    """Call `raytide sandbox` and return what it says; its own words stand when it fails."""
    done = subprocess.run(
        [RAYTIDE, "sandbox", *words, "--state-dir", state],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        raise DemoError(f"raytide sandbox {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


async def sandbox(*words: str, state: Path = STATE) -> str:
    """The same from asynchronous code; when interrupted it first waits for the end, so that nothing is half started."""
    call = asyncio.ensure_future(asyncio.to_thread(call_sandbox, *words, state=state))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        with contextlib.suppress(DemoError):
            await call
        raise


def demo_copy(sample: Manifest) -> Manifest:
    """The sample with little patience, and as large as a laptop bears."""
    spec = sample["spec"]
    spec["autoscalerOptions"]["idleTimeoutSeconds"] = IDLE_TIMEOUT_S
    (group,) = spec["workerGroupSpecs"]
    group["maxReplicas"] = MAX_WORKERS
    for kind in (spec["headGroupSpec"], group):
        kind["rayStartParams"]["object-store-memory"] = "100000000"
        kind["template"]["spec"]["containers"][0]["env"] = [PATIENCE]
    return sample


def live_view(lanes: Callable[[], list[Lane]], timeline: Timeline) -> RenderableType:
    """The lanes as `raytide top` draws them, and below them what changed since the first task waited."""
    view = drawn(lanes(), [], lines=MAX_LANES, has_namespaces=False)
    return Group(view, "", timeline.table()) if timeline.looks else view


async def follow(
    transcript: Transcript,
    cluster: DemoCluster,
    name: str,
    timeline: Timeline,
    beside: Callable[[], RenderableType] | None,
) -> None:
    """Demand comes and goes; the cluster follows."""
    job = Job(cluster, await cluster.head(name), timeline)
    async with cluster.gcs(name) as gcs, timeline.followed(lambda: cluster.look(name, gcs)), job.running(TASKS, GANG):
        async with transcript.step(f"{TASKS} tasks of 1 CPU: workers come", deadline_s=180, beside=beside) as step:
            await step.until(job.has_capacity)
        async with transcript.step("the tasks end on workers that came", deadline_s=90, beside=beside) as step:
            await step.until(lambda: job.has_done(TASKS))
        async with transcript.step(
            f"STRICT_SPREAD: {GANG} bundles, {GANG} workers", deadline_s=60, beside=beside
        ) as step:
            await step.until(lambda: job.has_spread(GANG))
        async with transcript.step("the job ends", deadline_s=60, beside=beside) as step:
            await step.until(job.has_ended)
        title = f"idle for {IDLE_TIMEOUT_S} s: workers are drained and gone"
        async with transcript.step(title, deadline_s=90, beside=beside) as step:
            await step.until(timeline.is_at_zero)


async def run_demo(transcript: Transcript, cluster: DemoCluster, manifest: Manifest, timeline: Timeline) -> None:
    """The main job, step by step."""
    name = manifest["metadata"]["name"]
    async with transcript.step("apply samples/raycluster-autoscaler.yaml", deadline_s=10):
        await cluster.create(manifest)
    async with cluster.lanes() as lanes:
        beside = partial(live_view, lanes, timeline) if transcript.is_on_terminal else None
        async with transcript.step("head Ready, no workers", deadline_s=300, beside=beside) as step:
            await step.until(lambda: cluster.is_head_ready(name))
        await follow(transcript, cluster, name, timeline, beside)


async def finish(transcript: Transcript, cluster: DemoCluster, name: str) -> None:
    """Delete the RayCluster and see everything go."""
    async with transcript.step("delete: everything gone", deadline_s=90) as step:
        await cluster.delete(name)
        await step.until(lambda: cluster.is_gone(name))


async def clear_up(operator: DemoOperator, state: Path = STATE) -> bool:
    """End the operator and the sandbox of this or an earlier demo; whether there was any."""
    had_operator = await asyncio.to_thread(operator.end)
    return "No sandbox" not in await sandbox("down", state=state) or had_operator


async def play(
    transcript: Transcript, operator: DemoOperator, timeline: Timeline, isolation: str, *, is_kept: bool
) -> str:
    """From an empty sandbox to the end of the story; the dashboard's address when the cluster is kept."""
    manifest = demo_copy(yaml.safe_load(SAMPLE.read_text()))
    name = manifest["metadata"]["name"]
    async with transcript.step("sandbox up", deadline_s=60) as step:
        step.note((await sandbox("up", f"--isolation={isolation}")).partition(": ")[2].partition("\n")[0])
    operator.start()
    async with DemoCluster.at(operator.kubeconfig) as cluster:
        await run_demo(transcript, cluster, manifest, timeline)
        if is_kept:
            async with cluster.exposed(name, "dashboard", DASHBOARD_PORT, is_kept=True) as address:
                return f"http://{address}"
        await finish(transcript, cluster, name)
        return ""


def show_failure(console: Console, failure: DemoError, state: Path = STATE) -> None:
    """Why it failed, and the last lines of those who may know more."""
    console.print(f"[red bold]failed:[/] {escape(str(failure))}", **PLAINLY)
    for log in (state / "operator.log", state / "sandbox.log"):
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        console.print(f"--- {log}\n" + "\n".join(lines), **PLAINLY, markup=False, style="dim")


def cancel_on_signals() -> None:
    """Ctrl-C, SIGTERM and a closed terminal end the demo once, in order; repeating them changes nothing."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: task and not task.cancelling() and task.cancel())


async def main(isolation: str, *, is_kept: bool) -> int:
    """Tell the whole story; 0 when all of it worked."""
    cancel_on_signals()
    console, operator = Console(), DemoOperator(STATE, RAYTIDE)
    transcript, timeline, address, interrupted = Transcript(console), Timeline(console), "", False
    try:
        if await clear_up(operator):
            console.print("[dim]ended what an earlier demo left running[/]")
        address = await play(transcript, operator, timeline, isolation, is_kept=is_kept)
    except DemoError as error:
        transcript.fail()
        show_failure(console, error)
    except asyncio.CancelledError:
        interrupted = True
        console.print("[yellow]interrupted:[/] ending what the demo started", highlight=False)
    finally:
        if not address:
            await clear_up(operator)
    transcript.table()
    if timeline.first_worker_s is not None:
        timeline.sum_up()
    if address:
        console.print(f"\nexport KUBECONFIG={operator.kubeconfig}\ndashboard: {address}", **PLAINLY)
        console.print("end it: make demo DOWN=1", **PLAINLY)
    return 130 if interrupted else 0 if transcript.is_complete else 1


async def down() -> int:
    """End what a demo with --keep left running."""
    print("The demo has ended." if await clear_up(DemoOperator(STATE, RAYTIDE)) else "No demo is running.")
    return 0


def run() -> int:
    """Read the command line; one demo at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--isolation", choices=["auto", "ns", "plain"], default="auto", help="how pods are kept apart")
    parser.add_argument("--down", action="store_true", help="end what --keep left running")
    chosen = parser.parse_args()
    return alone(STATE, lambda: down() if chosen.down else main(chosen.isolation, is_kept=chosen.keep))


def alone(state: Path, play_it: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Play one demo of that folder at a time; its exit code."""
    place = StateDirectory(state / "turn")
    try:
        place.create()
        with place.claim():
            return asyncio.run(play_it())
    except AlreadyRunningError:
        print("This demo is running already for this user; wait for its end, or interrupt it.", file=sys.stderr)
    except OSError as error:
        print(f"cannot use {state}: {error.strerror}; set XDG_CACHE_HOME to a folder of yours", file=sys.stderr)
    except DemoError as error:
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run())
