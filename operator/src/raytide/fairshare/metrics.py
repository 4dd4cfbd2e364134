"""Metrics of the pool (TJ §8).

Input: a pool and its division. The gauges of free capacity per resource and of its fragmented part, how long the pass took
and how many steps it decided. Called by reconciler.py: `measure` in the thread that plans, `expose` after it; controller.py
clears the gauges when a leadership term ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from raytide.api.pod_requirements import PODS, Amounts
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, Shape
from raytide.fairshare.algorithm.shape_limits import MAX_SHAPES
from raytide.metrics import POOL_FRAGMENTED, POOL_FREE, POOL_PLAN_SECONDS, POOL_PLAN_STEPS


@dataclass(frozen=True, slots=True)
class PassMetrics:
    """The metrics of one pass."""

    steps: int
    free: Amounts
    fragmented: Amounts


def measure(pool: ClusterSnapshot, division: Allocation) -> PassMetrics:
    """The metrics of one pass."""
    steps = sum(abs(resize.after - resize.before) for resize in division.resizes)
    return PassMetrics(steps, *free_amounts(pool))


def expose(metrics: PassMetrics, took_s: float) -> None:
    """Set all metrics of one pass that took so many seconds."""
    POOL_PLAN_SECONDS.observe(took_s)
    POOL_PLAN_STEPS.inc(metrics.steps)
    for gauge, amounts in ((POOL_FREE, metrics.free), (POOL_FRAGMENTED, metrics.fragmented)):
        gauge.clear()
        for name, amount in amounts.items():
            gauge.labels(name).set(amount)


def clear() -> None:
    """Remove the series of capacity: another replica has them from now on."""
    for gauge in (POOL_FREE, POOL_FRAGMENTED):
        gauge.clear()


def free_amounts(pool: ClusterSnapshot) -> tuple[dict[str, int], dict[str, int]]:
    """Free capacity on usable nodes by resource, and the fragmented part of it.

    Capacity is fragmented where no instance that requests the resource fits; a resource that no participant requests is
    never fragmented. `cpu` is in thousandths. Resources that no node has are left out: tenants write their names.
    """
    offered = {name for node in pool.nodes for name in node.allocatable}
    shapes = list(
        islice((shape for shape in _distinct(pool) if offered.issuperset(shape.requests.keys() - {PODS})), MAX_SHAPES)
    )
    asked = {name for shape in shapes for name in shape.requests} - {PODS}
    free: dict[str, int] = {}
    fragmented: dict[str, int] = dict.fromkeys(sorted(asked), 0)
    for node in pool.nodes:
        if not node.is_usable:
            continue
        room = {name: max(0, amount - node.used.get(name, 0)) for name, amount in node.allocatable.items()}
        useful = {name for shape in shapes if _fits(shape.requests, room) for name in shape.requests}
        for name, amount in room.items():
            free[name] = free.get(name, 0) + amount
            if name in asked and name not in useful:
                fragmented[name] += amount
    return free, fragmented


def _distinct(pool: ClusterSnapshot) -> Iterator[Shape]:
    seen: set[tuple[tuple[str, int], ...]] = set()
    for participant in pool.participants:
        kind = tuple(sorted(participant.shape.requests.items()))
        if kind not in seen:
            seen.add(kind)
            yield participant.shape


def _fits(requests: Amounts, room: Amounts) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in requests.items())
