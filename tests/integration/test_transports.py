"""Transports over real HTTP: single calls, resuming informers, and executed plans; on both APIs."""

import asyncio
import contextlib
import random
import secrets
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from itertools import count
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from integration.clusters import APIS
from integration.kube_cluster import KubeCluster
from raytide.api.actions import Create, Delete, Patch, Result
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import EVENTS, PODS, SECRETS, SERVICES, Key
from raytide.api.pod import PodView, decode_pod, pod_from_manifest
from raytide.controller.executor import Executor
from raytide.controller.expectations import Expectations, ViewDecoder
from raytide.controller.reconcile_loop import ReconcileLoop
from raytide.kube.client import Client, PatchKind
from raytide.kube.event_recorder import Recorder
from raytide.kube.http import HttpTransport
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock
from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.routes import Api
from raytide_sandbox.apiserver.store import Store
from support.builders import raycluster
from support.deadlines import PATIENCE


class Server(ABC):
    """An API on one port of loopback, which can go away and come back."""

    home = "default"
    """The test's namespace."""
    owner_uid = "11111111-2222-3333-4444-555555555555"
    """Of the RayCluster that the pods belong to; a real garbage collector looks whether it is there."""
    url = ""

    @property
    def cluster(self) -> Key:
        """That RayCluster."""
        return Key(self.home, "c")

    @abstractmethod
    async def start(self) -> None:
        """Be there, again."""

    @abstractmethod
    async def stop(self) -> None:
        """Go away; objects stay."""

    @abstractmethod
    def delete_behind(self, pod: str) -> None:
        """Another client deletes a pod while the informer is disconnected."""

    @abstractmethod
    def verbs(self, end: str) -> list[str]:
        """The requests for paths with this suffix."""

    def pod(self, name: str, group: str = "g") -> dict:
        labels = {"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": group}
        owner = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": "c",
            "uid": self.owner_uid,
            "controller": True,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": self.home, "name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.60.0"}], "schedulerName": "nobody"},
        }

    def create(self, name: str, group: str = "g") -> Create:
        return Create(PODS, self.pod(name, group), "CreatedWorkerPod", "FailedToCreateWorkerPod", group)


class EmbeddedServer(Server):
    def __init__(self) -> None:
        letters = random.Random(7)
        self.api = Api(
            Store(now=lambda: datetime.now(UTC), new_uid=lambda: str(uuid.uuid4())),
            new_suffix=lambda: "".join(letters.choices("bcdfghjklmnpqrstvwxz2456789", k=5)),
        )
        self.port = 0
        self.requests: list[tuple[str, str]] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = application(self.api)
        app.middlewares.append(self._note)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        assert self._runner
        await self._runner.cleanup()

    @web.middleware
    async def _note(self, request: web.Request, handler: Callable) -> web.StreamResponse:
        verb = "WATCH" if "watch" in request.query else request.method
        self.requests.append((verb, request.path))
        return await handler(request)

    def delete_behind(self, pod: str) -> None:
        self.api.store.delete("pods", self.home, pod, grace_s=0)

    def verbs(self, end: str) -> list[str]:
        return [verb for verb, path in self.requests if path.endswith(end)]


class KubeServer(Server):
    def __init__(self, real: KubeCluster) -> None:
        self.real = real

    async def begin(self) -> None:
        await self.real.start()
        self.url = self.real.proxy.server
        self.home = f"wires-{secrets.token_hex(4)}"
        self.owner_uid = self.real.apply(raycluster(name="c", namespace=self.home))["metadata"]["uid"]

    async def start(self) -> None:
        await self.real.proxy.start(int(self.url.rpartition(":")[2]))

    async def stop(self) -> None:
        await self.real.proxy.stop()

    def delete_behind(self, pod: str) -> None:
        self.real.end(self.home, pod)

    def verbs(self, end: str) -> list[str]:
        found = [("WATCH" if one.is_watch else one.method, urlsplit(one.url).path) for one in self.real.proxy.seen]
        return [verb for verb, path in found if path.endswith(end)]


