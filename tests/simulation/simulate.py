"""Random histories, launches under faults and the fault matrix of operator and autoscaler.

The fault matrix is every fault at every call and watch event of every scenario, or a sample of the points of each scenario, drawn by a
printed seed (a few points of the large ones). Works in as many processes as requested; prints one line per scenario, and every failed
run with the command that repeats it. Changes no file. Called by `make simulation`; exit code 1 if a run fails, or if there is none.
"""

import argparse
import gc
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulation import test_following_demand, test_training_histories
from simulation.autoscaled_scenarios import AUTOSCALED
from simulation.concurrent_writers import CONCURRENT_WRITERS
from simulation.demand_scenarios import BY_DEMAND, LARGE_BY_DEMAND
from simulation.fault_matrix import Point, RunResult, fault_points, run_with_fault, run_without_fault
from simulation.multi_host_scenarios import MULTI_HOST
from simulation.scenarios import LARGE, SCENARIOS
from simulation.test_histories import run_history
from simulation.training_scenarios import TRAINING

CHUNK = 25
POINTS = 90
"""Points of each scenario, so that all scenarios take at most ten minutes on two cores."""
POINTS_OF_LARGE = 3
"""Of each kind of place; a run of a hundred pods takes a second."""
HISTORIES = "histories"
LAUNCHES = "launch-under-faults"
"""SC:S7."""
JOB_HISTORIES = "job-histories"
"""Of TrainingJobs that share a cluster (RM F15)."""
SHARE_OF_JOBS = 4
"""Scenarios of jobs are run at a quarter of the points."""
VERY_LARGE = frozenset(scenario.name for scenario in (*LARGE, *LARGE_BY_DEMAND))
FEWER = VERY_LARGE | {scenario.name for scenario in TRAINING}
BY_NAME = {
    scenario.name: scenario
    for scenario in (
        *SCENARIOS,
        *CONCURRENT_WRITERS,
        *MULTI_HOST,
        *AUTOSCALED,
        *BY_DEMAND,
        *TRAINING,
        *LARGE,
        *LARGE_BY_DEMAND,
    )
}
RANDOM = {HISTORIES: "HISTORIES", LAUNCHES: "LAUNCHES", JOB_HISTORIES: "JOB_HISTORIES"}
"""Kind -> the variable of make with the number of runs."""
NO_HISTORIES = " ".join(f"{variable}=0" for variable in RANDOM.values())
references: dict[str, RunResult] = {}


