"""One object that is read by name, because no informer watches its kind (D3).

Named by the modules that build such objects, read by object_lookup.py, and found by the plan in `Observed`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from raytide.api import constants
from raytide.api.meta import Manifest, Resource


def not_without_owner(_live: Manifest) -> bool:
    """The default: an object without an owner is somebody else's."""
    return False


def labelled_with(cluster: str) -> Callable[[Manifest], bool]:
    """An object without an owner is of that RayCluster if it has its label: kept, or restored from a backup."""

    def has_label(live: Manifest) -> bool:
        return (live["metadata"].get("labels") or {}).get(constants.CLUSTER_LABEL) == cluster

    return has_label


@dataclass(frozen=True, slots=True)
class Lookup:
    """One object to read by name."""

    resource: Resource
    name: str
    has_to_be_ours: bool = True
    """Whether the object must be owned by the cluster, or have no owner and be one that `may_use` accepts."""
    may_use: Callable[[Manifest], bool] = field(default=not_without_owner, compare=False)
    """Whether an object without an owner can be used as if it were the cluster's."""
    is_kept: bool = False
    """Whether the plan reads the object itself, and not only whether it is there."""
