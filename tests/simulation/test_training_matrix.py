"""Whatever goes wrong once, a life of jobs ends in the sizes that fairness gives (RM §2.3 S13, F1–F7, F11, F14; RM:I25)."""

import pytest

from raytide.sandbox.faults import FORBIDDEN

from simulation.matrix import inject, learn, points_of
from simulation.scenarios import Scenario
from simulation.test_matrix import tell
from simulation.training_scenarios import TRAINING

SHARE_OF_POINTS = 6
"""Two rooms have more to say than one; `make simulation` tells more points."""


@pytest.mark.rule(
    "RM:I25", "RM:I3", "RM:I5", "RM:I7", "RM:I8", "RM:I9", "RM:I13", "RM:I14", "RM:I16", "RM:I18", "RM:I19"
)
@pytest.mark.parametrize("scenario", TRAINING, ids=lambda scenario: scenario.name)
def test_jobs_end_in_the_same_sizes_whatever_goes_wrong_once(
    scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    """A sample of the points, the same in every run."""
    tell(scenario, request.config.getoption("--points") // SHARE_OF_POINTS)


@pytest.mark.rule("RM:I14", "RM:I25")
@pytest.mark.parametrize("name", ["impossible-job", "gang-reclaims"])
def test_jobs_live_through_rights_that_are_withdrawn(name: str) -> None:
    """Found by the whole matrix (points 400 and 402 of the one, 858 of the other): nobody knew of any room for 20 s."""
    scenario = next(each for each in TRAINING if each.name == name)
    reference = learn(scenario)
    withdrawn = [point for point in points_of(reference) if point.matrix == "F14" and point.fault == FORBIDDEN]
    assert len(withdrawn) == 3
    assert [found for point in withdrawn for found in inject(scenario, reference, point).violations] == []
