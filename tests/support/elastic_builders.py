"""Pools for tests of the planner, and a small cluster in which its plans are carried out.

`shape`, `node`, `job`, `quota`, `pod of another workload` make the nouns of fairshare/algorithm/model.py with the field's usual numbers (CPUs, not
thousandths). A `World` holds every pod by itself: `pool()` is the snapshot a planner gets, `carried_out(division)` the next
world, with shrunk pods gone and new ones placed by a scheduler that knows nothing of the planner's placement.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from raytide.api.pod_requirements import CPU, PODS, Amounts, NodeRequirement, PodConstraints, PodToleration
from raytide.api.tenants import Tenant
from raytide.fairshare.algorithm.model import (
    MEMORY,
    Allocation,
    AllocationOptions,
    ClusterSnapshot,
    Companion,
    Core,
    ExternalPods,
    Node,
    Participant,
    ParticipantId,
    Quota,
    Shape,
    Taint,
)
from raytide.fairshare.algorithm.participant_state import allowed_size

GPU = "nvidia.com/gpu"
KIND = "TrainingJob"


# --- nouns -------------------------------------------------------------------------------------------------------------


def amounts(cpu: float = 0, memory: int = 0, gpu: int = 0, pods: int = 0, **more: int) -> dict[str, int]:
    """CPUs, bytes, GPUs and pods; what is zero is left out."""
    given = {CPU: round(cpu * 1000), MEMORY: memory, GPU: gpu, PODS: pods, **more}
    return {name: amount for name, amount in given.items() if amount}


def shape(
    cpu: float = 1, *, gpu: int = 0, memory: int = 0, limits: Mapping[str, int] | None = None, **where: Any
) -> Shape:
    """One pod; `limits` default to its requests, `where` are fields of Constraints."""
    requests = amounts(cpu, memory, gpu, 1)
    room = {name: amount for name, amount in requests.items() if name != PODS} if limits is None else limits
    return Shape(requests, dict(room), PodConstraints(**where))


def node(
    name: str = "node-1", *, cpu: float = 0, gpu: int = 0, memory: int = 1 << 40, pods: int = 110, **more: Any
) -> Node:
    """One node; by default more memory than all jobs request. `used` is what pods of other workloads have there."""
    return Node(name, amounts(cpu, memory, gpu, pods), **more)


def id_of(name: str, namespace: str = "default") -> ParticipantId:
    """A TrainingJob's."""
    return ParticipantId(KIND, namespace, name)


def job(
    name: str,
    floor: int,
    ceiling: int,
    current: int = 0,
    *,
    cpu: float = 1,
    gpu: int = 0,
    memory: int = 0,
    namespace: str = "default",
    **more: Any,
) -> Participant:
    """A participant; by default a gang exactly if it requests GPUs."""
    more.setdefault("shape", shape(cpu, gpu=gpu, memory=memory))
    more.setdefault("is_gang", gpu > 0)
    more.setdefault("created_at", "2026-01-01T00:00:00Z")
    return Participant(id=id_of(name, namespace), floor=floor, ceiling=ceiling, current=current, **more)


def companion(per: int, floor: int, ceiling: int, *, cpu: float = 1, current: int = 0) -> Companion:
    """Parameter servers that come with the trainers."""
    return Companion(shape(cpu), per=per, floor=floor, ceiling=ceiling, current=current)


def master(cpu: float = 1, *, count: int = 1) -> Core:
    """A core of one shape."""
    return Core("master", shape(cpu), count)


def external_pod(cpu: float = 1, *, count: int = 1, gpu: int = 0, **more: Any) -> ExternalPods:
    """External pods without a node."""
    return ExternalPods(shape(cpu, gpu=gpu), count, **{"name": "web/pod", **more})


def quota(namespace: str = "default", **free: int) -> Quota:
    """What one ResourceQuota still allows."""
    return Quota(namespace, "quota", free)


def added(*many: Amounts) -> dict[str, int]:
    """The sum, resource by resource."""
    total: dict[str, int] = {}
    for one in many:
        _add_to(total, one)
    return total


def _add_to(total: dict[str, int], one: Amounts) -> None:
    for name, amount in one.items():
        total[name] = total.get(name, 0) + amount


def times(one: Amounts, count: int) -> dict[str, int]:
    """So many times as much."""
    return {name: amount * count for name, amount in one.items()}


