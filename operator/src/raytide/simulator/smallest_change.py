"""The smallest change of one workload that lets another one have the pods that it lacks.

Takes the objects of a cluster, the workload, and who holds what it lacks. For each holder it looks for the largest size with which
the workload gets its pods, for a job below its minimum also for the largest minimum that there is capacity for, and for the fewest
more nodes like the largest one. Each change is
carried out in the simulation first: the RayCluster controller's own plan says which pods end, the sharing passes and kube-scheduler
follow until nothing changes (passes.py), and pods of equal priority that wait as well get their nodes first. What does not let the
workload start in the simulation is not returned. Pure; called by client/explained.py (FD:UX3-1).
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from math import ceil
from typing import Final

from msgspec.structs import replace as with_fields

from raytide.api import constants
from raytide.api.actions import Delete
from raytide.api.capacity import CapacityNode, CapacityPod
from raytide.api.config import SharingConfig
from raytide.api.meta import PODS, Key, Manifest
from raytide.api.pod import PodView
from raytide.api.pod_requirements import Amounts
from raytide.api.quantity import MAX_INT32
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import TRAINER
from raytide.explain import messages
from raytide.explain.explain import with_blockers, with_notes
from raytide.explain.holders import owner_of, pending, usable_nodes
from raytide.explain.model import NODE, RAYCLUSTER, TRAININGJOB, Change, Effect, Explanation, Field, Need, Shortage
from raytide.fairshare.algorithm.model import CAPACITY_RESERVED, Allocation, ParticipantId
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.pod_requirements import role_shape
from raytide.raycluster.desired_replicas import clamp_replicas
from raytide.raycluster.observed import observe
from raytide.raycluster.plan import plan
from raytide.raycluster.spec_queries import is_managed_by_us
from raytide.raycluster.suspension import Suspension, suspension_of
from raytide.simulator.donor_notes import donor_notes
from raytide.simulator.inputs import PlanInputs
from raytide.simulator.passes import Passes, passes_until_quiet, sizes_after, with_pending_scheduled
from raytide.simulator.raycluster_pods import CONFIG
from raytide.trainingjob.validation import violations

MAX_CHANGES: Final = 3
MAX_EFFECTS: Final = 20
MAX_NEW_NODES: Final = 8
HOSTNAME: Final = "kubernetes.io/hostname"
MAX_SIMULATIONS: Final = 16
MAX_WORK: Final = 150_000
"""Of all simulations of one answer: five for a pod, one for a TrainingJob and a node. It takes half a second."""
_WORK_OF_POD: Final = 5


@dataclass(frozen=True, slots=True)
class RayClusterPods:
    """A RayCluster that holds capacity, with its pods."""

    cluster: RayCluster
    pods: tuple[PodView, ...]


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A workload that lacks pods for want of capacity."""

    kind: str
    key: Key
    needs: tuple[Need, ...] = ()
    """Pods that it lacks."""
    goal: int = 0
    """Trainers with which a TrainingJob has what it lacks: its minimum, or one more than it has."""
    is_below_minimum: bool = False


@dataclass(frozen=True, slots=True)
class _Option:
    """A change that is not verified yet."""

    change: Change
    """With the present size as `before`."""
    low: int
    """The smallest size that is allowed."""
    high: int
    """The largest size that might do: the requests of what is given up are as large as what is missing."""
    apply: Callable[[PlanInputs, int], PlanInputs]
    """The objects with that size."""


