"""Whatever goes wrong once, a life of jobs ends in the sizes that fairness gives (RM §2.3 S13, F1–F7, F11, F14; RM:I25)."""

import pytest

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
