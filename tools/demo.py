"""Does the main job work on this machine, from an empty cluster to real Ray and back?

Starts a sandbox and the operator as processes of their own, applies `samples/raycluster.yaml` as a user would, runs a
real Ray job, scales, kills a worker, deletes. Shows what it waits for; every wait has a deadline, and the exit code says
whether all of it worked. `make demo` calls it; with --keep the cluster stays and its addresses are printed. However it
ends, Ctrl-C included, it clears up; what a killed demo leaves, the next one clears up.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from raytide.sandbox.state import AlreadyRunning, StateDirectory

from demo_cluster import DemoCluster, Failed
from demo_operator import DemoOperator
from demo_story import Story

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples" / "raycluster.yaml"
RAYTIDE = Path(sys.executable).parent / "raytide"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide" / "demo"
PLAINLY: dict[str, Any] = {"highlight": False, "soft_wrap": True}
"""Lines to copy: as they are, however narrow the terminal."""

JOB = """
import collections, os, time, ray
ray.init()
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where(i):
    time.sleep(0.25)
    return os.environ["RAY_CLOUD_INSTANCE_ID"]
print("RAN-ON", *sorted(set(ray.get([where.remote(i) for i in range({tasks})]))))
"""

KILL = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    except OSError:
        continue
    if "start" in words and "--block" in words and any(w.endswith("/ray") for w in words):
        print("killing", pid)
        os.kill(int(pid), signal.SIGKILL)
"""


