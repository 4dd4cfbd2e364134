"""Action runner: sends the writes of a plan and determines the requeue delay.

Takes the writes of a plan, adds requests of earlier passes whose outcome is unknown, passes all to the executor, counts
them and computes the requeue delay. Repeats are identical to the first request; requests that the plan no longer wants
are not repeated. It makes no decisions. Used by the controllers' reconcilers between reading and status; D6, D7.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from raytide.api.actions import Action, Create, Delete, Outcome, Result
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key, Resource
from raytide.api.plan import earliest
from raytide.controller.executor import ApplyResult, Executor
from raytide.controller.expectations import Expectations
from raytide.kube.client import Client
from raytide.metrics import WRITES
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

REJECTED_REQUEUE_S: Final = 30.0
"""Requeue delay after a rejected or skipped action, such as in a terminating namespace."""


class ActionRunner:
    """The writes of one controller.

    - Requests of unknown outcome are repeated unless the plan does not want them: deletes before the plan's own
      actions, creates before its creates and after its deletes.
    - An unwanted create is looked up instead; until its outcome is known, repeats of its group wait, because its pod
      may take their place. A create whose pod is being deleted is not repeated.
    - `overlays` are processed in their order.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        overlays: Mapping[Resource, Expectations[Any]],
        is_contended: Callable[[], bool] = lambda: False,
    ) -> None:
        self.overlays = overlays
        self._executor = Executor(client, clock=clock, overlays=overlays, is_contended=is_contended)
        self._settled: set[Key] = set()
        """Keys with a create of unknown outcome that was settled after planning: they are requeued at once."""

    async def due_retries(
        self,
        key: Key,
        owner_uid: str,
        actions: Iterable[Action],
        unwanted: Collection[str] = (),
        *,
        may_create: bool = True,
    ) -> tuple[Action, ...]:
        """The requests to repeat besides `actions`; `unwanted` are names of creates in flight.

        Without `may_create` every due create is looked up instead, so that none stays due forever.
        """
        due = [action for overlay in self.overlays.values() for action in overlay.due(key, owner_uid)]
        creates = [action for action in due if isinstance(action, Create)]
        uncertain = [create for create in creates if create.name in unwanted or not may_create]
        for create in uncertain:
            await self._executor.look_for(create, key=key, owner_uid=owner_uid)
            if not self.overlays[create.resource].is_outcome_unknown(key, owner_uid, create):
                self._settled.add(key)  # the plan assumed that it might exist
        waiting = {(create.resource, create.group) for create in uncertain}
        deleting = {action.name for action in actions if isinstance(action, Delete)}
        deletes = [action for action in due if isinstance(action, Delete)]
        wanted = [create for create in creates if (create.resource, create.group) not in waiting]
        return (*deletes, *(create for create in wanted if create.name not in deleting))

    async def apply(
        self, key: Key, owner_uid: str, actions: Sequence[Action], again: Sequence[Action] = ()
    ) -> ApplyResult:
        """Send the actions and the repeats."""
        planned: list[Action] = [*again, *actions]
        if again:
            # Deletes go first, then creates that may exist already: the group never exceeds its size in between.
            planned.sort(key=lambda action: isinstance(action, Create))
        if not planned:
            return ApplyResult(())
        log.info("sending %d writes (%d repeated)", len(planned), len(again))
        applied = await self._executor.apply(planned, key=key, owner_uid=owner_uid)
        for outcome in applied.outcomes:
            kind, verb = outcome.action.resource.kind, type(outcome.action).__name__.lower()
            WRITES.labels(kind, verb, outcome.result.value).inc()
        return applied

    def requeue_after_s(
        self,
        key: Key,
        applied: ApplyResult,
        deadlines: Iterable[float | None],
        *,
        is_continued: bool,
        has_more: bool = False,
    ) -> float | None:
        """Requeue delay in seconds, None for none; raises `ApiUnavailableError` for backoff when the API server did not answer.

        `is_continued`: success permits further actions, requeue at once. `has_more`: the plan's budget ended before all
        actions were listed; requeue at once as long as an action succeeded or was rejected.
        """
        is_settled = key in self._settled
        self._settled.discard(key)
        if applied.is_cut_short or is_settled:
            return 0.0
        unanswered = next(filter(self._needs_backoff, applied.outcomes), None)
        if unanswered is not None:
            raise ApiUnavailableError(unanswered.message, retry_after_s=applied.retry_after_s)
        if is_continued and applied.outcomes and all(o.result is Result.DONE for o in applied.outcomes):
            return 0.0
        if has_more and any(o.result in (Result.DONE, Result.REJECTED) for o in applied.outcomes):
            return 0.0
        has_rejections = any(o.result in (Result.REJECTED, Result.SKIPPED) for o in applied.outcomes)
        in_flight = (overlay.requeue_after_s(key) for overlay in self.overlays.values())
        return earliest(*deadlines, REJECTED_REQUEUE_S if has_rejections else None, *in_flight)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted owner."""
        self._executor.forget(key)
        self._settled.discard(key)

    def clear(self) -> None:
        """Drop all in-flight requests at the beginning of a leadership term."""
        for overlay in self.overlays.values():
            overlay.clear()
        self._settled.clear()

    def _needs_backoff(self, outcome: Outcome) -> bool:
        """Whether the call was unanswered and no expectation will repeat it."""
        is_remembered = outcome.action.resource in self.overlays and isinstance(outcome.action, Create | Delete)
        return outcome.result is Result.UNAVAILABLE or (outcome.result is Result.UNKNOWN and not is_remembered)
