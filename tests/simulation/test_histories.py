"""Each random history of a RayCluster ends in the desired state without a violation (RM:I14, I19; SC:S11)."""

import pytest

from support import virtual_time

from simulation.history import History, HistoryRunner

pytestmark = pytest.mark.looptime


def run_history(seed: int) -> History:
    """Run one history in a new event loop with virtual time."""

    async def run() -> History:
        return await HistoryRunner(seed).run()

    return virtual_time.run(run())


@pytest.mark.rule("RM:I1", "RM:I2", "RM:I4", "RM:I5", "RM:I7", "RM:I8", "RM:I14", "RM:I19", "D6", "D15")
def test_each_random_history_ends_in_the_desired_state(request: pytest.FixtureRequest) -> None:
    histories = request.config.getoption("--histories")
    first = request.config.getoption("--first-history")
    for seed in range(first, first + histories):
        history = run_history(seed)
        assert not history.violations, history.report()
