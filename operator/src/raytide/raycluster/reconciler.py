"""Reconciler of RayClusters.

Observes the children of a RayCluster without an await, plans, and computes the status; what a pass does besides is in
controller/reconciler.py. It contains no policy. Rules D2, D5–D8, RC §1.7, RC:TR-5.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

from pydantic import ValidationError

from raytide.api import constants
from raytide.api.actions import Create, EventSpec, Outcome, Result
from raytide.api.base_model import faults_of
from raytide.api.config import ClusterConfig
from raytide.api.meta import JOBS, Key, Manifest
from raytide.api.pod import PodView
from raytide.api.pod_failure import is_namespace_terminating
from raytide.api.raycluster import RayCluster
from raytide.api.service import ServiceView
from raytide.api.violations import Violation
from raytide.controller.child_lister import ChildLister
from raytide.controller.reconciler import BaseReconciler, ComputedStatus, Dependencies
from raytide.raycluster import messages
from raytide.raycluster.conditions import condition_events
from raytide.raycluster.create_backoff import RayClusterCreateBackoff
from raytide.raycluster.deletion import (
    Deletion,
    after_rejection,
    clean_up,
    is_being_deleted,
    is_head_gone,
    is_held,
    job_state,
    release_unclean,
    seconds_left,
    state_of,
    timed_out,
)
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.failures import kept_groups, names_to_delete
from raytide.raycluster.manifests.names import Namer
from raytide.raycluster.manifests.redis_cleanup import cleanup_job_name
from raytide.raycluster.manifests.services import head_service_name
from raytide.raycluster.metrics import WorkerMeasures, forget_provisioned, observe_capacity, observe_provisioned
from raytide.raycluster.object_lookup import ObjectLookupCache
from raytide.raycluster.observed import Observed, PendingRetry, observe
from raytide.raycluster.owned_objects import DrawToken
from raytide.raycluster.plan import plan, plan_unreadable, wanted_lookups
from raytide.raycluster.plan_types import RayClusterPlan
from raytide.raycluster.quota_lookup import LOOKUP_INTERVAL_S, QuotaLookup
from raytide.raycluster.start_backoff import FailedStarts, start_waits
from raytide.raycluster.status import requeue_after_s, status
from raytide.raycluster.unreadable import as_suspended, is_ours_to_judge, unreadable_patch
from raytide.raycluster.worker_samples import NO_SAMPLES, WorkerSamples, worker_samples

log = logging.getLogger(__name__)

AFTER_HOSTS_S = 1.0
"""Requeue delay after hosts of a replica were rejected, to decide about the replica's other hosts."""


@dataclass(frozen=True, slots=True)
class RayClusterSources:
    """What the reconciler observes besides the RayCluster."""

    pods: ChildLister[PodView]
    services: ChildLister[ServiceView]
    unready_nodes: Callable[[Key], frozenset[str]]
    """Nodes of that cluster's pods that are not Ready or are gone; empty where nodes cannot be read."""
    lookups: ObjectLookupCache
    quotas: QuotaLookup


@dataclass(frozen=True, slots=True)
class ComputedRayClusterStatus(ComputedStatus):
    """The status of one RayCluster after a pass, and the samples of its metrics."""

    samples: WorkerSamples = NO_SAMPLES


@dataclass(slots=True)
class _CleanupAttempt:
    """What is known of the clean-up of one RayCluster of this uid; times are monotonic seconds."""

    uid: str
    began_at: float
    rejected_at: float | None = None
    """When the create of the Job was first rejected, since when it was not accepted."""

    def rejected_for_s(self, rejected: Outcome, now: float) -> float:
        """Seconds since the first rejection; infinite in a namespace that is being deleted."""
        if is_namespace_terminating(rejected.message):
            return inf
        if self.rejected_at is None:
            self.rejected_at = now
        return now - self.rejected_at


