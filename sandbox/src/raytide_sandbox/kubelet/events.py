"""Event recorder of the kubelet.

Takes reasons and messages about pods and writes Event objects from a queue, one at a time and in order. Equal events
increase `count` of one object. When the API server is slow and the queue is full, new events are dropped so that no pod
is delayed. Used by the pod workers; `run` is a task of the kubelet.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from raytide_sandbox.kubelet.apiclient import ApiClient, ApiStatusError, ApiUnavailableError
from raytide_sandbox.kubelet.podspec import PodSpec
from raytide_sandbox.rfc3339 import format_time

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_QUEUE: Final = 1000
_REMEMBERED: Final = 2000
_MESSAGE_BYTES: Final = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Event:
    namespace: str
    pod: str
    uid: str
    node: str
    type: str
    reason: str
    message: str
    container: str


@dataclass(slots=True)
class _Written:
    name: str
    count: int


class EventRecorder:
    """A queue of events and its single writer."""

    def __init__(self, api: ApiClient, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_QUEUE)
        self._written: OrderedDict[_Event, _Written] = OrderedDict()

    def normal(self, pod: PodSpec, reason: str, message: str, container: str = "") -> None:
        """Queue an event of type Normal."""
        self._put(pod, NORMAL, reason, message, container)

    def warning(self, pod: PodSpec, reason: str, message: str, container: str = "") -> None:
        """Queue an event of type Warning."""
        self._put(pod, WARNING, reason, message, container)

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except (ApiStatusError, ApiUnavailableError) as error:
                _log.debug("event not written pod=%s/%s reason=%s: %s", event.namespace, event.pod, event.reason, error)

    def _put(self, pod: PodSpec, kind: str, reason: str, message: str, container: str) -> None:
        event = _Event(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            node=pod.node_name,
            type=kind,
            reason=reason,
            message=message[:_MESSAGE_BYTES],
            container=container,
        )
        if not self._queue.full():
            self._queue.put_nowait(event)

    async def _write(self, event: _Event) -> None:
        path = f"/api/v1/namespaces/{event.namespace}/events"
        now = format_time(self._now())
        known = self._written.get(event)
        if known:
            known.count += 1
            try:
                await self._api.merge_patch(f"{path}/{known.name}", {"count": known.count, "lastTimestamp": now})
            except ApiStatusError:
                del self._written[event]  # the Event has expired: the next equal one is created anew
            return
        name = f"{event.pod}.{secrets.token_hex(8)}"
        await self._api.request("POST", path, body=_build_event(event, name, now))
        self._written[event] = _Written(name, 1)
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


def _build_event(event: _Event, name: str, now: str) -> dict[str, object]:
    involved = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": event.namespace,
        "name": event.pod,
        "uid": event.uid,
    }
    if event.container:
        involved["fieldPath"] = f"spec.containers{{{event.container}}}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": event.namespace, "name": name},
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "kubelet", "host": event.node},
        "reportingComponent": "kubelet",
        "reportingInstance": event.node,
    }
