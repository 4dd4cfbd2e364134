"""Which instances are removed for which claim: victims by node, priorities, several donors, GPUs, pools apart."""

from collections import Counter
from dataclasses import replace

import pytest

from raytide.api.pod_requirements import CPU
from raytide.api.sharing_record import REBALANCED, RECLAIMED
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import AllocationOptions
from support.elastic_builders import (
    LeavingPod,
    World,
    external_pod,
    id_of,
    job,
    master,
    node,
    resizes_of,
    shape,
    waiting_of,
)

EAST, WEST = (("pool", "east"),), (("pool", "west"),)


def round_robin(count: int, nodes: int) -> list[str]:
    """Trainers placed in turn, as kube-scheduler spreads them."""
    return [f"node-{number % nodes}" for number in range(count)]


def carried_out(world: World, passes: int = 20) -> World:
    """The world in which nothing more is to be done."""
    for _ in range(passes):
        plan = allocate(world.pool())
        if not plan.resizes:
            return world
        world = world.carried_out(plan)
    raise AssertionError("the plans do not end")


def on(name: str, **more):
    """A job whose pods may run in one pool only."""
    return {"shape": shape(more.pop("cpu", 1), node_selector=((("pool", name)),)), **more}


# --- preemptionPolicy: Never ---------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:TJ3-7")
def test_a_job_that_may_not_preempt_takes_what_is_free_and_what_others_are_about_to_leave():
    """The two that it lacks are there once the pods of the last scale-down are gone."""
    never = job("never", 3, 9, 0, priority=9, is_gang=True, may_preempt=False)
    world = World([node(cpu=6)], [job("low", 1, 9, 3), never])
    world.leaving = (LeavingPod("node-1", shape(2)),)
    assert resizes_of(allocate(world.pool())) == {"never": 3}


@pytest.mark.rule("FD:TJ3-7")
def test_a_job_that_may_not_preempt_leaves_others_of_its_priority_what_they_may_take():
    """The search for donors is not given up for equals, for which it was not tried."""
    equals = [job("never", 1, 4, 1, priority=5, may_preempt=False), job("usual", 1, 4, 1, priority=5)]
    world = World(
        [node(cpu=8)], [*(replace(each, rebalances=True) for each in equals), job("low", 1, 6, 6, rebalances=True)]
    )
    assert resizes_of(allocate(world.pool())) == {"low": -3, "usual": 3}


@pytest.mark.rule("FD:TJ3-7")
def test_own_trainers_leave_for_the_master_of_a_job_that_may_not_preempt():
    """Without a master they are of no use; no other job gives."""
    own = job("own", 1, 4, 3, priority=9, may_preempt=False)
    world = World([node(cpu=4)], [job("other", 1, 4, 1), own])
    world.jobs[own.id].job = replace(own, core=(master(1),))
    world.jobs[own.id].cores = {"master": [""]}
    assert resizes_of(allocate(world.pool())) == {"own": -1}


# --- nodes that are not usable -------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:TJ3-8")
@pytest.mark.parametrize(
    ("more", "left"),
    [
        pytest.param({"ceiling": 4}, {"usable": 4}, id="above the maximum"),
        pytest.param({"ceiling": 2}, {"usable": 2}, id="more than are there"),
        pytest.param({"sizes": (1, 4, 12)}, {"usable": 4}, id="a size that is not allowed"),
    ],
)
def test_trainers_on_a_cordoned_node_leave_first(more, left):
    """mpi-operator#410: the emptiest node was emptied, and trainers that a drain ends next were kept."""
    own = replace(job("a", 1, 12, 9), **more)
    world = World([node("cordoned", cpu=5, is_usable=False), node("usable", cpu=4)], [own])
    world.jobs[own.id].trainers = ["usable"] * 4 + ["cordoned"] * 5
    plan = allocate(world.pool())
    assert Counter(world.carried_out(plan).jobs[own.id].trainers) == left


@pytest.mark.rule("FD:TJ3-8", "TJ:7.5")
def test_trainer_0_on_a_cordoned_node_leaves_last():
    own = job("a", 1, 2, 6)
    world = World([node("cordoned", cpu=16, is_usable=False), node("usable", cpu=16)], [own])
    world.jobs[own.id].trainers = ["cordoned"] * 3 + ["usable"] * 3
    assert allocate(world.pool()).resizes[0].nodes == {"cordoned": -2, "usable": -2}


