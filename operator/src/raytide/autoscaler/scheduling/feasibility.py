"""Feasibility of a request on a node type.

Compares a request with an empty node of the type: amounts and labels. It ignores current usage and limits, so that "add
another group" and "raise the maximum" can be told apart (B-14). Called by gcs_report.py and limit_reasons.py; the rules
of placement are AS §2.4 FILL.
"""

from collections.abc import Mapping

from raytide.autoscaler.model import UNIT, LabelConstraint, NodeType, Request
from raytide.autoscaler.scheduling.resource_shapes import IMPLICIT


def could_hold(node_type: NodeType, request: Request) -> bool:
    """Whether an empty node of that type could hold it, as first host of a replica or as another."""
    offers = [(node_type.resources, node_type.labels)]
    if node_type.has_first:
        offers.append((node_type.first_resources, node_type.first_labels))
    return any(_could(dict(totals), dict(labels), request) for totals, labels in offers)


def _could(totals: Mapping[str, int], labels: Mapping[str, str], request: Request) -> bool:
    has_room = all(amount <= totals.get(name, _implicit(name)) for name, amount in request.amounts)
    return has_room and (
        not request.selectors or any(all(_holds(c, labels) for c in selector) for selector in request.selectors)
    )


def _implicit(name: str) -> int:
    return UNIT if name.startswith(IMPLICIT) else 0


def _holds(constraint: LabelConstraint, labels: Mapping[str, str]) -> bool:
    if not constraint.is_known:
        return False
    is_among = labels.get(constraint.key) in constraint.values
    return is_among if constraint.is_in else not is_among
