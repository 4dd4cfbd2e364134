"""Reconciler of RayClusters.

Takes a key, reads the RayCluster live, observes its children without an await, plans, executes the plan, and writes the
computed status. It contains no policy; it never changes the spec (RM:I7), writes status only when it differs and at
most every half second (D8), and emits events afterwards. Called by `controller/controller`, one reconcile per key at a
time; rules D2, D5–D8, RC §1.7, RC:TR-5.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from pydantic import ValidationError

from raytide.api import constants
from raytide.api.actions import Create, EventSpec, Outcome, Result
from raytide.api.base_model import faults_of
from raytide.api.config import ClusterConfig
from raytide.api.meta import Key, Manifest
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster
from raytide.api.service import ServiceView
from raytide.api.violations import Violation
from raytide.controller.action_runner import ActionRunner
from raytide.controller.event_correlator import EventCorrelator
from raytide.controller.executor import ApplyResult
from raytide.controller.expectations import Expectations
from raytide.controller.read_live import LiveReader
from raytide.controller.status_writer import StatusWriter
from raytide.raycluster.create_backoff import RayClusterCreateBackoff
from raytide.raycluster.deletion import Deletion, deletion, is_being_deleted
from raytide.raycluster.failures import kept_groups, names_to_delete
from raytide.raycluster.manifests.names import Namer
from raytide.raycluster.manifests.services import head_service_name
from raytide.raycluster.object_lookup import ObjectLookupCache
from raytide.raycluster.observed import Observed, PendingRetry, observe
from raytide.raycluster.plan import plan, plan_unreadable, wanted_lookups
from raytide.raycluster.plan_types import Plan, earliest
from raytide.raycluster.provisioning import forget_provisioned, note_provisioned
from raytide.raycluster.quota_lookup import LOOK_EVERY_S, QuotaLookup
from raytide.raycluster.status import requeue_after_s, status, status_patch
from raytide.raycluster.unreadable import as_suspended, is_ours_to_judge, unreadable_patch
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

AFTER_HOSTS_S = 1.0
"""Requeue delay after hosts of a replica were rejected, to decide about the replica's other hosts."""


class ChildLister(Protocol):
    """Listers of pods and services."""

    def pods(self, key: Key) -> Sequence[PodView]:
        """Pods whose label names that cluster."""
        ...

    def pod(self, namespace: str, name: str) -> PodView | None:
        """One pod of any cluster."""
        ...

    def services(self, key: Key) -> Sequence[ServiceView]:
        """Services whose label names that cluster."""
        ...

    def cluster_version(self, key: Key) -> int | None:
        """The resourceVersion of the RayCluster in the informer cache; None when it is not there."""
        ...

    def relist_clusters(self) -> None:
        """Ask the informer for a new list of RayClusters."""
        ...

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that cluster's pods that are not Ready or are gone; empty where nodes cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies of the reconciler for reads and writes."""

    live_reader: LiveReader
    children: ChildLister
    pods_in_flight: Expectations[PodView]
    services_in_flight: Expectations[ServiceView]
    runner: ActionRunner
    status_writer: StatusWriter
    lookups: ObjectLookupCache
    quotas: QuotaLookup
    events: EventCorrelator


