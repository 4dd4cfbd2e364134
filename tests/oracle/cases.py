"""Random questions for a scheduler: small clusters with everything that Ray's words can say.

Amounts are sums of powers of two, so that Ray's floats are exact; totals are any whole number, so that the score's are
not. Odd things are rare but there: types nobody configured, more free than there is, limits below what runs, labels
that gangs and selectors share. The same random state always gives the same question. Used by oracle.py.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from raytide.autoscaler.model import (
    HEAD_TYPE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    Demand,
    Gang,
    Instance,
    LabelConstraint,
    NodeType,
    Request,
    SchedulingRequest,
    Selector,
    Status,
    amounts_of,
    labels_of,
)

T = TypeVar("T")
ZONES = ("a", "b", "c")
SHARES = (0.25, 0.5, 1, 1, 1, 2, 3, 4, 6, 8, 16)
STATUSES = (
    *[Status.RAY_RUNNING] * 8,
    Status.QUEUED,
    Status.REQUESTED,
    *[Status.ALLOCATED] * 3,
    Status.RAY_INSTALLING,
    Status.RAY_STOP_REQUESTED,
    Status.RAY_STOPPING,
    Status.TERMINATED,
    Status.ALLOCATION_TIMEOUT,
)


class Case:
    """One question under construction."""

    def __init__(self, rng: random.Random, size: float) -> None:
        self._rng = rng
        self._size = size
        self._number = 0
        self._is_odd = rng.random() < 0.1
        self._are_alike = rng.random() < 0.3

    def _maybe(self, share: float) -> bool:
        return self._rng.random() < share

    def question(self) -> SchedulingRequest:
        """All of it."""
        rng = self._rng
        head = NodeType(HEAD_TYPE, 0, 1, amounts_of({"CPU": 4, "memory": 64}))
        types = [head, *self._types()]
        total = sum(one.max_nodes for one in types)
        instances = self._instances(types)
        return SchedulingRequest(
            types=tuple(types),
            instances=tuple(instances),
            tasks=self._demands(rng.randint(0, 6), rng.choice((3, 20, 200))),
            gangs=tuple(self._gang(n) for n in range(rng.choice((0, 0, 1, 2, 3, 6)))),
            constraint=self._demands(rng.randint(0, 2), 10) if self._maybe(0.3) else None,
            max_nodes=total if self._maybe(0.7) else rng.randint(0, total),
            idle_timeout_s=rng.choice((60.0, 60.0, 10.0, None)),
            availability={one.name: rng.choice((0.0, 0.5)) for one in types[1:] if self._maybe(0.15)},
            recoverable={one.name: rng.choice((0.0, 0.25)) for one in types[1:] if self._maybe(0.15)},
        )

    def _types(self) -> list[NodeType]:
        rng, types = self._rng, []
        for number in range(rng.randint(0 if self._maybe(0.05) else 1, 6)):
            resources = types[-1].resources if types and self._maybe(0.25) else self._resources()
            least = rng.choice((0, 0, 0, 1, 2, 5))
            most = least + rng.choice((0, 1, 3, 10, 40))
            if self._is_odd and self._maybe(0.2):
                least = most = rng.choice((0, least))
            labels = rng.choice(({}, {}, {"zone": "a"}, {"zone": "b"}, {"zone": "a", "tier": "spot"}))
            idle = rng.choice((None, None, 30.0, 300.0, 0.0))
            types.append(
                NodeType(f"g{number}", least, most, resources, labels_of(labels), idle, rng.choice((0, 0, 0, 5)))
            )
        return types

    def _resources(self) -> Amounts:
        rng = self._rng
        resources: dict[str, float] = {
            "CPU": rng.choice((1, 2, 3, 4, 6, 8, 16)),
            "memory": rng.choice((32, 48, 64, 100)),
        }
        if self._maybe(0.4):
            resources["GPU"] = rng.choice((0, 1, 2, 3, 4, 8))
        if self._maybe(0.2):
            resources["custom"] = rng.choice((1, 2, 5))
        if self._maybe(0.05):
            del resources["memory"]
        return amounts_of(resources)

    def _instances(self, types: Sequence[NodeType]) -> list[Instance]:
        rng = self._rng
        instances = []
        if self._maybe(0.95):
            instances.append(self._instance(types[0], Status.RAY_RUNNING if self._maybe(0.9) else Status.ALLOCATED))
        count = int(rng.choice((0, 3, 12, 30)) * self._size * rng.random())
        favourite = rng.choice(types[1:]) if types[1:] and self._maybe(0.4) else None
        for _ in range(count if types[1:] else 0):
            node_type = favourite or rng.choice(types[1:])
            if self._is_odd and self._maybe(0.03):
                node_type = NodeType("gone", resources=amounts_of({"CPU": 2}))
            instances.append(self._instance(node_type, rng.choice(STATUSES)))
        if self._maybe(0.1):
            rng.shuffle(instances)
        return instances

    def _instance(self, node_type: NodeType, status: Status) -> Instance:
        rng, is_head = self._rng, node_type.is_head
        self._number += 1
        name = f"i{self._number}"
        if status is not Status.RAY_RUNNING:
            return Instance(name, node_type.name, status, is_head=is_head)
        idle = rng.choice((0, 0, 0, 10_000, 40_000, 40_000, 90_000, 400_000))
        total = {resource: amount / RESOURCE_UNIT_SCALING for resource, amount in node_type.resources}
        free: dict[str, float] = {}
        for resource, amount in total.items():
            kinds = (amount,) if idle else (0.0, 0.0, amount, amount / 2, amount / 4)
            left = kinds[self._rng.randrange(len(kinds))] if not self._are_alike else kinds[-1]
            if left:
                free[resource] = left
        own: dict[str, float] = {f"node:10.0.0.{self._number}": 1, "object_store_memory": 8}
        if is_head:
            own["node:__internal_head__"] = 1
        if self._maybe(0.1):
            own["accelerator_type:T4"] = 1
        total.update(own)
        free.update(own)
        if self._maybe(0.03):
            free[f"node:10.0.0.{self._number}"] = 0.5
        if self._is_odd and self._maybe(0.05):
            free["CPU"] = total.get("CPU", 0) + 1
        labels = {**dict(node_type.labels), "ray.io/node-group": node_type.name, "ray.io/node-id": name}
        groups = {f"_PG_{rng.randrange(4)}": ""} if self._maybe(0.2) else {}
        return Instance(
            name, node_type.name, status, is_head, f"pod-{name}", f"{self._number:056x}", amounts_of(total),
            amounts_of(free), labels_of(labels), labels_of(groups), idle,
        )  # fmt: skip

    def _demands(self, kinds: int, most: int) -> tuple[Demand, ...]:
        demands = [Demand(self._task(), self._rng.randint(0, most)) for _ in range(kinds)]
        if demands and self._maybe(0.2):
            demands.append(self._rng.choice(demands))
        return tuple(demands)

    def _task(self) -> Request:
        return Request(self._amounts(), self._selectors())

    def _amounts(self) -> Amounts:
        rng = self._rng
        amounts: dict[str, float] = {"CPU": rng.choice(SHARES[: 4 + rng.randrange(8)])}
        extras: list[tuple[float, str, Callable[[], float]]] = [
            (0.25, "GPU", lambda: rng.choice((0, 0.25, 0.5, 1, 1, 2))),
            (0.2, "memory", lambda: rng.choice((8, 16, 48))),
            (0.08, "custom", lambda: 1),
            (0.03, "nope", lambda: 1),
            (0.03, "accelerator_type:T4", lambda: 0.125),
            (0.02, "node:10.0.0.2", lambda: 0.25),
            (0.02, "node:__internal_implicit_resource_x", lambda: rng.choice((0.5, 1))),
        ]
        for share, name, amount in extras:
            if self._maybe(share):
                amounts[name] = amount()
        if self._maybe(0.05):
            del amounts["CPU"]
        return amounts_of(amounts)

    def _selectors(self) -> tuple[Selector, ...]:
        draw = self._rng.random()
        if draw < 0.7:
            return ((),)
        if draw < 0.75:
            return ()
        return tuple(
            tuple(self._label_constraint() for _ in range(self._rng.choice((0, 1, 1, 2))))
            for _ in range(self._rng.choice((1, 1, 2, 3)))
        )

    def _label_constraint(self) -> LabelConstraint:
        rng = self._rng
        if self._is_odd and self._maybe(0.1):
            return LabelConstraint(f"_PG_{rng.randrange(4)}", ("",), is_in=self._maybe(0.5))
        key = rng.choice(("zone", "zone", "zone", "tier", "ray.io/node-group"))
        values = {"zone": ZONES, "tier": ("spot", "fixed"), "ray.io/node-group": ("g0", "g1")}[key]
        some = tuple(rng.sample(values, rng.randint(1, len(values) - 1)))
        return LabelConstraint(key, some, is_in=self._maybe(0.7), is_known=not self._maybe(0.03))

    def _gang(self, number: int) -> Gang:
        rng = self._rng
        strategy = rng.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))
        pair = (f"_PG_{number if self._maybe(0.9) else rng.randrange(4)}", "")
        if self._is_odd and self._maybe(0.1):
            pair = (pair[0], "other")
        one = self._amounts()
        bundles = tuple(
            Request(
                one if self._maybe(0.7) else self._amounts(),
                () if self._maybe(0.8) else self._selectors(),
                affinity=pair if strategy == "STRICT_PACK" else None,
                anti_affinity=pair if strategy == "STRICT_SPREAD" else None,
            )
            for _ in range(rng.randint(0 if self._maybe(0.1) else 1, 7))
        )
        return Gang(f"{number:02d}:{strategy}|PENDING", bundles)


def random_case(seed: int, number: int, size: float = 1.0) -> SchedulingRequest:
    """Case `number` of this seed."""
    return Case(random.Random(seed * 1_000_003 + number), size).question()
