"""Which pods exist that the informer does not show yet, and which still shown are already told to go?

Takes the writes of a key as they are sent and answered, and the views the informer shows; gives the views as they must
be planned with. It counts a pod from the moment its create is sent, never hides one, and never makes anybody wait: what
stays unseen for 30 seconds, or unknown, is asked for again by the very same request. Written by `kube/apply`, read by
the controllers before they plan (D6).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from raytide.api import names
from raytide.api.actions import Create, Delete
from raytide.api.meta import Key, Manifest
from raytide.runtime.backoff import backoff_s
from raytide.runtime.clock import Clock

V = TypeVar("V")

log = logging.getLogger(__name__)


def version_of(manifest: Manifest | None) -> int | None:
    """`metadata.resourceVersion` as a number, None where there is none.

    Versions of one kind come from one counter and may be compared: Kubernetes promises it since 1.35, and every server
    on etcd has always done so. Where a server's versions are no numbers the rule of thirty seconds remains.
    """
    version = ((manifest or {}).get("metadata") or {}).get("resourceVersion")
    return version_number(version) if isinstance(version, str) else None


def version_number(version: str) -> int | None:
    """The same of a version that is known to be text."""
    return int(version) if version.isascii() and version.isdigit() else None


@dataclass(frozen=True, slots=True)
class Reader(Generic[V]):
    """How a view is made: `read` takes the bytes of an answer, `view_of` an object we have."""

    read: Callable[[bytes], V]
    view_of: Callable[[Manifest], V]


@dataclass(slots=True)
class _Entry:
    """One request on its way: `due_at` is when it should be repeated."""

    action: Create | Delete
    uid: str
    due_at: float
    attempts: int = 1
    is_doubtful: bool = False
    known_version: int = 0
    """Up to where the informer knew the namespace when this was first sent; a create is stored above it."""
    is_gone: bool = False
    """A delete whose object the API no longer knows."""
    shown_from: int = 0
    """A delete of a pod that the informer may not have shown yet: its create has this version."""
    version: int | None = None
    """The version of the API's answer; the informer shows the result from there on."""
    has_asked_relist: bool = False


@dataclass(slots=True)
class _Book(Generic[V]):
    """What is in flight for one owner."""

    owner_uid: str
    creates: dict[str, _Entry] = field(default_factory=dict)
    """By name."""
    views: dict[str, V] = field(default_factory=dict)
    """What the creates will look like, by name."""
    deletes: dict[str, _Entry] = field(default_factory=dict)
    """By uid."""
    patched: dict[str, V] = field(default_factory=dict)
    """What the API answered to our patches, by uid."""

    @property
    def is_empty(self) -> bool:
        return not (self.creates or self.deletes or self.patched)

    def drop_create(self, name: str) -> None:
        self.creates.pop(name, None)
        self.views.pop(name, None)


