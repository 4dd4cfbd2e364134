"""One fault does not change the final state of a scenario (RM §2.3, F1–F7 and F14; RM:I14)."""

import random
from collections import Counter

import pytest

from simulation.autoscaled_scenarios import AUTOSCALED
from simulation.concurrent_writers import CONCURRENT_WRITERS
from simulation.demand_scenarios import BY_DEMAND
from simulation.fault_matrix import Point, fault_points, run_with_fault, run_without_fault
from simulation.multi_host_scenarios import MULTI_HOST
from simulation.scenarios import SCENARIOS, Scenario
from simulation.suspension_scenarios import SUSPENSION

pytestmark = [pytest.mark.slow, pytest.mark.looptime]

RULES = (
    "RM:I1",
    "RM:I2",
    "RM:I3",
    "RM:I4",
    "RM:I5",
    "RM:I6",
    "RM:I7",
    "RM:I8",
    "RM:I9",
    "RM:I13",
    "RM:I14",
    "RM:I15",
    "RM:I16",
    "RM:I19",
    "D19",
    "FD:RC-B1",
    "FD:RC-B4",
)


@pytest.mark.rule(*RULES)
@pytest.mark.parametrize(
    "scenario", [*SCENARIOS, *SUSPENSION, *MULTI_HOST, *AUTOSCALED], ids=lambda scenario: scenario.name
)
def test_one_fault_does_not_change_the_final_state(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    """A sample of the points, the same in every run; `make simulation` runs more of them."""
    check_points(scenario, request.config.getoption("--points"))


@pytest.mark.rule(*RULES, "RM:I21", "RM:I22", "RM:I23", "RM:I24")
@pytest.mark.parametrize("scenario", BY_DEMAND, ids=lambda scenario: scenario.name)
def test_one_fault_does_not_keep_a_cluster_from_following_its_demand(
    scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    """Operator and autoscaler together; a smaller sample, because each run takes longer."""
    check_points(scenario, request.config.getoption("--points") // 3)


def check_points(scenario: Scenario, most: int) -> None:
    """Run the scenario without a fault, and with one at each of so many points."""
    reference = run_without_fault(scenario)
    assert reference.violations == [], "\n--- violations\nwithout any fault: " + "\n".join(reference.violations)
    points = list(fault_points(reference))
    sample = random.Random(scenario.name).sample(points, min(len(points), most))
    red = {
        str(point): result.violations
        for point in sample
        if (result := run_with_fault(scenario, reference, point)).violations
    }
    assert red == {}, "\n--- violations\n" + "\n".join(f"{point}: {found}" for point, found in red.items())


@pytest.mark.rule(*RULES, "RM:F12")
@pytest.mark.parametrize("scenario", CONCURRENT_WRITERS, ids=lambda scenario: scenario.name)
def test_one_fault_during_concurrent_edits_does_not_change_the_final_state(
    scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    """Concurrent writers edit the cluster while a fault is injected."""
    check_points(scenario, request.config.getoption("--points"))


def test_each_fault_is_injected_at_each_call_and_watch_line_of_a_scenario() -> None:
    """The enumeration is complete: the counts follow from the calls and events of the reference."""
    reference = run_without_fault(next(scenario for scenario in SCENARIOS if scenario.name == "create"))
    calls, lines = len(reference.calls), len(reference.lines)
    writes = sum(call.is_write and call.plural != "events" for call in reference.calls)
    reads = sum(call.plural == "rayclusters" and call.method == "GET" for call in reference.calls)
    found = Counter(point.matrix_row for point in fault_points(reference))
    assert found["F1"] == 2 * writes
    assert found["F2"] == 6 * calls
    assert found["F3"] == 3 * calls
    assert found["F4"] == 4 * lines
    assert found["F5"] == 9 * 5
    assert found["F7"] == writes + reads
    assert writes >= 6
    assert lines >= 10


def test_a_point_is_printed_with_its_fault_and_call() -> None:
    reference = run_without_fault(next(scenario for scenario in SCENARIOS if scenario.name == "create"))
    first: Point = next(fault_points(reference))
    assert str(first).startswith("F1 Kill(is_after=False) at ")
    assert "POST /api/v1/namespaces/default/" in str(first)
