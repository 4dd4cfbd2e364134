"""Sharing passes until nothing changes: the sizes that jobs have once everything is quiet.

One pass plans for the pods as they are. Its result moves pods, ends cooldowns and lapses reservations, so that the next pass may
resize again. This module carries a plan out on the snapshot, as the operator, the jobs' controller and kube-scheduler would, and
plans again, with the time moved to the moment at which something changes. Assumed: pods terminate and start, new pods get the
node that the plan prefers and otherwise the one with the largest free share, no other client acts, and nothing fails. Bounded
by `MAX_PASSES` and `HORIZON`; pure and deterministic. Called by simulate.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Final, TypeAlias

from msgspec.structs import replace as with_fields

from raytide.api.capacity import CapacityNode, CapacityPod, Priority, priorities_of, priority_in, tenants_of
from raytide.api.config import SharingConfig
from raytide.api.meta import Key
from raytide.api.pod_requirements import PODS, PodConstraints
from raytide.api.sharing_record import core_nodes_of, placements_of, victims_of
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import ROLES, TRAINER
from raytide.api.trainingjob_pods import priority_of
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, ParticipantId, Resize
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.eligibility import is_eligible, is_going, job_demand
from raytide.fairshare.node_usage import NodeUsage, PodUsage
from raytide.fairshare.participants import id_of, wanted_pods
from raytide.fairshare.patch_plan import JobPatch, plan_patches
from raytide.fairshare.pod_placement import RolePods, group_pods_by_role
from raytide.fairshare.pod_requirements import role_shape
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.simulator.assumed_pods import assumed_pod
from raytide.simulator.inputs import PlanInputs, Submission
from raytide.simulator.quota_usage import QuotaUsage
from raytide.simulator.raycluster_pods import PodSet
from raytide.trainingjob.trainer_indices import planned_nodes

_Kind: TypeAlias = tuple[frozenset[tuple[str, int]], PodConstraints]

MAX_PASSES: Final = 40
HORIZON: Final = timedelta(days=1)
"""How far ahead passes are computed: cooldowns and reservations end sooner."""
TERMINATES_S: Final = 10.0
STARTS_S: Final = 5.0
"""Assumed time until a pod that was deleted is gone, and until a new one runs."""


@dataclass(frozen=True, slots=True)
class SharingPass:
    """One pass: its plan, and the trainers of the jobs when it was made."""

    allocation: Allocation
    trainers: Mapping[ParticipantId, RolePods] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes that resize a job, at least one, and the snapshots of the first and the last."""

    snapshot: ClusterSnapshot
    last: ClusterSnapshot
    objects: PlanInputs
    """After the last pass."""
    passes: tuple[SharingPass, ...]
    waiting_after: Allocation
    """The plan of the last pass, which may resize nothing: who waits then, and why."""
    is_quiet: bool = True
    """Whether the last pass changed nothing; False: there are more than `MAX_PASSES`."""

    @property
    def allocation(self) -> Allocation:
        """All resizes in their order, and who waits after the last one."""
        resizes = tuple(chain.from_iterable(each.allocation.resizes for each in self.passes))
        return replace(self.waiting_after, resizes=resizes)


def sizes_after(snapshot: ClusterSnapshot, allocation: Allocation) -> dict[ParticipantId, int]:
    """Size of every participant once the plan is carried out."""
    sizes = {participant.id: participant.current for participant in snapshot.participants}
    sizes.update((resize.id, resize.after) for resize in allocation.resizes)
    return sizes


def one_pass(inputs: PlanInputs, config: SharingConfig, now: datetime) -> Passes:
    """The next pass only."""
    builder = SnapshotBuilder(config)
    snapshot = _snapshot(builder, inputs, now)
    allocation = allocate(snapshot)
    return Passes(
        snapshot, snapshot, inputs, (SharingPass(allocation, builder.trainers),), allocation, not allocation.resizes
    )


def started(inputs: PlanInputs, submission: Submission, config: SharingConfig) -> PlanInputs:
    """The objects with the new ones, and the pods that their controllers create before a sharing pass includes them."""
    priorities = priorities_of(inputs.priority_classes)
    usage = QuotaUsage(inputs.quotas)
    created: list[CapacityPod] = []
    withheld: list[PodSet] = []
    for new in submission.objects:
        if isinstance(new, TrainingJob):
            pods = (each.pod for each in _pods_of(new, (), config.gpus, priorities))
            created += [pod for pod in pods if usage.create(pod, new)]
            continue
        for one in new.pods:
            priority = priority_in(priorities, one.priority_class).value
            prioritized = replace(one, pods=tuple(with_fields(pod, priority=priority) for pod in one.pods))
            if usage.create_together(prioritized):
                created += prioritized.pods
            else:
                withheld.append(prioritized)
    existing = [pod for pod in inputs.pods if pod.node and not pod.is_finished]
    scheduled = with_pending_scheduled(existing, created, inputs.nodes)
    return replace(
        inputs,
        jobs=(*inputs.jobs, *submission.jobs),
        pods=(*inputs.pods, *scheduled),
        quotas=usage.quotas,
        withheld=tuple(withheld),
    )


