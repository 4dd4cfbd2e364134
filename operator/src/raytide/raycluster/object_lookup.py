"""Cache of objects that are read by name because no informer watches their kind.

Takes the names that a cluster needs, gets each by name (D3) and caches the answers, so that most reconciles send no
request: an existing object is read again by the first reconcile after five minutes, a missing one after half a minute.
Outcomes of our own creates update the answers, and a rejected head create drops them. Kept by the controller for one
leadership term; it decides nothing.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raytide.api import constants
from raytide.api.actions import Outcome, Result
from raytide.api.errors import ApiStatusError
from raytide.api.meta import PERSISTENT_VOLUME_CLAIMS, SECRETS, Key, Manifest, Resource
from raytide.kube.client import Client
from raytide.raycluster import messages
from raytide.raycluster.manifests.lookup import Lookup
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

THERE_FOR_S: Final = 300.0
"""Three small requests per cluster in five minutes, and none while nothing enqueues it: they cause no reconcile. A
deleted Role is created again at the first watch event or resync after that time."""
ABSENT_FOR_S: Final = 30.0
NOT_OURS_FOR_S: Final = 5.0
"""Objects that the user creates are read more often, because no watch reports them."""

_OF_PODS: Final = frozenset({PERSISTENT_VOLUME_CLAIMS, SECRETS})
"""Kinds without which a pod is accepted, and does not start."""

Name = tuple[Resource, str]


@dataclass(slots=True)
class _Answer:
    lookup: Lookup
    is_there: bool
    until: float
    live: Manifest | None = None
    """The object, if the plan reads it."""


@dataclass(slots=True)
class _OwnerLookups:
    """The answers for one cluster of this uid."""

    uid: str
    answers: dict[Name, _Answer]


class ObjectLookupCache:
    """Existence of the objects that are read by name.

    - `refresh` gets only what has no valid answer; a rejected read counts as "not there", so that the create reports the
      error. A created head drops the answers about what its pod mounts.
    - An object counts as there if the cluster owns it, if it need not be ours, or if it has no owner and `may_use` accepts it.
    - One that the plan reads is kept, and read again after our own write; it counts as there also while it is terminating.
    - Another uid of the cluster, and `clear` at the beginning of a term, drop all answers.
    """

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._books: dict[Key, _OwnerLookups] = {}

    async def refresh(self, key: Key, uid: str, wanted: Iterable[Lookup]) -> None:
        """Get what has no valid answer, and drop the answers that are not wanted any more.

        Raises Unavailable when the API server does not answer.
        """
        names = {(lookup.resource, lookup.name): lookup for lookup in wanted}
        answers = self._opened(key, uid).answers
        for name in answers.keys() - names.keys():
            del answers[name]
        for name, lookup in names.items():
            known = answers.get(name)
            if known is None or known.lookup != lookup or known.until <= self._clock.monotonic():
                answers[name] = await self._look_up(key, uid, lookup)

    async def read(self, resource: Resource, key: Key) -> Manifest | None:
        """The object, not from the cache; None also if it may not be read. Raises `ApiUnavailableError`."""
        try:
            return await self._client.get(resource, key)
        except ApiStatusError as error:
            log.info(messages.LOOKUP_REJECTED, resource.kind, key.name, error)
            return None

    def missing(self, key: Key, uid: str) -> frozenset[Name]:
        """Kind and name of the objects that were looked up and do not exist."""
        book = self._books.get(key)
        if book is None or book.uid != uid:
            return frozenset()
        return frozenset(name for name, answer in book.answers.items() if not answer.is_there)

    def kept(self, key: Key, uid: str) -> dict[Name, Manifest]:
        """By kind and name, the objects that the plan reads, as they were looked up."""
        book = self._books.get(key)
        if book is None or book.uid != uid:
            return {}
        return {name: answer.live for name, answer in book.answers.items() if answer.live is not None}

    def record_outcomes(self, key: Key, uid: str, outcomes: Iterable[Outcome]) -> None:
        """Update the answers with the outcomes of our own creates."""
        book = self._books.get(key)
        if book is None or book.uid != uid:
            return
        for outcome in outcomes:
            name = outcome.action.resource, outcome.action.name
            answer = book.answers.get(name)
            if answer is not None and outcome.result is Result.DONE:
                if answer.lookup.is_kept:
                    del book.answers[name]  # it is read again, as it is after the write
                else:
                    answer.is_there, answer.until = True, self._clock.monotonic() + THERE_FOR_S
            elif answer is not None and outcome.result in (Result.UNKNOWN, Result.UNAVAILABLE):
                book.answers.clear()  # perhaps it exists by now, or what it refers to does not
                return
            elif outcome.result is Result.REJECTED and outcome.action.group == constants.HEAD_GROUP:
                book.answers.clear()  # perhaps because its service account is gone
                return
            elif outcome.result is Result.DONE and outcome.action.group == constants.HEAD_GROUP:
                # The API server accepts a pod whose Secret or claim is gone: they are read again by the next pass.
                book.answers = {name: each for name, each in book.answers.items() if name[0] not in _OF_PODS}

    def forget(self, key: Key) -> None:
        """Drop the answers for a deleted cluster."""
        self._books.pop(key, None)

    def clear(self) -> None:
        """Drop all answers at the start of a leadership term; they may be outdated."""
        self._books.clear()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _look_up(self, key: Key, uid: str, lookup: Lookup) -> _Answer:
        live = await self.read(lookup.resource, Key(key.namespace, lookup.name))
        absent_for_s = ABSENT_FOR_S if lookup.has_to_be_ours else NOT_OURS_FOR_S
        if live is None or (lookup.has_to_be_ours and not _is_usable(live, uid, lookup)):
            return _Answer(lookup, is_there=False, until=self._clock.monotonic() + absent_for_s)
        stays = not live["metadata"].get("deletionTimestamp")
        return _Answer(
            lookup,
            is_there=stays or lookup.is_kept or not lookup.has_to_be_ours,
            until=self._clock.monotonic() + (THERE_FOR_S if stays else absent_for_s),
            live=live if lookup.is_kept else None,
        )

    def _opened(self, key: Key, uid: str) -> _OwnerLookups:
        book = self._books.get(key)
        if book is None or book.uid != uid:
            book = self._books[key] = _OwnerLookups(uid, {})
        return book


def _is_usable(live: Manifest, uid: str, lookup: Lookup) -> bool:
    owners = live["metadata"].get("ownerReferences") or ()
    if owners:
        return any(owner.get("uid") == uid for owner in owners)
    return lookup.may_use(live)
