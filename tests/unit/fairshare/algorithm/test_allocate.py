"""Rules beyond the vectors of TJ §4: priority, cooldowns, quotas, load, steps, companions, transitions."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from raytide.api.pod_requirements import CPU, PodConstraints, PodToleration
from raytide.api.sharing_record import (
    ABOVE_MAXIMUM,
    ADMITTED,
    CREATION_FORBIDDEN,
    GROWING,
    REACHING_MINIMUM,
    RECLAIMED,
)
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import (
    COOLING_DOWN,
    FRAGMENTED,
    HIGHER_PRIORITY,
    INSUFFICIENT,
    INSUFFICIENT_GPU,
    MEMORY,
    QUOTA_EXCEEDED,
    UNSATISFIABLE,
    Allocation,
    AllocationOptions,
    ClusterSnapshot,
    Node,
    Shape,
    Taint,
)
from support.elastic_builders import (
    GPU,
    World,
    amounts,
    companion,
    external_pod,
    id_of,
    job,
    master,
    node,
    quota,
    resizes_of,
    shape,
    waiting_of,
)

GIB = 1 << 30


def plan_of(world: World) -> Allocation:
    return allocate(world.pool())


@pytest.mark.rule("FD:TJ3-2")
@pytest.mark.parametrize(("sizes", "after"), [((), 5), ((2, 4, 6, 8), 6)], ids=["any size", "rounded up"])
def test_a_requested_size_is_reached_and_not_exceeded(sizes, after):
    asking = job("a", 2, 8, 2, sizes=sizes, grows_to=5)
    (resize,) = plan_of(World([node(cpu=8)], [asking])).resizes
    assert (resize.before, resize.after, resize.reason) == (2, after, GROWING)


def reasons_of(plan: Allocation) -> dict[str, tuple[str, bool]]:
    return {one.id.name: (one.reason, one.is_below_floor) for one in plan.waiting}


def message_of(plan: Allocation, name: str) -> str:
    return next(one.message for one in plan.waiting if one.id.name == name)


# --- words -----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.6a")
def test_the_message_of_a_shrink_names_the_receiving_job_and_its_purpose():
    world = World([node(cpu=8)], [job("a", 1, 8, 8), job("other", 2, 4, 0, is_gang=True)])
    shrink, growth = plan_of(world).resizes
    assert (shrink.message, shrink.reason) == (
        "ScaledDown 8→6 for default/other, which needs 2 to reach its minimum",
        RECLAIMED,
    )
    assert (shrink.for_id, shrink.is_released) == (id_of("other"), True)
    assert growth.message == "Admitted with 2: its minimum of 2 fits, as soon as terminating pods are gone"
    assert (growth.reason, growth.is_released) == (ADMITTED, False)


@pytest.mark.rule("FD:REL-11", "TJ:3.8")
def test_a_victim_whose_node_does_not_get_enough_capacity_keeps_its_size():
    """The victim of the lowest priority shrinks first, but its minimum fills the node; the other one's node suffices."""
    jobs = [job("kept", 3, 4, 4), job("victim", 0, 1, 1, cpu=4, priority=1)]
    world = World([node("a", cpu=4), node("b", cpu=4)], jobs)
    world.add(job("claimant", 1, 1, 0, cpu=4, is_gang=True, priority=1))
    assert resizes_of(plan_of(world)) == {"victim": -1, "claimant": 1}


@pytest.mark.rule("FD:REL-11", "TJ:7.8")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({}, INSUFFICIENT, id="of capacity"),
        pytest.param(
            {"pods_to_create": 1, "is_forbidden": True}, CREATION_FORBIDDEN, id="of the API server's rejection"
        ),
    ],
)
def test_a_job_with_pods_that_have_no_node_does_not_grow_because(fields, reason):
    pool = World([node(cpu=2)], [job("a", 1, 9, 3)]).pool()
    plan = allocate(replace(pool, participants=tuple(replace(one, **fields) for one in pool.participants)))
    assert (plan.resizes, reasons_of(plan)) == ((), {"a": (reason, False)})


@pytest.mark.rule("TJ:4")
def test_the_master_of_a_job_with_a_minimum_of_0_gets_a_node():
    """It was no claim, so it waited for ever, or took what another job had been scaled down for."""
    world = World([node(cpu=4)], [job("donor", 1, 4, 4)])
    world.add(job("small", 0, 2, 0, core=(master(1),), created_at="2025-01-01T00:00:00Z"))
    assert resizes_of(plan_of(world)) == {"donor": -1}


