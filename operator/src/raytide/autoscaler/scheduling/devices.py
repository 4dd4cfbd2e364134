"""Free devices of a node: how many requests they hold, and what they hold afterwards.

A device is one unit of a resource such as GPU. As in Ray, a request for less than one needs a part of a single device,
and any other whole devices; what is left of several devices cannot be added up. Ray's autoscaler does add it up, and so
work may wait for ever for a node that seems to have capacity. Free amounts are sorted, the largest first. Pure; used by
resource_shapes.py, node_factory.py and scoring.py (AS §2.4 FILL 3).
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from raytide.autoscaler.model import RESOURCE_UNIT_SCALING

Devices: TypeAlias = list[int]


def devices_of(amount: int, count: int) -> Devices:
    """`count` devices with so much free in total, as on a node whose other devices are completely used.

    Of a running node only the sum is known.
    """
    whole, rest = divmod(amount, RESOURCE_UNIT_SCALING)
    return ([RESOURCE_UNIT_SCALING] * whole + [rest] + [0] * count)[:count]


def held_by(devices: Sequence[int], amount: int) -> int:
    """How many requests for `amount` the devices hold."""
    if amount < RESOURCE_UNIT_SCALING:
        return sum(free // amount for free in devices)
    return devices.count(RESOURCE_UNIT_SCALING) // _whole(amount)


def left_by(devices: Sequence[int], amount: int, count: int) -> Devices:
    """The devices after `count` requests that they hold; as in Ray, a fraction is taken from the fullest device that has it."""
    left = sorted(devices)
    if amount >= RESOURCE_UNIT_SCALING:
        used = _whole(amount) * count
        return left[::-1][used:] + [0] * used
    for place, free in enumerate(left):
        here = min(count, free // amount)
        left[place] -= here * amount
        count -= here
    return sorted(left, reverse=True)


def together(amounts: Iterable[int]) -> int:
    """Amount that holds all these requests on one node: their sum, or as many whole devices if it lies on more of them."""
    amounts = list(amounts)
    shared: Devices = []
    for amount in sorted((n for n in amounts if 0 < n < RESOURCE_UNIT_SCALING), reverse=True):
        place = next((i for i, free in enumerate(shared) if free >= amount), None)
        if place is None:
            shared.append(RESOURCE_UNIT_SCALING - amount)
        else:
            shared[place] -= amount
    total = sum(amounts)
    devices = len(shared) + sum(_whole(n) for n in amounts if n >= RESOURCE_UNIT_SCALING)
    return total if _whole(total) >= devices else devices * RESOURCE_UNIT_SCALING


def _whole(amount: int) -> int:
    return -(-amount // RESOURCE_UNIT_SCALING)
