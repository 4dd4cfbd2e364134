"""Operator and autoscaler together where every n-th write fails (SC:S7), and a hundred workers by demand (RM §2.3)."""

from collections.abc import Iterator

import pytest

from raytide_sandbox.apiserver.store import Change
from raytide_sandbox.faults.script import Call, Rule
from raytide_sandbox.faults.types import Answer, CallFault, Kill, LoseAnswer
from support import virtual_time

from simulation.autoscaled_stage import AutoscaledStage
from simulation.demand_scenarios import LARGE_BY_DEMAND, autoscaled, demanded
from simulation.manifests import NAME
from simulation.matrix import KUBELETS, learn
from simulation.scenarios import Scenario, workers
from simulation.stage import heard_by

pytestmark = pytest.mark.looptime

MOST = 40
STEPS = (42, 10, 40)
WITHIN_S = 60.0
TROUBLES: tuple[CallFault, ...] = (Answer(503), Answer(409), LoseAnswer(), Kill(), Kill(is_after=True))


def live_through(seed: int) -> list[str]:
    """One cluster whose autoscaler's every n-th write meets something; gives what was wrong."""

    async def play() -> list[str]:
        stage = AutoscaledStage(seed, kubelets=KUBELETS)
        with heard_by(stage.judge):
            stage.open()
            await autoscaled(stage, demanded("a", MOST))
            stage.world.store.subscribe(lambda change: _count(stage, change), "pods")
            stage.script.of_calls.extend(_troubles(stage))
            for tasks in STEPS:
                await _follow(stage, tasks)
            await stage.close()
        assert stage.script.met, "nothing went wrong"
        return stage.judge.violations

    return virtual_time.run(play())


def _troubles(stage: AutoscaledStage) -> Iterator[Rule[Call, CallFault]]:
    """Every second to fourth write, each time something else."""
    every, writes = stage.rng.randint(2, 4), [0]

    def is_hit(call: Call) -> bool:
        if call.method != "PATCH" or call.plural != "rayclusters" or call.subresource:
            return False
        writes[0] += 1
        return writes[0] % every == 0

    class _Any(Rule[Call, CallFault]):
        """Drawn afresh each time."""

        def meets(self, subject: Call, now_s: float) -> bool:
            self.fault = stage.rng.choice(TROUBLES)
            return super().meets(subject, now_s)

    yield _Any(TROUBLES[0], is_hit, times=None)


def _count(stage: AutoscaledStage, change: Change) -> None:
    if change.type == "ADDED" and len(workers(stage, "a")) > MOST:
        stage.judge.note(f"{len(workers(stage, 'a'))} workers, at most {MOST} may live")


async def _follow(stage: AutoscaledStage, tasks: int) -> None:
    """The workers follow within a minute, and a minute later nothing is shown as launching."""
    stage.ray.ask(tasks)
    asked_s = stage.loop.time()
    while len(workers(stage, "a")) != min(tasks, MOST) and not stage.judge.has_enough.is_set():
        if stage.loop.time() > asked_s + WITHIN_S:
            stage.judge.note(f"{len(workers(stage, 'a'))} workers after {WITHIN_S:.0f} s for {tasks} tasks")
            break
        await stage.pass_time(0.5)
    await stage.pass_time(WITHIN_S)
    if found := stage.difference():
        stage.judge.note(f"a minute later: {found}")


@pytest.mark.rule("SC:S7", "RM:I1", "RM:I21", "RM:I22", "RM:I23", "RM:I24")
def test_workers_follow_the_demand_although_every_nth_write_of_the_autoscaler_fails(
    request: pytest.FixtureRequest,
) -> None:
    """As many seeds as histories, but a fifth; a hundred are lived through by `make simulation`."""
    seeds = range(request.config.getoption("--histories") // 10)
    red = {seed: found for seed in seeds if (found := live_through(seed))}
    assert red == {}, "\n--- violations\n" + "\n".join(f"seed {seed}: {found}" for seed, found in red.items())


@pytest.mark.rule("RM:I1", "RM:I15", "RM:I22")
@pytest.mark.parametrize("scenario", LARGE_BY_DEMAND, ids=lambda scenario: scenario.name)
def test_a_hundred_workers_come_and_go_by_demand(scenario: Scenario) -> None:
    told = learn(scenario)
    assert told.violations == []
    assert told.counts["born"][f"{NAME}/a"] == 100
