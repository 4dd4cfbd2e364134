"""Shape limits: which participants and pending pods one plan considers.

A plan takes time for each shape of pods, and for each pair of different constraints and nodes that these distinguish; tenants
write both. Up to `MAX_SHAPES` shapes and `MAX_CHECKS` comparisons everything is planned. Above that the shapes of each namespace
come in turn, those of participants that have pods first, so that many shapes of one namespace delay only that namespace; the rest
keeps its size, and the reason is reported. Pure; called by `state.py` (FD:SEC3-3).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from raytide.api.pod_requirements import PodConstraints
from raytide.fairshare.algorithm.model import ClusterSnapshot, ExternalPods, Participant, Shape
from raytide.fairshare.algorithm.node_affinity import NodeKinds, entries_of

MAX_SHAPES: Final = 1_000
MAX_CHECKS: Final = 1_000_000
"""Half a second, and 30 MB."""

_Planned: TypeAlias = Participant | ExternalPods


@dataclass(frozen=True, slots=True)
class Considered:
    """What one plan considers."""

    participants: list[Participant]
    """In the order of ids."""
    external_pods: tuple[ExternalPods, ...]
    shapes: list[Shape]
    """All shapes of these: equal ones are mostly one object, which is there once."""
    omitted: tuple[Participant, ...] = ()


def within_limits(snapshot: ClusterSnapshot) -> Considered:
    """Everything, if it is within the limits; otherwise the shapes of each namespace in turn."""
    participants = sorted(snapshot.participants, key=lambda each: each.id)
    shapes = _distinct(participants, snapshot.external_pods)
    constraints = {shape.constraints for shape in shapes}
    at_most = len(snapshot.nodes) * sum(2 + entries_of(each) for each in constraints)
    if len(shapes) <= MAX_SHAPES and at_most <= MAX_CHECKS:
        return Considered(participants, snapshot.external_pods, shapes)
    budget = _Budget(NodeKinds(snapshot.nodes), len(snapshot.nodes))
    for each in _in_turn(participants, snapshot.external_pods):
        budget.add(_shapes_of(each))
    considered = [each for each in participants if budget.has(each)]
    external_pods = tuple(each for each in snapshot.external_pods if budget.has(each))
    omitted = tuple(each for each in participants if not budget.has(each))
    return Considered(considered, external_pods, _distinct(considered, external_pods), omitted)


def _distinct(participants: Iterable[Participant], external_pods: Iterable[ExternalPods]) -> list[Shape]:
    shapes = {id(each.shape): each.shape for each in participants}
    shapes |= {id(core.shape): core.shape for each in participants for core in each.core}
    companions = (each.companion for each in participants if each.companion is not None)
    shapes |= {id(each.shape): each.shape for each in companions}
    shapes |= {id(each.shape): each.shape for each in external_pods}
    return list(shapes.values())


class _Budget:
    """The shapes that are considered so far, and what is left."""

    def __init__(self, kinds: NodeKinds, node_count: int) -> None:
        self._kinds = kinds
        self._node_count = node_count
        self._left = MAX_CHECKS
        self._shapes: set[int] = set()
        self._constraints: set[PodConstraints] = set()

    def add(self, shapes: Iterable[Shape]) -> None:
        """Consider these together, if there is enough left for all."""
        new = {id(shape): shape for shape in shapes if id(shape) not in self._shapes}
        constraints = {shape.constraints for shape in new.values()} - self._constraints
        if len(self._shapes) + len(new) > MAX_SHAPES or self._left < self._node_count * len(constraints):
            return
        cost = sum(map(self._kinds.cost, constraints))
        if cost <= self._left:
            self._left -= cost
            self._shapes |= new.keys()
            self._constraints |= constraints

    def has(self, each: _Planned) -> bool:
        """Whether all shapes of it are considered."""
        return _ids(each) <= self._shapes


def _in_turn(participants: list[Participant], external_pods: tuple[ExternalPods, ...]) -> list[_Planned]:
    """By the number of other shapes that come before in the same namespace: those of participants that have pods, then the oldest."""
    seen: dict[str, set[int]] = {}
    turns: list[tuple[int, int, _Planned]] = []
    own = sorted(participants, key=lambda each: (not each.placed, each.created_at, each.id))
    ordered: list[_Planned] = [*own, *external_pods]
    for number, each in enumerate(ordered):
        namespace = each.id.namespace if isinstance(each, Participant) else each.name.partition("/")[0]
        before = seen.setdefault(namespace, set())
        own_shapes = _ids(each)
        turns.append((len(before) - len(before & own_shapes), number, each))
        before |= own_shapes
    return [each for _, _, each in sorted(turns, key=lambda turn: turn[:2])]


def _ids(each: _Planned) -> set[int]:
    """Identities of its shapes: equal shapes are mostly one object."""
    return {id(shape) for shape in _shapes_of(each)}


def _shapes_of(each: _Planned) -> Iterator[Shape]:
    yield each.shape
    if isinstance(each, Participant):
        yield from (core.shape for core in each.core)
        if each.companion is not None:
            yield each.companion.shape
