"""Scheduling requests of known size for the benchmarks of the scheduler, and how they are timed.

Nodes as in `performance.md` §1.2: worker types of 8 to 32 CPU, every third one with GPUs; `free` is the share of each
node that is free, or every node has a random share of its own. Of its object store, which no request names, every node
has another amount in use, as in Ray, where it follows the bytes that tasks have put there. Times are CPU seconds of one decision (the machine may be
busy), best and mean of at least five; Ray's own scheduler is asked in a process of its own, with a limit. Used by schedule_half_free_nodes.py,
schedule_uneven_nodes.py, schedule_large_gangs.py, schedule_full_nodes.py and schedule_gangs.py.
"""

import multiprocessing
import random
import resource
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

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

from harness import result

GIB = 1 << 30
OBJECT_STORE = 4 * GIB
"""Bytes per node."""
ROUNDS = 5


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
    """As the GCS shows it: a resource that is used up is missing; its address is a resource and its id a label."""
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
    """So many shapes, `each` times; with one shape, two CPUs."""
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


def cpu_seconds(question: SchedulingRequest) -> list[float]:
    """Of each of several decisions."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        schedule(question)
        times.append(time.process_time() - started)
    return times


def ray_cpu_seconds(question: SchedulingRequest, limit_s: float) -> float | None:
    """Of one decision of Ray's own scheduler; None if it takes longer than the limit of CPU seconds."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_ask_ray, args=(theirs, question, limit_s))
    child.start()
    theirs.close()
    try:
        return float(ours.recv())
    except EOFError:
        return None
    finally:
        child.join()


def _ask_ray(answers: Connection, question: SchedulingRequest, limit_s: float) -> None:
    sys.path.append(str(Path(__file__).parents[1] / "tools" / "checks"))
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler  # noqa: PLC0415 - same

    from oracle_ray import build_request  # noqa: PLC0415 - Ray is only imported in this process

    request = build_request(question)
    spent = int(time.process_time() + limit_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))
    started = time.process_time()
    ResourceDemandScheduler().schedule(request)
    answers.send(time.process_time() - started)


def measure(name: str, what: str, question: SchedulingRequest, bar_ms: float, ray_limit_s: float = 60) -> bool:
    """Time us and Ray on the same question and print both; whether the bar is met."""
    decision = schedule(question)
    times = [1000 * seconds for seconds in cpu_seconds(question)]
    rays = ray_cpu_seconds(question, ray_limit_s)
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
