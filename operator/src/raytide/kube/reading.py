"""Is the object there, as it is now?

Takes a kind and a key, gives the object by one GET, None when it is gone. An answer that is older than what an informer
shows already is no answer: nobody may act on a wish of yesterday, nor forget what has just been made. Called by the
controllers' shells at the start of every pass (D2).
"""

from collections.abc import Callable
from typing import Final

from raytide.api.errors import Unavailable
from raytide.api.meta import Key, Manifest, Resource
from raytide.kube.client import Client
from raytide.kube.expectations import version_of
from raytide.runtime.clock import Clock

GONE_FOR_S: Final = 10.0
"""So long the watch may take to tell of a deletion that a GET knows of already."""


class LiveReader:
    """Reads the objects of one kind.

    - An answer that is older than what the informer shows raises Unavailable, and so does None while it shows the object.
    - If the API server's store was restored from an older snapshot, the answer is the truth and the informer shows what is
      no more: it lists again then (FD:REL-C). An older version is enough for that. That an object is gone is not, because a
      GET is ahead of the watch whenever something is deleted: the same has to be found `GONE_FOR_S` later.
    """

    def __init__(self, client: Client, resource: Resource, *, clock: Clock) -> None:
        self._client = client
        self._resource = resource
        self._clock = clock
        self._gone_since: dict[Key, float] = {}
        """When an object that the informer shows was first not found; each of them is read again until that is settled."""

    async def read(self, key: Key, *, shown: Callable[[], int | None], relist: Callable[[], None]) -> Manifest | None:
        """The object; `shown` is the version that the informer shows by the time of the answer."""
        obj = await self._client.get(self._resource, key)
        version, known = version_of(obj), shown()
        if known is None or (obj is not None and (version is None or version >= known)):
            self._gone_since.pop(key, None)
            return obj
        if obj is not None or self._is_gone_for_long(key):
            self._gone_since.pop(key, None)
            relist()
        raise Unavailable(f"the {self._resource.kind} was read as it was before the informer showed it last")

    def _is_gone_for_long(self, key: Key) -> bool:
        now = self._clock.monotonic()
        return now - self._gone_since.setdefault(key, now) >= GONE_FOR_S

    def clear(self) -> None:
        """A new term of leadership begins: every object is read anew."""
        self._gone_since.clear()
