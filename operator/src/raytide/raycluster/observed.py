"""Observed state of one RayCluster.

A frozen snapshot: the pods and services that the cluster owns, from the informers with our in-flight writes applied
(D6); the objects that were looked up by name and are missing; unready nodes; and recent rejections by the API server.
Built without an await, from views that carry the cluster's label; objects controlled by another uid are excluded
(RM:I5). Made by the reconciler, read by plan and status.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from raytide.api import actions, constants
from raytide.api.meta import Manifest, Resource
from raytide.api.pod import PodView
from raytide.api.service import ServiceView
from raytide.raycluster.failures import last_failures

BEFORE_EVERYTHING: Final = datetime.min.replace(tzinfo=UTC)
"""The moment at which no time-out has passed."""


@dataclass(frozen=True, slots=True)
class PendingRetry(actions.PendingRetry):
    """A rejection for the worker group `group`, for `constants.HEAD_GROUP`, or for a slot of owned_objects.py otherwise."""

    replicas_in_s: float = 0.0
    """Seconds until a multi-host replica may be created after one was released; hosts may be retried earlier."""

    @property
    def requeue_after_s(self) -> float:
        """Seconds until the next of the two waits ends."""
        return min(wait_s for wait_s in (self.retry_in_s, self.replicas_in_s) if wait_s > 0)


@dataclass(frozen=True)
class Observed:
    """The input of all decisions about one RayCluster besides its spec."""

    pods: tuple[PodView, ...] = ()
    services: tuple[ServiceView, ...] = ()
    kept: tuple[PodView, ...] = ()
    """Failed workers kept for inspection: not in `pods`, and not counted elsewhere (FD:RC-B15)."""
    ungrouped: tuple[PodView, ...] = ()
    """Workers whose label `ray.io/group` was removed: not in `pods`. They run until the cluster is suspended or
    deleted, as in KubeRay, and are replaced like workers that lost another label (RM:F12)."""
    arriving: tuple[PodView, ...] = ()
    """Pods whose abandoned create may still be carried out. They count only if they are in `pods` too, but their replica
    indices are not free (D6)."""
    foreign_names: frozenset[str] = frozenset()
    """Names of pods in the namespace that carry a RayCluster's label but are not this cluster's."""
    ownerless_heads: tuple[str, ...] = ()
    """Names of pods with the labels of the cluster's head and no owner that have not ended: the head service selects them."""
    unready_nodes: frozenset[str] = frozenset()
    start_waits: Mapping[str, float] = field(default_factory=dict)
    """Name -> seconds for which a pod that ended without having been ready is not replaced (start_backoff.py)."""
    failed_starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By group, how many pods in a row ended in each place that is to be filled again, the largest first."""
    spec_hash: str = ""
    """Hash of the spec to which `failed_starts` applies; empty without one."""
    pending_retries: tuple[PendingRetry, ...] = ()
    missing: frozenset[tuple[Resource, str]] = frozenset()
    """Kind and name of missing objects, looked up by name because no informer watches their kinds (D3)."""
    looked_up: Mapping[tuple[Resource, str], Manifest] = field(default_factory=dict)
    """By kind and name, those of the existing ones that the plan reads."""
    seen_at: datetime = BEFORE_EVERYTHING

    @property
    def head(self) -> PodView | None:
        """The head pod to report: the oldest, and one that is not terminating if there is one."""
        return min(self.heads, key=lambda pod: (pod.is_terminating, pod.creation_timestamp or "~"), default=None)

    @property
    def heads(self) -> tuple[PodView, ...]:
        """Head pods, terminating ones included."""
        return tuple(pod for pod in self.pods if pod.is_head)

    @property
    def workers(self) -> tuple[PodView, ...]:
        """Worker pods of all groups, terminating ones included."""
        return tuple(pod for pod in self.pods if pod.is_worker)

    @property
    def suspendable(self) -> tuple[PodView, ...]:
        """All pods that use capacity, which a suspension frees."""
        return (*self.pods, *self.ungrouped)

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
        for pod in (*self.pods, *self.kept, *self.ungrouped):
            yield pod.name
            yield pod.replica_name

    def group(self, name: str) -> tuple[PodView, ...]:
        """Worker pods of one group, terminating ones included."""
        return tuple(self._workers_by_group.get(name, ()))

    def arriving_indices(self, group: str) -> frozenset[int]:
        """Replica indices of the group's workers that may still be created."""
        return frozenset(
            pod.replica_index for pod in self.arriving if pod.group == group and pod.replica_index is not None
        )

    @cached_property
    def _workers_by_group(self) -> dict[str, list[PodView]]:
        """The workers by group, so that a pass over all groups reads each pod once."""
        found: dict[str, list[PodView]] = {}
        for pod in self.workers:
            found.setdefault(pod.group, []).append(pod)
        return found

    def is_lost(self, pod: PodView) -> bool:
        """Whether a terminating pod counts as gone: its node is unready, so its end may never be confirmed (SC:S12)."""
        return pod.is_terminating and pod.node_name in self.unready_nodes

    def pending_retry_of(self, group: str) -> PendingRetry | None:
        """The rejection that blocks creates of that group (or head, or service) now."""
        return next((retry for retry in self.pending_retries if retry.group == group), None)


