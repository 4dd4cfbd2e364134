"""Random days in a cloud (cloud_day.py): three in each run, or as many as `--cloud-days` says."""

import random

import pytest

from simulation.cloud_day import run_day

pytestmark = [pytest.mark.slow, pytest.mark.looptime]


@pytest.mark.timeout(3600)
@pytest.mark.rule("FD:AS-A1", "FD:AS-A2", "FD:AS-A3", "FD:AS-A6", "FD:AS-A8")
def test_no_day_has_duplicate_pods_deleted_healthy_workers_or_overdue_demand(
    request: pytest.FixtureRequest,
) -> None:
    """The seeds are drawn in each run and printed; `--cloud-seed` repeats them."""
    first = request.config.getoption("--cloud-seed")
    first = random.SystemRandom().randrange(10**6) if first is None else first
    count = request.config.getoption("--cloud-days")
    request.config.get_terminal_writer().line(f"seeds {first} to {first + count - 1}: --cloud-seed {first}")
    red = {seed: found for seed in range(first, first + count) if (found := run_day(seed))}
    assert red == {}, "\n".join(f"--cloud-seed {seed}: {found}" for seed, found in red.items())
