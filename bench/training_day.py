"""TRAINING_DAY: a simulated day of 50 training jobs on 200 nodes: Raytide, fixed sizes and EDL's rules.

The jobs come through the day, most of them in working hours, each with its own bounds, pod sizes and work; all numbers come
from one seed. Shown for each: how much of the CPU was requested by running pods, how long jobs waited for their minimum, how
much work was done and how many jobs ended, how often jobs were resized, and how equally they were fulfilled while they
competed. Ours may not be worse than EDL in waiting and utilisation, and has bars of its own for resizes and fairness. With a limit
for scale-ups (98 % of the CPUs, or EDL's 97 %) it has one for waiting, because the rest is free for the minimums of new jobs. The
plot shows utilisation over the day: docs/figures/training-day.svg.
"""

import statistics
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from edl import MAX_LOAD
from raytide.api.config import SharingConfig
from training_policies import Edl, Fixed, Raytide
from training_world import Ask, Circumstances, Policy, SimNode, Submission, World

from harness import percentile, result

NODES, JOBS, SEED = 200, 50, 6
DAY_S, HOUR_S = 86_400.0, 3600.0
QUICKNESS = Circumstances(start_s=10.0, stop_s=31.0)
SAMPLE_S, COMPARE_S = 300.0, 60.0
MOST_RESIZES, LEAST_FAIRNESS, LEAST_UTILISATION = 4.0, 0.99, 51.0
MOST_WAITING_S = 12.0
LIMIT = SharingConfig(max_load_percent={"cpu": 98})
EDL_LIMIT = SharingConfig(max_load_percent={"cpu": round(100 * MAX_LOAD)})
TRAINERS = (Ask(2000, 4096), Ask(4000, 8192), Ask(6000, 24576), Ask(8000, 16384))
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "training-day.svg"
COLOURS = {"fixed at minimum": "#777777", "fixed at maximum": "#c9a227", "EDL": "#b23a48", "Raytide": "#0b6e4f"}


@dataclass(frozen=True)
class Day:
    """What became of it."""

    utilisation: float
    waiting_s: list[float]
    is_waiting: int
    """Jobs whose minimum never ran."""
    ended: int
    cpu_hours: float
    resizes: list[int]
    seen: list[float]
    fairness: list[float]
    """Jain's index of the scores of all jobs that run, each minute in which one of them is not at its maximum; 1: all equal."""

    def row(self, name: str) -> str:
        """For people."""
        return (
            f"{name:18} utilisation {self.utilisation:5.1f} %, waiting {statistics.mean(self.waiting_s):7.1f} s mean, "
            f"{percentile(self.waiting_s, 0.95):7.1f} s p95, {self.is_waiting} never begun, {self.ended} jobs ended, "
            f"{self.cpu_hours:,.0f} CPU hours of work, {statistics.mean(self.resizes):.1f} resizes per job, "
            f"fairness {statistics.mean(self.fairness or [1.0]):.3f}"
        )


def submissions(jobs: int = JOBS, seed: int = SEED) -> list[Submission]:
    """The day's jobs; two in three come between 8 and 18 o'clock."""
    random = Random(seed)
    found = []
    for number in range(jobs):
        is_daytime = random.random() < 2 / 3
        moment_s = random.uniform(8, 18) * HOUR_S if is_daytime else random.uniform(0, 20) * HOUR_S
        trainer = TRAINERS[random.randrange(len(TRAINERS))]
        low = random.randint(2, 12)
        high = low * random.randint(4, 12)
        cpu_hours = random.uniform(300, 4000)
        found.append(
            Submission(
                name=f"job-{number:02d}",
                at_s=moment_s,
                low=low,
                high=high,
                trainer=trainer,
                initial=low,
                pservers=random.choice((0, 2, 4)),
                pserver=Ask(2000, 8192),
                master=Ask(1000, 1024),
                work_s=cpu_hours * HOUR_S * 1000 / trainer.cpu_millis,
            )
        )
    return found


def fairness(world: World) -> float | None:
    """Jain's index of the scores of now; None if no jobs compete."""
    running = [
        job for job in world.jobs if job.ended_s is None and job.complete_s is not None and job.of.low < job.of.high
    ]
    scores = [(job.wanted - job.of.low) / (job.of.high - job.of.low) for job in running]
    if len(scores) < 2 or min(scores) >= 1:
        return None
    squares = sum(score * score for score in scores)
    return sum(scores) ** 2 / (len(scores) * squares) if squares else 1.0


def at_maximum(submission: Submission) -> Submission:
    """The same job with all the trainers it may have, from the beginning."""
    return Submission(**{**submission.__dict__, "low": submission.high, "initial": submission.high})