def test_one_shrink_for_two_claimants_names_both():
    claimants = [job(name, 1, 2, 0, is_gang=True) for name in ("b", "c")]
    shrink = plan_of(World([node(cpu=8)], [job("a", 1, 8, 8), *claimants])).resizes[0]
    assert (shrink.before, shrink.after, shrink.for_id) == (8, 6, id_of("b"))
    assert shrink.message == (
        "ScaledDown 8→6 for default/b, which needs 1 to reach its minimum, "
        "and for default/c, which needs 1 to reach its minimum"
    )


@pytest.mark.parametrize(
    ("world", "reason", "message"),
    [
        pytest.param(
            World([node(cpu=8, gpu=1, used=amounts(gpu=1))], [job("a", 1, 2, 0, gpu=1)]),
            INSUFFICIENT_GPU,
            f"needs 1 {GPU} free on one node; the best node has 0 free, to reach its minimum of 1",
            id="GPUs are named",
        ),
        pytest.param(
            World(
                [node(cpu=8, memory=4 * GIB, used={MEMORY: 3 * GIB})], [job("a", 1, 2, 0, memory=2 * GIB, is_gang=True)]
            ),
            INSUFFICIENT,
            "needs 2Gi memory free on one node; the best node has 1Gi free, to reach its minimum of 1",
            id="memory is spelled as Kubernetes does",
        ),
        pytest.param(
            World([node(cpu=1, used=amounts(cpu=0.5))], [job("a", 1, 2, 0, cpu=0.75, is_gang=True)]),
            INSUFFICIENT,
            "needs 750m cpu free on one node; the best node has 500m free, to reach its minimum of 1",
            id="CPU is spelled as Kubernetes does",
        ),
        pytest.param(
            World([node(cpu=2, gpu=1), node("two", cpu=2, gpu=1)], [job("a", 1, 2, 0, gpu=2)]),
            UNSATISFIABLE,
            f"needs 2 {GPU} on one node; the largest node has 1, to reach its minimum of 1",
            id="no node is that large",
        ),
        pytest.param(
            World([node(cpu=2)], [job("a", 1, 2, 0, shape=shape(1, node_selector=(("gpu", "yes"),)), is_gang=True)]),
            UNSATISFIABLE,
            "no node matches its node selector, affinity and tolerations, to reach its minimum of 1",
            id="no node is of that kind",
        ),
        pytest.param(
            World([], [job("a", 1, 2, 0, is_gang=True)]),
            UNSATISFIABLE,
            "there are no nodes, to reach its minimum of 1",
            id="there is no node",
        ),
        pytest.param(
            World([node(cpu=9, is_usable=False)], [job("a", 1, 2, 0, is_gang=True)]),
            INSUFFICIENT,
            "needs 1 cpu on one node; no node that it may use is ready, to reach its minimum of 1",
            id="the only node is cordoned",
        ),
        pytest.param(
            World(
                [node(cpu=1), node("two", cpu=1), node("three", cpu=2, used=amounts(cpu=2))],
                [job("a", 1, 2, 0, cpu=2, is_gang=True)],
            ),
            FRAGMENTED,
            "needs 2 cpu free on one node; the best node has 1 free, to reach its minimum of 1",
            id="the sum would do",
        ),
        pytest.param(
            World([node(cpu=8, gpu=4, used=amounts(gpu=4))], [job("a", 3, 4, 0, gpu=1)]),
            INSUFFICIENT_GPU,
            f"needs 3 x 1 {GPU} free, each on one node; the best node has 0 free, to reach its minimum of 3",
            id="a gang names what all of it needs: one free GPU would not help",
        ),
        pytest.param(
            World([node(cpu=3)], [job("a", 2, 2, 0, cpu=2, is_gang=True)]),
            INSUFFICIENT,
            "needs capacity for 2 x (2 cpu); 1 fit, to reach its minimum of 2",
            id="capacity for one of two",
        ),
    ],
)
def test_the_waiting_message_names_the_missing_resources(world, reason, message):
    plan = plan_of(world)
    assert plan.resizes == ()
    assert [(one.reason, one.message, one.is_below_floor) for one in plan.waiting] == [(reason, message, True)]


