"""What does the world look like around one TrainingJob?

A frozen snapshot: the pods, services and ConfigMaps this job owns, as the informers show them with our own writes in
flight laid over (D6), the nodes known to be away, and what the API refused lately. Built in one go, without an await,
from views that carry the job's label; what another uid controls never gets in (RM:I5). Made by the controller, read by
plan and status.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from raytide.api import training_names as names
from raytide.api.actions import Refusal
from raytide.api.job_object import JobObject
from raytide.api.job_pod import JobPod

BEFORE_EVERYTHING: Final = datetime.min.replace(tzinfo=UTC)
"""The moment at which no time-out has passed."""
FOR_EVER_S: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything decisions about one TrainingJob may look at besides its spec and its record."""

    pods: tuple[JobPod, ...] = ()
    services: tuple[JobObject, ...] = ()
    config_maps: tuple[JobObject, ...] = ()
    foreign_names: frozenset[str] = frozenset()
    """Names that an earlier job of this name still holds: its children are on their way out, and are waited for."""
    unready_nodes: frozenset[str] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    """`group` is a role of `training_names`, or a slot of todo.py."""
    seen_at: datetime = BEFORE_EVERYTHING
    known_for_s: float = FOR_EVER_S
    """For how long this process has known the job, on its monotonic clock: what destroys something asks this one too."""

    def of(self, role: str) -> tuple[JobPod, ...]:
        """The pods of one role, dying and ended ones included."""
        return tuple(pod for pod in self.pods if pod.role == role)

    @property
    def trainers(self) -> tuple[JobPod, ...]:
        """Trainer pods, dying and ended ones included."""
        return self.of(names.TRAINER)

    @property
    def pservers(self) -> tuple[JobPod, ...]:
        """Parameter server pods, dying and ended ones included."""
        return self.of(names.PSERVER)

    @property
    def masters(self) -> tuple[JobPod, ...]:
        """The master pod; a dying one included."""
        return self.of(names.MASTER)

    def service(self, name: str) -> JobObject | None:
        """The job's service of that name that is not on its way out."""
        return next((each for each in self.services if each.name == name and not each.is_terminating), None)

    def config_map(self, name: str) -> JobObject | None:
        """The job's ConfigMap of that name that is not on its way out."""
        return next((each for each in self.config_maps if each.name == name and not each.is_terminating), None)

    def is_lost(self, pod: JobPod) -> bool:
        """Whether a dying pod will keep its name for nobody knows how long: its node is away."""
        return pod.is_terminating and pod.node_name in self.unready_nodes

    def refusal_of(self, group: str) -> Refusal | None:
        """What keeps that role or object from being asked for now."""
        return next((refusal for refusal in self.refusals if refusal.group == group), None)


def observe(
    job_uid: str,
    *,
    pods: Sequence[JobPod],
    services: Sequence[JobObject] = (),
    config_maps: Sequence[JobObject] = (),
    unready_nodes: frozenset[str] = frozenset(),
    refusals: tuple[Refusal, ...] = (),
    seen_at: datetime = BEFORE_EVERYTHING,
    known_for_s: float = FOR_EVER_S,
) -> Observed:
    """The snapshot of what `job_uid` controls; of what only carries the label the names of others' children remain."""
    labelled: tuple[JobPod | JobObject, ...] = (*pods, *services, *config_maps)
    return Observed(
        pods=tuple(pod for pod in pods if pod.owner_uid == job_uid),
        services=tuple(each for each in services if each.owner_uid == job_uid),
        config_maps=tuple(each for each in config_maps if each.owner_uid == job_uid),
        foreign_names=frozenset(each.name for each in labelled if each.owner_uid not in ("", job_uid)),
        unready_nodes=unready_nodes,
        refusals=refusals,
        seen_at=seen_at,
        known_for_s=known_for_s,
    )
