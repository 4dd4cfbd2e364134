"""When and how is a status written?

Takes the patch that a pass computed and sends it, guarded by the resourceVersion it was computed from, never within half
a second of the last one and not right after acting (D8). What we wrote is told to the controller, so that its echo is no
news. It computes no status. Called by the controllers' shells at the end of a pass.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Key, Manifest, Resource
from raytide.kube.client import Client
from raytide.metrics import STATUS_WRITES
from raytide.runtime.clock import Clock

STATUS_WRITES_APART_S: Final = 0.5


class StatusWriting:
    """The status writes of one kind.

    - `wait_s` says how long a status has to wait; `write` sends it; `note_equal` that there is nothing to write.
    - A write that meets another, or an object that is gone, is Unavailable: the next pass reads what is there now.
    """

    def __init__(
        self, client: Client, resource: Resource, *, clock: Clock, controller: str, saw: Callable[..., None]
    ) -> None:
        """`controller` is what metrics call it; `saw(key, *versions)` learns which versions are no news."""
        self._client = client
        self._resource = resource
        self._clock = clock
        self._controller = controller
        self._saw = saw
        self._written_at: dict[Key, float] = {}
        self._unwritten_since: dict[Key, float] = {}

    def wait_s(self, key: Key, *, has_acted: bool) -> float:
        """Seconds until the status may be written.

        Never within half a second of the last write; and not right after acting, because the pods just asked for are
        about to change it again.
        """
        now = self._clock.monotonic()
        due_at = self._written_at.get(key, now - STATUS_WRITES_APART_S) + STATUS_WRITES_APART_S
        if has_acted:
            self._unwritten_since.setdefault(key, now)
        if key in self._unwritten_since:
            due_at = max(due_at, self._unwritten_since[key] + STATUS_WRITES_APART_S)
        return due_at - now

    def note_equal(self, key: Key, version: str) -> None:
        """The status of that version is what it has to be."""
        self._saw(key, version)
        self._unwritten_since.pop(key, None)

    async def write(self, obj: Manifest, key: Key, patch: Mapping[str, Any]) -> None:
        """Send the patch that was computed from `obj`."""
        try:
            live = await self._client.patch_status(self._resource, key, patch)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            # Gone, another object of that name, or changed since we read it: the next pass reads which.
            raise Unavailable(f"status not written: {refused}") from refused
        STATUS_WRITES.labels(self._controller).inc()
        self._written_at[key] = self._clock.monotonic()
        self._unwritten_since.pop(key, None)
        # The guard says that nobody else wrote in between: both versions hold what we know.
        self._saw(key, *(version["metadata"].get("resourceVersion", "") for version in (obj, live)))

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._written_at.pop(key, None)
        self._unwritten_since.pop(key, None)
