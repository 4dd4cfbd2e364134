"""What do the metrics say about the pool?

Takes a pool and its division, sets the gauges of TJ §8: what is free per resource, how much of that lies in pieces too
small for anybody who asks for it, how long the pass took and how many steps it decided. Called by controller.py after
each pass.
"""

from collections.abc import Iterator

from raytide.elastic.model import PODS, Amounts, Division, Pool, Shape
from raytide.metrics import POOL_FRAGMENTED, POOL_FREE, POOL_PLAN_SECONDS, POOL_PLAN_STEPS


def measure(pool: Pool, division: Division, took_s: float) -> None:
    """Set everything."""
    POOL_PLAN_SECONDS.observe(took_s)
    POOL_PLAN_STEPS.inc(sum(abs(resize.after - resize.before) for resize in division.resizes))
    free, fragmented = free_amounts(pool)
    for gauge, amounts in ((POOL_FREE, free), (POOL_FRAGMENTED, fragmented)):
        gauge.clear()
        for name, amount in amounts.items():
            gauge.labels(name).set(amount)


def free_amounts(pool: Pool) -> tuple[dict[str, int], dict[str, int]]:
    """Resource -> what is free on usable nodes, and the part of it that lies where no instance that needs it fits.

    `cpu` in thousandths. What nobody asks for is not fragmented.
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


def _distinct(pool: Pool) -> Iterator[Shape]:
    seen: set[tuple[tuple[str, int], ...]] = set()
    for participant in pool.participants:
        kind = tuple(sorted(participant.shape.requests.items()))
        if kind not in seen:
            seen.add(kind)
            yield participant.shape


def _fits(requests: Amounts, room: Amounts) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in requests.items())
