"""Any life of jobs that share a cluster ends as wanted, and no write on the way was wrong (RM F15; RM:I25)."""

from collections.abc import Collection

import pytest

from support import virtual_time

from simulation.training_history import JobHistory, JobLife

pytestmark = pytest.mark.looptime

SHARE_OF_HISTORIES = 8


def live_through(seed: int, only: Collection[int] | None = None) -> JobHistory:
    """Tell one history in a loop of its own with virtual time."""

    async def live() -> JobHistory:
        return await JobLife(seed, only).tell()

    return virtual_time.run(live())


def shortest(seed: int) -> JobHistory:
    """A red history with as few events as it takes: those are left out, one after the other, without which it stays red."""
    history = live_through(seed)
    needed = set(range(64))
    for number in range(64):
        tried = live_through(seed, needed - {number})
        needed -= {number} if tried.violations else set()
        history = tried if tried.violations else history
    return history


@pytest.mark.rule("RM:I25", "RM:I5", "RM:I7", "RM:I14", "RM:I19")
def test_any_history_of_jobs_ends_exactly_as_wanted(request: pytest.FixtureRequest) -> None:
    histories = request.config.getoption("--histories") // SHARE_OF_HISTORIES
    first = request.config.getoption("--first-history")
    for seed in range(first, first + histories):
        if live_through(seed).violations:
            pytest.fail(shortest(seed).report())