@pytest.fixture(params=APIS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    if request.param == "embedded":
        server: Server = EmbeddedServer()
        await server.start()
        yield server
        await server.stop()
    else:
        real = KubeCluster(request.getfixturevalue("kube_plane"), run=secrets.token_hex(3))
        server = KubeServer(real)
        await server.begin()
        yield server
        await real.stop()


@pytest.fixture
async def client(server) -> AsyncIterator[Client]:
    session = aiohttp.ClientSession()
    transport = HttpTransport(session, server.url)
    yield Client(transport, clock=Clock())
    await transport.close()


async def eventually(is_so: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s * PATIENCE):
        while not is_so():  # noqa: ASYNC110 - the state is that of another process
            await asyncio.sleep(0.005)
    assert is_so(), what


# --- one call ------------------------------------------------------------------------------------------------------------


async def test_create_get_and_delete_of_an_object(client, server):
    key = Key(server.home, "a")
    assert await client.get(PODS, key) is None
    created = await client.create(PODS, server.pod("a"))
    assert await client.get(PODS, key) == created
    with pytest.raises(ApiStatusError) as caught:
        await client.create(PODS, server.pod("a"))
    assert caught.value.is_already_exists
    with pytest.raises(ApiStatusError) as caught:
        await client.delete(PODS, key, "another-uid")
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    await client.delete(PODS, key, created["metadata"]["uid"], grace_period_s=0)
    assert await client.get(PODS, key) is None


async def test_all_four_kinds_of_patch(client, server):
    key = Key(server.home, "s")
    port = {"port": 80, "targetPort": 80, "protocol": "TCP"}
    await client.create(SERVICES, {"metadata": {"namespace": server.home, "name": "s"}, "spec": {"ports": [port]}})
    await client.patch(SERVICES, key, {"metadata": {"labels": {"a": "1"}}})
    add = [{"op": "add", "path": "/metadata/labels/b", "value": "2"}]
    await client.patch(SERVICES, key, add, kind=PatchKind.JSON)
    more = {"spec": {"ports": [{"port": 81, "name": "second"}, {"port": 80, "name": "first"}]}}
    await client.patch(SERVICES, key, more, kind=PatchKind.STRATEGIC)
    whole = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": server.home, "labels": {"c": "3"}},
    }
    done = await client.patch(SERVICES, key, whole, kind=PatchKind.APPLY, is_forced=True)
    assert done["metadata"]["labels"] == {"a": "1", "b": "2", "c": "3"}
    assert {(p["name"], p["port"]) for p in done["spec"]["ports"]} == {("first", 80), ("second", 81)}


async def test_a_list_of_more_than_a_page(client, server):
    async def add(number: int) -> None:
        await client.create(SECRETS, {"metadata": {"namespace": server.home, "name": f"s{number:04d}"}, "data": {}})

    for start in range(0, 1203, 50):
        await asyncio.gather(*map(add, range(start, min(start + 50, 1203))))
    before = len(server.verbs("/secrets"))
    names = [item["metadata"]["name"] async for item in client.list(SECRETS, server.home)]
    assert names == [f"s{number:04d}" for number in range(1203)]
    assert server.verbs("/secrets")[before:] == ["GET"] * 3


async def test_a_server_that_is_away_did_nothing(client, server):
    await client.create(PODS, server.pod("a"))
    await server.stop()
    with pytest.raises(ApiUnavailableError):
        await client.create(PODS, server.pod("b"))  # on the old connection: its loss is not detectable yet
    with pytest.raises(ApiUnavailableError) as caught:
        await client.create(PODS, server.pod("b"))  # on none
    await server.start()
    assert not caught.value.is_outcome_unknown
    assert await client.get(PODS, Key(server.home, "b")) is None


# --- following -----------------------------------------------------------------------------------------------------------


class Following:
    """An informer of our pods with its overlay and an executor."""

    def __init__(self, client: Client, server: Server) -> None:
        self.changes = count()
        self.server = server
        self.informer: Informer[PodView] = Informer(
            SharedWatches(client, clock=Clock()),
            PODS,
            decoder=decode_pod,
            index=lambda view: view.cluster_key,
            on_change=lambda _old, _new: next(self.changes),
            label_selector="ray.io/cluster",
            namespaces=(server.home,),
        )
        self.overlay: Expectations[PodView] = Expectations(
            clock=Clock(),
            reader=ViewDecoder(decode_pod, pod_from_manifest),
            version_of=lambda view: view.resource_version,
            name_of=lambda view: view.name,
            uid_of=lambda view: view.uid,
            as_terminating=lambda view: view.marked_terminating("-"),
            informer_version=self.informer.version_in,
            ask_relist=self.informer.relist,
        )
        self.executor = Executor(client, clock=Clock(), overlays={PODS: self.overlay})

    def pods(self) -> tuple[PodView, ...]:
        cluster = self.server.cluster
        return self.overlay.overlay(cluster, self.server.owner_uid, self.informer.by_index(cluster))

    async def apply(self, *actions):
        return await self.executor.apply(actions, key=self.server.cluster, owner_uid=self.server.owner_uid)

    async def apply_all(self, *actions: Create | Delete) -> None:
        """Apply, continuing as the reconciler does after a pass that its 2 s cut short."""
        left = actions
        while left:
            done = await self.apply(*left)
            assert {outcome.result for outcome in done.outcomes} <= {Result.DONE, Result.SKIPPED}
            left = tuple(outcome.action for outcome in done.outcomes if outcome.result is Result.SKIPPED)
            assert done.is_cut_short == bool(left)


@pytest.fixture
async def following(client, server) -> AsyncIterator[Following]:
    following = Following(client, server)
    task = asyncio.create_task(following.informer.run())
    await asyncio.wait_for(following.informer.wait_synced(), 5 * PATIENCE)
    yield following
    assert not task.done(), "an informer never ends"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.rule("D3")
