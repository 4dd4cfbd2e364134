"""S11: exactly the desired number of pods despite kills and delayed watches; checked with the audit log."""

import asyncio
import random
from contextlib import suppress
from itertools import count

import pytest

from acceptance.checks import alive_at_the_end, too_many_or_too_few
from acceptance.environment import Env
from integration.embedded_cluster import Operator, until
from support.faults.proxy import FaultProxy
from support.faults.script import Call, Rule
from support.faults.types import Kill

CLUSTERS, WORKERS = 50, 20
KILLS = 30
LONGEST_LAG_S = 10.0
LONGEST_LIFE_S = 6.0
"""An operator that has nothing to write is killed all the same, so long after it has begun to work."""
STEADY_S = 30.0
START_S = 30.0


def writes_pods(call: Call) -> bool:
    return call.is_write and call.plural == "pods"


class Killer:
    """Kills operators at random writes of pods: right before one, or after it and before its answer."""

    def __init__(self, env: Env, random_: random.Random) -> None:
        self._env = env
        self._random = random_
        self._victim: Operator | None = None
        self.proxy: FaultProxy
        self.kills = 0

    async def begin(self) -> None:
        self.proxy = await self._env.proxy(lag_s=lambda: self._env.lag_s, on_kill=self._kill)
        account = await self._env.account("op")
        self.kubeconfig = self.proxy.write_kubeconfig(self._env.folder / "op.kubeconfig", account.token)

    def _kill(self, _agent: str) -> None:
        if self._victim is not None and self._victim.process is not None:
            self._victim.process.kill()

    async def let_live_a_while(self) -> None:
        """Until the n-th write of a pod."""
        rule = Rule(Kill(is_after=self._random.random() < 0.5), writes_pods, skip=self._random.randint(0, 3 * CLUSTERS))
        self.proxy.script.of_calls[:] = [rule]
        victim = self._victim = await self._env.operator(self.kubeconfig)
        process = victim.process
        assert process is not None
        await until(
            "it works or is dead",
            lambda: "starting to reconcile" in victim.log or process.returncode,
            within_s=START_S,
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), LONGEST_LIFE_S)
        if process.returncode is None:
            await victim.kill()
        assert process.returncode == -9, victim.log
        self.proxy.script.clear()
        self.kills += 1


@pytest.mark.kube
@pytest.mark.timeout(600)
async def test_exactly_n(env: Env):
    random_ = random.Random(11)
    killer = Killer(env, random_)
    await killer.begin()
    await env.fleet.put(CLUSTERS, WORKERS)

    async def lag() -> None:
        while True:
            env.lag_s = random_.uniform(0, LONGEST_LAG_S)
            await asyncio.sleep(0.5)

    async def give_orders() -> None:
        for number in count():
            if killer.kills >= KILLS:
                return  # between two orders: one cut short might never have been heard
            await asyncio.sleep(random_.uniform(0.1, 0.6))
            if number > CLUSTERS // 2:  # let it grow a little first
                await env.fleet.order_at_random(random_, WORKERS)

    env.run(lag())
    orders = env.run(give_orders())
    while killer.kills < KILLS:
        await killer.let_live_a_while()
    await orders
    operator = await env.operator(killer.kubeconfig)
    pods_s, reported_s = await env.fleet.steady(STEADY_S)
    assert await operator.stop() == 0

    history = await env.history()
    env.record(
        f"S11: {len(history)} writes judged, {KILLS} kills, {len(env.pods.by_name)} pods at the end, "
        f"as ordered {pods_s:.1f} s and told {reported_s:.1f} s after the last start"
    )
    left = {key[0].partition("/")[2]: count for key, count in alive_at_the_end(history).items() if key[1] == "cpu"}
    assert left == {name: count for name, count in env.fleet.targets.items() if count}, "the log is complete"
    assert too_many_or_too_few(history) == []
