"""Worker of a pod whose spec is invalid.

Takes the raw pod and the error message; reports the pod as Failed with that message, starts nothing, and removes the
pod from the API once it is deleted. It has the methods of podworker.PodWorker that kubelet.py calls in its main loop:
`update`, `vanish` and `run`.
"""

import asyncio
from typing import Final

from raytide_sandbox.kubelet.apiclient import Manifest
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.status import invalid_pod_status
from raytide_sandbox.kubelet.status_manager import Reporter

REASON: Final = "InvalidPodSpec"


class InvalidPodWorker:
    """Worker of a pod that never runs."""

    def __init__(self, host: Host, raw: Manifest, message: str) -> None:
        self._host = host
        self._raw = raw
        self._message = message
        self._changed = asyncio.Event()
        self._is_vanished = False

    def update(self, raw: Manifest) -> None:
        """Store a new version of the pod and wake the worker."""
        self._raw = raw
        self._changed.set()

    def vanish(self) -> None:
        """The pod is gone from the API: return from `run`."""
        self._is_vanished = True
        self._changed.set()

    async def run(self) -> None:
        """Report the error and wait for the deletion of the pod."""
        reporter = Reporter(self._host.api, self._raw["metadata"])
        status = invalid_pod_status(REASON, self._message, self._raw.get("status") or {}, self._host.now())
        reporter.report(status)
        try:
            while not self._is_vanished and not self._raw["metadata"].get("deletionTimestamp"):
                self._changed.clear()
                await self._changed.wait()
            if not self._is_vanished:
                await reporter.finish(status)
        finally:
            await reporter.close()