def observe(
    cluster_uid: str,
    *,
    pods: Iterable[PodView],
    services: Iterable[ServiceView],
    arriving: Iterable[PodView] = (),
    head_service_name: str = "",
    foreign_names: frozenset[str] = frozenset(),
    unready_nodes: frozenset[str] = frozenset(),
    start_waits: Mapping[str, float] | None = None,
    failed_starts: Mapping[str, tuple[int, ...]] | None = None,
    spec_hash: str = "",
    pending_retries: tuple[PendingRetry, ...] = (),
    absent: frozenset[tuple[Resource, str]] = frozenset(),
    looked_up: Mapping[tuple[Resource, str], Manifest] | None = None,
    kept_groups: Collection[str] = (),
    names_to_delete: Collection[str] = (),
    seen_at: datetime = BEFORE_EVERYTHING,
) -> Observed:
    """The snapshot of what `cluster_uid` controls; pods that only carry the label are excluded.

    So are services, except those without an owner that have the name of the head service or of the headless worker
    service, as after a restored backup: pods find each other by them, and a second service of that name cannot be
    created (FD:RC-B9).
    The last failed worker of each of `kept_groups` is kept, unless it is in `names_to_delete`.
    """
    mine, ungrouped, others, ownerless = [], [], set(foreign_names), []
    for pod in pods:
        if pod.owner_uid != cluster_uid:
            others.add(pod.name)
            if pod.is_head and not (pod.owner_uid or pod.is_finished):
                ownerless.append(pod.name)
        elif pod.is_worker and not pod.group:
            ungrouped.append(pod)
        else:
            mine.append(pod)
    waits = start_waits or {}  # a pod that keeps its place is not yet one that is only kept
    kept = last_failures([pod for pod in mine if pod.name not in waits], kept_groups, names_to_delete)
    kept_names = {pod.name for pod in kept}
    return Observed(
        pods=tuple(pod for pod in mine if pod.name not in kept_names),
        kept=kept,
        ungrouped=tuple(ungrouped),
        arriving=tuple(arriving),
        services=tuple(
            service
            for service in services
            if service.owner_uid == cluster_uid
            or (not service.owner_uid and _has_expected_name(service, head_service_name))
        ),
        foreign_names=frozenset(others),
        ownerless_heads=tuple(sorted(ownerless)),
        unready_nodes=unready_nodes,
        start_waits=waits,
        failed_starts=failed_starts or {},
        spec_hash=spec_hash,
        pending_retries=pending_retries,
        missing=absent,
        looked_up=looked_up or {},
        seen_at=seen_at,
    )


def _has_expected_name(service: ServiceView, head_service_name: str) -> bool:
    """Whether it has the name under which such a service would be created."""
    if service.is_head_service:
        return service.name == head_service_name
    return service.is_headless_worker_service and service.name == constants.headless_service_name(service.cluster)
