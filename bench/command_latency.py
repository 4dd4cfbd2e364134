"""Commands of `raytide`, and the API of the sandbox: SB1 and WHY."""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time

import msgspec

import machine_speed

from harness import CLUSTERS, PODS, RAYTIDE, Harness, Met, cluster, harness, result, run, spread

# --- SB1 -------------------------------------------------------------------------------------------------------------------

IN_FLIGHT, POD_COUNT, RUNS, STARTS = 16, 4000, 3, 3


def pod(name: str) -> dict:
    """A pod of about 4.5 kB of JSON, as large as a Ray pod."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(40)]
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "env": env}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def round_trips(ours: Harness, run: int) -> float:
    """Round trips per second in one run."""
    waiting: dict[str, asyncio.Event] = {}
    is_open = asyncio.Event()

    async def watch() -> None:
        version = (await ours.call("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        url = f"{ours.base}{PODS}?watch=true&resourceVersion={version}"
        async with ours.session.get(url, timeout=None, read_bufsize=2**22) as answer:
            is_open.set()
            async for line in answer.content:
                event = msgspec.json.decode(line)
                if event["type"] == "ADDED" and (seen := waiting.pop(event["object"]["metadata"]["name"], None)):
                    seen.set()

    async def create(first: int) -> None:
        for number in range(first, POD_COUNT, IN_FLIGHT):
            name = f"p{run}-{number}"
            waiting[name] = seen = asyncio.Event()
            await ours.call("POST", PODS, pod(name))
            await seen.wait()

    watching = asyncio.create_task(watch())
    await is_open.wait()
    started = time.perf_counter()
    await asyncio.gather(*(create(first) for first in range(IN_FLIGHT)))
    rate = POD_COUNT / (time.perf_counter() - started)
    watching.cancel()
    return rate


def start_times() -> list[float]:
    """Seconds that `raytide sandbox up` takes until it returns ready."""
    times = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory(prefix="rt") as folder:
            started = time.perf_counter()
            subprocess.run([RAYTIDE, "sandbox", "up", "--state-dir", folder], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - started)
            subprocess.run([RAYTIDE, "sandbox", "down", "--state-dir", folder], check=True, stdout=subprocess.DEVNULL)
    return times


async def sandbox() -> Met:
    """PF:SB1: create + watch round trips per second of the sandbox's API with 16 in flight, and the time of `sandbox up`.

    A round trip is from the POST of a 4.5 kB pod until a watch shows it. The best of three runs of 4,000 counts, because other
    load on the machine can only make them slower.
    """
    async with harness(has_fleet=False) as ours:
        rates = [await round_trips(ours, number) for number in range(RUNS)]
    starts = start_times()
    print(f"create+watch per second: {spread(rates)}; up: {spread(starts)} s")
    return [
        result("SB1", min(starts), "s until `sandbox up` is ready", 2.0),
        result("SB1", max(rates), "create+watch per second", 2000, more_is_better=True),
    ]


# --- WHY -------------------------------------------------------------------------------------------------------------------

RAYCLUSTERS, WORKERS, WHY_RUNS, BAR_S = 1000, 3, 11, 0.6
NAME = f"c{RAYCLUSTERS // 2}"


async def why() -> Met:
    """PF:WHY: time of `raytide why` for one of 1,000 RayClusters in one namespace, from the start of the process to its end.

    Most of it is CPU time of imports, so the bar is multiplied by the slowness of the machine, as those of CPU time are.
    """
    async with harness() as ours:
        await ours.start_operator()
        for number in range(RAYCLUSTERS):
            await ours.call("POST", CLUSTERS, cluster(f"c{number}", WORKERS))
        async with asyncio.timeout(300):
            while await _is_any_unready(ours):
                await asyncio.sleep(0.5)
        times, slow = [], []
        for _ in range(WHY_RUNS):
            slow.append(machine_speed.slowness())
            times.append(await _run_why(ours))
    slowness = statistics.median(slow)
    print(f"fastest {min(times):.3f} s, slowest {max(times):.3f} s of {WHY_RUNS}", flush=True)
    print(f"this machine is {slowness:.2f} times as slow as that of the bar, {BAR_S} s", flush=True)
    return [result("WHY", statistics.median(times), f"s for one of {RAYCLUSTERS} RayClusters", BAR_S * slowness)]


async def _is_any_unready(ours: Harness) -> bool:
    """Whether a RayCluster is not ready."""
    listed = await ours.call("GET", CLUSTERS)
    return any(item.get("status", {}).get("readyWorkerReplicas", 0) < WORKERS for item in listed["items"])


async def _run_why(ours: Harness) -> float:
    began = time.perf_counter()
    command = [RAYTIDE, "why", NAME, "-n", "bench", "-o", "json", "--kubeconfig", ours.kubeconfig]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    took_s = time.perf_counter() - began
    size = json.loads(out)["size"]
    assert (process.returncode, size["wanted"], size["ready"]) == (0, WORKERS, WORKERS), out.decode()
    return took_s


FIGURES = {"SB1": sandbox, "WHY": why}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
