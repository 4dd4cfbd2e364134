"""How is a plan put into effect, whatever its kind?

Takes the writes a plan lists, adds what an earlier pass sent without learning what became of it, has the executor carry
all of them out, counts them, and says when to look again. It repeats a request exactly as it was and never asks twice for
what nobody wants any more; it chooses nothing. Called by the controllers' shells between observing and reporting; D6, D7.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from raytide.api.actions import Action, Create, Delete, Outcome, Result
from raytide.api.errors import Unavailable
from raytide.api.meta import Key, Resource
from raytide.kube.apply import Applied, Executor
from raytide.kube.client import Client
from raytide.kube.expectations import Expectations
from raytide.metrics import WRITES
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 30.0
"""When a delete was refused, or the namespace is on its way out."""


class Acting:
    """The writes of one room.

    - Requests with an unknown outcome are repeated, unless the plan has no use for them: deletes in front of the plan's
      own, creates in front of its creates but behind its deletes.
    - A create that nobody wants any more is looked for instead; one whose pod is to go is left alone.
    - `overlays` are asked in their order.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        overlays: Mapping[Resource, Expectations[Any]],
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        self.overlays = overlays
        self._executor = Executor(client, clock=clock, overlays=overlays, is_crowded=is_crowded)

    async def again(
        self,
        key: Key,
        owner_uid: str,
        actions: Iterable[Action],
        unwanted: Collection[str] = (),
        *,
        may_create: bool = True,
    ) -> tuple[Action, ...]:
        """The requests to be sent once more beside `actions`; `unwanted` are names of creates in flight.

        Without `may_create` every create that is due is looked for instead, so that none stays due for ever.
        """
        due = [action for overlay in self.overlays.values() for action in overlay.due(key, owner_uid)]
        going = {action.name for action in actions if isinstance(action, Delete)}
        again: list[Action] = []
        for action in due:
            if isinstance(action, Create) and (action.name in unwanted or not may_create):
                await self._executor.look_for(action, key=key, owner_uid=owner_uid)
            elif not (isinstance(action, Create) and action.name in going):
                again.append(action)
        return tuple(again)

    async def apply(self, key: Key, owner_uid: str, actions: Sequence[Action], again: Sequence[Action] = ()) -> Applied:
        """Carry them out, and what has to be sent once more."""
        todo: list[Action] = [*again, *actions]
        if again:
            # What may exist already is asked for again only after what has to go: the group never grows in between.
            todo.sort(key=lambda action: isinstance(action, Create))
        if not todo:
            return Applied(())
        log.info("%d writes, %d of them repeated", len(todo), len(again))
        applied = await self._executor.apply(todo, key=key, owner_uid=owner_uid)
        for outcome in applied.outcomes:
            kind, verb = outcome.action.resource.kind, type(outcome.action).__name__.lower()
            WRITES.labels(kind, verb, outcome.result.value).inc()
        return applied

    def look_again_in(
        self,
        key: Key,
        applied: Applied,
        deadlines: Iterable[float | None],
        *,
        is_continued: bool,
        has_more: bool = False,
    ) -> float | None:
        """When to come back; raises Unavailable so that the queue backs off when the API did not answer.

        `is_continued`: what was done opened the way for more. `has_more`: the plan's budget ended before all was listed;
        the next pass follows at once as long as something is achieved, or refused and thereby put aside.
        """
        if applied.is_cut_short:
            return 0.0
        lost = next(filter(self._is_lost, applied.outcomes), None)
        if lost is not None:
            raise Unavailable(lost.message, retry_after_s=applied.retry_after_s)
        if is_continued and applied.outcomes and all(o.result is Result.DONE for o in applied.outcomes):
            return 0.0
        if has_more and any(o.result in (Result.DONE, Result.REFUSED) for o in applied.outcomes):
            return 0.0
        has_to_ask_again = any(o.result in (Result.REFUSED, Result.SKIPPED) for o in applied.outcomes)
        in_flight = (overlay.look_again_in(key) for overlay in self.overlays.values())
        nearest = (*deadlines, ASK_AGAIN_S if has_to_ask_again else None, *in_flight)
        return min((deadline for deadline in nearest if deadline is not None), default=None)

    def forget(self, key: Key) -> None:
        """The owner is gone."""
        self._executor.forget(key)

    def clear(self) -> None:
        """A new term: nothing of an earlier one is in flight."""
        for overlay in self.overlays.values():
            overlay.clear()

    def _is_lost(self, outcome: Outcome) -> bool:
        """Whether nobody answered, and no overlay remembers to ask again."""
        is_remembered = outcome.action.resource in self.overlays and isinstance(outcome.action, Create | Delete)
        return outcome.result is Result.UNAVAILABLE or (outcome.result is Result.UNKNOWN and not is_remembered)
