"""P3 and P12: pods created per second on a real control plane, and the operator's CPU for each of them.

One cluster 0 → 1,000 and 50 clusters of 1 + 20, alternating with a bare client that posts the same pods with as many in
flight and reads one watch of them. The first round warms everything and does not count; of the others the mean does.
BENCH_PODS and BENCH_ROUNDS make it smaller while it is being worked on.
"""

import asyncio
import os
import statistics
import sys
from dataclasses import dataclass, field

import msgspec

from plane import PODS, PlaneRig, plane_rig

from rig import cluster, result, spread

PODS_WANTED = int(os.environ.get("BENCH_PODS", "1000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "4"))
IN_FLIGHT = 32
"""As many as the operator has for one key (D7)."""
CLUSTERS_AT_ONCE = max(1, PODS_WANTED // 20)
SETTLED_S = 1.5
"""Statuses and events that follow the last pod belong to the price."""


@dataclass
class Figures:
    """What the rounds gave."""

    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    cpu_ms_one: list[float] = field(default_factory=list)
    cpu_ms_many: list[float] = field(default_factory=list)


async def operator_creates(ours: PlaneRig, clusters: list[dict], pods: int) -> tuple[float, float]:
    """Pods per second from the first POST of a cluster to the last pod, and CPU ms per pod."""
    now = asyncio.get_running_loop().time
    cpu_s, started = ours.operator.cpu_s, now()
    creating = asyncio.create_task(ours.create_clusters(clusters))
    ended = await ours.wait_for_pods(pods)
    await creating
    await asyncio.sleep(SETTLED_S)
    return pods / (ended - started), (ours.operator.cpu_s - cpu_s) * 1000 / pods


async def bare_creates(ours: PlaneRig, template: dict, pods: int) -> float:
    """Pods per second of a client that does nothing else, but for one watch that it decodes."""
    now = asyncio.get_running_loop().time
    is_open = asyncio.Event()

    async def watch() -> None:
        async for _ in ours.watch_pods(is_open):
            pass

    async def create(first: int) -> None:
        headers = {"Content-Type": "application/json"}
        for number in range(first, pods, IN_FLIGHT):
            metadata = {**template["metadata"], "name": f"bare-{number:05d}"}
            body = msgspec.json.encode({**template, "metadata": metadata})
            async with ours.session.post(ours.base + PODS, data=body, headers=headers) as answer:
                assert answer.status == 201, await answer.text()
                msgspec.json.decode(await answer.read())

    watching = asyncio.create_task(watch())
    await is_open.wait()
    started = now()
    creating = asyncio.gather(*(create(first) for first in range(IN_FLIGHT)))
    ended = await ours.wait_for_pods(pods)
    await creating
    watching.cancel()
    return pods / (ended - started)


async def worker_template(ours: PlaneRig) -> dict:
    """A worker pod as the operator sends it."""
    pods = (await ours.call("GET", f"{PODS}?labelSelector=ray.io/node-type%3Dworker&limit=1"))["items"]
    kept = {key: pods[0]["metadata"][key] for key in ("labels", "annotations") if key in pods[0]["metadata"]}
    spec = pods[0]["spec"]
    own_volumes = [each for each in spec["volumes"] if not each["name"].startswith("kube-api-access")]
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        mounts = container.get("volumeMounts", [])
        container["volumeMounts"] = [each for each in mounts if not each["name"].startswith("kube-api-access")]
    # no operator must take them for its own
    kept["labels"] = {**kept["labels"], "ray.io/cluster": "bare"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": {**spec, "volumes": own_volumes}}


async def measure(ours: PlaneRig) -> Figures:
    """All rounds."""
    figures = Figures()
    template: dict = {}
    for number in range(ROUNDS):
        one = await operator_creates(ours, [cluster("big", PODS_WANTED - 1)], PODS_WANTED)
        template = template or await worker_template(ours)
        await ours.clear()
        many_clusters = [cluster(f"many{index}", 20) for index in range(CLUSTERS_AT_ONCE)]
        many = await operator_creates(ours, many_clusters, 21 * CLUSTERS_AT_ONCE)
        await ours.clear()
        bare = await bare_alone(ours, template)
        await ours.clear()
        print(
            f"round {number}: one cluster {one[0]:.0f}/s, {CLUSTERS_AT_ONCE} × 20 {many[0]:.0f}/s, bare {bare:.0f}/s; "
            f"operator {one[1]:.2f} and {many[1]:.2f} ms per pod{' (not counted)' if number == 0 else ''}",
            flush=True,
        )
        if number or ROUNDS == 1:
            figures.one.append(one[0])
            figures.many.append(many[0])
            figures.bare.append(bare)
            figures.cpu_ms_one.append(one[1])
            figures.cpu_ms_many.append(many[1])
    return figures


async def bare_alone(ours: PlaneRig, template: dict) -> float:
    """The bare client while the operator is away: its watch would be a second one."""
    await asyncio.to_thread(ours.operator.stop)
    try:
        return await bare_creates(ours, template, PODS_WANTED)
    finally:
        await ours.start_operator()


async def main(*, is_about_cpu: bool = False) -> int:
    """Measure and print; the lines of P3, or of P12 alone."""
    async with plane_rig() as ours:
        await ours.start_operator()
        figures = await measure(ours)
    print(f"one cluster {spread(figures.one)}/s, many {spread(figures.many)}/s, bare client {spread(figures.bare)}/s")
    one, many, bare = (statistics.mean(values) for values in (figures.one, figures.many, figures.bare))
    met = [
        result("P12", statistics.mean(figures.cpu_ms_many), "ms of CPU per pod, 50 × 20", 1.2),
        result("P12", statistics.mean(figures.cpu_ms_one), "ms of CPU per pod, one cluster", 1.2),
    ]
    if not is_about_cpu:
        met += [
            result("P3", many, "pods/s, 50 × 20", 450, more_is_better=True),
            result("P3", 100 * one / bare, "% of the bare client", 90, more_is_better=True),
            result("P3", one, "pods/s, one cluster", 500, more_is_better=True),
        ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
