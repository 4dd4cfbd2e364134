"""Capacity cache: informers of all unfinished pods, all nodes, PriorityClasses, ResourceQuotas and Namespaces.

The informers run only while a TrainingJob exists, because a cluster has many pods (D3). PriorityClasses and the
ResourceQuotas of the watched namespaces are followed where RBAC allows it; a kind that may not be read is logged and
tried again every 30 s. Namespaces are followed if tenants are configured, and are then as necessary as nodes. The cache holds views and decides nothing. controller.py runs it, reconciler.py reads it.
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
    NamespaceTenant,
    Priority,
    PriorityClass,
    decode_capacity_node,
    decode_capacity_pod,
    decode_capacity_quota,
    decode_namespace,
    decode_priority_class,
    priorities_of,
    tenants_of,
)
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, Resource
from raytide.api.tenants import TENANT_LABEL
from raytide.controller.base import fail_if_it_returns
from raytide.fairshare import messages
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches

log = logging.getLogger(__name__)

ASKED_EVERY_S: Final = 30.0

_Asked: TypeAlias = tuple[Resource, str]
"""A resource and a namespace; empty for all namespaces."""


class CapacityCache:
    """Informers of pods, nodes, quotas and PriorityClasses, run while they are wanted.

    - `run` runs until cancelled; `want` starts and stops the watches. While stopped, nothing is watched and nothing
      is kept.
    - `error` is the API server's error if pods, nodes or needed Namespaces may not be read, otherwise empty.
    - `unreadable` lists quotas (by namespace) and PriorityClasses that may not be read, and the consequence.
    - `is_known` is true once read access has been checked and everything readable has been listed.
    - `on_change` is called after each change that affects capacity.
    """

    def __init__(
        self,
        client: Client,
        watches: SharedWatches,
        *,
        on_change: Callable[[], None],
        namespaces: tuple[str, ...] = (),
        has_tenants: bool = False,
    ) -> None:
        """`namespaces` are those whose quotas count; empty means all. With `has_tenants` Namespaces are followed."""
        self.error = ""
        self.unreadable: tuple[str, ...] = ()
        self._client = client
        self._on_change = on_change
        self._namespaces = namespaces
        self._has_tenants = has_tenants
        self._is_wanted = asyncio.Event()
        self._is_unwanted = asyncio.Event()
        self._is_unwanted.set()
        self._informer = partial(Informer, watches)
        self._reset()

    def _reset(self) -> None:
        """Create new informers: stopped ones would keep their cached objects."""
        self.pods: Informer[CapacityPod] = self._informer(
            PODS,
            decoder=decode_capacity_pod,
            on_change=self._on_pod,
            field_selector=UNFINISHED_PODS,
            name="all-pods",
        )
        self.nodes: Informer[CapacityNode] = self._informer(
            NODES, decoder=decode_capacity_node, name="all-nodes", on_change=self._on_node
        )
        self._has_too_large_pods: set[str] = set()
        """Namespaces whose pods have been logged: a tenant may create one after the other."""
        self.quotas = self._quotas_of(self._namespaces)
        self.classes: Informer[PriorityClass] = self._informer(
            PRIORITY_CLASSES, decoder=decode_priority_class, on_change=self._on_any_change
        )
        self.labelled: Informer[NamespaceTenant] = self._informer(
            NAMESPACES, decoder=decode_namespace, on_change=self._on_any_change, label_selector=TENANT_LABEL
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
        """Whether a pass can rely on the caches."""
        if not self._is_wanted.is_set():
            return False
        return bool(self.error) or all(stream.is_synced for stream in self._followed)

    @property
    def is_wanted(self) -> bool:
        """Whether the watches are wanted."""
        return self._is_wanted.is_set()

    @property
    def priorities(self) -> dict[str, Priority]:
        """PriorityClass -> priority; the empty name is the default."""
        return priorities_of(self.classes.all())

    @property
    def tenants(self) -> dict[str, str]:
        """Namespace -> the tenant that its label names; empty unless tenants are configured."""
        return tenants_of(self.labelled.all())

    @property
    def age_s(self) -> float:
        """Seconds since the least recently active watch received data; 0 while nothing is followed."""
        return max((stream.age_s for stream in self._followed), default=0.0) if self._is_followed else 0.0

    @property
    def _is_followed(self) -> bool:
        return self._is_wanted.is_set() and not self.error

    @property
    def _followed(self) -> Iterable[Informer[Any]]:
        return (self.pods, self.nodes, *([self.labelled] if self._has_tenants else []), *self._optional)

    async def refresh(self) -> None:
        """Return when pods and nodes have been listed once more (D6); at once if they are not followed or known."""
        if self._is_followed and self.is_known:
            await asyncio.gather(self.pods.refresh(), self.nodes.refresh())

    # --- following -----------------------------------------------------------------------------------------------------

    def want(self, *, is_wanted: bool) -> None:
        """Start the watches, or stop them."""
        for event, is_set in ((self._is_wanted, is_wanted), (self._is_unwanted, not is_wanted)):
            if is_set:
                event.set()
            else:
                event.clear()

    async def run(self) -> None:
        """Run the informers while they are wanted, until cancelled."""
        while True:
            await self._is_wanted.wait()
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow_while_allowed())
                await self._is_unwanted.wait()
                following.cancel()
            self.error, self.unreadable = "", ()
            self._reset()

    async def _follow_while_allowed(self) -> None:
        while True:
            self.error = await self._refusal()
            self._on_change()
            if not self.error:
                await self._follow_until_refused()
                self._reset()
                continue
            log.warning(messages.NO_CAPACITY, self.error)
            await asyncio.sleep(ASKED_EVERY_S)

    async def _follow_until_refused(self) -> None:
        """Run the informers until read access changes; an informer alone would wait for access forever."""
        refused = await self._refused()
        self._begin_optional(refused)
        async with asyncio.TaskGroup() as tasks:
            following = [
                tasks.create_task(fail_if_it_returns(f"informer of {stream.name}", stream.run()))
                for stream in self._followed
            ]
            while True:
                await asyncio.sleep(ASKED_EVERY_S)
                if await self._refusal() or (await self._refused()).keys() != refused.keys():
                    break
            for task in following:
                task.cancel()

    async def _refusal(self) -> str:
        """The API server's error if what is needed may not be read; empty if it may, or if there is no answer."""
        for resource in (NODES, PODS, *([NAMESPACES] if self._has_tenants else [])):
            if words := await self._ask(resource):
                return words
        return ""

    def _begin_optional(self, refused: Mapping[_Asked, str]) -> None:
        """Follow the optional kinds that may be read, and log those that may not."""
        allowed = [asked for asked in self._asked if asked not in refused]
        namespaces = tuple(namespace for resource, namespace in allowed if resource == RESOURCE_QUOTAS and namespace)
        self._optional = []
        if any(resource == RESOURCE_QUOTAS for resource, _ in allowed):
            self.quotas = self._quotas_of(namespaces)
            self._optional.append(self.quotas)
        if (PRIORITY_CLASSES, "") in allowed:
            self._optional.append(self.classes)
        unreadable = tuple(messages.shared_without(resource, words) for (resource, _), words in refused.items())
        for words in unreadable:
            if words not in self.unreadable:
                log.warning("%s", words)
        if self.unreadable and not unreadable:
            log.info(messages.OPTIONAL_READABLE_AGAIN)
        self.unreadable = unreadable

    @property
    def _asked(self) -> tuple[_Asked, ...]:
        """The optional kinds, each with its namespace; empty means all namespaces."""
        return *((RESOURCE_QUOTAS, each) for each in self._namespaces or ("",)), (PRIORITY_CLASSES, "")

    async def _refused(self) -> dict[_Asked, str]:
        """The optional kinds that may not be read, each with the API server's error."""
        answers = {asked: await self._ask(*asked) for asked in self._asked}
        return {asked: words for asked, words in answers.items() if words}

    async def _ask(self, resource: Resource, namespace: str = "") -> str:
        try:
            async for _page in self._client.pages(resource, namespace or None, page_size=1):
                break
        except ApiStatusError as refused:
            return messages.not_readable(resource, namespace, refused)
        except ApiUnavailableError:
            return ""  # the informer retries by itself
        return ""

    # --- changes -------------------------------------------------------------------------------------------------------

    def _on_any_change(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if old != new:
            self._on_change()

    def _on_node(self, old: CapacityNode | None, new: CapacityNode | None) -> None:
        if new is not None and new.is_too_large and (old is None or not old.is_too_large):
            log.warning(messages.NODE_TOO_LARGE, new.name)
        self._on_any_change(old, new)

    def _on_pod(self, old: CapacityPod | None, new: CapacityPod | None) -> None:
        if new is not None and new.is_too_large and new.namespace not in self._has_too_large_pods:
            self._has_too_large_pods.add(new.namespace)
            log.warning(messages.POD_TOO_LARGE, new.namespace, new.name)
        if old is None or new is None or old.scheduling_state != new.scheduling_state:
            self._on_change()
