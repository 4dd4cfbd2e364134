"""Test harness of the loop: the sandbox's API without sockets, a scripted GCS, and virtual time.

`Stage` holds one RayCluster `demo` with the group `cpu`, its pods and their Ray nodes; it answers single requests in place
of the API where a test says so, and keeps a journal of requests and drains in their order.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import msgspec

from integration.cluster_under_test import CRD
from raytide.api import constants
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key
from raytide.autoscaler.model import HEAD_TYPE, Demand, Request, amounts_of
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.sidecar.loop import Autoscaler, LoopSettings
from raytide.autoscaler.state.snapshot import ReconcilerSettings
from raytide.kube.client import Client
from raytide.kube.transport import Response, StreamStatusError
from raytide.runtime.clock import Clock
from raytide_sandbox.apiserver.routes import Api
from raytide_sandbox.apiserver.store import Store
from support import virtual_time
from support.builders import group, raycluster
from support.definitions import define
from support.fake_gcs import GcsWorld, fake_gcs
from support.manifest_files import body_of

from simulation.in_process_transport import InProcessTransport

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("default", "demo")
CLUSTERS = "rayclusters.ray.io"

Interceptor = Callable[[str, str, bytes], Response | Exception | None]
"""(method, path, body) -> an answer instead of the API's, or None; the method of a watch is WATCH."""


class VirtualClock(Clock):
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=virtual_time.elapsed_s())


class Front:
    """Records and intercepts the product's requests."""

    def __init__(self, inner: InProcessTransport, journal: list[str]) -> None:
        self._inner = inner
        self.journal = journal
        self.intercept: Interceptor = lambda _method, _path, _body: None
        self.after: Interceptor = lambda _method, _path, _body: None
        self.delay_s = 0.0
        self.late: dict[str, asyncio.Event] = {}
        """By resource: its watches hold back what happens until then."""
        self.selected: set[tuple[str, str]] = set()
        """What was listed or watched, and by which selectors."""

    async def request(self, method, path, *, query=None, headers=None, body=None, timeout_s):
        loop = asyncio.get_running_loop()
        what = f"{method} {path.rpartition('/')[2]}"
        self.journal.append(what if not body else f"{what} {body.decode()}")
        self._note_selector(path, query)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(self.delay_s)
        except TimeoutError:
            raise ApiUnavailableError(f"no answer in {timeout_s} s at {loop.time()}", is_outcome_unknown=True) from None
        for hook in (self.intercept, None, self.after):
            if hook is None:
                answer = await self._inner.request(
                    method, path, query=query, headers=headers, body=body, timeout_s=timeout_s
                )
                continue
            instead = hook(method, path, body or b"")
            if isinstance(instead, Exception):
                raise instead
            if instead is not None:
                return instead
        return answer

    async def stream(self, path, *, query=None, headers=None, silence_s) -> AsyncIterator[bytes]:
        self.journal.append(f"WATCH {path.rpartition('/')[2]}")
        self._note_selector(path, query)
        instead = self.intercept("WATCH", path, b"")
        if isinstance(instead, Exception):
            raise instead
        if instead is not None:
            raise StreamStatusError(instead)
        yield b""  # it is open
        async with aclosing(self._inner.stream(path, query=query, headers=headers, silence_s=silence_s)) as chunks:
            async for chunk in chunks:
                if (is_over := self.late.get(path.rpartition("/")[2])) is not None:
                    await is_over.wait()
                yield chunk

    def _note_selector(self, path, query) -> None:
        selectors = (query or {}).get("labelSelector", ""), (query or {}).get("fieldSelector", "")
        self.selected.add((path.rpartition("/")[2], "&".join(filter(None, selectors))))

    def cut(self) -> None:
        """Every open watch ends at once."""
        self._inner.close_watches()

    async def close(self) -> None:
        """Nothing is open."""


