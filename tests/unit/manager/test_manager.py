"""All controllers in one process: the served kinds, what readiness requires of them, and that a missing CRD stops no other."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace

import pytest

from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS
from raytide.kube.client import Client
from raytide.manager.manager import ControllerManager
from raytide.manager.settings import Settings
from raytide_sandbox.apiserver.request_response import Request
from support.builders import raycluster
from support.training_builders import trainingjob
from unit.trainingjob.test_controller import DEFINITIONS, install

from simulation.in_process_transport import InProcessTransport
from simulation.operator_under_test import SimulatedClock
from simulation.simulated_kube import SimulatedKube

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D9", "D11")]


class CountingWire(InProcessTransport):
    """Counts the watches that are open, by plural and selectors."""

    def __init__(self, api) -> None:
        super().__init__(api, latency_s=0.001)
        self.watches = Counter()

    async def stream(self, path, *, query=None, headers=None, silence_s) -> AsyncIterator[bytes]:
        selectors = [query[name] for name in ("labelSelector", "fieldSelector") if name in query]
        watch = " ".join([path.rsplit("/", 1)[-1], *selectors])
        self.watches[watch] += 1
        try:
            async with aclosing(super().stream(path, query=query, headers=headers, silence_s=silence_s)) as lines:
                async for line in lines:
                    yield line
        finally:
            self.watches[watch] -= 1


@asynccontextmanager
async def process(*, has_jobs, **settings):
    """All controllers on a cluster with the CRD of RayClusters, and perhaps that of TrainingJobs."""
    world = SimulatedKube(random.Random(0))
    if has_jobs:
        install(world)
    clock = SimulatedClock(world.now)
    wire = CountingWire(world.api)
    manager = ControllerManager(Client(wire, clock=clock), clock=clock, settings=Settings(**settings))
    leading = asyncio.create_task(manager.run_reconcilers())
    following = asyncio.create_task(manager.run_informers())
    await manager.discover_kinds()
    yield SimpleNamespace(world=world, manager=manager, wire=wire)
    await manager.stop()
    await asyncio.wait_for(leading, 15)
    following.cancel()


def create_cluster(here):
    here.world.create({**raycluster(), "metadata": {"name": "demo", "namespace": "default"}})


@pytest.mark.rule("D27")
@pytest.mark.parametrize(
    ("minor", "kind"), [(0, "containers"), (32, "containers"), (33, "initContainers"), (35, "initContainers")]
)
async def test_the_autoscaler_is_a_native_sidecar_from_kubernetes_1_33_on(minor, kind):
    async with process(has_jobs=False) as here:
        here.manager.use_api_version(minor)
        spec = raycluster(enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2"})
        here.world.create({**spec, "metadata": {"name": "demo", "namespace": "default"}})
        await asyncio.sleep(5)
        (head,) = (
            here.world.store.get("pods", key.namespace, key.name)
            for key, _ in here.world.store.entries("pods", "default")
            if "-head-" in key.name
        )
        assert "autoscaler" in [container["name"] for container in head["spec"].get(kind, ())]


def create_job(here):
    obj = trainingjob(name="job", scaling={"enabled": False})
    metadata = {"name": "job", "namespace": "default"}
    here.world.store.create("trainingjobs.paddlepaddle.org", {**obj, "metadata": metadata})


def pods(here):
    return {key.name for key, _ in here.world.store.entries("pods", "default")}


async def test_both_kinds_are_reconciled_and_their_streams_needed():
    async with process(has_jobs=True) as here:
        assert here.manager.check() == (True, "rayclusters.ray.io, trainingjobs.paddlepaddle.org")
        assert all(map(here.manager.is_needed, here.manager.streams))
        create_cluster(here)
        create_job(here)
        await asyncio.sleep(30)
        assert len(pods(here)) == 3 + 2
        assert here.manager.waiting() == 0
        assert here.manager.oldest_pass_s() == 0


async def test_no_collection_is_watched_twice():
    async with process(has_jobs=True) as here:
        create_cluster(here)
        create_job(here)
        await asyncio.sleep(30)
        assert +here.wire.watches == {
            "rayclusters": 1,
            "trainingjobs": 1,
            "nodes": 1,
            "pods ray.io/cluster,ray.io/node-type": 1,
            "pods raytide.io/training-job": 1,
            "pods status.phase!=Succeeded,status.phase!=Failed": 1,
            "services ray.io/cluster": 1,
            "services ray.io/headless-worker-svc": 1,
            "services raytide.io/training-job": 1,
            "configmaps raytide.io/training-job": 1,
            "resourcequotas": 1,
            "priorityclasses": 1,
        }
        here.world.store.delete("trainingjobs.paddlepaddle.org", "default", "job")
        await asyncio.sleep(30)
        assert here.wire.watches["nodes"] == 1, "the controllers still need it"
        assert here.wire.watches["pods status.phase!=Succeeded,status.phase!=Failed"] == 0


async def test_streams_of_trainingjobs_are_not_needed_until_their_crd_exists():
    async with process(has_jobs=False) as here:
        assert here.manager.check() == (True, "rayclusters.ray.io; waiting for CRD trainingjobs.paddlepaddle.org")
        assert (here.manager.is_served(RAYCLUSTERS), here.manager.is_served(TRAININGJOBS)) == (True, False)
        needed = {name for name in here.manager.streams if here.manager.is_needed(name)}
        assert needed == {"rayclusters", "pods", "services", "headless-services"}
        create_cluster(here)
        await asyncio.sleep(30)
        assert len(pods(here)) == 3
        install(here.world)
        create_job(here)
        await asyncio.sleep(40)
        assert len(pods(here)) == 5
        assert all(map(here.manager.is_needed, here.manager.streams))
        assert all(stream.is_synced for stream in here.manager.streams.values())


@pytest.mark.rule("FD:SEC-F10")
@pytest.mark.parametrize(
    ("controllers", "watched", "pods_made"),
    [
        (
            ("raycluster",),
            {"rayclusters", "nodes", "pods ray.io/cluster,ray.io/node-type", "services ray.io/cluster"}
            | {"services ray.io/headless-worker-svc"},
            3,
        ),
        (
            ("trainingjob",),
            {"trainingjobs", "nodes", "pods raytide.io/training-job", "services raytide.io/training-job"}
            | {"configmaps raytide.io/training-job", "pods status.phase!=Succeeded,status.phase!=Failed"}
            | {"resourcequotas", "priorityclasses"},
            2,
        ),
    ],
    ids=["rayclusters", "trainingjobs"],
)
async def test_the_kind_of_a_disabled_controller_is_neither_watched_nor_reconciled(controllers, watched, pods_made):
    async with process(has_jobs=True, controllers=controllers) as here:
        (kind,) = here.manager.kinds
        assert here.manager.check() == (True, f"{kind.resource.plural}.{kind.resource.group}")
        here.manager.use_api_version(35)
        create_cluster(here)
        create_job(here)
        await asyncio.sleep(30)
        assert set(+here.wire.watches) == watched
        assert len(pods(here)) == pods_made
        assert here.manager.oldest_pass_s() == 0


async def test_an_operator_without_any_kind_has_nothing_to_do():
    world = SimulatedKube(random.Random(0))
    world.api.handle(Request("DELETE", f"{DEFINITIONS}/rayclusters.ray.io", {}, {}, b""))
    world.controllers.step(world.now())
    clock = SimulatedClock(world.now)
    manager = ControllerManager(
        Client(InProcessTransport(world.api, latency_s=0.001), clock=clock), clock=clock, settings=Settings()
    )
    assert manager.check()[0] is False, "not known yet"
    following = asyncio.create_task(manager.run_informers())
    await manager.discover_kinds()
    is_well, text = manager.check()
    following.cancel()
    assert not is_well
    assert text == ("none served; waiting for CRD rayclusters.ray.io; waiting for CRD trainingjobs.paddlepaddle.org")
