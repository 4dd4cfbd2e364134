"""Where do the pods of one job stand?

Takes a claim and the live pods of that job, gives what the planner has to know of them: which count, on which node, which
are on their way out, and what was ordered and has no pod yet. Surplus leaves in the order in which the job's controller
removes it: without a node first, then not running, not ready, the highest index, and trainer 0 last. Pure; called by pools.py (TJ §3 row 17).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raytide.api.capacity import CapacityPod
from raytide.api.training_names import MASTER, PSERVER, TRAINER


@dataclass(frozen=True, slots=True)
class Standing:
    """The pods of one role: those that count, and those that leave."""

    wanted: int
    kept: tuple[CapacityPod, ...] = ()
    """In the order in which a shrink would remove them."""
    leaving: tuple[CapacityPod, ...] = ()

    @property
    def uncreated(self) -> int:
        """How many are wanted and have no pod."""
        return max(0, self.wanted - len(self.kept))

    @property
    def unplaced(self) -> int:
        """How many are wanted and have no node."""
        return max(0, self.wanted - sum(1 for pod in self.kept if pod.node))

    @property
    def placed(self) -> Mapping[str, int]:
        """Node -> how many that count."""
        return Counter(pod.node for pod in self.kept if pod.node)

    @property
    def leaves_first(self) -> tuple[str, ...]:
        """Nodes of those that count, in the order in which a shrink would remove them."""
        return tuple(pod.node for pod in self.kept if pod.node)

    @property
    def is_carried_out(self) -> bool:
        """Whether exactly those are there that are wanted."""
        return len(self.kept) == self.wanted and not self.leaving


def stand(pods: Iterable[CapacityPod], wanted_by_role: Mapping[str, int]) -> dict[str, Standing]:
    """Role -> where its pods stand; for every role, those that nobody wants included."""
    by_role: dict[str, list[CapacityPod]] = {role: [] for role in (MASTER, PSERVER, TRAINER)}
    for pod in pods:
        by_role.setdefault(pod.role, []).append(pod)
    return {role: _stand(found, wanted_by_role.get(role, 0)) for role, found in by_role.items()}


def _stand(pods: list[CapacityPod], wanted: int) -> Standing:
    if not pods:
        return Standing(wanted)
    going = [pod for pod in pods if pod.is_terminating]
    staying = sorted((pod for pod in pods if not pod.is_terminating), key=_first_to_go)
    surplus = max(0, len(staying) - max(0, wanted))
    return Standing(wanted, tuple(staying[surplus:]), (*going, *staying[:surplus]))


def _first_to_go(pod: CapacityPod) -> tuple[bool, bool, bool, bool, int, str]:
    is_meeting_place = pod.role == TRAINER and pod.index == 0
    return is_meeting_place, bool(pod.node), pod.is_running, pod.is_ready, -(pod.index or 0), pod.name