# --- where a pod may go: written a second time, so that the planner is not its own judge ----------------------------------


def may_run_on(there: Node, wanted: Shape) -> bool:
    """Whether the node is usable, its taints are tolerated and its labels are as required."""
    where = wanted.constraints
    return (
        there.is_usable
        and all(any(_tolerates(one, taint) for one in where.tolerations) for taint in there.taints if _repels(taint))
        and all(there.labels.get(key) == value for key, value in where.node_selector)
        and (not where.terms or any(term and all(_meets(there, one) for one in term) for term in where.terms))
    )


def _repels(taint: Taint) -> bool:
    return taint.effect in {"NoSchedule", "NoExecute"}


def _tolerates(one: PodToleration, taint: Taint) -> bool:
    if one.effect and one.effect != taint.effect:
        return False
    if not one.key:
        return one.operator == "Exists"
    return one.key == taint.key and (one.operator == "Exists" or one.value == taint.value)


def _meets(there: Node, requirement: NodeRequirement) -> bool:
    labels = {"metadata.name": there.name} if requirement.is_field else there.labels
    label = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return label in requirement.values
        case "NotIn":
            return label not in requirement.values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt":
            return label is not None and int(label) > int(*requirement.values)
        case "Lt":
            return label is not None and int(label) < int(*requirement.values)
    raise ValueError(requirement.operator)


def has_capacity(free: Amounts, wanted: Amounts) -> bool:
    """Whether all of it is there."""
    return all(free.get(name, 0) >= amount for name, amount in wanted.items())


Rooms = dict[str, dict[str, int]]
"""Node -> what is free there."""

SEARCHED = 20_000
"""Placements tried before the search gives up."""


class TooManyPlacementsError(Exception):
    """Whether it fits is not known."""


def placement_of(nodes: Sequence[Node], free: Rooms, pods: Sequence[Shape]) -> list[str] | None:
    """Some placement of all of them, found by trying every one; None: there is none."""
    order = sorted(range(len(pods)), key=lambda i: sorted(pods[i].requests.items()), reverse=True)
    chosen: dict[int, str] = {}
    tried = 0

    def search(depth: int) -> bool:
        nonlocal tried
        if depth == len(order):
            return True
        wanted = pods[order[depth]]
        is_like_last = depth > 0 and pods[order[depth - 1]] == wanted
        first = chosen[order[depth - 1]] if is_like_last else ""  # of equal pods, later ones are never further ahead
        for there in nodes:
            room = free[there.name]
            if there.name < first or not may_run_on(there, wanted) or not has_capacity(room, wanted.requests):
                continue
            tried += 1
            if tried > SEARCHED:
                raise TooManyPlacementsError
            chosen[order[depth]] = there.name
            free[there.name] = added(room, times(wanted.requests, -1))
            if search(depth + 1):
                return True
            free[there.name] = room
        chosen.pop(order[depth], None)
        return False

    return [chosen[i] for i in range(len(pods))] if search(0) else None


# --- a cluster of pods -----------------------------------------------------------------------------------------------------


@dataclass
class Pods:
    """The pods of one job: for each its node, or nothing; trainers and companions in the order of their index."""

    job: Participant
    trainers: list[str] = field(default_factory=list)
    companions: list[str] = field(default_factory=list)
    cores: dict[str, list[str]] = field(default_factory=dict)

    def lists(self) -> list[tuple[Shape, list[str]]]:
        """The pods of each shape: cores first, then companions, then trainers."""
        found = [(core.shape, self.cores[core.name]) for core in self.job.core]
        if self.job.companion:
            found.append((self.job.companion.shape, self.companions))
        return [*found, (self.job.shape, self.trainers)]

    def all(self) -> list[tuple[Shape, list[str], int]]:
        """Every pod as (shape, the list it is in, its place there), in the order of `lists`."""
        return [(wanted, where, i) for wanted, where in self.lists() for i in range(len(where))]

    def places(self) -> list[tuple[str, Shape]]:
        """Node and shape of every pod that has a node."""
        return [(name, wanted) for wanted, where in self.lists() for name in where if name]

    @property
    def is_waiting(self) -> bool:
        """Whether some pod has no node."""
        return any("" in where for _, where in self.lists())

    def copy(self) -> "Pods":
        return Pods(self.job, list(self.trainers), list(self.companions), {k: list(v) for k, v in self.cores.items()})


