"""Base class of the controllers: informers, leadership terms and the work queue of one kind.

`BaseController` runs what one kind of custom resource needs: informers that always run, and a reconcile loop that runs only while
this process is the leader (D10). It provides start, stop and enqueueing, also when a node fails; subclasses add the
informers of children and the reconciler. It makes no decisions. Base of raycluster/controller.py and
trainingjob/controller.py; D3, D4, D6, D11.
"""

import asyncio
import logging
from abc import ABC
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from raytide.api.constants import OPERATOR
from raytide.api.meta import NODES, Key, Resource
from raytide.api.node import NodeView, decode_node, has_readiness_changed
from raytide.controller.action_runner import ActionRunner
from raytide.controller.child_lister import ChildLister
from raytide.controller.event_correlator import EventCorrelator
from raytide.controller.read_live import LiveReader
from raytide.controller.reconcile_loop import ReconcileLoop
from raytide.controller.reconciler import Dependencies
from raytide.controller.status_writer import StatusWriter
from raytide.kube.client import Client
from raytide.kube.event_recorder import Recorder
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes, PodOnNode
from raytide.kube.reflector import version_number
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)


# --- views -----------------------------------------------------------------------------------------------------------


class ObjectView(msgspec.Struct, frozen=True, gc=False):
    """Key and version of a custom resource, which is all that enqueueing needs."""

    key: Key
    version: str


class _Metadata(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)


def decode_object(document: bytes | msgspec.Raw) -> ObjectView:
    """Decode key and version of a custom resource; its spec is not read."""
    metadata = _objects.decode(document).metadata
    return ObjectView(Key(metadata.namespace, metadata.name), metadata.version)