def with_fixes(
    explanation: Explanation,
    inputs: PlanInputs,
    clusters: Iterable[RayClusterPods],
    *,
    config: SharingConfig,
    now: datetime,
) -> Explanation:
    """The explanation with the changes that let the workload start, that of the fewest pods first, and what fair sharing takes of whom.

    There are no changes if none would do, or if it starts without one. `clusters`: the RayClusters among the holders.
    """
    short = next((each.shortages for each in explanation.blockers if each.shortages), ())
    is_reserved = any(each.reason == CAPACITY_RESERVED for each in explanation.blockers)
    if not (short or is_reserved) or any(each.is_impossible for each in short):
        return explanation
    lacking = _lacking(explanation, inputs)
    jobs = tuple(job for job in inputs.jobs if not violations(job))
    valid = replace(inputs, jobs=jobs, pods=_served_last(inputs.pods, lacking))
    simulation = _Simulation(lacking, valid, config, now)
    if simulation.before is None:
        return replace(explanation, notes=(*explanation.notes, messages.TOO_LARGE_TO_SIMULATE))
    found = with_notes(explanation, donor_notes(simulation.before.snapshot, (lacking.kind, *lacking.key)))
    found = _with_names(found, simulation.before.passes[0].allocation)
    if simulation.is_enough or not short:
        return found
    changes: dict[tuple[str, str, str], Change] = {}
    for option in (*_of_jobs(valid, short, lacking), *_of_clusters(clusters, valid, short, now)):
        holder = (option.change.kind, option.change.namespace, option.change.name)
        known, is_last_resort = changes.get(holder), option.change.field is Field.SUSPEND
        change = None if known is not None and is_last_resort else simulation.smallest(option)
        if change is not None and (known is None or _size(change) < _size(known)):
            changes[holder] = change
    notes = (messages.NO_FIX,) if not changes and simulation.can_run else ()
    best = sorted(changes.values(), key=_size)[:MAX_CHANGES]
    more_nodes = simulation.more_nodes(short)
    if more_nodes is not None:
        best.append(more_nodes)
    return replace(found, changes=tuple(best), notes=(*found.notes, *notes))


def _with_names(explanation: Explanation, allocation: Allocation) -> Explanation:
    """The explanation with the job that capacity is held for: the status names none of another namespace, to the caller it may be named."""
    id_ = ParticipantId(explanation.kind, explanation.namespace, explanation.name)
    waiting = next((each for each in allocation.waiting if each.id == id_ and each.full_holder), None)
    if waiting is None:
        return explanation
    blockers = tuple(
        replace(each, message=waiting.full_message, holder=waiting.full_holder)
        if each.reason == waiting.reason
        else each
        for each in explanation.blockers
    )
    return with_blockers(explanation, blockers)


def _size(change: Change) -> tuple[bool, int, bool]:
    """By how many pods of others end; a change of the workload itself, and more nodes, come last."""
    ends = change.after if change.ends_no_pods else change.effects[1].without - change.effects[1].having
    return change.ends_no_pods, ends, change.field is Field.SUSPEND


def _lacking(explanation: Explanation, inputs: PlanInputs) -> _Lacking:
    key = Key(explanation.namespace, explanation.name)
    needs = tuple(pending(inputs, explanation.kind, *key))
    job = next((job for job in inputs.jobs if job.key == key), None) if explanation.kind == TRAININGJOB else None
    if job is None:
        return _Lacking(explanation.kind, key, needs)
    minimum, trainers = job.spec.trainer.min_instance, _trainers(inputs, key)
    needs = needs or (Need(role_shape(job, TRAINER), 1),)
    return _Lacking(TRAININGJOB, key, needs, max(minimum, trainers + 1), trainers < minimum)


def _served_last(pods: Iterable[CapacityPod], lacking: _Lacking) -> tuple[CapacityPod, ...]:
    """The pods of the workload last: in which order kube-scheduler tries pods of equal priority is not known."""
    return tuple(sorted(pods, key=lambda pod: owner_of(pod) == (lacking.kind, *lacking.key)))


# --- simulation --------------------------------------------------------------------------------------------------------


