"""Both controllers, and jobs that cannot use what they were granted: no other job shrinks for them, and they are retried."""

import asyncio

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import find_condition
from support.faults.types import Answer
from unit.fairshare.test_with_trainingjob_controller import BothControllers

pytestmark = [pytest.mark.slow, pytest.mark.looptime]

WORDS = "no PriorityClass with name gold was found"
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes: no free ports",
}


class Picky(BothControllers):
    """With a scheduler that takes jobs by turns, and puts at most so many pods of a job on a node."""

    def __init__(self, most_per_node=99, **more):
        super().__init__(**more)
        self.most = most_per_node

    def _pods(self):
        return sorted(super()._pods(), key=lambda pod: int(pod["metadata"]["labels"].get(constants.INDEX_LABEL, 0)))

    def _bind(self, obj, node):
        job = obj["metadata"]["labels"].get(constants.JOB_LABEL)
        there = [
            pod
            for pod in self._pods()
            if pod["spec"].get("nodeName") == node and pod["metadata"]["labels"].get(constants.JOB_LABEL) == job
        ]
        if len(there) < self.most:
            super()._bind(obj, node)
        elif not (obj.get("status") or {}).get("conditions"):
            path = f"/api/v1/namespaces/default/pods/{obj['metadata']['name']}/status"
            self.handle("PATCH", path, {"status": {"conditions": [UNSCHEDULABLE]}}, "application/merge-patch+json")


@pytest.mark.rule("FD:SH-B14")
async def test_of_two_jobs_that_hold_each_other_up_one_gets_to_run():
    stage = Picky()
    async with stage:
        for name in ("a", "b"):
            stage.add_job(name, 8, 8, fault_tolerant=False)
        await stage.until("all pods are there", lambda: len(stage.pods("a")) + len(stage.pods("b")) == 16)
        stage.add_node("one", "12")
        await stage.until("they have halves", lambda: (len(stage.placed("a")), len(stage.placed("b"))) == (6, 6))
        await stage.until("one of them runs", lambda: "Running" in stage.phases().values(), within_s=900)
        await asyncio.sleep(2000)
        assert sorted(stage.phases().values()) == ["Pending", "Running"]
        runs = next(name for name, phase in stage.phases().items() if phase == "Running")
        waits = "ab".replace(runs, "")
        assert (len(stage.placed(runs)), stage.pods(waits)) == (8, [])
        assert stage.status(waits)["waiting"] == "InsufficientResources"
        stage.edit(runs, spec={"suspend": True})
        await stage.until("the other one runs", lambda: stage.phases()[waits] == "Running", within_s=2000)


@pytest.mark.rule("FD:SH-B6")
async def test_capacity_that_a_job_cannot_use_goes_to_another():
    stage = Picky(most_per_node=1)
    for name in ("one", "two", "three"):
        stage.add_node(name, "8")
    async with stage:
        stage.add_job("picky", 2, 20)
        await stage.until("it was granted more than it can use", lambda: (stage.sizes()["picky"] or 0) > 3)
        await stage.until("and was scaled down", lambda: stage.sizes()["picky"] == 3, within_s=200)
        record = stage.record("picky")
        assert record.resizes[-1].reason == "Unschedulable"
        await asyncio.sleep(3600)
        grown = [size for size in stage.orders("picky") if size > 3]
        assert 3 <= len(grown) <= 6, "growth is retried after longer and longer delays"


def refuse(request):
    """As for a PriorityClass that is not there."""
    is_meant = request.method == "POST" and request.path.endswith("/pods") and b'"refused-' in request.body
    return Answer(403, reason="Forbidden", message=f"pods is forbidden: {WORDS}") if is_meant else None


@pytest.mark.rule("FD:SEC-F3")
@pytest.mark.parametrize("policy", ["Optimistic", "Gang"])
async def test_a_job_whose_pods_are_rejected_does_not_shrink_others_for_long(policy):
    stage = BothControllers()
    stage.add_node("one", "16")
    stage.wire.admission = refuse
    async with stage:
        stage.add_job("victim", 2, 16)
        await stage.until("the victim has all", lambda: len(stage.placed("victim")) == 16)
        await asyncio.sleep(120)
        stage.add_job("refused", 14, startPolicy=policy, pendingTimeoutSeconds=2147483647)
        await asyncio.sleep(300)
        assert len(stage.placed("victim")) == 16
        waiting = find_condition(stage.status("refused")["conditions"], "Waiting")
        assert WORDS in waiting["message"]
        before = len(stage.orders("victim"))
        await asyncio.sleep(4 * 3600)
        assert len(stage.orders("victim")) == before
        assert len(stage.placed("victim")) == 16


@pytest.mark.rule("TJ:3.21")
async def test_a_gang_that_is_scaled_to_nothing_keeps_its_minimum():
    stage = BothControllers()
    stage.add_node("one", "8", gpu=4)
    async with stage:
        stage.add_job("gang", 2, 4, gpu=1)
        await stage.until("it runs", lambda: len(stage.placed("gang")) == 4)
        stage.scale("gang", 0)
        await stage.until("it is small", lambda: len(stage.placed("gang")) == 2)
        await asyncio.sleep(5)
        condition = find_condition(stage.status("gang")["conditions"], constants.ADMITTED)
        assert condition["status"] == "True"
        await stage.until("it has grown again", lambda: len(stage.placed("gang")) == 4)
