"""Operator and autoscaler while every n-th write fails (SC:S7), and 100 workers by demand (RM §2.3)."""

from collections.abc import Iterator

import pytest

from raytide_sandbox.apiserver.store import Change
from support import virtual_time
from support.faults.script import Call, Rule
from support.faults.types import Answer, CallFault, Kill, LoseAnswer

from simulation.autoscaled_environment import AutoscaledEnvironment
from simulation.demand_scenarios import LARGE_BY_DEMAND, autoscaled, demanded
from simulation.environment import log_errors_as_violations
from simulation.fault_matrix import KUBELETS, run_without_fault
from simulation.manifests import NAME
from simulation.scenarios import Scenario, workers

pytestmark = pytest.mark.looptime

MAX_WORKERS = 40
STEPS = (42, 10, 40)
WITHIN_S = 60.0
FAULTS: tuple[CallFault, ...] = (Answer(503), Answer(409), LoseAnswer(), Kill(), Kill(is_after=True))


def run_launch(seed: int) -> list[str]:
    """One cluster with a fault at every n-th write of its autoscaler; returns the violations."""

    async def run() -> list[str]:
        env = AutoscaledEnvironment(seed, kubelets=KUBELETS)
        with log_errors_as_violations(env.checks):
            env.open()
            await autoscaled(env, demanded("a", MAX_WORKERS))
            env.kube.store.subscribe(lambda change: _count(env, change), "pods")
            env.script.of_calls.extend(_fault_rules(env))
            for tasks in STEPS:
                await _follow(env, tasks)
            await env.close()
        assert env.script.met, "no fault was injected"
        return env.checks.violations

    return virtual_time.run(run())


def _fault_rules(env: AutoscaledEnvironment) -> Iterator[Rule[Call, CallFault]]:
    """A fault at every second to fourth write, drawn each time."""
    every, writes = env.rng.randint(2, 4), [0]

    def matches(call: Call) -> bool:
        if call.method != "PATCH" or call.plural != "rayclusters" or call.subresource:
            return False
        writes[0] += 1
        return writes[0] % every == 0

    class _RandomFault(Rule[Call, CallFault]):
        """A rule whose fault is drawn at each match."""

        def meets(self, subject: Call, now_s: float) -> bool:
            self.fault = env.rng.choice(FAULTS)
            return super().meets(subject, now_s)

    yield _RandomFault(FAULTS[0], matches, times=None)


def _count(env: AutoscaledEnvironment, change: Change) -> None:
    if change.type == "ADDED" and len(workers(env, "a")) > MAX_WORKERS:
        env.checks.add_violation(f"{len(workers(env, 'a'))} workers, at most {MAX_WORKERS} are allowed")


async def _follow(env: AutoscaledEnvironment, tasks: int) -> None:
    """Check the number of workers within a minute, and the desired state a minute later."""
    env.ray.set_tasks(tasks)
    asked_s = env.loop.time()
    while len(workers(env, "a")) != min(tasks, MAX_WORKERS) and not env.checks.limit_reached.is_set():
        if env.loop.time() > asked_s + WITHIN_S:
            env.checks.add_violation(f"{len(workers(env, 'a'))} workers after {WITHIN_S:.0f} s for {tasks} tasks")
            break
        await env.pass_time(0.5)
    await env.pass_time(WITHIN_S)
    if found := env.difference():
        env.checks.add_violation(f"a minute later: {found}")


@pytest.mark.rule("SC:S7", "RM:I1", "RM:I21", "RM:I22", "RM:I23", "RM:I24")
def test_workers_follow_the_demand_when_every_nth_write_of_the_autoscaler_fails(
    request: pytest.FixtureRequest,
) -> None:
    """A tenth of `--histories` seeds; `make simulation` runs a hundred."""
    seeds = range(request.config.getoption("--histories") // 10)
    red = {seed: found for seed in seeds if (found := run_launch(seed))}
    assert red == {}, "\n--- violations\n" + "\n".join(f"seed {seed}: {found}" for seed, found in red.items())


@pytest.mark.rule("RM:I1", "RM:I15", "RM:I22")
@pytest.mark.parametrize("scenario", LARGE_BY_DEMAND, ids=lambda scenario: scenario.name)
def test_scale_up_to_and_down_from_100_workers_by_demand(scenario: Scenario) -> None:
    result = run_without_fault(scenario)
    assert result.violations == []
    assert result.counts["created"][f"{NAME}/a"] == 100
