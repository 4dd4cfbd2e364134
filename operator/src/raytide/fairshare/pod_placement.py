"""Pod placement: which pods of a job count, on which nodes, which are leaving, and how many have no pod yet.

Input: the live pods of one job, the wanted number per role and the named victims. Surplus pods leave in the order in
which the job's controller removes them: named victims first, then without a node, not running, not ready, the highest
index, and trainer 0 last. Pure; called by snapshot.py (TJ §3 row 17).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.api.capacity import CapacityPod
from raytide.api.trainingjob_constants import ROLES, TRAINER


@dataclass(frozen=True, slots=True)
class RolePods:
    """The pods of one role: those that count, and those that are leaving."""

    wanted: int
    kept: tuple[CapacityPod, ...] = ()
    """In the order in which a scale-down removes them."""
    released: tuple[CapacityPod, ...] = ()

    @property
    def pods_to_create(self) -> int:
        """How many are wanted and have no pod."""
        return max(0, self.wanted - len(self.kept))

    @property
    def unplaced(self) -> int:
        """How many are wanted and have no node."""
        return max(0, self.wanted - sum(1 for pod in self.kept if pod.node))

    @property
    def gated(self) -> int:
        """How many of those that count have scheduling gates."""
        return sum(pod.is_scheduling_gated and not pod.node for pod in self.kept)

    @property
    def placed(self) -> Mapping[str, int]:
        """Node -> number of pods that count."""
        return Counter(pod.node for pod in self.kept if pod.node)

    @property
    def leaves_first(self) -> tuple[str, ...]:
        """Nodes of the pods that count, in the order in which a scale-down removes them."""
        return tuple(pod.node for pod in self.kept if pod.node)

    @property
    def node_of_rank_zero(self) -> str:
        """The node of trainer 0; empty if it has none."""
        return next((pod.node for pod in self.kept if is_rank_zero(pod)), "")

    @property
    def is_carried_out(self) -> bool:
        """Whether exactly the wanted pods exist, and none is leaving."""
        return len(self.kept) == self.wanted and not self.released


NO_PODS: Final = RolePods(wanted=0)


def group_pods_by_role(
    pods: Iterable[CapacityPod], wanted_by_role: Mapping[str, int], victims: Collection[str] = ()
) -> dict[str, RolePods]:
    """Role -> placement of its pods; pods of other roles are not the job's controller's, and are left out.

    `victims` are names of trainers that leave first while there are more than wanted.
    """
    by_role: dict[str, list[CapacityPod]] = {role: [] for role in ROLES}
    for pod in pods:
        if pod.role in by_role:
            by_role[pod.role].append(pod)
    return {
        role: _role_pods(found, wanted_by_role.get(role, 0), victims if role == TRAINER else ())
        for role, found in by_role.items()
    }


def _role_pods(pods: list[CapacityPod], wanted: int, victims: Collection[str]) -> RolePods:
    if not pods:
        return RolePods(wanted)
    going = [pod for pod in pods if pod.is_terminating]
    staying = sorted((pod for pod in pods if not pod.is_terminating), key=_first_to_go)
    surplus = max(0, len(staying) - max(0, wanted))
    released = sorted(staying, key=lambda pod: (is_rank_zero(pod), pod.name not in victims))[:surplus]
    gone = {pod.name for pod in released}
    return RolePods(wanted, tuple(pod for pod in staying if pod.name not in gone), (*going, *released))


def is_rank_zero(pod: CapacityPod) -> bool:
    """Whether it is trainer 0, where the other trainers meet."""
    return pod.role == TRAINER and pod.index == 0


def _first_to_go(pod: CapacityPod) -> tuple[bool, bool, bool, bool, int, str]:
    return is_rank_zero(pod), bool(pod.node), pod.is_running, pod.is_ready, -(pod.index or 0), pod.name
