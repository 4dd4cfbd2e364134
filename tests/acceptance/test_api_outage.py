"""S18: the API server returns 503, then watches receive no data, then the token is rotated among 429s.

The times of the scenario are divided by ten, and so is the silence after which the product gives a watch up
(RAYTIDE_STREAM_SILENCE); how soon it has to be at work again is not.
"""

import asyncio
import random
from collections.abc import Iterator

import pytest

from acceptance.audit import Doomed
from acceptance.environment import SYSTEM, Env
from acceptance.fleet import eventually, side_by_side
from acceptance.replica import Replica
from raytide.api.constants import LEADER_LEASE
from support.deadlines import PATIENCE
from support.faults.proxy import FaultProxy
from support.faults.script import Call, Rule
from support.faults.types import UNAUTHORIZED, Answer

CLUSTERS, EDITS = 200, 20
COMPRESSED = 10.0
OUTAGE_S, HOLE_S, BUSY_S = 90 / COMPRESSED, 600 / COMPRESSED, 60 / COMPRESSED
RED_S = 120 / COMPRESSED
BACK_S = 15.0


class Outage:
    """The fleet, two operators behind one proxy, and people who go on editing."""

    def __init__(self, env: Env, proxy: FaultProxy) -> None:
        self._env = env
        self._names: Iterator[str] = iter(random.Random(18).sample(sorted(env.fleet.targets), CLUSTERS))
        self.script = proxy.script
        self.hole = proxy.hole

    async def edit(self) -> None:
        """Some clusters want one worker more."""
        fleet = self._env.fleet
        names = [next(self._names) for _ in range(EDITS)]
        await side_by_side(fleet.order(name, fleet.targets[name] + 1) for name in names)

    async def is_back(self, what: str) -> float:
        """All edits are handled; returns how soon."""
        pods_s, _ = await self._env.fleet.steady(BACK_S)
        self._env.record(f"S18: at work again {pods_s:.1f} s after {what}")
        return pods_s


async def leadership(env: Env) -> tuple[str, int]:
    """The holder of the lease, and the number of its transitions."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEADER_LEASE}"
    spec = (await env.admin.call("GET", path))["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


async def until_red(replica: Replica) -> float:
    began = asyncio.get_running_loop().time()

    async def is_red() -> bool:
        return not await replica.is_alive()

    await eventually(f"/healthz of {replica.name} is red", is_red, within_s=RED_S)
    return asyncio.get_running_loop().time() - began


@pytest.mark.kube
@pytest.mark.timeout(600)
@pytest.mark.rule("SC:S18", "D9")
async def test_an_outage_of_the_api_costs_nothing_but_time(env: Env):
    proxy = await env.proxy()
    accounts = {name: await env.account(f"op-{name}") for name in ("a", "b")}
    files = {name: proxy.write_kubeconfig(env.folder / name, account.token) for name, account in accounts.items()}
    replicas = [Replica(env, name, file) for name, file in files.items()]
    await env.fleet.put(CLUSTERS, 1)
    for replica in replicas:
        await replica.start(RAYTIDE_STREAM_SILENCE=str(60 / COMPRESSED))
    await env.fleet.steady(120)
    led, outage = await leadership(env), Outage(env, proxy)

    outage.script.of_calls.append(Rule(Answer(503), times=None))
    await outage.edit()
    await asyncio.sleep(OUTAGE_S)
    outage.script.clear()
    await outage.is_back("503s")
    assert [await replica.is_alive() for replica in replicas] == [True, True]

    outage.hole.open()
    await outage.edit()
    async with asyncio.timeout(HOLE_S * PATIENCE):
        red_s = await asyncio.gather(*map(until_red, replicas))
    env.record(f"S18: /healthz red {max(red_s):.1f} s after the streams were dead")
    await asyncio.sleep(max(0.0, HOLE_S - max(red_s)))
    outage.hole.close()
    await outage.is_back("the black hole")

    tokens = {f"Bearer {account.token}" for account in accounts.values()}

    def shows_an_old_token(call: Call) -> bool:
        return call.headers.get("authorization") in tokens

    outage.script.of_calls += [
        Rule(Answer(429, retry_after_s=1), times=None, until_s=outage.script.now_s() + BUSY_S),
        Rule(UNAUTHORIZED, shows_an_old_token, times=None),
    ]
    for name, file in files.items():
        proxy.write_kubeconfig(file, (await env.account(f"op-{name}")).token)
    await outage.edit()
    await asyncio.sleep(BUSY_S)
    await outage.is_back("the 429s, with a new token")

    assert all(replica.is_running for replica in replicas), "no replica ended"
    assert await leadership(env) == led, "the leader changed without need"
    for replica in replicas:
        await eventually(f"/healthz of {replica.name} is green", replica.is_alive)
        assert await replica.operator.stop() == 0
    assert not [step for step in await env.history() if isinstance(step, Doomed)]
