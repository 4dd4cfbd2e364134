"""How does one pass over a RayCluster go?

Takes a key, reads the RayCluster live, looks at its children without awaiting anything, asks `plan` what to do, has it
done, and writes what `status` says. It awaits but never chooses; it never changes the spec (RM:I7), writes status only
when it differs and at most every half second (D8), and tells events afterwards. Called by `runtime/controller`, one pass
per key at a time; rules D2, D5–D8, RC §1.7, RC:TR-5.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from pydantic import ValidationError

from raytide.api import names
from raytide.api.actions import Create, Outcome, Remark, Result
from raytide.api.config import ClusterConfig
from raytide.api.faults import Violation
from raytide.api.meta import Key, Manifest
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster
from raytide.api.service import ServiceView
from raytide.api.value import faults_of
from raytide.kube.acting import Acting
from raytide.kube.apply import Applied
from raytide.kube.expectations import Expectations
from raytide.kube.reading import LiveReader
from raytide.kube.status_writing import StatusWriting
from raytide.kube.telling import Telling
from raytide.raycluster.deletion import Deletion, deletion, is_being_deleted
from raytide.raycluster.failures import kept_groups, names_to_delete
from raytide.raycluster.objects import head_service_name
from raytide.raycluster.observed import Observed, Refusal, observe
from raytide.raycluster.plan import plan, plan_unreadable, wanted_lookups
from raytide.raycluster.planned import Plan, sooner
from raytide.raycluster.pod_names import Namer
from raytide.raycluster.provisioning import forget_provisioned, note_provisioned
from raytide.raycluster.quota_lookup import LOOK_EVERY_S, QuotaLookup
from raytide.raycluster.refusals import Refusals
from raytide.raycluster.status import look_again_in, status, status_patch
from raytide.raycluster.unreadable import as_suspended, is_ours_to_judge, unreadable_patch
from raytide.raycluster.unwatched import Unwatched
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

AFTER_HOSTS_S = 1.0
"""When hosts of a replica were refused: what becomes of its other hosts is decided with that in mind."""


class Children(Protocol):
    """What the informers show of pods and services."""

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
        """The version at which the informer shows the RayCluster; None when it shows none."""
        ...

    def relist_clusters(self) -> None:
        """Have the informer of RayClusters list again, soon."""
        ...

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that cluster's pods that are known to be away or gone; empty where nodes cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Wires:
    """What a pass needs to reach the world."""

    reading: LiveReader
    children: Children
    pods_in_flight: Expectations[PodView]
    services_in_flight: Expectations[ServiceView]
    acting: Acting
    writing: StatusWriting
    unwatched: Unwatched
    quotas: QuotaLookup
    telling: Telling


class RayClusterReconciler:
    """The passes over all RayClusters.

    - A RayCluster that is not there any more is forgotten once the informer does not show it either; nothing is made
      for it meanwhile. A read that is older than what the informer shows is no read.
    - Kinds that nobody watches are looked for by name, when their answer is old.
    - The snapshot is taken and the plan made without an await in between.
    - Status is computed after acting and written only if it differs: half a second after the last write, or after the
      pass that acted, at the earliest.
    - A spec that cannot be read is told so in its status; no other cluster notices.
    """

    def __init__(
        self,
        wires: Wires,
        *,
        clock: Clock,
        config: ClusterConfig,
        namer: Namer,
        saw: Callable[..., None],
        forgotten: Callable[[Key], None],
    ) -> None:
        """`saw(key, *versions)` learns which versions are no news, `forgotten(key)` that a cluster is gone."""
        self._wires = wires
        self._clock = clock
        self._config = config
        self._namer = namer
        self._saw = saw
        self._forgotten = forgotten
        self._refusals = Refusals()

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns in how many seconds to look again, None when only news matter."""
        children = self._wires.children
        shown = partial(children.cluster_version, key)
        obj = await self._wires.reading.read(key, shown=shown, relist=children.relist_clusters)
        if obj is None:
            self._forget(key)
            return None
        if is_being_deleted(obj):
            return await self._let_go(obj, key)
        try:
            cluster = RayCluster.parse(obj)
        except ValidationError as error:
            return await self._hold_unreadable(obj, key, faults_of(error))
        await asyncio.sleep(0)  # a large object takes as long to read as to plan for: others have their turn in between
        await self._wires.unwatched.look(key, cluster.metadata.uid, wanted_lookups(cluster, self._config))
        await self._look_for_room(cluster)
        seen_at = self._clock.now()
        observed = self._observe(cluster, seen_at)
        todo = plan(cluster, observed, self._config, self._namer)
        if not todo.is_reported:
            self._saw(key, cluster.metadata.resource_version)
            return None
        return await self._carry_out(cluster, seen_at, todo)

    async def _carry_out(self, cluster: RayCluster, seen_at: datetime, todo: Plan) -> float | None:
        applied = await self._apply(cluster, todo)
        look_again_in = await self._report(cluster, seen_at, todo, applied)
        return self._end(cluster, todo, applied, look_again_in)

    async def _hold_unreadable(self, obj: Manifest, key: Key, faults: tuple[Violation, ...]) -> float | None:
        """Nothing of its spec is known: only a suspension that is stored goes on."""
        if not is_ours_to_judge(obj):
            self._saw(key, obj["metadata"].get("resourceVersion", ""))
            return None
        log.warning("cannot be read: %s", "; ".join(str(fault) for fault in faults))
        cluster = as_suspended(obj)
        if cluster is None:
            await self._report_unreadable(obj, key, faults)
            return None
        seen_at = self._clock.now()
        return await self._carry_out(
            cluster, seen_at, plan_unreadable(cluster, self._observe(cluster, seen_at), faults)
        )

    async def _let_go(self, obj: Manifest, key: Key) -> float | None:
        """It is being deleted: whatever its spec says, no finalizer that is ours to release holds it for ever."""
        acting, metadata = self._wires.acting, obj["metadata"]
        acting.forget(key)  # what is in flight for it is asked for no more
        pods = self._wires.children.pods(key)
        todo = deletion(obj, pods, self._clock.now()) if is_ours_to_judge(obj) else Deletion()
        if todo.release is None:
            self._saw(key, metadata.get("resourceVersion", ""))
            return todo.look_again_in
        applied = await acting.apply(key, metadata["uid"], (todo.release,))
        is_released = all(outcome.result is Result.DONE for outcome in applied.outcomes)
        self._wires.telling.tell(obj, applied.outcomes, (todo.remark,) if todo.remark and is_released else ())
        return acting.look_again_in(key, applied, (), is_continued=False)

    # --- observe, apply ------------------------------------------------------------------------------------------

    async def _look_for_room(self, cluster: RayCluster) -> None:
        known = await self._wires.quotas.has_room_by_group(cluster, self._waiting(cluster))
        now = self._clock.monotonic()
        for group, has_room in known.items():
            self._refusals.begin_replicas_at(cluster.key, group, now if has_room else now + 2 * LOOK_EVERY_S)

    def _observe(self, cluster: RayCluster, seen_at: datetime) -> Observed:
        """Everything at this instant: no await in here. `seen_at` is one moment for the whole pass."""
        key, uid, children = cluster.key, cluster.metadata.uid, self._wires.children
        named = names_to_delete(cluster)
        found = (children.pod(key.namespace, name) for name in named)
        pods = children.pods(key)
        # Only what this cluster owns may end what is in flight: an earlier cluster's service has the same name.
        mine = [pod for pod in pods if pod.owner_uid == uid]
        services = children.services(key)
        owned_services = [service for service in services if service.owner_uid == uid]
        return observe(
            uid,
            pods=(
                *self._wires.pods_in_flight.overlay(key, uid, mine),
                *(pod for pod in pods if pod.owner_uid != uid),
            ),
            services=(
                *self._wires.services_in_flight.overlay(key, uid, owned_services),
                *(service for service in services if service.owner_uid != uid),
            ),
            head_service_name=head_service_name(cluster),
            foreign_names=frozenset(pod.name for pod in found if pod is not None and pod.owner_uid != uid),
            unready_nodes=children.unready_nodes(key),
            refusals=self._waiting(cluster),
            absent=self._wires.unwatched.absent(key, uid),
            kept_groups=kept_groups(cluster),
            named=named,
            seen_at=seen_at,
        )

    def _waiting(self, cluster: RayCluster) -> tuple[Refusal, ...]:
        metadata = cluster.metadata
        return self._refusals.waiting(cluster.key, metadata.uid, metadata.generation, self._clock.monotonic())

    async def _apply(self, cluster: RayCluster, todo: Plan) -> Applied:
        key, uid = cluster.key, cluster.metadata.uid
        acting = self._wires.acting
        is_held = bool(todo.violations or todo.unprotected)  # nothing is made; a delete that was begun is finished
        again = await acting.again(key, uid, todo.actions, todo.unwanted, may_create=not is_held)
        self._refusals.give_up(key, todo.given_up, self._clock.monotonic())
        for group in todo.needs_no_replica:
            self._refusals.begin_replicas_at(key, group, self._clock.monotonic())
        applied = await acting.apply(key, uid, todo.actions, again)
        now = self._clock.monotonic()
        self._refusals.note(key, uid, cluster.metadata.generation, applied.outcomes, now)
        self._wires.unwatched.note(key, uid, applied.outcomes)
        return applied

    # --- report --------------------------------------------------------------------------------------------------

    async def _report(self, cluster: RayCluster, seen_at: datetime, todo: Plan, applied: Applied) -> float | None:
        """Write the status if it differs, then tell; returns when the status has to be looked at again."""
        now, mode = self._clock.now(), self._config.autoscaler.mode
        tracks_readiness = self._config.state_tracks_readiness
        observed = self._observe(cluster, seen_at)
        computed = status(cluster, observed, todo, applied.outcomes, now, mode=mode, tracks_readiness=tracks_readiness)
        patch = status_patch(cluster, computed)
        writing = self._wires.writing
        wait_s = writing.wait_s(cluster.key, has_acted=bool(applied.outcomes)) if patch else 0.0
        is_due = patch is not None and wait_s <= 0
        if not patch:
            writing.note_equal(cluster.key, cluster.metadata.resource_version)
        try:
            if patch and is_due:
                await writing.write(cluster.raw, cluster.key, patch)
                note_provisioned(cluster, computed, now)
        finally:  # what was done is told even if the status could not be
            self._wires.telling.tell(cluster.raw, applied.outcomes, todo.remarks)
        next_step = 0.0 if is_due and todo.is_status_gated else wait_s if wait_s > 0 else None
        next_look = look_again_in(cluster, observed, computed, now, mode=mode, tracks_readiness=tracks_readiness)
        return sooner(next_step, next_look)

    async def _report_unreadable(self, obj: Manifest, key: Key, faults: tuple[Violation, ...]) -> None:
        patch = unreadable_patch(obj, faults, self._clock.now())
        try:
            if patch:
                await self._wires.writing.write(obj, key, patch)
            else:
                self._saw(key, obj["metadata"].get("resourceVersion", ""))
        finally:  # where even the status is refused, the event is all that the user gets
            self._wires.telling.tell(obj, (), [Remark(fault.event_reason, str(fault)) for fault in faults])

    # --- end ---------------------------------------------------------------------------------------------------------

    def _end(self, cluster: RayCluster, todo: Plan, applied: Applied, look_again_in: float | None) -> float | None:
        """When to come back."""
        deadlines = (
            look_again_in,
            todo.look_again_in,
            min((self._look_again_for(refusal) for refusal in self._waiting(cluster)), default=None),
            AFTER_HOSTS_S if any(map(_is_refused_host, applied.outcomes)) else None,
        )
        return self._wires.acting.look_again_in(
            cluster.key, applied, deadlines, is_continued=todo.is_continued, has_more=todo.has_more
        )

    @staticmethod
    def _look_again_for(refusal: Refusal) -> float:
        is_for_room = refusal.replicas_in_s > 0
        return min(refusal.look_again_in, LOOK_EVERY_S) if is_for_room else refusal.look_again_in

    def _forget(self, key: Key) -> None:
        """The RayCluster is gone: its children go by garbage collection, we keep nothing (RC:TR-5)."""
        self._wires.acting.forget(key)
        self._wires.telling.forget(key)
        self._refusals.forget(key)
        self._wires.unwatched.forget(key)
        self._wires.quotas.forget(key)
        self._wires.writing.forget(key)
        forget_provisioned(key)
        self._forgotten(key)


def _is_refused_host(outcome: Outcome) -> bool:
    action = outcome.action
    is_host = isinstance(action, Create) and names.HOST_INDEX_LABEL in action.manifest["metadata"].get("labels", {})
    return is_host and outcome.result is Result.REFUSED
