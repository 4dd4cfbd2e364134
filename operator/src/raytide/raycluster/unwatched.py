"""Which of a cluster's objects are there that nobody watches?

Takes the names a cluster needs, asks the API for each by name (D3) and remembers the answers, so that a pass costs nothing:
what is there is asked for again after the resync time, what is not after half a minute. Outcomes of our own creates are
answers too, and a refusal makes old answers worthless. Kept by the controller's shell for one term of leadership; it
decides nothing.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raytide.api import names
from raytide.api.actions import Outcome, Result
from raytide.api.errors import Refused
from raytide.api.meta import Key, Manifest, Resource
from raytide.kube.client import Client
from raytide.raycluster.rbac import Lookup, grants_no_more
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

ABSENT_FOR_S: Final = 30.0
NOT_OURS_FOR_S: Final = 5.0
"""What a user has to make is looked for more often: nobody tells us when it comes."""

Name = tuple[Resource, str]


@dataclass(slots=True)
class _Answer:
    is_there: bool
    until: float


@dataclass(slots=True)
class _Book:
    """The answers for one cluster of this uid."""

    uid: str
    answers: dict[Name, _Answer]


class Unwatched:
    """What is known of objects that are read by name.

    - `look` asks for what is not known, and only for that; a read that is refused counts as "not there", so that the
      create tells what is wrong.
    - An object counts as there if the cluster owns it, if it need not be ours, or if nobody owns it and it grants no more
      than ours would.
    - Another uid of the cluster, and `clear` at the beginning of a term, start anew.
    """

    def __init__(self, client: Client, *, clock: Clock, resync_s: float) -> None:
        self._client = client
        self._clock = clock
        self._resync_s = resync_s
        self._books: dict[Key, _Book] = {}

    async def look(self, key: Key, uid: str, wanted: Iterable[Lookup]) -> None:
        """Ask for what has no answer; raises Unavailable when nobody answers."""
        for lookup in wanted:
            answers = self._opened(key, uid).answers
            known = answers.get((lookup.resource, lookup.name))
            if known is None or known.until <= self._clock.monotonic():
                answers[lookup.resource, lookup.name] = self._answer(
                    is_there=await self._is_there(key, uid, lookup), has_to_be_ours=lookup.has_to_be_ours
                )

    def absent(self, key: Key, uid: str) -> frozenset[Name]:
        """Kind and name of what was looked for and is not there."""
        book = self._books.get(key)
        if book is None or book.uid != uid:
            return frozenset()
        return frozenset(name for name, answer in book.answers.items() if not answer.is_there)

    def note(self, key: Key, uid: str, outcomes: Iterable[Outcome]) -> None:
        """Learn from what became of creates."""
        book = self._books.get(key)
        if book is None or book.uid != uid:
            return
        for outcome in outcomes:
            name = outcome.action.resource, outcome.action.name
            if name in book.answers and outcome.result is Result.DONE:
                book.answers[name] = self._answer(is_there=True)
            elif name in book.answers and outcome.result in (Result.UNKNOWN, Result.UNAVAILABLE):
                book.answers.clear()  # perhaps it exists by now, or what it refers to does not
                return
            elif outcome.result is Result.REFUSED and outcome.action.group == names.HEAD_GROUP:
                book.answers.clear()  # perhaps because its service account is gone
                return

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._books.pop(key, None)

    def clear(self) -> None:
        """A new term: what was true in an earlier one need not be so now."""
        self._books.clear()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _is_there(self, key: Key, uid: str, lookup: Lookup) -> bool:
        try:
            live = await self._client.get(lookup.resource, Key(key.namespace, lookup.name))
        except Refused as refused:
            log.info("cannot look for %s %s: %s", lookup.resource.kind, lookup.name, refused)
            return False
        if live is None or not lookup.has_to_be_ours:
            return live is not None
        return not live["metadata"].get("deletionTimestamp") and _is_usable(live, uid, lookup)

    def _answer(self, *, is_there: bool, has_to_be_ours: bool = True) -> _Answer:
        absent_for_s = ABSENT_FOR_S if has_to_be_ours else NOT_OURS_FOR_S
        return _Answer(is_there, self._clock.monotonic() + (self._resync_s if is_there else absent_for_s))

    def _opened(self, key: Key, uid: str) -> _Book:
        book = self._books.get(key)
        if book is None or book.uid != uid:
            book = self._books[key] = _Book(uid, {})
        return book


def _is_usable(live: Manifest, uid: str, lookup: Lookup) -> bool:
    owners = live["metadata"].get("ownerReferences") or ()
    if owners:
        return any(owner.get("uid") == uid for owner in owners)
    return lookup.ours is not None and grants_no_more(live, lookup.ours)