@pytest.mark.rule("FD:TJ3-8", "TJ:3.15")
def test_for_the_load_limit_a_donor_shrinks_where_that_counts():
    """What it has on a cordoned node counts in no sum, and would end in vain."""
    donor, receiver = job("a", 1, 9, 6, rebalances=True), job("b", 1, 9, 1, priority=1, rebalances=True)
    nodes = [node("cordoned", cpu=8, is_usable=False), node("usable", cpu=8)]
    world = World(nodes, [donor, receiver], options=AllocationOptions({CPU: 50}))
    world.jobs[donor.id].trainers = ["usable"] * 3 + ["cordoned"] * 3
    world.jobs[receiver.id].trainers = ["usable"]
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"a": -2, "b": 2}
    assert plan.resizes[0].nodes == {"usable": -2}


# --- trainer 0 -----------------------------------------------------------------------------------------------------------


def two_full_nodes(ceiling: int = 16, **more) -> World:
    """Of each of two jobs, half of the trainers are on each node, trainer 0 on different ones; a gang needs one node."""
    world = World([node(f"node-{n}", cpu=64, gpu=8) for n in range(2)])
    for number in range(2):
        world.add(job(f"small-{number}", 1, ceiling, 8, gpu=1, **more))
        world.jobs[id_of(f"small-{number}")].trainers = [f"node-{number}", *round_robin(8, 2)[1 - number :][:7]]
    world.add(job("large", 1, 1, 0, gpu=8))
    return world


@pytest.mark.rule("FD:TJ3-4", "TJ:7.5")
def test_a_gang_that_only_trainer_0_of_another_job_keeps_from_a_node_is_told_so():
    """All minimums fit, and it never starts: without trainer 0 it would get the node with the lower rank."""
    world = two_full_nodes()
    assert Counter(world.jobs[id_of("small-1")].trainers) == {"node-0": 4, "node-1": 4}
    plan = allocate(world.pool())
    assert (plan.resizes, waiting_of(plan)) == ((), {"large": "HeldByRankZero"})
    assert plan.waiting[0].message == (
        "needs 1 x (8 nvidia.com/gpu and 1 cpu) to reach its minimum of 1, held by trainer 0 of default/small-0 on node node-0, "
        "which ends only with its job"
    )


@pytest.mark.rule("FD:TJ3-4")
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"may_shrink": False}, "HeldByRankZero", id="a cooldown is over before trainer 0 goes"),
        pytest.param({"priority": 9}, "InsufficientGPU", id="of a higher priority all would stay"),
        pytest.param({"is_scaling_enabled": False}, "InsufficientGPU", id="scaling is disabled"),
    ],
)
def test_trainer_0_is_named_only_if_nothing_else_is_in_the_way(more, reason):
    assert waiting_of(allocate(two_full_nodes(**more).pool())) == {"large": reason}


@pytest.mark.rule("FD:TJ3-4")
def test_a_node_without_a_trainer_0_is_freed():
    world = two_full_nodes()
    world.jobs[id_of("small-1")].trainers = ["node-0", *["node-1"] * 4, *["node-0"] * 3]
    assert resizes_of(allocate(world.pool())) == {"small-0": -4, "small-1": -4, "large": 1}


# --- victims by node -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:SH-B3")
def test_one_gpu_node_is_freed_by_the_eight_trainers_that_run_there():
    """40 one-GPU trainers on five nodes of eight, then one trainer of eight: it cost 36 of them (40→4)."""
    small = job("small", 1, 40, 40, gpu=1)
    world = World([node(f"node-{n}", cpu=64, gpu=8) for n in range(5)], [small])
    world.jobs[id_of("small")].trainers = round_robin(40, 5)
    world.add(job("large", 1, 1, 0, gpu=8))
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"small": -8, "large": 1}
    (shrink, growth) = plan.resizes
    assert set(shrink.nodes.values()) == {-8}
    assert set(shrink.nodes) == set(growth.nodes)


@pytest.mark.rule("FD:SH-B3")
def test_four_jobs_give_the_eight_trainers_of_one_node():
    """It cost 20 trainers: each job's last ones were on other nodes."""
    world = World([node(f"node-{n}", cpu=64, gpu=8) for n in range(4)])
    for number in range(4):
        world.add(job(f"small-{number}", 1, 8, 8, gpu=1))
        world.jobs[id_of(f"small-{number}")].trainers = round_robin(8, 4)
    world.add(job("large", 1, 1, 0, gpu=8))
    plan = allocate(world.pool())
    assert sum(one.before - one.after for one in plan.resizes if one.after < one.before) == 8
    assert len({name for one in plan.resizes if one.after < one.before for name in one.nodes}) == 1


