"""Which worker pods should exist?

Takes one worker group and its pods, seen or in flight, and returns how many to create, with which replica index, and
which to delete, with the reason. Deletes finished and named workers first, then stuck, pending, not ready, newest; never
a running pod while a pending one remains, never a pod of another group or owner, never without a uid. A dying pod counts
until it is gone, unless its node is away. Called by plan.py; rules RC:WG-1..2, RC:SH-1..6, RC:SD-1..3, SC:S9, SC:S12.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from raytide.api.actions import MOST_WRITES
from raytide.api.names import GROUP_LABEL
from raytide.api.pod import PodView
from raytide.api.pod_trouble import trouble_of
from raytide.api.raycluster import WorkerGroupSpec
from raytide.raycluster.endings import how_it_ended
from raytide.raycluster.scaling import GroupOrder, wanted_pods

NEWEST = "~"
"""Sorts after every timestamp: a pod still in flight is the newest of all."""
NO_GROUP = f"its label {GROUP_LABEL} was removed, so it belongs to no group"
NAMED = "named in scaleStrategy.workersToDelete"
WORKER_MARK = "-worker-"
"""What every worker's name contains, KubeRay's and ours (RC: Appendix A, D15)."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that should go, and the sentence that says why.

    Without a uid it is a create whose outcome nobody knows: there is nothing to delete yet.
    """

    pod: PodView
    why: str


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What one group needs: a pod for each of `new_indices`, an end for each of `victims`."""

    new_indices: tuple[int, ...] = ()
    has_more: bool = False
    """Whether more pods are missing than the plan's budget allows."""
    victims: tuple[Victim, ...] = ()
    strangers: tuple[str, ...] = ()
    """Names in `workersToDelete` that are not workers of this group; nobody touches them."""


def plan_group(
    group: WorkerGroupSpec,
    pods: Sequence[PodView],
    order: GroupOrder,
    *,
    may_choose_victims: bool = True,
    foreign_names: Collection[str] = (),
    unready_nodes: Collection[str] = (),
    outdated_names: Collection[str] = (),
    resting_names: Collection[str] = (),
    most: int = MOST_WRITES,
) -> GroupPlan:
    """Decide about one group from its own pods.

    `may_choose_victims` is False under autoscaling, where nobody is deleted without a name (RC:SH-5). `outdated_names`
    are hosts of replicas from before `numOfHosts` became 1, which have to be made anew. `resting_names`
    are workers that exited 0 and count as they are for a moment longer, unless somebody names them (D19). `most` is how
    many pods may be created: what is left of the plan's budget.
    """
    named = order.names
    alive = [pod for pod in pods if not pod.is_terminating]
    ended = [pod for pod in alive if pod.is_finished]
    finished = [pod for pod in ended if pod.name not in resting_names or pod.name in named]
    ordered = [pod for pod in alive if not pod.is_finished and pod.name in named]
    unnamed = [pod for pod in alive if not pod.is_finished and pod.name not in named]
    outdated = [pod for pod in unnamed if pod.name in outdated_names]
    staying = [pod for pod in unnamed if pod.name not in outdated_names]
    leaving = [*ended, *ordered, *outdated, *(pod for pod in pods if pod.is_terminating)]

    wanted = wanted_pods(group, order)
    surplus = len(staying) - wanted if may_choose_victims else 0
    missing = wanted - len(staying) - sum(pod.node_name not in unready_nodes for pod in leaving)
    victims = (
        *(Victim(pod, how_it_ended(pod)) for pod in finished),
        *(Victim(pod, NAMED) for pod in ordered),
        *(Victim(pod, f"it was made as one of several hosts of replica {pod.replica_name}") for pod in outdated),
        *(
            Victim(pod, f"group {group.group_name} has {len(staying)} of {wanted}")
            for pod in first_to_go(staying, surplus)
        ),
    )
    return GroupPlan(
        new_indices=unused_indices(pods, min(missing, most)),
        has_more=missing > most,
        victims=victims,
        strangers=strangers_among(named - {pod.name for pod in pods}, foreign_names),
    )


def first_to_go(pods: Iterable[PodView], count: int) -> tuple[PodView, ...]:
    """The `count` pods whose loss costs least: stuck, pending, failing, not ready, ready; the newest of each first."""
    newest_first = sorted(pods, key=lambda pod: (pod.creation_timestamp or NEWEST, pod.name), reverse=True)
    return tuple(sorted(newest_first, key=loss_of)[: max(count, 0)])


def unused_indices(pods: Iterable[PodView], count: int) -> tuple[int, ...]:
    """The `count` smallest replica indices no pod of the group carries, dying ones included (RC:SH-4)."""
    return tuple(itertools.islice(free_indices(pods), max(count, 0)))


def free_indices(pods: Iterable[PodView]) -> Iterator[int]:
    """All of those, without end."""
    taken = {pod.replica_index for pod in pods}
    return (index for index in itertools.count() if index not in taken)


def removed_groups(groups: Collection[str], workers: Iterable[PodView]) -> tuple[Victim, ...]:
    """Workers whose group the spec no longer has (SC:S14; KubeRay leaves them running), or whose label was removed (RM:F12)."""
    return tuple(
        Victim(pod, f"group {pod.group} is no longer in the spec" if pod.group else NO_GROUP)
        for pod in workers
        if pod.group not in groups and not pod.is_terminating
    )


def loss_of(pod: PodView) -> int:
    """What it costs to lose a pod, from 0 (it is stuck before it ever ran) to 4 (it runs and is ready)."""
    is_stuck = trouble_of(pod) is not None
    if not pod.is_running:
        return 0 if is_stuck else 1
    if not pod.ready.is_true:
        return 2 if is_stuck else 3
    return 4


def strangers_among(absent: Collection[str], foreign_names: Collection[str]) -> tuple[str, ...]:
    """Names in `workersToDelete` that no pod of the group carries and none can have carried."""
    # A worker's name that nobody carries is a worker that has gone: names are never reused (D15), so old names are
    # harmless. A name without the worker's mark cannot have been one.
    return tuple(sorted(name for name in absent if name in foreign_names or WORKER_MARK not in name))
