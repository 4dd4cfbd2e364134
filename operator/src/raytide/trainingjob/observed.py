"""Observed state of one TrainingJob.

A frozen snapshot: the pods, services and ConfigMaps that the job owns, from the informers with our in-flight writes
applied (D6); unready nodes; and recent rejections by the API server. Built without an await, from views that carry the
job's label; objects controlled by another uid are excluded (RM:I5). Made by the reconciler, read by plan and status.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import PendingRetry
from raytide.api.trainingjob_object import JobObject
from raytide.api.trainingjob_pod import JobPod

BEFORE_EVERYTHING: Final = datetime.min.replace(tzinfo=UTC)
"""The moment at which no time-out has passed."""
FOR_EVER_S: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of all decisions about one TrainingJob besides its spec and its record."""

    pods: tuple[JobPod, ...] = ()
    services: tuple[JobObject, ...] = ()
    config_maps: tuple[JobObject, ...] = ()
    foreign_names: frozenset[str] = frozenset()
    """Names still held by children of an earlier job of this name; they are terminating, and are waited for."""
    unready_nodes: frozenset[str] = frozenset()
    pending_retries: tuple[PendingRetry, ...] = ()
    """`group` is a role of `trainingjob_constants`, or a slot of plan_types.py."""
    seen_at: datetime = BEFORE_EVERYTHING
    known_for_s: float = FOR_EVER_S
    """How long this process has known the job, on its monotonic clock; destructive deadlines depend on it too."""

    def of(self, role: str) -> tuple[JobPod, ...]:
        """The pods of one role, terminating and ended ones included."""
        return tuple(pod for pod in self.pods if pod.role == role)

    @property
    def trainers(self) -> tuple[JobPod, ...]:
        """Trainer pods, terminating and ended ones included."""
        return self.of(constants.TRAINER)

    @property
    def pservers(self) -> tuple[JobPod, ...]:
        """Parameter server pods, terminating and ended ones included."""
        return self.of(constants.PSERVER)

    @property
    def masters(self) -> tuple[JobPod, ...]:
        """The master pod; a terminating one included."""
        return self.of(constants.MASTER)

    def service(self, name: str) -> JobObject | None:
        """The job's service of that name, unless it is terminating."""
        return next((each for each in self.services if each.name == name and not each.is_terminating), None)

    def config_map(self, name: str) -> JobObject | None:
        """The job's ConfigMap of that name, unless it is terminating."""
        return next((each for each in self.config_maps if each.name == name and not each.is_terminating), None)

    def is_lost(self, pod: JobPod) -> bool:
        """Whether a terminating pod keeps its name for an unknown time, because its node is unready."""
        return pod.is_terminating and pod.node_name in self.unready_nodes

    def pending_retry_of(self, group: str) -> PendingRetry | None:
        """What blocks creates of that role or object now."""
        return next((retry for retry in self.pending_retries if retry.group == group), None)


def observe(
    job_uid: str,
    *,
    pods: Sequence[JobPod],
    services: Sequence[JobObject] = (),
    config_maps: Sequence[JobObject] = (),
    unready_nodes: frozenset[str] = frozenset(),
    pending_retries: tuple[PendingRetry, ...] = (),
    seen_at: datetime = BEFORE_EVERYTHING,
    known_for_s: float = FOR_EVER_S,
) -> Observed:
    """The snapshot of what `job_uid` controls; of objects of other owners with the label only the names are kept."""
    labelled: tuple[JobPod | JobObject, ...] = (*pods, *services, *config_maps)
    return Observed(
        pods=tuple(pod for pod in pods if pod.owner_uid == job_uid),
        services=tuple(each for each in services if each.owner_uid == job_uid),
        config_maps=tuple(each for each in config_maps if each.owner_uid == job_uid),
        foreign_names=frozenset(each.name for each in labelled if each.owner_uid not in ("", job_uid)),
        unready_nodes=unready_nodes,
        pending_retries=pending_retries,
        seen_at=seen_at,
        known_for_s=known_for_s,
    )