@pytest.mark.rule("FD:SH-B3")
def test_only_the_trainer_on_the_node_that_the_claimant_may_use_is_removed():
    """Removing by index removed 19 of 20: trainer 1 was on that node."""
    nodes = [node("west", cpu=19, labels={"pool": "west"}), node("east", cpu=1, labels={"pool": "east"})]
    world = World(nodes, [job("a", 1, 20, 20)])
    world.jobs[id_of("a")].trainers = ["west", "east", *["west"] * 18]
    world.add(job("new", 1, 1, 0, is_gang=True, **on("east")))
    (shrink, _) = allocate(world.pool()).resizes
    assert (shrink.before, shrink.after, dict(shrink.nodes)) == (20, 19, {"east": -1})


@pytest.mark.rule("TJ:7.5")
def test_trainer_0_is_not_removed_for_another_job():
    world = World([node("west", cpu=3), node("east", cpu=1, labels={"pool": "east"})], [job("a", 1, 4, 4)])
    world.jobs[id_of("a")].trainers = ["east", "west", "west", "west"]
    world.add(job("new", 1, 1, 0, is_gang=True, **on("east")))
    plan = allocate(world.pool())
    assert (plan.resizes, set(waiting_of(plan))) == ((), {"new"})


def test_of_nodes_that_cost_as_much_the_best_off_donor_gives():
    world = World([node("a", cpu=4), node("b", cpu=4)], [job("poor", 1, 9, 4), job("rich", 1, 5, 4)])
    world.add(job("new", 1, 1, 0, is_gang=True))
    assert resizes_of(allocate(world.pool())) == {"rich": -1, "new": 1}


def test_fewer_victims_come_before_the_best_off_donor():
    """The rich job would give two trainers of one CPU, the other one gives a single trainer of two."""
    world = World([node("a", cpu=4), node("b", cpu=4)], [job("rich", 0, 4, 4), job("poor", 0, 9, 2, cpu=2)])
    world.add(job("new", 1, 1, 0, cpu=2, is_gang=True))
    assert resizes_of(allocate(world.pool())) == {"poor": -1, "new": 1}


# --- priority --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:SH-B4", "TJ:7.11")
@pytest.mark.parametrize(
    ("priority", "sizes"),
    [
        pytest.param(0, {"a": 12, "b": 12}, id="the same priority"),
        pytest.param(1000, {"a": 4, "b": 20}, id="a higher one"),
        pytest.param(-1, {"a": 20, "b": 4}, id="a lower one"),
    ],
)
def test_a_higher_priority_makes_no_job_smaller(priority, sizes):
    """Two jobs of 4 to 20 on 24 CPUs, the second one came late; it stayed at 4 with the higher priority."""
    jobs = [job("a", 4, 20, 20, rebalances=True), job("b", 4, 20, 4, rebalances=True, priority=priority)]
    assert carried_out(World([node(cpu=24)], jobs)).sizes() == sizes


@pytest.mark.rule("FD:SH-B4")
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"rebalances": False}, id="excluded from rebalancing"),
        pytest.param({"may_shrink": False}, id="in its cooldown"),
        pytest.param({"is_settled": False}, id="while its last resize is under way"),
        pytest.param({"is_scaling_enabled": False}, id="with scaling disabled"),
    ],
)
def test_a_lower_priority_gives_nothing_above_the_minimum_of_others(more):
    jobs = [job("a", 4, 20, 20, **{"rebalances": True, **more}), job("b", 4, 20, 4, rebalances=True, priority=9)]
    assert allocate(World([node(cpu=24)], jobs).pool()).resizes == ()


@pytest.mark.rule("FD:SH-B4")
def test_the_message_names_the_priority():
    jobs = [job("a", 4, 6, 6, rebalances=True), job("b", 4, 6, 4, rebalances=True, priority=9)]
    shrink, growth = allocate(World([node(cpu=10)], jobs).pool()).resizes
    assert (shrink.reason, shrink.message) == (REBALANCED, "ScaledDown 6→4 for default/b, which has a higher priority")
    assert growth.message == "ScaledUp 4→6 with capacity from other jobs, as soon as terminating pods are gone"


# --- what others do elsewhere ----------------------------------------------------------------------------------------------


