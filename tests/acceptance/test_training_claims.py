"""Claims and capacity that are not real, on a real scheduler.

Pods that nothing may start, a client that keeps writing a size, and a node with more bound than it can run.
"""

import asyncio

import pytest

from acceptance.fleet import MERGE, eventually
from acceptance.job_environment import JobEnv
from raytide.api import trainingjob_constants as constants

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

SLOTS = 10
SETTLE = {"RAYTIDE_SHARING_SETTLE": "0.3"}


async def filled(jobs: JobEnv, low: int) -> None:
    """One node that one job fills."""
    await jobs.nodes_ready(await jobs.node("shared", cpu=str(SLOTS)))
    await jobs.submit("filler", low, SLOTS)

    async def is_full() -> bool:
        return jobs.running()["filler"] == SLOTS

    await eventually("it fills the node", is_full)


@pytest.mark.rule("FD:SEC3-4")
async def test_pods_with_scheduling_gates_take_nothing_until_the_gates_are_removed(jobs: JobEnv):
    sharing = await jobs.shared(**SETTLE)
    await filled(jobs, 2)
    gates = {"spec": {"schedulingGates": [{"name": "example.com/hold"}]}}
    await jobs.submit("held", 6, 6, trainer={"template": gates})

    async def waits() -> bool:
        condition = await jobs.condition("held", constants.WAITING)
        return condition.get("reason") == "SchedulingGated" and len(jobs.trainers("held")) == 6

    await eventually("its pods exist, and it says what they wait for", waits)
    await sharing.has_reconciled(5)
    assert jobs.running() == {"filler": SLOTS}

    for pod in jobs.trainers("held"):
        path = f"{jobs.pods.path}/{pod['metadata']['name']}"
        await jobs.admin.call("PATCH", path, {"spec": {"schedulingGates": None}}, content=MERGE)

    async def is_shared() -> bool:
        return jobs.running() == {"filler": SLOTS - 6, "held": 6}

    await eventually("now they have what they need", is_shared, within_s=60)


@pytest.mark.rule("FD:TJ3-2")
async def test_a_client_that_keeps_writing_a_size_takes_nothing_from_a_gang(jobs: JobEnv):
    await jobs.shared(**SETTLE)
    await filled(jobs, 2)

    async def write() -> None:
        while True:
            size = {"spec": {"replicas": SLOTS}}
            await jobs.admin.call("PATCH", f"{jobs.jobs_path()}/filler/scale", size, content=MERGE)
            await asyncio.sleep(2)

    writer = asyncio.create_task(write())
    try:
        await jobs.submit("gang", 4, 4, startPolicy="Gang")

        async def runs() -> bool:
            return jobs.running()["gang"] == 4

        await eventually("the gang runs", runs, within_s=60)

        async def is_named() -> bool:
            condition = await jobs.condition("filler", constants.REPLICAS_CONTENDED)
            return (condition.get("status"), condition.get("reason")) == ("True", constants.REPLICAS_REWRITTEN)

        await eventually("a condition says that the size is written again and again", is_named, within_s=60)
        assert jobs.running() == {"filler": SLOTS - 4, "gang": 4}
    finally:
        writer.cancel()


@pytest.mark.rule("FD:TJ3-3")
async def test_a_node_with_failed_gpus_takes_none_from_another_node(jobs: JobEnv):
    gpu = {"resources": {"requests": {"cpu": "1"}, "limits": {constants.GPU: 1}}}
    sharing = await jobs.shared(**SETTLE)
    sick = await jobs.node("sick", cpu="16", **{constants.GPU: "8"})
    await jobs.nodes_ready(sick)
    await jobs.submit("old", 8, 8, trainer=gpu)

    async def has(name: str, count: int) -> bool:
        return jobs.running()[name] == count

    await eventually("the first job fills its node", lambda: has("old", 8))
    status = {"status": {"allocatable": {constants.GPU: "2"}}}
    await jobs.admin.call("PATCH", f"/api/v1/nodes/{sick}/status", status, content=MERGE)
    await jobs.nodes_ready(await jobs.node("well", cpu="16", **{constants.GPU: "8"}))
    await jobs.submit("new", 1, 8, trainer=gpu)
    await eventually("the other node is used as a whole", lambda: has("new", 8), within_s=60)
    await sharing.has_reconciled(3)
    node = await jobs.admin.call("GET", f"/api/v1/nodes/{sick}")
    assert node["status"]["allocatable"][constants.GPU] == "2"
    assert jobs.running() == {"old": 8, "new": 8}


@pytest.mark.rule("FD:TJ3-5")
async def test_a_gang_starts_from_zero_nodes_where_cluster_autoscaler_adds_them(jobs: JobEnv):
    maps = "/api/v1/namespaces/kube-system/configmaps"
    await jobs.make_namespaces("kube-system")
    await jobs.admin.call("POST", maps, {"metadata": {"name": "cluster-autoscaler-status"}})
    try:
        await jobs.shared(**SETTLE)
        gpu = {"resources": {"requests": {"cpu": "1"}, "limits": {constants.GPU: 4}}}
        await jobs.submit("gang", 2, 4, trainer=gpu)

        async def are_unschedulable() -> bool:
            conditions = [one for pod in jobs.trainers("gang") for one in pod["status"].get("conditions", ())]
            return [one["reason"] for one in conditions if one["type"] == "PodScheduled"] == ["Unschedulable"] * 2

        await eventually("a node autoscaler sees its pods", are_unschedulable)
        for name in ("new-1", "new-2"):
            await jobs.node(name, cpu="16", **{constants.GPU: "4"})

        async def runs() -> bool:
            return jobs.running()["gang"] == 2 and (await jobs.condition("gang", "Running"))["status"] == "True"

        await eventually("it runs", runs, within_s=60)
        (note,) = (await jobs.job("gang"))["status"]["scaling"]["history"]
        assert (note["from"], note["to"], note["reason"]) == (0, 2, "AwaitingNodes")
    finally:
        await jobs.admin.call("DELETE", f"{maps}/cluster-autoscaler-status")


@pytest.mark.rule("FD:TJ3-1")
async def test_a_job_on_the_hosts_network_has_one_trainer_on_each_node_and_takes_no_other(jobs: JobEnv):
    sharing = await jobs.shared(**SETTLE)
    nodes = [await jobs.node(name, cpu="8") for name in ("one", "two")]
    await jobs.nodes_ready(*nodes)
    await jobs.submit("ported", 1, 8, host_network=True)

    async def is_everywhere() -> bool:
        return jobs.running() == {"ported": 2}

    await eventually("it has one on each node", is_everywhere)
    await jobs.submit("filler", 2, 16)

    async def is_full() -> bool:
        return jobs.running() == {"ported": 2, "filler": 14}

    await eventually("the other one has the rest", is_full, within_s=60)
    await sharing.has_reconciled(5)
    assert jobs.running() == {"ported": 2, "filler": 14}
    assert len(jobs.trainers("ported")) == 2
    reasons = [note["reason"] for note in (await jobs.job("ported"))["status"]["scaling"]["history"]]
    assert set(reasons) <= {"Growing"}, "no pod was created in vain"
