"""Usage of ResourceQuotas while a plan is carried out on a snapshot: a pod counts from its creation until it is gone.

As the API server does it: a new pod that would exceed a quota is rejected, and created once there is enough quota. Pods of other
workloads that exist stay counted, also when they terminate: whether a quota with a scope counts them is not known here. Called by
passes.py and raycluster_outcome.py.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace as with_fields

from raytide.api.capacity import CapacityPod, CapacityQuota
from raytide.api.meta import Key
from raytide.api.pod_requirements import CPU, Amounts
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pods import priority_class_of
from raytide.fairshare.node_usage import added
from raytide.fairshare.quotas import counts_job_pods, resource_name
from raytide.simulator.raycluster_pods import PodSet

_BEST_EFFORT: Final = "BestEffort"
_NOT_BEST_EFFORT: Final = "NotBestEffort"
_TERMINATING: Final = "Terminating"
_NOT_TERMINATING: Final = "NotTerminating"
_OF_CLASSES: Final = "PriorityClass"


class QuotaShortage(NamedTuple):
    """The quota that rejects pods: what it allows more of a resource, and what the pods need of it."""

    quota: CapacityQuota
    resource: str
    left: int
    wanted: int


class QuotaUsage:
    """What pods use of each quota, and the jobs whose pods were rejected."""

    def __init__(self, quotas: Iterable[CapacityQuota]) -> None:
        self._quotas = list(quotas)
        self._by_namespace: dict[str, list[int]] = {}
        for place, quota in enumerate(self._quotas):
            self._by_namespace.setdefault(quota.namespace, []).append(place)
        self.rejected: set[Key] = set()
        """Jobs that have fewer pods than they want, because a quota is used up."""

    @property
    def quotas(self) -> tuple[CapacityQuota, ...]:
        """The quotas with their usage now."""
        return tuple(self._quotas)

    def create(self, pod: CapacityPod, job: TrainingJob) -> bool:
        """Charge a new pod of the job, unless a quota rejects it; whether it is created."""
        places = self._places(pod, job)
        amounts = _amounts(pod)
        if any(_shortage(self._quotas[place], amounts) for place in places):
            self.rejected.add(job.key)
            return False
        self._charge(places, amounts, 1)
        return True

    def create_together(self, pods: PodSet) -> bool:
        """Charge new pods of a RayCluster, unless a quota rejects one of them; whether all are created."""
        places = self._places_of(pods)
        amounts = added(*map(_amounts, pods.pods))
        if any(_shortage(self._quotas[place], amounts) for place in places):
            return False
        self._charge(places, amounts, 1)
        return True

    def shortage(self, pods: PodSet) -> QuotaShortage | None:
        """Why these pods are rejected; None if no quota rejects them."""
        amounts = added(*map(_amounts, pods.pods))
        found = (_shortage(self._quotas[place], amounts) for place in self._places_of(pods))
        return next((each for each in found if each is not None), None)

    def release(self, pod: CapacityPod, job: TrainingJob) -> None:
        """A pod of the job is gone."""
        self._charge(self._places(pod, job), _amounts(pod), -1)

    def _charge(self, places: Iterable[int], amounts: Amounts, times: int) -> None:
        for place in places:
            self._quotas[place] = _charged(self._quotas[place], amounts, times)

    def _places(self, pod: CapacityPod, job: TrainingJob) -> list[int]:
        """The quotas that count the pod of the job."""
        places = [place for place in self._by_namespace.get(pod.namespace, ()) if counts_job_pods(self._quotas[place])]
        if not places:
            return []
        name = priority_class_of(job, pod.role)
        return [place for place in places if self._quotas[place].admits_class(name)]

    def _places_of(self, pods: PodSet) -> list[int]:
        """The quotas that count these pods, which are alike."""
        scopes = _scopes_of(pods)
        return [
            place
            for place in self._by_namespace.get(pods.pods[0].namespace, ())
            if scopes.issuperset(self._quotas[place].scopes) and self._quotas[place].admits_class(pods.priority_class)
        ]


def _scopes_of(pods: PodSet) -> set[str]:
    """The scopes of quotas that count these pods; those by PriorityClass are compared by name."""
    first = pods.pods[0]
    has_requests = any(amounts.get(name) for amounts in (first.requests, first.limits) for name in (CPU, "memory"))
    quality = _NOT_BEST_EFFORT if has_requests else _BEST_EFFORT
    return {quality, _TERMINATING if pods.has_deadline else _NOT_TERMINATING, _OF_CLASSES}


def _amounts(pod: CapacityPod) -> Amounts:
    return {**pod.requests, **{f"limits.{name}": amount for name, amount in pod.limits.items()}}


def _shortage(quota: CapacityQuota, amounts: Amounts) -> QuotaShortage | None:
    for written, hard in quota.hard.items():
        name = resource_name(written) or ""
        if (amount := amounts.get(name, 0)) and quota.used.get(written, 0) + amount > hard:
            return QuotaShortage(quota, name, max(0, hard - quota.used.get(written, 0)), amount)
    return None


def _charged(quota: CapacityQuota, amounts: Amounts, times: int) -> CapacityQuota:
    used = dict(quota.used)
    for written in quota.hard:
        if amount := amounts.get(resource_name(written) or "", 0):
            used[written] = max(0, used.get(written, 0) + amount * times)  # a file may omit what a quota counts
    return with_fields(quota, used=used)
