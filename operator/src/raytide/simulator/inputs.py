"""Objects that a simulation starts from: what a cluster has, and what is submitted to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota, NamespaceTenant, PriorityClass
from raytide.api.meta import Key, Resource
from raytide.api.trainingjob import TrainingJob
from raytide.simulator.raycluster_pods import NewRayCluster, PodSet


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The parsed objects that a plan depends on."""

    nodes: tuple[CapacityNode, ...] = ()
    pods: tuple[CapacityPod, ...] = ()
    quotas: tuple[CapacityQuota, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[NamespaceTenant, ...] = ()
    jobs: tuple[TrainingJob, ...] = ()
    clusters: frozenset[Key] = frozenset()
    """RayClusters that exist; only their pods affect a plan."""
    withheld: tuple[PodSet, ...] = ()
    """Pods of submitted RayClusters that a quota rejects."""
    is_live: bool = False
    """Read from a running cluster; snapshots from files may omit pods of their jobs."""
    unreadable: tuple[tuple[str, str, str], ...] = ()
    """TrainingJobs of a cluster that cannot be parsed: namespace, name, fault."""
    notes: tuple[str, ...] = ()
    """What the plan leaves out, in sentences."""
    ignored: Mapping[Resource, str] = field(default_factory=dict)
    """Kinds that could not be listed, or not all of them, and why."""


@dataclass(frozen=True, slots=True)
class Submission:
    """New objects in the order of their documents, which is that of their creation."""

    objects: tuple[TrainingJob | NewRayCluster, ...] = ()

    @property
    def jobs(self) -> tuple[TrainingJob, ...]:
        """The TrainingJobs."""
        return tuple(each for each in self.objects if isinstance(each, TrainingJob))

    @property
    def clusters(self) -> tuple[NewRayCluster, ...]:
        """The RayClusters."""
        return tuple(each for each in self.objects if isinstance(each, NewRayCluster))


NO_SUBMISSION: Final = Submission()
