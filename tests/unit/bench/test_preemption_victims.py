"""The benchmark's fewest trainers are the fewest: compared with an exhaustive search."""

import itertools
import random
from collections.abc import Iterator

import pytest

import preemption_victims
from preemption_victims import capacities, equally_fair, fewest, random_world, scores_of, settle, times, wants_of
from raytide.fairshare.algorithm.state import begin
from support.elastic_builders import World, id_of, job, node

pytestmark = pytest.mark.rule("PF:VICTIMS")


def tiny_world(chance: random.Random) -> World:
    """At most three jobs on at most three nodes, each trainer on any node that can hold it."""
    nodes = [node(f"node-{number}", cpu=chance.randint(2, 4)) for number in range(chance.randint(1, 3))]
    jobs = []
    for number in range(chance.randint(1, 3)):
        floor = chance.randint(0, 2)
        high = floor + chance.randint(0, 3)
        jobs.append(
            job(f"job-{number}", floor, high, cpu=chance.choice([1, 1, 2]), is_gang=True, rebalances=True, priority=0)
        )
    return preemption_victims.filled(nodes, jobs, chance.randint(1, len(jobs)), chance)


def on_nodes(count: int, nodes: int) -> Iterator[tuple[int, ...]]:
    """All ways to put so many on so many nodes."""
    if nodes == 1:
        yield (count,)
        return
    for first in range(count + 1):
        yield from ((first, *rest) for rest in on_nodes(count - first, nodes - 1))


def fewest_by_trying(before: World, after: World) -> int:
    """Every size of every job, every node for every trainer."""
    jobs = [pods.job for pods in before.jobs.values()]
    nodes = capacities(before)
    had = [[pods.trainers.count(each.name) for each in before.nodes] for pods in before.jobs.values()]

    def ended(placed) -> int:
        return sum(
            max(0, old - new)
            for olds, news in zip(had, placed, strict=True)
            for old, new in zip(olds, news, strict=True)
        )

    def fits(placed) -> bool:
        return all(
            sum(counts[number] * wants_of(one)[0] for counts, one in zip(placed, jobs, strict=True)) <= has[0]
            for number, has in enumerate(nodes)
        )

    sizes = [len(after.jobs[one.id].trainers) for one in jobs]

    def fairness(found) -> list:
        return sorted(scores_of(one, nodes).get(size, -1) for one, size in zip(jobs, found, strict=True))

    found = []
    for other in itertools.product(*({0} | set(range(one.floor, one.ceiling + 1)) for one in jobs)):
        is_same_line = all(
            (size == 0 < one.floor) == (ours == 0 < one.floor)
            for size, ours, one in zip(other, sizes, jobs, strict=True)
        )
        if is_same_line and fairness(other) == fairness(sizes):
            ways = itertools.product(*(on_nodes(size, len(nodes)) for size in other))
            found += [ended(placed) for placed in ways if fits(placed)]
    return min(found)


@pytest.mark.parametrize("part", range(4))
def test_the_search_finds_what_trying_everything_finds(part):
    moved = 0
    for seed in range(part * 50, part * 50 + 50):
        world = tiny_world(random.Random(seed))
        settled = settle(world, None)
        expected = fewest_by_trying(world, settled.world)
        assert fewest(world, settled.world, 99) == (expected, True), seed
        assert expected <= settled.ended, seed
        moved += settled.ended
    assert moved


def split_world() -> World:
    """A trainer of four CPUs could come if one of one CPU moved: two nodes with three free CPUs each, and one with one."""
    nodes = [node("a", cpu=4), node("b", cpu=4), node("c", cpu=1)]
    world = World(nodes, [job("small", 1, 2, rebalances=True), job("large", 1, 1, cpu=4, is_gang=True)])
    world.jobs[id_of("small")].trainers = ["a", "b"]
    return world


def test_a_trainer_that_moves_counts():
    before, after = split_world(), split_world()
    after.jobs[id_of("small")].trainers = ["a", "c"]
    after.jobs[id_of("large")].trainers = ["b"]
    assert fewest(before, after, 9) == (1, True)
    assert fewest(before, before, 9) == (0, True)


def test_another_job_may_have_the_score():
    """Of two equal jobs the one that has more already keeps it."""
    nodes = [node("a", cpu=6)]
    jobs = [job(name, 1, 5, rebalances=True) for name in ("one", "two")]
    before, after = World(nodes, jobs), World(nodes, jobs)
    for world, sizes in ((before, (4, 2)), (after, (2, 4))):
        for name, size in zip(("one", "two"), sizes, strict=True):
            world.jobs[id_of(name)].trainers = ["a"] * size
    assert fewest(before, after, 9) == (0, True)


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        pytest.param({}, [[2, 4], [4, 2]], id="equal jobs"),
        pytest.param({"priority": 1}, [[2, 4]], id="another priority"),
        pytest.param({"gpu": 1}, [[2, 4]], id="with GPUs"),
        pytest.param({"high": 3}, [[2, 4]], id="another maximum"),
    ],
)
def test_scores_are_exchanged_within_a_group_only(more, sizes):
    high = more.pop("high", 5)
    jobs = [job("one", 1, high), job("two", 1, 5, **more)]
    assert sorted(equally_fair(jobs, [2, 4], [(9000, 9)])) == sizes


def test_a_job_that_waits_for_its_minimum_keeps_waiting():
    jobs = [job("one", 1, 5), job("two", 1, 5)]
    assert list(equally_fair(jobs, [0, 4], [(9000, 0)])) == [[0, 4]]


def test_a_search_that_gives_up_counts_too_few(monkeypatch):
    monkeypatch.setattr(preemption_victims, "MOST_STEPS", 10)
    world = random_world(1601)
    settled = settle(world, None)
    least, is_exact = fewest(world, settled.world, settled.ended)
    assert not is_exact
    monkeypatch.undo()
    assert least <= fewest(world, settled.world, settled.ended)[0] <= settled.ended


def test_scores_are_the_products():
    for seed in range(40):
        world = random_world(seed)
        nodes = capacities(world)
        for participant in begin(world.pool()).participants:
            scores = scores_of(participant.spec, nodes)
            assert sorted(scores, key=participant.score_if) == sorted(scores)
            for size, score in scores.items():
                assert participant.score_if(size) == (score.numerator << 64) // score.denominator


def test_clusters_are_uneven_and_nearly_full():
    worlds = [random_world(seed) for seed in range(100)]
    for world in worlds:
        rooms = world.rooms()
        assert all(amount >= 0 for room in rooms.values() for amount in room.values())
        assert not world.waiting_pods()
        for pods in world.jobs.values():
            assert not pods.trainers or pods.job.floor <= len(pods.trainers) <= pods.job.ceiling
    full = [
        not any(
            times(wants_of(pods.job), there) and pods.job.floor <= len(pods.trainers) < pods.job.ceiling
            for pods in world.jobs.values()
            for there in (
                tuple(room.get(name, 0) for name in preemption_victims.RESOURCES) for room in world.rooms().values()
            )
        )
        for world in worlds
    ]
    assert sum(full) >= 70
    assert sum(any(not pods.trainers for pods in world.jobs.values()) for world in worlds) >= 30
    assert sum(len(world.nodes) > 1 for world in worlds) >= 60
