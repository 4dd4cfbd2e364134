"""Shape limits: which participants and pending pods one plan considers.

A plan takes time for each pair of a pod shape and a kind of node, and tenants write the shapes. Up to `MAX_SHAPES` shapes and
`MAX_CHECKS` pairs everything is planned. Above that the shapes of each namespace come in turn, those of participants that have
pods first, so that many shapes of one namespace delay only that namespace; the rest keeps its size, and the reason is reported.
Pure; called by `state.py` (FD:SEC3-3).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from raytide.fairshare.algorithm.model import ClusterSnapshot, ExternalPods, Participant, Shape
from raytide.fairshare.algorithm.node_affinity import NodeKinds

MAX_SHAPES: Final = 1_000
MAX_CHECKS: Final = 200_000
"""Shapes times kinds of nodes: half a second, and 30 MB, if each node is a kind of its own."""

_Planned: TypeAlias = Participant | ExternalPods


@dataclass(frozen=True, slots=True)
class Considered:
    """What one plan considers."""

    participants: list[Participant]
    """In the order of ids."""
    external_pods: tuple[ExternalPods, ...]
    omitted: tuple[Participant, ...] = ()
    max_shapes: int = MAX_SHAPES


def within_limits(snapshot: ClusterSnapshot) -> Considered:
    """Everything, if it is within the limits; otherwise the shapes of each namespace in turn."""
    participants = sorted(snapshot.participants, key=lambda each: each.id)
    everything = Considered(participants, snapshot.external_pods)
    planned: list[_Planned] = [*participants, *snapshot.external_pods]
    shapes = {id(shape): shape for each in planned for shape in _shapes_of(each)}
    if len(shapes) <= min(MAX_SHAPES, MAX_CHECKS // max(1, len(snapshot.nodes))):
        return everything
    kinds = NodeKinds(snapshot.nodes, (shape.constraints for shape in shapes.values())).count
    max_shapes = min(MAX_SHAPES, MAX_CHECKS // max(1, kinds))
    if len(shapes) <= max_shapes:
        return everything
    chosen: set[int] = set()
    for each in _in_turn(participants, snapshot.external_pods):
        new = _ids(each) - chosen
        if len(chosen) + len(new) <= max_shapes:
            chosen |= new
    return Considered(
        [each for each in participants if _ids(each) <= chosen],
        tuple(each for each in snapshot.external_pods if _ids(each) <= chosen),
        tuple(each for each in participants if not _ids(each) <= chosen),
        max_shapes,
    )


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