# --- controller ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of a controller."""

    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty means all."""
    workers: int = 8
    watches: SharedWatches | None = None
    """Shared with the other controllers of the process; None: this controller has its own."""
    instance: str = OPERATOR
    """`reportingInstance` of events."""


class BaseController(ABC):
    """Controller of one kind.

    - `run_informers` keeps the informers synced on every replica; `run_reconcilers` runs one leadership term. `run` does both, for a
      process without leader election.
    - A term begins with empty expectations and with lists that started within the term; then workers start (D6).
    - Outside a term nothing is written and enqueued keys are dropped: a term begins by enqueueing every object.
    - `stop` lets running passes finish for 10 s; then `run_reconcilers` and `run` return. A cancelled `run_reconcilers` ends at once.
    - An error in any part ends `run_informers`, `run_reconcilers` and `run` with that error.
    - A changed child enqueues its owner with batching. So does a node whose readiness changes, for owners of terminating
      pods on it. Without access to nodes, none counts as dead.

    Subclasses define the watched children (`pods`, `streams`) and what `reconcile_loop` calls.
    """

    pods: Informer[Any]

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        name: str,
        clock: Clock,
        controller_name: str,
        options: ControllerOptions,
        owner_of: Callable[[Any], Key],
        node_informer: str = "",
        if_nodes_forbidden: str,
    ) -> None:
        """`name` is that of the controller in metrics, `controller_name` is the reportingController of events, `owner_of` returns the owner that a child's labels name.

        `node_informer` is the name of the node informer (default: of its kind), `if_nodes_forbidden` what is not done without access to nodes.
        """
        self.resource = resource
        self.on_seen: Callable[[ObjectView, bool], None] = lambda _view, _is_gone: None
        """Callback with the view that the informer holds now, and whether the object was deleted."""
        self._client = client
        self._clock = clock
        self._stopping = asyncio.Event()
        self._watches = options.watches or SharedWatches(client, clock=clock)
        self._namespaces = options.namespaces or None
        self._owner_of = owner_of
        self.reconcile_loop = ReconcileLoop(name, clock=clock, keys=self.keys, workers=options.workers)
        self.objects: Informer[ObjectView] = Informer(
            self._watches,
            resource,
            namespaces=self._namespaces,
            decoder=decode_object,
            on_change=self._on_object,
        )
        self.streams: tuple[Informer[Any], ...] = (self.objects,)
        """Informers that must be synced before a pass may run."""
        self.nodes: Informer[NodeView] = Informer(
            self._watches,
            NODES,
            decoder=decode_node,
            on_change=self._on_node,
            name=node_informer,
            if_forbidden=if_nodes_forbidden,
        )
        self.optional_streams: tuple[Informer[Any], ...] = (self.nodes,)
        """Informers that a pass uses if RBAC permits listing."""
        self.dead_nodes = DeadNodes(self.nodes)
        self.recorder = Recorder(client, clock=clock, controller=controller_name, instance=options.instance)
        self._live_reader = LiveReader(client, resource, clock=clock)

    def _children(self, resource: Resource, **options: Any) -> Informer[Any]:
        """An informer of children, by owner; a change enqueues the owner."""
        by_owner = {"namespaces": self._namespaces, "index": self._owner_of, "on_change": self._on_child}
        return Informer(self._watches, resource, **{**by_owner, **options})

    def _build_dependencies(self, children: Iterable[ChildLister[Any]]) -> Dependencies:
        """What the reconciler reads from and writes to; in-flight writes are processed in the order of `children`."""
        self._runner = ActionRunner(
            self._client,
            clock=self._clock,
            overlays={child.resource: child.in_flight for child in children},
            is_contended=self.reconcile_loop.has_concurrent_passes,
        )
        return Dependencies(
            clock=self._clock,
            live_reader=self._live_reader,
            shown_version=self.version_of,
            relist=self.objects.relist,
            runner=self._runner,
            status_writer=StatusWriter(
                self._client,
                self.resource,
                clock=self._clock,
                controller=self.reconcile_loop.name,
                ignore_resource_version=self.reconcile_loop.ignore_resource_version,
            ),
            events=EventCorrelator(self.recorder, clock=self._clock),
            ignore_resource_version=self.reconcile_loop.ignore_resource_version,
            forgotten=self.reconcile_loop.forget,
        )

    def reset_for_new_term(self) -> None:
        """Drop the in-flight writes and cached reads of an earlier leadership term."""
        self._runner.clear()
        self._live_reader.clear()

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the informers, and one term that lasts until stopped."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.run_informers())
            await self.run_reconcilers()
            following.cancel()

    async def run_informers(self) -> None:
        """Run the informers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_all((*self.streams, *self.optional_streams)))
            tasks.create_task(self._enqueue_on_lost_nodes())

    async def run_reconcilers(self) -> None:
        """Run one leadership term until stopped."""
        self.reset_for_new_term()
        await until_stopped(self._relist(), self._stopping)
        if self._stopping.is_set():
            return
        log.info(
            "informers synced, starting to reconcile %d %ss with %d pods",
            len(self.objects),
            self.resource.kind,
            len(self.pods),
        )
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(fail_if_it_returns("event recorder", self.recorder.run()))
            await self.reconcile_loop.run()
            await self.recorder.finish()
            posting.cancel()

    async def stop(self) -> None:
        """Accept no more keys and let running passes finish."""
        self._stopping.set()
        await self.reconcile_loop.stop()

    @property
    def is_synced(self) -> bool:
        """Whether all informers in `streams` are synced."""
        return all(stream.is_synced for stream in self.streams)

    async def _relist(self) -> None:
        await asyncio.gather(*(stream.refresh() for stream in self.streams))

    # --- enqueueing ---------------------------------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """Keys of all objects in the informer."""
        return [view.key for view in self.objects.all()]

    def version_of(self, key: Key) -> int | None:
        """The version of the object in the informer; None if it is absent."""
        view = self.objects.get(key.namespace, key.name)
        return version_number(view.version) if view is not None else None

    def _on_object(self, old: ObjectView | None, new: ObjectView | None) -> None:
        if new is not None:
            self.on_seen(new, False)
            self.reconcile_loop.enqueue(new.key, new.version)
        elif old is not None:
            self.on_seen(old, True)
            self.reconcile_loop.enqueue(old.key)

    def _on_child(self, old: Any, new: Any) -> None:
        for key in {self._owner_of(view) for view in (old, new) if view is not None}:
            self.reconcile_loop.enqueue_coalesced(key)

    def _on_pod(self, old: PodOnNode | None, new: PodOnNode | None) -> None:
        self.dead_nodes.update_pod(old, new)
        self._on_child(old, new)

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """Enqueue the owners of terminating pods on that node if its readiness has changed."""
        self.dead_nodes.update(new)
        node = new or old
        if node is not None and has_readiness_changed(old, new):
            self._enqueue_on_node_loss({node.name})

    def _enqueue_on_node_loss(self, nodes: Collection[str]) -> None:
        for key in {self._owner_of(pod) for pod in self.pods.all() if pod.is_terminating and pod.node_name in nodes}:
            self.reconcile_loop.enqueue_coalesced(key)

    async def _enqueue_on_lost_nodes(self) -> None:
        """Enqueue for nodes deleted before the first list: they have no watch event."""
        await self.nodes.wait_synced()
        self._enqueue_on_node_loss(self.dead_nodes.dead_among(self.pods.all()))
        await self.dead_nodes.run(self._enqueue_on_node_loss)

    def unready_nodes_of(self, key: Key) -> frozenset[str]:
        """Nodes of that owner's pods that are not Ready or are gone; empty where nodes cannot be read."""
        return self.dead_nodes.dead_among(self.pods.by_index(key))


# --- tasks -----------------------------------------------------------------------------------------------------------


async def run_all(streams: Iterable[Informer[Any]]) -> None:
    """Run the informers concurrently until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for stream in streams:
            tasks.create_task(fail_if_it_returns(f"informer of {stream.name}", stream.run()))


async def until_stopped(work: Coroutine[Any, Any, None], stopping: asyncio.Event) -> None:
    """Run the work until it is done or the event is set."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(work)
        stopped = tasks.create_task(stopping.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        stopped.cancel()


async def fail_if_it_returns(what: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a background task; its end, for whatever reason, is an error (D11)."""
    await work
    raise RuntimeError(f"{what} ended")