async def test_an_informer_follows_what_happens(client, following, server):
    other = server.pod("external")
    del other["metadata"]["labels"]
    await client.create(PODS, other)
    created = await client.create(PODS, server.pod("a"))
    await eventually(lambda: following.informer.get(server.home, "a") is not None, "the pod is seen")
    assert following.informer.version_in(server.home) >= int(created["metadata"]["resourceVersion"])
    assert following.informer.get(server.home, "external") is None
    await client.delete(PODS, Key(server.home, "a"), created["metadata"]["uid"], grace_period_s=0)
    await eventually(lambda: len(following.informer) == 0, "its end is seen")


@pytest.mark.rule("D3")
async def test_an_informer_resumes_after_a_restart_of_the_server(client, server, following):
    await client.create(PODS, server.pod("doomed"))
    await client.create(PODS, server.pod("stays"))
    await eventually(lambda: len(following.informer) == 2, "both are seen")
    await server.stop()
    server.delete_behind("doomed")
    await server.start()
    await client.create(PODS, server.pod("new"))
    await eventually(
        lambda: {view.name for view in following.informer.all()} == {"stays", "new"}, "the informer has caught up"
    )
    assert following.informer.lists == 1, "it resumed without a relist"


@pytest.mark.rule("D3")
async def test_refresh_lists_over_the_same_transport(server, following):
    before = server.verbs("/pods").count("GET")
    await asyncio.wait_for(following.informer.refresh(), 5 * PATIENCE)
    assert server.verbs("/pods").count("GET") == before + 1
    await eventually(lambda: server.verbs("/pods")[-1] == "WATCH", "and goes on watching")


# --- acting --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D6", "D7")
async def test_a_plan_is_in_the_overlay_at_every_moment_until_the_informer_shows_it(following, server):
    await following.apply_all(*(server.create(f"p{i}") for i in range(100)))
    assert len(following.pods()) == 100
    await eventually(lambda: len(following.informer.by_index(server.cluster)) == 100, "the informer shows all")
    assert len(following.pods()) == 100
    assert following.overlay.requeue_after_s(server.cluster) is None
    half = [Delete(PODS, server.home, view.name, view.uid, "DeletedWorkerPod") for view in following.pods()[:50]]
    await following.apply_all(*half)
    assert sum(not view.is_terminating for view in following.pods()) == 50
    await eventually(lambda: len(following.informer) == 50, "half of them are gone")
    assert len(following.pods()) == 50
    assert following.overlay.requeue_after_s(server.cluster) is None


@pytest.mark.rule("D15")
async def test_the_very_same_create_sent_twice_makes_one_pod(following, server):
    first = await following.apply(server.create("a"))
    (made,) = following.pods()
    again = await following.apply(server.create("a"))
    assert [done.outcomes[0].result for done in (first, again)] == [Result.DONE, Result.DONE]
    assert [pod.uid for pod in following.pods()] == [made.uid]
    foreign = await following.apply(server.create("a", group="other"))
    assert foreign.outcomes[0].result is Result.REJECTED
    assert foreign.outcomes[0].reason == "AlreadyExists"


@pytest.mark.rule("RM:I5")
async def test_a_patch_with_the_uid_of_another_object_is_rejected(client, following, server):
    await client.create(PODS, server.pod("a"))
    done = await following.apply(Patch(PODS, server.home, "a", "another-uid", {"metadata": {"labels": {"x": "y"}}}))
    assert done.outcomes[0].result is Result.REJECTED
    live = await client.get(PODS, Key(server.home, "a"))
    assert live is not None
    assert "x" not in live["metadata"]["labels"]


@pytest.mark.rule("D8")
async def test_events_are_taken_by_the_api(client, server):
    recorder = Recorder(client, clock=Clock(), controller="raytide", instance="pod-1")
    task = asyncio.create_task(recorder.run())
    regarding = await client.create(PODS, server.pod("a"))
    recorder.record(regarding, event_type="Warning", reason="Invalid", note="bad", action="Validate")
    found: list[dict] = []
    async with asyncio.timeout(5 * PATIENCE):
        while not found:
            found = [item async for item in client.list(EVENTS, server.home)]
    assert (found[0]["message"], found[0]["involvedObject"]["name"]) == ("bad", "a")
    assert found[0]["firstTimestamp"] == found[0]["lastTimestamp"]
    assert recorder.dropped == 0
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.rule("PF:P6")
async def test_an_idle_controller_answers_the_first_change_at_once(client, following, server):
    took_s: list[float] = []
    sent_at = 0.0

    async def reconcile(key: Key) -> None:
        took_s.append(asyncio.get_running_loop().time() - sent_at)

    controller = ReconcileLoop("test", reconcile, clock=Clock(), keys=lambda: ())
    following.informer._store._on_change = lambda _old, new: controller.enqueue_coalesced(Key(server.home, new.name))
    task = asyncio.create_task(controller.run())
    for number in range(20):
        sent_at = asyncio.get_running_loop().time()
        await client.create(PODS, server.pod(f"p{number}"))
        await eventually(lambda wanted=number + 1: len(took_s) == wanted, "the change was answered")
    await controller.stop()
    await task
    assert sorted(took_s)[10] < 0.05, "a bundled change would have waited 0.2 s"
