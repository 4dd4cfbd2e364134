"""Expectations: writes in flight that the informer does not show yet.

Takes the writes of a key as they are sent and answered, and the views in the informer; returns the views to plan with.
A pod counts from the moment its create is sent and is never hidden. Nothing blocks: a request that stays unseen for 30
s, or whose outcome is unknown, is repeated unchanged. Written by `controller/executor`, read by the controllers before
they plan (D6).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from raytide.api import constants
from raytide.api.actions import Create, Delete
from raytide.api.meta import Key, Manifest
from raytide.runtime.backoff import backoff_s
from raytide.runtime.clock import Clock

V = TypeVar("V")

ARRIVES_WITHIN_S: Final = 60.0
"""How long an abandoned request may still be carried out: the default `--request-timeout` of kube-apiserver.

The server may have read it, or a proxy may hold it, when the connection ends.
"""

log = logging.getLogger(__name__)


def version_of(manifest: Manifest | None) -> int | None:
    """`metadata.resourceVersion` as a number; None if it is absent or not numeric.

    Versions of one kind come from one counter and can be compared: guaranteed since Kubernetes 1.35, and true of every
    server on etcd before. Where versions are not numeric, only the 30 s timeout applies.
    """
    version = ((manifest or {}).get("metadata") or {}).get("resourceVersion")
    return version_number(version) if isinstance(version, str) else None


def version_number(version: str) -> int | None:
    """The version as a number; None if it is not numeric."""
    return int(version) if version.isascii() and version.isdigit() else None


@dataclass(frozen=True, slots=True)
class ViewDecoder(Generic[V]):
    """Builds views: `read` from the bytes of an answer, `view_of` from a decoded object."""

    read: Callable[[bytes], V]
    view_of: Callable[[Manifest], V]
    identity_of: Callable[[V], Mapping[str, object]] = lambda _view: {}
    """Labels and owner by which the controller finds its object again, by name."""


@dataclass(slots=True)
class _Entry:
    """One request in flight; it is repeated at `due_at`."""

    action: Create | Delete
    uid: str
    due_at: float
    attempts: int = 1
    is_outcome_unknown: bool = False
    known_version: int = 0
    """The informer's version of the namespace when this was first sent; a create is stored above it."""
    is_gone: bool = False
    """A delete whose object the API server reported as not found."""
    shown_from: int = 0
    """Version of the create, for a delete of a pod that the informer may not hold yet."""
    version: int | None = None
    """Version in the API server's answer; once the informer reaches it, it holds the result."""
    has_asked_relist: bool = False
    given_up_at: float = float("-inf")
    """When it was last sent without an answer."""


@dataclass(slots=True)
class _OwnerEntries(Generic[V]):
    """Requests in flight for one owner."""

    owner_uid: str
    creates: dict[str, _Entry] = field(default_factory=dict)
    """By name."""
    views: dict[str, V] = field(default_factory=dict)
    """Expected views of the creates, by name."""
    deletes: dict[str, _Entry] = field(default_factory=dict)
    """By uid."""
    patched: dict[str, V] = field(default_factory=dict)
    """Answers to our patches, by uid."""
    arriving: dict[str, tuple[V, float]] = field(default_factory=dict)
    """By name: the view of an abandoned create, and until when it may still be carried out."""

    @property
    def is_empty(self) -> bool:
        return not (self.creates or self.deletes or self.patched or self.arriving)

    def drop_create(self, name: str) -> None:
        self.creates.pop(name, None)
        self.views.pop(name, None)


