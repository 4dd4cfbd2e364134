"""Trainers that fair sharing ends, compared with the fewest that the same allocation requires: VICTIMS (PF:VICTIMS).

400 random clusters of one to five nodes with different CPUs and GPUs, filled at random by three to six jobs of different sizes; some
jobs are waiting, and two fifths of the clusters have two priorities. The planner of the product computes a plan, the plan is carried
out at once, and so on until there is nothing to do. Counted are all running trainers that end, including those started on the way:
the sum of all decreases of sizes. A trainer that moves to another node ends, too.

Compared with: the least number of the initially running trainers that have to end for an allocation which is as fair as that of the
product. An allocation is a size for each job and a node for each trainer, within the CPUs and GPUs of the nodes. It is as fair if in
each group of jobs with the same priority, with or without GPUs, the sorted scores are the same. The search chooses which job has
which score, except that jobs which wait for their minimum stay the same, because their age decides. Scores are computed as in the
product: a maximum counts only as far as the resources of all nodes together suffice. The product also has to keep all jobs at their
minimum and trainer 0 on its node all the time; the search does not, so that a ratio of 1 is not always possible.

The search is exact: for a number of trainers and all allocations that are as fair, node after node, it tries which trainers stay and
which are started, prunes what cannot be better, and increases the number if there is no solution. After `MOST_STEPS` steps in a
cluster it gives up, and the largest number proven to be too small, plus one, counts, which makes the ratio larger, never smaller.
Measured with the default of `--rebalance-gap` and with 0, each compared with its own allocation.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import AllocationOptions, Node, Participant
from support.elastic_builders import GPU, World, job, node

from harness import Met, result, run

WORLDS = 400
MOST_PASSES = 40
MOST_STEPS = 300_000
BAR = 1.1
RESOURCES = ("cpu", GPU)

Amounts = tuple[int, ...]


# --- clusters --------------------------------------------------------------------------------------------------------------


def random_world(seed: int) -> World:
    """Jobs on one to five nodes that are nearly full; in half of the clusters the last job is new."""
    random = Random(seed)
    nodes = [
        node(f"node-{number}", cpu=random.choice([8, 16, 24, 32]), gpu=random.choice([0, 0, 8]))
        for number in range(random.randint(1, 5))
    ]
    has_gpus = any(GPU in each.allocatable for each in nodes)
    priorities = random.choice([[0], [0], [0], [0, 10], [0, 10]])
    jobs = []
    for number in range(random.randint(3, 6)):
        floor = random.randint(1, 4)
        one = job(
            f"job-{number}",
            floor,
            floor + random.randint(0, 24),
            cpu=random.choice([1, 1, 2, 4]),
            gpu=random.choice([0, 0, 1]) if has_gpus else 0,
            priority=random.choice(priorities),
            is_gang=True,
            rebalances=True,
            created_at=f"2026-01-01T00:00:{number:02}Z",
        )
        jobs.append(one)
    return filled(nodes, jobs, len(jobs) - random.randint(0, 1), random)


def filled(nodes: Sequence[Node], jobs: Sequence[Participant], running: int, random: Random) -> World:
    """A cluster in which the first `running` jobs run, if their minimum fits, and are then scaled up by random numbers in turn.

    Each trainer is on a random node with enough capacity.
    """
    world = World(nodes, jobs)
    free = dict(zip((each.name for each in nodes), capacities(world), strict=True))

    def put(one: Participant, count: int) -> list[str]:
        wants, found = wants_of(one), []
        for _ in range(count):
            fitting = [name for name, has in free.items() if times(wants, has)]
            if not fitting:
                break
            found.append(random.choice(fitting))
            free[found[-1]] = tuple(has - asked for has, asked in zip(free[found[-1]], wants, strict=True))
        return found

    for one in jobs[:running]:
        found = put(one, one.floor)
        if len(found) == one.floor:
            world.jobs[one.id].trainers = found
            continue
        for name in found:
            free[name] = tuple(has + asked for has, asked in zip(free[name], wants_of(one), strict=True))
    for one in random.sample(list(jobs[:running]), running) * 6:
        pods = world.jobs[one.id]
        if pods.trainers:
            pods.trainers += put(one, random.randint(0, one.ceiling - len(pods.trainers)))
    return world


@dataclass(frozen=True)
class Settled:
    """A cluster after the last plan of the product."""

    world: World
    ended: int
    is_at_rest: bool


def settle(world: World, gap: Fraction | None) -> Settled:
    """Carry out plans until there is nothing to do."""
    if gap is not None:
        world = world.copy()
        world.options = AllocationOptions(rebalance_gap=gap)
    ended = 0
    for _ in range(MOST_PASSES):
        plan = allocate(world.pool())
        if not plan.resizes:
            return Settled(world, ended, is_at_rest=True)
        ended += sum(max(0, one.before - one.after) for one in plan.resizes)
        world = world.carried_out(plan)
    return Settled(world, ended, is_at_rest=False)


# --- allocations that are as fair ------------------------------------------------------------------------------------------


def wants_of(one: Participant) -> Amounts:
    """Requests of a trainer."""
    return tuple(one.shape.requests.get(name, 0) for name in RESOURCES)


def capacities(world: World) -> list[Amounts]:
    """Allocatable resources of each node."""
    return [tuple(each.allocatable.get(name, 0) for name in RESOURCES) for each in world.nodes]


def times(wants: Amounts, there: Amounts) -> int:
    """Number of trainers that fit."""
    return min(has // asked for has, asked in zip(there, wants, strict=True) if asked)


def scores_of(one: Participant, nodes: Sequence[Amounts]) -> dict[int, Fraction]:
    """Score by size, of all sizes of a running job."""
    if one.floor == one.ceiling:
        return {one.floor: Fraction(1)}
    together: Amounts = tuple(map(sum, zip(*nodes, strict=True)))
    reachable = times(wants_of(one), together)
    span = max(1, min(one.ceiling, reachable) - one.floor)
    return {size: Fraction(size - one.floor, span) for size in range(one.floor, one.ceiling + 1)}


def equally_fair(jobs: Sequence[Participant], sizes: Sequence[int], nodes: Sequence[Amounts]) -> Iterator[list[int]]:
    """All sizes with the same sorted scores as `sizes`, in each group of jobs with the same priority, with or without GPUs."""
    scores = [scores_of(one, nodes) for one in jobs]
    by_score = [{score: size for size, score in each.items()} for each in scores]
    groups = [
        None if size == 0 < one.floor else (one.priority, wants_of(one)[1] > 0)
        for one, size in zip(jobs, sizes, strict=True)
    ]
    left = Counter((group, scores[number][sizes[number]]) for number, group in enumerate(groups) if group is not None)
    chosen: list[int] = []

    def choose() -> Iterator[list[int]]:
        number = len(chosen)
        if number == len(jobs):
            yield list(chosen)
            return
        if groups[number] is None:
            yield from with_size(0)
            return
        for key in [key for key, count in left.items() if count and key[0] == groups[number]]:
            if key[1] in by_score[number]:
                left[key] -= 1
                yield from with_size(by_score[number][key[1]])
                left[key] += 1

    def with_size(size: int) -> Iterator[list[int]]:
        chosen.append(size)
        yield from choose()
        chosen.pop()

    yield from choose()


# --- the fewest ------------------------------------------------------------------------------------------------------------


class TooManyStepsError(Exception):
    """The search exceeded `MOST_STEPS`."""


@dataclass
class Search:
    """Search for the initially running trainers that stay, node after node."""

    nodes: list[Amounts]
    wants: list[Amounts]
    there: list[list[int]]
    """Initial number of trainers of each job, by node."""
    steps: int = 0
    _failed: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    """By node and trainers to place of each job: the largest number that may end with which placing them is impossible."""

    def __post_init__(self) -> None:
        later = [0] * len(self.wants)
        could = [0] * len(self.wants)
        has: Amounts = (0,) * len(RESOURCES)
        self._later, self._could, self._has = [list(later)], [list(could)], [has]
        for number in reversed(range(len(self.nodes))):
            later = [own + more for own, more in zip(later, self.there[number], strict=True)]
            could = [own + times(wants, self.nodes[number]) for own, wants in zip(could, self.wants, strict=True)]
            has = tuple(own + more for own, more in zip(has, self.nodes[number], strict=True))
            self._later.append(later)
            self._could.append(could)
            self._has.append(has)
        for lists in (self._later, self._could, self._has):
            lists.reverse()  # type: ignore[attr-defined]

    def least(self, sizes: Sequence[int]) -> int:
        """Lower bound: trainers that have to end because their jobs are scaled down."""
        return sum(max(0, had - size) for had, size in zip(self._later[0], sizes, strict=True))

    def is_possible(self, sizes: Sequence[int], most: int) -> bool:
        """Whether these sizes can be reached if at most `most` trainers end."""
        return self._from(0, tuple(sizes), most)

    def _from(self, number: int, needed: tuple[int, ...], most: int) -> bool:
        """Whether this number of trainers of each job can be on this node and the following ones."""
        if sum(max(0, had - size) for had, size in zip(self._later[number], needed, strict=True)) > most:
            return False
        if number == len(self.nodes):
            return not any(needed)
        if self._failed.get((number, needed), -1) >= most or not self._has_capacity(number, needed):
            return False
        if any(self._from(number + 1, rest, left) for rest, left in self._choices(number, needed, most)):
            return True
        self._failed[number, needed] = most
        return False

    def _has_capacity(self, number: int, needed: Sequence[int]) -> bool:
        if any(count > could for count, could in zip(needed, self._could[number], strict=True)):
            return False
        return all(
            sum(count * wants[kind] for count, wants in zip(needed, self.wants, strict=True)) <= has
            for kind, has in enumerate(self._has[number])
        )

    def _choices(self, number: int, needed: tuple[int, ...], most: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Choices for this node: trainers to place on the following nodes, and how many may end there."""
        there, later, could = self.there[number], self._later[number + 1], self._could[number + 1]
        chosen: list[int] = []

        def choose(free: Amounts, left: int) -> Iterator[tuple[tuple[int, ...], int]]:
            """`left`: how many trainers may end on this node, and on the following ones because there are too many."""
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise TooManyStepsError
            which = len(chosen)
            if which == len(needed):
                rest = tuple(need - count for need, count in zip(needed, chosen, strict=True))
                if not any(  # a trainer to place is placed here if it fits, which leaves more capacity on the following nodes
                    count > after and times(wants, free) > 0
                    for count, after, wants in zip(rest, later, self.wants, strict=True)
                ):
                    ended = sum(max(0, had - count) for had, count in zip(there, chosen, strict=True))
                    yield rest, most - ended
                return
            had, need, after, wants = there[which], needed[which], later[which], self.wants[which]
            highest = min(need, times(wants, free))
            for count in sorted(range(max(0, need - could[which]), highest + 1), key=lambda each: abs(each - had)):
                ends = max(0, had - count) + max(0, after - (need - count))
                if ends <= left:
                    chosen.append(count)
                    yield from choose(
                        tuple(has - count * asked for has, asked in zip(free, wants, strict=True)), left - ends
                    )
                    chosen.pop()

        yield from choose(self.nodes[number], most)


