"""Live reader: GETs an object and rejects answers that are staler than the informer.

Takes a kind and a key; returns the object, None when it is gone. An answer older than what the informer holds raises
`ApiUnavailableError`, so that a pass neither acts on an outdated spec nor drops the state of a new object. Used by the
controllers' reconcilers at the start of every pass (D2).
"""

from collections.abc import Callable
from typing import Final

from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key, Manifest, Resource
from raytide.controller.expectations import version_of
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

GONE_FOR_S: Final = 10.0
"""How long the watch may lag behind a GET in reporting a deletion."""


class LiveReader:
    """Reads the objects of one kind.

    - An answer older than what the informer holds raises Unavailable; so does NotFound for an object it holds.
    - If the API server's store was restored from an older snapshot, the answer is right and the informer is outdated:
      it is relisted (FD:REL-C). One older version suffices for that. NotFound must repeat `GONE_FOR_S` later, because a
      GET is always ahead of the watch after a deletion.
    """

    def __init__(self, client: Client, resource: Resource, *, clock: Clock) -> None:
        self._client = client
        self._resource = resource
        self._clock = clock
        self._gone_since: dict[Key, float] = {}
        """When a GET first found no object that the informer holds; the object is read again until that is settled."""

    async def read(self, key: Key, *, shown: Callable[[], int | None], relist: Callable[[], None]) -> Manifest | None:
        """Read the object; `shown` returns the version that the informer holds when the answer arrives."""
        obj = await self._client.get(self._resource, key)
        version, known = version_of(obj), shown()
        if known is None or (obj is not None and (version is None or version >= known)):
            self._gone_since.pop(key, None)
            return obj
        if obj is not None or self._is_gone_for_long(key):
            self._gone_since.pop(key, None)
            relist()
        raise ApiUnavailableError(
            f"the API server returned an older state of {self._resource.kind} {key} than the informer holds"
        )

    def _is_gone_for_long(self, key: Key) -> bool:
        now = self._clock.monotonic()
        return now - self._gone_since.setdefault(key, now) >= GONE_FOR_S

    def clear(self) -> None:
        """Drop all state at the beginning of a leadership term."""
        self._gone_since.clear()
