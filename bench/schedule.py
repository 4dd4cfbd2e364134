"""CPU of one decision of the autoscaler's scheduler, compared with Ray's own scheduler: P1, P1B, P1C, P2, GANGS and GROWTH.

Nodes as in PF §1.2: worker types of 8 to 32 CPUs, every third one with GPUs; `free` is the free share of each node, or random per
node. The used amount of the object store, which no request has, differs between nodes, as in Ray, where it depends on the objects
of tasks. Times are CPU seconds of this process, best and mean of five decisions; Ray's scheduler gets the same request in another
process, with a limit. GROWTH writes a table and a diagram to docs/figures; `python bench/schedule.py GROWTH --alone` omits Ray.
"""

import multiprocessing
import random
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from raytide.autoscaler.model import (
    HEAD_TYPE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    Demand,
    Gang,
    Instance,
    NodeType,
    Request,
    SchedulingRequest,
    Status,
    amounts_of,
)
from raytide.autoscaler.scheduling.schedule import schedule

from harness import DIAGRAMS, LogLogPanel, Met, exponent, result, run, svg, write_table

GIB = 1 << 30
OBJECT_STORE = 4 * GIB
"""Bytes per node."""
ROUNDS = 5


# --- scheduling requests ---------------------------------------------------------------------------------------------------


def node_types(count: int, most: int = 100_000) -> tuple[NodeType, ...]:
    """The head and `count` worker types, all different."""
    types = [NodeType(HEAD_TYPE, 0, 1, amounts_of({"CPU": 0, "memory": 8 * GIB}))]
    for number in range(count):
        resources: dict[str, float] = {"CPU": 8 * (1 + number % 4), "memory": 32 * (1 + number % 3) * GIB}
        if number % 3 == 2:
            resources["GPU"] = 1 + number % 8
        types.append(NodeType(f"t{number}", 0, most, amounts_of(resources)))
    return tuple(types)


