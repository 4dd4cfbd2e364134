"""Plan of a worker group: worker pods to create and to delete.

Takes one worker group and its pods, observed or in flight, and returns which replica indices to create and which pods
to delete, with the reason. Deletes finished and named workers first, then stuck, pending, not ready, newest; never a
running pod while a pending one remains, a pod of another group or owner, or one without a uid. A terminating pod counts
until gone, unless its node is unready. Called by plan.py; RC:WG-1..2, RC:SH-1..6, RC:SD-1..3, SC:S9, SC:S12.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raytide.api.actions import MAX_WRITES
from raytide.api.pod import PodView
from raytide.api.pod_failure import failure_of
from raytide.api.raycluster import WorkerGroupSpec
from raytide.raycluster import messages
from raytide.raycluster.desired_replicas import DesiredReplicas, wanted_pods
from raytide.raycluster.endings import how_it_ended

NEWEST = "~"
"""Sorts after every timestamp: a pod still in flight is the newest."""
WORKER_MARK = "-worker-"
"""Part of every worker's name, KubeRay's and ours (RC: Appendix A, D15)."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod to delete, and the reason for the event.

    Without a uid it is a create without a response: there is nothing to delete yet.
    """

    pod: PodView
    reason: str


@dataclass(frozen=True, slots=True)
class GroupInputs:
    """The input of a group's plan: its spec, its own pods, and what limits the changes."""

    group: WorkerGroupSpec
    pods: Sequence[PodView]
    desired: DesiredReplicas
    may_choose_victims: bool = True
    """False under autoscaling, where nothing that is in use is deleted unless it is named (RC:SH-5, RC:MH-7)."""
    existing_names: Collection[str] = ()
    """Names of the cluster's pods, of all groups, and of pods of other owners."""
    unready_nodes: Collection[str] = ()
    arriving_indices: Collection[int] = ()
    """Replica indices of workers whose abandoned create may still be carried out (D6)."""
    exit_grace: Mapping[str, float] = field(default_factory=dict)
    """Workers that exited 0 and keep their place for so many seconds, unless they are named for deletion (D19)."""
    start_waits: Mapping[str, float] = field(default_factory=dict)
    """Workers that ended without having been ready and keep their place for so many seconds, while it is wanted (FD:RC3-3)."""
    most: int = MAX_WRITES
    """How many pods may be created: the rest of the plan's budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanges:
    """What the plans of all groups have besides pods to create."""

    has_more: bool = False
    """Whether more pods are missing than the plan's budget allows."""
    victims: tuple[Victim, ...] = ()
    withheld: tuple[PodView, ...] = ()
    """Pods whose creates have no response and are not repeated yet: their places are not free."""
    unknown_names: tuple[str, ...] = ()
    """Names in `workersToDelete` that are not workers of this group; these pods are not touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(GroupChanges):
    """Changes of one group: a pod to create for each of `create_indices`, and `victims` to delete."""

    create_indices: tuple[int, ...] = ()


def plan_group(inputs: GroupInputs, *, outdated_names: Collection[str] = ()) -> GroupPlan:
    """Plan a group whose replicas have one host each.

    `outdated_names` are hosts of replicas from before `numOfHosts` became 1, which have to be replaced.
    """
    group, pods, named, exit_grace = inputs.group, inputs.pods, inputs.desired.names, inputs.exit_grace
    alive = [pod for pod in pods if not pod.is_terminating]
    ended = [pod for pod in alive if pod.is_finished]
    ordered = [pod for pod in alive if not pod.is_finished and pod.name in named]
    unnamed = [pod for pod in alive if not pod.is_finished and pod.name not in named]
    outdated = [pod for pod in unnamed if pod.name in outdated_names]
    staying = [pod for pod in unnamed if pod.name not in outdated_names]
    wanted = wanted_pods(group, inputs.desired)
    places = max(0, wanted - len(staying))
    waiting = [pod for pod in ended if pod.name in inputs.start_waits and pod.name not in named][:places]
    resting = {pod.name for pod in waiting}.union(exit_grace)
    finished = [pod for pod in ended if pod.name not in resting or pod.name in named]
    leaving = [*ended, *ordered, *outdated, *(pod for pod in pods if pod.is_terminating)]
    taken = len(staying) + sum(pod.node_name not in inputs.unready_nodes for pod in leaving)
    # A create without a response is no worker yet. Withdrawing it deletes nothing, so it needs no name with an
    # autoscaler; repeating it before its place is free would create one pod too many.
    without_response = [pod for pod in staying if not pod.uid]
    victims = (
        *(Victim(pod, how_it_ended(pod)) for pod in finished),
        *(Victim(pod, messages.NAMED) for pod in ordered),
        *(Victim(pod, messages.was_one_of_several_hosts(pod.replica_name)) for pod in outdated),
        *(
            Victim(pod, messages.surplus_workers(group.group_name, len(staying), wanted))
            for pod in first_to_go(staying if inputs.may_choose_victims else without_response, len(staying) - wanted)
        ),
    )
    return GroupPlan(
        create_indices=unused_indices(inputs, min(wanted - taken, inputs.most)),
        has_more=wanted - taken > inputs.most,
        victims=victims,
        withheld=first_to_go(without_response, taken - wanted),
        unknown_names=unknown_names_among(named - {pod.name for pod in pods}, inputs.existing_names),
    )


def first_to_go(pods: Iterable[PodView], count: int) -> tuple[PodView, ...]:
    """The `count` pods whose loss costs least: stuck, pending, failing, not ready, ready; the newest of each first."""
    newest_first = sorted(pods, key=lambda pod: (pod.creation_timestamp or NEWEST, pod.name), reverse=True)
    return tuple(sorted(newest_first, key=loss_of)[: max(count, 0)])


def unused_indices(inputs: GroupInputs, count: int) -> tuple[int, ...]:
    """The `count` smallest unused replica indices (RC:SH-4)."""
    return tuple(itertools.islice(free_indices(inputs), max(count, 0)))


def free_indices(inputs: GroupInputs) -> Iterator[int]:
    """All replica indices that no pod of the group has or may still get, terminating pods included, in ascending order."""
    taken = {pod.replica_index for pod in inputs.pods}.union(inputs.arriving_indices)
    return (index for index in itertools.count() if index not in taken)


def removed_groups(groups: Collection[str], workers: Iterable[PodView]) -> tuple[Victim, ...]:
    """Workers whose group the spec no longer has (SC:S14; KubeRay leaves them running)."""
    return tuple(
        Victim(pod, messages.group_removed(pod.group))
        for pod in workers
        if pod.group not in groups and not pod.is_terminating
    )


def loss_of(pod: PodView) -> int:
    """Cost of losing a pod, from 0 (stuck before it ever ran) to 4 (running and ready)."""
    is_stuck = failure_of(pod) is not None
    if not pod.is_running:
        return 0 if is_stuck else 1
    if not pod.ready.is_true:
        return 2 if is_stuck else 3
    return 4


def unknown_names_among(absent: Collection[str], existing_names: Collection[str]) -> tuple[str, ...]:
    """Names in `workersToDelete` that no pod of the group has, and that cannot be those of former workers."""
    # A worker name that no pod has is that of a former worker: names are never reused (D15), so it is harmless. A name
    # without `WORKER_MARK` never was one.
    return tuple(sorted(name for name in absent if name in existing_names or WORKER_MARK not in name))
