"""P10: CPU time of a sharing pass with 1,000 TrainingJobs of mixed requests on 500 nodes.

sharing_pass_time_large.py measures the same ten times as large.

From scratch: nothing is remembered; the worst of the passes that follow each other when all jobs are new, from nothing
placed (floors) to everything shared out. After one change: all pods run where the plan
put them, and then a job ends (its room is shared out) or a new one comes (others give); measured is what a running
operator does then, `build_snapshot()` and `allocate()`, with what it remembers of the snapshot before. CPU time of this
process with the operator's settings of the garbage collector, five runs each, mean and deviation printed, the bar against
the mean (PF: method).
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.runtime.gc_tuning import tune_gc
from training_pools import CONFIG, Crowd, a_job, crowd, passes

from harness import result, spread

RUNS = 5


def cpu_ms(work: Callable[[], object], runs: int = RUNS, before: Callable[[], object] | None = None) -> list[float]:
    """CPU milliseconds of each run, after one that does not count; `before` comes before each and does not count."""
    work()
    found = []
    for _ in range(runs):
        if before is not None:
            before()
        gc.collect()
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) * 1000)
    return found


def print_result(name: str, parts: dict[str, list[float]]) -> float:
    """Print the parts; the mean of their sum."""
    total = [sum(each) for each in zip(*parts.values(), strict=True)]
    words = ", ".join(f"{part} {spread(values)}" for part, values in parts.items())
    print(f"{name}: {spread(total)} ms CPU ({words})", flush=True)
    return statistics.mean(total)


def halves(now: Crowd, calm: Crowd | None = None, runs: int = RUNS) -> dict[str, list[float]]:
    """CPU of the two halves of a pass; of one that knows `calm`, as a running operator does, if that is given."""
    if calm is None:
        snapshot = cpu_ms(now.pool, runs)
    else:
        pools = SnapshotBuilder(CONFIG)
        snapshot = cpu_ms(lambda: now.pool(pools), runs, before=lambda: calm.pool(pools))
    ready = now.pool()
    return {"build_snapshot()": snapshot, "allocate()": cpu_ms(lambda: allocate(ready), runs)}


def changes(calm: Crowd) -> dict[str, Crowd]:
    """What may happen on a calm day."""
    size = {job.metadata.uid: 0 for job in calm.jobs}
    for pod in calm.pods:
        size[pod.owner_uid] += 1
    largest = max(calm.jobs, key=lambda job: size[job.metadata.uid])
    middle = sorted(calm.jobs, key=lambda job: size[job.metadata.uid])[len(calm.jobs) // 2]
    return {
        "a job of middle size ends": calm.without(middle),
        "the largest job ends": calm.without(largest),
        "a new job comes": calm.with_job(a_job(len(calm.jobs) + 1, Random(7))),
        "nothing": calm,
    }


@dataclass(frozen=True)
class Figure:
    """What is measured, and the bars."""

    name: str
    jobs: int
    nodes: int
    scratch_bar_ms: float
    change_bar_ms: float
    runs: int = RUNS


P10 = Figure("P10", 1000, 500, 1000, 50)


def words(now: Crowd) -> str:
    """How much there is to do."""
    resizes = allocate(now.pool()).resizes
    grown = sum(one.after - one.before for one in resizes)
    return f"{len(now.pods)} pods of jobs run, {len(resizes)} resizes by {grown} in all"


def main(figure: Figure = P10) -> int:
    """Measure and print."""
    tune_gc()  # as the operator, before there is anything to look at
    stages = list(passes(crowd(figure.jobs, figure.nodes)))
    runs = figure.runs
    scratch = max(print_result(f"from scratch, {words(now)}", halves(now, runs=runs)) for now in stages[:-1])
    calm = stages[-1]
    print(f"settled: {len(calm.pods)} pods of jobs run, {len(allocate(calm.pool()).waiting)} jobs would be larger")
    worst = max(
        print_result(f"after one change ({name})", halves(now, calm, runs)) for name, now in changes(calm).items()
    )
    size = f"{figure.jobs} jobs x {figure.nodes} nodes"
    met = [
        result(figure.name, scratch, f"ms CPU from scratch, {size}", figure.scratch_bar_ms),
        result(figure.name, worst, "ms CPU after one change, the worst of four", figure.change_bar_ms),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
