"""What need not be worked out again?

Takes what an earlier look made of pods and Ray nodes, says which of it still holds, by the identity of the values: the
informer and the decoder of the GCS's answer give the very same value for what has not changed. It holds no clock, so that
age never matters, and no more than the pods that were seen last. With an empty one every result is the same and takes
longer (PF:P9B). Pure; kept by tick.py from tick to tick, used by instances.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.inputs.lifecycle import Stay
from raytide.autoscaler.model import Instance, RayNode

NEWEST: Final = "~"
"""Sorts after every timestamp."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Heads and workers as they were created; others, such as a redis clean-up, are none of our business."""

    given: tuple[PodView, ...] = ()
    """All pods, in the order in which they were seen."""
    pods: tuple[PodView, ...] = ()
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: tuple[PodView, ...]) -> "Sorted":
        """From nothing."""
        pods = sorted(
            (pod for pod in given if pod.is_head or pod.is_worker),
            key=lambda pod: (pod.creation_timestamp or NEWEST, pod.name),
        )
        return cls(given, tuple(pods), frozenset(pod.name for pod in pods))


@dataclass(frozen=True, slots=True)
class Steady:
    """A pod in which a Ray node runs, and what follows from the two."""

    pod: PodView
    node: RayNode
    stay: Stay
    instance: Instance


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier look found."""

    pods: Sorted = field(default_factory=Sorted)
    skipped: frozenset[str] = frozenset()
    """Groups that could not be read: their instances have no type."""
    steady: Mapping[str, Steady] = field(default_factory=dict)
    """By pod name."""

    def sorted(self, pods: tuple[PodView, ...]) -> Sorted:
        """These pods in order."""
        return self.pods if pods == self.pods.given else Sorted.of(pods)

    def of(self, skipped: frozenset[str]) -> Mapping[str, Steady]:
        """What may still hold while these groups cannot be read."""
        return self.steady if skipped == self.skipped else {}


UNKNOWN: Final = Known()
