"""Feasibility of a request on an empty node.

Compares a request with the amounts and labels of an empty node. It ignores current usage and limits, so that "add
another group" and "raise the maximum" can be told apart (B-14). Called by schedule.py and limit_reasons.py; the
rules of placement are AS §2.4 FILL.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from raytide.autoscaler.model import Amounts, Labels, NodeType, Request, implicit_amount

EmptyNode: TypeAlias = tuple[Amounts, Labels]
"""Totals and labels."""


class EmptyNodes:
    """Empty nodes of several types; equal ones are compared once."""

    def __init__(self, nodes: Iterable[EmptyNode]) -> None:
        self._nodes = [(dict(totals), dict(labels)) for totals, labels in dict.fromkeys(nodes)]

    def could_hold(self, request: Request) -> bool:
        """Whether any of the nodes could hold it."""
        return any(_fits(request, totals, labels) for totals, labels in self._nodes)

    def exceeded(self, requests: Iterable[Request]) -> Amounts:
        """Of each resource of which a request needs more than any of the nodes has, the most that a node has."""
        named = {pair for request in requests for pair in request.amounts}
        most = {name: self._most(name) for name, _ in named}
        return tuple(sorted({name: most[name] for name, amount in named if amount > most[name]}.items()))

    def _most(self, name: str) -> int:
        return max((totals.get(name, implicit_amount(name)) for totals, _ in self._nodes), default=0)


def could_hold(node_type: NodeType, request: Request) -> bool:
    """Whether an empty node of that type could hold it, as first host of a replica or as another."""
    return EmptyNodes(empty_nodes(node_type)).could_hold(request)


def empty_nodes(node_type: NodeType) -> Iterator[EmptyNode]:
    """The nodes of a type: the first host of a replica may differ from the others."""
    yield node_type.resources, node_type.labels
    if node_type.has_first:
        yield node_type.first_resources, node_type.first_labels


def _fits(request: Request, totals: Mapping[str, int], labels: Mapping[str, str]) -> bool:
    has_capacity = all(amount <= totals.get(name, implicit_amount(name)) for name, amount in request.amounts)
    return has_capacity and (not request.selectors or any(all(c.holds(labels) for c in s) for s in request.selectors))
