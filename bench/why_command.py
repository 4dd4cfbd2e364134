"""WHY: time of `raytide why` for one of 1,000 RayClusters in one namespace, from the start of the process to its end.

Most of it is CPU time of imports, so the bar is multiplied by the slowness of the machine, as those of CPU time are.
"""

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tools" / "checks"))

import machine_speed

from harness import CLUSTERS, RAYTIDE, Harness, cluster, harness, result

RAYCLUSTERS = 1000
WORKERS = 3
RUNS = 11
BAR_S = 0.6
NAME = f"c{RAYCLUSTERS // 2}"


async def main() -> int:
    """Measure and print."""
    async with harness() as ours:
        await ours.start_operator()
        for number in range(RAYCLUSTERS):
            await ours.call("POST", CLUSTERS, cluster(f"c{number}", WORKERS))
        async with asyncio.timeout(300):
            while await _is_missing(ours):
                await asyncio.sleep(0.5)
        times, slow = [], []
        for _ in range(RUNS):
            slow.append(machine_speed.slowness())
            times.append(await _run(ours))
    slowness = statistics.median(slow)
    print(f"fastest {min(times):.3f} s, slowest {max(times):.3f} s of {RUNS}", flush=True)
    print(f"this machine takes {slowness:.2f} times as long as that of the bar, {BAR_S} s", flush=True)
    is_met = result("WHY", statistics.median(times), f"s for one of {RAYCLUSTERS} RayClusters", BAR_S * slowness)
    return 0 if is_met else 1


async def _is_missing(ours: Harness) -> bool:
    """Whether a RayCluster is not ready yet."""
    listed = await ours.call("GET", CLUSTERS)
    return any(item.get("status", {}).get("readyWorkerReplicas", 0) < WORKERS for item in listed["items"])


async def _run(ours: Harness) -> float:
    began = time.perf_counter()
    command = [RAYTIDE, "why", NAME, "-n", "bench", "-o", "json", "--kubeconfig", ours.kubeconfig]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    took_s = time.perf_counter() - began
    assert (process.returncode, json.loads(out)["size"]) == (0, {"wanted": WORKERS, "ready": WORKERS}), out.decode()
    return took_s


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
