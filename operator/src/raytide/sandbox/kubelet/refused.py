"""What happens to a pod that the kubelet cannot understand?

Takes the pod as the API sent it and the sentence that says what is wrong; reports the pod as Failed with that sentence,
starts nothing, and lets it go as soon as it is deleted. It has the same doors as podworker.PodWorker, so that
kubelet.py need not tell them apart.
"""

import asyncio
from typing import Final

from raytide.sandbox.kubelet.apiclient import Manifest
from raytide.sandbox.kubelet.host import Host
from raytide.sandbox.kubelet.reporting import Reporter
from raytide.sandbox.kubelet.status import build_refusal

REASON: Final = "InvalidPodSpec"


class RefusedPod:
    """A pod that never runs."""

    def __init__(self, host: Host, raw: Manifest, message: str) -> None:
        self._host = host
        self._raw = raw
        self._message = message
        self._changed = asyncio.Event()
        self._is_vanished = False

    def update(self, raw: Manifest) -> None:
        """A new version of the pod."""
        self._raw = raw
        self._changed.set()

    def vanish(self) -> None:
        """The API has forgotten the pod."""
        self._is_vanished = True
        self._changed.set()

    async def run(self) -> None:
        """Say what is wrong, and wait for the deletion."""
        reporter = Reporter(self._host.api, self._raw["metadata"])
        status = build_refusal(REASON, self._message, self._raw.get("status") or {}, self._host.now())
        reporter.report(status)
        try:
            while not self._is_vanished and not self._raw["metadata"].get("deletionTimestamp"):
                self._changed.clear()
                await self._changed.wait()
            if not self._is_vanished:
                await reporter.finish(status)
        finally:
            await reporter.close()
