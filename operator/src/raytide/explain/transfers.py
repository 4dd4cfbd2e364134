"""Transfers: when a workload gave capacity to another one, and to which.

Takes the lanes that a caller may read, and returns for each workload when it gave and when it received, with a sentence. The sharing record
of the giver has the receivers' uids; one that belongs to no lane is "another workload": the caller may not read it, or it is gone. So no
name is shown that the caller could not list (FD:SEC-F7). Bounded, pure. Called by `raytide ui`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raytide.explain import messages
from raytide.explain.history import Key, key_of
from raytide.explain.model import TRAININGJOB
from raytide.explain.overview import Lane, Resized

MAX_TRANSFERS: Final = 20
"""The last ones of a workload."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One moment at which a workload gave or received capacity."""

    at: int
    """Seconds since 1970."""
    has_given: bool
    text: str


def transfers_of(lanes: Iterable[Lane]) -> dict[Key, tuple[Transfer, ...]]:
    """The transfers of each workload that has any, the latest at the end."""
    lanes = tuple(lanes)
    givers = [lane for lane in lanes if lane.resizes]
    if not givers:
        return {}
    keys = {key_of(lane) for lane in lanes}
    by_uid = {lane.uid: key_of(lane) for lane in lanes if lane.uid}
    found: dict[Key, list[Transfer]] = {}
    for lane in givers:
        for resize in lane.resizes:
            if resize.after < resize.before:
                _add_given(found, lane, resize, _receivers(resize, keys, by_uid))
    for lane in givers:
        received = [each.at for each in found.get(key_of(lane), ()) if not each.has_given]
        _add_growth(found, lane, received)
    return {key: tuple(sorted(each, key=lambda one: one.at)[-MAX_TRANSFERS:]) for key, each in found.items()}


def as_json(transfers: Iterable[Transfer]) -> list[dict[str, Any]]:
    """The transfers as JSON."""
    return [{"at": each.at, "gave": each.has_given, "text": each.text} for each in transfers]


def _receivers(resize: Resized, keys: set[Key], by_uid: dict[str, Key]) -> list[Key | None]:
    """Each receiver; None for one that is not among the lanes."""
    if resize.for_uids:
        return list(dict.fromkeys(by_uid.get(uid) for uid in resize.for_uids))
    namespace, _, name = resize.for_job.partition("/")  # a record of an operator that wrote no uids
    key = Key(TRAININGJOB, namespace, name)
    return [key if key in keys else None]


def _add_given(found: dict[Key, list[Transfer]], lane: Lane, resize: Resized, receivers: Sequence[Key | None]) -> None:
    giver = key_of(lane)
    others = [key for key in receivers if key is not None and key != giver]
    if not others and None not in receivers:
        return  # for its own pods
    sizes = (resize.before, resize.after)
    text = messages.gave(sizes, [_name(key) for key in others], is_any_hidden=None in receivers)
    found.setdefault(giver, []).append(Transfer(resize.at, has_given=True, text=text))
    for key in others:
        transfer = Transfer(resize.at, has_given=False, text=messages.received(_name(giver), sizes))
        found.setdefault(key, []).append(transfer)


def _add_growth(found: dict[Key, list[Transfer]], lane: Lane, received: Sequence[int]) -> None:
    """Growth with the capacity of others of which none is known: that of a known giver is marked where it gave."""
    since = 0
    for resize in lane.resizes:
        if resize.after > resize.before:
            if not any(since < at <= resize.at for at in received):
                text = messages.received("", (resize.before, resize.after))
                found.setdefault(key_of(lane), []).append(Transfer(resize.at, has_given=False, text=text))
            since = resize.at


def _name(key: Key) -> str:
    return f"{key.kind} {key.namespace}/{key.name}"