@pytest.mark.rule("FD:UX3-5")
@pytest.mark.parametrize(
    ("ceiling", "cpu", "gpu", "reason"),
    [
        pytest.param(24, 2, 0, INSUFFICIENT, id="one more of twenty would fit"),
        pytest.param(8, 2, 0, FRAGMENTED, id="one more of four would fit"),
        pytest.param(24, 1, 2, INSUFFICIENT_GPU, id="the resource that is scarcest in sum is named"),
    ],
)
def test_a_full_cluster_is_not_called_fragmented(ceiling, cpu, gpu, reason):
    """4 of 24 trainers ran, 1.75 of 48 CPUs were free on several nodes: "use smaller trainers, or move other pods"."""
    used = amounts(cpu=7, gpu=3 if gpu else 0)
    nodes = [node(name, cpu=8, gpu=4 if gpu else 0, used=used) for name in ("one", "two")]
    nodes.append(node("three", cpu=4 * cpu, gpu=4 * gpu))
    world = World(nodes, [job("a", 1, ceiling, 4, cpu=cpu, gpu=gpu)])
    world.jobs[id_of("a")].trainers = ["three"] * 4
    assert [each.reason for each in plan_of(world).waiting] == [reason]


@pytest.mark.rule("TJ:3.18")
def test_the_options_determine_which_resources_are_gpus():
    strange = Shape({CPU: 1000, "example.com/npu": 1})
    full = Node("one", {CPU: 4000, "example.com/npu": 1}, {"example.com/npu": 1})
    pool = ClusterSnapshot((full,), (job("a", 1, 2, 0, shape=strange, is_gang=True),))
    assert waiting_of(allocate(pool)) == {"a": INSUFFICIENT}
    options = AllocationOptions(gpus=frozenset({"example.com/npu"}))
    assert waiting_of(allocate(replace(pool, options=options))) == {"a": INSUFFICIENT_GPU}


def test_a_job_at_its_maximum_or_with_scaling_disabled_is_not_waiting():
    world = World([node(cpu=9)], [job("full", 1, 3, 3), job("alone", 1, 9, 1, is_scaling_enabled=False)])
    assert plan_of(world) == Allocation()


# --- priority ----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:7.11")
def test_jobs_of_higher_priority_grow_first():
    world = World([node(cpu=6)], [job("low", 1, 9, 1), job("high", 1, 3, 1, priority=1)])
    assert resizes_of(plan_of(world)) == {"high": 2, "low": 2}


@pytest.mark.rule("TJ:7.11")
@pytest.mark.rule("TJ:7.11", "TJ:6-380")
def test_jobs_of_higher_priority_get_their_minimum_first():
    gangs = [job("low", 2, 2, 0, is_gang=True), job("high", 2, 2, 0, is_gang=True, priority=1)]
    assert resizes_of(plan_of(World([node(cpu=3)], gangs))) == {"high": 2}


def test_older_jobs_get_their_minimum_first():
    gangs = [
        job("young", 2, 2, 0, is_gang=True, created_at="2026-01-02T00:00:00Z"),
        job("old", 2, 2, 0, is_gang=True, created_at="2026-01-01T00:00:00Z"),
    ]
    assert resizes_of(plan_of(World([node(cpu=3)], gangs))) == {"old": 2}


@pytest.mark.rule("TJ:4", "TJ:7.11")
def test_no_job_takes_from_a_job_of_higher_priority():
    world = World([node(cpu=4)], [job("high", 1, 4, 4, priority=1), job("new", 2, 2, 0, is_gang=True)])
    plan = plan_of(world)
    assert (plan.resizes, waiting_of(plan)) == ((), {"new": HIGHER_PRIORITY})
    assert message_of(plan, "new") == (
        "needs 2 x (1 cpu) to reach its minimum of 2, held by default/high, which has a higher priority"
    )


@pytest.mark.rule("TJ:7.11")
def test_a_low_priority_gives_before_a_better_off_high_one():
    jobs = [job("low", 1, 9, 3), job("mid", 1, 4, 4, priority=1), job("new", 1, 1, 0, priority=2, is_gang=True)]
    assert resizes_of(plan_of(World([node(cpu=7)], jobs))) == {"low": -1, "new": 1}


def test_a_higher_priority_does_not_take_what_is_below_a_floor():
    world = World([node(cpu=2)], [job("low", 2, 4, 2), job("new", 1, 1, 0, is_gang=True, priority=9)])
    assert plan_of(world).resizes == ()