class RayClusterReconciler(BaseReconciler[RayCluster, Observed, RayClusterPlan, ComputedRayClusterStatus]):
    """Reconciles RayClusters.

    - The finalizer of a cluster being deleted is released first, whatever the spec is.
    - Kinds that are not watched are looked up by name when the cached answer has expired.
    - While a suspension is stored, it continues although the spec cannot be parsed.
    """

    _create_backoff: RayClusterCreateBackoff

    def __init__(
        self,
        deps: Dependencies,
        sources: RayClusterSources,
        *,
        config: ClusterConfig,
        namer: Namer,
        draw_token: DrawToken,
        measures: WorkerMeasures,
    ) -> None:
        super().__init__(deps, RayClusterCreateBackoff())
        self._sources = sources
        self._measures = measures
        self._config = config
        self._namer = namer
        self._draw_token = draw_token
        self._failed_starts = FailedStarts()
        self._cleanups: dict[Key, _CleanupAttempt] = {}

    def use_native_sidecars(self) -> None:
        """Use native sidecars from now on: the API server has them."""
        pods = self._config.pods
        autoscaler = replace(pods.autoscaler, has_native_sidecars=True)
        self._config = replace(self._config, pods=replace(pods, autoscaler=autoscaler))

    async def _reconcile_object(self, obj: Manifest, key: Key) -> float | None:
        if is_being_deleted(obj):
            return await self._release(obj, key)
        try:
            cluster = RayCluster.parse(obj)
        except ValidationError as error:
            return await self._hold_unreadable(obj, key, faults_of(error))
        await asyncio.sleep(0)  # parsing a large object takes as long as planning: let other tasks run in between
        await self._sources.lookups.refresh(key, cluster.metadata.uid, wanted_lookups(cluster, self._config))
        await self._look_up_quotas(cluster)
        seen_at = self._clock.now()
        planned = plan(cluster, self._observe(cluster, seen_at), self._config, self._namer, self._draw_token)
        if not planned.is_reported:
            self._measures.forget(key)
        return await self._carry_out(cluster, seen_at, planned)

    async def _hold_unreadable(self, obj: Manifest, key: Key, violations: tuple[Violation, ...]) -> float | None:
        """Hold a cluster whose spec cannot be parsed: only a stored suspension continues."""
        self._measures.forget(key)
        if not is_ours_to_judge(obj):
            self._deps.ignore_resource_version(key, obj["metadata"].get("resourceVersion", ""))
            return None
        log.warning(messages.CANNOT_BE_PARSED, "; ".join(map(str, violations)))
        cluster, seen_at = as_suspended(obj), self._clock.now()
        if cluster is not None:
            planned = plan_unreadable(cluster, self._observe(cluster, seen_at), violations)
            return await self._carry_out(cluster, seen_at, planned)
        events = [EventSpec(violation.event_reason, str(violation)) for violation in violations]
        await self._report_unreadable(obj, key, unreadable_patch(obj, violations, seen_at), events)
        return None

    async def _release(self, obj: Manifest, key: Key) -> float | None:
        """Clean up after a cluster that is being deleted, and release its finalizer whatever its spec is, so that it cannot hang."""
        runner, metadata = self._deps.runner, obj["metadata"]
        self._measures.forget(key)
        if not is_held(obj):
            runner.forget(key)  # writes in flight for it are not repeated
            self._deps.ignore_resource_version(key, metadata.get("resourceVersion", ""))
            return None
        uid, now = metadata["uid"], self._clock.monotonic()
        attempt = self._cleanups.get(key)
        if attempt is None or attempt.uid != uid:
            attempt = self._cleanups[key] = _CleanupAttempt(uid, now)
        planned = await self._planned_deletion(obj, key, now - attempt.began_at)
        if planned.release is None:
            applied = await runner.apply(key, uid, planned.actions)
            self._deps.events.emit(obj, applied.outcomes, ())
            rejected = next((one for one in applied.outcomes if _is_rejected_job(one)), None)
            if rejected is None:
                attempt.rejected_at = None
                return runner.requeue_after_s(key, applied, (planned.requeue_after_s,), is_continued=False)
            planned = after_rejection(obj, rejected.message, attempt.rejected_for_s(rejected, now))
            if planned.release is None:
                return planned.requeue_after_s
        applied = await runner.apply(key, uid, (planned.release,))
        is_released = all(one.result is Result.DONE for one in applied.outcomes)
        events = (planned.event,) if planned.event and is_released else ()
        for event in events:  # of many clusters deleted at once not all events are stored
            log.warning(event.message)
        self._deps.events.emit(obj, applied.outcomes, events)
        return runner.requeue_after_s(key, applied, (), is_continued=False)

    async def _planned_deletion(self, obj: Manifest, key: Key, tried_for_s: float) -> Deletion:
        left_s = seconds_left(obj, self._clock.now(), tried_for_s)
        if left_s <= 0:  # first, so that nothing that fails below holds the cluster
            return timed_out(obj)
        state = state_of(obj, self._config)
        if isinstance(state, str):
            return release_unclean(obj, self._sources.pods.seen(key), state, left_s)
        await asyncio.sleep(0)  # parsing a large object takes long, and each poll parses it again
        # Only looks for creates of unknown outcome: a head among them may still come.
        await self._deps.runner.due_retries(key, state.metadata.uid, (), may_create=False)
        observed, job = self._observe(state, self._clock.now()), None
        if is_head_gone(observed):
            found = await self._sources.lookups.read(JOBS, Key(key.namespace, cleanup_job_name(key.name)))
            job = job_state(state, found)
        return clean_up(state, observed, job, self._config, left_s=left_s, tried_for_s=tried_for_s)

    async def _look_up_quotas(self, cluster: RayCluster) -> None:
        known = await self._sources.quotas.has_capacity_by_group(cluster, self._pending_retries(cluster))
        now = self._clock.monotonic()
        for group, has_capacity in known.items():
            self._create_backoff.begin_replicas_at(
                cluster.key, group, now if has_capacity else now + 2 * LOOKUP_INTERVAL_S
            )

    def _observe(self, cluster: RayCluster, seen_at: datetime) -> Observed:
        key, uid, sources = cluster.key, cluster.metadata.uid, self._sources
        to_delete = names_to_delete(cluster)
        found = (sources.pods.get(key.namespace, name) for name in to_delete)
        pods = sources.pods.expected(key, uid)
        unready_nodes = sources.unready_nodes(key)
        owned = [pod for pod in pods if pod.owner_uid == uid]
        self._failed_starts.record_pods(cluster, owned, self._clock.monotonic())
        return observe(
            uid,
            pods=pods,
            start_waits=start_waits(owned, self._failed_starts.spec_hash(key), seen_at, unready_nodes),
            failed_starts=self._failed_starts.counts(key),
            spec_hash=self._failed_starts.spec_hash(key),
            services=sources.services.expected(key, uid),
            arriving=sources.pods.arriving(key, uid),
            head_service_name=head_service_name(cluster),
            foreign_names=frozenset(pod.name for pod in found if pod is not None and pod.owner_uid != uid),
            unready_nodes=unready_nodes,
            pending_retries=self._pending_retries(cluster),
            absent=sources.lookups.missing(key, uid),
            looked_up=sources.lookups.kept(key, uid),
            kept_groups=kept_groups(cluster),
            names_to_delete=to_delete,
            seen_at=seen_at,
        )

    def _pending_retries(self, cluster: RayCluster) -> tuple[PendingRetry, ...]:
        metadata = cluster.metadata
        return self._create_backoff.waiting(cluster.key, metadata.uid, metadata.generation, self._clock.monotonic())

    def _record_outcomes(self, cluster: RayCluster, planned: RayClusterPlan, outcomes: Sequence[Outcome]) -> None:
        self._create_backoff.record_plan(cluster.key, planned, self._clock.monotonic())
        super()._record_outcomes(cluster, planned, outcomes)
        self._failed_starts.record_outcomes(cluster.key, outcomes)
        self._sources.lookups.record_outcomes(cluster.key, cluster.metadata.uid, outcomes)

    def _compute_status(
        self,
        cluster: RayCluster,
        observed: Observed,
        planned: RayClusterPlan,
        outcomes: Sequence[Outcome],
        now: datetime,
    ) -> ComputedRayClusterStatus:
        tracks_readiness = self._config.state_tracks_readiness
        scaling = scaling_of(cluster, observed, self._config.autoscaler.mode)
        computed = status(
            cluster,
            observed,
            planned,
            outcomes,
            now,
            scaling=scaling,
            config=self._config.pods,
            tracks_readiness=tracks_readiness,
        )
        requeue_s = requeue_after_s(
            cluster, observed, computed, now, scaling=scaling, tracks_readiness=tracks_readiness
        )
        # The operator does not act on an invalid spec, so nothing is desired by it.
        is_acted_on = not planned.violations
        samples = NO_SAMPLES
        if is_acted_on:
            samples = worker_samples(cluster, observed, scaling, outcomes, computed["conditions"])
        return ComputedRayClusterStatus(computed, requeue_s, now, samples)

    def _status_events(self, cluster: RayCluster, computed: ComputedRayClusterStatus) -> Iterable[EventSpec]:
        before, after = cluster.status.get("conditions") or (), computed.status.get("conditions") or ()
        return condition_events(before, after)

    def _record_status(self, cluster: RayCluster, computed: ComputedRayClusterStatus, *, is_written: bool) -> None:
        if is_written:
            observe_provisioned(cluster, computed.status, computed.at)
            observe_capacity(cluster, computed.status, computed.at)
        self._measures.update(cluster.key, computed.samples)

    def _deadlines_s(self, cluster: RayCluster, outcomes: Iterable[Outcome]) -> Iterable[float | None]:
        yield from (self._requeue_for(retry) for retry in self._pending_retries(cluster))
        if any(map(_is_rejected_host, outcomes)):
            yield AFTER_HOSTS_S

    @staticmethod
    def _requeue_for(retry: PendingRetry) -> float:
        waits_for_quota = retry.replicas_in_s > 0
        return min(retry.requeue_after_s, LOOKUP_INTERVAL_S) if waits_for_quota else retry.requeue_after_s

    def _forget(self, key: Key) -> None:
        super()._forget(key)
        self._failed_starts.forget(key)
        self._sources.lookups.forget(key)
        self._sources.quotas.forget(key)
        forget_provisioned(key)
        self._cleanups.pop(key, None)
        self._measures.forget(key)


def _is_rejected_job(outcome: Outcome) -> bool:
    """Whether the clean-up Job was rejected, also because the namespace is being deleted."""
    is_job = isinstance(outcome.action, Create) and outcome.action.resource == JOBS
    return is_job and (outcome.result is Result.REJECTED or is_namespace_terminating(outcome.message))


def _is_rejected_host(outcome: Outcome) -> bool:
    action = outcome.action
    is_host = isinstance(action, Create) and constants.HOST_INDEX_LABEL in action.manifest["metadata"].get("labels", {})
    return is_host and outcome.result is Result.REJECTED
