"""Invalid TrainingJobs of one user do not affect other users, on a real control plane.

One job shares the cluster while everything that can be wrong beside it is wrong; it keeps its size. And an operator that
may not look at nodes says so and runs jobs at their minimum.
"""

import asyncio
import time
from pathlib import Path

import pytest

import machine_speed
from acceptance.fleet import eventually, side_by_side
from acceptance.job_environment import JobEnv, sizes_by_job
from raytide.api import trainingjob_constants as constants
from support.deadlines import PATIENCE
from support.plane_admin import RBAC, ApiStatusError
from support.ports import free_port
from support.worst_objects import WORST

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

SLOTS = 8
SETTLE = {"RAYTIDE_SHARING_SETTLE": "0.3"}
HUGE = {"resources": {"requests": {"cpu": "1000"}}}


async def test_invalid_and_infeasible_jobs_and_pods_do_not_affect_a_valid_job(jobs: JobEnv):
    await jobs.nodes_ready(await jobs.node("cpus", cpu=str(SLOTS)))
    sharing = await jobs.shared(**SETTLE)
    with pytest.raises(ApiStatusError, match="min-instance") as rejected:
        await jobs.submit("reversed", 4, 2)
    assert rejected.value.code == 422
    await jobs.submit("sound", 2, 6)

    async def is_large() -> bool:
        return jobs.running()["sound"] == 6

    await eventually("it has all it can use", is_large, within_s=60)
    await jobs.foreign_pods("monster", 1, cpu="1k")
    await jobs.submit("impossible", 2, 4, trainer=HUGE)
    await jobs.submit("impossible-gang", 2, 4, trainer=HUGE, startPolicy="Gang")
    for name in ("impossible", "impossible-gang"):

        async def says_so(name: str = name) -> bool:
            return (await jobs.condition(name, constants.WAITING)).get("reason") == "Unsatisfiable"

        await eventually(f"{name} says that it never can", says_so)
    neighbour = f"{jobs.namespace}-b"
    await jobs.make_namespaces(neighbour)
    await jobs.submit("sound", 1, 2, namespace=neighbour)

    async def runs_too() -> bool:
        trainer = (await jobs.job("sound", neighbour)).get("status", {}).get("trainer", {})
        return trainer.get("ready") == 2

    await eventually("the job of the same name in another namespace has the rest", runs_too, within_s=60)
    await sharing.has_reconciled()
    sizes = [size for _, size in sizes_by_job(await jobs.history())[f"{jobs.namespace}/sound"]]
    assert (sizes, jobs.running()["sound"]) == (sorted(sizes), 6), "it never gave anything for nothing"
    assert not jobs.trainers("impossible-gang")
    assert "this is a bug" not in sharing.operator.log


async def test_without_permission_to_list_nodes_jobs_run_at_their_minimum_with_a_reason(jobs: JobEnv):
    await jobs.nodes_ready(await jobs.node("cpus", cpu=str(SLOTS)))
    account = f"blind-{jobs.namespace[-8:]}"
    blind = await jobs.account(account)
    role = await jobs.admin.call("GET", f"{RBAC}/clusterroles/{account}")
    rules = [rule for rule in role["rules"] if "nodes" not in rule["resources"]]
    assert len(rules) < len(role["rules"])
    role["rules"] = rules
    await jobs.admin.call("PUT", f"{RBAC}/clusterroles/{account}", role)
    await jobs.shared(who=blind, **SETTLE)
    gang = {"resources": {"requests": {"cpu": "1"}}}
    await jobs.submit("gang", 2, 4, trainer=gang, startPolicy="Gang")
    await jobs.submit("optimist", 1, 4)

    async def run_at_minimum() -> bool:
        waiting = [(await jobs.condition(name, constants.WAITING)).get("reason") for name in ("gang", "optimist")]
        return jobs.running() == {"gang": 2, "optimist": 1} and waiting == ["CapacityUnknown"] * 2

    await eventually("both run at their minimum and say why they do not grow", run_at_minimum, within_s=60)
    await jobs.submit("late", 1, 4)  # what makes it look again: without nodes pods are not followed

    async def late_runs_too() -> bool:
        return jobs.running() == {"gang": 2, "optimist": 1, "late": 1}

    await eventually("a third one has its minimum, and the others keep theirs", late_runs_too, within_s=60)


MOST_MIB, HEALTHZ_S, SERVED_S, NODES = 256, 1.0, 5.0, 150


async def longest_answer_s(jobs: JobEnv, url: str) -> float:
    """How long /healthz took at most, until cancelled."""
    longest = 0.0
    try:
        while True:
            begun = time.monotonic()
            async with jobs.admin.session.get(url) as answer:
                assert answer.status == 200, await answer.text()
            longest = max(longest, time.monotonic() - begun)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return longest


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


@pytest.mark.rule("FD:SEC3-1", "FD:SEC3-2")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("jobs: resources of a job", 10, id="TrainingJobs with hundreds of resource names"),
        pytest.param("pods: values of an affinity", 5, id="pods with 180,000 names of nodes"),
    ],
)
async def test_the_worst_objects_of_a_tenant_cost_others_neither_memory_nor_time(jobs: JobEnv, name: str, count: int):
    """As reported: 549 MB and 15 s without an answer of /healthz, with a few objects that the API server takes."""
    await side_by_side(jobs.node(f"n{number}", cpu="8") for number in range(NODES))
    tenant = f"{jobs.namespace}-b"
    await jobs.make_namespaces(tenant)
    patience = max(PATIENCE, machine_speed.patience())

    async def runs(job: str, low: int) -> None:
        await jobs.submit(job, low, low)

        async def is_running() -> bool:
            return jobs.running()[job] == low

        await eventually(f"{job} runs", is_running)

    for turn in ("from the beginning", "with all of it stored"):
        health = f"127.0.0.1:{free_port()}"
        sharing = await jobs.shared("--health-probe-bind-address", health, **SETTLE)
        process = sharing.operator.process
        assert process is not None
        await runs(f"first-{turn.split()[0]}", 1)
        answers = asyncio.create_task(longest_answer_s(jobs, f"http://{health}/healthz"))
        if turn == "from the beginning":
            path = jobs.jobs_path(tenant) if name.startswith("jobs") else f"/api/v1/namespaces/{tenant}/pods"
            for number in range(count):
                worst = WORST[name].make(number)
                worst["metadata"]["namespace"] = tenant
                await jobs.admin.call("POST", path, worst)
        begun = time.monotonic()
        await runs(f"healthy-{turn.split()[0]}", 2)
        served_s = time.monotonic() - begun
        await sharing.has_reconciled(3)
        answers.cancel()
        assert peak_mib(process.pid) < MOST_MIB, turn
        assert await answers < HEALTHZ_S * patience, turn
        assert served_s < SERVED_S * patience, turn
        assert "this is a bug" not in sharing.operator.log
        await sharing.operator.stop()