# --- cool-downs --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:7.10")
def test_a_job_in_cooldown_releases_nothing_to_a_job_of_equal_priority():
    world = World([node(cpu=4)], [job("a", 1, 4, 4, may_shrink=False), job("new", 2, 2, 0, is_gang=True)])
    plan = plan_of(world)
    assert (plan.resizes, waiting_of(plan)) == ((), {"new": COOLING_DOWN})
    assert "held by default/a, which is in a cooldown" in message_of(plan, "new")


@pytest.mark.rule("TJ:7.10")
def test_a_higher_priority_does_not_wait_for_a_cool_down():
    world = World([node(cpu=4)], [job("a", 1, 4, 4, may_shrink=False), job("new", 2, 2, 0, is_gang=True, priority=1)])
    assert resizes_of(plan_of(world)) == {"a": -2, "new": 2}


@pytest.mark.rule("TJ:7.10")
def test_a_job_in_cooldown_does_not_grow_and_reports_the_cooldown():
    plan = plan_of(World([node(cpu=4)], [job("a", 1, 4, 1, may_grow=False)]))
    assert (plan.resizes, reasons_of(plan)) == ((), {"a": (COOLING_DOWN, False)})


@pytest.mark.rule("TJ:7.8", "TJ:7.10")
def test_a_job_in_cooldown_without_free_capacity_reports_insufficient_capacity():
    plan = plan_of(World([node(cpu=2)], [job("a", 1, 4, 2, may_grow=False)]))
    assert (plan.resizes, reasons_of(plan)) == ((), {"a": (INSUFFICIENT, False)})


@pytest.mark.rule("TJ:4")
@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        pytest.param(0, {}, id="of the same priority: kept"),
        pytest.param(-1, {}, id="of a lower priority: kept"),
        pytest.param(1, {"grower": 1}, id="of a higher priority: not kept"),
    ],
)
def test_no_job_grows_into_capacity_that_will_complete_a_claimants_minimum(priority, expected):
    """One is free and three will be when `a` has cooled down: growing now would be taken back then."""
    jobs = [
        job("a", 1, 4, 4, may_shrink=False),
        job("grower", 1, 9, 1, priority=priority),
        job("new", 3, 3, 0, is_gang=True),
    ]
    assert resizes_of(plan_of(World([node(cpu=6)], jobs))) == expected


@pytest.mark.rule("TJ:4", "TJ:3.10")
def test_capacity_that_no_claimant_could_use_is_not_left_idle():
    jobs = [job("fixed", 4, 4, 4), job("grower", 1, 9, 1), job("new", 6, 6, 0, is_gang=True)]
    plan = plan_of(World([node(cpu=7)], jobs))
    assert resizes_of(plan) == {"grower": 2}
    assert waiting_of(plan) == {"new": INSUFFICIENT}


# --- reclaim -----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.7")
def test_only_donors_on_nodes_that_the_claimant_may_use_shrink():
    in_east = shape(1, node_selector=(("zone", "east"),))
    nodes = [node("e", cpu=3, labels={"zone": "east"}), node("w", cpu=8, labels={"zone": "west"})]
    in_west = shape(1, node_selector=(("zone", "west"),))
    jobs = [
        job("west", 1, 8, 8, shape=in_west),
        job("east", 1, 9, 3, shape=in_east),
        job("new", 2, 2, 0, shape=in_east, is_gang=True),
    ]
    assert resizes_of(plan_of(World(nodes, jobs))) == {"east": -2, "new": 2}


@pytest.mark.rule("TJ:3.12")
def test_a_donor_whose_shrink_does_not_help_the_claimant_keeps_its_size():
    """Both have the highest score and hold CPU; only one of them has its pods on the node that can hold the claimant."""
    nodes = [node("one", cpu=4), node("two", cpu=2)]
    jobs = [
        job("a", 1, 4, 4, shape=shape(1, node_selector=())),
        job("b", 1, 2, 2),
        job("big", 1, 1, 0, cpu=3, is_gang=True),
    ]
    plan = plan_of(World(nodes, jobs))
    assert resizes_of(plan) == {"a": -3, "big": 1}


