"""Amounts of resources in Kubernetes' notation: `500m` CPU, `2Gi` memory, `3` GPUs.

Input: a resource's name and a whole number as `model.py` counts it. Used in every message of a plan.
"""

from functools import lru_cache
from typing import Final

from raytide.api.pod_requirements import CPU
from raytide.api.quantity import Format, Quantity
from raytide.fairshare.algorithm.model import MEMORY

_NANOS_PER_MILLI: Final = 10**6
_NANOS_PER_UNIT: Final = 10**9
_LIMITS: Final = "limits."
_IN_BYTES: Final = (MEMORY, "ephemeral-storage", "storage", "hugepages-")


def spell(resource: str, amount: int) -> str:
    """The amount as Kubernetes writes it."""
    name = resource.removeprefix(_LIMITS)
    if name == CPU:
        return _spelled(amount * _NANOS_PER_MILLI, Format.DECIMAL)
    return _spelled(amount * _NANOS_PER_UNIT, Format.BINARY if name.startswith(_IN_BYTES) else Format.DECIMAL)


@lru_cache(maxsize=4096)
def _spelled(nanos: int, form: Format) -> str:
    return str(Quantity(nanos, form))


def spell_with_name(resource: str, amount: int) -> str:
    """`500m cpu`, `1 nvidia.com/gpu`."""
    return f"{spell(resource, amount)} {resource}"
