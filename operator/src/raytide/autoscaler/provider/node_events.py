"""Events of node autoscalers about unschedulable pods.

Lists the events by source, only while a pod is unschedulable: every few seconds for the first answer about each pod,
less often once there is one or none has arrived for a while; never more than a few pages. If the Role does not allow
it, as with KubeRay, this is logged once and retried later; an error costs an answer, never a decision. Called by
loop.py; evaluated by autoscaler/state/node_autoscaler_events.py.
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
from raytide.api.pod import PodView
from raytide.api.pod_failure import Cause, failure_of
from raytide.autoscaler import messages
from raytide.autoscaler.state.node_autoscaler_events import NodeAutoscaler, PodEvent, Presence, Source, answers_of
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 2.0
FIRST_ANSWER_S: Final = 30.0
"""So long a first answer about a pod is polled often: node autoscalers act every ten seconds."""
RECHECK_S: Final = 20.0
"""Interval once every waiting pod has an answer or got none in that time: answers may change."""
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

    - `look` returns the current state; it lists events at most once in a few seconds, and only for unschedulable pods.
    """

    def __init__(self, client: Client, namespace: str, *, clock: Clock, presence: Presence = Presence.AUTO) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._known = NodeAutoscaler(presence, is_readable=True)
        self._sources: tuple[Source, ...] = tuple(Source)
        self._next_s = 0.0
        self._is_open = False
        """Whether a pod waits for a first answer."""
        self._since_s: dict[str, float] = {}
        """By unschedulable pod, since when it was seen to be."""

    @property
    def requeue_after_s(self) -> float | None:
        """Seconds until an answer a pod waits for may arrive; None: no pod waits for one."""
        return POLL_INTERVAL_S if self._is_open else None

    async def look(self, pods: Sequence[PodView]) -> NodeAutoscaler:
        """The node autoscaler's state with regard to these pods."""
        waiting = [pod for pod in pods if pod.is_worker and not pod.is_terminating and _is_unschedulable(pod)]
        now_s = self._clock.monotonic()
        self._note(waiting, now_s)
        if self._known.presence is not Presence.ABSENT and waiting and now_s >= self._next_s:
            await self._list_events(waiting)
            if self._known.is_readable:
                self._next_s = self._clock.monotonic() + (POLL_INTERVAL_S if self._is_any_open(now_s) else RECHECK_S)
        self._is_open = self._is_any_open(now_s)
        return self._known

    def _note(self, waiting: Sequence[PodView], now_s: float) -> None:
        """Track since when each pod waits; events about a new one are listed soon."""
        before = self._since_s
        self._since_s = {pod.name: before.get(pod.name, now_s) for pod in waiting}
        if self._known.is_readable and self._since_s.keys() - before.keys():
            self._next_s = min(self._next_s, now_s + POLL_INTERVAL_S)

    def _is_any_open(self, now_s: float) -> bool:
        """Whether a first answer may come soon; without a node autoscaler none does, and a pod may wait for days."""
        if self._known.presence is Presence.ABSENT or not self._known.is_readable:
            return False
        return any(
            now_s - since_s < FIRST_ANSWER_S and self._known.answer(name) is None
            for name, since_s in self._since_s.items()
        )

    async def _list_events(self, waiting: Sequence[PodView]) -> None:
        events: list[PodEvent] = []
        for source in self._sources:
            try:
                found = await self._list(source)
            except ApiStatusError as error:
                if self._known.is_readable:
                    log.info(messages.events_forbidden(error))
                self._known = replace(self._known, is_readable=False, answers=None)
                self._next_s = self._clock.monotonic() + REJECTED_RETRY_S
                return
            except ApiUnavailableError as error:
                log.debug(messages.events_unavailable(error))
                return
            if found and not self._known.has_spoken:
                log.info(messages.node_autoscaler_found(source))
                self._sources = (source,)
            events += found
        self._known = replace(
            self._known,
            is_readable=True,
            has_spoken=self._known.has_spoken or bool(events),
            answers=answers_of(events, waiting),
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
        yield PodEvent(event.involved_object.name, event.involved_object.uid, event.reason or "", _moment(event))


def _moment(event: _Event) -> datetime | None:
    times = (
        event.series.last_observed_time if event.series else None,
        event.last_timestamp,
        event.event_time,
        event.metadata.creation_timestamp,
    )
    return max((moment for text in times if text and (moment := parse_timestamp(text))), default=None)


def _is_unschedulable(pod: PodView) -> bool:
    failure = failure_of(pod)
    return failure is not None and failure.cause is Cause.UNSCHEDULABLE