@pytest.mark.rule("FD:SH-B3")
def test_the_instance_on_the_claimants_node_is_removed_whatever_its_index():
    """The last index is on `two`, which the claimant may not use: removing by index removed both."""
    nodes = [node("one", cpu=2, labels={"zone": "east"}), node("two", cpu=1)]
    world = World(
        nodes, [job("a", 1, 3, 3), job("new", 1, 1, 0, shape=shape(1, node_selector=(("zone", "east"),)), is_gang=True)]
    )
    assert sorted(world.jobs[id_of("a")].trainers) == ["one", "one", "two"]
    shrink, _ = plan_of(world).resizes
    assert (shrink.after, dict(shrink.nodes)) == (2, {"one": -1})


def test_a_job_whose_pods_wait_for_the_same_capacity_shrinks_first():
    """`b` has a pod without a node: kube-scheduler would bind it to the capacity that `a` releases."""
    world = World(
        [node(cpu=4)], [job("a", 1, 4, 4), job("b", 0, 2, 1), job("new", 1, 1, 1, created_at="2026-02-02T00:00:00Z")]
    )
    assert resizes_of(plan_of(world)) == {"b": -1, "a": -1}


def test_gangs_have_nothing_before_they_have_all():
    plan = plan_of(World([node(cpu=3)], [job("gang", 4, 8, 0, is_gang=True)]))
    assert (plan.resizes, waiting_of(plan)) == ((), {"gang": INSUFFICIENT})


def test_pods_of_the_minimum_without_a_node_claim_capacity():
    world = World([node(cpu=4)], [job("a", 1, 4, 4), job("b", 2, 4, 2, created_at="2026-02-02T00:00:00Z")])
    (only,) = plan_of(world).resizes
    assert (only.id.name, only.after, only.for_id) == ("a", 2, id_of("b"))
    assert only.message == "ScaledDown 4→2 for default/b, which needs 2 to reach its minimum"


def test_a_minimum_of_nothing_needs_nothing():
    assert plan_of(World([], [job("a", 0, 0, 0, is_gang=True), job("b", 0, 0, 0)])).waiting == ()


# --- transitions -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.17", "TJ:4")
def test_no_further_donor_shrinks_while_terminating_pods_free_the_capacity():
    world = World([node(cpu=4)], [job("a", 1, 4, 4), job("new", 2, 2, 0, is_gang=True)])
    first = plan_of(world)
    during = world.resized(first, only_released=True, is_graceful=True)
    assert during.sizes() == {"a": 2, "new": 0}
    (promised,) = plan_of(during).resizes
    assert (promised.id, promised.after, promised.is_released) == (id_of("new"), 2, False)
    (released,) = plan_of(during.gone()).resizes
    assert (released.id, released.after, released.is_released) == (id_of("new"), 2, True)


def test_growth_is_released_as_far_as_capacity_is_free_now():
    leaving = Node("one", amounts(cpu=6), amounts(cpu=3), amounts(cpu=2))
    plan = allocate(ClusterSnapshot((leaving,), (job("a", 1, 9, 1, placed={"one": 1}),)))
    assert [(one.before, one.after, one.is_released) for one in plan.resizes] == [(1, 4, True), (4, 6, False)]


# --- quotas and load -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.14")
def test_growth_ends_where_a_quota_does():
    world = World([node(cpu=9)], [job("a", 1, 9, 1)], quotas=[quota(cpu=3000)])
    plan = plan_of(world)
    assert resizes_of(plan) == {"a": 2}
    assert plan.waiting[0].reason == QUOTA_EXCEEDED
    assert plan.waiting[0].message == "quota quota has 0 left of 1 cpu needed, to grow beyond 3"


@pytest.mark.rule("TJ:3.14")
@pytest.mark.parametrize(
    "free",
    [
        pytest.param({"pods": 3}, id="pods"),
        pytest.param({"limits.cpu": 6000}, id="limits"),
        pytest.param({"cpu": 9000, "pods": 3}, id="the tightest of two"),
    ],
)
def test_everything_a_quota_counts_counts(free):
    pool = World([node(cpu=9)], [job("a", 1, 9, 0, shape=shape(1, limits={CPU: 2000}), is_gang=True)]).pool()
    pool = replace(pool, quotas=(quota(**free),), options=AllocationOptions({CPU: 900}))
    assert resizes_of(allocate(pool)) == {"a": 3}


@pytest.mark.rule("TJ:3.14")
def test_no_donor_shrinks_for_a_gang_that_a_quota_rejects():
    jobs = [job("a", 1, 4, 4, namespace="one"), job("new", 2, 2, 0, is_gang=True, namespace="two")]
    plan = plan_of(World([node(cpu=4)], jobs, quotas=[quota("two", pods=1)]))
    assert (plan.resizes, waiting_of(plan)) == ((), {"new": QUOTA_EXCEEDED})


