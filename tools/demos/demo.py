"""Demo of a RayCluster with real Ray that is scaled up from zero and down again.

Starts a sandbox and the operator, applies `samples/raycluster-autoscaler.yaml` (0 workers), submits a Ray job and shows how demand,
desired replicas, pods and Ray nodes change until all workers are gone; then deletes the RayCluster. All steps have deadlines; the
exit code is 1 if one fails. With --keep the cluster keeps running, and its addresses are printed; else everything is ended, also on
Ctrl-C. What a killed demo left running is ended by the next one. Called by `make demo`.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console, Group, RenderableType
from rich.markup import escape

from raytide.api.constants import DASHBOARD_PORT
from raytide.api.meta import RAYCLUSTERS
from raytide.cli.top.render import drawn
from raytide.explain.overview import Lane
from raytide_sandbox.state_dir import AlreadyRunningError, StateDirectory

from demo_cluster import DemoCluster, DemoError, head_selector
from demo_job import Job
from demo_operator import DemoOperator
from demo_scaling import Timeline
from demo_transcript import Transcript

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "raycluster-autoscaler.yaml"
RAYTIDE = Path(sys.executable).parent / "raytide"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide" / "demo"
UNFORMATTED: dict[str, Any] = {"highlight": False, "soft_wrap": True}
"""Options of `Console.print` for lines to copy: no colors, no line breaks."""

START_WAIT = {"name": "RAY_raylet_start_wait_time_s", "value": "60"}
"""The default of 30 s can be too short on a busy laptop."""
IDLE_TIMEOUT_S = 5
"""The sample has 60 s; shorter, so that the demo is short."""
MAX_WORKERS = 4
TASKS = 12
GANG = 3
MAX_LANES = 4
"""Number of lanes in the live view; the demo has one workload."""


def call_sandbox(*words: str, state: Path = STATE) -> str:
    """Run `raytide sandbox` and return its output; raises DemoError with its error if it fails."""
    command = [RAYTIDE, "sandbox", *words, "--state-dir", state]
    options = {"capture_output": True, "text": True, "timeout": 60, "start_new_session": True}
    done = subprocess.run(command, check=False, **options)
    if done.returncode:
        raise DemoError(f"raytide sandbox {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


async def sandbox(*words: str, state: Path = STATE) -> str:
    """Run `raytide sandbox` in a thread; if cancelled, wait for its end first, so that it can be cleaned up."""
    call = asyncio.ensure_future(asyncio.to_thread(call_sandbox, *words, state=state))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        with contextlib.suppress(DemoError):
            await call
        raise


def adapted(sample: Manifest) -> Manifest:
    """The sample with a short idle time-out, and small enough for a laptop."""
    spec = sample["spec"]
    spec["autoscalerOptions"]["idleTimeoutSeconds"] = IDLE_TIMEOUT_S
    (group,) = spec["workerGroupSpecs"]
    group["maxReplicas"] = MAX_WORKERS
    for kind in (spec["headGroupSpec"], group):
        kind["rayStartParams"]["object-store-memory"] = "100000000"
        kind["template"]["spec"]["containers"][0]["env"] = [START_WAIT]
    return sample


def live_view(lanes: Callable[[], list[Lane]], timeline: Timeline) -> RenderableType:
    """The lanes of `raytide top`, and below them the timeline."""
    view = drawn(lanes(), [], lines=MAX_LANES, has_namespaces=False)
    return Group(view, "", timeline.table()) if timeline.snapshots else view


async def scale(
    transcript: Transcript,
    cluster: DemoCluster,
    name: str,
    timeline: Timeline,
    view: Callable[[], RenderableType] | None,
) -> None:
    """Submit the job and wait until the RayCluster has been scaled up and down."""
    job = Job(cluster, await cluster.head(name), timeline)
    step = partial(transcript.step, view=view)
    async with (
        cluster.gcs(name) as gcs,
        timeline.following(lambda: cluster.snapshot(name, gcs)),
        job.running(TASKS, GANG),
    ):
        async with step(f"{TASKS} tasks of 1 CPU: workers are created", deadline_s=180) as current:
            await current.until(job.has_capacity)
        async with step("the tasks finish on the new workers", deadline_s=90) as current:
            await current.until(lambda: job.has_done(TASKS))
        async with step(f"STRICT_SPREAD: {GANG} bundles, {GANG} workers", deadline_s=60) as current:
            await current.until(lambda: job.has_spread(GANG))
        async with step("the job succeeds", deadline_s=60) as current:
            await current.until(job.has_ended)
        async with step(f"idle for {IDLE_TIMEOUT_S} s: workers are drained and deleted", deadline_s=90) as current:
            await current.until(timeline.has_no_workers)


async def create_and_scale(
    transcript: Transcript, cluster: DemoCluster, manifest: Manifest, timeline: Timeline
) -> None:
    """Create the RayCluster, wait for its head, and scale it."""
    name = manifest["metadata"]["name"]
    async with transcript.step("apply samples/raycluster-autoscaler.yaml", deadline_s=10):
        await cluster.create(RAYCLUSTERS, manifest)
    async with cluster.lanes() as lanes:
        view = partial(live_view, lanes, timeline) if transcript.console.is_terminal else None
        async with transcript.step("head Ready, no workers", deadline_s=300, view=view) as step:
            await step.until(lambda: cluster.is_head_ready(name))
        await scale(transcript, cluster, name, timeline, view)


async def clean_up(operator: DemoOperator) -> bool:
    """End the operator and the sandbox of this or an earlier demo; whether one was running."""
    was_running = await asyncio.to_thread(operator.end)
    return "No sandbox" not in await sandbox("down", state=operator.directory) or was_running


async def start_sandbox(transcript: Transcript, operator: DemoOperator, *options: str) -> None:
    """Start the sandbox and the operator."""
    async with transcript.step("sandbox up", deadline_s=60) as step:
        output = await sandbox("up", *options, state=operator.directory)
        step.note(output.partition(": ")[2].partition("\n")[0])
    operator.start()


async def run_steps(
    transcript: Transcript, operator: DemoOperator, timeline: Timeline, isolation: str, *, is_kept: bool
) -> str:
    """Run all steps; returns the address of the dashboard if the cluster is kept, else an empty string."""
    manifest = adapted(yaml.safe_load(SAMPLE.read_text()))
    name = manifest["metadata"]["name"]
    await start_sandbox(transcript, operator, f"--isolation={isolation}")
    async with DemoCluster.at(operator.kubeconfig) as cluster:
        await create_and_scale(transcript, cluster, manifest, timeline)
        if is_kept:
            address, _ = await cluster.expose(name, "dashboard", DASHBOARD_PORT, head_selector(name))
            return f"http://{address}"
        async with transcript.step("delete: everything is gone", deadline_s=90) as step:
            await cluster.delete(name)
            await step.until(lambda: cluster.is_gone(name))
    return ""


def print_failure(console: Console, failure: DemoError, state: Path) -> None:
    """Print the reason of a failure, and the last lines of the logs."""
    console.print(f"[red bold]failed:[/] {escape(str(failure))}", **UNFORMATTED)
    for log in (state / "operator.log", state / "sandbox.log"):
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        console.print(f"--- {log}\n" + "\n".join(lines), **UNFORMATTED, markup=False, style="dim")


async def run_and_clean_up(
    transcript: Transcript, operator: DemoOperator, steps: Callable[[], Awaitable[str]]
) -> tuple[int, str]:
    """Run the steps, and clean up unless they return an address; returns the exit code and that address."""
    console, address, was_interrupted = transcript.console, "", False
    try:
        if await clean_up(operator):
            console.print("[dim]ended what an earlier demo left running[/]")
        address = await steps()
    except DemoError as error:
        transcript.fail()
        print_failure(console, error, operator.directory)
    except asyncio.CancelledError:
        was_interrupted = True
        console.print("[yellow]interrupted:[/] ending what the demo started", highlight=False)
    finally:
        if not address:
            await clean_up(operator)
    transcript.print_table()
    return 130 if was_interrupted else 0 if transcript.is_complete else 1, address


def cancel_on_signals() -> None:
    """Cancel the current task once on SIGINT, SIGTERM and SIGHUP, so that it cleans up."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: task and not task.cancelling() and task.cancel())


