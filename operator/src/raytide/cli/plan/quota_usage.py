"""Usage of ResourceQuotas while a plan is carried out on a snapshot: a pod counts from its creation until it is gone.

As the API server does it: a new pod of a job that would exceed a quota is rejected, and created once there is enough quota. Pods of
other workloads stay counted, also when they terminate: whether a quota with a scope counts them is not known here. Called by passes.py.
"""

from collections.abc import Iterable

from msgspec.structs import replace as with_fields

from raytide.api.capacity import CapacityPod, CapacityQuota
from raytide.api.meta import Key
from raytide.api.pod_requirements import Amounts
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pods import priority_class_of
from raytide.fairshare.quotas import counts_job_pods, resource_name


class QuotaUsage:
    """What pods use of each quota, and the jobs whose pods were rejected."""

    def __init__(self, quotas: Iterable[CapacityQuota]) -> None:
        self._quotas = list(quotas)
        self._by_namespace: dict[str, list[int]] = {}
        for place, quota in enumerate(self._quotas):
            if counts_job_pods(quota):
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
        if any(_exceeds(self._quotas[place], pod) for place in places):
            self.rejected.add(job.key)
            return False
        for place in places:
            self._quotas[place] = _charged(self._quotas[place], pod, 1)
        return True

    def release(self, pod: CapacityPod, job: TrainingJob) -> None:
        """A pod of the job is gone."""
        for place in self._places(pod, job):
            self._quotas[place] = _charged(self._quotas[place], pod, -1)

    def _places(self, pod: CapacityPod, job: TrainingJob) -> list[int]:
        """The quotas that count the pod."""
        places = self._by_namespace.get(pod.namespace, ())
        if not places:
            return []
        name = priority_class_of(job, pod.role)
        return [place for place in places if self._quotas[place].admits_class(name)]


def _amounts(pod: CapacityPod) -> Amounts:
    return {**pod.requests, **{f"limits.{name}": amount for name, amount in pod.limits.items()}}


def _exceeds(quota: CapacityQuota, pod: CapacityPod) -> bool:
    amounts = _amounts(pod)
    return any(
        quota.used.get(written, 0) + amount > hard
        for written, hard in quota.hard.items()
        if (amount := amounts.get(resource_name(written) or "", 0))
    )


def _charged(quota: CapacityQuota, pod: CapacityPod, times: int) -> CapacityQuota:
    amounts, used = _amounts(pod), dict(quota.used)
    for written in quota.hard:
        if amount := amounts.get(resource_name(written) or "", 0):
            used[written] = max(0, used.get(written, 0) + amount * times)  # a file may omit what a quota counts
    return with_fields(quota, used=used)