@pytest.mark.rule("TJ:3.14")
def test_no_donor_shrinks_for_pods_that_a_quota_does_not_let_be_created():
    pool = World([node(cpu=4)], [job("a", 1, 4, 4), job("b", 2, 4, 2, namespace="two", pods_to_create=2)]).pool()
    plan = allocate(replace(pool, quotas=(quota("two", pods=-2),)))
    assert (plan.resizes, waiting_of(plan)) == ((), {"b": QUOTA_EXCEEDED})


@pytest.mark.rule("TJ:3.14")
def test_pods_that_a_quota_lets_come_into_being_are_served():
    pool = World([node(cpu=4)], [job("a", 1, 4, 4), job("b", 2, 4, 2, namespace="two", pods_to_create=2)]).pool()
    assert resizes_of(allocate(replace(pool, quotas=(quota("two", pods=0),)))) == {"a": -2}


@pytest.mark.rule("TJ:3.14")
def test_quotas_of_other_namespaces_do_not_limit_a_job():
    world = World([node(cpu=4)], [job("a", 1, 4, 1)], quotas=[quota("elsewhere", cpu=0)])
    assert resizes_of(plan_of(world)) == {"a": 3}


@pytest.mark.rule("TJ:3.15")
@pytest.mark.parametrize(
    ("percent", "expected"), [(100, 9), (80, 7), (10, 0)], ids=["up to 100 %", "up to 80 %", "nothing is taken at 10 %"]
)
def test_growth_never_crosses_the_load(percent, expected):
    world = World([node(cpu=10)], [job("a", 1, 20, 1)], options=AllocationOptions({CPU: percent}))
    for is_by_limits in (True, False):
        plan = plan_of(world.changed(a={"uses_limits": is_by_limits}))
        assert resizes_of(plan) == ({"a": expected} if expected else {})


@pytest.mark.rule("TJ:3.15")
@pytest.mark.parametrize("uses_limits", [False, True])
def test_a_step_counts_with_its_parameter_servers(uses_limits):
    """Of 8.5 CPUs, 7.5 are used by five trainers and their parameter servers; the next step has 1 and 0.5."""
    one = job("a", 1, 20, 1, companion=companion(1, 1, 20, cpu=0.5), uses_limits=uses_limits)
    world = World([node(cpu=10)], [one], options=AllocationOptions({CPU: 85}))
    assert resizes_of(allocate(world.pool())) == {"a": 4}


@pytest.mark.rule("TJ:3.5", "TJ:D5")
def test_pods_that_no_node_can_hold_are_not_subtracted_from_the_load_twice():
    """They count nothing, once because no node is large enough and once because kube-scheduler finds none for long."""
    half = shape(1, limits={CPU: 2000})
    jobs = [job("a", 1, 20, 1, shape=half), job("stuck", 2, 2, 2, cpu=50, unschedulable=2, is_doubted=True)]
    assert resizes_of(plan_of(World([node(cpu=10)], jobs))) == {"a": 4}


@pytest.mark.rule("TJ:3.5", "TJ:3.17")
def test_capacity_kept_for_a_resting_job_counts_with_its_parameter_servers():
    large = replace(companion(1, 0, 2, current=0), shape=shape(1, limits={CPU: 4000}))
    resting = job("resting", 0, 1, 0, companion=large, may_grow=False, is_settled=False, uses_limits=True)
    jobs = [resting, job("a", 0, 20, 0, uses_limits=True)]
    assert resizes_of(plan_of(World([node(cpu=12)], jobs))) == {"a": 7}


@pytest.mark.rule("FD:TJ3-3")
@pytest.mark.parametrize(("percent", "grown"), [(100, {"a": 2, "b": 1}), (90, {"b": 1})])
def test_a_node_with_more_than_it_can_hold_limits_no_other(percent, grown):
    """Four of its GPUs have failed, or a pod there asks in place for more than it has: others grow, and no trainer ends for it."""
    sick = node("sick", cpu=64, gpu=4, used=amounts(cpu=8, gpu=8))
    jobs = [job("a", 2, 16, 4, gpu=1, rebalances=True), job("b", 1, 4, 1, gpu=1, rebalances=True)]
    world = World([sick, node("well", cpu=64, gpu=8)], jobs, options=AllocationOptions({GPU: percent}))
    for each, count in (("a", 4), ("b", 1)):
        world.jobs[id_of(each)].trainers = ["well"] * count
    plan = plan_of(world)
    assert resizes_of(plan) == grown
    assert allocate(world.carried_out(plan).pool()).resizes == ()


