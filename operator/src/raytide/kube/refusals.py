"""What did the API refuse lately, and when may it be asked again?

Takes the outcomes of every pass, gives back per owner the refusals that are still waiting. How long a group has to wait
is the room's to say; a new generation of the spec or one success forgets the past. It keeps nothing of owners that are
gone and decides nothing. Kept by the controllers' shells, read by plan and status through what is observed (SC:S3, RM:I18).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from raytide.api.actions import Create, Outcome, Refusal, Result
from raytide.api.meta import Key


@dataclass(slots=True)
class Held:
    """A group that was refused: it waits until a moment of the monotonic clock."""

    reason: str = ""
    message: str = ""
    times: int = 0
    until: float = 0.0


H = TypeVar("H", bound=Held)


@dataclass(slots=True)
class _Book(Generic[H]):
    """The refusals of one spec: of this uid and this generation."""

    uid: str
    generation: int
    held: dict[str, H] = field(default_factory=dict)


class Refusals(Generic[H]):
    """Refusals by owner and group.

    - A refused create holds its group, and no other, for a while; of several of one pass the last is kept and counts once.
    - A create that succeeds forgets what held its group, unless others of its pass were refused: then the count begins
      anew.
    - Another uid or generation of the owner starts anew.
    """

    def __init__(
        self,
        new_held: Callable[[], H],
        *,
        wait_s: Callable[[Outcome, int], float],
        words: Callable[[Outcome], str],
    ) -> None:
        """`wait_s(refused, times)` says how long a group waits, `words` what is remembered of the API's words."""
        self._new_held = new_held
        self._wait_s = wait_s
        self._words = words
        self._books: dict[Key, _Book[H]] = {}

    def waiting(self, key: Key, uid: str, generation: int, now: float) -> tuple[Refusal, ...]:
        """What has to wait at `now` (monotonic seconds)."""
        return tuple(
            Refusal(group, held.reason, held.message, held.until - now, held.times)
            for group, held in self.held(key, uid, generation).items()
            if held.until > now
        )

    def held(self, key: Key, uid: str, generation: int) -> Mapping[str, H]:
        """Everything that is remembered of that spec, by group."""
        book = self._book(key, uid, generation)
        return book.held if book is not None else {}

    def note(self, key: Key, uid: str, generation: int, outcomes: Iterable[Outcome], now: float) -> None:
        """Learn from a pass."""
        book = self._book(key, uid, generation) or _Book(uid, generation)
        outcomes_by_group: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            if isinstance(outcome.action, Create):
                outcomes_by_group.setdefault(outcome.action.group, []).append(outcome)
        for group, found in outcomes_by_group.items():
            self._note(book.held, group, found, now)
        if book.held:
            self._books[key] = book
        else:
            self._books.pop(key, None)

    def forget(self, key: Key) -> None:
        """The owner is gone."""
        self._books.pop(key, None)

    def held_now(self, key: Key, group: str) -> H | None:
        """What holds that group, whatever the generation."""
        book = self._books.get(key)
        return book.held.get(group) if book is not None else None

    def outlives_success(self, held: H, now: float) -> bool:  # noqa: ARG002 - for whoever knows more
        """Whether it is remembered although a create of its group was done."""
        return False

    def _book(self, key: Key, uid: str, generation: int) -> _Book[H] | None:
        book = self._books.get(key)
        return book if book is not None and (book.uid, book.generation) == (uid, generation) else None

    def _note(self, held_by_group: dict[str, H], group: str, outcomes: Iterable[Outcome], now: float) -> None:
        last_by_result = {outcome.result: outcome for outcome in outcomes}
        refused, is_some_done = last_by_result.get(Result.REFUSED), Result.DONE in last_by_result
        held = held_by_group.get(group)
        if refused is None:
            if is_some_done and held is not None and self.outlives_success(held, now):
                held.times, held.until = 0, now
            elif is_some_done:
                held_by_group.pop(group, None)
            return
        times = 1 if is_some_done or held is None else held.times + 1
        if held is None:
            held = held_by_group[group] = self._new_held()
        held.reason, held.message = refused.action.otherwise, self._words(refused)
        held.times, held.until = times, now + self._wait_s(refused, times)