class _Simulation:
    """Runs of the simulator for one workload, at most as many as the size of the cluster allows."""

    def __init__(self, lacking: _Lacking, inputs: PlanInputs, config: SharingConfig, now: datetime) -> None:
        self._lacking, self._inputs, self._config, self._now = lacking, inputs, config, now
        work = len(inputs.pods) * _WORK_OF_POD + len(inputs.jobs) * len(inputs.nodes)
        self._left = min(MAX_SIMULATIONS, MAX_WORK // max(1, work))
        self.before: Final = self._run(inputs)
        self.is_enough: Final = self.before is not None and self._has_started(self.before, lacking)
        """Whether the workload starts without any change."""

    @property
    def can_run(self) -> bool:
        """Whether all that was asked for was simulated."""
        return self._left > 0

    def smallest(self, option: _Option) -> Change | None:
        """The change at the largest size with which the workload starts."""
        low, high = option.low, option.high
        if low > high:
            return None
        best, after = high, self._at(option, high)
        if after is None and low < high and (after := self._at(option, low)) is not None:
            best, high = low, high - 1
            while best < high:
                middle = (best + high + 1) // 2
                found = self._at(option, middle)
                if found is None:
                    high = middle - 1
                else:
                    best, after = middle, found
        if after is None:
            return None
        lowers_minimum = option.change.minimum > best
        return replace(
            option.change, after=best, lowers_minimum=lowers_minimum, effects=self._effects(option.change, after)
        )

    def more_nodes(self, short: Sequence[Shortage]) -> Change | None:
        """The fewest nodes like the largest one where the pods may run with which the workload starts."""
        constraints = {need.pod.constraints for need in self._lacking.needs}
        usable = usable_nodes(self._inputs)
        admitting = {node.name for node in usable if all(admits(node, each) for each in constraints)}
        nodes = [node for node in self._inputs.nodes if node.name in admitting and not node.is_too_large]
        names = [each.resource for each in short]
        model = max(
            nodes, key=lambda node: (*(node.allocatable.get(name, 0) for name in names), node.name), default=None
        )
        if model is None:
            return None
        change = Change(NODE, "", model.name, Field.NODES, 0)
        option = _Option(change, 1, MAX_NEW_NODES, partial(_with_nodes, model))
        low, size, after = 0, 1, self._at(option, 1)
        while after is None and size < MAX_NEW_NODES:
            low, size = size, 2 * size
            after = self._at(option, size)
        if after is None:
            return None
        while low + 1 < size:
            middle = (low + size) // 2
            found = self._at(option, middle)
            if found is None:
                low = middle
            else:
                size, after = middle, found
        return replace(change, after=size, effects=self._effects(change, after))

    def _at(self, option: _Option, size: int) -> Passes | None:
        """The passes after that change, if the workload starts."""
        after = self._run(option.apply(self._inputs, size)) if self._left else None
        is_own = option.change.field is Field.MIN_INSTANCE
        lacking = replace(self._lacking, goal=size) if is_own else self._lacking
        return after if after is not None and self._has_started(after, lacking) else None

    def _run(self, inputs: PlanInputs) -> Passes | None:
        if not self._left:
            return None
        self._left -= 1
        return passes_until_quiet(inputs, self._config, self._now)

    def _has_started(self, after: Passes, lacking: _Lacking) -> bool:
        if not after.is_quiet:
            return False
        if lacking.kind == RAYCLUSTER:
            return not pending(after.objects, RAYCLUSTER, *lacking.key)
        pods = _pods_of(after.objects, TRAININGJOB, lacking.key)
        others_wait = any(not pod.node for pod in pods if pod.role != TRAINER)
        return not others_wait and _trainers(after.objects, lacking.key) >= lacking.goal

    def _effects(self, change: Change, after: Passes) -> tuple[Effect, ...]:
        return tuple(islice(self._all_effects(change, after), MAX_EFFECTS))

    def _all_effects(self, change: Change, after: Passes) -> Iterator[Effect]:
        """The workload, the one that is changed, then those that have another size because of it: before are the sizes of now."""
        lacking, changed = self._lacking, Key(change.namespace, change.name)
        of_lacking = [_instances(each, lacking.kind, lacking.key) for each in (self._inputs, after.objects)]
        yield Effect(lacking.kind, *lacking.key, *of_lacking)
        if not change.ends_no_pods:
            yield Effect(
                change.kind,
                *changed,
                *(_instances(each, change.kind, changed) for each in (self._inputs, after.objects)),
            )
        if self.before is None:
            return
        without, having = (sizes_after(each.snapshot, each.allocation) for each in (self.before, after))
        now_by_job = _trainers_by_job(self._inputs)
        for id_, number in sorted(without.items()):
            key, then = Key(id_.namespace, id_.name), having.get(id_, number)
            if then not in (number, now_by_job[key]) and key not in (lacking.key, changed):
                yield Effect(id_.kind, *key, now_by_job[key], then)
        now_by_cluster, *clusters = (
            _workers_by_cluster(each) for each in (self._inputs, self.before.objects, after.objects)
        )
        for key in sorted(clusters[0].keys() | clusters[1].keys()):
            without_it, then = (each[key] for each in clusters)
            is_other = (RAYCLUSTER, key) not in ((lacking.kind, lacking.key), (change.kind, changed))
            if is_other and then not in (without_it, now_by_cluster[key]):
                yield Effect(RAYCLUSTER, *key, now_by_cluster[key], then)


def _pods_of(inputs: PlanInputs, kind: str, key: Key) -> list[CapacityPod]:
    return [
        pod for pod in inputs.pods if owner_of(pod) == (kind, *key) and not pod.is_terminating and not pod.is_finished
    ]


def _trainers(inputs: PlanInputs, key: Key) -> int:
    return sum(bool(pod.node) and pod.role == TRAINER for pod in _pods_of(inputs, TRAININGJOB, key))


def _trainers_by_job(inputs: PlanInputs) -> Counter[Key]:
    """Trainers of each TrainingJob that have a node."""
    return Counter(
        pod.job_key
        for pod in inputs.pods
        if pod.job and pod.node and pod.role == TRAINER and not (pod.is_terminating or pod.is_finished)
    )


def _workers_by_cluster(inputs: PlanInputs) -> Counter[Key]:
    """Workers of each RayCluster that have a node."""
    return Counter(
        Key(pod.namespace, pod.cluster)
        for pod in inputs.pods
        if pod.cluster and pod.node and pod.role != constants.HEAD and not (pod.is_terminating or pod.is_finished)
    )


def _instances(inputs: PlanInputs, kind: str, key: Key) -> int:
    """Workers of a RayCluster, or trainers of a TrainingJob, that have a node."""
    if kind == TRAININGJOB:
        return _trainers(inputs, key)
    return sum(bool(pod.node) and pod.role != constants.HEAD for pod in _pods_of(inputs, kind, key))


# --- nodes ---------------------------------------------------------------------------------------------------------------


def _with_nodes(model: CapacityNode, inputs: PlanInputs, number: int) -> PlanInputs:
    """The objects with so many more nodes like that one, and pods that waited for them there."""
    names = [f"{model.name}-{index}-new" for index in range(number)]
    new = (
        with_fields(
            model, name=name, labels={**model.labels, HOSTNAME: name} if HOSTNAME in model.labels else model.labels
        )
        for name in names
    )
    nodes = (*inputs.nodes, *new)
    return replace(inputs, nodes=nodes, pods=tuple(with_pending_scheduled((), inputs.pods, nodes)))


# --- RayClusters -------------------------------------------------------------------------------------------------------


def _of_clusters(
    clusters: Iterable[RayClusterPods], inputs: PlanInputs, short: Sequence[Shortage], now: datetime
) -> Iterator[_Option]:
    """A smaller size of each group whose pods request what is missing, or the suspension of the whole RayCluster."""
    by_name = {(pod.namespace, pod.name): pod for pod in inputs.pods if pod.cluster}
    for each in clusters:
        cluster, pods = each.cluster, len(each.pods)
        if not is_managed_by_us(cluster.spec.managed_by) or suspension_of(cluster) is not Suspension.NONE:
            continue
        for index, group in enumerate(cluster.spec.worker_group_specs):
            of_group = sorted(
                (pod for pod in each.pods if pod.group == group.group_name),
                key=lambda pod: (pod.replica_name, pod.name),
            )
            found = by_name.get((cluster.key.namespace, of_group[0].name)) if of_group else None
            if group.suspend or found is None:
                continue
            hosts, low = max(1, group.num_of_hosts), group.min_replicas or 0
            given_up = _least({name: amount * hosts for name, amount in found.requests.items()}, short)
            name = group.group_name if len(cluster.spec.worker_group_specs) > 1 else ""
            if not cluster.is_autoscaled:
                size = clamp_replicas(group)
                change = Change(RAYCLUSTER, *cluster.key, Field.REPLICAS, size, group=name)
                yield _Option(change, low, size - given_up, partial(_group_at, each, group, now))
                continue
            size = len(of_group) // hosts
            change = Change(RAYCLUSTER, *cluster.key, Field.MAX_REPLICAS, size, group=name, group_index=index)
            is_one_node = len({pod.node_name for pod in of_group}) == 1
            high = size - given_up if is_one_node else min(0, size - given_up)
            yield _Option(change, low, high, partial(_some_of, each, of_group, hosts))
        yield _Option(Change(RAYCLUSTER, *cluster.key, Field.SUSPEND, pods), 0, 0, partial(_cluster_suspended, each))


def _cluster_suspended(of: RayClusterPods, inputs: PlanInputs, _: int) -> PlanInputs:
    return _ending(inputs, of.cluster.key, {pod.name for pod in of.pods})


def _some_of(of: RayClusterPods, pods: Sequence[PodView], hosts: int, inputs: PlanInputs, size: int) -> PlanInputs:
    """The objects while the workers beyond that size terminate: Ray's autoscaler chooses which, so that it must not matter."""
    return _ending(inputs, of.cluster.key, {pod.name for pod in pods[size * hosts :]})


def _group_at(of: RayClusterPods, group: WorkerGroupSpec, now: datetime, inputs: PlanInputs, size: int) -> PlanInputs:
    """The objects while the pods terminate that the RayCluster controller deletes at that size of the group."""
    spec = of.cluster.spec
    groups = [each.model_copy(update={"replicas": size}) if each is group else each for each in spec.worker_group_specs]
    changed = of.cluster.model_copy(update={"spec": spec.model_copy(update={"worker_group_specs": groups})})
    observed = observe(changed.metadata.uid, pods=of.pods, services=(), seen_at=now)
    actions = plan(changed, observed, CONFIG, str).actions
    names = {each.name for each in actions if isinstance(each, Delete) and each.resource is PODS}
    return _ending(inputs, of.cluster.key, names)


def _ending(inputs: PlanInputs, key: Key, names: Container[str]) -> PlanInputs:
    """The objects while these pods of a RayCluster terminate."""

    def is_ending(pod: CapacityPod) -> bool:
        return pod.namespace == key.namespace and pod.cluster == key.name and pod.name in names

    pods = (with_fields(pod, is_terminating=True) if is_ending(pod) else pod for pod in inputs.pods)
    return replace(inputs, pods=tuple(pods))


# --- TrainingJobs ------------------------------------------------------------------------------------------------------


def _of_jobs(inputs: PlanInputs, short: Sequence[Shortage], lacking: _Lacking) -> Iterator[_Option]:
    """A smaller minimum of the job itself; a smaller maximum of each job that holds what is missing, or its suspension."""
    jobs = {job.key: job for job in inputs.jobs}
    own = jobs.get(lacking.key) if lacking.kind == TRAININGJOB and lacking.is_below_minimum else None
    if own is not None:
        minimum = own.spec.trainer.min_instance
        change = Change(TRAININGJOB, *lacking.key, Field.MIN_INSTANCE, minimum)
        given_up = _least(role_shape(own, TRAINER).requests, short)
        yield _Option(change, 1, minimum - given_up, partial(_job_at_minimum, own))
    holders = {Key(one.namespace, one.name) for each in short for one in each.holders if one.kind == TRAININGJOB}
    for key in sorted(holders - {lacking.key}):
        job = jobs.get(key)
        if job is None:
            continue
        size, pods = _trainers(inputs, key), len(_pods_of(inputs, TRAININGJOB, key))
        change = Change(TRAININGJOB, *key, Field.MAX_INSTANCE, size, minimum=job.spec.trainer.min_instance)
        given_up = _least(role_shape(job, TRAINER).requests, short)
        yield _Option(change, 1, size - given_up, partial(_job_at_maximum, job))
        yield _Option(Change(TRAININGJOB, *key, Field.SUSPEND, pods), 0, 0, partial(_job_suspended, job))


def _job_suspended(job: TrainingJob, inputs: PlanInputs, _: int) -> PlanInputs:
    return _edited(inputs, job, {"suspend": True}, {})


def _job_at_maximum(job: TrainingJob, inputs: PlanInputs, size: int) -> PlanInputs:
    return _edited(inputs, job, {}, {"max-instance": size, "min-instance": min(size, job.spec.trainer.min_instance)})


def _job_at_minimum(job: TrainingJob, inputs: PlanInputs, size: int) -> PlanInputs:
    return _edited(inputs, job, {}, {"min-instance": size})


def _edited(inputs: PlanInputs, job: TrainingJob, fields: Manifest, trainer: Manifest) -> PlanInputs:
    """The objects with these fields of the job's spec, and of its trainers, as a user would write them."""
    raw = job.raw
    spec = {**raw["spec"], **fields, "trainer": {**raw["spec"]["trainer"], **trainer}}
    metadata = {**raw["metadata"], "generation": job.metadata.generation + 1}
    edited = TrainingJob.parse({**raw, "metadata": metadata, "spec": spec})
    return replace(inputs, jobs=tuple(edited if each is job else each for each in inputs.jobs))


def _least(requests: Amounts, short: Sequence[Shortage]) -> int:
    """How many instances with these requests have at least what is missing; more than there are if they have none of it."""
    return max(
        1,
        *(
            ceil(each.missing / amount) if (amount := requests.get(each.resource, 0)) else MAX_INT32
            for each in short
            if each.missing
        ),
    )