class Expectations(Generic[V]):
    """Writes in flight, merged into the informer's views.

    - `overlay` adds the view of every create in flight and marks, never hides, every pod with a delete in flight.
    - A create ends when the informer holds its uid; while the uid is unknown, when it holds a non-terminating object of
      its name. An older object of that name does not end it.
    - A delete ends when its uid is absent or terminating in the informer.
    - Either ends when the informer reaches the version of the API server's answer. Exception: a create stored at or
      below the informer's version at the time of sending (a restored snapshot) causes a relist instead.
    - Either ends when the API server rejects it.
    - An unanswered create that a GET does not find ends one minute after it was abandoned: until then it may still be
      carried out, and a replacement pod would have the same replica index.
    - An abandoned create is `arriving` for that minute, also if it was repeated and its object was deleted since: the
      abandoned request can then create the object again.
    - The result of a patch is shown until the informer reaches its version.
    - A request of unknown outcome is `due` at once, then with backoff; one unseen for 30 s is due too. A due request is
      repeated unchanged, and causes at most one relist.
    - Entries belong to (key, owner uid): a new owner of the same name starts empty.
    - `forget` drops one key, `clear` drops everything (a new leadership term).
    """

    def __init__(
        self,
        *,
        clock: Clock,
        reader: ViewDecoder[V],
        version_of: Callable[[V], str],
        name_of: Callable[[V], str],
        uid_of: Callable[[V], str],
        as_terminating: Callable[[V], V],
        informer_version: Callable[[str], int],
        ask_relist: Callable[[], None],
        patience_s: float = 30.0,
    ) -> None:
        """`as_terminating` returns an equal view if it is already terminating; `informer_version` takes a namespace."""
        self.reader = reader
        self._clock = clock
        self._version_of = version_of
        self._name_of = name_of
        self._uid_of = uid_of
        self._as_terminating = as_terminating
        self._informer_version = informer_version
        self._ask_relist = ask_relist
        self._patience_s = patience_s
        self._by_owner: dict[Key, _OwnerEntries[V]] = {}

    # --- read by controllers ---------------------------------------------------------------------------------------

    def overlay(self, key: Key, owner_uid: str, seen: Sequence[V]) -> tuple[V, ...]:
        """Merge requests in flight into `seen` after ending fulfilled ones; plan with it before the next await."""
        entries = self._owner_entries(key, owner_uid)
        if entries is None:
            return tuple(seen)
        self._end_fulfilled(key, entries, seen)
        known = (entries.patched.get(self._uid_of(view), view) for view in (*seen, *entries.views.values()))
        return tuple(self._as_terminating(v) if self._uid_of(v) in entries.deletes else v for v in known)

    def arriving(self, key: Key, owner_uid: str) -> tuple[V, ...]:
        """The views of abandoned creates that may still be carried out."""
        entries, now = self._owner_entries(key, owner_uid), self._clock.monotonic()
        return tuple(view for view, until in entries.arriving.values() if now < until) if entries else ()

    def due(self, key: Key, owner_uid: str) -> tuple[Create | Delete, ...]:
        """The requests to repeat now, unchanged; send them before the plan's actions."""
        entries = self._owner_entries(key, owner_uid)
        if entries is None:
            return ()
        now = self._clock.monotonic()
        due = [entry for entry in self._repeatable(entries) if entry.due_at <= now]
        if any(not entry.has_asked_relist for entry in due):
            self._ask_relist()
        for entry in due:
            if not entry.has_asked_relist and not entry.is_outcome_unknown:
                self._log_unseen(key, entry)
            entry.has_asked_relist = True
        return tuple(entry.action for entry in due)

    def _log_unseen(self, key: Key, entry: _Entry) -> None:
        """Log in KubeRay's wording, because users search for it (FD:RC-B14)."""
        target = "Head" if entry.action.group == constants.HEAD_GROUP else "Group"
        verb = "create" if isinstance(entry.action, Create) else "delete"
        log.warning(
            # In KubeRay's wording, because users search for it (FD:RC-B14).
            "NotSatisfied%sExpectations: %s of %s in group %r of %s not observed for %g s; "
            "the request is repeated and a relist is requested",
            target,
            verb,
            entry.action.name,
            entry.action.group,
            key,
            self._patience_s,
        )

    def requeue_after_s(self, key: Key) -> float | None:
        """Seconds until a request may be due; None when nothing is in flight."""
        entries = self._by_owner.get(key)
        if entries is None:
            return None
        now = self._clock.monotonic()
        # A create whose pod is being deleted ends with its delete; repeating it here would never end.
        awaited = (*self._repeatable(entries), *(entry for entry in entries.deletes.values() if entry.is_gone))
        return min((max(0.0, entry.due_at - now) for entry in awaited), default=None)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted owner."""
        self._by_owner.pop(key, None)

    def clear(self) -> None:
        """Drop everything."""
        self._by_owner.clear()

    # --- written by the executor -----------------------------------------------------------------------------------

    def sending(self, key: Key, owner_uid: str, action: Create | Delete) -> None:
        """Record a request right before it is sent, also for a repeat."""
        entries = self._owner_entries(key, owner_uid)
        if entries is None:
            entries = self._by_owner[key] = _OwnerEntries(owner_uid)
        entry = self._entry(entries, action)
        due_at = self._clock.monotonic() + self._patience_s
        if entry is not None:
            entry.attempts += 1
            entry.due_at = due_at
        elif isinstance(action, Create):
            known_version = self._informer_version(key.namespace)
            entries.creates[action.name] = _Entry(action, "", due_at, known_version=known_version)
            entries.views[action.name] = self.reader.view_of(action.manifest)
        else:
            created = next((e for e in entries.creates.values() if e.uid == action.uid), None)
            shown_from = created.version or 0 if created else 0
            entries.deletes[action.uid] = _Entry(action, action.uid, due_at, shown_from=shown_from)

    def accepted(self, key: Key, owner_uid: str, action: Create | Delete, live: V | None) -> None:
        """Record success: `live` is the object in the answer, None if it was not found (delete only)."""
        entries = self._owner_entries(key, owner_uid)
        entry = self._entry(entries, action) if entries else None
        if entries is None or entry is None:
            return
        entry.is_outcome_unknown, entry.given_up_at = False, float("-inf")
        if entry.due_at <= (now := self._clock.monotonic()):  # it was looked up, not sent again
            entry.due_at = now + self._patience_s
        entry.version = None if live is None else version_number(self._version_of(live))
        if isinstance(action, Create) and live is not None:
            self._check_version(entry)
            entry.uid = self._uid_of(live)
            entries.views[action.name] = live
        elif live is None:
            entry.is_gone = True
            created = entries.creates.get(action.name)
            if created is not None and created.uid == entry.uid:
                entries.drop_create(action.name)

    def outcome_unknown(self, key: Key, owner_uid: str, action: Create | Delete) -> None:
        """Record that the outcome is unknown."""
        entries = self._owner_entries(key, owner_uid)
        entry = self._entry(entries, action) if entries else None
        if entries is not None and entry is not None:
            entry.is_outcome_unknown = True
            entry.given_up_at = self._clock.monotonic()
            if isinstance(action, Create):
                entries.arriving[action.name] = entries.views[action.name], entry.given_up_at + ARRIVES_WITHIN_S
            self._put_off(entry)

    def lookup_failed(self, key: Key, owner_uid: str, action: Create) -> None:
        """Record that looking up a create failed."""
        entries = self._owner_entries(key, owner_uid)
        entry = self._entry(entries, action) if entries else None
        if entry is not None:
            entry.attempts += 1  # the first attempt has no backoff: a failing GET would be repeated at once
            self._put_off(entry)

    def not_found(self, key: Key, owner_uid: str, action: Create) -> None:
        """Record that a lookup did not find the object: the create ends, unless it may still be carried out."""
        entries = self._owner_entries(key, owner_uid)
        entry = self._entry(entries, action) if entries else None
        if entry is None:
            return
        now, settled_at = self._clock.monotonic(), entry.given_up_at + ARRIVES_WITHIN_S
        if now < settled_at:
            entry.due_at = min(now + self._patience_s, settled_at)  # if it is carried out, the informer will hold it
        else:
            self.rejected(key, owner_uid, action)

    def rejected(self, key: Key, owner_uid: str, action: Create | Delete) -> None:
        """Record that the request had no effect."""
        entries = self._owner_entries(key, owner_uid)
        if entries is None:
            return
        if isinstance(action, Create):
            entries.drop_create(action.name)
        else:
            entries.deletes.pop(action.uid, None)
        self._drop_if_empty(key, entries)

    def patched(self, key: Key, owner_uid: str, live: V) -> None:
        """Record a successful patch: `live` is the object as it is now."""
        entries = self._owner_entries(key, owner_uid)
        if entries is None:
            entries = self._by_owner[key] = _OwnerEntries(owner_uid)
        entries.patched[self._uid_of(live)] = live

    def is_outcome_unknown(self, key: Key, owner_uid: str, action: Create | Delete) -> bool:
        """Whether an earlier send of it has an unknown outcome."""
        entries = self._owner_entries(key, owner_uid)
        entry = self._entry(entries, action) if entries else None
        return (
            entry is not None and entry.is_outcome_unknown
        )  # --- internal ---------------------------------------------------------------------------------------------------

    def _owner_entries(self, key: Key, owner_uid: str) -> _OwnerEntries[V] | None:
        entries = self._by_owner.get(key)
        if entries is not None and entries.owner_uid != owner_uid:
            del self._by_owner[key]
            return None
        return entries

    @staticmethod
    def _entry(entries: _OwnerEntries[V], action: Create | Delete) -> _Entry | None:
        return entries.creates.get(action.name) if isinstance(action, Create) else entries.deletes.get(action.uid)

    def _put_off(self, entry: _Entry) -> None:
        wait_s = backoff_s(entry.attempts - 1, first_s=1.0, longest_s=self._patience_s)
        entry.due_at = self._clock.monotonic() + wait_s

    @staticmethod
    def _repeatable(entries: _OwnerEntries[V]) -> Iterator[_Entry]:
        """Entries that may be sent again: no create whose pod is being deleted, and no delete of an absent object."""
        yield from (entry for entry in entries.creates.values() if not entry.uid or entry.uid not in entries.deletes)
        yield from (entry for entry in entries.deletes.values() if not entry.is_gone)

    def _end_fulfilled(self, key: Key, entries: _OwnerEntries[V], seen: Sequence[V]) -> None:
        version = self._informer_version(key.namespace)
        seen_by_uid = {self._uid_of(view): view for view in seen}
        alive = (
            {self._name_of(view) for view in seen if self._as_terminating(view) != view} if entries.creates else set()
        )
        for name, entry in list(entries.creates.items()):
            is_shown = entry.uid in seen_by_uid if entry.uid else name in alive
            if is_shown or self._is_reached(entry, version):
                entries.drop_create(name)
        if entries.deletes:
            self._end_deletes(entries, seen_by_uid, version)
        now = self._clock.monotonic()
        for name, (_, until) in list(entries.arriving.items()):
            if until <= now:
                del entries.arriving[name]
        for uid, live in list(entries.patched.items()):
            if version >= (version_number(self._version_of(live)) or 0):
                del entries.patched[uid]
        self._drop_if_empty(key, entries)

    def _end_deletes(self, entries: _OwnerEntries[V], seen_by_uid: Mapping[str, V], version: int) -> None:
        awaited = {entry.uid for entry in entries.creates.values() if entry.uid}
        now = self._clock.monotonic()
        for uid, entry in list(entries.deletes.items()):
            view = seen_by_uid.get(uid)
            if view is not None:
                is_over = self._as_terminating(view) == view
            else:
                is_over = uid not in awaited and version >= entry.shown_from
            is_stale = entry.is_gone and entry.due_at <= now
            if is_stale and view is not None:
                self._ask_relist()  # not found by the API server, but still in the informer
            if is_over or is_stale or self._is_reached(entry, version):
                del entries.deletes[uid]

    def _check_version(self, entry: _Entry) -> None:
        """Relist if a create was stored at or below the version known before: the store was restored (RM:F10).

        Versions are then unusable: the create is matched by its uid.
        """
        if entry.version is not None and entry.version <= entry.known_version:
            entry.version = None
            self._ask_relist()

    @staticmethod
    def _is_reached(entry: _Entry, version: int) -> bool:
        return entry.version is not None and version >= entry.version

    def _drop_if_empty(self, key: Key, entries: _OwnerEntries[V]) -> None:
        if entries.is_empty:
            self._by_owner.pop(key, None)