@pytest.mark.rule("TJ:3.15", "FD:TJ3-8")
def test_what_leaves_a_cordoned_node_is_no_capacity_of_the_others():
    """It counted in no sum, so that b would grow beyond the limit with what a has there above its maximum."""
    nodes = [node("cordoned", cpu=8, is_usable=False), node("usable", cpu=8)]
    world = World(nodes, [job("a", 1, 2, 4), job("b", 1, 8, 3)], options=AllocationOptions({CPU: 50}))
    for each, where, count in (("a", "cordoned", 4), ("b", "usable", 3)):
        world.jobs[id_of(each)].trainers = [where] * count
    assert resizes_of(plan_of(world)) == {"a": -2, "b": 1}


@pytest.mark.rule("TJ:3.15")
def test_the_load_limit_does_not_keep_a_job_below_its_minimum():
    world = World([node(cpu=10)], [job("a", 9, 20, 0, is_gang=True)], options=AllocationOptions({CPU: 50}))
    plan = plan_of(world)
    assert resizes_of(plan) == {"a": 9}
    assert plan.waiting[0].message == (
        "needs 1 cpu more; 0 are left of the usable capacity of all nodes, to grow beyond 9"
    )


# --- steps and sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:7.16")
@pytest.mark.parametrize(
    ("cpu", "more", "expected"),
    [
        pytest.param(9, {"step": 3}, 7, id="steps of three from the minimum"),
        pytest.param(12, {"step": 3}, 10, id="the maximum where steps lead there"),
        pytest.param(12, {"step": 4}, 9, id="no maximum between the steps"),
        pytest.param(7, {"sizes": (1, 2, 4, 8)}, 4, id="powers of two"),
        pytest.param(12, {"sizes": (1, 2, 4, 8)}, 8, id="the largest listed size, not the maximum"),
    ],
)
def test_growth_is_in_allowed_sizes(cpu, more, expected):
    world = World([node(cpu=cpu)], [job("a", 1, 10, 1, **more)])
    assert world.carried_out(plan_of(world)).sizes() == {"a": expected}


@pytest.mark.rule("TJ:7.16")
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({"step": 3}, 4, id="steps of three"),
        pytest.param({"sizes": (2, 5, 7)}, 5, id="listed sizes"),
        pytest.param({}, 6, id="every size"),
    ],
)
def test_reclaim_is_in_allowed_sizes(more, expected):
    world = World([node(cpu=7)], [job("a", 1, 7, 7, **more), job("new", 1, 1, 0, is_gang=True)])
    assert world.carried_out(plan_of(world)).sizes() == {"a": expected, "new": 1}


@pytest.mark.rule("TJ:7.16")
def test_a_size_between_two_steps_is_left_for_the_next_one():
    world = World([node(cpu=9)], [job("a", 1, 9, 3, sizes=(1, 4, 8))])
    assert world.carried_out(plan_of(world)).sizes() == {"a": 8}


def test_what_is_above_every_listed_size_comes_down_to_the_largest():
    (only,) = plan_of(World([node(cpu=9)], [job("a", 1, 9, 9, sizes=(1, 4))])).resizes
    assert (only.after, only.reason) == (4, ABOVE_MAXIMUM)


# --- what comes with instances -----------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.4")
def test_a_step_is_a_trainer_with_its_pservers():
    """Two trainers to one pserver of two CPUs: the third trainer needs three CPUs, the fourth one."""
    pservers = companion(2, 1, 9, cpu=2, current=1)
    for cpu, expected in [(6, 2), (7, 3), (8, 4), (10, 4), (11, 5)]:
        world = World([node(cpu=cpu)], [job("a", 1, 9, 2, companion=pservers)])
        assert world.carried_out(plan_of(world)).sizes() == {"a": expected}, cpu


@pytest.mark.rule("TJ:3.4")
def test_a_resize_contains_the_change_of_parameter_servers():
    world = World([node(cpu=8)], [job("a", 1, 4, 2, companion=companion(2, 1, 9, cpu=2))])
    (only,) = plan_of(world).resizes
    assert (only.before, only.after, only.companions) == (2, 4, (1, 2))