async def main(isolation: str, *, is_kept: bool) -> int:
    """Run the demo; returns the exit code."""
    cancel_on_signals()
    console, operator = Console(), DemoOperator(STATE, RAYTIDE)
    transcript, timeline = Transcript(console), Timeline(console)
    steps = partial(run_steps, transcript, operator, timeline, isolation, is_kept=is_kept)
    code, address = await run_and_clean_up(transcript, operator, steps)
    if timeline.first_worker_s is not None:
        timeline.print_summary()
    if address:
        console.print(f"\nexport KUBECONFIG={operator.kubeconfig}\ndashboard: {address}", **UNFORMATTED)
        console.print("end it: make demo DOWN=1", **UNFORMATTED)
    return code


async def down() -> int:
    """End what a demo with --keep left running; returns the exit code."""
    print("The demo has ended." if await clean_up(DemoOperator(STATE, RAYTIDE)) else "No demo is running.")
    return 0


def run() -> int:
    """Run the demo with the options of the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--isolation", choices=["auto", "ns", "plain"], default="auto", help="how pods are kept apart")
    parser.add_argument("--down", action="store_true", help="end what --keep left running")
    chosen = parser.parse_args()
    return run_exclusively(STATE, lambda: down() if chosen.down else main(chosen.isolation, is_kept=chosen.keep))


def run_exclusively(state: Path, run_demo: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a demo unless one with this state directory is running; returns the exit code."""
    directory = StateDirectory(state / "turn")
    try:
        directory.create()
        with directory.claim():
            return asyncio.run(run_demo())
    except AlreadyRunningError:
        print("This demo is running already for this user; wait for its end, or interrupt it.", file=sys.stderr)
    except OSError as error:
        print(f"cannot use {state}: {error.strerror}; set XDG_CACHE_HOME to a folder of yours", file=sys.stderr)
    except DemoError as error:
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run())
