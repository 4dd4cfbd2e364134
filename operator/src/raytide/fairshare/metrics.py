"""Metrics of the pool (TJ §8).

Input: a pool and its division. Sets the gauges of free capacity per resource and of its fragmented part, and records
how long the pass took and how many steps it decided. Called by reconciler.py after each pass; controller.py clears the
gauges when a leadership term ends.
"""

from collections.abc import Iterator

from raytide.api.pod_requirements import PODS, Amounts
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, Shape
from raytide.metrics import POOL_FRAGMENTED, POOL_FREE, POOL_PLAN_SECONDS, POOL_PLAN_STEPS


def measure(pool: ClusterSnapshot, division: Allocation, took_s: float) -> None:
    """Set all metrics of one pass."""
    POOL_PLAN_SECONDS.observe(took_s)
    POOL_PLAN_STEPS.inc(sum(abs(resize.after - resize.before) for resize in division.resizes))
    free, fragmented = free_amounts(pool)
    for gauge, amounts in ((POOL_FREE, free), (POOL_FRAGMENTED, fragmented)):
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
    never fragmented. `cpu` is in thousandths.
    """
    shapes = list(_distinct(pool))
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