class RayClusterReconciler:
    """Reconciles RayClusters.

    - A RayCluster that is not found is forgotten once the informer does not have it either; nothing is created for it
      meanwhile. A read older than the informer's version is discarded.
    - Kinds that are not watched are looked up by name when the cached answer has expired.
    - The snapshot is taken and the plan made without an await in between.
    - Status is computed after the writes and patched only if it differs: at the earliest half a second after the last
      patch, or after the reconcile that wrote.
    - A spec that cannot be parsed is reported in its status; other clusters are not affected.
    """

    def __init__(
        self,
        deps: Dependencies,
        *,
        clock: Clock,
        config: ClusterConfig,
        namer: Namer,
        ignore_resource_version: Callable[..., None],
        forgotten: Callable[[Key], None],
    ) -> None:
        """`ignore_resource_version(key, *versions)` records versions that need no reconcile, `forgotten(key)` that a cluster is gone."""
        self._deps = deps
        self._clock = clock
        self._config = config
        self._namer = namer
        self._ignore_resource_version = ignore_resource_version
        self._forgotten = forgotten
        self._refusals = RayClusterCreateBackoff()

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; returns the seconds to requeue after, None when only a watch event matters."""
        children = self._deps.children
        shown = partial(children.cluster_version, key)
        obj = await self._deps.live_reader.read(key, shown=shown, relist=children.relist_clusters)
        if obj is None:
            self._forget(key)
            return None
        if is_being_deleted(obj):
            return await self._release(obj, key)
        try:
            cluster = RayCluster.parse(obj)
        except ValidationError as error:
            return await self._hold_unreadable(obj, key, faults_of(error))
        await asyncio.sleep(0)  # parsing a large object takes as long as planning: let other tasks run in between
        await self._deps.lookups.refresh(key, cluster.metadata.uid, wanted_lookups(cluster, self._config))
        await self._look_up_quotas(cluster)
        seen_at = self._clock.now()
        observed = self._observe(cluster, seen_at)
        planned = plan(cluster, observed, self._config, self._namer)
        if not planned.is_reported:
            self._ignore_resource_version(key, cluster.metadata.resource_version)
            return None
        return await self._carry_out(cluster, seen_at, planned)

    async def _carry_out(self, cluster: RayCluster, seen_at: datetime, planned: Plan) -> float | None:
        applied = await self._apply(cluster, planned)
        requeue_after_s = await self._report(cluster, seen_at, planned, applied)
        return self._end(cluster, planned, applied, requeue_after_s)

    async def _hold_unreadable(self, obj: Manifest, key: Key, faults: tuple[Violation, ...]) -> float | None:
        """Hold a cluster whose spec cannot be parsed: only a stored suspension continues."""
        if not is_ours_to_judge(obj):
            self._ignore_resource_version(key, obj["metadata"].get("resourceVersion", ""))
            return None
        log.warning("RayCluster cannot be parsed: %s", "; ".join(str(fault) for fault in faults))
        cluster = as_suspended(obj)
        if cluster is None:
            await self._report_unreadable(obj, key, faults)
            return None
        seen_at = self._clock.now()
        return await self._carry_out(
            cluster, seen_at, plan_unreadable(cluster, self._observe(cluster, seen_at), faults)
        )

    async def _release(self, obj: Manifest, key: Key) -> float | None:
        """Release KubeRay's finalizer of a cluster being deleted, whatever its spec is, so that it cannot hang."""
        acting, metadata = self._deps.runner, obj["metadata"]
        acting.forget(key)  # writes in flight for it are not repeated
        pods = self._deps.children.pods(key)
        planned = deletion(obj, pods, self._clock.now()) if is_ours_to_judge(obj) else Deletion()
        if planned.release is None:
            self._ignore_resource_version(key, metadata.get("resourceVersion", ""))
            return planned.requeue_after_s
        applied = await acting.apply(key, metadata["uid"], (planned.release,))
        is_released = all(outcome.result is Result.DONE for outcome in applied.outcomes)
        self._deps.events.emit(obj, applied.outcomes, (planned.event,) if planned.event and is_released else ())
        return acting.requeue_after_s(key, applied, (), is_continued=False)

    # --- observe, apply ------------------------------------------------------------------------------------------

    async def _look_up_quotas(self, cluster: RayCluster) -> None:
        known = await self._deps.quotas.has_room_by_group(cluster, self._waiting(cluster))
        now = self._clock.monotonic()
        for group, has_room in known.items():
            self._refusals.begin_replicas_at(cluster.key, group, now if has_room else now + 2 * LOOK_EVERY_S)

    def _observe(self, cluster: RayCluster, seen_at: datetime) -> Observed:
        """The observed state at one instant: no await in here. `seen_at` is the same for the whole reconcile."""
        key, uid, children = cluster.key, cluster.metadata.uid, self._deps.children
        named = names_to_delete(cluster)
        found = (children.pod(key.namespace, name) for name in named)
        pods = children.pods(key)
        # Only objects that this cluster owns settle in-flight writes: an earlier cluster's service has the same name.
        mine = [pod for pod in pods if pod.owner_uid == uid]
        services = children.services(key)
        owned_services = [service for service in services if service.owner_uid == uid]
        return observe(
            uid,
            pods=(
                *self._deps.pods_in_flight.overlay(key, uid, mine),
                *(pod for pod in pods if pod.owner_uid != uid),
            ),
            services=(
                *self._deps.services_in_flight.overlay(key, uid, owned_services),
                *(service for service in services if service.owner_uid != uid),
            ),
            head_service_name=head_service_name(cluster),
            foreign_names=frozenset(pod.name for pod in found if pod is not None and pod.owner_uid != uid),
            unready_nodes=children.unready_nodes(key),
            refusals=self._waiting(cluster),
            absent=self._deps.lookups.missing(key, uid),
            kept_groups=kept_groups(cluster),
            named=named,
            seen_at=seen_at,
        )

    def _waiting(self, cluster: RayCluster) -> tuple[PendingRetry, ...]:
        metadata = cluster.metadata
        return self._refusals.waiting(cluster.key, metadata.uid, metadata.generation, self._clock.monotonic())

    async def _apply(self, cluster: RayCluster, planned: Plan) -> ApplyResult:
        key, uid = cluster.key, cluster.metadata.uid
        acting = self._deps.runner
        is_held = bool(
            planned.violations or planned.unprotected
        )  # nothing is created; a delete that was begun is finished
        again = await acting.due_retries(key, uid, planned.actions, planned.unwanted, may_create=not is_held)
        self._refusals.give_up(key, planned.given_up, self._clock.monotonic())
        for group in planned.needs_no_replica:
            self._refusals.begin_replicas_at(key, group, self._clock.monotonic())
        applied = await acting.apply(key, uid, planned.actions, again)
        now = self._clock.monotonic()
        self._refusals.note(key, uid, cluster.metadata.generation, applied.outcomes, now)
        self._deps.lookups.note(key, uid, applied.outcomes)
        return applied

    # --- report --------------------------------------------------------------------------------------------------

    async def _report(
        self, cluster: RayCluster, seen_at: datetime, planned: Plan, applied: ApplyResult
    ) -> float | None:
        """Patch the status if it differs, then emit events; returns the requeue delay of the status in seconds."""
        now, mode = self._clock.now(), self._config.autoscaler.mode
        tracks_readiness = self._config.state_tracks_readiness
        observed = self._observe(cluster, seen_at)
        computed = status(
            cluster, observed, planned, applied.outcomes, now, mode=mode, tracks_readiness=tracks_readiness
        )
        patch = status_patch(cluster, computed)
        writing = self._deps.status_writer
        wait_s = writing.wait_s(cluster.key, has_acted=bool(applied.outcomes)) if patch else 0.0
        is_due = patch is not None and wait_s <= 0
        if not patch:
            writing.mark_up_to_date(cluster.key, cluster.metadata.resource_version)
        try:
            if patch and is_due:
                await writing.write(cluster.raw, cluster.key, patch)
                note_provisioned(cluster, computed, now)
        finally:  # emit events for the writes even if the status patch failed
            self._deps.events.emit(cluster.raw, applied.outcomes, planned.events)
        next_step = 0.0 if is_due and planned.is_status_gated else wait_s if wait_s > 0 else None
        next_look = requeue_after_s(cluster, observed, computed, now, mode=mode, tracks_readiness=tracks_readiness)
        return earliest(next_step, next_look)

    async def _report_unreadable(self, obj: Manifest, key: Key, faults: tuple[Violation, ...]) -> None:
        patch = unreadable_patch(obj, faults, self._clock.now())
        try:
            if patch:
                await self._deps.status_writer.write(obj, key, patch)
            else:
                self._ignore_resource_version(key, obj["metadata"].get("resourceVersion", ""))
        finally:  # if even the status patch is rejected, the event is the user's only report
            self._deps.events.emit(obj, (), [EventSpec(fault.event_reason, str(fault)) for fault in faults])

    # --- end ---------------------------------------------------------------------------------------------------------

    def _end(
        self, cluster: RayCluster, planned: Plan, applied: ApplyResult, requeue_after_s: float | None
    ) -> float | None:
        """The seconds to requeue after."""
        deadlines = (
            requeue_after_s,
            planned.requeue_after_s,
            min((self._requeue_for(refusal) for refusal in self._waiting(cluster)), default=None),
            AFTER_HOSTS_S if any(map(_is_refused_host, applied.outcomes)) else None,
        )
        return self._deps.runner.requeue_after_s(
            cluster.key, applied, deadlines, is_continued=planned.is_continued, has_more=planned.has_more
        )

    @staticmethod
    def _requeue_for(refusal: PendingRetry) -> float:
        is_for_room = refusal.replicas_in_s > 0
        return min(refusal.requeue_after_s, LOOK_EVERY_S) if is_for_room else refusal.requeue_after_s

    def _forget(self, key: Key) -> None:
        """Drop all state of a deleted RayCluster; garbage collection removes its children (RC:TR-5)."""
        self._deps.runner.forget(key)
        self._deps.events.forget(key)
        self._refusals.forget(key)
        self._deps.lookups.forget(key)
        self._deps.quotas.forget(key)
        self._deps.status_writer.forget(key)
        forget_provisioned(key)
        self._forgotten(key)


def _is_refused_host(outcome: Outcome) -> bool:
    action = outcome.action
    is_host = isinstance(action, Create) and constants.HOST_INDEX_LABEL in action.manifest["metadata"].get("labels", {})
    return is_host and outcome.result is Result.REFUSED