def passes_until_quiet(inputs: PlanInputs, config: SharingConfig, now: datetime) -> Passes:
    """The passes from now on, until nothing changes any more."""
    builder, moment, usage = SnapshotBuilder(config), now, QuotaUsage(inputs.quotas)
    first: ClusterSnapshot | None = None
    passes: list[SharingPass] = []
    for _ in range(MAX_PASSES):
        snapshot = _snapshot(builder, inputs, moment)
        first = first or snapshot
        allocation, trainers = allocate(snapshot), builder.trainers
        plan = plan_patches(
            inputs.jobs, snapshot, allocation, moment, trainers=trainers, reservation_s=config.reservation_s
        )
        written = _written(allocation, plan.patches)
        if written or not passes:
            passes.append(SharingPass(replace(allocation, resizes=written), trainers))
        rejected = frozenset(usage.rejected)
        inputs = _carried_out(inputs, plan.patches, config, usage, is_first=moment == now)
        changes_at = min((at for at in (builder.changes_at, plan.changes_at) if at is not None), default=None)
        if any(pod.is_terminating for pod in inputs.pods):
            inputs = _without_terminating_pods(inputs, usage)
            moment += timedelta(seconds=TERMINATES_S + config.settle_s)
        elif written or rejected - usage.rejected:
            moment += timedelta(seconds=STARTS_S + config.settle_s)
        elif changes_at is None or changes_at > now + HORIZON:
            return Passes(first, snapshot, inputs, tuple(passes), allocation)
        else:
            moment = max(moment, changes_at) + timedelta(seconds=config.settle_s)
    return Passes(first or snapshot, snapshot, inputs, tuple(passes), allocation, is_quiet=not written)


def _written(allocation: Allocation, patches: Iterable[JobPatch]) -> tuple[Resize, ...]:
    """The resizes that the patches write: not those into capacity that is still in use."""
    sized = {id_of(patch.job.key) for patch in patches if patch.grows_by}
    found = []
    for resize in allocation.resizes:
        if not resize.is_released:
            sized.discard(resize.id)
        elif resize.id in sized:
            found.append(resize)
    return tuple(found)


def _snapshot(builder: SnapshotBuilder, inputs: PlanInputs, now: datetime) -> ClusterSnapshot:
    return builder.build(
        inputs.jobs,
        inputs.pods,
        inputs.nodes,
        quotas=inputs.quotas,
        priorities=priorities_of(inputs.priority_classes),
        tenants=tenants_of(inputs.namespaces),
        now=now,
    )


# --- carrying out ----------------------------------------------------------------------------------------------------


def _carried_out(
    inputs: PlanInputs, patches: Iterable[JobPatch], config: SharingConfig, usage: QuotaUsage, *, is_first: bool
) -> PlanInputs:
    """The objects once the patches are written, and pods have followed the sizes.

    At first all jobs are looked at, because pods of any may be about to change; then those that were patched, and those with
    pods that a quota rejected.
    """
    patched = {each.job.key: _patched(each) for each in patches if _has_effect(each, config.gpus)}
    jobs = tuple(patched.get(job.key, job) for job in inputs.jobs)
    changed = [job for job in jobs if is_first or job.key in patched or job.key in usage.rejected]
    if not changed:
        return inputs
    usage.rejected.clear()
    pods = tuple(_followed(changed, inputs, config.gpus, usage))
    return replace(inputs, jobs=jobs, pods=pods, quotas=usage.quotas)


def _has_effect(patch: JobPatch, gpus: frozenset[str]) -> bool:
    """Whether the patch can change later passes: most are messages, and reading the job again for each would take long."""
    old, new = patch.job.record, patch.record
    notes = (new.waiting, old.waiting if old is not None else None)
    if patch.replicas is not None or any(note is not None and note.reserved_since for note in notes):
        return True
    if old is None:
        return is_gang(patch.job, gpus)
    return replace(new, waiting=None, at=None) != replace(old, waiting=None, at=None)


