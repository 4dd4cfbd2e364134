"""Create backoff of a RayCluster's groups after rejections by the API server.

A rejected create is repeated after 1, 2, 4 … 30 seconds, because its cause often disappears soon, such as a service
account of the same `kubectl apply` (FD:RC-B19). Hosts of a replica wait 5, 10 … 30 seconds. After an incomplete
multi-host replica was released, the next is created after 1, 2, 4 … 10 minutes, or once there is quota for it. Based on
controller/create_backoff.py, kept by the reconciler, read through `Observed` (SC:S3, SC:S4, RM:I18).
"""

from collections.abc import Collection
from dataclasses import dataclass

from raytide.api import constants
from raytide.api.actions import Create, Outcome
from raytide.api.meta import Key
from raytide.controller import create_backoff
from raytide.raycluster.conditions import rejection_text
from raytide.raycluster.observed import PendingRetry
from raytide.raycluster.plan_types import RayClusterPlan
from raytide.runtime.backoff import backoff_s

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
HOSTS_FIRST_WAIT_S = 5.0
"""For hosts of a replica: the second rejection releases an incomplete replica; quota may be freed before it."""
GIVEN_UP_FIRST_S = 60.0
GIVEN_UP_LONGEST_S = 600.0


@dataclass(slots=True)
class _Entry(create_backoff.BackoffEntry):
    given_up: int = 0
    """How many replicas of the group were released incomplete since one was completed."""
    replicas_at: float = 0.0
    """When the next replica may be created (monotonic seconds)."""


class RayClusterCreateBackoff(create_backoff.CreateBackoff[_Entry]):
    """Rejections by cluster and group.

    - While no new replica may be created, the rejection that caused it is kept, even after other creates succeed.
    - `give_up` holds the group's new replicas, longer each time; `begin_replicas_at` overrides that time.
    """

    def __init__(self) -> None:
        super().__init__(_Entry, wait_s=_wait_s, message_of=rejection_text)

    def waiting(self, key: Key, uid: str, generation: int, now: float) -> tuple[PendingRetry, ...]:
        """The groups that have to wait at `now` (monotonic seconds)."""
        return tuple(
            PendingRetry(group, held.reason, held.message, held.until - now, held.times, held.replicas_at - now)
            for group, held in self.held(key, uid, generation).items()
            if max(held.until, held.replicas_at) > now
        )

    def record_plan(self, key: Key, planned: RayClusterPlan, now: float) -> None:
        """Record which groups gave a replica up, and which have all the replicas they want."""
        self.give_up(key, planned.given_up, now)
        for group in planned.needs_no_replica:
            self.begin_replicas_at(key, group, now)

    def give_up(self, key: Key, groups: Collection[str], now: float) -> None:
        """Start or extend the backoff of groups whose incomplete replicas are deleted again."""
        for group in groups:
            held = self.held_now(key, group)
            if held is not None:
                held.given_up += 1
                held.times, held.until = 0, now
                held.replicas_at = now + backoff_s(
                    held.given_up, first_s=GIVEN_UP_FIRST_S, longest_s=GIVEN_UP_LONGEST_S
                )

    def begin_replicas_at(self, key: Key, group: str, moment: float) -> None:
        """Allow the group's next replica from `moment` on, which the caller derived from quota."""
        held = self.held_now(key, group)
        if held is not None:
            held.replicas_at = moment

    def outlives_success(self, held: _Entry, now: float) -> bool:
        """Keep the rejection of a group whose next replica may not be created yet."""
        return held.replicas_at > now


def _wait_s(rejection: Outcome, times: int) -> float:
    action = rejection.action
    labels = action.manifest["metadata"].get("labels", {}) if isinstance(action, Create) else {}
    first_s = HOSTS_FIRST_WAIT_S if constants.HOST_INDEX_LABEL in labels else FIRST_WAIT_S
    return backoff_s(times, first_s=first_s, longest_s=LONGEST_WAIT_S)
