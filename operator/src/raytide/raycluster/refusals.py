"""How long does a RayCluster's group wait for what the API refused?

Whatever was refused is asked for again after 1, 2, 4 … 30 seconds: what it lacks often comes a moment later, such as a
service account of the same `kubectl apply` (FD:RC-B19). Hosts of a replica wait 5, 10 … 30. After a multi-host replica had to be given up, the next is begun after 1, 2, 4 … 10 minutes, or
when there is room. The memory is kube/refusals.py's. Kept by the controller's shell, read by plan and status through
`Observed` (SC:S3, SC:S4, RM:I18).
"""

from collections.abc import Collection
from dataclasses import dataclass

from raytide.api import names
from raytide.api.actions import Create, Outcome
from raytide.api.meta import Key
from raytide.kube import refusals
from raytide.raycluster.observed import Refusal
from raytide.raycluster.status_conditions import refusal_text
from raytide.runtime.backoff import backoff_s

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
HOSTS_FIRST_WAIT_S = 5.0
"""Of a replica's hosts: the second refusal gives an incomplete replica up, and what is about to go needs a moment."""
GIVEN_UP_FIRST_S = 60.0
GIVEN_UP_LONGEST_S = 600.0


@dataclass(slots=True)
class _Held(refusals.Held):
    given_up: int = 0
    """How often a replica of the group was given up since one was completed."""
    replicas_at: float = 0.0
    """When a replica may be begun again."""


class Refusals(refusals.Refusals[_Held]):
    """Refusals by cluster and group.

    - While no new replica may be begun, the refusal that was the reason stays, whatever else succeeds.
    - `give_up` holds the group's new replicas, ever longer; whoever knows better says `begin_replicas_at`.
    """

    def __init__(self) -> None:
        super().__init__(_Held, wait_s=_wait_s, words=refusal_text)

    def waiting(self, key: Key, uid: str, generation: int, now: float) -> tuple[Refusal, ...]:
        """What has to wait at `now` (monotonic seconds)."""
        return tuple(
            Refusal(group, held.reason, held.message, held.until - now, held.times, held.replicas_at - now)
            for group, held in self.held(key, uid, generation).items()
            if max(held.until, held.replicas_at) > now
        )

    def give_up(self, key: Key, groups: Collection[str], now: float) -> None:
        """Replicas of these groups could not be completed and go again."""
        for group in groups:
            held = self.held_now(key, group)
            if held is not None:
                held.given_up += 1
                held.times, held.until = 0, now
                held.replicas_at = now + backoff_s(
                    held.given_up, first_s=GIVEN_UP_FIRST_S, longest_s=GIVEN_UP_LONGEST_S
                )

    def begin_replicas_at(self, key: Key, group: str, moment: float) -> None:
        """Somebody knows whether there is room for a whole replica: now, or not before that moment."""
        held = self.held_now(key, group)
        if held is not None:
            held.replicas_at = moment

    def outlives_success(self, held: _Held, now: float) -> bool:
        """A replica that may not be begun yet still has its reason."""
        return held.replicas_at > now


def _wait_s(refused: Outcome, times: int) -> float:
    action = refused.action
    labels = action.manifest["metadata"].get("labels", {}) if isinstance(action, Create) else {}
    first_s = HOSTS_FIRST_WAIT_S if names.HOST_INDEX_LABEL in labels else FIRST_WAIT_S
    return backoff_s(times, first_s=first_s, longest_s=LONGEST_WAIT_S)
