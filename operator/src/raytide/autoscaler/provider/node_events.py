"""Events of node autoscalers about unschedulable pods.

Lists the events by source, only while a pod is unschedulable: every few seconds for the first event about each pod,
less often once there is one or none has arrived for a while; never more than a few pages. If the Role does not allow
it, as with KubeRay, this is logged once and retried later; an error delays an event, never a decision. Called by
sidecar/loop.py; evaluated by autoscaler/state/node_autoscaler_events.py.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from raytide.api.conditions import parse_timestamp
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import EVENTS
from raytide.api.node_autoscaler import Presence
from raytide.api.pod import PodView
from raytide.api.pod_failure import Cause, failure_of
from raytide.autoscaler.state.node_autoscaler_events import NodeAutoscaler, PodEvent, Source, latest_scale_ups
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 2.0
FIRST_EVENT_S: Final = 30.0
"""How long the first event about a pod is polled for often: node autoscalers act every ten seconds."""
RECHECK_S: Final = 20.0
"""Interval once every pending pod has an event, or got none in that time: a later event may say something else."""
REJECTED_RETRY_S: Final = 600.0
MAX_PAGES: Final = 10


class _InvolvedObject(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Series(msgspec.Struct, gc=False, rename="camel"):
    last_observed_time: str | None = None


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    creation_timestamp: str | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    involved_object: _InvolvedObject = msgspec.field(default_factory=_InvolvedObject)
    reason: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None


class NodeEvents:
    """The node autoscalers' events of one namespace.

    - `refresh` returns the current state; it lists events at most once in a few seconds, and only for unschedulable pods.
    """

    def __init__(self, client: Client, namespace: str, *, clock: Clock, presence: Presence = Presence.AUTO) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._state = NodeAutoscaler(presence, can_list_events=True)
        self._sources: tuple[Source, ...] = tuple(Source)
        self._next_list_s = 0.0
        self._is_event_due = False
        """Whether the first event about a pending pod may still arrive."""
        self._pending_since_s: dict[str, float] = {}
        """By unschedulable pod, since when this process has observed it as such."""

    @property
    def requeue_after_s(self) -> float | None:
        """Seconds until the events are to be listed again; None: no first event about a pending pod is due."""
        return POLL_INTERVAL_S if self._is_event_due else None

    async def refresh(self, pods: Sequence[PodView]) -> NodeAutoscaler:
        """The state of the node autoscaler with regard to these pods; lists its events if that is due."""
        pending = [pod for pod in pods if pod.is_worker and not pod.is_terminating and _is_unschedulable(pod)]
        now_s = self._clock.monotonic()
        self._track_pending(pending, now_s)
        if self._state.presence is not Presence.ABSENT and pending and now_s >= self._next_list_s:
            await self._list_events(pending)
            if self._state.can_list_events:
                self._next_list_s = self._clock.monotonic() + (
                    POLL_INTERVAL_S if self._is_any_event_due(now_s) else RECHECK_S
                )
        self._is_event_due = self._is_any_event_due(now_s)
        return self._state

    def _track_pending(self, pending: Sequence[PodView], now_s: float) -> None:
        """Track since when each pod is pending; the events are listed soon if one is new."""
        before = self._pending_since_s
        self._pending_since_s = {pod.name: before.get(pod.name, now_s) for pod in pending}
        if self._state.can_list_events and self._pending_since_s.keys() - before.keys():
            self._next_list_s = min(self._next_list_s, now_s + POLL_INTERVAL_S)

    def _is_any_event_due(self, now_s: float) -> bool:
        """Whether a first event may arrive soon; without a node autoscaler none does, and a pod may be pending for days."""
        if self._state.presence is Presence.ABSENT or not self._state.can_list_events:
            return False
        return any(
            now_s - since_s < FIRST_EVENT_S and self._state.scales_up_for(name) is None
            for name, since_s in self._pending_since_s.items()
        )

    async def _list_events(self, pending: Sequence[PodView]) -> None:
        events: list[PodEvent] = []
        for source in self._sources:
            try:
                found = await self._list(source)
            except ApiStatusError as error:
                if self._state.can_list_events:
                    log.info(
                        "cannot list events of node autoscalers, only RAYTIDE_AUTOSCALER_NODE_AUTOSCALER determines whether there is one: %s",
                        error,
                    )
                self._state = replace(self._state, can_list_events=False, scale_up_by_pod=None)
                self._next_list_s = self._clock.monotonic() + REJECTED_RETRY_S
                return
            except ApiUnavailableError as error:
                log.debug("cannot list events of node autoscalers, retrying: %s", error)
                return
            if found and not self._state.has_sent_events:
                log.info("%s adds nodes to this cluster: unschedulable pods wait for its nodes", source)
                self._sources = (source,)
            events += found
        self._state = replace(
            self._state,
            can_list_events=True,
            has_sent_events=self._state.has_sent_events or bool(events),
            scale_up_by_pod=latest_scale_ups(events, pending),
        )

    async def _list(self, source: Source) -> list[PodEvent]:
        found: list[PodEvent] = []
        pages = 0
        selector = f"involvedObject.kind=Pod,source={source}"
        async for page in self._client.pages(EVENTS, self._namespace, field_selector=selector):
            found += _events(page.items)
            pages += 1
            if pages == MAX_PAGES:
                break
        return found


def _events(items: Iterable[msgspec.Raw]) -> Iterable[PodEvent]:
    for item in items:
        try:
            event = msgspec.json.decode(item, type=_Event)
        except msgspec.MsgspecError:
            continue
        yield PodEvent(event.involved_object.name, event.involved_object.uid, event.reason or "", _timestamp(event))


def _timestamp(event: _Event) -> datetime | None:
    times = (
        event.series.last_observed_time if event.series else None,
        event.last_timestamp,
        event.event_time,
        event.metadata.creation_timestamp,
    )
    return max((timestamp for text in times if text and (timestamp := parse_timestamp(text))), default=None)


def _is_unschedulable(pod: PodView) -> bool:
    failure = failure_of(pod)
    return failure is not None and failure.reason == Cause.UNSCHEDULABLE
