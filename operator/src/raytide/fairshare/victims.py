"""Victims: names of the trainers that a scale-down removes.

Input: the trainers of one job and its resizes. The planner states how many instances leave each node; this module names
them: on a node first those whose loss costs least, then the highest index. What the planner does not place, and what
is missing on a planned node, is filled up in the order in which the job's controller removes trainers: without a node
first, trainer 0 last. Pure; called by patch_plan.py and `raytide plan`.
"""

from collections import Counter
from collections.abc import Iterable

from raytide.api.capacity import CapacityPod
from raytide.api.sharing_record import MAX_VICTIMS
from raytide.fairshare.algorithm.model import Resize
from raytide.fairshare.pod_placement import RolePods, is_rank_zero


def name_victims(trainers: RolePods, resizes: Iterable[Resize], size: int) -> tuple[str, ...]:
    """The trainers to delete until `size` are left, at most `MAX_VICTIMS`, those on planned nodes first.

    Trainers that an earlier scale-down removes, and that are not terminating yet, are named too.
    """
    count = len(trainers.kept) - size
    if count <= 0:
        return ()
    released = [pod for pod in trainers.released if not pod.is_terminating]
    planned = Counter[str]()
    for resize in resizes:
        planned.subtract(resize.nodes)
    on_planned_nodes = _on_planned_nodes(trainers.kept, planned)
    chosen = {pod.name for pod in on_planned_nodes}
    others = [pod for pod in trainers.kept if pod.name not in chosen]
    victims = (*on_planned_nodes, *others)[:count]
    return tuple(pod.name for pod in (*released, *victims))[:MAX_VICTIMS]


def _on_planned_nodes(kept: Iterable[CapacityPod], planned: Counter[str]) -> list[CapacityPod]:
    """As many trainers of each node as leave it, cheapest loss first; never trainer 0."""
    found = []
    for pod in kept:
        if planned[pod.node] > 0 and not is_rank_zero(pod):
            planned[pod.node] -= 1
            found.append(pod)
    return found
