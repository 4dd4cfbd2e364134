"""S2: the group of higher priority gets no nodes, for one of three reasons; the next group is launched at once."""

import asyncio

import pytest

from acceptance.checks import most_at_once
from acceptance.environment import Env
from acceptance.fleet import MERGE, eventually
from acceptance.scaled import scene
from support.builders import group, template

DEMAND, MOST = 16, 20
WITHIN_S = 30.0
SWAP_S = 10.0
SPOT, ON_DEMAND = "spot", "on-demand"
CHEAP = "example.com/spot"
GATE = {"name": "example.com/wait"}


def groups(block: str) -> list[dict]:
    """Spot first; what is in its template depends on what is to stop it."""
    cheap = template("ray-worker", **({"schedulingGates": [GATE]} if block == "gated" else {}))
    for amounts in cheap["spec"]["containers"][0]["resources"].values():
        amounts[CHEAP] = "1"
    return [
        group(SPOT, replicas=0, high=MOST, priority=10, template=cheap),
        group(ON_DEMAND, replicas=0, high=MOST, priority=5),
    ]


async def reject_by_quota(env: Env) -> None:
    """No pod of the spot group is let in."""
    quotas = f"/api/v1/namespaces/{env.namespace}/resourcequotas"
    hard = {f"requests.{CHEAP}": "0"}
    await env.admin.call("POST", quotas, {"metadata": {"name": "team"}, "spec": {"hard": hard}})

    async def is_counted() -> bool:
        return bool((await env.admin.call("GET", f"{quotas}/team")).get("status", {}).get("hard"))

    await eventually("the quota is in force", is_counted)


async def free(env: Env, block: str) -> None:
    """From now on spot nodes are to be had."""
    env.kubelet.has_capacity = lambda _pod: True
    if block == "refused":
        path = f"/api/v1/namespaces/{env.namespace}/resourcequotas/team"
        await env.admin.call("PATCH", path, {"spec": {"hard": {f"requests.{CHEAP}": "99"}}}, content=MERGE)


@pytest.mark.rule("SC:S2")
@pytest.mark.kube
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", ["unschedulable", "gated", "refused"])
async def test_the_next_group_does_the_work(env: Env, block: str):
    env.kubelet.has_capacity = lambda pod: pod["metadata"]["labels"]["ray.io/group"] != SPOT
    if block == "refused":
        await reject_by_quota(env)
    scaled = await scene(env, *groups(block))
    took_s = await scaled.ask_for(DEMAND, DEMAND, within_s=WITHIN_S, group=ON_DEMAND)

    async def is_withdrawn() -> bool:
        return not scaled.workers(SPOT) and scaled.ray.running == DEMAND

    await eventually("all tasks run, and no spot pod is left", is_withdrawn, within_s=WITHIN_S)
    busy = set(scaled.workers(ON_DEMAND))
    await free(env, block)
    await asyncio.sleep(SWAP_S)
    assert set(scaled.workers(ON_DEMAND)) == busy, "no busy worker is replaced by a cheaper one"
    assert scaled.workers(SPOT) == []

    history = await env.history()
    most = {name: most_at_once(history, name) for name in (SPOT, ON_DEMAND)}
    env.record(f"S2 ({block}): {DEMAND} workers of the next group after {took_s:.1f} s; at most {most}")
    assert most[ON_DEMAND] == DEMAND
    assert most[SPOT] <= DEMAND
    assert (block == "refused") == (most[SPOT] == 0), "it was tried"
