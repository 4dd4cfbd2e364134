"""S7: under faults of the autoscaler's writes there are as many workers as demanded, and never one too many."""

import asyncio
import random

import pytest

from acceptance.checks import most_at_once
from acceptance.environment import Env
from acceptance.fleet import eventually
from acceptance.scaled import Scaled, scene
from support.builders import group
from support.faults.script import Call, Rule
from support.faults.types import Answer, CallFault, Kill, LoseAnswer

SEEDS = (1, 2, 3)
"""A hundred seeds of the same pass in virtual time in tests/simulation."""
MOST = 40
DEMANDS = (42, 10, 40)
WITHIN_S = 60.0
FAULTS: tuple[CallFault, ...] = (Answer(503), Answer(409), LoseAnswer(), Kill(), Kill(is_after=True))


class EveryOther:
    """Which write of the autoscaler meets which fault: every one or every other one."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._left = 1
        self._kinds: list[CallFault] = []
        self._by_number: dict[int, CallFault | None] = {}

    def rules(self) -> list[Rule[Call, CallFault]]:
        """For a fault script."""
        return [
            Rule(fault, lambda call, fault=fault: call.is_write and self._fault(call.number) is fault, times=None)
            for fault in FAULTS
        ]

    def _fault(self, number: int) -> CallFault | None:
        if number not in self._by_number:
            self._left -= 1
            self._by_number[number] = None if self._left else self._next()
        return self._by_number[number]

    def _next(self) -> CallFault:
        self._left = self._random.randint(1, 2)
        if not self._kinds:
            self._kinds = self._random.sample(FAULTS, len(FAULTS))
        return self._kinds.pop()


async def all_work_and_nothing_is_launching(scaled: Scaled, tasks: int, within_s: float) -> None:
    """What `ray status` shows."""

    async def is_so() -> bool:
        kept = scaled.ray.world.kept
        is_quiet = kept is not None and not kept.pending_instance_requests and not kept.pending_instances
        return is_quiet and scaled.ray.running == tasks

    await eventually("all work, and no instance is shown as launching", is_so, within_s=within_s)


@pytest.mark.rule("SC:S7")
@pytest.mark.kube
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
async def test_launches_under_faults(env: Env, seed: int):
    scaled = await scene(env, group(replicas=0, high=MOST))
    scaled.sidecar.script.of_calls += EveryOther(random.Random(seed)).rules()
    took = []
    for demand in DEMANDS:
        began = asyncio.get_running_loop().time()
        took.append(await scaled.ask_for(demand, min(demand, MOST), within_s=WITHIN_S))
        await all_work_and_nothing_is_launching(scaled, min(demand, MOST), WITHIN_S)
        scaled.env.record(
            f"S7: seed {seed}: settled for {demand} after {asyncio.get_running_loop().time() - began:.1f} s"
        )
    history = await env.history()
    met = [words.partition(" at ")[0] for words in scaled.sidecar.script.met]
    most = most_at_once(history, "cpu")
    env.record(
        f"S7: seed {seed}: {', '.join(f'{s:.1f}' for s in took)} s, at most {most} pods, {len(met)} faults, {scaled.sidecar.kills} kills"
    )
    assert most == MOST
    assert len(met) >= 2, "it was spared"
