"""S25: GPUs that may not all be used, and nodes that only seem to have free capacity.

On a real scheduler with nodes that kwok plays. A planner that fills GPUs to the last one and then finds the cluster too
full goes up and down for ever; one that counts sums starts pods that no node can hold. Both are judged by what the API
server's audit log has, after passes that had every reason to change their mind.
"""

import pytest

from acceptance.fleet import eventually
from acceptance.job_environment import JobEnv, sizes_by_job
from raytide.api import trainingjob_constants as constants

pytestmark = [pytest.mark.rule("SC:S25"), pytest.mark.kube, pytest.mark.timeout(600)]

SETTLE = {"RAYTIDE_SHARING_SETTLE": "0.3"}


def gpus(count: int) -> dict:
    """Resources of one trainer."""
    return {"resources": {"requests": {"cpu": "1"}, "limits": {constants.GPU: count}}}


async def test_a_load_below_all_is_reached_and_kept(jobs: JobEnv):
    node = await jobs.node("gpus", cpu="32", **{constants.GPU: "8"})
    await jobs.nodes_ready(node)
    sharing = await jobs.shared("--max-load", f"cpu=97,memory=97,{constants.GPU}=97", **SETTLE)
    await jobs.submit("one", 2, 8, trainer=gpus(1))

    async def has_seven() -> bool:
        return jobs.running()["one"] == 7

    await eventually("seven of eight GPUs are used: eight would be more than 97 %", has_seven, within_s=60)
    await sharing.has_reconciled(5)
    sizes = [size for _, size in sizes_by_job(await jobs.history())[f"{jobs.namespace}/one"]]
    jobs.record(f"S25, 8 GPUs of which 97 % may be used: sizes {sizes}, and none in 5 more passes")
    assert sizes == sorted(sizes)
    assert (sizes[-1], jobs.running()["one"]) == (7, 7)


async def test_capacity_that_a_gang_cannot_use_starts_no_pods(jobs: JobEnv):
    cordoned = await jobs.node("cordoned", is_cordoned=True, cpu="32", **{constants.GPU: "4"})
    await jobs.node("not-ready", is_played=False, cpu="32", **{constants.GPU: "4"})
    small = [await jobs.node(f"small-{number}", cpu="32", **{constants.GPU: "1"}) for number in range(4)]
    await jobs.nodes_ready(*small)
    sharing = await jobs.shared(**SETTLE)
    await jobs.submit("pairs", 1, 6, trainer=gpus(2))

    async def waits() -> bool:
        return (await jobs.condition("pairs", constants.WAITING)).get("status") == "True"

    await eventually("it waits for two GPUs on one node", waits)
    await sharing.has_reconciled()
    condition = await jobs.condition("pairs", constants.WAITING)
    assert condition["reason"] == "Fragmented", condition
    assert not jobs.trainers("pairs"), "a gang without capacity has no pods"

    await jobs.cordon(cordoned, is_cordoned=False)

    async def runs() -> bool:
        return jobs.running()["pairs"] == 2

    await eventually("it uses the node that may be used now, all of it", runs, within_s=60)
    await sharing.has_reconciled()
    nodes = {pod["spec"].get("nodeName") for pod in jobs.trainers("pairs")}
    sizes = [size for _, size in sizes_by_job(await jobs.history())[f"{jobs.namespace}/pairs"]]
    jobs.record(
        f"S25, 2 GPUs each beside cordoned, NotReady and 1-GPU nodes: {condition['message']}; then sizes {sizes}"
    )
    assert nodes == {cordoned}
    assert (sizes, len(jobs.trainers("pairs"))) == (sorted(sizes), 2)


@pytest.mark.rule("FD:SH-B3")
async def test_a_trainer_of_eight_gpus_costs_the_eight_trainers_of_one_node(jobs: JobEnv):
    """It cost 36 of them, when victims were the trainers of the highest index."""
    nodes = [await jobs.node(f"gpus-{number}", cpu="64", **{constants.GPU: "8"}) for number in range(5)]
    await jobs.nodes_ready(*nodes)
    sharing = await jobs.shared(**SETTLE)
    await jobs.submit("small", 1, 40, trainer=gpus(1))

    async def is_full() -> bool:
        return jobs.running()["small"] == 40

    await eventually("all GPUs are in use", is_full, within_s=60)
    before = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in jobs.trainers("small")}
    await jobs.submit("large", 1, 1, trainer=gpus(8))

    async def runs() -> bool:
        return jobs.running()["large"] == 1

    await eventually("it has a node", runs, within_s=60)
    await sharing.has_reconciled()
    (large,) = jobs.trainers("large")
    gone = before.keys() - {pod["metadata"]["name"] for pod in jobs.trainers("small")}
    jobs.record(f"FD:SH-B3: {len(gone)} of 40 trainers went, from {sorted({before[name] for name in gone})}")
    assert {before[name] for name in gone} == {large["spec"]["nodeName"]}
    assert (len(gone), jobs.running()["small"]) == (8, 32)