class Expectations(Generic[V]):
    """Writes in flight, laid over what the informer shows.

    - `overlay` adds the view of every create in flight and marks, never hides, every pod with a delete in flight.
    - A create ends when the informer shows it: its uid, or as long as that is unknown its name on something that is not
      terminating. An older namesake that the informer still shows ends nothing.
    - A delete ends when its uid is gone or shown as terminating.
    - Either ends when the informer has reached the version of the API's answer, whatever it shows; not so a create that was
      stored below what the informer knew when it was sent (an older snapshot was restored): that asks for a new list.
    - Either ends when the API refuses it.
    - What a patch made of an object is shown until the informer has reached that version.
    - An unknown outcome makes it `due` at once, then ever more slowly; unseen for 30 s makes it due too.
      What is due is the very same request, and one re-list is asked for per entry.
    - Entries belong to (key, owner uid): a new owner of the same name starts with an empty book.
    - `forget` drops one key, `clear` everything (a new term of leadership).
    """

    def __init__(
        self,
        *,
        clock: Clock,
        reader: Reader[V],
        version_of: Callable[[V], str],
        name_of: Callable[[V], str],
        uid_of: Callable[[V], str],
        as_terminating: Callable[[V], V],
        informer_version: Callable[[str], int],
        ask_relist: Callable[[], None],
        patience_s: float = 30.0,
    ) -> None:
        """`as_terminating` gives back an equal view if it is terminating already; versions are asked by namespace."""
        self.reader = reader
        self._clock = clock
        self._version_of = version_of
        self._name_of = name_of
        self._uid_of = uid_of
        self._as_terminating = as_terminating
        self._informer_version = informer_version
        self._ask_relist = ask_relist
        self._patience_s = patience_s
        self._books: dict[Key, _Book[V]] = {}

    # --- read by controllers ---------------------------------------------------------------------------------------

    def overlay(self, key: Key, owner_uid: str, seen: Sequence[V]) -> tuple[V, ...]:
        """`seen` ⊕ in flight, after ending what `seen` fulfils; plan with it before the next await."""
        book = self._book(key, owner_uid)
        if book is None:
            return tuple(seen)
        self._end_fulfilled(key, book, seen)
        known = (book.patched.get(self._uid_of(view), view) for view in (*seen, *book.views.values()))
        return tuple(self._as_terminating(v) if self._uid_of(v) in book.deletes else v for v in known)

    def due(self, key: Key, owner_uid: str) -> tuple[Create | Delete, ...]:
        """The requests to repeat now, exactly as they were; put them in front of the plan's actions."""
        book = self._book(key, owner_uid)
        if book is None:
            return ()
        now = self._clock.monotonic()
        due = [entry for entry in self._repeatable(book) if entry.due_at <= now]
        if any(not entry.has_asked_relist for entry in due):
            self._ask_relist()
        for entry in due:
            if not entry.has_asked_relist and not entry.is_doubtful:
                self._say_unseen(key, entry)
            entry.has_asked_relist = True
        return tuple(entry.action for entry in due)

    def _say_unseen(self, key: Key, entry: _Entry) -> None:
        """In the words in which KubeRay logs the same, because people look for them (FD:RC-B14)."""
        who = "Head" if entry.action.group == names.HEAD_GROUP else "Group"
        verb = "create" if isinstance(entry.action, Create) else "delete"
        log.warning(
            "NotSatisfied%sExpectations: %s of %s in group %r of %s has not been seen for %g s; it is repeated, and a list asked for",
            who,
            verb,
            entry.action.name,
            entry.action.group,
            key,
            self._patience_s,
        )

    def look_again_in(self, key: Key) -> float | None:
        """Seconds until something may be due; None when nothing is in flight."""
        book = self._books.get(key)
        if book is None:
            return None
        now = self._clock.monotonic()
        # A create whose pod is told to go is waited for by its delete; asking for it here would be asking for ever.
        awaited = (*self._repeatable(book), *(entry for entry in book.deletes.values() if entry.is_gone))
        return min((max(0.0, entry.due_at - now) for entry in awaited), default=None)

    def forget(self, key: Key) -> None:
        """The owner is gone."""
        self._books.pop(key, None)

    def clear(self) -> None:
        """Start over."""
        self._books.clear()

    # --- written by the executor -----------------------------------------------------------------------------------

    def sending(self, key: Key, owner_uid: str, action: Create | Delete) -> None:
        """Call right before the request is sent; for a repeat too."""
        book = self._book(key, owner_uid)
        if book is None:
            book = self._books[key] = _Book(owner_uid)
        entry = self._entry(book, action)
        due_at = self._clock.monotonic() + self._patience_s
        if entry is not None:
            entry.attempts += 1
            entry.due_at = due_at
        elif isinstance(action, Create):
            known_version = self._informer_version(key.namespace)
            book.creates[action.name] = _Entry(action, "", due_at, known_version=known_version)
            book.views[action.name] = self.reader.view_of(action.manifest)
        else:
            created = next((e for e in book.creates.values() if e.uid == action.uid), None)
            shown_from = created.version or 0 if created else 0
            book.deletes[action.uid] = _Entry(action, action.uid, due_at, shown_from=shown_from)

    def accepted(self, key: Key, owner_uid: str, action: Create | Delete, live: V | None) -> None:
        """The API said yes: `live` is the object it answered with, None if it no longer knows it (delete only)."""
        book = self._book(key, owner_uid)
        entry = self._entry(book, action) if book else None
        if book is None or entry is None:
            return
        entry.is_doubtful = False
        if entry.due_at <= (now := self._clock.monotonic()):  # it was looked for, not sent again
            entry.due_at = now + self._patience_s
        entry.version = None if live is None else version_number(self._version_of(live))
        if isinstance(action, Create) and live is not None:
            self._check_version(entry)
            entry.uid = self._uid_of(live)
            book.views[action.name] = live
        elif live is None:
            entry.is_gone = True
            created = book.creates.get(action.name)
            if created is not None and created.uid == entry.uid:
                book.drop_create(action.name)

    def doubted(self, key: Key, owner_uid: str, action: Create | Delete) -> None:
        """Nobody knows whether it happened."""
        book = self._book(key, owner_uid)
        entry = self._entry(book, action) if book else None
        if entry is not None:
            entry.is_doubtful = True
            wait_s = backoff_s(entry.attempts - 1, first_s=1.0, longest_s=self._patience_s)
            entry.due_at = self._clock.monotonic() + wait_s

    def refused(self, key: Key, owner_uid: str, action: Create | Delete) -> None:
        """It did not happen."""
        book = self._book(key, owner_uid)
        if book is None:
            return
        if isinstance(action, Create):
            book.drop_create(action.name)
        else:
            book.deletes.pop(action.uid, None)
        self._drop_if_empty(key, book)

    def patched(self, key: Key, owner_uid: str, live: V) -> None:
        """The API said yes to a patch: `live` is the object as it is now."""
        book = self._book(key, owner_uid)
        if book is None:
            book = self._books[key] = _Book(owner_uid)
        book.patched[self._uid_of(live)] = live

    def is_doubtful(self, key: Key, owner_uid: str, action: Create | Delete) -> bool:
        """True when an earlier sending of it has an unknown outcome."""
        book = self._book(key, owner_uid)
        entry = self._entry(book, action) if book else None
        return entry is not None and entry.is_doubtful

    # --- inside ------------------------------------------------------------------------------------------------------

    def _book(self, key: Key, owner_uid: str) -> _Book[V] | None:
        book = self._books.get(key)
        if book is not None and book.owner_uid != owner_uid:
            del self._books[key]
            return None
        return book

    @staticmethod
    def _entry(book: _Book[V], action: Create | Delete) -> _Entry | None:
        return book.creates.get(action.name) if isinstance(action, Create) else book.deletes.get(action.uid)

    @staticmethod
    def _repeatable(book: _Book[V]) -> Iterator[_Entry]:
        """A create whose pod is told to go, and a delete of what is gone, are never sent again."""
        yield from (entry for entry in book.creates.values() if not entry.uid or entry.uid not in book.deletes)
        yield from (entry for entry in book.deletes.values() if not entry.is_gone)

    def _end_fulfilled(self, key: Key, book: _Book[V], seen: Sequence[V]) -> None:
        version = self._informer_version(key.namespace)
        seen_by_uid = {self._uid_of(view): view for view in seen}
        alive = {self._name_of(view) for view in seen if self._as_terminating(view) != view} if book.creates else set()
        for name, entry in list(book.creates.items()):
            is_shown = entry.uid in seen_by_uid if entry.uid else name in alive
            if is_shown or self._is_reached(entry, version):
                book.drop_create(name)
        if book.deletes:
            self._end_deletes(book, seen_by_uid, version)
        for uid, live in list(book.patched.items()):
            if version >= (version_number(self._version_of(live)) or 0):
                del book.patched[uid]
        self._drop_if_empty(key, book)

    def _end_deletes(self, book: _Book[V], seen_by_uid: Mapping[str, V], version: int) -> None:
        awaited = {entry.uid for entry in book.creates.values() if entry.uid}
        now = self._clock.monotonic()
        for uid, entry in list(book.deletes.items()):
            view = seen_by_uid.get(uid)
            if view is not None:
                is_over = self._as_terminating(view) == view
            else:
                is_over = uid not in awaited and version >= entry.shown_from
            is_stale = entry.is_gone and entry.due_at <= now
            if is_stale and view is not None:
                self._ask_relist()  # the API denies what the informer still shows
            if is_over or is_stale or self._is_reached(entry, version):
                del book.deletes[uid]

    def _check_version(self, entry: _Entry) -> None:
        """A create stored at or below what was known before it was sent: the API server's store has gone back (RM:F10).

        Versions say nothing then: the create is awaited by its uid, and what the informer shows is listed again.
        """
        if entry.version is not None and entry.version <= entry.known_version:
            entry.version = None
            self._ask_relist()

    @staticmethod
    def _is_reached(entry: _Entry, version: int) -> bool:
        return entry.version is not None and version >= entry.version

    def _drop_if_empty(self, key: Key, book: _Book[V]) -> None:
        if book.is_empty:
            self._books.pop(key, None)
