"""Each random history of TrainingJobs ends in the desired state without a violation (RM F15; RM:I25)."""

from collections.abc import Collection

import pytest

from support import virtual_time

from simulation.training_history import JobHistory, JobHistoryRunner

pytestmark = pytest.mark.looptime

SHARE_OF_HISTORIES = 8


def run_history(seed: int, only: Collection[int] | None = None) -> JobHistory:
    """Run one history in a new event loop with virtual time."""

    async def run() -> JobHistory:
        return await JobHistoryRunner(seed, only).run()

    return virtual_time.run(run())


def minimize(seed: int) -> JobHistory:
    """Shorten a failing history: leave out each event without which it still fails."""
    history = run_history(seed)
    needed = set(range(64))
    for number in range(64):
        shorter = run_history(seed, needed - {number})
        needed -= {number} if shorter.violations else set()
        history = shorter if shorter.violations else history
    return history


@pytest.mark.rule("RM:I25", "RM:I5", "RM:I7", "RM:I14", "RM:I19")
def test_each_random_history_of_jobs_ends_in_the_desired_state(request: pytest.FixtureRequest) -> None:
    histories = request.config.getoption("--histories") // SHARE_OF_HISTORIES
    first = request.config.getoption("--first-history")
    for seed in range(first, first + histories):
        if run_history(seed).violations:
            pytest.fail(minimize(seed).report())
