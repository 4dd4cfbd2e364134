"""The scheduler decides as that of Ray 2.60, defects included: 500 random requests, every field of the reply."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(300)  # it only computes: 8 s on an idle machine, over 120 s on one that is busy
@pytest.mark.rule("AS:S-2", "AS:S-7", "AS:S-8", "AS:S-9", "AS:S-11", "AS:S-12", "AS:S-14", "AS:S-20", "AS:S-30")
def test_five_hundred_random_requests_have_the_replies_of_ray():
    run = subprocess.run(
        [sys.executable, "-m", "oracle.compare", "--seed", "260", "--cases", "500"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    assert "500 cases, 0 differences" in run.stdout
