"""Topology strategies: the labels whose values the bundles of a placement group have to share.

Takes the gangs and the labels of all nodes that exist or may be launched. Returns for a gang the selectors that its
bundles may have in common, one per value of the label: with `topology_strategy={"rack": "STRICT_PACK"}` all bundles are
placed on nodes of one rack, or none is. Ray's autoscaler does not read the strategy. Whether a group has a label is known
from the field `labels` of the group only; a group without it is not launched for such a gang. How many values are tried is
bounded. Pure; called by schedule.py (AS:G-8).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from raytide.autoscaler.model import Gang, LabelConstraint, Labels, NodeType, Request, Selector

MAX_VALUES: Final = 64
"""Values of a label that are tried for one gang: those with the most nodes, or else the most that may be launched, first."""
MAX_BUNDLES: Final = 20_000
"""Bundles that are placed in one round, for all gangs with a topology and all values that are tried."""
BUNDLES_PER_PLACEMENT: Final = 20
"""What each placement costs besides its bundles."""


class Topologies:
    """The values of the labels that topology strategies name, in one decision."""

    def __init__(self, gangs: Iterable[Gang], types: Iterable[NodeType], nodes: Iterable[Labels]) -> None:
        labels = {gang.topology.label for gang in gangs if gang.topology is not None}
        existing: dict[str, Counter[str]] = {label: Counter() for label in labels}
        most: dict[str, Counter[str]] = {label: Counter() for label in labels}
        for of_node in nodes if labels else ():
            _count(existing, of_node, 1)
        for one in types if labels else ():
            _count(most, {*one.labels, *one.first_labels}, one.max_nodes)
        self._selectors: dict[str, list[Selector]] = {}
        for label in labels:
            values = existing[label].keys() | most[label].keys()
            ordered = sorted((-existing[label][value], -most[label][value], value) for value in values)
            self._selectors[label] = [(LabelConstraint(label, (value,)),) for *_, value in ordered[:MAX_VALUES]]

    def selectors(self, gang: Gang, *, is_launching: bool = True) -> Sequence[Selector]:
        """What its bundles may require in common, besides their own selectors; each is an alternative.

        Without launches they are in the order of values: one that follows the number of nodes would change with what was launched,
        and what is then left over would be launched again.
        """
        topology = gang.topology
        if topology is None:
            return [()]
        if not topology.is_known:
            return []
        if topology.selector:
            return [topology.selector]
        found = self._selectors[topology.label]
        return found if is_launching else sorted(found, key=lambda selector: selector[0].values)


@dataclass(slots=True)
class Placements:
    """The placements that one round tries for gangs with a topology: a limited number, and none that an equal gang failed."""

    _left: int = MAX_BUNDLES
    _alike: dict[object, int] = field(default_factory=dict)
    _failed: set[object] = field(default_factory=set)

    def remaining(self, gang: Gang, selectors: Iterable[Selector], way: object) -> Iterator[Selector]:
        """The selectors to try this way; one after which the next is taken has failed."""
        number = self._alike.setdefault(alike(gang), len(self._alike))
        for selector in selectors:
            key = (number, selector, way)
            if self._left <= 0 or key in self._failed:
                continue
            self._left -= BUNDLES_PER_PLACEMENT + len(gang.bundles)
            yield selector
            self._failed.add(key)


def alike(gang: Gang) -> object:
    """The same for gangs that need the same nodes."""
    bundles = ((b.amounts, b.selectors, b.affinity is None, b.anti_affinity is None) for b in gang.bundles)
    return (gang.topology, *bundles)


def bound_to(bundles: Sequence[Request], selector: Selector) -> Sequence[Request]:
    """The bundles, with this selector in each alternative of their own ones."""
    if not selector:
        return bundles
    bound = {
        bundle: replace(bundle, selectors=tuple((*own, *selector) for own in bundle.selectors or ((),)))
        for bundle in set(bundles)
    }
    return [bound[bundle] for bundle in bundles]


def _count(nodes_by_value: dict[str, Counter[str]], labels: Iterable[tuple[str, str]], count: int) -> None:
    for key, value in labels:
        if key in nodes_by_value:
            nodes_by_value[key][value] += count
