"""The leader loses its Lease during a pass (RM:F8): one writer at a time, and no pod too many.

Each of two replicas has a way of its own to the API server. The leader's calls of the Lease fail while everything else works; then
the next leader is cut off from everything. By the audit log only the holder of the Lease writes.
"""

import asyncio

import pytest

from acceptance.checks import terms, too_many_or_too_few, writes_without_the_lease
from acceptance.environment import SYSTEM, Env
from acceptance.fleet import eventually, side_by_side
from acceptance.replica import LEASE_S, Replica
from raytide.api.constants import LEADER_LEASE
from support.faults.proxy import FaultProxy
from support.faults.script import Call, Rule
from support.faults.types import Answer, CallFault, LoseRequest

CLUSTERS, FEW, MANY = 4, 2, 10
STEADY_S = 60.0
LOST_AFTER_S = 3 * LEASE_S


async def holder(env: Env) -> str:
    """The name of the replica that holds the Lease."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEADER_LEASE}"
    spec = (await env.admin.call("GET", path))["spec"]
    return str(spec.get("holderIdentity") or "").removeprefix("uid-")


async def scale(env: Env, workers: int) -> None:
    """All clusters at once."""
    await side_by_side(env.fleet.order(name, workers) for name in env.fleet.targets)


async def lose_the_lease(env: Env, proxies: dict[str, FaultProxy], rule: Rule[Call, CallFault]) -> float:
    """The leader meets this fault until the other replica leads; returns the seconds until then."""
    leader, loop = await holder(env), asyncio.get_running_loop()
    begun_s = loop.time()
    proxies[leader].script.of_calls.append(rule)

    async def has_changed() -> bool:
        return await holder(env) not in ("", leader)

    await eventually(f"{leader} does not lead any more", has_changed, within_s=LOST_AFTER_S)
    took_s = loop.time() - begun_s
    proxies[leader].script.clear()
    return took_s


@pytest.mark.kube
@pytest.mark.timeout(300)
@pytest.mark.rule("RM:F8", "RM:I1", "RM:I10")
async def test_a_leader_that_loses_its_lease_in_the_middle_of_a_pass_writes_nothing_more(env: Env):
    accounts = {name: await env.account(f"op-{name}") for name in ("a", "b")}
    proxies = {name: await env.proxy() for name in accounts}
    replicas = [
        Replica(env, name, proxies[name].write_kubeconfig(env.folder / name, account.token))
        for name, account in accounts.items()
    ]
    await env.fleet.put(CLUSTERS, FEW)
    for replica in replicas:
        await replica.start()
    await env.fleet.steady(STEADY_S)

    await scale(env, MANY)
    lease_s = await lose_the_lease(env, proxies, Rule(Answer(503), lambda call: call.plural == "leases", times=None))
    await env.fleet.steady(STEADY_S)
    await scale(env, FEW)
    cut_off_s = await lose_the_lease(env, proxies, Rule(LoseRequest(), times=None))
    pods_s, _ = await env.fleet.steady(STEADY_S)

    for replica in replicas:
        await eventually(f"{replica.name} is up", replica.is_alive, within_s=STEADY_S)
        assert await replica.operator.stop() == 0
    history = await env.history()
    lease = f"{SYSTEM}/{LEADER_LEASE}"
    users = {account.user: f"uid-{name}" for name, account in accounts.items()}
    env.record(
        f"F8: the other replica led {lease_s:.1f} s after the leader's Lease was lost and {cut_off_s:.1f} s after it was "
        f"cut off; pods as ordered {pods_s:.1f} s later"
    )
    assert len(terms([step for step in history if step.user in users], lease)) >= 3
    assert writes_without_the_lease(history, lease=lease, users=users) == []
    assert too_many_or_too_few(history) == []
