"""Does the operator come through everything the simulation can do to it?

Tells all random histories and the whole fault matrix (every fault at every call and watch line of every scenario, a few
points of the large ones), in as many processes as asked for, and prints one line per scenario and every red run with the
command that tells it again. It changes nothing. Called by `make simulation`; exit code 1 when anything is red.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "operator" / "src")]

from simulation.autoscaled_scenarios import AUTOSCALED  # noqa: E402 - the path first
from simulation.matrix import Told, inject, learn, points_of  # noqa: E402 - the path first
from simulation.multi_host_scenarios import MULTI_HOST  # noqa: E402 - same
from simulation.scenarios import LARGE, SCENARIOS  # noqa: E402 - same
from simulation.test_histories import live_through  # noqa: E402 - same

CHUNK = 25
POINTS_OF_LARGE = 3
"""Of each kind of place; a run of a hundred pods takes a second."""
HISTORIES = "histories"
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *MULTI_HOST, *AUTOSCALED, *LARGE)}
references: dict[str, Told] = {}


@dataclass(frozen=True, slots=True)
class Job:
    """Some runs of one kind: seeds of histories, or points of a scenario."""

    kind: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job."""

    job: Job
    seconds: float
    red: tuple[str, ...]
    slowest_s: float = 0.0
    """The longest virtual time from a fault's end to the reference's end."""


def reference_of(name: str) -> Told:
    """What happens without faults, learned once per process."""
    if name not in references:
        references[name] = learn(BY_NAME[name])
    return references[name]


def points(name: str) -> list:  # type: ignore[type-arg]
    """All points of a scenario, a few of a large one."""
    is_large = any(scenario.name == name for scenario in LARGE)
    return list(points_of(reference_of(name), POINTS_OF_LARGE if is_large else None))


def jobs(histories: int, first: int, names: list[str]) -> Iterator[Job]:
    """The long ones first, so that the processes end together."""
    for name in names:
        count = len(points(name))
        step = 5 if count and BY_NAME[name] in LARGE else CHUNK
        yield from (Job(name, start, min(step, count - start)) for start in range(0, count, step))
    yield from (
        Job(HISTORIES, seed, min(CHUNK, histories - seed + first)) for seed in range(first, first + histories, CHUNK)
    )


def run(job: Job) -> Done:
    """Tell them one after another."""
    started, red, slowest_s = time.perf_counter(), [], 0.0
    numbers = range(job.first, job.first + job.count)
    if job.kind == HISTORIES:
        for seed in numbers:
            history = live_through(seed)
            if history.violations:
                red.append(f"{history.report()}\n  again: make simulation HISTORIES=1 FIRST={seed} SCENARIOS=none")
        return Done(job, time.perf_counter() - started, tuple(red))
    scenario, reference, chosen = BY_NAME[job.kind], reference_of(job.kind), points(job.kind)
    for number in numbers:
        told = inject(scenario, reference, chosen[number])
        slowest_s = max(slowest_s, told.took_s)
        if told.violations:
            red.append(f"{job.kind} {number}: {chosen[number]}\n  " + "\n  ".join(told.violations[:5]))
    return Done(job, time.perf_counter() - started, tuple(red), slowest_s)


def main() -> int:
    """One line per kind, then all that is red."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first history")
    parser.add_argument("--scenarios", default="all", help="names separated by commas, all or none")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args()
    names = {"all": list(BY_NAME), "none": []}.get(asked.scenarios, asked.scenarios.split(","))
    unsound = {name: reference_of(name).violations for name in names if reference_of(name).violations}
    if unsound:
        print(f"red without any fault: {unsound}")
        return 1
    started, runs, reds = time.perf_counter(), Counter[str](), Counter[str]()
    seconds, slowest = Counter[str](), dict[str, float]()
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        for done in pool.imap_unordered(run, jobs(asked.histories, asked.first, names)):
            kind = done.job.kind
            runs[kind] += done.job.count
            reds[kind] += len(done.red)
            seconds[kind] += round(done.seconds, 3)  # type: ignore[assignment]
            slowest[kind] = max(slowest.get(kind, 0.0), done.slowest_s)
            for text in done.red:
                print(text, flush=True)
    for kind in runs:
        slow = f", as in the reference after {slowest[kind]:.1f} s at the latest" if kind != HISTORIES else ""
        print(f"{kind:26s} {runs[kind]:5d} runs {reds[kind]:4d} red {seconds[kind]:7.1f} s{slow}")
    took_s = time.perf_counter() - started
    print(f"{runs.total()} runs, {reds.total()} red, {took_s:.0f} s with {asked.processes} processes")
    return 1 if reds.total() else 0


if __name__ == "__main__":
    sys.exit(main())
