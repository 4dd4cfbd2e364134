"""One fault does not change the final sizes of TrainingJobs (RM §2.3 S13, F1–F7, F11, F14; RM:I25)."""

from collections.abc import Callable

import pytest

from support.faults.types import FORBIDDEN, Answer, LoseAnswer, LoseRequest

from simulation.fault_matrix import Point, fault_points, run_with_fault, run_without_fault
from simulation.scenarios import Scenario
from simulation.test_fault_matrix import check_points
from simulation.training_scenarios import TRAINING

pytestmark = [pytest.mark.slow, pytest.mark.looptime]

SHARE_OF_POINTS = 6
"""Smaller samples, because two controllers take longer; `make simulation` runs more points."""


@pytest.mark.rule(
    "RM:I25", "RM:I3", "RM:I5", "RM:I7", "RM:I8", "RM:I9", "RM:I13", "RM:I14", "RM:I16", "RM:I18", "RM:I19"
)
@pytest.mark.parametrize("scenario", TRAINING, ids=lambda scenario: scenario.name)
def test_one_fault_does_not_change_the_final_sizes_of_jobs(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    """A sample of the points, the same in every run."""
    check_points(scenario, request.config.getoption("--points") // SHARE_OF_POINTS)


@pytest.mark.rule("RM:I14", "RM:I25")
@pytest.mark.parametrize("name", ["impossible-job", "gang-reclaims"])
def test_jobs_recover_from_revoked_permissions(name: str) -> None:
    """Found by the whole matrix (points 400 and 402 of the one, 858 of the other): capacity was unknown for 20 s."""
    assert check_matching_points(name, lambda point: point.matrix_row == "F14" and point.fault == FORBIDDEN) == 3


@pytest.mark.rule("RM:I25")
def test_no_surplus_trainer_when_a_delete_is_rejected() -> None:
    """Found by a history (seed 12): a replacement was created before the delete of the trainer it replaces."""
    rejected = (Answer(500), Answer(503), LoseRequest())
    assert (
        check_matching_points(
            "shrunk-without-zero", lambda point: "DELETE" in point.description and point.fault in rejected
        )
        == 6
    )


@pytest.mark.rule("RM:I25")
def test_a_job_grows_after_a_response_to_its_first_reads_and_writes_was_lost() -> None:
    """The final sizes were compared while the master was about to be scheduled (points 91 and 126 of the fault matrix)."""
    assert check_matching_points("job-grows-alone", lambda point: point.number in range(6, 12) and is_lost(point)) == 12


def is_lost(point: Point) -> bool:
    return point.matrix_row == "F3" and point.fault in (LoseRequest(), LoseAnswer())


def check_matching_points(name: str, is_selected: Callable[[Point], bool]) -> int:
    """Check the selected points of one scenario; returns their number."""
    scenario = next(each for each in TRAINING if each.name == name)
    reference = run_without_fault(scenario)
    results = {
        str(point): run_with_fault(scenario, reference, point).violations
        for point in fault_points(reference)
        if is_selected(point)
    }
    red = {point: found for point, found in results.items() if found}
    assert red == {}, "\n--- violations\n" + "\n".join(f"{point}: {found}" for point, found in red.items())
    return len(results)
