"""Running nodes that seem to have room for a part of a device, and do not take the work that waits for it.

The GCS reports only the sum of what is free of a resource. Two devices with 0.4 each do not hold 0.6, although the sum is
0.8; the proof is work that waits while the free amounts of the node stay the same. Takes the instances, the demand and the
waits of the last tick; returns the waits of this one, and an instance without the room that is none. Work of placement
groups is not considered. Pure; called by decide.py, kept by autoscaler/sidecar/reconcile.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from raytide.autoscaler.feasibility import EmptyNodes
from raytide.autoscaler.model import RESOURCE_UNIT_SCALING, Amounts, Demand, Instance, Request, Status
from raytide.autoscaler.scheduling.resource_shapes import ACCELERATORS
from raytide.autoscaler.state.snapshot import DeviceWait

PROOF_S: Final = 15.0
"""Three reads of the demand: raylets report it every second, and place work at once where it fits."""


def device_waits(
    instances: Iterable[Instance], tasks: Iterable[Demand], before: Mapping[str, DeviceWait], now_s: float
) -> dict[str, DeviceWait]:
    """By Ray node id, the work that waits although the sums of that node have room for it."""
    asked = [demand.request for demand in tasks if any(map(_is_part, demand.request.amounts))]
    waits: dict[str, DeviceWait] = {}
    for instance in instances if asked else ():
        free = _partly_used(instance) if instance.status is Status.RAY_RUNNING else ()
        if free and (least := _least(instance, free, asked)):
            known = before.get(instance.node_id)
            is_same = known is not None and known.free == free
            waits[instance.node_id] = DeviceWait(free, known.since_s if known and is_same else now_s, least)
    return waits


def without_false_room(instance: Instance, wait: DeviceWait | None, now_s: float) -> Instance:
    """The instance with less than the work that has waited for so long that none of its devices can hold it."""
    if wait is None or now_s - wait.since_s < PROOF_S:
        return instance
    least = dict(wait.least)
    return replace(
        instance, available=tuple((n, min(a, least[n] - 1) if n in least else a) for n, a in instance.available)
    )


def _is_part(amount: tuple[str, int]) -> bool:
    return amount[0] in ACCELERATORS and amount[1] % RESOURCE_UNIT_SCALING > 0


def _partly_used(instance: Instance) -> Amounts:
    """Free amounts of resources whose devices are partly used."""
    total = dict(instance.total)
    return tuple((n, free) for n, free in instance.available if n in ACCELERATORS and 0 < free < total.get(n, 0))


def _least(instance: Instance, free: Amounts, asked: Sequence[Request]) -> Amounts:
    """Of each of these resources, the least amount of a request that the sums of the node have room for."""
    node = EmptyNodes([(instance.available, tuple({**dict(instance.labels), **dict(instance.dynamic_labels)}.items()))])
    fitting = [dict(request.amounts) for request in asked if node.could_hold(request)]
    amounts = {name: [amounts[name] for amounts in fitting if amounts.get(name)] for name, _ in free}
    return tuple((name, min(found)) for name, found in amounts.items() if found)