def _without_terminating_pods(inputs: PlanInputs, usage: QuotaUsage) -> PlanInputs:
    """The objects once terminating pods are gone, and pending ones have got what these used."""
    if inputs.quotas:
        jobs = {(job.key, job.metadata.uid): job for job in inputs.jobs}
        for pod in inputs.pods:
            job = jobs.get((pod.job_key, pod.owner_uid))
            if job is not None and pod.is_terminating and not pod.is_finished:
                usage.release(pod, job)
    left = [pod for pod in inputs.pods if not pod.is_terminating and not pod.is_finished]
    withheld = []
    for each in inputs.withheld:
        if usage.create_together(each):
            left += each.pods
        else:
            withheld.append(each)
    pods = tuple(with_pending_scheduled((), left, inputs.nodes))
    return replace(inputs, pods=pods, quotas=usage.quotas, withheld=tuple(withheld))


def with_pending_scheduled(
    existing: Iterable[CapacityPod], pods: Iterable[CapacityPod], nodes: Iterable[CapacityNode]
) -> Iterator[CapacityPod]:
    """The pods, pending ones last and on a node if they fit on one beside the existing ones."""
    placed, waiting = [], []
    for pod in pods:
        if pod.node or pod.is_scheduling_gated:
            placed.append(pod)
        else:
            waiting.append(_Pending(pod))
    yield from placed
    waiting.sort(key=lambda each: -each.pod.priority)
    yield from _scheduled(waiting, (*existing, *placed), nodes)


def _patched(patch: JobPatch) -> TrainingJob:
    """The job as the API server stores it after the patch."""
    raw, body = patch.job.raw, patch.patch("")
    generation = patch.job.metadata.generation + (patch.replicas is not None)
    annotations = {**(raw["metadata"].get("annotations") or {}), **body["metadata"]["annotations"]}
    metadata = {
        **raw["metadata"], "uid": patch.job.metadata.uid, "annotations": annotations, "generation": generation,
    }  # fmt: skip
    trainer = {**raw["spec"]["trainer"], **body.get("spec", {}).get("trainer", {})}
    return TrainingJob.parse({**raw, "metadata": metadata, "spec": {**raw["spec"], "trainer": trainer}})


@dataclass(frozen=True, slots=True)
class _Pending:
    """A pod without a node, and the node that it prefers."""

    pod: CapacityPod
    preferred: str = ""
    is_new: bool = False
    """Whether it does not exist yet."""


def _followed(
    jobs: Iterable[TrainingJob], inputs: PlanInputs, gpus: frozenset[str], usage: QuotaUsage
) -> Iterator[CapacityPod]:
    """All pods once the controllers of these jobs and kube-scheduler have acted; pending ones come last."""
    priorities = priorities_of(inputs.priority_classes)
    changed = {(job.key, job.metadata.uid): job for job in jobs if is_eligible(job) or is_going(job)}
    own: dict[tuple[Key, str], list[CapacityPod]] = {owner: [] for owner in changed}
    placed, waiting = [], []
    for pod in inputs.pods:
        owner = (pod.job_key, pod.owner_uid)
        if pod.is_finished:
            continue
        if pod.job and owner in own:
            own[owner].append(pod)
        elif pod.node or pod.is_scheduling_gated:
            placed.append(pod)
        else:
            waiting.append(_Pending(pod))
    for owner, job in changed.items():
        for each in _within_quotas(job, own[owner], tuple(_pods_of(job, own[owner], gpus, priorities)), usage):
            if each.pod.node:
                placed.append(each.pod)
            else:
                waiting.append(each)
    yield from placed
    waiting.sort(key=lambda each: -each.pod.priority)
    yield from _scheduled(waiting, placed, inputs.nodes)


def _within_quotas(
    job: TrainingJob, before: Sequence[CapacityPod], wanted: Sequence[_Pending], usage: QuotaUsage
) -> Iterator[_Pending]:
    """The wanted pods of a job without the new ones that a quota rejects."""
    left = {each.pod.name for each in wanted}
    for pod in before:
        if pod.name not in left:  # it had no node, so nothing has to terminate
            usage.release(pod, job)
    return (each for each in wanted if not each.is_new or usage.create(each.pod, job))


