"""S6: Git writes one replica every five seconds against a demand of 20: no worker is deleted, and the writer is named."""

import asyncio

import pytest

from acceptance.audit import Doomed, Order
from acceptance.checks import shortest_between_s
from acceptance.environment import Env
from acceptance.fleet import eventually
from acceptance.scaled import Scaled, scaled_cluster, scene
from support.builders import group
from support.plane_admin import APPLY

DEMAND = 20
GIT_EVERY_S = 5.0
WAR_S = 50.0
"""Ten minutes of the same pass in virtual time in tests/simulation."""
UP_WITHIN_S, PEACE_WITHIN_S = 60.0, 30.0
REASSERTED_EVERY_S = 10.0
GIT = "argocd-controller"
CONTENDED = "ReplicasContended"


async def sync(scaled: Scaled) -> None:
    """As Argo CD with self-healing, which owns every field that Git names."""
    env = scaled.env
    manifest = scaled_cluster(env.namespace, group(replicas=1, high=50))
    while True:
        await env.admin.call("PATCH", f"{scaled.path}?fieldManager={GIT}&force=true", manifest, content=APPLY)
        await asyncio.sleep(GIT_EVERY_S)


@pytest.mark.rule("SC:S6", "D19")
@pytest.mark.kube
@pytest.mark.timeout(600)
async def test_git_and_the_demand_disagree(env: Env):
    scaled = await scene(env, group(replicas=1, high=50))
    loop = asyncio.get_running_loop()
    war = env.run(sync(scaled))
    began = loop.time()
    up_s = await scaled.ask_for(DEMAND, DEMAND, within_s=UP_WITHIN_S)

    async def is_reported() -> bool:
        condition = await scaled.condition(CONTENDED)
        return condition.get("status") == "True" and GIT in condition["message"]

    await eventually(f"{CONTENDED} names {GIT}", is_reported, within_s=WAR_S)
    reported_s = loop.time() - began
    await asyncio.sleep(max(0.0, began + WAR_S - loop.time()))
    assert len(scaled.workers()) == DEMAND
    assert await is_reported(), "as long as it lasts"

    war.cancel()
    ended = loop.time()

    async def is_over() -> bool:
        return (await scaled.condition(CONTENDED)).get("status") != "True"

    await eventually(f"{CONTENDED} is cleared", is_over, within_s=PEACE_WITHIN_S)
    peace_s = loop.time() - ended

    history = await env.history()
    deleted = [step for step in history if isinstance(step, Doomed)]
    ours = [step for step in history if isinstance(step, Order) and step.user == scaled.sidecar.user]
    shortest_s = shortest_between_s(history, scaled.sidecar.user)
    env.record(
        f"S6: {DEMAND} pods after {up_s:.1f} s, {len(deleted)} deleted, {len(ours)} writes of ours in {WAR_S:.0f} s and "
        f"never two within {shortest_s:.1f} s, told after {reported_s:.1f} s, cleared {peace_s:.1f} s after the last rewrite"
    )
    assert deleted == []
    assert len(ours) <= 1 + (WAR_S + peace_s) / REASSERTED_EVERY_S
    assert len(ours) >= 2, "it did not give in either"
    assert shortest_s >= REASSERTED_EVERY_S - 0.5
