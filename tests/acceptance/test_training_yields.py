"""A job that yields shrinks for a web server on a real scheduler, and grows when that is deleted (TJ §3 row 6c).

The pods of the web server do not preempt, so that nothing but the operator can make room for them.
"""

import pytest

from acceptance.fleet import eventually
from acceptance.job_environment import JobEnv

pytestmark = [pytest.mark.rule("TJ:3.6"), pytest.mark.kube]

SLOTS, LOW, WEB = 10, 2, 3
AT_ONCE = {"growCooldownSeconds": 0, "shrinkCooldownSeconds": 0}


async def test_a_job_gives_to_a_web_server_and_takes_it_back(jobs: JobEnv):
    await jobs.nodes_ready(await jobs.node("shared", cpu=str(SLOTS)))
    await jobs.priority("web-waits", 1000, preemptionPolicy="Never")
    await jobs.shared(RAYTIDE_SHARING_SETTLE="0.3")
    await jobs.submit("giver", LOW, SLOTS, scaling={**AT_ONCE, "yieldToPods": True})

    async def giver_has(count: int) -> bool:
        return jobs.running()["giver"] == count == len(jobs.trainers("giver"))

    await eventually("it fills the node", lambda: giver_has(SLOTS))
    web = await jobs.foreign_pods("web", WEB, priorityClassName="web-waits")

    async def is_served() -> bool:
        return all(map(jobs.has_place, web)) and await giver_has(SLOTS - WEB)

    await eventually("the web server runs, and the job is smaller by as much", is_served)

    async def is_reported() -> bool:
        resizes = (await jobs.job("giver"))["status"].get("scaling", {}).get("history", [])
        return sum(each["from"] - each["to"] for each in resizes if each["reason"] == "YieldedToPods") == WEB

    await eventually("its history says that it gave, once", is_reported)
    await jobs.dismiss(web)
    await eventually("it grows back", lambda: giver_has(SLOTS))


async def test_a_job_that_does_not_yield_keeps_its_trainers(jobs: JobEnv):
    await jobs.nodes_ready(await jobs.node("shared", cpu=str(SLOTS)))
    await jobs.priority("web-waits", 1000, preemptionPolicy="Never")
    sharing = await jobs.shared(RAYTIDE_SHARING_SETTLE="0.3")
    await jobs.submit("keeper", LOW, SLOTS, scaling=AT_ONCE)

    async def is_full() -> bool:
        return jobs.running()["keeper"] == SLOTS

    await eventually("it fills the node", is_full)
    web = await jobs.foreign_pods("web", WEB, priorityClassName="web-waits")
    await sharing.has_reconciled()
    assert await is_full()
    assert not any(map(jobs.has_place, web))