def _pods_of(
    job: TrainingJob, pods: Sequence[CapacityPod], gpus: frozenset[str], priorities: Mapping[str, Priority]
) -> Iterator[_Pending]:
    """The pods of a job at its size, new ones included; surplus ones are terminating, and so are all of a job that ends."""
    if is_going(job):
        yield from (_Pending(with_fields(pod, is_terminating=True)) for pod in pods if pod.node)
        return
    live = sum(pod.role == TRAINER and not pod.is_terminating for pod in pods)
    claim = job_demand(job, live_trainers=live, gpus=gpus)
    record, replicas = claim.record, job.ordered_replicas()
    standings = group_pods_by_role(pods, wanted_pods(claim), victims_of(record, replicas))
    if all(each.is_carried_out for each in standings.values()):
        yield from map(_Pending, pods)  # in their order, so that the next snapshot recognises them
        return
    yield from (_Pending(pod) for pod in pods if pod.role not in ROLES)
    for role, standing in standings.items():
        yield from (_Pending(pod) for pod in standing.kept)
        yield from (_Pending(with_fields(pod, is_terminating=True)) for pod in standing.released if pod.node)
        missing = standing.pods_to_create
        if not missing:
            continue
        if role == TRAINER:
            nodes = planned_nodes(placements_of(record, replicas), missing)
        else:
            nodes = list(chain.from_iterable(repeat(*each) for each in core_nodes_of(record, replicas, role).items()))
        taken = {pod.index for pod in (*standing.kept, *standing.released)}
        free = (index for index in range(len(taken) + missing) if index not in taken)
        shape, priority = role_shape(job, role), priority_of(job, role, priorities)
        for index, node in zip(range(missing), chain(nodes, repeat("")), strict=False):
            pod = assumed_pod(job, role, next(free), shape)
            preferred = node if index < len(nodes) else ""
            yield _Pending(with_fields(pod, priority=priority.value), preferred, is_new=True)


# --- kube-scheduler --------------------------------------------------------------------------------------------------


def _kind(pod: CapacityPod) -> _Kind:
    """Equal for pods that fit on the same nodes."""
    return frozenset(pod.requests.items()), pod.constraints


class _Scheduler:
    """What is free on each usable node, and the choice of a node."""

    def __init__(self, placed: Iterable[CapacityPod], nodes: Iterable[CapacityNode]) -> None:
        """`placed`: the pods that use nodes, terminating ones included."""
        usage, used = PodUsage(), NodeUsage()
        usage.add_external_pods(placed)
        used.replace(None, usage)
        self._nodes = {node.name: node for node in used.nodes(nodes) if node.is_usable}
        self._free = {
            node.name: {name: amount - node.used.get(name, 0) for name, amount in node.allocatable.items()}
            for node in self._nodes.values()
        }

    def fits(self, pod: CapacityPod, node: str) -> bool:
        """Whether the pod may run there and fits."""
        if node not in self._nodes:
            return False
        free = self._free[node]
        unlimited = PODS if PODS not in free else ""
        return all(
            free.get(name, 0) >= amount for name, amount in pod.requests.items() if name != unlimited
        ) and admits(self._nodes[node], pod.constraints)

    def choose(self, pod: CapacityPod, preferred: str) -> str:
        """The preferred node if it fits there, else the one with the largest free share; empty if it fits on none."""
        if self.fits(pod, preferred):
            return preferred
        fitting = (name for name in self._nodes if self.fits(pod, name))
        return min(fitting, key=lambda name: (-self._free_share(pod, name), name), default="")

    def bind(self, pod: CapacityPod, node: str) -> CapacityPod:
        """The pod on that node, where it runs."""
        free = self._free[node]
        for name, amount in pod.requests.items():
            if name in free:
                free[name] -= amount
        return with_fields(pod, node=node, is_running=True, is_ready=True, is_unschedulable=False)

    def _free_share(self, pod: CapacityPod, node: str) -> float:
        """As kube-scheduler's strategy LeastAllocated scores nodes."""
        free, allocatable = self._free[node], self._nodes[node].allocatable
        return sum(
            (free[name] - pod.requests.get(name, 0)) / allocatable[name]
            for name in ("cpu", "memory")
            if allocatable.get(name)
        )


def _scheduled(
    waiting: Iterable[_Pending], placed: Iterable[CapacityPod], nodes: Iterable[CapacityNode]
) -> Iterator[CapacityPod]:
    """The pending pods in their order, each on a node if it fits on one."""
    waiting = tuple(waiting)
    if not waiting:
        return
    scheduler = _Scheduler(placed, nodes)
    rejected: set[_Kind] = set()
    for each in waiting:
        kind = _kind(each.pod)
        node = "" if kind in rejected else scheduler.choose(each.pod, each.preferred)
        if node:
            yield scheduler.bind(each.pod, node)
        else:
            rejected.add(kind)
            yield with_fields(each.pod, is_unschedulable=True)