def fewest(before: World, after: World, enough: int) -> tuple[int, bool]:
    """Least number of trainers that have to end for an allocation as fair as `after`, at most `enough`, and whether it is exact."""
    jobs = [pods.job for pods in before.jobs.values()]
    nodes = capacities(before)
    there = [[pods.trainers.count(each.name) for pods in before.jobs.values()] for each in before.nodes]
    search = Search(nodes, [wants_of(one) for one in jobs], there)
    sizes = [len(after.jobs[one.id].trainers) for one in jobs]
    candidates = sorted((search.least(found), found) for found in equally_fair(jobs, sizes, nodes))
    for most in range(candidates[0][0], enough):
        try:
            if any(search.is_possible(found, most) for least, found in candidates if least <= most):
                return most, True
        except TooManyStepsError:
            return most, False
    return enough, True


# --- the figure ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Result of one cluster."""

    seed: int
    ended: int
    fewest: int
    is_exact: bool
    is_at_rest: bool


def compare(seed: int, gap: Fraction | None) -> Compared:
    """Trainers that the product ends in this cluster, and the fewest."""
    world = random_world(seed)
    settled = settle(world, gap)
    least, is_exact = fewest(world, settled.world, settled.ended)
    return Compared(seed, settled.ended, least, is_exact, settled.is_at_rest)


def report(found: Sequence[Compared]) -> str:
    """The results in one line."""
    most = sorted(found, key=lambda each: (each.ended - each.fewest, each.ended), reverse=True)[:5]
    worst = ", ".join(f"{each.seed} ({each.ended} of {each.fewest})" for each in most)
    return (
        f"{sum(each.ended for each in found)} trainers given up, {sum(each.fewest for each in found)} needed; "
        f"{sum(each.ended == each.fewest for each in found)} of {len(found)} clusters with the fewest, "
        f"{sum(not each.is_exact for each in found)} not searched to the end, "
        f"{sum(not each.is_at_rest for each in found)} not at rest after {MOST_PASSES} passes; worst: {worst}"
    )


def victims() -> Met:
    """PF:VICTIMS: the ratio with both gaps."""
    for name, gap in (("the default gap", None), ("gap 0", Fraction(0))):
        found = [compare(seed, gap) for seed in range(WORLDS)]
        print(f"{name}: {report(found)}", flush=True)
        ratio = sum(each.ended for each in found) / max(1, sum(each.fewest for each in found))
        yield result("VICTIMS", ratio, f"trainers given up for one that is needed, with {name}", BAR)


FIGURES = {"VICTIMS": victims}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
