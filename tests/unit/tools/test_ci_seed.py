"""Random seeds of a CI run come from the commit, are printed, and can be repeated."""

import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "levels"
COMMIT = "0123456789abcdef0123456789abcdef01234567"  # pragma: allowlist secret - made up, a commit


def seed_of(head: str, **environment: str) -> str:
    """What the lines of `.ci/levels` about the seed print where `git rev-parse HEAD` answers `head`; empty: it fails."""
    lines = re.search(r"^commit=.*?^echo .*?$", SCRIPT.read_text(), re.DOTALL | re.MULTILINE)
    assert lines
    git = f"git() {{ echo {head}; }}" if head else "git() { return 128; }"
    script = f"set -euo pipefail\n{git}\n{lines[0]}\nprintenv RAYTIDE_SEED\n"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    printed, exported = done.stdout.split("\n")[:2]
    assert printed == f"=== seed {exported}"
    return exported


@pytest.mark.rule("FD:REL-1")
def test_the_seed_is_the_first_seven_digits_of_the_commit():
    assert seed_of(COMMIT, PATH="/usr/bin:/bin") == str(0x0123456)


@pytest.mark.rule("FD:REL-1")
def test_a_seed_that_is_given_repeats_a_run():
    assert seed_of(COMMIT, PATH="/usr/bin:/bin", RAYTIDE_SEED="5") == "5"


@pytest.mark.rule("FD:REL-1")
def test_a_tree_without_history_has_a_seed():
    assert seed_of("", PATH="/usr/bin:/bin") == "0"


@pytest.mark.rule("FD:REL-1")
def test_the_seed_reaches_everything_that_is_drawn(pytestconfig):
    text = SCRIPT.with_name("presubmit").read_text()
    assert 'make simulation SEED="$RAYTIDE_SEED" FIRST="$RAYTIDE_SEED"' in text
    conftest = (SCRIPT.parents[1] / "tests" / "conftest.py").read_text()
    for option in ("--specs-seed", "--cloud-seed"):
        assert f'"{option}", type=int, default=SEED' in conftest
    if "RAYTIDE_SEED" in os.environ:
        assert pytestconfig.getoption("--hypothesis-seed") == os.environ["RAYTIDE_SEED"]