class Harness:
    """Everything around one sidecar."""

    def __init__(self, *groups) -> None:
        ids = itertools.count(1)
        self.clock = VirtualClock()
        self.store = Store(now=self.clock.now, new_uid=lambda: f"uid-{next(ids)}")
        api = Api(self.store, new_suffix=lambda: f"{next(ids):05d}")
        define(api, self.store, body_of(CRD))
        self.journal: list[str] = []
        self.lag_s = 0.0
        """The delay of watch events."""
        self.front = Front(InProcessTransport(api, lag_s=lambda: self.lag_s), self.journal)
        self.gcs = GcsWorld()
        self.ticks: list[Tick] = []
        cluster = raycluster(*(groups or [group("cpu", replicas=0, low=0, high=10)]), enableInTreeAutoscaling=True)
        cluster["metadata"] = {"name": KEY.name, "namespace": KEY.namespace}
        self.uid = self.store.create(CLUSTERS, cluster).obj()["metadata"]["uid"]
        self.add_pod("demo-head", HEAD_TYPE, cpus=0.0)
        self.store.subscribe(lambda change: self._obey(change.entry.obj()), CLUSTERS)

    # --- the world ---------------------------------------------------------------------------------------------------

    def add_pod(self, name: str, group_name: str = "cpu", *, cpus: float = 1.0, **replica: str) -> None:
        """A pod that runs, and the Ray node in it; `replica` are further labels."""
        is_head = group_name == HEAD_TYPE
        labels = {
            "ray.io/cluster": KEY.name,
            "ray.io/group": group_name,
            "ray.io/node-type": "head" if is_head else "worker",
            **replica,
        }
        owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": KEY.name, "uid": self.uid, "controller": True}
        metadata = {"name": name, "namespace": KEY.namespace, "labels": labels, "ownerReferences": [owner]}
        spec = {"nodeName": "n0", "containers": [{"name": "ray", "image": "ray"}]}
        self.store.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        pod = self.store.get("pods", KEY.namespace, name)
        ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
        pod["status"] = {"phase": "Running", "podIP": "10.0.0.1", "conditions": ready}
        self.store.update("pods", pod, subresource="status")
        self.gcs.add_node(name, group_name, resources={"CPU": cpus} if cpus else {})

    def _obey(self, cluster) -> None:
        """What an operator and a kubelet do about a higher number, at once."""
        for wanted in cluster["spec"]["workerGroupSpecs"]:
            have = [node for node in self.gcs.nodes.values() if node.node_type == wanted["groupName"] and node.is_alive]
            name, hosts = wanted["groupName"], wanted.get("numOfHosts", 1)
            for number in range(len(have), wanted["replicas"] * hosts):
                index, host = divmod(number, hosts)
                replica = {
                    constants.REPLICA_NAME_LABEL: f"{name}-{index}",
                    constants.REPLICA_INDEX_LABEL: str(index),
                    constants.HOST_INDEX_LABEL: str(host),
                }
                self.add_pod(f"demo-{name}-worker-{number}", name, **(replica if hosts > 1 else {}))

    def touch_pod(self, name: str, mark: str) -> None:
        """Some change of a pod."""
        pod = self.store.get("pods", KEY.namespace, name)
        pod["metadata"].setdefault("annotations", {})["mark"] = mark
        self.store.update("pods", pod)

    def ask_for(self, count: int, cpus: float = 1.0) -> None:
        """So many tasks wait."""
        self.gcs.tasks = [Demand(Request(amounts_of({"CPU": cpus}), selectors=((),)), count)]

    def edit(self, change) -> None:
        """As `kubectl edit raycluster`."""
        obj = self.store.get(CLUSTERS, *KEY)
        change(obj)
        self.store.update(CLUSTERS, obj)

    # --- what became of it ---------------------------------------------------------------------------------------------

    @property
    def cluster(self):
        """The RayCluster."""
        return self.store.get(CLUSTERS, *KEY)

    @property
    def group(self):
        """Its first worker group."""
        return self.cluster["spec"]["workerGroupSpecs"][0]

    def count(self, beginning: str) -> int:
        """How many requests of that kind were made."""
        return sum(entry.startswith(beginning) for entry in self.journal)

    def writes(self) -> list[dict[str, object]]:
        """What the patches wrote, by the last word of the path, in their order."""
        patches = [entry.split(" ", 2)[2] for entry in self.journal if entry.startswith("PATCH")]
        return [
            {op["path"].rpartition("/")[2]: op["value"] for op in msgspec.json.decode(patch) if op["op"] != "test"}
            for patch in patches
        ]

    # --- the sidecar ---------------------------------------------------------------------------------------------------

    def autoscaler(self, *, interval_s: float = 5.0, gcs=None, timeout_s: float = 10.0, on_tick=()) -> Autoscaler:
        """A sidecar that has just started."""
        return Autoscaler(
            Client(self.front, clock=self.clock, timeout_s=timeout_s),
            gcs or fake_gcs(self.gcs),
            clock=self.clock,
            key=KEY,
            settings=LoopSettings(tick=ReconcilerSettings(head_pod="demo-head"), interval_s=interval_s),
            on_tick=on_tick or (self.ticks.append,),
        )

    @asynccontextmanager
    async def running(self, **how):
        """One, while the block lasts."""
        task = asyncio.create_task(self.autoscaler(**how).run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, BaseExceptionGroup):
                await task

    async def until(self, what: str, is_so: Callable[[], object], *, within_s: float = 60.0) -> float:
        """Wait for a state in virtual time; returns how long it took."""
        began = self.clock.monotonic()
        while not is_so():
            assert self.clock.monotonic() - began < within_s, f"not within {within_s} s: {what}; {self.journal[-5:]}"
            await asyncio.sleep(0.01)
        return self.clock.monotonic() - began
