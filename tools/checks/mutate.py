"""Would our tests notice if the product lost one of its safeguards?

Tells the simulation's lives once per deliberate mutation, in a process of its own, and expects each run to be red
because a history was judged wrong, not for any other reason; and once without a mutation, expecting green. Called by
`make mutate`; exit code 1 when a mutation survives.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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


def run_tests(mutation: str, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run these simulations under one mutation (empty: none)."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        *tests,
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
    ]
    sampled = ["--histories", "40", "--points", "12"]
    options = [*sampled, "--timeout", "600", *(["--mutation", mutation] if mutation else [])]
    return subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)


def main() -> int:
    """One line per mutation."""
    healthy = run_tests("", HISTORIES, LEADERSHIP, RIVALS, TURNED_BUSY, RECLAIMS, BY_HAND, BOUNDS, REJECTED_DELETE)
    if healthy.returncode:
        print(healthy.stdout[-3000:])
        print("the simulation is red without any mutation")
        return 1
    killed = 0
    for mutation, tests in MUTATIONS.items():
        run = run_tests(mutation, tests)
        errors = [line for line in run.stdout.splitlines() if line.startswith("E ")]
        is_killed = run.returncode == 1 and any(VIOLATIONS in line for line in errors)
        killed += is_killed
        found = next((line for line in errors if ":" in line and VIOLATIONS not in line), "")
        print(f"{mutation:22s} {'killed' if is_killed else 'SURVIVED'}  {found[2:110].strip()}", flush=True)
    print(f"{killed} passed, {len(MUTATIONS) - killed} failed")
    return 0 if killed == len(MUTATIONS) else 1


if __name__ == "__main__":
    sys.exit(main())
