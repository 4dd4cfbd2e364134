"""Would a ResourceQuota admit all hosts of a replica?

Takes the API server's words about a pod that a quota refused, and later the quota itself; says which quota it was, what
one pod takes of it, and whether there is room for several at once. Asking for hosts one by one would only show that there
is room for some of them. Words and objects that make no sense count as no room. Called by the controller for groups in
which a replica had to be given up (SC:S4).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raytide.api.quantity import Quantity, QuantityError

_WORDS: Final = re.compile(r"exceeded quota: (?P<quota>[a-z0-9.-]+), requested: (?P<requested>\S+), used: ")


@dataclass(frozen=True, slots=True)
class Shortage:
    """Which quota is spent, and what one pod asks of it."""

    quota: str
    requested: Mapping[str, Quantity]


def shortage_of(message: str) -> Shortage | None:
    """What a refusal says of a quota; None when it was refused for another reason."""
    found = _WORDS.search(message)
    if found is None:
        return None
    pairs = (pair.partition("=") for pair in found["requested"].split(","))
    try:
        return Shortage(found["quota"], {name: Quantity.parse(amount) for name, _, amount in pairs})
    except QuantityError:
        return None


def has_room(shortage: Shortage, quota: Mapping[str, Any] | None, pods: int) -> bool:
    """Whether so many pods fit into what is left; a quota that is gone admits everything."""
    if quota is None:
        return True
    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    try:
        return all(
            amount * pods + Quantity.parse(used.get(name, "0")) <= Quantity.parse(hard[name])
            for name, amount in shortage.requested.items()
            if name in hard
        )
    except QuantityError:
        return False
