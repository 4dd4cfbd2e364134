"""The sharing and the TrainingJob controller together: sizes are carried out and reported, and writes stop."""

import asyncio
from typing import Self

import pytest

from raytide.api.conditions import find_condition
from raytide.api.config import JobConfig
from raytide.controller.base import ControllerOptions
from raytide.kube.client import Client
from raytide.trainingjob.controller import TrainingJobController
from raytide_sandbox.apiserver.store import Change
from unit.fairshare.harness import JOBS, Json, Stage

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D16", "TJ:4")]

READY = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]


class BothControllers(Stage):
    """With the real controller of jobs in place of the stand-in."""

    async def __aenter__(self) -> Self:
        client = Client(self.wire, clock=self.clock)
        self.job_room = TrainingJobController(client, clock=self.clock, config=JobConfig(), options=ControllerOptions())
        self.store.subscribe(self._see_pod, "pods")
        self._running = asyncio.create_task(self.job_room.run())
        await super().__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.job_room.stop()
        await asyncio.wait_for(self._running, 60)
        await super().__aexit__(*error)

    def status(self, name: str) -> Json:
        return dict(self.jobs()[name].status)

    def phases(self) -> dict[str, str]:
        return {name: self.status(name).get("phase", "") for name in self.jobs()}

    def _control(self, job: object) -> None:
        """The real one does."""

    def _see_pod(self, change: Change) -> None:
        if change.type == "MODIFIED" and change.entry.is_terminating and not change.previous.is_terminating:
            asyncio.get_running_loop().call_later(self.grace_s, self.kill, change.key.name)

    def _bind(self, obj: Json, node: str) -> None:
        super()._bind(obj, node)
        path = f"/api/v1/namespaces/default/pods/{obj['metadata']['name']}/status"
        self.handle("PATCH", path, {"status": {"conditions": READY}}, "application/merge-patch+json")


async def test_a_gang_is_admitted_suspended_and_admitted_again():
    stage = BothControllers()
    for name in ("one", "two"):
        stage.add_node(name, "8", gpu=4)
    async with stage:
        stage.add_job("cpu", 2, 20)
        await stage.until("it fills the cluster", lambda: len(stage.placed("cpu")) == 16)
        stage.add_job("gang", 4, 4, gpu=1)
        await stage.until("the gang runs", lambda: stage.phases().get("gang") == "Running")
        assert stage.sizes() == {"cpu": 12, "gang": 4}
        (_, taken) = stage.status("cpu")["scaling"]["history"]
        assert (taken["from"], taken["to"], taken["forJob"]) == (16, 12, "default/gang")
        stage.edit("gang", spec={"suspend": True})
        await stage.until("the other grows", lambda: len(stage.placed("cpu")) == 16)
        assert stage.pods("gang") == []
        stage.edit("gang", spec={"suspend": False})
        await stage.until("the gang runs again", lambda: stage.phases()["gang"] == "Running")
        await stage.until("and the other has settled", lambda: stage.phases()["cpu"] == "Running")
        assert stage.sizes() == {"cpu": 12, "gang": 4}


async def test_a_job_that_fits_no_node_has_a_waiting_condition():
    stage = BothControllers()
    stage.add_node("one", "8", gpu=2)
    async with stage:
        stage.add_job("huge", 1, 2, gpu=64)
        await stage.until("it says so", lambda: stage.status("huge").get("waiting") == "Unsatisfiable")
        condition = find_condition(stage.status("huge")["conditions"], "Waiting")
        assert condition["status"] == "True"
        assert "64" in condition["message"]
        assert stage.pods("huge") == []


async def test_nothing_is_written_once_the_capacity_is_shared():
    stage = BothControllers()
    stage.add_node("one", "12")
    async with stage:
        stage.add_job("a", 2, 4, pserver={"min-instance": 1, "max-instance": 4, "scaling": "Ratio"})
        stage.add_job("b", 1, 20, master={})
        await stage.until("all capacity is used", lambda: sum(len(stage.placed(name)) for name in ("a", "b")) >= 12)
        await asyncio.sleep(90)
        assert stage.phases() == {"a": "Running", "b": "Running"}
        assert stage.sizes() == {"a": 3, "b": 6}, (
            "as many as there are CPUs besides the limits of the master and its etcd"
        )
        assert stage.placed("a") == [f"a-{role}-{i}" for role in ("pserver", "trainer") for i in range(3)]
        versions = [entry.version for _, entry in stage.store.entries(JOBS)]
        await asyncio.sleep(600)
        assert [entry.version for _, entry in stage.store.entries(JOBS)] == versions


@pytest.mark.rule("TJ:3.7", "FD:SH-B14")
async def test_a_master_that_lost_its_node_gets_the_capacity_of_one_of_its_own_trainers():
    stage = BothControllers()
    stage.add_node("one", "4")
    stage.add_node("two", "4")
    async with stage:
        stage.add_job("j", 1, 9, master={"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}})
        await stage.until("it has all the capacity", lambda: len(stage.placed("j")) >= 7)
        (home,) = [pod["spec"]["nodeName"] for pod in stage._pods() if pod["metadata"]["name"] == "j-master"]
        lost = [pod["metadata"]["name"] for pod in stage._pods() if pod["spec"].get("nodeName") == home]
        stage.store.delete("nodes", "", home)
        for name in lost:
            stage.kill(name)
        await stage.until("its master runs again", lambda: "j-master" in stage.placed("j"))
        await stage.until("nothing pends", lambda: stage.placed("j") == stage.pods("j"))
        assert 1 <= len(stage.placed("j")) - 1 < 4


@pytest.mark.rule("FD:TJ3-2", "TJ:3.21")
async def test_a_client_that_keeps_writing_a_size_takes_nothing_from_a_gang_that_waits():
    """The report's scenario: `kubectl scale --replicas=16` every 14 s, beside a gang of four."""
    stage = BothControllers(grace_s=20.0)
    for name in ("one", "two"):
        stage.add_node(name, "8")
    async with stage:
        stage.add_job("a", 1, 16)
        await stage.until("it fills the cluster", lambda: len(stage.placed("a")) == 16)
        await stage.until("and has settled", lambda: stage.phases() == {"a": "Running"})
        writer = asyncio.create_task(keep_writing(stage, "a", 16))
        stage.add_job("b", 4, 8, startPolicy="Gang")
        await stage.until("the gang starts", lambda: len(stage.placed("b")) >= 4, within_s=60)
        written = len(stage.orders("a"))
        for _ in range(300):
            await asyncio.sleep(1)
            assert len(stage.placed("b")) >= 4
            assert len(stage.pods("a")) <= 12, "no pod without capacity"
        history = stage.status("a")["scaling"]["history"]
        assert sum(note["reason"] in ("Reclaimed", "Rebalanced") for note in history) <= 4, history
        assert len(stage.orders("a")) - written <= 8, "the spec is not written for each write of the other client"
        contended = find_condition(stage.status("a")["conditions"], "ReplicasContended")
        assert (contended["status"], contended["reason"]) == ("True", "ReplicasRewritten")
        assert "written by keda" in contended["message"]
        events = [entry.obj() for _, entry in stage.store.entries("events")]
        assert [event["reason"] for event in events].count("ReplicasContended") == 1
        writer.cancel()
        await stage.until(
            "it is over", lambda: find_condition(stage.status("a")["conditions"], "ReplicasContended") is None, 600
        )
        assert stage.sizes() == {"a": len(stage.pods("a")), "b": len(stage.pods("b"))}


async def keep_writing(stage, name, replicas):
    while True:
        stage.scale(name, replicas, "keda")
        await asyncio.sleep(14)
