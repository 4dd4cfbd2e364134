"""Cache of instances from the previous tick.

Keeps what an earlier tick derived from pods and Ray nodes and returns the entries that are still valid, by object
identity: the informer and the GCS decoder return the same object while nothing changed. It stores no times and only the
pods seen last. With an empty cache every result is the same and takes longer (PF:P9B). Pure; kept by
autoscaler/sidecar/reconcile.py from tick to tick, used by instances.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.model import Instance, RayNode
from raytide.autoscaler.state.instance_lifecycle import StageEntry

NEWEST: Final = "~"
"""Sorts after every timestamp."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Head and worker pods by creation time; other pods, such as a redis clean-up, are left out."""

    given: tuple[PodView, ...] = ()
    """All pods, in input order."""
    pods: tuple[PodView, ...] = ()
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: tuple[PodView, ...]) -> "Sorted":
        """Sort the pods without a cache."""
        pods = sorted(
            (pod for pod in given if pod.is_head or pod.is_worker),
            key=lambda pod: (pod.creation_timestamp or NEWEST, pod.name),
        )
        return cls(given, tuple(pods), frozenset(pod.name for pod in pods))


@dataclass(frozen=True, slots=True)
class CachedInstance:
    """A pod with a running Ray node, and the instance derived from both."""

    pod: PodView
    node: RayNode
    entry: StageEntry
    instance: Instance


@dataclass(frozen=True, slots=True)
class InstanceCache:
    """What the previous tick found."""

    pods: Sorted = field(default_factory=Sorted)
    skipped: frozenset[str] = frozenset()
    """Groups that could not be read: their instances have no type."""
    cached: Mapping[str, CachedInstance] = field(default_factory=dict)
    """By pod name."""

    def sorted(self, pods: tuple[PodView, ...]) -> Sorted:
        """These pods in order, from the cache if they are unchanged."""
        return self.pods if pods == self.pods.given else Sorted.of(pods)

    def of(self, skipped: frozenset[str]) -> Mapping[str, CachedInstance]:
        """Entries that may still be valid; none if the set of unreadable groups changed."""
        return self.cached if skipped == self.skipped else {}


UNKNOWN: Final = InstanceCache()
