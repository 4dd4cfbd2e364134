"""What does the world look like around one RayCluster?

A frozen snapshot: the pods and services this cluster owns, as the informers show them with our own writes in flight laid
over (D6), what was looked for by name and is not there, the nodes known to be away, and what the API refused lately. Built in one go, without an await, from views
that carry the cluster's label; those that another uid controls never get in (RM:I5). Made by the controller, read by
plan and status.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from raytide.api import actions
from raytide.api.meta import Resource
from raytide.api.pod import PodView
from raytide.api.service import ServiceView
from raytide.raycluster.failures import last_failures

BEFORE_EVERYTHING: Final = datetime.min.replace(tzinfo=UTC)
"""The moment at which no time-out has passed."""


@dataclass(frozen=True, slots=True)
class Refusal(actions.Refusal):
    """A refusal of the worker group `group`, of `names.HEAD_GROUP`, or of a slot of plan.py for anything else."""

    replicas_in_s: float = 0.0
    """Seconds until a multi-host replica may be begun again, after one had to be given up; hosts may come before."""

    @property
    def look_again_in(self) -> float:
        """Seconds until it matters less."""
        return min(wait_s for wait_s in (self.retry_in_s, self.replicas_in_s) if wait_s > 0)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything decisions about one RayCluster may look at besides its spec."""

    pods: tuple[PodView, ...] = ()
    services: tuple[ServiceView, ...] = ()
    kept: tuple[PodView, ...] = ()
    """Failed workers that stay for inspection: none of `pods`, and nothing else counts them (FD:RC-B15)."""
    foreign_names: frozenset[str] = frozenset()
    """Names of pods in the namespace that carry a RayCluster's label but are not this cluster's."""
    unready_nodes: frozenset[str] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    absent: frozenset[tuple[Resource, str]] = frozenset()
    """Kind and name of what was looked for by name and is not there, of kinds that nobody watches (D3)."""
    seen_at: datetime = BEFORE_EVERYTHING

    @property
    def head(self) -> PodView | None:
        """The head pod to talk about: the one not dying, if there is one."""
        return min(self.heads, key=lambda pod: (pod.is_terminating, pod.creation_timestamp or "~"), default=None)

    @property
    def heads(self) -> tuple[PodView, ...]:
        """Head pods, dying ones included."""
        return tuple(pod for pod in self.pods if pod.is_head)

    @property
    def workers(self) -> tuple[PodView, ...]:
        """Worker pods of all groups, dying ones included."""
        return tuple(pod for pod in self.pods if pod.is_worker)

    @property
    def head_service(self) -> ServiceView | None:
        """The service found by the labels of RC:HS-1; the oldest when there are several."""
        found = [service for service in self.services if service.is_head_service and not service.is_terminating]
        return min(found, key=lambda service: (service.creation_timestamp or "~", service.name), default=None)

    @property
    def has_headless_worker_service(self) -> bool:
        """Whether the service found by the label of RC:HL-1 is there."""
        return any(each.is_headless_worker_service and not each.is_terminating for each in self.services)

    def names_in_use(self) -> Iterator[str]:
        """Names of pods and replicas that a new one must not get."""
        yield from self.foreign_names
        for pod in (*self.pods, *self.kept):
            yield pod.name
            yield pod.replica_name

    def group(self, name: str) -> tuple[PodView, ...]:
        """Worker pods of one group."""
        return tuple(pod for pod in self.pods if pod.is_worker and pod.group == name)

    def is_lost(self, pod: PodView) -> bool:
        """Whether a dying pod will not be missed: its node is away, so nobody can finish its end (SC:S12)."""
        return pod.is_terminating and pod.node_name in self.unready_nodes

    def refusal_of(self, group: str) -> Refusal | None:
        """What keeps that group (or head, or service) from being tried now."""
        return next((refusal for refusal in self.refusals if refusal.group == group), None)


def observe(
    cluster_uid: str,
    *,
    pods: Iterable[PodView],
    services: Iterable[ServiceView],
    head_service_name: str = "",
    foreign_names: frozenset[str] = frozenset(),
    unready_nodes: frozenset[str] = frozenset(),
    refusals: tuple[Refusal, ...] = (),
    absent: frozenset[tuple[Resource, str]] = frozenset(),
    kept_groups: Collection[str] = (),
    named: Collection[str] = (),
    seen_at: datetime = BEFORE_EVERYTHING,
) -> Observed:
    """The snapshot of what `cluster_uid` controls; pods that only carry the label stay outside.

    So do services, but for a head service of the name `head_service_name` that nobody owns, as after a restored backup: it is
    the one by which the workers look for their head, and another of the name cannot be made (FD:RC-B9).
    The last failed worker of each of `kept_groups` is kept, unless it is `named` in `workersToDelete`.
    """
    mine, others = [], set(foreign_names)
    for pod in pods:
        if pod.owner_uid == cluster_uid:
            mine.append(pod)
        else:
            others.add(pod.name)
    kept = last_failures(mine, kept_groups, named)
    kept_names = {pod.name for pod in kept}
    return Observed(
        pods=tuple(pod for pod in mine if pod.name not in kept_names),
        kept=kept,
        services=tuple(
            service
            for service in services
            if service.owner_uid == cluster_uid
            or (not service.owner_uid and service.is_head_service and service.name == head_service_name)
        ),
        foreign_names=frozenset(others),
        unready_nodes=unready_nodes,
        refusals=refusals,
        absent=absent,
        seen_at=seen_at,
    )
