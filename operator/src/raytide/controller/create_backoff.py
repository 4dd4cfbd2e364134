"""Create backoff: holds groups whose creates the API server rejected.

Takes the outcomes of every pass and returns, per owner, the rejections whose delay is not over. The controller sets the
delay; a new generation of the spec or a successful create resets it. State of deleted owners is dropped. Used by the
controllers' reconcilers; plan and status read it as observed state (SC:S3, RM:I18).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from raytide.api.actions import Create, Outcome, PendingRetry, Result
from raytide.api.meta import Key


@dataclass(slots=True)
class BackoffEntry:
    """A group whose create was rejected; it waits until `until` (monotonic seconds)."""

    reason: str = ""
    message: str = ""
    times: int = 0
    until: float = 0.0


H = TypeVar("H", bound=BackoffEntry)


@dataclass(slots=True)
class _OwnerBackoff(Generic[H]):
    """The rejections of one uid and generation of an owner."""

    uid: str
    generation: int
    held: dict[str, H] = field(default_factory=dict)


class CreateBackoff(Generic[H]):
    """Rejections by owner and group.

    - A rejected create holds its own group only; of several in one pass the last is stored and they count once.
    - A successful create clears its group, unless others of the same pass were rejected: then the count restarts at 1.
    - Another uid or generation of the owner starts with empty state.
    """

    def __init__(
        self,
        new_entry: Callable[[], H],
        *,
        wait_s: Callable[[Outcome, int], float],
        message_of: Callable[[Outcome], str],
    ) -> None:
        """`wait_s(rejected, times)` returns the delay of a group in seconds, `message_of` the text that is stored."""
        self._new_entry = new_entry
        self._wait_s = wait_s
        self._message_of = message_of
        self._by_owner: dict[Key, _OwnerBackoff[H]] = {}

    def waiting(self, key: Key, uid: str, generation: int, now: float) -> tuple[PendingRetry, ...]:
        """The groups that must wait at `now` (monotonic seconds)."""
        return tuple(
            PendingRetry(group, held.reason, held.message, held.until - now, held.times)
            for group, held in self.held(key, uid, generation).items()
            if held.until > now
        )

    def held(self, key: Key, uid: str, generation: int) -> Mapping[str, H]:
        """All stored rejections of that uid and generation, by group."""
        owner = self._find(key, uid, generation)
        return owner.held if owner is not None else {}

    def record_outcomes(self, key: Key, uid: str, generation: int, outcomes: Iterable[Outcome], now: float) -> None:
        """Record the outcomes of a pass."""
        owner = self._find(key, uid, generation) or _OwnerBackoff(uid, generation)
        outcomes_by_group: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            if isinstance(outcome.action, Create):
                outcomes_by_group.setdefault(outcome.action.group, []).append(outcome)
        for group, found in outcomes_by_group.items():
            self._record_rejections(owner.held, group, found, now)
        if owner.held:
            self._by_owner[key] = owner
        else:
            self._by_owner.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted owner."""
        self._by_owner.pop(key, None)

    def held_now(self, key: Key, group: str) -> H | None:
        """The stored rejection of that group, for any generation."""
        owner = self._by_owner.get(key)
        return owner.held.get(group) if owner is not None else None

    def outlives_success(self, held: H, now: float) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a rejection stays stored after a successful create of its group."""
        return False

    def _find(self, key: Key, uid: str, generation: int) -> _OwnerBackoff[H] | None:
        owner = self._by_owner.get(key)
        return owner if owner is not None and (owner.uid, owner.generation) == (uid, generation) else None

    def _record_rejections(
        self, held_by_group: dict[str, H], group: str, outcomes: Iterable[Outcome], now: float
    ) -> None:
        last_by_result = {outcome.result: outcome for outcome in outcomes}
        rejected, is_some_done = last_by_result.get(Result.REJECTED), Result.DONE in last_by_result
        held = held_by_group.get(group)
        if rejected is None:
            if is_some_done and held is not None and self.outlives_success(held, now):
                held.times, held.until = 0, now
            elif is_some_done:
                held_by_group.pop(group, None)
            return
        times = 1 if is_some_done or held is None else held.times + 1
        if held is None:
            held = held_by_group[group] = self._new_entry()
        held.reason, held.message = rejected.action.failure_reason, self._message_of(rejected)
        held.times, held.until = times, now + self._wait_s(rejected, times)
