"""Would our tests notice if the product lost one of its safeguards?

Tells the simulation's lives once per deliberate mutation, in a process of its own, and expects each run to be red
because a history was judged wrong, not for any other reason; and once without a mutation, expecting green. Called by
`make mutate`; exit code 1 when a mutation survives.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("operator/src", "sandbox/src", "tests")]

from simulation import mutations, test_histories, test_leadership, test_matrix, test_training_matrix  # noqa: E402, F401 - the path first; for those that are forked

HISTORIES = "tests/simulation/test_histories.py"
LEADERSHIP = "tests/simulation/test_leadership.py"
RIVALS = "tests/simulation/test_matrix.py::test_a_life_ends_the_same_whatever_goes_wrong_once[autoscaler-two-writers]"
DEMAND = "tests/simulation/test_matrix.py::test_a_cluster_follows_its_demand_whatever_goes_wrong_once"
TURNED_BUSY = f"{DEMAND}[demand-turned-busy]"
JOBS = "tests/simulation/test_training_matrix.py::test_jobs_end_in_the_same_sizes_whatever_goes_wrong_once"
RECLAIMS = f"{JOBS}[gang-reclaims]"
BY_HAND = f"{JOBS}[scaled-by-hand]"
BOUNDS = f"{JOBS}[bounds-edited]"
REJECTED_DELETE = "tests/simulation/test_training_matrix.py::test_nobody_is_one_too_many_where_a_delete_is_rejected"
MUTATIONS = {
    "no-overlay": HISTORIES,
    "no-uid-precondition": HISTORIES,
    "no-retry": HISTORIES,
    "no-owner-reference": HISTORIES,
    "new-name-on-retry": HISTORIES,
    "no-write-gate": LEADERSHIP,
    "no-relist-in-term": LEADERSHIP,
    "no-record": RIVALS,
    "victims-by-choice": RIVALS,
    "names-before-drains": TURNED_BUSY,
    "no-tests-in-patches": TURNED_BUSY,
    "no-way-back": TURNED_BUSY,
    "growth-before-gone": RECLAIMS,
    "orders-without-version": RECLAIMS,
    "removals-are-failures": RECLAIMS,
    "no-cooldown": BY_HAND,
    "zero-goes-first": BOUNDS,
    "comes-too-early": REJECTED_DELETE,
}
"""Each with the lives that must turn red."""
VIOLATIONS = "--- violations"
"""What the report of a history that went wrong contains."""


OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "--histories", "40", "--points", "12", "--timeout", "600")
AT_ONCE = 2


class Run(NamedTuple):
    """How pytest ended, and what it printed."""

    code: int
    text: str


def run_tests(asked: tuple[str, Sequence[str]]) -> Run:
    """Run these simulations under one mutation (empty: none), in a process that was forked for it."""
    mutation, tests = asked
    chosen = ["--mutation", mutation] if mutation else []
    with tempfile.TemporaryFile("w+") as said:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        code = int(pytest.main([*tests, *OPTIONS, *chosen]))
        sys.stdout.flush()
        said.seek(0)
        return Run(code, said.read())


def main() -> int:
    """One line per mutation, in their order; `AT_ONCE` are tried at the same time."""
    os.chdir(ROOT)
    everything = (HISTORIES, LEADERSHIP, RIVALS, TURNED_BUSY, RECLAIMS, BY_HAND, BOUNDS, REJECTED_DELETE)
    asked = [("", everything), *((mutation, (tests,)) for mutation, tests in MUTATIONS.items())]
    # What they import is imported once, above. A mutation stays in its process: each has a new one.
    with multiprocessing.get_context("fork").Pool(AT_ONCE, maxtasksperchild=1) as pool:
        runs = pool.imap(run_tests, asked, chunksize=1)
        healthy = next(runs)
        if healthy.code:
            print(healthy.text[-3000:])
            print("the simulation is red without any mutation")
            return 1
        return report(runs)


def report(runs: Iterable[Run]) -> int:
    """Whether each was killed, and by what."""
    killed = 0
    for mutation, run in zip(MUTATIONS, runs, strict=True):
        errors = [line for line in run.text.splitlines() if line.startswith("E ")]
        is_killed = run.code == pytest.ExitCode.TESTS_FAILED and any(VIOLATIONS in line for line in errors)
        killed += is_killed
        found = next((line for line in errors if ":" in line and VIOLATIONS not in line), "")
        print(f"{mutation:22s} {'killed' if is_killed else 'SURVIVED'}  {found[2:110].strip()}", flush=True)
    print(f"{killed} passed, {len(MUTATIONS) - killed} failed")
    return 0 if killed == len(MUTATIONS) else 1


if __name__ == "__main__":
    sys.exit(main())
