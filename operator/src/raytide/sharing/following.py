"""What does everybody take, and who may know?

Follows all pods that have not ended, all nodes, and where allowed PriorityClasses and the ResourceQuotas of the watched
namespaces; but only while there is somebody to share with, because a cluster has many pods (D3). What may not be read is
logged, and asked for again every 30 s. Holds views, decides nothing; run by room.py, read by controller.py.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from raytide.api.capacity import (
    UNFINISHED_PODS,
    CapacityNode,
    CapacityPod,
    CapacityQuota,
    PriorityClass,
    decode_capacity_node,
    decode_capacity_pod,
    decode_capacity_quota,
    decode_priority_class,
    priorities_of,
)
from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, Resource
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.room import never_ending
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

ASKED_EVERY_S: Final = 30.0

_Asked: TypeAlias = tuple[Resource, str]
"""A kind and a namespace; empty for all."""
_MEANING: Final = {
    RESOURCE_QUOTAS: "jobs there may be given more than their ResourceQuotas allow, and pods that are refused for it",
    PRIORITY_CLASSES: "all jobs and pods count as having the same priority",
}


class Capacity:
    """All pods and all nodes, while they are wanted.

    - `follow` runs until cancelled; `want` says whether anybody is interested. Without interest nothing is watched and
      nothing is kept.
    - `trouble` is empty when pods and nodes may be read, otherwise the API's words about what may not.
    - `unreadable` says of quotas, by namespace, and PriorityClasses what may not be read and what that means.
    - `is_known` once it has been found out whether it may be read and, if so, all of it has been listed.
    - `on_change` is called whenever something that matters for room has changed.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        silence_s: float,
        on_change: Callable[[], None],
        namespaces: tuple[str, ...] = (),
    ) -> None:
        """`namespaces` are those whose quotas count; empty means all."""
        self.trouble = ""
        self.unreadable: tuple[str, ...] = ()
        self._client = client
        self._on_change = on_change
        self._namespaces = namespaces
        self._is_wanted = asyncio.Event()
        self._is_unwanted = asyncio.Event()
        self._is_unwanted.set()
        self._informer = partial(Informer, client, clock=clock, silence_s=silence_s)
        self._start_over()

    def _start_over(self) -> None:
        """With new informers: those that rest would keep all they know."""
        self.pods: Informer[CapacityPod] = self._informer(
            PODS,
            decoder=decode_capacity_pod,
            on_change=self._on_pod,
            field_selector=UNFINISHED_PODS,
            name="all-pods",
        )
        self.nodes: Informer[CapacityNode] = self._informer(
            NODES, decoder=decode_capacity_node, name="all-nodes", on_change=self._on_any_change
        )
        self.quotas = self._quotas_of(self._namespaces)
        self.classes: Informer[PriorityClass] = self._informer(
            PRIORITY_CLASSES, decoder=decode_priority_class, on_change=self._on_any_change
        )
        self._optional: list[Informer[Any]] = []

    def _quotas_of(self, namespaces: tuple[str, ...]) -> Informer[CapacityQuota]:
        return self._informer(
            RESOURCE_QUOTAS,
            decoder=decode_capacity_quota,
            on_change=self._on_any_change,
            namespaces=namespaces or None,
        )

    # --- reading -------------------------------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether a pass can rely on what is here."""
        if not self._is_wanted.is_set():
            return False
        return bool(self.trouble) or all(stream.is_synced for stream in self._followed)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody is interested."""
        return self._is_wanted.is_set()

    @property
    def priorities(self) -> dict[str, int]:
        """PriorityClass -> value; the empty name stands for the default."""
        return priorities_of(self.classes.all())

    @property
    def age_s(self) -> float:
        """Since the quietest stream gave a sign of life; 0 where nothing is followed."""
        return max((stream.age_s for stream in self._followed), default=0.0) if self._is_followed else 0.0

    @property
    def _is_followed(self) -> bool:
        return self._is_wanted.is_set() and not self.trouble

    @property
    def _followed(self) -> Iterable[Informer[Any]]:
        return (self.pods, self.nodes, *self._optional)

    async def refresh(self) -> None:
        """Return when everything that is followed has been listed once more (D6)."""
        if self._is_followed and self.is_known:
            await asyncio.gather(self.pods.refresh(), self.nodes.refresh())

    # --- following -----------------------------------------------------------------------------------------------------

    def want(self, *, is_wanted: bool) -> None:
        """Somebody is interested, or nobody any more."""
        for event, is_set in ((self._is_wanted, is_wanted), (self._is_unwanted, not is_wanted)):
            if is_set:
                event.set()
            else:
                event.clear()

    async def follow(self) -> None:
        """Know what there is while it is wanted, until cancelled."""
        while True:
            await self._is_wanted.wait()
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow_while_allowed())
                await self._is_unwanted.wait()
                following.cancel()
            self.trouble, self.unreadable = "", ()
            self._start_over()

    async def _follow_while_allowed(self) -> None:
        while True:
            self.trouble = await self._refusal()
            self._on_change()
            if not self.trouble:
                await self._follow_until_refused()
                self._start_over()
                continue
            log.warning("room is not known, so nobody grows: %s", self.trouble)
            await asyncio.sleep(ASKED_EVERY_S)

    async def _follow_until_refused(self) -> None:
        """Rights may be taken away or given while we follow; an informer alone would wait for them for ever."""
        refused = await self._refused()
        self._begin_optional(refused)
        async with asyncio.TaskGroup() as tasks:
            following = [
                tasks.create_task(never_ending(f"informer of {stream.name}", stream.run())) for stream in self._followed
            ]
            while True:
                await asyncio.sleep(ASKED_EVERY_S)
                if await self._refusal() or (await self._refused()).keys() != refused.keys():
                    break
            for task in following:
                task.cancel()

    async def _refusal(self) -> str:
        """Why pods or nodes may not be read; empty when they may, or when nobody answers."""
        for resource in (NODES, PODS):
            if words := await self._ask(resource):
                return words
        return ""

    def _begin_optional(self, refused: Mapping[_Asked, str]) -> None:
        """Follow what may be read, and say what may not."""
        allowed = [asked for asked in self._asked if asked not in refused]
        namespaces = tuple(namespace for resource, namespace in allowed if resource == RESOURCE_QUOTAS and namespace)
        self._optional = []
        if any(resource == RESOURCE_QUOTAS for resource, _ in allowed):
            self.quotas = self._quotas_of(namespaces)
            self._optional.append(self.quotas)
        if (PRIORITY_CLASSES, "") in allowed:
            self._optional.append(self.classes)
        unreadable = tuple(f"{words}: {_MEANING[resource]}" for (resource, _), words in refused.items())
        for words in unreadable:
            if words not in self.unreadable:
                log.warning("%s", words)
        if self.unreadable and not unreadable:
            log.info("quotas and priority classes can be read again")
        self.unreadable = unreadable

    @property
    def _asked(self) -> tuple[_Asked, ...]:
        """What may be refused while sharing goes on, and in which namespace; empty means in all."""
        return *((RESOURCE_QUOTAS, each) for each in self._namespaces or ("",)), (PRIORITY_CLASSES, "")

    async def _refused(self) -> dict[_Asked, str]:
        """What of it may not be read, and the API's words."""
        answers = {asked: await self._ask(*asked) for asked in self._asked}
        return {asked: words for asked, words in answers.items() if words}

    async def _ask(self, resource: Resource, namespace: str = "") -> str:
        try:
            async for _page in self._client.pages(resource, namespace or None, page_size=1):
                break
        except Refused as refused:
            where = f" in namespace {namespace}" if namespace else ""
            return f"{resource.plural}{where} cannot be read: {refused}"
        except Unavailable:
            return ""  # the informer waits better
        return ""

    # --- changes -------------------------------------------------------------------------------------------------------

    def _on_any_change(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if old != new:
            self._on_change()

    def _on_pod(self, old: CapacityPod | None, new: CapacityPod | None) -> None:
        if old is None or new is None or old.standing != new.standing:
            self._on_change()
