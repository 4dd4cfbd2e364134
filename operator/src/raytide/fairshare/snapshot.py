"""Snapshot: the `ClusterSnapshot` that the planner divides.

Input: TrainingJobs, all pods that have not ended and all nodes. Output: each job that takes part as an anonymous
participant with the placement of its pods, each node with what is in use and what is leaving, the pending pods of other
workloads, and what quotas still allow. Everything is a function of the arguments; `SnapshotBuilder` returns the same as `build_snapshot`
and caches for each job and node what it was computed from, because little changes between two snapshots of a large
cluster (PF:P10). Called by the sharing pass and by `raytide plan` (D16; TJ §3, architecture §5 flow c).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nsmallest
from operator import attrgetter
from typing import Final, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota, Priority
from raytide.api.config import SharingConfig
from raytide.api.pod_requirements import HOST_PORT, Amounts
from raytide.api.sharing_record import victims_of
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import ROLES, TRAINER
from raytide.api.trainingjob_pods import priority_class_of
from raytide.fairshare.algorithm.model import (
    AllocationOptions,
    ClusterSnapshot,
    Participant,
    ParticipantId,
    Quota,
    Shape,
)
from raytide.fairshare.eligibility import cooldowns_of, is_eligible, is_going
from raytide.fairshare.node_usage import NodeUsage, PodUsage, external_pods
from raytide.fairshare.participants import ParticipantBuilder, claimed, role_shapes, wanted_pods
from raytide.fairshare.pod_placement import RolePods, group_pods_by_role
from raytide.fairshare.pod_requirements import observed_shape
from raytide.fairshare.quotas import Ordered, quotas_left

Owner: TypeAlias = tuple[str, str, str]
"""Namespace and name of a TrainingJob, and the uid of the job that owns the pods."""

MAX_HOST_PORTS: Final = 64
_BY_KEY: Final = attrgetter("key")


def build_snapshot(
    jobs: Iterable[TrainingJob],
    pods: Iterable[CapacityPod],
    nodes: Iterable[CapacityNode],
    *,
    quotas: Iterable[CapacityQuota] = (),
    priorities: Mapping[str, Priority] | None = None,
    tenants: Mapping[str, str] | None = None,
    config: SharingConfig,
    now: datetime,
) -> ClusterSnapshot:
    """One snapshot for the planner.

    `priorities` maps names of PriorityClasses to priorities, the empty name to the default's; `tenants` maps namespaces
    to the tenants that their labels name.
    """
    return SnapshotBuilder(config).build(
        jobs, pods, nodes, quotas=quotas, priorities=priorities, tenants=tenants, now=now
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """The cached result for one job, and the inputs for which it is valid."""

    job: TrainingJob
    pods: Sequence[CapacityPod]
    since: datetime
    until: datetime | None
    """When time alone changes it; None: never."""
    shapes: Mapping[str, Shape]
    usage: PodUsage
    participant: Participant | None = None
    trainers: RolePods | None = None
    pods_to_create: Amounts = field(default_factory=dict)

    def is_valid_for(self, job: TrainingJob, pods: Sequence[CapacityPod], now: datetime) -> bool:
        """Whether the result would be the same."""
        is_same = self.job is job and self.pods == pods
        return is_same and self.since <= now and (self.until is None or now < self.until)


class SnapshotBuilder:
    """Successive snapshots, each at the cost of what has changed since the last one.

    Jobs and pods are recognised by identity, as an informer keeps the objects. A job that raises leaves the cached
    results of the others unchanged.
    """

    def __init__(self, config: SharingConfig) -> None:
        self._options = AllocationOptions(
            max_load_percent=config.max_load_percent,
            gpus=config.gpus,
            rebalance_gap=config.rebalance_gap,
            victims_per_instance=config.victims_per_trainer,
        )
        self._reservation_s = config.reservation_s
        self._tenants = config.tenants
        self._priorities: Mapping[str, Priority] = {}
        self._tenant_of: Mapping[str, str] = {}
        self._node_usage = NodeUsage()
        self._jobs: dict[Owner, _Known] = {}
        self._external_pods: dict[Owner | str, tuple[list[CapacityPod], PodUsage]] = {}
        """Pods of no participant, by node or by the job that is gone."""

    def build(
        self,
        jobs: Iterable[TrainingJob],
        pods: Iterable[CapacityPod],
        nodes: Iterable[CapacityNode],
        *,
        quotas: Iterable[CapacityQuota] = (),
        priorities: Mapping[str, Priority] | None = None,
        tenants: Mapping[str, str] | None = None,
        has_node_autoscaler: bool = False,
        now: datetime,
    ) -> ClusterSnapshot:
        """One snapshot; see `build_snapshot`."""
        if ((priorities or {}), (tenants or {})) != (self._priorities, self._tenant_of):
            self._forget_jobs()
            self._priorities, self._tenant_of = dict(priorities or {}), dict(tenants or {})
        own, others = _by_owner(pods)
        known: dict[Owner, _Known] = {}
        for job in sorted(jobs, key=_BY_KEY):
            owner = (*job.key, job.metadata.uid)
            known[owner] = self._job(owner, job, own.pop(owner, []), now)
        for owner in self._jobs.keys() - known.keys():
            self._node_usage.replace(self._jobs.pop(owner).usage, None)
        self._replace_external_pods([*others.items(), *own.items()])
        return ClusterSnapshot(
            nodes=self._node_usage.nodes(nodes, _host_ports(known.values())),
            participants=tuple(each.participant for each in known.values() if each.participant is not None),
            external_pods=external_pods(self._waiting()),
            quotas=_quotas(quotas, known.values()),
            tenants=self._tenants,
            options=replace(self._options, has_node_autoscaler=has_node_autoscaler),
        )

    @property
    def trainers(self) -> dict[ParticipantId, RolePods]:
        """The trainers of each participant of the last snapshot: the planner knows only their numbers."""
        return {
            known.participant.id: known.trainers
            for known in self._jobs.values()
            if known.participant is not None and known.trainers is not None
        }

    @property
    def changes_at(self) -> datetime | None:
        """When time alone changes the last snapshot (a cool-down ends, a pod has waited for long); None if never."""
        return min((known.until for known in self._jobs.values() if known.until is not None), default=None)

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def _forget_jobs(self) -> None:
        for known in self._jobs.values():
            self._node_usage.replace(known.usage, None)
        self._jobs.clear()

    def _job(self, owner: Owner, job: TrainingJob, pods: list[CapacityPod], now: datetime) -> _Known:
        old = self._jobs.get(owner)
        if old is not None and old.is_valid_for(job, pods, now):
            return old
        new = self._looked_at(job, pods, old, now)
        self._node_usage.replace(old.usage if old is not None else None, new.usage)
        self._jobs[owner] = new
        return new

    def _looked_at(self, job: TrainingJob, pods: list[CapacityPod], old: _Known | None, now: datetime) -> _Known:
        is_same_spec = old is not None and old.job.metadata.generation == job.metadata.generation and job.metadata.uid
        shapes = old.shapes if old is not None and is_same_spec else role_shapes(job)
        claim, until = claimed(job, pods, gpus=self._options.gpus, now=now)
        usage = PodUsage()
        if claim is None:
            usage.add_external_pods(pods, is_terminating=is_going(job) or is_eligible(job))
            return _Known(job, pods, now, until, shapes, usage)
        victims = victims_of(claim.record, job.ordered_replicas())
        standings = group_pods_by_role(pods, wanted_pods(claim), victims)
        observed = {role: observed_shape(shape, standings[role].kept) for role, shape in shapes.items()}
        sharer = ParticipantBuilder(claim, standings, observed)
        for standing in sharer.standings.values():
            usage.add_role(standing)
        # The job's controller does not delete pods of other roles, so that they are not about to leave (FD:SEC3-5).
        usage.add_external_pods(pod for pod in pods if pod.role not in ROLES)
        rest = cooldowns_of(claim, now, reservation_s=self._reservation_s)
        unplaced, until = sharer.unplaced(now)
        until = min((moment for moment in (rest.until, until) if moment is not None), default=None)
        tenant = self._tenant_of.get(job.key.namespace, "")
        participant = sharer.participant(self._priorities, rest, unplaced, tenant=tenant)
        trainers = sharer.standings[TRAINER]
        return _Known(job, pods, now, until, shapes, usage, participant, trainers, sharer.pods_to_create())

    # --- pods of other workloads ---------------------------------------------------------------------------------------

    def _replace_external_pods(self, pods_by_owner: Iterable[tuple[Owner | str, list[CapacityPod]]]) -> None:
        gone = set(self._external_pods)
        for owner, pods in pods_by_owner:
            gone.discard(owner)
            old = self._external_pods.get(owner)
            if old is None or old[0] != pods:
                usage = PodUsage()
                usage.add_external_pods(pods)
                self._node_usage.replace(old[1] if old is not None else None, usage)
                self._external_pods[owner] = pods, usage
        for owner in gone:
            self._node_usage.replace(self._external_pods.pop(owner)[1], None)

    def _waiting(self) -> Iterator[CapacityPod]:
        """Pods without a node, of other workloads and of jobs that do not take part now."""
        for known in self._jobs.values():
            yield from known.usage.waiting
        for _, usage in self._external_pods.values():
            yield from usage.waiting


def _host_ports(jobs: Iterable[_Known]) -> tuple[str, ...]:
    """The ports of nodes that pods of jobs take, in order; of more than MAX_HOST_PORTS the first ones: each counts on each node."""
    shapes = {id(shape): shape for job in jobs for shape in job.shapes.values()}
    names = {name for shape in shapes.values() for name in shape.requests if name.startswith(HOST_PORT)}
    return tuple(nsmallest(MAX_HOST_PORTS, names))


def _by_owner(pods: Iterable[CapacityPod]) -> tuple[dict[Owner, list[CapacityPod]], dict[str, list[CapacityPod]]]:
    """Pods owned by a job, by that job and its uid; and all others, by node."""
    own: dict[Owner, list[CapacityPod]] = {}
    others: dict[str, list[CapacityPod]] = {}
    for pod in pods:
        if pod.is_finished:
            continue
        if pod.job and pod.owner_uid:
            owner = pod.namespace, pod.job, pod.owner_uid
            if owner in own:
                own[owner].append(pod)
            else:
                own[owner] = [pod]
        elif pod.node in others:
            others[pod.node].append(pod)
        else:
            others[pod.node] = [pod]
    return own, others


def _quotas(quotas: Iterable[CapacityQuota], jobs: Iterable[_Known]) -> tuple[Quota, ...]:
    ordered = (
        Ordered(known.participant.id, priority_class_of(known.job, TRAINER), known.pods_to_create)
        for known in jobs
        if known.participant is not None
    )
    quotas = tuple(quotas)
    return quotas_left(quotas, ordered) if quotas else ()