@pytest.mark.rule("TJ:3.4")
def test_companions_are_removed_with_their_instances():
    """Removing one trainer of three frees three CPUs: one of the two parameter servers is removed with it."""
    world = World(
        [node(cpu=7)],
        [job("a", 1, 3, 3, companion=companion(2, 1, 9, cpu=2)), job("new", 1, 1, 0, cpu=3, is_gang=True)],
    )
    shrink, _ = plan_of(world).resizes
    assert (shrink.before, shrink.after, shrink.companions) == (3, 2, (2, 1))


@pytest.mark.rule("TJ:3.4", "TJ:3.8")
def test_a_trainer_with_pservers_is_larger_than_one_without():
    jobs = [job("a-with", 1, 9, 1, companion=companion(1, 1, 9, cpu=0.1)), job("b-without", 1, 9, 1)]
    world = World([node(cpu=3.2)], jobs)
    assert resizes_of(plan_of(world)) == {"b-without": 1}


def test_pods_that_fewer_nodes_may_hold_are_placed_first():
    """A trainer took the place of the only node for its master, so the gang never started, and another job grew there and shrank again."""
    tolerant = PodConstraints(tolerations=(PodToleration("dedicated", "Exists"),))
    labels = {"zone": "east", "disk": "ssd"}
    dedicated = node("dedicated", cpu=8, labels=labels, taints=(Taint("dedicated"),))
    # Each of these is one more kind of pods for the dedicated node: trainers of the gang prefer the open one for that.
    others = [
        job(label, 1, 1, 1, shape=Shape(amounts(1, pods=1), {}, with_fields(tolerant, node_selector=((label, value),))))
        for label, value in labels.items()
    ]
    gang = job(
        "gang",
        1,
        1,
        is_gang=True,
        shape=Shape(amounts(2, pods=1), {}, tolerant),
        core=(replace(master(1), missing=1),),
    )
    plan = allocate(World([node("open", cpu=8, pods=1), dedicated], [*others, gang, job("other", 0, 1)]).pool())
    assert resizes_of(plan) == {"gang": 1}
    (started,) = plan.resizes
    assert (started.nodes, started.core_nodes) == ({"dedicated": 1}, {"master": {"open": 1}})


def test_a_master_without_a_node_is_placed_before_anything_grows():
    missing = replace(master(1), missing=1)
    pool = World([node(cpu=2)], [job("a", 1, 9, 1)]).pool()
    assert resizes_of(allocate(pool)) == {"a": 1}
    (one,) = pool.participants
    assert allocate(replace(pool, participants=(replace(one, core=(missing,)),))).resizes == ()


# --- everything else ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.6")
def test_an_external_pod_that_fits_no_node_blocks_no_job():
    world = World([node(cpu=4)], [job("a", 1, 9, 1)], external_pods=[external_pod(1000, priority=9)])
    assert resizes_of(plan_of(world)) == {"a": 3}


def test_a_external_pod_of_a_lower_priority_does_not_come_before_a_gang():
    world = World([node(cpu=2)], [job("gang", 2, 2, 0, is_gang=True, priority=1)], external_pods=[external_pod(1)])
    assert resizes_of(plan_of(world)) == {"gang": 2}


def test_a_job_below_its_minimum_grows_into_free_capacity_in_the_same_resize():
    (only,) = plan_of(World([node(cpu=6)], [job("a", 3, 9, 0, is_gang=True)])).resizes
    assert (only.before, only.after, only.reason, only.is_released) == (0, 6, ADMITTED, True)
    (only,) = plan_of(World([node(cpu=6)], [job("a", 3, 9, 1)])).resizes
    assert (only.before, only.after, only.reason) == (1, 6, REACHING_MINIMUM)


def test_shrinks_come_first_then_floors_then_growth():
    jobs = [job("z", 1, 2, 4), job("a", 1, 9, 1), job("gang", 1, 1, 0, is_gang=True)]
    plan = plan_of(World([node(cpu=9)], jobs))
    assert [(one.id.name, one.after, one.reason, one.is_released) for one in plan.resizes] == [
        ("z", 2, ABOVE_MAXIMUM, True),
        ("gang", 1, ADMITTED, True),
        ("a", 4, GROWING, True),
        ("a", 6, GROWING, False),
    ]


def test_an_empty_pool_has_an_empty_plan():
    assert plan_of(World([])) == Allocation()