def call_sandbox(*words: str) -> str:
    """Call `raytide sandbox` and return what it says; its own words stand when it fails."""
    done = subprocess.run(
        [RAYTIDE, "sandbox", *words, "--state-dir", STATE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        raise Failed(f"raytide sandbox {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


async def sandbox(*words: str) -> str:
    """The same from asynchronous code; when interrupted it first waits for the end, so that nothing is half started."""
    call = asyncio.ensure_future(asyncio.to_thread(call_sandbox, *words))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        with contextlib.suppress(Failed):
            await call
        raise


async def run_job(cluster: DemoCluster, story: Story, head: str, nodes: int) -> None:
    """Submit a real Ray job in the head pod and see on which pods its tasks ran."""
    async with story.step(f"a Ray job on all {nodes} nodes", deadline_s=120) as step:
        for attempt in range(1, 4):
            submit = ["ray", "job", "submit", "--address", "http://127.0.0.1:8265", "--", "python", "-c"]
            output, code = await cluster.execute(head, [*submit, JOB.format(tasks=nodes * 6)], timeout_s=100)
            ran = next((line.split()[1:] for line in output.splitlines() if line.startswith("RAN-ON")), [])
            step.note(f"attempt {attempt}: exit code {code}, tasks ran on {len(ran)} of {nodes} nodes")
            if code == 0 and len(ran) == nodes:
                return
        raise Failed(f"the job did not run on {nodes} nodes; its last words:\n{output[-1500:]}")


async def tell(story: Story, cluster: DemoCluster, manifest: dict) -> None:  # type: ignore[type-arg]
    """The main job, step by step."""
    name = manifest["metadata"]["name"]
    group = manifest["spec"]["workerGroupSpecs"][0]["groupName"]
    async with story.step("apply samples/raycluster.yaml", deadline_s=10):
        await cluster.create(manifest)
    async with story.step("head and 2 workers Ready", deadline_s=300) as step:
        await step.until(lambda: cluster.are_ready(name, workers=2))
    head = await cluster.head(name)
    await run_job(cluster, story, head, 3)
    async with story.step("scale 2 → 4 workers", deadline_s=180) as step:
        await cluster.scale(name, group, 4)
        await step.until(lambda: cluster.are_ready(name, workers=4))
    await run_job(cluster, story, head, 5)
    crashed, lost, *_ = await cluster.workers(name)
    async with story.step("kill -9 a worker's Ray: the kubelet restarts it", deadline_s=120) as step:
        output, _ = await cluster.execute(crashed, ["python", "-c", KILL], timeout_s=20, is_cut_allowed=True)
        step.note(output.strip())
        await step.until(lambda: cluster.has_restarted(crashed))
    async with story.step("lose a worker's pod: the operator replaces it", deadline_s=120) as step:
        await cluster.lose(lost)
        await step.until(lambda: cluster.are_ready(name, workers=4, without=lost))
    async with story.step("raycluster says ready", deadline_s=30) as step:
        await step.until(lambda: cluster.says_ready(name))


async def finish(story: Story, cluster: DemoCluster, name: str) -> None:
    """Delete the RayCluster and see everything go."""
    async with story.step("delete: everything gone", deadline_s=90) as step:
        await cluster.delete(name)
        await step.until(lambda: cluster.is_gone(name))


async def clear_up(operator: DemoOperator) -> bool:
    """End the operator and the sandbox of this or an earlier demo; whether there was any."""
    had_operator = await asyncio.to_thread(operator.end)
    return "No sandbox" not in await sandbox("down") or had_operator


async def play(story: Story, operator: DemoOperator, isolation: str, *, is_kept: bool) -> str:
    """From an empty sandbox to the end of the story; the dashboard's address when the cluster is kept."""
    manifest = yaml.safe_load(SAMPLE.read_text())
    name = manifest["metadata"]["name"]
    async with story.step("sandbox up", deadline_s=60) as step:
        step.note((await sandbox("up", f"--isolation={isolation}")).partition(": ")[2].partition("\n")[0])
    operator.start()
    async with DemoCluster.at(operator.kubeconfig) as cluster:
        await tell(story, cluster, manifest)
        if is_kept:
            return await cluster.expose_dashboard(name)
        await finish(story, cluster, name)
        return ""


def show_failure(console: Console, failure: Failed) -> None:
    """Why it failed, and the last lines of those who may know more."""
    console.print(f"[red bold]failed:[/] {failure}", highlight=False)
    for log in (STATE / "operator.log", STATE / "sandbox.log"):
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        console.print(f"--- {log}\n" + "\n".join(lines), highlight=False, markup=False, style="dim")


def cancel_on_signals() -> None:
    """Ctrl-C, SIGTERM and a closed terminal end the demo once, in order; repeating them changes nothing."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: task and not task.cancelling() and task.cancel())


async def main(isolation: str, *, is_kept: bool) -> int:
    """Tell the whole story; 0 when all of it worked."""
    cancel_on_signals()
    console, operator = Console(), DemoOperator(STATE, RAYTIDE)
    story, address, interrupted = Story(console), "", False
    try:
        if await clear_up(operator):
            console.print("[dim]ended what an earlier demo left running[/]")
        address = await play(story, operator, isolation, is_kept=is_kept)
    except Failed as failure:
        story.fail()
        show_failure(console, failure)
    except asyncio.CancelledError:
        interrupted = True
        console.print("[yellow]interrupted:[/] ending what the demo started", highlight=False)
    finally:
        if not address:
            await clear_up(operator)
    story.table()
    if address:
        console.print(f"\nexport KUBECONFIG={operator.kubeconfig}\ndashboard: {address}", **PLAINLY)
        console.print("end it: make demo-down", **PLAINLY)
    return 130 if interrupted else 0 if story.is_complete else 1


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
    place = StateDirectory(STATE / "turn")
    try:
        place.create()
        with place.claim():
            return asyncio.run(down() if chosen.down else main(chosen.isolation, is_kept=chosen.keep))
    except AlreadyRunning:
        print("Another `make demo` is running for this user; wait for its end, or interrupt it.", file=sys.stderr)
    except OSError as error:
        print(f"cannot use {STATE}: {error.strerror}; set XDG_CACHE_HOME to a folder of yours", file=sys.stderr)
    except Failed as failure:
        print(failure, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run())
