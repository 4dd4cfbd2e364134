"""What did the API refuse lately, and when may it be asked again?

Takes the outcomes of every pass, gives back per cluster the refusals that are still waiting. A refused worker group is
asked for again after 30 seconds at the earliest, head and service after 1, 2, 4 … 30; a new generation of the spec or one
success forgets the past. Kept by the controller's shell, read by plan and status through `Observed` (SC:S3, RM:I18).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raytide.api import names
from raytide.api.actions import Create, Outcome, Result
from raytide.api.meta import Key
from raytide.raycluster.observed import Refusal
from raytide.raycluster.plan import SERVICE_SLOT
from raytide.raycluster.status_conditions import refusal_text
from raytide.runtime.backoff import backoff_s

LONGEST_WAIT_S = 30.0
_ASK_SOON = frozenset({SERVICE_SLOT, names.HEAD_GROUP})


@dataclass(slots=True)
class _Held:
    reason: str
    message: str
    failures: int
    until: float


@dataclass(slots=True)
class _Book:
    """The refusals of one spec: of this uid and this generation."""

    uid: str
    generation: int
    held: dict[str, _Held]


class Refusals:
    """Refusals by cluster and group.

    - A refused create holds its group, and no other, for a while.
    - A create that succeeds forgets what held its group.
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
            Refusal(group, held.reason, held.message, held.until - now)
            for group, held in book.held.items()
            if held.until > now
        )

    def note(self, key: Key, uid: str, generation: int, outcomes: Iterable[Outcome], now: float) -> None:
        """Learn from a pass; of several refusals of a group the last one is kept and counts once."""
        book = self._book(key, uid, generation) or _Book(uid, generation, {})
        failures = {group: held.failures for group, held in book.held.items()}
        for outcome in outcomes:
            if isinstance(outcome.action, Create):
                self._note(book, outcome, failures, now)
        if book.held:
            self._books[key] = book
        else:
            self._books.pop(key, None)

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._books.pop(key, None)

    def _book(self, key: Key, uid: str, generation: int) -> _Book | None:
        book = self._books.get(key)
        return book if book is not None and (book.uid, book.generation) == (uid, generation) else None

    @staticmethod
    def _note(book: _Book, outcome: Outcome, failures: dict[str, int], now: float) -> None:
        group = outcome.action.group
        if outcome.result is Result.DONE:
            failures.pop(group, None)
            book.held.pop(group, None)
        elif outcome.result is Result.REFUSED:
            count = failures.get(group, 0) + 1
            first_s = 1.0 if group in _ASK_SOON else LONGEST_WAIT_S
            until = now + backoff_s(count, first_s=first_s, longest_s=LONGEST_WAIT_S)
            book.held[group] = _Held(outcome.action.otherwise, refusal_text(outcome), count, until)