@dataclass(frozen=True, slots=True)
class Sample:
    """The points of each scenario that are run."""

    most: int
    """Zero: all."""
    seed: int
    only: int | None = None
    """The number of a single one."""

    def of(self, name: str, count: int) -> list[int]:
        """Their numbers, in order."""
        if self.only is not None:
            return [self.only]
        if not self.most or count <= self.most:
            return list(range(count))
        most = max(1, self.most // SHARE_OF_JOBS) if name in FEWER else self.most
        return sorted(random.Random(f"{self.seed} {name}").sample(range(count), most))


@dataclass(frozen=True, slots=True)
class Job:
    """Some runs of one kind: seeds of histories, or points of a scenario."""

    kind: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Outcome of a job."""

    job: Job
    seconds: float
    """CPU time."""
    failed: tuple[str, ...]
    slowest_s: float = 0.0
    """The longest virtual time from the end of a fault to the final state of the reference."""


def reference_of(name: str) -> RunResult:
    """The run without faults, cached per process."""
    if name not in references:
        references[name] = run_without_fault(BY_NAME[name])
    return references[name]


def points(name: str) -> list[Point]:
    """All points of a scenario, a few of a large one."""
    return list(fault_points(reference_of(name), POINTS_OF_LARGE if name in VERY_LARGE else None))


def jobs(seeds: dict[str, range], names: list[str], sample: Sample) -> Iterator[Job]:
    """The long ones first, so that the processes end together."""
    for name in names:
        yield from _cut(name, sample.of(name, len(points(name))), 5 if name in VERY_LARGE else CHUNK)
    for kind, numbers in seeds.items():
        yield from _cut(kind, numbers, CHUNK)


def _cut(kind: str, numbers: Sequence[int], step: int) -> Iterator[Job]:
    return (Job(kind, tuple(numbers[start : start + step])) for start in range(0, len(numbers), step))


def violations(kind: str, seed: int) -> list[str]:
    """The violations of one random history or launch."""
    if kind == LAUNCHES:
        return test_following_demand.run_launch(seed)
    if kind == JOB_HISTORIES:
        outcome = test_training_histories.run_history(seed)
        return [test_training_histories.minimize(seed).report()] if outcome.violations else []
    history = run_history(seed)
    return [history.report()] if history.violations else []


def run(job: Job) -> Done:
    """Run them one after the other."""
    started, failed, slowest_s = time.process_time(), [], 0.0
    if job.kind in RANDOM:
        for seed in job.numbers:
            if found := violations(job.kind, seed):
                counts = " ".join(f"{variable}={int(kind == job.kind)}" for kind, variable in RANDOM.items())
                again = f"make simulation {counts} FIRST={seed} SCENARIOS=none"
                failed.append(f"{job.kind} {seed}: " + "\n  ".join([*found[:5], f"again: {again}"]))
        return Done(job, time.process_time() - started, tuple(failed))
    scenario, reference, all_points = BY_NAME[job.kind], reference_of(job.kind), points(job.kind)
    for number in job.numbers:
        outcome = run_with_fault(scenario, reference, all_points[number])
        slowest_s = max(slowest_s, outcome.took_s)
        if outcome.violations:
            again = f"make simulation {NO_HISTORIES} SCENARIOS={job.kind} POINT={number}"
            failed.append("\n  ".join([f"{job.kind} {all_points[number]}", *outcome.violations[:5], f"again: {again}"]))
    return Done(job, time.process_time() - started, tuple(failed), slowest_s)


def main() -> int:
    """One line per kind, then all failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first history and launch")
    parser.add_argument("--launches", type=int, default=100, help="how many launches under faults (SC:S7)")
    parser.add_argument("--job-histories", type=int, default=60, help="how many of jobs that share a cluster")
    parser.add_argument("--points", default=str(POINTS), help="how many of each scenario; all: the whole matrix")
    parser.add_argument("--seed", type=int, default=0, help="which sample of the points")
    parser.add_argument("--point", type=int, help="one of them, by its number")
    parser.add_argument("--scenarios", default="all", help="names separated by commas, all or none")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()
    sample = Sample(0 if args.points == "all" else int(args.points), args.seed, args.point)
    counts = {HISTORIES: args.histories, LAUNCHES: args.launches, JOB_HISTORIES: args.job_histories}
    seeds = {kind: range(args.first, args.first + count) for kind, count in counts.items()}
    names = {"all": list(BY_NAME), "none": []}.get(args.scenarios, args.scenarios.split(","))
    unsound = {name: reference_of(name).violations for name in names if reference_of(name).violations}
    if unsound:
        print(f"failed without any fault: {unsound}")
        return 1
    planned = list(jobs(seeds, names, sample))
    if not planned:
        print("nothing ran: --histories, --launches, --job-histories and --scenarios leave no run")
        return 1
    gc.freeze()  # these objects stay in each process: collecting them again and again is a sixth of a run
    gc.set_threshold(20_000, 20, 50)
    started, runs, failures = time.perf_counter(), Counter[str](), Counter[str]()
    seconds, slowest = Counter[str](), dict[str, float]()
    with multiprocessing.get_context("fork").Pool(args.processes) as pool:
        for done in pool.imap_unordered(run, planned):
            kind = done.job.kind
            runs[kind] += len(done.job.numbers)
            failures[kind] += len(done.failed)
            seconds[kind] += round(done.seconds, 3)  # type: ignore[assignment]
            slowest[kind] = max(slowest.get(kind, 0.0), done.slowest_s)
            for text in done.failed:
                print(text, flush=True)
    for kind in runs:
        slow = f", in the state of the reference after {slowest[kind]:.1f} s at the latest" if kind in BY_NAME else ""
        print(f"{kind:26s} {runs[kind]:5d} runs {failures[kind]:4d} red {seconds[kind]:7.1f} s{slow}")
    took_s = time.perf_counter() - started
    if sample.most and sample.only is None:
        print(
            f"at most {sample.most} points of each scenario: SEED={sample.seed} (another SEED, other points; POINTS=all)"
        )
    print(
        f"{runs.total()} runs, {failures.total()} red, {sum(seconds.values()):.0f} CPU s, {took_s:.0f} s with {args.processes} processes"
    )
    return 1 if failures.total() else 0


if __name__ == "__main__":
    sys.exit(main())