def two_pools(*others, **more) -> World:
    """A job of 20 and one of 4 trainers in the east, whatever is given in the west."""
    nodes = [node("east", cpu=24, labels={"pool": "east"}), node("west", cpu=12, labels={"pool": "west"})]
    jobs = [job(name, 4, 20, size, rebalances=True, **on("east", **more)) for name, size in (("a", 20), ("b", 4))]
    return World(nodes, [*jobs, *others])


@pytest.mark.rule("FD:SH-B5")
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(job("hopeless", 30, 30, 30, **on("west")), id="a job that waits for its minimum for ever"),
        pytest.param(job("new", 2, 9, 0, is_gang=True, **on("west")), id="a job that is admitted"),
        pytest.param(job("moving", 2, 9, 4, is_settled=False, may_grow=False, **on("west")), id="a resize under way"),
        pytest.param(job("cut", 1, 2, 4, **on("west")), id="a job above its maximum"),
    ],
)
def test_what_happens_in_another_pool_stops_no_rebalancing(other):
    world = two_pools(other)
    resizes = resizes_of(allocate(world.pool()))
    assert (resizes["a"], resizes["b"]) == (-8, 8)


@pytest.mark.rule("FD:SH-B8", "TJ:D5")
def test_a_pending_pod_that_no_node_can_hold_makes_no_pools_one():
    """The sum of limits of the west, with its 12 CPUs, counts for the west alone."""
    growing = job("growing", 1, 8, 1, shape=shape(1, limits={"cpu": 4000}, node_selector=WEST))
    nodes = [node(name, cpu=cpu, labels={"pool": name}) for name, cpu in (("east", 40), ("west", 12))]
    world = World(nodes, [growing, job("fixed", 4, 4, 4, **on("east"))])
    alone = allocate(world.pool())
    world.external_pods = (external_pod(50, priority=1000),)
    assert resizes_of(alone)["growing"] == 2
    assert allocate(world.pool()) == alone


@pytest.mark.rule("FD:SH-B8", "TJ:D5")
def test_nor_does_one_that_only_a_node_could_hold_that_it_may_not_use():
    """Such a pod made the two nodes in the west one pool, but only while a larger node existed elsewhere."""
    growing = job("growing", 1, 8, 1, shape=shape(1, limits={"cpu": 4000}, node_selector=WEST))
    nodes = [
        node("west", cpu=12, labels={"pool": "west", "side": "west"}),
        node("farther", cpu=12, labels={"side": "west"}),
    ]
    hopeless = replace(external_pod(20, priority=1000), shape=shape(20, node_selector=(("side", "west"),)))
    sizes = []
    for others in ([], [node("east", cpu=40, labels={"pool": "east"})]):
        world = World([*nodes, *others], [growing])
        world.external_pods = (hopeless,)
        sizes.append(resizes_of(allocate(world.pool())))
    assert sizes == [{"growing": 2}, {"growing": 2}]


@pytest.mark.rule("FD:SH-B8")
def test_no_trainer_of_another_pool_is_removed_for_a_sum_of_limits():
    """The job in the east has the highest score of all: it shrank, although nothing of that counts in the west."""
    limited = shape(1, limits={"cpu": 2000}, node_selector=WEST)
    nodes = [node(name, cpu=cpu, labels={"pool": name}) for name, cpu in (("east", 24), ("west", 12))]
    jobs = [
        job("east", 1, 20, 20, rebalances=True, **on("east")),
        job("ahead", 1, 6, 5, rebalances=True, shape=limited),
        job("behind", 1, 6, 1, rebalances=True, shape=limited),
    ]
    assert resizes_of(allocate(World(nodes, jobs).pool())) == {"ahead": -2, "behind": 2}


@pytest.mark.rule("FD:SH-B5")
def test_no_trainer_is_removed_if_a_pending_pod_would_take_the_freed_capacity():
    """kube-scheduler gives the freed capacity to the pod that waits already."""
    waiting = job("waiting", 30, 30, 30, **on("east"))
    assert {"a", "b"}.isdisjoint(resizes_of(allocate(two_pools(waiting).pool())))
    crowded = two_pools()
    crowded.external_pods = (external_pod(1, priority=-10),)
    assert {"a", "b"}.isdisjoint(resizes_of(allocate(crowded.pool()))) or crowded.rooms()["west"]["cpu"] > 0


@pytest.mark.rule("FD:SH-B5")
def test_a_pending_pod_that_needs_more_than_is_freed_stops_nothing():
    world = two_pools(job("large", 30, 30, 30, **on("east", cpu=20)))
    world = world.changed(a={"uses_limits": False}, b={"uses_limits": False})
    resizes = resizes_of(allocate(world.pool()))
    assert (resizes["a"], resizes["b"]) == (-8, 8)


