"""Trainers that fair sharing ends, compared with the fewest that the same allocation needs: VICTIMS (PF:VICTIMS).

400 random clusters of one to five nodes, uneven in CPUs and GPUs, which three to six jobs of different sizes have filled at random;
some jobs wait to start, and two fifths of the clusters have two priorities. The product plans, the plan is carried out at
once, and so on until nothing is to be done. Counted are the running trainers that are ended on the way, those that have been
started on the way included: the sum of all decreases of sizes. A trainer that moves to another node is ended, too.

Compared with: the least number of the trainers running at first that have to end, whatever the way, so that an allocation which
is as fair as the product's one is reached. An allocation is a size for each job and a node for each trainer, within the CPUs
and GPUs of each node. It is as fair if in each group of jobs with one priority, with GPUs or without them, the sorted scores are
the same; which job has which score is left to the search, except that jobs which wait for their minimum stay the same, because age
decides between them. The scores are those of the product, recomputed here: a maximum counts only as far as the resources of
all nodes together are enough for it. The product also has to keep every job at its minimum, and trainer 0 where it is, all the time; the search
does not, so a ratio of 1 is not always within reach.

The search is exact: for a number of trainers and all allocations that are as fair, node after node, it tries which trainers
stay and which come, without what cannot be better, and takes the next number if there is no way. After `MOST_STEPS` steps in
one cluster it gives up, and the number that it has proven to be too small, plus one, counts; that makes the product look worse,
never better. Measured with the default of `--rebalance-gap` and with 0, each against what it reaches itself.
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
    """Jobs on one to five nodes that are nearly full; in half of the clusters the last job has just been submitted."""
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
    """So many jobs run, if there is a node for each trainer of their minimum; then they grow in turn by random numbers.

    Each trainer is on a random one of the nodes that can hold it.
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
    """A cluster after the product's last plan."""

    world: World
    ended: int
    is_at_rest: bool


def settle(world: World, gap: Fraction | None) -> Settled:
    """Plans, each carried out as planned, until there is nothing to do."""
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
    """What one trainer requests."""
    return tuple(one.shape.requests.get(name, 0) for name in RESOURCES)


def capacities(world: World) -> list[Amounts]:
    """What each node has."""
    return [tuple(each.allocatable.get(name, 0) for name in RESOURCES) for each in world.nodes]


def times(wants: Amounts, there: Amounts) -> int:
    """How often a trainer fits."""
    return min(has // asked for has, asked in zip(there, wants, strict=True) if asked)


def scores_of(one: Participant, nodes: Sequence[Amounts]) -> dict[int, Fraction]:
    """Size -> score, of all sizes that a running job may have."""
    if one.floor == one.ceiling:
        return {one.floor: Fraction(1)}
    together: Amounts = tuple(map(sum, zip(*nodes, strict=True)))
    reachable = times(wants_of(one), together)
    span = max(1, min(one.ceiling, reachable) - one.floor)
    return {size: Fraction(size - one.floor, span) for size in range(one.floor, one.ceiling + 1)}


def equally_fair(jobs: Sequence[Participant], sizes: Sequence[int], nodes: Sequence[Amounts]) -> Iterator[list[int]]:
    """All sizes of which the sorted scores are those of `sizes`, in each group of jobs with one priority, with GPUs or without."""
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
    """Which of the trainers running at first stay, node after node."""

    nodes: list[Amounts]
    wants: list[Amounts]
    there: list[list[int]]
    """Node -> trainers of each job at first."""
    steps: int = 0
    _failed: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    """Node and trainers of each job that still need one -> the most that may end without a way to place them."""

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
        """A lower bound: what has to end because jobs shrink."""
        return sum(max(0, had - size) for had, size in zip(self._later[0], sizes, strict=True))

    def is_possible(self, sizes: Sequence[int], most: int) -> bool:
        """Whether these sizes can be reached if at most so many end."""
        return self._from(0, tuple(sizes), most)

    def _from(self, number: int, needed: tuple[int, ...], most: int) -> bool:
        """Whether so many trainers of each job can be on this node and those after it."""
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
        """What can be on this node: trainers that are needed after it, and how many may still end there."""
        there, later, could = self.there[number], self._later[number + 1], self._could[number + 1]
        chosen: list[int] = []

        def choose(free: Amounts, left: int) -> Iterator[tuple[tuple[int, ...], int]]:
            """`left`: how many may end on this node and, because there are too many, after it."""
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise TooManyStepsError
            which = len(chosen)
            if which == len(needed):
                rest = tuple(need - count for need, count in zip(needed, chosen, strict=True))
                if not any(  # a trainer that must be placed is placed here if it fits: later nodes have more capacity then
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
    """The fewest trainers that have to end for an allocation as fair as `after`, at most `enough`; and whether that is exact."""
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
    """One cluster."""

    seed: int
    ended: int
    fewest: int
    is_exact: bool
    is_at_rest: bool


def compare(seed: int, gap: Fraction | None) -> Compared:
    """The product's plans in that cluster, and the fewest."""
    world = random_world(seed)
    settled = settle(world, gap)
    least, is_exact = fewest(world, settled.world, settled.ended)
    return Compared(seed, settled.ended, least, is_exact, settled.is_at_rest)


def report(found: Sequence[Compared]) -> str:
    """For people."""
    most = sorted(found, key=lambda each: (each.ended - each.fewest, each.ended), reverse=True)[:5]
    worst = ", ".join(f"{each.seed} ({each.ended} of {each.fewest})" for each in most)
    return (
        f"{sum(each.ended for each in found)} trainers given up, {sum(each.fewest for each in found)} needed; "
        f"{sum(each.ended == each.fewest for each in found)} of {len(found)} clusters with the fewest, "
        f"{sum(not each.is_exact for each in found)} not searched to the end, "
        f"{sum(not each.is_at_rest for each in found)} not at rest after {MOST_PASSES} passes; worst: {worst}"
    )


def victims() -> Met:
    """Both gaps; the bar holds for each."""
    for name, gap in (("the default gap", None), ("gap 0", Fraction(0))):
        found = [compare(seed, gap) for seed in range(WORLDS)]
        print(f"{name}: {report(found)}", flush=True)
        ratio = sum(each.ended for each in found) / max(1, sum(each.fewest for each in found))
        yield result("VICTIMS", ratio, f"trainers given up for one that is needed, with {name}", BAR)


FIGURES = {"VICTIMS": victims}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
