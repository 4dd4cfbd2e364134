"""SB1: the sandbox's API: create + watch round trips per second with 16 in flight, and how long `sandbox up` takes.

A round trip is a POST of a 4.5 kB pod until a watch shows it. The best of three runs of 4,000 counts, since a shared
machine can only take away.
"""

import asyncio
import subprocess
import sys
import tempfile
import time

import msgspec

from harness import RAYTIDE, Harness, harness, result, spread

IN_FLIGHT, PODS, RUNS, STARTS = 16, 4000, 3, 3


def pod(name: str) -> dict:
    """A pod of about 4.5 kB of JSON, as Ray pods are."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(40)]
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "env": env}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def round_trips(ours: Harness, run: int) -> float:
    """Round trips per second of one run."""
    waiting: dict[str, asyncio.Event] = {}
    is_open = asyncio.Event()

    async def watch() -> None:
        version = (await ours.call("GET", "/api/v1/namespaces/bench/pods?limit=1"))["metadata"]["resourceVersion"]
        url = f"{ours.base}/api/v1/namespaces/bench/pods?watch=true&resourceVersion={version}"
        async with ours.session.get(url, timeout=None, read_bufsize=2**22) as answer:
            is_open.set()
            async for line in answer.content:
                event = msgspec.json.decode(line)
                if event["type"] == "ADDED" and (seen := waiting.pop(event["object"]["metadata"]["name"], None)):
                    seen.set()

    async def create(first: int) -> None:
        for number in range(first, PODS, IN_FLIGHT):
            name = f"p{run}-{number}"
            waiting[name] = seen = asyncio.Event()
            await ours.call("POST", "/api/v1/namespaces/bench/pods", pod(name))
            await seen.wait()

    watching = asyncio.create_task(watch())
    await is_open.wait()
    started = time.perf_counter()
    await asyncio.gather(*(create(first) for first in range(IN_FLIGHT)))
    rate = PODS / (time.perf_counter() - started)
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


async def main() -> int:
    """Measure and print."""
    async with harness(has_fleet=False) as ours:
        rates = [await round_trips(ours, run) for run in range(RUNS)]
    starts = start_times()
    print(f"create+watch per second: {spread(rates)}; up: {spread(starts)} s")
    met = [
        result("SB1", min(starts), "s until `sandbox up` is ready", 2.0),
        result("SB1", max(rates), "create+watch per second", 2000, more_is_better=True),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