# --- several donors, GPUs --------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:SH-B10")
@pytest.mark.parametrize(
    ("size", "moved"),
    [
        pytest.param(3, {"large": 1, **{f"small-{n}": -2 for n in range(4)}}, id="down to more than the receiver has"),
        pytest.param(2, {}, id="not to what it has, or less"),
    ],
)
def test_several_donors_give_together(size, moved):
    """A job of 8-GPU trainers at score 0 was stuck while four jobs had two GPUs each on a node: no single one was enough."""
    world = World([node("a", cpu=64, gpu=8), node("b", cpu=64, gpu=8), node("c", cpu=64, gpu=4 * (size - 2))])
    world.add(job("large", 1, 3, 1, gpu=8, rebalances=True))
    for number in range(4):
        world.add(job(f"small-{number}", 0, 4, size, gpu=1, rebalances=True))
        world.jobs[id_of(f"small-{number}")].trainers = (["c"] if size == 3 else []) + ["b", "b"]
    assert resizes_of(allocate(world.pool())) == moved


@pytest.mark.rule("FD:SH-B3")
def test_one_victim_goes_where_both_pods_fit_then():
    """Where only one of them fitted, the next one cost two more (a property with the seed 182858013)."""
    world = World([node("a", cpu=4), node("b", cpu=4), node("c", cpu=6)])
    world.add(job("small", 1, 5, 4))
    world.add(job("large", 2, 6, 3, cpu=3))
    world.jobs[id_of("small")].trainers = ["a"] * 4
    world.jobs[id_of("large")].trainers = ["c", "b", "c"]
    world.add(job("new", 2, 4, 0, cpu=2, is_gang=True))
    plan = allocate(world.pool())
    victims = [(one.id.name, one.nodes) for one in plan.resizes if one.reason == RECLAIMED]
    assert victims == [("large", {"b": -1})]
    assert resizes_of(plan)["new"] == 2


@pytest.mark.rule("FD:SH-B10")
def test_the_most_that_one_instance_costs_is_an_option():
    """Eight one-GPU trainers for one of eight GPUs, and none if it may cost seven."""
    world = World([node(n, cpu=64, gpu=8) for n in "abc"], [job("large", 1, 3, 1, gpu=8, rebalances=True)])
    world.jobs[id_of("large")].trainers = ["a"]
    world.add(job("small", 1, 16, 16, gpu=1, rebalances=True))
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"small": -8, "large": 1}
    world.options = replace(world.options, victims_per_instance=7)
    assert allocate(world.pool()).resizes == ()


@pytest.mark.rule("FD:SH-B13")
@pytest.mark.parametrize("first", [pytest.param(1, id="both new"), pytest.param(32, id="the CPU job was first")])
def test_no_gpu_stays_idle_because_another_job_holds_the_cpus(first):
    """A CPU job of 2 to 60 and a GPU job of 1 to 8 x (1 GPU, 4 CPUs): four of eight GPUs were idle."""
    nodes = [node("cpu", cpu=8), node("gpu", cpu=32, gpu=8)]
    jobs = [job("cpus", 2, 60, max(2, first), rebalances=True), job("gpus", 1, 8, 0, cpu=4, gpu=1, rebalances=True)]
    sizes = carried_out(World(nodes, jobs)).sizes()
    assert sizes == {"cpus": 8, "gpus": 8}


@pytest.mark.rule("FD:SH-B13")
def test_a_cpu_job_takes_no_gpu_trainer():
    jobs = [job("gpus", 1, 8, 8, cpu=4, gpu=1, rebalances=True), job("cpus", 0, 60, 0, rebalances=True)]
    assert allocate(World([node(cpu=32, gpu=8)], jobs).pool()).resizes == ()


# --- plans of plans --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:4")
def test_the_reason_of_each_shrink_is_the_best_of_its_claims():
    world = World([node(cpu=10)], [job("a", 1, 9, 9, rebalances=True), job("b", 1, 9, 1, rebalances=True)])
    world.add(job("new", 1, 1, 0, is_gang=True))
    plan = allocate(world.pool())
    shrinks = {one.id.name: one for one in plan.resizes if one.after < one.before}
    assert shrinks["a"].reason == RECLAIMED
    assert Counter(one.id.name for one in plan.resizes)["a"] == 1
