"""Requests and amounts as text, for reasons, log lines and events.

The same request always gives the same text. Pure; called by scaling/limit_reasons.py and reporting/messages.py.
"""

from raytide.autoscaler.model import RESOURCE_UNIT_SCALING, Amounts, Request


def shape_of(request: Request) -> str:
    """One request as text, labels included."""
    resources = "{" + ", ".join(f"{name}: {_number(amount)}" for name, amount in request.amounts) + "}"
    if not request.selectors or not any(request.selectors):
        return resources
    alternatives = (
        " and ".join(f"{c.key} {'in' if c.is_in else 'not in'} [{', '.join(sorted(c.values))}]" for c in selector)
        or "any node"
        for selector in request.selectors
    )
    return f"{resources} where {' or else '.join(alternatives)}"


def whole(amounts: Amounts, name: str) -> int:
    """Amount of the resource in whole Ray units."""
    return dict(amounts).get(name, 0) // RESOURCE_UNIT_SCALING


def _number(amount: int) -> str:
    return (
        f"{amount / RESOURCE_UNIT_SCALING:g}"
        if amount % RESOURCE_UNIT_SCALING
        else str(amount // RESOURCE_UNIT_SCALING)
    )
