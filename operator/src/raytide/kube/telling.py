"""Which events does a user see about an object of theirs?

Takes the outcomes and remarks of a pass and hands them to the recorder, after the status is written (D8). What was said
already is not repeated: a remark comes again after ten minutes or with a new generation, a refusal of the same group once
a minute (SC:S3). It chooses no words. Called by the controllers of all rooms.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol

from raytide.api.actions import Outcome, Remark, Result
from raytide.api.meta import Key, Manifest
from raytide.runtime.clock import Clock

REMARKS_APART_S: Final = 600.0
REFUSALS_APART_S: Final = 60.0
MOST_REMARKS: Final = 20
"""Of one object in one pass: whoever acts on them sees the next."""


class Recorder(Protocol):
    """Where events go."""

    def record(self, regarding: Manifest, *, event_type: str, reason: str, note: str, action: str) -> None:
        """One event."""
        ...

    def record_outcomes(self, regarding: Manifest, outcomes: Iterable[Outcome]) -> None:
        """The events of a pass."""
        ...


def _first(remarks: Iterable[Remark]) -> Iterator[Remark]:
    """The first of them, and how many more there are."""
    left = iter(remarks)
    yield from islice(left, MOST_REMARKS)
    if (following := next(left, None)) is not None:
        more = 1 + sum(1 for _ in left)
        yield replace(following, note=f"{more} more remarks like these are not told; act on the others first")


class Telling:
    """Events without echoes.

    - Every write that was done is told, in every pass.
    - The same remark is told once in ten minutes for one generation; of very many in one pass the first twenty.
    - A refusal of the same group for the same purpose is told once a minute.
    """

    def __init__(self, recorder: Recorder, *, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[Key, dict[tuple[Any, ...], float]] = {}

    def tell(self, regarding: Manifest, outcomes: Sequence[Outcome], remarks: Iterable[Remark]) -> None:
        """Tell what is news."""
        metadata = regarding["metadata"]
        told = self._told.setdefault(Key(metadata.get("namespace", ""), metadata["name"]), {})
        now = self._clock.monotonic()
        for topic in [topic for topic, until in told.items() if until <= now]:
            del told[topic]
        generation = metadata.get("generation", 0)
        for topic in [topic for topic in told if isinstance(topic[0], int) and topic[0] != generation]:
            del told[topic]  # whoever edits again and again is told again, and remembered once
        for remark in _first(remarks):
            if self._is_news(told, (generation, remark.reason, remark.note), now + REMARKS_APART_S):
                self._recorder.record(
                    regarding,
                    event_type=remark.event_type,
                    reason=remark.reason,
                    note=remark.note,
                    action=remark.action,
                )
        fresh_groups: dict[tuple[str, str], bool] = {}
        fresh = [outcome for outcome in outcomes if self._is_worth_telling(told, outcome, fresh_groups, now)]
        if fresh:
            self._recorder.record_outcomes(regarding, fresh)
        if not told:
            self.forget(Key(metadata.get("namespace", ""), metadata["name"]))

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._told.pop(key, None)

    def _is_worth_telling(
        self, told: dict[tuple[Any, ...], float], outcome: Outcome, fresh: dict[tuple[str, str], bool], now: float
    ) -> bool:
        if outcome.result is Result.DONE:
            return True
        if outcome.result is not Result.REFUSED:
            return False
        topic = (outcome.action.group, outcome.action.otherwise)
        if topic not in fresh:
            fresh[topic] = self._is_news(told, topic, now + REFUSALS_APART_S)
        return fresh[topic]

    @staticmethod
    def _is_news(told: dict[tuple[Any, ...], float], topic: tuple[Any, ...], until: float) -> bool:
        if topic in told:
            return False
        told[topic] = until
        return True
