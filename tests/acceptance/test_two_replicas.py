"""Two operators, killed and frozen at random: one writer at a time, no pod too many; checked with the audit log."""

import asyncio
import random
from collections import Counter

import pytest

from acceptance.audit import Wrote
from acceptance.checks import longest_without_a_leader_s, terms, too_many_or_too_few, writes_without_the_lease
from acceptance.environment import SYSTEM, Env
from acceptance.fleet import eventually
from acceptance.replica import LEASE_S, Replica
from raytide.api.constants import LEADER_LEASE

CLUSTERS, WORKERS = 10, 10
CHAOS_S = 60.0
LONGEST_AWAY_S = 2.5 * LEASE_S
STEADY_S = 60.0


async def torment(replica: Replica, random_: random.Random, done: Counter[str], until_s: float) -> None:
    """Kill it, or freeze it, for longer than the lease lasts or shorter."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        await asyncio.sleep(random_.uniform(0.5, LEASE_S))
        away_s = random_.choice([random_.uniform(0.2, LEASE_S), random_.uniform(1.2 * LEASE_S, LONGEST_AWAY_S)])
        if random_.random() < 0.5:
            await replica.operator.kill()
            await asyncio.sleep(random_.choice([0.0, away_s]))
            await replica.start()
            done["kills"] += 1
        else:
            async with replica.frozen():
                await asyncio.sleep(away_s)
            done["freezes"] += 1


async def step_down(env: Env, replica: Replica) -> None:
    """Freeze it until another replica holds the lease: otherwise one replica may happen to lead all the time."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEADER_LEASE}"

    async def other_replica_leads() -> bool:
        spec = (await env.admin.call("GET", path))["spec"]
        return spec.get("holderIdentity") not in {"", None, f"uid-{replica.name}"}

    async with replica.frozen():
        await eventually(f"a replica other than {replica.name} leads", other_replica_leads)


@pytest.mark.kube
@pytest.mark.timeout(600)
@pytest.mark.rule("RM:I10", "RM:I1")
async def test_one_writer_at_a_time_whatever_happens_to_two(env: Env):
    random_, done = random.Random(3), Counter[str]()
    accounts = {name: await env.account(f"op-{name}") for name in ("a", "b")}
    replicas = [Replica(env, name, env.direct_kubeconfig(account)) for name, account in accounts.items()]
    await env.fleet.put(CLUSTERS, WORKERS)
    for replica in replicas:
        await replica.start()
    await env.fleet.steady(STEADY_S)

    until_s = asyncio.get_running_loop().time() + CHAOS_S

    async def give_orders() -> None:
        while asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(random_.uniform(0.1, 0.5))
            await env.fleet.order_at_random(random_, WORKERS)

    await asyncio.gather(give_orders(), *(torment(replica, random_, done, until_s) for replica in replicas))
    for replica in replicas:
        await step_down(env, replica)
    pods_s, _ = await env.fleet.steady(STEADY_S)
    for replica in replicas:
        await eventually(f"{replica.name} is up", replica.is_alive)
        assert await replica.operator.stop() == 0

    history = await env.history()
    lease = f"{SYSTEM}/{LEADER_LEASE}"
    users = {account.user: f"uid-{name}" for name, account in accounts.items()}
    began_s = min(step.answered_s for step in history if step.namespace == env.namespace)
    checked = [step for step in history if step.user in users and step.answered_s >= began_s]
    env.record(
        f"two replicas: {len(checked)} writes judged ({sum(isinstance(step, Wrote) for step in checked)} of them statuses "
        f"and services), {done['kills']} kills, {done['freezes']} freezes, {len(terms(checked, lease))} terms, longest "
        f"without a leader {longest_without_a_leader_s(checked, lease):.1f} s, steady {pods_s:.1f} s after the last"
    )
    assert {step.user for step in checked} == set(users), "both have led"
    assert len(terms(checked, lease)) > 2, "the lease has changed hands"
    assert writes_without_the_lease(history, lease=lease, users=users) == []
    assert too_many_or_too_few(history) == []