def running(count: int, types: tuple[NodeType, ...], free: float | None, seed: int = 0) -> tuple[Instance, ...]:
    """The head and `count` running workers; `free` None: a random share of each resource of each node."""
    rng = random.Random(seed)
    store = random.Random(seed + 1)
    nodes = [_node(0, types[0], types[0].resources, 0)]
    for number in range(1, count + 1):
        node_type = types[1 + rng.randrange(len(types) - 1)]
        left = []
        for name, amount in node_type.resources:
            share = rng.random() if free is None else free
            unit = 10**9 * RESOURCE_UNIT_SCALING if name == "memory" and free is None else RESOURCE_UNIT_SCALING
            left.append((name, int(amount * share) // unit * unit))
        nodes.append(_node(number, node_type, tuple(left), store.randrange(OBJECT_STORE)))
    return tuple(nodes)


def _node(number: int, node_type: NodeType, left: Amounts, stored: int) -> Instance:
    """An instance as in the GCS: used-up resources are missing; its address is a resource and its id a label."""
    address = (f"node:10.0.{number >> 8}.{number & 255}", RESOURCE_UNIT_SCALING)
    own = (address, ("object_store_memory", OBJECT_STORE * RESOURCE_UNIT_SCALING))
    own_left = (address, ("object_store_memory", (OBJECT_STORE - stored) * RESOURCE_UNIT_SCALING))
    node_id = f"{number:056x}"
    return Instance(
        f"pod-{number:05d}",
        node_type.name,
        Status.RAY_RUNNING,
        is_head=number == 0,
        pod=f"pod-{number:05d}",
        node_id=node_id,
        total=tuple(sorted((*node_type.resources, *own))),
        available=tuple(sorted((*((name, amount) for name, amount in left if amount), *own_left))),
        labels=(("ray.io/node-group", node_type.name), ("ray.io/node-id", node_id)),
    )


def demands(shapes: int, each: int) -> tuple[Demand, ...]:
    """Demands of `shapes` shapes, `each` times; a single shape has two CPUs."""
    if shapes == 1:
        return (Demand(Request(amounts_of({"CPU": 2}), ((),)), each),)
    kinds = [{"CPU": 1 + n % 8, "memory": (1 + n // 8) * GIB // 4} for n in range(shapes)]
    return tuple(Demand(Request(amounts_of(kind), ((),)), each) for kind in kinds)


def spread_gangs(count: int, bundles: int) -> tuple[Gang, ...]:
    """STRICT_SPREAD placement groups of two-CPU bundles."""
    groups = [f"{number:032x}" for number in range(count)]
    return tuple(
        Gang(
            f"{group}:STRICT_SPREAD|PENDING",
            tuple(Request(amounts_of({"CPU": 2}), anti_affinity=(f"_PG_{group}", "")) for _ in range(bundles)),
        )
        for group in groups
    )


# --- times -----------------------------------------------------------------------------------------------------------------


def cpu_seconds(request: SchedulingRequest) -> list[float]:
    """CPU seconds of each of `ROUNDS` decisions."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        schedule(request)
        times.append(time.process_time() - started)
    return times


def ray_cpu_seconds(request: SchedulingRequest, limit_s: float) -> float | None:
    """CPU seconds of a decision of Ray's own scheduler; None if it exceeds the limit."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_ask_ray, args=(theirs, request, limit_s))
    child.start()
    theirs.close()
    try:
        return float(ours.recv())
    except EOFError:
        return None
    finally:
        child.join()


def _ask_ray(answers: Connection, request: SchedulingRequest, limit_s: float) -> None:
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler  # noqa: PLC0415 - same

    from oracle.ray_answers import build_request  # noqa: PLC0415 - Ray is only imported in this process

    ray_request = build_request(request)
    spent = int(time.process_time() + limit_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))
    started = time.process_time()
    ResourceDemandScheduler().schedule(ray_request)
    answers.send(time.process_time() - started)


def measure(name: str, what: str, request: SchedulingRequest, bar_ms: float, ray_limit_s: float = 60) -> bool:
    """Measure both schedulers with the same request and print the results; returns whether the bar is met."""
    decision = schedule(request)
    times = [1000 * seconds for seconds in cpu_seconds(request)]
    rays = ray_cpu_seconds(request, ray_limit_s)
    best, mean = min(times), statistics.mean(times)
    against = (
        f"> {ray_limit_s:.0f} s, not finished" if rays is None else f"{rays:.2f} s = {1000 * rays / mean:.0f} times"
    )
    left = sum(demand.count for demand in decision.unplaced) + len(decision.unplaced_gangs)
    print(
        f"{what}: best {best:.1f} ms, mean {mean:.1f} ms CPU; {sum(decision.launches.values())} launches, {left} left; "
        f"Ray's own scheduler {against}",
        flush=True,
    )
    return result(name, mean, f"ms CPU, {what}", bar_ms)


# --- P1, P1B, P1C, P2, GANGS -----------------------------------------------------------------------------------------------


def half_free_nodes() -> Met:
    """PF:P1: 1,000 half-free nodes and 1,000 demands, of one shape and of 64."""
    for types, shapes, each in ((1, 1, 1000), (10, 64, 16)):
        known = node_types(types)
        request = SchedulingRequest(known, running(1000, known, 0.5), demands(shapes, each))
        yield measure("P1", f"1000 half-free nodes, {shapes} x {each} demands, {types} types", request, 100)


def uneven_nodes() -> Met:
    """PF:P1B: half-free nodes of which each has another amount of object store in use, 64 shapes x 16."""
    known = node_types(10)
    for nodes, bar_ms in ((1000, 100), (10_000, 1000)):
        request = SchedulingRequest(known, running(nodes, known, 0.5), demands(64, 16))
        what = f"{nodes} half-free nodes with uneven object stores, 64 x 16 demands, 10 types"
        yield measure("P1B", what, request, bar_ms, ray_limit_s=20)


def many_gangs() -> Met:
    """PF:P1C: 1,000 placement groups of 8 STRICT_SPREAD bundles on 5,000 nodes with uneven object stores."""
    known = node_types(5)
    request = SchedulingRequest(known, running(5000, known, 0.5), gangs=spread_gangs(1000, 8))
    what = "1000 x 8 STRICT_SPREAD, 5000 half-free nodes with uneven object stores"
    yield measure("P1C", what, request, 2000, ray_limit_s=10)


def full_nodes() -> Met:
    """PF:P2: large demand: 1,337 full nodes, and 2,000 nodes that are all different."""
    known = node_types(1)
    full = SchedulingRequest(known, running(1337, known, 0.0), demands(1, 13_315))
    yield measure("P2", "1337 full nodes, 13315 demands", full, 20)
    known = node_types(10)
    different = SchedulingRequest(known, running(2000, known, None), demands(64, 157))
    yield measure("P2", "2000 different nodes, 64 x 157 demands, 10 types", different, 1000, ray_limit_s=30)


def gangs() -> Met:
    """PF:GANGS: 100 placement groups of 8 STRICT_SPREAD bundles on 1,000 nodes."""
    known = node_types(5)
    for free, word, ray_limit_s in ((0.5, "half-free", 10), (0.0, "full", 30)):
        request = SchedulingRequest(known, running(1000, known, free), gangs=spread_gangs(100, 8))
        yield measure("GANGS", f"100 x 8 STRICT_SPREAD, 1000 {word} nodes", request, 500, ray_limit_s)
    different = SchedulingRequest(known, running(1000, known, None), gangs=spread_gangs(100, 8))
    print(f"worst case, all nodes different, no bar: best {1000 * min(cpu_seconds(different)):.0f} ms CPU")


# --- GROWTH ----------------------------------------------------------------------------------------------------------------

RAY_LIMIT_S = 10
SHAPES = 64
OURS, RAYS = "#0b6e4f", "#b23a48"


@dataclass(frozen=True)
class Point:
    """One measurement."""

    series: str
    number: int
    ours_ms: float
    rays_ms: float | None


@dataclass(frozen=True)
class Series:
    """The number that changes, and its values."""

    name: str
    label: str
    numbers: tuple[int, ...]

    def request(self, number: int) -> SchedulingRequest:
        """The scheduling request with this number."""
        sizes = {"demands": 10_000, "nodes": 1000, "types": 10, self.name.partition(",")[0]: number}
        known = node_types(sizes["types"])
        free = None if "different" in self.name else 0.5
        each = max(1, sizes["demands"] // SHAPES)
        return SchedulingRequest(known, running(sizes["nodes"], known, free), demands(SHAPES, each))


ALL = (
    Series("demands", "demands (64 shapes; 1,000 half-free nodes, 10 types)", (100, 1000, 10_000, 100_000)),
    Series("nodes", "nodes, half free (10,000 demands, 10 types)", (10, 100, 1000, 5000)),
    Series("nodes, all different", "nodes, all different (10,000 demands, 10 types)", (10, 100, 1000, 2000)),
    Series("types", "node types (10,000 demands, 1,000 half-free nodes)", (1, 5, 20, 50)),
)


def points_of(series: Series, *, is_alone: bool) -> list[Point]:
    """All points of a series; Ray is omitted after it has exceeded its limit."""
    points: list[Point] = []
    is_ray_in_time = not is_alone
    for number in series.numbers:
        request = series.request(number)
        ours_ms = 1000 * min(cpu_seconds(request))
        rays = ray_cpu_seconds(request, RAY_LIMIT_S) if is_ray_in_time else None
        is_ray_in_time = rays is not None
        points.append(Point(series.name, number, ours_ms, None if rays is None else 1000 * rays))
        ray_text = "-" if rays is None else f"{1000 * rays:.0f} ms"
        print(f"{series.name} {number}: {ours_ms:.1f} ms, Ray {ray_text}", flush=True)
    return points


WIDTH, HEIGHT, LEFT, TOP, GAP = 420, 260, 60, 40, 70


def panel(series: Series, points: Sequence[Point], column: int, row: int) -> list[str]:
    """The diagram of one series."""
    x0, y0 = LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP)
    one = LogLogPanel(x0, y0, WIDTH, HEIGHT, series.numbers, 100_000.0)
    rays = [(point.number, point.rays_ms) for point in points if point.rays_ms is not None]
    return [*one.frame(series.label), *one.curve([(p.number, p.ours_ms) for p in points], OURS), *one.curve(rays, RAYS)]


def plot(points: dict[str, list[Point]]) -> str:
    """All series in two rows, with a legend."""
    width, height = 2 * (WIDTH + GAP) + LEFT, 2 * (HEIGHT + GAP) + TOP
    lines = [
        line for place, series in enumerate(ALL) for line in panel(series, points[series.name], place % 2, place // 2)
    ]
    y = height - 14
    lines += [
        f'<text x="{LEFT}" y="{y}" fill="{OURS}">Raytide</text>',
        f'<text x="{LEFT + 70}" y="{y}" fill="{RAYS}">Ray 2.60 (where it needs less than {RAY_LIMIT_S} s)</text>',
        f'<text x="{LEFT + 400}" y="{y}">CPU time of one decision, best of five</text>',
    ]
    return svg(width, height, lines)


def growth() -> Met:
    """PF:GROWTH: cost of a decision by demands, nodes and node types.

    Each series changes one number; the nodes are half free and equal per type, or all different, which is the worst case. Ray's
    scheduler gets the same request as long as it needs less than ten seconds of CPU.
    """
    points = {series.name: points_of(series, is_alone="--alone" in sys.argv) for series in ALL}
    rows = [
        (one.series, one.number, f"{one.ours_ms:.1f}", f"{one.rays_ms:.0f}" if one.rays_ms else "")
        for of_series in points.values()
        for one in of_series
    ]
    write_table("scheduler-growth", ("series", "number", "raytide_cpu_ms", "ray_cpu_ms"), rows)
    (DIAGRAMS / "scheduler-growth.svg").write_text(plot(points))
    before, last = points["demands"][-2:]
    power = exponent((before.number, before.ours_ms), (last.number, last.ours_ms))
    yield result("GROWTH", power, "exponent of growth with demands", 1.3)


FIGURES = {
    "P1": half_free_nodes,
    "P1B": uneven_nodes,
    "P1C": many_gangs,
    "P2": full_nodes,
    "GANGS": gangs,
    "GROWTH": growth,
}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
