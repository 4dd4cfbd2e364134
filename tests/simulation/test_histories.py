"""Any life of a RayCluster ends as wanted, and no write on the way was wrong (RM:I14, I19; SC:S11)."""

import pytest

from support import virtual_time

from simulation.history import History, Life

pytestmark = pytest.mark.looptime


def live_through(seed: int) -> History:
    """Tell one history in a loop of its own with virtual time."""

    async def live() -> History:
        return await Life(seed).tell()

    return virtual_time.run(live())


@pytest.mark.rule("RM:I1", "RM:I2", "RM:I4", "RM:I5", "RM:I7", "RM:I8", "RM:I14", "RM:I19", "D6", "D15")
def test_any_history_ends_exactly_as_wanted(request: pytest.FixtureRequest) -> None:
    histories = request.config.getoption("--histories")
    first = request.config.getoption("--first-history")
    for seed in range(first, first + histories):
        history = live_through(seed)
        assert not history.violations, history.report()
