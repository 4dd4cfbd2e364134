"""Status writer of one pod.

Takes whole statuses and writes the latest one, never an equal one twice, with retries until the API server accepts it;
`finish` then deletes the pod with grace period 0. Requests carry the pod's uid, so that they do not apply to a later
pod of the same name. Owned by podworker.py.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from raytide_sandbox.kubelet.apiclient import ApiClient, ApiStatusError, ApiUnavailableError, Manifest

_GONE: Final = frozenset({404, 409})
_FIRST_DELAY_S: Final = 0.2
_MAX_DELAY_S: Final = 10.0

_log = logging.getLogger(__name__)


class Reporter:
    """The single writer of one pod's status."""

    def __init__(self, api: ApiClient, metadata: Manifest) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._uid = metadata["uid"]
        self._wanted: Manifest | None = None
        self._written: Manifest = {}
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def written(self) -> Manifest:
        """The last status that the API server has accepted; empty before the first."""
        return self._written

    def report(self, status: Mapping[str, Any]) -> None:
        """Write this status as soon as possible, instead of any that still waits."""
        self._wanted = status
        self._changed.set()

    async def close(self) -> None:
        """Stop writing."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Write a last status and delete the pod; returns when both have succeeded or the pod is gone."""
        await self.close()
        if status != self._written:
            await self._insist("PATCH", self._path + "/status", self._patch(status))
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self._uid},
        }
        await self._insist("DELETE", self._path, body)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            status = self._wanted
            if status is None or status == self._written:
                continue
            if await self._insist("PATCH", self._path + "/status", self._patch(status), unless=self._changed):
                self._written = status

    def _patch(self, status: Manifest) -> Manifest:
        dropped = {key: None for key in self._written if key not in status}
        return {"metadata": {"uid": self._uid}, "status": {**dropped, **status}}

    async def _insist(self, method: str, path: str, body: Manifest, unless: asyncio.Event | None = None) -> bool:
        """Retry until the request succeeds, the pod is gone, or `unless` is set; returns whether it has succeeded."""
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                await self._send(method, path, body)
            except ApiUnavailableError as error:
                _log.debug("%s %s: %s", method, path, error)
            except ApiStatusError as error:
                if error.status in _GONE:
                    return False
                _log.warning("%s %s rejected: %s", method, path, error)
            else:
                return True
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_DELAY_S)
            if unless is not None and unless.is_set():
                return False

    async def _send(self, method: str, path: str, body: Manifest) -> None:
        if method == "PATCH":
            await self._api.merge_patch(path, body)
        else:
            await self._api.request(method, path, body=body)
