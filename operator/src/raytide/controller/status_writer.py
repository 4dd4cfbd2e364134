"""Status writer: rate-limited status patches guarded by resourceVersion.

Sends the patch that a pass computed, guarded by the resourceVersion it was computed from, at most once per half second
and not right after other writes (D8). It reports the versions it wrote, so that their watch events cause no pass. It
computes no status. Used by the controllers' reconcilers at the end of a pass.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.merge_patch import merge_difference
from raytide.api.meta import Key, Manifest, Resource
from raytide.kube.client import Client
from raytide.metrics import STATUS_WRITES
from raytide.runtime.clock import Clock

STATUS_WRITES_APART_S: Final = 0.5
_LOG: Final = logging.getLogger(__name__)
FIELDS_DROPPED: Final = (
    "the CRD of %s has no status.%s, which raytide why reads: apply Raytide's CRD and restart the operator"
)
"""Log line, once per field: kind and names of the fields."""


class StatusWriter:
    """Status writes of one kind.

    - `wait_s` returns the delay before a status write; `write` sends it; `mark_up_to_date` records that none is needed.
    - A conflict, or an object that is gone, is `ApiUnavailableError`: the next pass reads the current state.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        clock: Clock,
        controller: str,
        ignore_resource_version: Callable[..., None],
    ) -> None:
        """`controller` is the metrics label; `ignore_resource_version(key, *versions)` takes versions whose watch events need no pass."""
        self._client = client
        self._resource = resource
        self._clock = clock
        self._controller = controller
        self._ignore_resource_version = ignore_resource_version
        self._written_at: dict[Key, float] = {}
        self._unwritten_since: dict[Key, float] = {}
        self._dropped: frozenset[str] = frozenset()
        """Fields that the API server does not store, because its CRD is another operator's or an older one."""

    def wait_s(self, key: Key, *, has_acted: bool) -> float:
        """Seconds until the status may be written.

        At least half a second after the last write, and after other writes of a pass: the new pods will change the
        status again.
        """
        now = self._clock.monotonic()
        due_at = self._written_at.get(key, now - STATUS_WRITES_APART_S) + STATUS_WRITES_APART_S
        if has_acted:
            self._unwritten_since.setdefault(key, now)
        if key in self._unwritten_since:
            due_at = max(due_at, self._unwritten_since[key] + STATUS_WRITES_APART_S)
        return due_at - now

    def storable(self, old: Mapping[str, Any], computed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The computed status as the API server stores it; `old` if that would be the only difference."""
        kept = {key: value for key, value in computed.items() if key not in self._dropped}
        is_new = not self._dropped or merge_difference(old, kept).keys() - {"lastUpdateTime"}
        return kept if is_new else old

    def mark_up_to_date(self, key: Key, version: str) -> None:
        """Record that the status of that version is up to date."""
        self._ignore_resource_version(key, version)
        self._unwritten_since.pop(key, None)

    async def write(self, obj: Manifest, key: Key, patch: Mapping[str, Any]) -> None:
        """Send the patch that was computed from `obj`."""
        try:
            live = await self._client.patch_status(self._resource, key, patch)
        except ApiStatusError as error:
            if error.status not in (404, 409):
                raise
            # Gone, replaced by another object of that name, or changed since it was read: the next pass reads it.
            raise ApiUnavailableError(
                f"status of {self._resource.kind} {key} not written, the object changed or is gone: {error}"
            ) from error
        STATUS_WRITES.labels(self._controller).inc()
        stored = live.get("status", patch["status"])
        dropped = {name for name, value in patch["status"].items() if value is not None and name not in stored}
        if dropped:
            self._dropped |= dropped
            _LOG.warning(FIELDS_DROPPED, self._resource.kind, ", status.".join(sorted(dropped)))
        self._written_at[key] = self._clock.monotonic()
        self._unwritten_since.pop(key, None)
        # The guard excludes other writes in between: both versions hold only known content.
        self._ignore_resource_version(key, *(version["metadata"].get("resourceVersion", "") for version in (obj, live)))

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted object."""
        self._written_at.pop(key, None)
        self._unwritten_since.pop(key, None)
