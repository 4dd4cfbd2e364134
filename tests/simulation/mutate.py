"""Mutation test of the simulation and of the bounds on inputs: each deliberate mutation of the product must be detected.

Runs their tests once per mutation, each in its own process, and expects a failure, of the simulation because of a recorded violation
and not for another reason; and once without a mutation, expecting success. Called by `make mutate`; exit code 1 when a mutation survives.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from simulation import mutations, test_fault_matrix, test_histories, test_leadership, test_training_fault_matrix  # noqa: F401 - for those that are forked

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = "tests/simulation/test_histories.py"
LEADERSHIP = "tests/simulation/test_leadership.py"
TWO_WRITERS = (
    "tests/simulation/test_fault_matrix.py::test_one_fault_does_not_change_the_final_state[autoscaler-two-writers]"
)
DEMAND = "tests/simulation/test_fault_matrix.py::test_one_fault_does_not_keep_a_cluster_from_following_its_demand"
BUSY_ON_DRAIN = f"{DEMAND}[demand-turned-busy]"
JOBS = "tests/simulation/test_training_fault_matrix.py::test_one_fault_does_not_change_the_final_sizes_of_jobs"
RECLAIMS = f"{JOBS}[gang-reclaims]"
BY_HAND = f"{JOBS}[scaled-by-hand]"
BOUNDS = f"{JOBS}[bounds-edited]"
REJECTED_DELETE = "tests/simulation/test_training_fault_matrix.py::test_no_surplus_trainer_when_a_delete_is_rejected"
CAPACITY_LIMITS = "tests/unit/api/test_capacity_limits.py"
SHAPE_LIMITS = "tests/unit/fairshare/algorithm/test_shape_limits.py"
BOUNDS_ON_INPUTS = {
    "unbounded-views": f"{CAPACITY_LIMITS}::test_what_is_kept_of_one_object_is_bounded_and_gone_with_it",
    "unbounded-pass": f"{SHAPE_LIMITS}::test_many_shapes_of_one_namespace_delay_only_that_namespace",
    "too-large-matches": f"{CAPACITY_LIMITS}::test_a_pod_with_too_much_matches_no_node_and_counts_with_its_cpu",
}
"""One for each column of the table in SECURITY.md."""
MUTATIONS = {
    "no-overlay": HISTORIES,
    "no-uid-precondition": HISTORIES,
    "no-retry": HISTORIES,
    "no-owner-reference": HISTORIES,
    "new-name-on-retry": HISTORIES,
    "no-write-gate": LEADERSHIP,
    "no-relist-in-term": LEADERSHIP,
    "no-decision-record": TWO_WRITERS,
    "unnamed-victims": TWO_WRITERS,
    "delete-before-drain": BUSY_ON_DRAIN,
    "no-json-patch-tests": BUSY_ON_DRAIN,
    "rejected-drain-accepted": BUSY_ON_DRAIN,
    "growth-before-release": RECLAIMS,
    "patch-without-version": RECLAIMS,
    "deletions-as-failures": RECLAIMS,
    "no-cooldown": BY_HAND,
    "lowest-index-first": BOUNDS,
    "create-before-delete": REJECTED_DELETE,
    **BOUNDS_ON_INPUTS,
}
"""Mutation -> the tests that must fail."""
VIOLATIONS = "--- violations"
"""Text in the report of a run with violations."""


IMPORTED = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
"""looptime is imported before pytest starts, because the simulation is; pytest knows it as a plugin and warns."""
OPTIONS = (
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-W",
    IMPORTED,
    "--histories",
    "40",
    "--points",
    "12",
    "--timeout",
    "600",
)
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
    """One line per mutation, in order; `AT_ONCE` run at the same time."""
    os.chdir(ROOT)
    everything = tuple(dict.fromkeys(MUTATIONS.values()))
    asked = [("", everything), *((mutation, (tests,)) for mutation, tests in MUTATIONS.items())]
    # What they import is imported once, above. A mutation stays in its process: each has a new one.
    with multiprocessing.get_context("fork").Pool(AT_ONCE, maxtasksperchild=1) as pool:
        runs = pool.imap(run_tests, asked, chunksize=1)
        healthy = next(runs)
        if healthy.code:
            print(healthy.text[-3000:])
            print("the simulation fails without any mutation")
            return 1
        return report(runs)


def report(runs: Iterable[Run]) -> int:
    """Print whether each mutation was detected, and by which violation."""
    killed = 0
    for mutation, run in zip(MUTATIONS, runs, strict=True):
        errors = [line for line in run.text.splitlines() if line.startswith("E ")]
        is_expected = mutation in BOUNDS_ON_INPUTS or any(VIOLATIONS in line for line in errors)
        is_killed = run.code == pytest.ExitCode.TESTS_FAILED and is_expected
        killed += is_killed
        found = next((line for line in errors if ":" in line and VIOLATIONS not in line), "")
        print(f"{mutation:24s} {'killed' if is_killed else 'SURVIVED'}  {found[2:110].strip()}", flush=True)
    print(f"{killed} passed, {len(MUTATIONS) - killed} failed")
    return 0 if killed == len(MUTATIONS) else 1


if __name__ == "__main__":
    sys.exit(main())
