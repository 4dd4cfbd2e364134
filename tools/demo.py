"""Does the main job work on this machine, from an empty cluster to real Ray and back?

Starts a sandbox and the operator as processes of their own, applies `samples/raycluster.yaml` as a user would, runs a
real Ray job, scales, kills a worker, deletes. Shows what it waits for; every wait has a deadline, and the exit code says
whether all of it worked. `make demo` calls it; with --keep the cluster stays and its addresses are printed.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from pathlib import Path

import yaml
from rich.console import Console

from demo_cluster import DemoCluster, Failed
from demo_story import Story

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples" / "raycluster.yaml"
RAYTIDE = Path(sys.executable).parent / "raytide"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide" / "demo"

JOB = """
import collections, os, time, ray
ray.init()
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where(i):
    time.sleep(0.5)
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


def sandbox(*words: str) -> None:
    """Call `raytide sandbox`; its own words stand when it fails."""
    done = subprocess.run(
        [RAYTIDE, "sandbox", *words, "--state-dir", STATE], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise Failed(f"raytide sandbox {words[0]}: {(done.stderr or done.stdout).strip()}")


def start_operator() -> subprocess.Popen[bytes]:
    """`raytide operator` as its own process, logging beside the sandbox."""
    log = (STATE / "operator.log").open("wb")
    command = [RAYTIDE, "operator", "--kubeconfig", STATE / "kubeconfig", "--metrics-addr", "0"]
    return subprocess.Popen(
        [*command, "--health-probe-bind-address", "0"],
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


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
    async with story.step("head and 2 workers Ready", deadline_s=180) as step:
        await step.until(lambda: cluster.are_ready(name, workers=2))
    head = await cluster.head(name)
    await run_job(cluster, story, head, 3)
    async with story.step("scale 2 → 4 workers", deadline_s=180) as step:
        await cluster.scale(name, group, 4)
        await step.until(lambda: cluster.are_ready(name, workers=4))
    await run_job(cluster, story, head, 5)
    victim = (await cluster.workers(name))[0]
    async with story.step("kill -9 a worker's Ray: the kubelet restarts it", deadline_s=120) as step:
        output, _ = await cluster.execute(victim, ["python", "-c", KILL], timeout_s=20, is_cut_allowed=True)
        step.note(output.strip())
        await step.until(lambda: cluster.has_restarted(victim))
        await step.until(lambda: cluster.are_ready(name, workers=4))
    async with story.step("lose a worker's pod: the operator replaces it", deadline_s=120) as step:
        await cluster.lose(victim)
        await step.until(lambda: cluster.are_ready(name, workers=4, without=victim))
    async with story.step("raycluster says ready", deadline_s=30) as step:
        await step.until(lambda: cluster.says_ready(name))


async def finish(story: Story, cluster: DemoCluster, name: str) -> None:
    """Delete the RayCluster and see everything go."""
    async with story.step("delete: everything gone", deadline_s=90) as step:
        await cluster.delete(name)
        await step.until(lambda: cluster.is_gone(name))


async def main(*, is_kept: bool) -> int:
    """Tell the whole story; 0 when all of it worked."""
    console = Console()
    story = Story(console)
    manifest = yaml.safe_load(SAMPLE.read_text())
    operator: subprocess.Popen[bytes] | None = None
    try:
        async with story.step("sandbox up", deadline_s=60):
            await asyncio.to_thread(sandbox, "down")
            await asyncio.to_thread(sandbox, "up")
        operator = start_operator()
        async with DemoCluster.at(STATE / "kubeconfig") as cluster:
            await tell(story, cluster, manifest)
            if is_kept:
                address = await cluster.expose_dashboard(manifest["metadata"]["name"])
            else:
                await finish(story, cluster, manifest["metadata"]["name"])
    except Failed as failure:
        console.print(f"[red bold]failed:[/] {failure}", highlight=False)
        for log in ("operator.log", "sandbox.log"):
            path = STATE / log
            lines = path.read_text(errors="replace").splitlines()[-15:] if path.exists() else []
            console.print(f"[dim]--- {path}\n" + "\n".join(lines), highlight=False, markup=False)
    finally:
        if operator and not (is_kept and story.is_complete):
            operator.terminate()
            operator.wait(15)
        if not (is_kept and story.is_complete):
            await asyncio.to_thread(sandbox, "down")
    story.table()
    if is_kept and story.is_complete:
        console.print(
            f"\nexport KUBECONFIG={STATE / 'kubeconfig'}\ndashboard: {address}", highlight=False, soft_wrap=True
        )
        console.print(
            f"end it: kill {operator.pid} && .venv/bin/raytide sandbox down --state-dir {STATE}", highlight=False
        )
    return 0 if story.is_complete else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    sys.exit(asyncio.run(main(is_kept=parser.parse_args().keep)))
