"""What did the API refuse lately, and when may it be asked again?

Takes the outcomes of every pass, gives back per cluster the refusals that are still waiting. A refused worker group is
asked for again after 30 seconds at the earliest, hosts of a replica once after 5, head and service after 1, 2, 4 … 30; a
new generation of the spec or one success forgets the past. After a multi-host replica had to be given up, the next is
begun after 1, 2, 4 … 10 minutes, or when there is room. Kept by the controller's shell, read by plan and status through
`Observed` (SC:S3, SC:S4, RM:I18).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from raytide.api import names
from raytide.api.actions import Create, Outcome, Result
from raytide.api.meta import Key
from raytide.raycluster.observed import Refusal
from raytide.raycluster.plan import HEADLESS_SLOT, RIGHTS_SLOT, SERVICE_SLOT
from raytide.raycluster.status_conditions import refusal_text
from raytide.runtime.backoff import backoff_s

LONGEST_WAIT_S = 30.0
COMPLETED_AFTER_S = 5.0
"""Hosts refused for the first time: what was about to go perhaps has gone, and nobody should hold half a slice for long."""
GIVEN_UP_FIRST_S = 60.0
GIVEN_UP_LONGEST_S = 600.0
_ASK_SOON = frozenset({SERVICE_SLOT, HEADLESS_SLOT, RIGHTS_SLOT, names.HEAD_GROUP})


@dataclass(slots=True)
class _Held:
    reason: str
    message: str
    times: int
    until: float
    given_up: int = 0
    """How often a replica of the group was given up since one was completed."""
    replicas_at: float = 0.0
    """When a replica may be begun again."""


@dataclass(slots=True)
class _Book:
    """The refusals of one spec: of this uid and this generation."""

    uid: str
    generation: int
    held: dict[str, _Held]


class Refusals:
    """Refusals by cluster and group.

    - A refused create holds its group, and no other, for a while.
    - A create that succeeds forgets what held its group, unless others of its pass were refused: then the count begins
      anew. While no new replica may be begun, the refusal that was the reason stays.
    - `give_up` holds the group's new replicas, ever longer; whoever knows better says `begin_replicas_at`.
    - Another uid or generation of the cluster starts anew.
    """

    def __init__(self) -> None:
        self._books: dict[Key, _Book] = {}

    def waiting(self, key: Key, uid: str, generation: int, now: float) -> tuple[Refusal, ...]:
        """What has to wait at `now` (monotonic seconds)."""
        book = self._book(key, uid, generation)
        if book is None:
            return ()
        return tuple(
            Refusal(group, held.reason, held.message, held.until - now, held.times, held.replicas_at - now)
            for group, held in book.held.items()
            if max(held.until, held.replicas_at) > now
        )

    def note(self, key: Key, uid: str, generation: int, outcomes: Iterable[Outcome], now: float) -> None:
        """Learn from a pass; of several refusals of a group the last one is kept and counts once."""
        book = self._book(key, uid, generation) or _Book(uid, generation, {})
        outcomes_by_group: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            if isinstance(outcome.action, Create):
                outcomes_by_group.setdefault(outcome.action.group, []).append(outcome)
        for group, found in outcomes_by_group.items():
            self._note(book, group, found, now)
        if book.held:
            self._books[key] = book
        else:
            self._books.pop(key, None)

    def give_up(self, key: Key, groups: Collection[str], now: float) -> None:
        """Replicas of these groups could not be completed and go again."""
        book = self._books.get(key)
        for group in groups if book is not None else ():
            held = book.held.get(group) if book is not None else None
            if held is not None:
                held.given_up += 1
                held.times, held.until = 0, now
                held.replicas_at = now + backoff_s(
                    held.given_up, first_s=GIVEN_UP_FIRST_S, longest_s=GIVEN_UP_LONGEST_S
                )

    def begin_replicas_at(self, key: Key, group: str, moment: float) -> None:
        """Somebody knows whether there is room for a whole replica: now, or not before that moment."""
        book = self._books.get(key)
        if book is not None and group in book.held:
            book.held[group].replicas_at = moment

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._books.pop(key, None)

    def _book(self, key: Key, uid: str, generation: int) -> _Book | None:
        book = self._books.get(key)
        return book if book is not None and (book.uid, book.generation) == (uid, generation) else None

    @staticmethod
    def _note(book: _Book, group: str, outcomes: Iterable[Outcome], now: float) -> None:
        last_by_result = {outcome.result: outcome for outcome in outcomes}
        refused, is_some_done = last_by_result.get(Result.REFUSED), Result.DONE in last_by_result
        held = book.held.get(group)
        if refused is None:
            if is_some_done and held is not None and held.replicas_at > now:
                held.times, held.until = 0, now
            elif is_some_done:
                book.held.pop(group, None)
            return
        times = 1 if is_some_done or held is None else held.times + 1
        until = now + _wait_s(refused, times)
        fresh = _Held(refused.action.otherwise, refusal_text(refused), times, until)
        if held is not None:
            fresh.given_up, fresh.replicas_at = held.given_up, held.replicas_at
        book.held[group] = fresh


def _wait_s(refused: Outcome, times: int) -> float:
    action = refused.action
    if action.group in _ASK_SOON:
        return backoff_s(times, first_s=1.0, longest_s=LONGEST_WAIT_S)
    labels = action.manifest["metadata"].get("labels", {}) if isinstance(action, Create) else {}
    return COMPLETED_AFTER_S if times == 1 and names.HOST_INDEX_LABEL in labels else LONGEST_WAIT_S
