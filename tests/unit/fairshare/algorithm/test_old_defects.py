"""Defects of earlier autoscalers that Raytide does not have: TJ:D1 to TJ:D10.

Each test builds the state of TJ §2.5 in which EDL went wrong. `edl` is its published rule for one step (TJ §2.4), written
down again from the specification, so that a test can show what would have happened beside what does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from raytide.api.pod_requirements import CPU, PodConstraints, PodToleration
from raytide.api.sharing_record import ABOVE_MAXIMUM, REACHING_MINIMUM
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import (
    FRAGMENTED,
    MEMORY,
    UNSATISFIABLE,
    AllocationOptions,
    ClusterSnapshot,
    Node,
    Shape,
    Taint,
)
from support.elastic_builders import GPU, World, amounts, external_pod, id_of, job, node, resizes_of, waiting_of
from support.job_world import JobWorld

# --- EDL's rules, version C ------------------------------------------------------------------------------------------------


@dataclass
class Old:
    """EDL's view: sums of used and total, one node's free capacity, and a load."""

    used: dict[str, int]
    total: dict[str, int]
    load: float = 1.0
    idle_cpu: int = 99_999
    diff: dict[str, int] = field(default_factory=dict)

    def up(self, one) -> int:
        wanted, planned = one.shape.requests, self.planned(one)
        if planned >= one.ceiling:
            return one.ceiling - planned
        if self.free(MEMORY, 1.0) <= wanted.get(MEMORY, 0) or self.idle_cpu < wanted.get(CPU, 0):
            return 0
        has_cpu = self.free(CPU, self.load) >= wanted.get(CPU, 0)
        return int(has_cpu and self.free(GPU, 1.0) >= wanted.get(GPU, 0))

    def down(self, one) -> int:
        if self.planned(one) > one.ceiling:
            return -1
        is_over = any(self.free(name, self.load) < 0 for name in (CPU, MEMORY, GPU))
        return -1 if is_over and self.planned(one) > one.floor else 0

    def free(self, name: str, load: float) -> int:
        return int(self.total.get(name, 0) * load) - self.used.get(name, 0)

    def planned(self, one) -> int:
        return one.current + self.diff.get(one.id.name, 0)

    def rounds(self, jobs, *, at_most: int) -> Iterator[dict[str, int]]:
        """The sum of every round; the order is that of the beginning, for ever."""
        order = sorted(jobs, key=lambda one: one.score_at(one.current))
        for _ in range(at_most):
            steps = [self.moved(one, self.up(one)) for one in order]
            steps += [self.moved(one, self.down(one)) for one in reversed(order)]
            if not any(steps):
                return
            yield dict(self.diff)

    def moved(self, one, step: int) -> int:
        self.diff[one.id.name] = self.diff.get(one.id.name, 0) + step
        for name, amount in one.shape.requests.items():
            self.used[name] = self.used.get(name, 0) + step * amount
        return step


def settled(world: World) -> World:
    """One plan carried out; a second one has to be empty."""
    after = world.carried_out(allocate(world.pool()))
    assert allocate(after.pool()).resizes == ()
    return after


@pytest.mark.rule("TJ:D1")
@pytest.mark.parametrize("cpu", [pytest.param(0.001, id="tiny CPU"), pytest.param(0, id="no CPU: EDL never ended")])
def test_a_gpu_job_does_not_oscillate(cpu):
    one = job("job", 1, 10, 4, gpu=1, cpu=cpu, placed={"node-1": 4})
    old = Old({GPU: 9}, {GPU: 10, CPU: 10_000, MEMORY: 10}, load=0.97, idle_cpu=100)
    assert len(list(old.rounds([one], at_most=50))) == 50, "EDL grants a GPU and takes it back, round after round"

    world = World([node(cpu=10, gpu=10, used=amounts(gpu=5))], [one], options=AllocationOptions({GPU: 97}))
    plan = allocate(world.pool())
    assert plan.resizes == ()
    assert allocate(replace(world.pool(), options=AllocationOptions())).resizes[0].after == 5, (
        "the load is what keeps it"
    )


@pytest.mark.rule("TJ:D2")
def test_a_memory_bound_job_does_not_oscillate():
    one = job("job", 1, 10, 4, cpu=0, memory=105)
    old = Old({MEMORY: 880}, {MEMORY: 1000}, load=0.97)
    assert len(list(old.rounds([one], at_most=50))) == 50

    options = AllocationOptions({MEMORY: 97})
    world = World([node(memory=1000, used={MEMORY: 880 - 420})], [one], options=options)
    assert allocate(world.pool()).resizes == ()
    assert allocate(replace(world.pool(), options=AllocationOptions())).resizes[0].after == 5


@pytest.mark.rule("TJ:D3")
def test_the_least_fulfilled_is_always_next():
    jobs = [job("a", 1, 20, 2), job("b", 1, 10, 5)]
    old = Old({CPU: 7000}, {CPU: 13_000, MEMORY: 1})
    *_, ended = old.rounds(jobs, at_most=20)
    assert ended == {"a": 3, "b": 3}, "EDL grows every job in turn"
    assert settled(World([node(cpu=33, used=amounts(20))], jobs)).sizes() == {"a": 8, "b": 5}


@pytest.mark.rule("TJ:D4")
def test_the_first_job_does_not_keep_everything_if_rebalancing_is_enabled():
    jobs = [job("a", 2, 20, 20, rebalances=True), job("b", 2, 20, 2, rebalances=True)]
    assert not list(Old({CPU: 22_000}, {CPU: 22_000, MEMORY: 1}).rounds(jobs, at_most=5)), "EDL leaves it so for ever"
    world = World([node(cpu=22)], jobs)
    for _ in range(40):
        plan = allocate(world.pool())
        if not plan.resizes:
            break
        world = world.carried_out(plan)
    assert world.sizes() == {"a": 12, "b": 10}


@pytest.mark.rule("TJ:D4")
def test_the_first_job_releases_the_minimum_of_later_jobs():
    world = World([node(cpu=22)], [job("a", 2, 20, 20), job("b", 2, 20, 2)])
    world.add(job("c", 3, 6, 0))
    assert settled(world).sizes()["c"] == 3


@pytest.mark.rule("TJ:D5")
def test_an_external_pod_that_fits_no_node_drains_no_job():
    jobs = [job("a", 2, 20, 20), job("b", 2, 20, 15)]
    old = Old({CPU: 1_035_000}, {CPU: 40_000, MEMORY: 1})
    *_, ended = old.rounds(jobs, at_most=100)
    assert ended == {"a": -18, "b": -13}, "EDL takes every job to its minimum although it does not help"
    world = World([node(cpu=40)], jobs, external_pods=[external_pod(1000, priority=1_000_000)])
    assert resizes_of(allocate(world.pool())) == {"b": 5}, "and five free CPUs are still used"


@pytest.mark.rule("TJ:D5")
@pytest.mark.parametrize("is_gang", [pytest.param(True, id="a gang"), pytest.param(False, id="one that just begins")])
def test_a_job_that_fits_no_node_drains_no_other_job(is_gang):
    new = job("c", 1, 2, 0, cpu=1000, priority=9, is_gang=is_gang)
    plan = allocate(World([node(cpu=40)], [job("a", 2, 20, 20), job("b", 2, 20, 20), new]).pool())
    assert [one for one in plan.resizes if one.id.name != "c"] == []
    assert waiting_of(plan) == {"c": UNSATISFIABLE}


@pytest.mark.rule("TJ:D6")
def test_only_a_job_that_holds_a_gpu_releases_one():
    jobs = [job("cpu-only", 1, 10, 10), job("gpu", 1, 8, 1, gpu=8)]
    old = Old({GPU: 10, CPU: 11_000}, {GPU: 8, CPU: 11_000, MEMORY: 1})
    *_, ended = old.rounds(jobs, at_most=50)
    assert ended["cpu-only"] == -9, "EDL drains the one that holds no GPU"
    world = World([node(cpu=11, gpu=8)], [*jobs, job("new", 1, 2, 0, gpu=2)])
    plan = allocate(world.pool())
    assert plan.resizes == ()
    assert "new" in waiting_of(plan)


@pytest.mark.rule("TJ:D7")
def test_free_gpus_on_two_nodes_do_not_add_up_for_one_pod():
    world = World(
        [node("one", cpu=32, gpu=8, used=amounts(gpu=2)), node("two", cpu=32, gpu=8, used=amounts(gpu=2))],
        [job("job", 1, 4, 2, gpu=4)],
    )
    assert world.rooms()["one"][GPU] == world.rooms()["two"][GPU] == 2
    plan = allocate(world.pool())
    assert plan.resizes == ()
    assert [(one.reason, one.is_below_floor) for one in plan.waiting] == [(FRAGMENTED, False)]


@pytest.mark.rule("TJ:D8")
def test_a_job_below_its_minimum_is_served_before_any_score():
    jobs = [job("a", 3, 6, 1, created_at="2026-02-02T00:00:00Z"), job("b", 1, 100, 1)]
    plan = allocate(World([node(cpu=4)], jobs).pool())
    assert [(one.id.name, one.after, one.reason) for one in plan.resizes] == [("a", 3, REACHING_MINIMUM)]


@pytest.mark.rule("TJ:D9")
def test_growth_has_pods():
    """Fork D froze a Job's completions at the minimum; here the job's controller makes a pod for each that is granted."""
    world = JobWorld()
    world.settle().run()
    assert world.trainers == [0, 1]
    world.resize(4)
    assert world.settle().trainers == [0, 1, 2, 3]


@pytest.mark.rule("TJ:D10")
@pytest.mark.parametrize(
    ("floor", "ceiling", "expected"),
    [
        pytest.param(2, 3, 3, id="a lower maximum takes the surplus"),
        pytest.param(7, 8, 8, id="a higher minimum is reached"),
        pytest.param(5, 5, 5, id="bounds around what it has change nothing"),
    ],
)
def test_new_bounds_count_at_the_next_plan(floor, ceiling, expected):
    world = World([node(cpu=10)], [job("job", 2, 5, 5)])
    assert allocate(world.pool()).resizes == ()
    assert settled(world.changed(job={"floor": floor, "ceiling": ceiling})).sizes()["job"] == expected


@pytest.mark.rule("TJ:D10", "TJ:3.6b")
def test_a_job_above_a_new_maximum_shrinks_at_once_even_in_a_cooldown():
    world = World([node(cpu=10)], [job("job", 1, 4, 6, may_shrink=False)])
    (only,) = allocate(world.pool()).resizes
    assert (only.after, only.reason) == (4, ABOVE_MAXIMUM)


@pytest.mark.rule("TJ:D10")
def test_a_plan_that_was_carried_out_halfway_is_carried_on():
    """There is no memory to lose: after a restart the rest of the plan is made again from what there is."""
    world = World([node(cpu=8)], [job("a", 1, 8, 8), job("c", 3, 3, 0, is_gang=True)])
    whole = allocate(world.pool())
    first_only = replace(whole, resizes=whole.resizes[:1])
    assert [one.id.name for one in first_only.resizes] == ["a"]
    halfway = world.carried_out(first_only)
    assert settled(halfway).sizes() == world.carried_out(whole).sizes() == {"a": 5, "c": 3}


@pytest.mark.rule("TJ:D10")
def test_jobs_of_one_name_in_two_namespaces_are_two_jobs():
    world = World([node(cpu=6)], [job("job", 1, 2, 1, namespace="one"), job("job", 1, 4, 1, namespace="two")])
    plan = allocate(world.pool())
    assert {(one.id.namespace, one.after) for one in plan.resizes} == {("one", 2), ("two", 4)}
    assert id_of("job", "one") in {one.id for one in plan.resizes}


@pytest.mark.rule("TJ:4", "TJ:D5")
def test_a_pod_that_no_node_can_hold_keeps_no_node_free_for_itself():
    toleration = PodToleration("dedicated", "Equal", "training", "")
    taint = Taint("dedicated", "training", "NoSchedule")
    nodes = (
        Node("node-0", {"cpu": 3000, "pods": 110}),
        Node("node-1", {"cpu": 7000, "pods": 110}, {"cpu": 2500}, charged={"cpu": 2500}, taints=(taint,)),
    )
    shape = Shape({"cpu": 2000, "pods": 1}, {"cpu": 2000}, PodConstraints(tolerations=(toleration,)))
    gang = replace(job("job-0", 1, 2, 0), shape=shape, is_gang=True)
    pool = ClusterSnapshot(nodes=nodes, participants=(gang,))
    assert allocate(replace(pool, external_pods=(external_pod(50, priority=1000),))) == allocate(pool)
