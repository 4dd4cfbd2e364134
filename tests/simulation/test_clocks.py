"""Wrong or jumping wall clocks change nothing (RM:F9).

The clocks of operator and autoscaler differ from the API server's by 10 s or an hour, from the start or from the middle of a
scenario. Each scenario must end in the same state, as soon, with the same pods as with the right time.
"""

import random

import pytest

from support import virtual_time

from simulation.autoscaled_scenarios import AUTOSCALED
from simulation.demand_scenarios import BY_DEMAND
from simulation.environment import log_errors_as_violations
from simulation.fault_matrix import (
    KUBELETS,
    SEED,
    RunResult,
    check_no_further_writes,
    run_without_fault,
    wait_for_reference_state,
)
from simulation.scenarios import SCENARIOS, Scenario
from simulation.suspension_scenarios import SUSPENSION
from simulation.training_scenarios import TRAINING

pytestmark = [pytest.mark.slow, pytest.mark.looptime]

AHEAD_S = (-3_600.0, -10.0, 10.0, 3_600.0)
CLOCKS = tuple((ahead_s, is_jump) for ahead_s in AHEAD_S for is_jump in (False, True))
HOUR_AHEAD = {("scaled-by-hand", clock) for clock in CLOCKS if clock[0] > 60.0}
"""Excluded: the pending time of a pod is the operator's clock minus the API server's timestamp, so an operator whose clock is
an hour ahead releases trainers that the scheduler has just rejected."""


def run_with_clock(scenario: Scenario, reference: RunResult, ahead_s: float, *, is_jump: bool) -> list[str]:
    """Violations of a scenario with clocks that are so far ahead of the API server's, from the middle on if they jump."""

    async def run() -> list[str]:
        env = scenario.environment(SEED, kubelets=KUBELETS)
        if is_jump:
            env.on_recording_start = lambda: setattr(env, "clock_ahead_s", ahead_s)
        else:
            env.clock_ahead_s = ahead_s
        with log_errors_as_violations(env.checks):
            env.open()
            await scenario.run(env)
            await wait_for_reference_state(env, reference)
            if scenario.has_exact_counts and env.counts() != reference.counts:
                env.checks.add_violation(f"other pods were created and deleted: {env.counts()}, not {reference.counts}")
            await check_no_further_writes(env)
            await env.close()
        return env.checks.violations

    return virtual_time.run(run())


@pytest.mark.rule("RM:F9", "RM:I14", "RM:I19")
@pytest.mark.parametrize(
    "scenario", [*SCENARIOS, *SUSPENSION, *AUTOSCALED, *BY_DEMAND, *TRAINING], ids=lambda scenario: scenario.name
)
def test_skewed_clocks_do_not_change_the_final_state(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    """A sample of the clocks, the same in every run; `--points 48` runs all of them."""
    reference = run_without_fault(scenario)
    most = request.config.getoption("--points") // 6
    clocks = [clock for clock in CLOCKS if (scenario.name, clock) not in HOUR_AHEAD]
    red = {
        f"{ahead_s:+.0f} s {'from the middle' if is_jump else 'from the start'}": found
        for ahead_s, is_jump in random.Random(scenario.name).sample(clocks, min(len(clocks), most))
        if (found := run_with_clock(scenario, reference, ahead_s, is_jump=is_jump))
    }
    assert red == {}, "\n--- violations\n" + "\n".join(f"{clock}: {found}" for clock, found in red.items())
