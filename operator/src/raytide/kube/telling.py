"""Which events does a user see about an object of theirs?

Takes the outcomes and remarks of a pass and hands them to the recorder, after the status is written (D8). What was told
already is not repeated: a remark that stands is told once per generation, a refusal of the same group once a minute
(SC:S3). It chooses no words. Called by the controllers of all rooms.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

from raytide.api.actions import Outcome, Remark, Result
from raytide.api.meta import Key, Manifest
from raytide.runtime.clock import Clock

REMARKS_APART_S: Final = 600.0
REFUSALS_APART_S: Final = 60.0
MOST_REMARKS: Final = 25
"""Of one object in one pass: whoever acts on them sees the next."""
MOST_TOPICS: Final = 100
"""Remarks, and refusals, that are remembered for one object: what a tenant's object can take of our memory and of etcd's."""


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


@dataclass(slots=True)
class _Told:
    """What was told about one object."""

    version: tuple[str, int]
    """Its uid and generation."""
    remarks: dict[tuple[str, str], float | None] = field(default_factory=dict)
    """By reason and note: since when passes do not make this remark any more; None while they do."""
    refusals: dict[tuple[str, str], float] = field(default_factory=dict)
    """By group and purpose: until when a refusal is no news."""


class Telling:
    """Events without echoes.

    - Every write that was done is told, in every pass.
    - A remark is told once for one generation of an object, however long it stands; an operator that starts tells it again.
    - A remark that was gone for ten minutes is news when it comes back; one that comes and goes faster is not.
    - Of very many remarks in one pass the first 25 are told, and how many more there are.
    - A refusal of the same group for the same purpose is told once a minute.
    - Of one object a hundred remarks, and as many refusals, are remembered; further ones are not told.
    """

    def __init__(self, recorder: Recorder, *, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[Key, _Told] = {}

    def tell(self, regarding: Manifest, outcomes: Sequence[Outcome], remarks: Iterable[Remark]) -> None:
        """Tell what is news."""
        metadata = regarding["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        version = (metadata.get("uid", ""), metadata.get("generation", 0))
        told = self._told.setdefault(key, _Told(version))
        if told.version != version:  # remarks about another spec say nothing about this one
            told.version, told.remarks = version, {}
        now = self._clock.monotonic()
        for remark in _news_of(told.remarks, _first(remarks), now):
            self._recorder.record(
                regarding,
                event_type=remark.event_type,
                reason=remark.reason,
                note=remark.note,
                action=remark.action,
            )
        told.refusals = {topic: until for topic, until in told.refusals.items() if until > now}
        fresh_groups: dict[tuple[str, str], bool] = {}
        fresh = [outcome for outcome in outcomes if _is_worth_telling(told.refusals, outcome, fresh_groups, now)]
        if fresh:
            self._recorder.record_outcomes(regarding, fresh)
        if not told.remarks and not told.refusals:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._told.pop(key, None)


def _news_of(told: dict[tuple[str, str], float | None], remarks: Iterable[Remark], now: float) -> list[Remark]:
    """The remarks of a pass that were not told; `told` then knows them, and which of the others are gone."""
    for topic in [topic for topic, gone_at in told.items() if gone_at is not None and now - gone_at >= REMARKS_APART_S]:
        del told[topic]
    made, news = set(), []
    for remark in remarks:
        topic = (remark.reason, remark.note)
        if topic not in told:
            if len(told) >= MOST_TOPICS:
                continue
            news.append(remark)
        told[topic] = None
        made.add(topic)
    for topic, gone_at in told.items():
        if gone_at is None and topic not in made:
            told[topic] = now
    return news


def _is_worth_telling(
    told: dict[tuple[str, str], float], outcome: Outcome, fresh: dict[tuple[str, str], bool], now: float
) -> bool:
    if outcome.result is Result.DONE:
        return True
    if outcome.result is not Result.REFUSED:
        return False
    topic = (outcome.action.group, outcome.action.otherwise)
    if topic not in fresh:
        fresh[topic] = topic not in told and len(told) < MOST_TOPICS
        if fresh[topic]:
            told[topic] = now + REFUSALS_APART_S
    return fresh[topic]