def a_day(policy: Policy, jobs: list[Submission]) -> Day:
    """Midnight to midnight."""
    world = World([SimNode(f"node-{i:03d}", 32_000, 128 * 1024) for i in range(NODES)], policy, QUICKNESS)
    seen: list[float] = []
    fair: list[float] = []

    def look() -> None:
        seen.append(world.utilisation)
        world.after(SAMPLE_S, look)

    def compare() -> None:
        index = fairness(world)
        fair.extend([] if index is None else [index])
        world.after(COMPARE_S, compare)

    world.at(0.0, look)
    world.at(0.0, compare)
    for submission in jobs:
        world.submit(submission)
    world.run(DAY_S)
    waited = [(DAY_S if job.complete_s is None else job.complete_s) - job.of.at_s for job in world.jobs]
    for job in world.jobs:
        job.work_done_s += job.rate * (world.now_s - job.counted_s)
    return Day(
        utilisation=100 * world.used_cpu_s / DAY_S / world.cpu_total,
        waiting_s=waited,
        is_waiting=sum(job.complete_s is None for job in world.jobs),
        ended=sum(job.ended_s is not None for job in world.jobs),
        cpu_hours=sum(job.work_done_s * job.of.trainer.cpu_millis for job in world.jobs) / 1000 / HOUR_S,
        resizes=[job.resizes for job in world.jobs],
        seen=seen,
        fairness=fair,
    )


WIDTH, HEIGHT, LEFT, TOP = 760, 300, 60, 30


def plot(days: dict[str, Day]) -> str:
    """Utilisation over the day, one line each."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {TOP + HEIGHT + 60}" '
    lines = [
        head + 'font-family="sans-serif" font-size="12">',
        f'<rect width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 60}" fill="#fff"/>',
        f'<text x="{LEFT}" y="{TOP - 10}">CPU requested by running pods, {NODES} nodes, {JOBS} jobs</text>',
    ]
    for share in range(0, 101, 20):
        y = TOP + HEIGHT * (1 - share / 100)
        lines.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>')
    for hour in range(0, 25, 4):
        x = LEFT + WIDTH * hour / 24
        lines.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{hour}:00</text>')
    for place, (name, day) in enumerate(days.items()):
        spots = [
            (LEFT + WIDTH * number * SAMPLE_S / DAY_S, TOP + HEIGHT * (1 - share / 100))
            for number, share in enumerate(day.seen)
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        x = LEFT + place * 190
        lines.append(f'<text x="{x}" y="{TOP + HEIGHT + 44}" fill="{COLOURS[name]}">{name}</text>')
    return "\n".join([*lines, "</svg>\n"])


def main() -> int:
    """Simulate, print, plot."""
    jobs = submissions()
    assert all(earlier.name < later.name for earlier, later in pairwise(jobs))
    days: dict[str, Day] = {}
    for name, policy, trace in (
        ("fixed at minimum", Fixed(), jobs),
        ("fixed at maximum", Fixed(), [at_maximum(job) for job in jobs]),
        ("EDL", Edl(period_s=30.0), jobs),
        ("Raytide", Raytide(), jobs),
    ):
        days[name] = a_day(policy, trace)
        print(days[name].row(name), flush=True)
    print(a_day(Raytide(scaling={"rebalance": False}), jobs).row("without evening out"), flush=True)
    limited = {"with a limit": a_day(Raytide(LIMIT), jobs), "with EDL's limit": a_day(Raytide(EDL_LIMIT), jobs)}
    for name, day in limited.items():
        print(day.row(name), flush=True)
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(plot(days))
    ours, edl = days["Raytide"], days["EDL"]
    met = [
        result("TRAINING_DAY", statistics.mean(ours.waiting_s), "s waiting", statistics.mean(edl.waiting_s)),
        result("TRAINING_DAY", statistics.mean(ours.resizes), "resizes per job", MOST_RESIZES),
        result("TRAINING_DAY", ours.utilisation, "% utilisation", edl.utilisation, more_is_better=True),
        result("TRAINING_DAY", statistics.mean(ours.fairness), "Jain", LEAST_FAIRNESS, more_is_better=True),
    ]
    for name, day in limited.items():
        met += [
            result("TRAINING_DAY", statistics.mean(day.waiting_s), f"s waiting {name}", MOST_WAITING_S),
            result("TRAINING_DAY", statistics.mean(day.resizes), f"resizes per job {name}", MOST_RESIZES),
            result("TRAINING_DAY", day.utilisation, f"% utilisation {name}", LEAST_UTILISATION, more_is_better=True),
            result("TRAINING_DAY", statistics.mean(day.fairness), f"Jain {name}", LEAST_FAIRNESS, more_is_better=True),
        ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