class LeavingPod(NamedTuple):
    """A terminating pod: its node, what it requests, and the namespace whose quotas it counts against; empty: none."""

    node: str
    shape: Shape
    namespace: str = ""


class World:
    """Nodes and the pods of jobs; whatever has no node is given one where some placement of first comers exists."""

    def __init__(
        self,
        nodes: Iterable[Node],
        jobs: Iterable[Participant] = (),
        *,
        external_pods: Iterable[ExternalPods] = (),
        quotas: Iterable[Quota] = (),
        options: AllocationOptions | None = None,
        tenants: Iterable[Tenant] = (),
    ) -> None:
        self.tenants = tuple(tenants)
        self.nodes = tuple(nodes)
        self.external_pods = tuple(external_pods)
        self.quotas = tuple(quotas)
        self.options = options or AllocationOptions()
        self.leaving: tuple[LeavingPod, ...] = ()
        self.unsettled: frozenset[ParticipantId] = frozenset()
        """Whose pods are leaving."""
        """Terminating pods."""
        self.jobs: dict[ParticipantId, Pods] = {}
        free = self.rooms()
        for one in jobs:  # what did not fit before a job came does not fit after it
            self._put(one)
            self._bind([one.id], free)

    def add(self, one: Participant) -> None:
        """With pods for its current size and, unless it is a gang that has not begun, its core."""
        self._put(one)
        self.schedule()

    def _put(self, one: Participant) -> None:
        pods = Pods(one, cores={core.name: [] for core in one.core})
        self.jobs[one.id] = pods
        self._fill(pods, one.current)

    def _fill(self, pods: Pods, trainers: int, nodes: Mapping[str, int] | None = None) -> None:
        one = pods.job
        has_begun = trainers > 0 or not one.is_gang
        for core in one.core:
            pods.cores[core.name] += [""] * ((core.count if has_begun else 0) - len(pods.cores[core.name]))
        if one.companion:
            _resize(pods.companions, one.companion.wanted(trainers) if has_begun else 0)
        _remove_on(pods.trainers, max(0, len(pods.trainers) - trainers), nodes or {})
        _resize(pods.trainers, trainers)

    def __repr__(self) -> str:
        """The snapshot that a planner gets, as Python: what a failing property prints."""
        return repr(self.pool())

    # --- what is where ---

    def rooms(self) -> Rooms:
        """What is free per node; negative where pods of other workloads request more than the capacity."""
        used = self._used()
        return {one.name: added(one.allocatable, times(used[one.name], -1)) for one in self.nodes}

    def _used(self) -> dict[str, dict[str, int]]:
        used = {one.name: dict(one.used) for one in self.nodes}
        for name, wanted in itertools.chain(*(pods.places() for pods in self.jobs.values()), self._leaving_places()):
            _add_to(used[name], wanted.requests)
        return used

    def _leaving(self, name: str) -> dict[str, int]:
        return added(*(wanted.requests for where, wanted in self._leaving_places() if where == name))

    def _leaving_places(self) -> Iterable[tuple[str, Shape]]:
        return ((pod.node, pod.shape) for pod in self.leaving)

    def schedule(
        self,
        choose: Callable[[list[str]], str] | None = None,
        *,
        last: Collection[ParticipantId] = (),
        above: int | None = None,
        only: Collection[ParticipantId] | None = None,
    ) -> None:
        """As kube-scheduler: each pod without a node gets one on which it fits now; by priority, then as jobs came.

        Of several nodes it gets the first one, or the one that `choose` returns. With `above`, only pods of a higher priority; with
        `only`, only pods of these jobs.
        """
        waiting = [
            id_
            for id_, pods in self.jobs.items()
            if pods.is_waiting and (above is None or pods.job.priority > above) and (only is None or id_ in only)
        ]
        waiting.sort(key=lambda id_: (id_ in last, -self.jobs[id_].job.priority))
        if waiting:
            self._bind(waiting, self.rooms(), choose)

    def _bind(
        self, jobs: Iterable[ParticipantId], free: Rooms, choose: Callable[[list[str]], str] | None = None
    ) -> None:
        """Each of their pods without a node gets one on which it fits, as far as there is one."""
        for id_ in jobs:
            for wanted, where, i in self.jobs[id_].all():
                if where[i]:
                    continue
                fitting = (
                    there.name
                    for there in self.nodes
                    if has_capacity(free[there.name], wanted.requests) and may_run_on(there, wanted)
                )
                if first := next(fitting, ""):
                    where[i] = choose([first, *fitting]) if choose else first
                    free[where[i]] = added(free[where[i]], times(wanted.requests, -1))

    def running(self) -> "World":
        """Without the trainers above their minimum that did not fit: a settled state."""
        other = self.copy()
        for pods in other.jobs.values():
            if pods.trainers or not pods.job.is_gang:
                other._fill(pods, allowed_size(pods.job, max(pods.job.floor, sum(map(bool, pods.trainers)))))
        other.schedule()
        return other

    def without(self, jobs: Collection[ParticipantId]) -> "World":
        """Without these jobs and their pods."""
        other = self.copy()
        other.jobs = {id_: pods for id_, pods in other.jobs.items() if id_ not in jobs}
        return other

    def without_waiting(self) -> "World":
        """Without the jobs of which a pod has no node."""
        return self.without({id_ for id_, _ in self.waiting_pods()})

    def sizes(self) -> dict[str, int]:
        """Name -> trainers wanted."""
        return {id_.name: len(pods.trainers) for id_, pods in self.jobs.items()}

    def waiting_pods(self) -> list[tuple[ParticipantId, Shape]]:
        """All that have no node."""
        return [(id_, wanted) for id_, pods in self.jobs.items() for wanted, where, i in pods.all() if not where[i]]

    # --- the planner's view ---

    def pool(self) -> ClusterSnapshot:
        """The snapshot."""
        used, charged = self._used(), self._charged()
        return ClusterSnapshot(
            nodes=tuple(
                replace(one, used=used[one.name], terminating=self._leaving(one.name), charged=charged[one.name])
                for one in self.nodes
            ),
            participants=tuple(self._participant(pods) for pods in self.jobs.values()),
            external_pods=self.external_pods,
            quotas=tuple(self._remaining(one) for one in self.quotas),
            tenants=self.tenants,
            options=self.options,
        )

    def _participant(self, pods: Pods) -> Participant:
        one = pods.job
        there = {core.name: Counter(filter(None, pods.cores[core.name])) for core in one.core}
        core = tuple(
            replace(core, missing=core.count - there[core.name].total(), placed=there[core.name]) for core in one.core
        )
        companions = one.companion
        if companions:
            companions = replace(
                companions,
                current=len(pods.companions),
                placed=_by_node(pods.companions),
                leaves_first=tuple(name for name in reversed(pods.companions) if name),
            )
        return replace(
            one,
            is_settled=one.is_settled and one.id not in self.unsettled,
            may_grow=one.may_grow and one.id not in self.unsettled,
            current=len(pods.trainers),
            placed=_by_node(pods.trainers),
            leaves_last=pods.trainers[0] if pods.trainers else "",
            core=core,
            companion=companions,
        )

    def _charged(self) -> dict[str, dict[str, int]]:
        """By node: the limits, and of pods of other workloads what they use."""
        charged = {one.name: dict(one.used) for one in self.nodes}
        for name, wanted in itertools.chain(*(pods.places() for pods in self.jobs.values()), self._leaving_places()):
            _add_to(charged[name], wanted.limits)
        return charged

    def _remaining(self, one: Quota) -> Quota:
        asked = [
            wanted.requests
            for id_, pods in self.jobs.items()
            if id_.namespace == one.namespace
            for wanted, _where, _i in pods.all()
        ]
        # A terminating pod counts in the `used` of a ResourceQuota until it is gone.
        asked += [pod.shape.requests for pod in self.leaving if pod.namespace == one.namespace]
        total = added(*asked)
        return replace(one, free={name: amount - total.get(name, 0) for name, amount in one.free.items()})

    # --- plans ---

    def copy(self) -> "World":
        other = World(
            self.nodes, external_pods=self.external_pods, quotas=self.quotas, options=self.options, tenants=self.tenants
        )
        other.jobs = {id_: pods.copy() for id_, pods in self.jobs.items()}
        other.leaving, other.unsettled = self.leaving, self.unsettled
        return other

    def gone(self) -> "World":
        """With those gone that were leaving."""
        other = self.copy()
        other.leaving, other.unsettled = (), frozenset()
        return other

    def resized(self, division: Allocation, *, only_released: bool = False, is_graceful: bool = False) -> "World":
        """With the pods of the plan: who leaves has left (no node yet first, then on planned nodes, then the last), who
        is new has no node.

        If `is_graceful`, deleted pods are terminating and still exist.
        """
        other = self.copy()
        for waiting in division.waiting:
            pods = other.jobs[waiting.id]
            pods.job = replace(pods.job, reserved_nodes=waiting.reserved_nodes)
        held: set[ParticipantId] = set()
        for one in division.resizes:
            pods = other.jobs[one.id]
            held |= {one.id} if only_released and not one.is_released else set()
            if one.id not in held:
                assert one.before == len(pods.trainers), one
                before = pods.places()
                other._fill(pods, one.after, one.nodes)
                for kept in pods.places():
                    before.remove(kept)
                gone = (LeavingPod(node, of, one.id.namespace) for node, of in before)
                other.leaving += tuple(gone) if is_graceful else ()
                other.unsettled |= {one.id} if is_graceful and before else frozenset()
        return other

    def carried_out(self, division: Allocation) -> "World":
        """The world after the plan was carried out.

        Growth that has to wait does not start before other growth, and its pods are created after pending ones have got their nodes.
        """
        other = self.resized(division)
        other.place_as_planned(division)
        last = {one.id for one in division.waiting if one.is_below_floor}
        other.bind_external_pods(last)
        other.schedule(last=last, only={id_ for id_, pods in self.jobs.items() if pods.is_waiting} - last)
        other.schedule(last=last)
        return other

    def bind_external_pods(self, last: Collection[ParticipantId] = ()) -> None:
        """Pods of other workloads, by priority among the pods of jobs, each get the first node on which they fit now."""
        pending: list[ExternalPods] = []
        for one in sorted(self.external_pods, key=lambda each: -each.priority):
            self.schedule(last=last, above=one.priority)
            count = one.count
            while count and (name := self._first_fitting(one.shape)):
                count -= 1
                self.nodes = tuple(
                    replace(there, used=added(there.used, one.shape.requests)) if there.name == name else there
                    for there in self.nodes
                )
            pending += [replace(one, count=count)] if count else []
        self.external_pods = tuple(pending)

    def _first_fitting(self, wanted: Shape) -> str:
        free = self.rooms()
        fitting = (there for there in self.nodes if may_run_on(there, wanted))
        return next((there.name for there in fitting if has_capacity(free[there.name], wanted.requests)), "")

    def place_as_planned(self, division: Allocation) -> None:
        """Trainers without a node go where the plan assumed, as far as they fit now."""
        free = self.rooms()
        for one in division.resizes:
            pods = self.jobs[one.id]
            new = [i for i, where in enumerate(pods.trainers) if not where]
            for name in (name for name, count in sorted(one.nodes.items()) for _ in range(count)):
                if new and has_capacity(free[name], pods.job.shape.requests):
                    pods.trainers[new.pop(0)] = name
                    free[name] = added(free[name], times(pods.job.shape.requests, -1))

    def changed(self, **jobs: Mapping[str, Any]) -> "World":
        """With other fields in jobs of these names, as after an edit or when a cool-down is over."""
        other = self.copy()
        for id_, pods in other.jobs.items():
            if id_.name in jobs:
                pods.job = replace(pods.job, **jobs[id_.name])
        return other


def _by_node(where: list[str]) -> dict[str, int]:
    return dict(Counter(name for name in where if name))


def _remove_on(where: list[str], count: int, nodes: Mapping[str, int]) -> None:
    """So many trainers leave: those without a node first, then on the planned nodes, never trainer 0."""
    left = {name: -number for name, number in nodes.items()}
    count -= where.count("")
    for i in reversed(range(1, len(where))):
        if count > 0 and left.get(where[i], 0) > 0:
            left[where[i]] -= 1
            count -= 1
            del where[i]


def _resize(where: list[str], count: int) -> None:
    """Those without a node go first, from the last on; then the last."""
    for i in reversed(range(len(where))):
        if len(where) > count and not where[i]:
            del where[i]
    del where[count:]
    where += [""] * (count - len(where))


def resizes_of(division: Allocation) -> dict[str, int]:
    """Name -> by how much."""
    found: Counter[str] = Counter()
    for one in division.resizes:
        found[one.id.name] += one.after - one.before
    return dict(found)


def waiting_of(division: Allocation) -> dict[str, str]:
    """Name -> reason, for those below their floor."""
    return {one.id.name: one.reason for one in division.waiting if one.is_below_floor}
