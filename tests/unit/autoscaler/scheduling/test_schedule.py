"""The scheduler rule by rule: the steps of AS §2 and the statements of the user documentation."""

import time

import pytest

from raytide.autoscaler.model import (
    Demand,
    Gang,
    LabelConstraint,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Status,
    amounts_of,
)
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.scheduling.session import MAX_NODES
from unit.autoscaler.scheduling.questions import (
    HEAD,
    ask,
    ended,
    group,
    head,
    inside,
    pack_gang,
    pending,
    running,
    spread,
    tasks,
)


@pytest.mark.rule("AS:S-21")
def test_a_gpu_request_prefers_the_group_without_other_accelerators():
    groups = [group("b", GPU=2, TPU=1), group("a", GPU=6)]
    assert ask(groups, demand=[tasks(1, GPU=2)]).launches == {"a": 1}


@pytest.mark.rule("AS:S-5", "AS:G-9")
def test_request_resources_is_about_the_whole_cluster_not_about_what_is_free():
    busy = [running(f"n{i}", "g", free={"CPU": 0}, CPU=9) for i in range(5)]  # 45 CPUs, all in use
    decision = ask([group("g", most=100, CPU=9)], busy, constraint=(tasks(100, (), CPU=1),))
    assert decision.launches == {"g": 7}, "12 nodes of 9 CPUs hold 100 tasks; 145 would need 17"
    assert not decision.unmet


@pytest.mark.rule("AS:S-11", "AS:S-30")
def test_request_resources_keeps_idle_nodes_until_it_is_withdrawn():
    idle = [running(f"n{i}", "g", idle_s=600, CPU=4) for i in range(3)]
    stands = ask([group("g", CPU=4)], idle, constraint=(tasks(8, (), CPU=1),))
    assert len(stands.terminations) == 1
    assert len(stands.needed) == 2
    withdrawn = ask([group("g", CPU=4)], idle, constraint=())
    assert len(withdrawn.terminations) == 3


@pytest.mark.rule("AS:S-25")
def test_equal_groups_take_turns():
    groups = [group("a", CPU=4), group("b", CPU=4)]
    assert ask(groups, demand=[tasks(4, CPU=4)]).launches == {"a": 2, "b": 2}
    assert ask(groups, demand=[tasks(3, CPU=4)]).launches == {"a": 2, "b": 1}


@pytest.mark.rule("AS:S-24")
def test_priority_breaks_exact_ties_of_the_score_only():
    groups = [group("a", CPU=4), group("b", priority=1, CPU=4)]
    assert ask(groups, demand=[tasks(3, CPU=4)]).launches == {"b": 3}
    better = [group("a", CPU=4), group("b", priority=9, CPU=8)]
    assert ask(better, demand=[tasks(1, CPU=4)]).launches == {"a": 1}


@pytest.mark.rule("AS:S-22", "AS:S-23")
@pytest.mark.parametrize("scores", ["availability", "recoverable"])
def test_of_equal_groups_the_one_that_did_not_fail_lately_is_launched(scores):
    groups = [group("a", CPU=4), group("b", CPU=4)]
    assert ask(groups, demand=[tasks(2, CPU=4)], **{scores: {"a": 0.0}}).launches == {"b": 2}


@pytest.mark.rule("AS:S-7")
def test_a_minimum_is_reached_without_any_demand():
    assert ask([group("g", least=3, CPU=1)], [running("n", "g", CPU=1)]).launches == {"g": 2}


@pytest.mark.rule("AS:S-8", "AS:S-10")
def test_above_the_maximum_pending_nodes_end_first_then_the_longest_idle():
    nodes = [
        running("idle", "g", idle_s=50, CPU=4),
        running("busy", "g", free={"CPU": 1}, CPU=4),
        running("idler", "g", idle_s=55, CPU=4),
        pending("coming", "g"),
    ]
    decision = ask([group("g", most=2, CPU=4)], nodes)
    assert ended(decision) == {"coming": "MAX_NUM_NODE_PER_TYPE", "idler": "MAX_NUM_NODE_PER_TYPE"}


@pytest.mark.rule("AS:S-9")
def test_above_the_limit_of_the_cluster_the_least_useful_nodes_of_any_group_end():
    nodes = [running("a1", "a", free={"CPU": 1}, CPU=4), running("b1", "b", free={"CPU": 3}, CPU=4)]
    decision = ask([group("a", CPU=4), group("b", CPU=4)], nodes, max_nodes=2)
    assert ended(decision) == {"b1": "MAX_NUM_NODES"}


@pytest.mark.rule("AS:S-12")
def test_a_gang_is_placed_whole_or_not_at_all():
    decision = ask([group("g", most=2, CPU=4)], demand=[tasks(1, CPU=1)], gangs=(spread("pg", 3, CPU=1),))
    assert decision.launches == {"g": 1}, "for the task alone"
    assert [gang.details for gang in decision.unplaced_gangs] == ["pg:STRICT_SPREAD|PENDING"]
    assert decision.impossible_gangs == ()


@pytest.mark.rule("AS:G-8")
def test_a_strict_spread_group_needs_as_many_nodes_as_bundles():
    assert ask([group("g", CPU=16)], gangs=(spread("pg", 3, CPU=1),)).launches == {"g": 3}


@pytest.mark.rule("AS:G-8")
def test_a_bundle_being_rescheduled_avoids_the_nodes_of_its_own_group():
    there = running("n", "g", groups={"_PG_pg": ""}, CPU=16)
    assert ask([group("g", CPU=16)], [there], gangs=(spread("pg", 1, CPU=1),)).launches == {"g": 1}
    assert ask([group("g", CPU=16)], [there], gangs=(spread("other", 1, CPU=1),)).launches == {}


@pytest.mark.rule("AS:S-13")
def test_the_bundles_of_a_strict_pack_group_need_one_node_for_all():
    bundle = Request(amounts_of({"CPU": 3}), affinity=("_PG_pg", ""))
    gang = Gang("pg:STRICT_PACK|PENDING", (bundle,) * 3)
    decision = ask([group("small", CPU=4), group("large", CPU=10)], gangs=(gang,))
    assert decision.launches == {"large": 1}


@pytest.mark.rule("AS:S-15")
def test_the_largest_request_is_placed_first():
    decision = ask([group("g", most=1, CPU=4)], demand=[tasks(4, CPU=1), tasks(1, CPU=3)])
    assert decision.unplaced == (tasks(3, CPU=1),)


@pytest.mark.rule("AS:S-21")
def test_a_gpu_node_is_not_launched_for_work_without_gpus_if_another_will_do():
    assert ask([group("gpu", CPU=8, GPU=1), group("cpu", CPU=64)], demand=[tasks(1, CPU=8)]).launches == {"cpu": 1}
    assert ask([group("gpu", CPU=8, GPU=1)], demand=[tasks(1, CPU=8)]).launches == {"gpu": 1}


@pytest.mark.rule("AS:S-21", "AS:G-7")
def test_the_first_feasible_of_several_label_selectors_is_used():
    groups = [group("b", labels={"zone": "b"}, CPU=4), group("a", labels={"zone": "a"}, CPU=4)]
    preferring_a = ((inside("zone", "a"),), (inside("zone", "b"),))
    assert ask(groups, demand=[tasks(1, preferring_a, CPU=1)]).launches == {"a": 1}


LABELS = [
    ("in: present and among the values", LabelConstraint("zone", ("a", "b")), True),
    ("in: present and not among the values", LabelConstraint("zone", ("b",)), False),
    ("in: absent", LabelConstraint("tier", ("spot",)), False),
    ("not in: absent", LabelConstraint("tier", ("spot",), is_in=False), True),
    ("not in: among the values", LabelConstraint("zone", ("a",), is_in=False), False),
    ("an unknown operator", LabelConstraint("zone", ("a",), is_known=False), False),
]


@pytest.mark.parametrize(("constraint", "is_match"), [case[1:] for case in LABELS], ids=[case[0] for case in LABELS])
def test_label_constraints(constraint, is_match):
    decision = ask([group("g", labels={"zone": "a"}, CPU=4)], demand=[tasks(1, ((constraint,),), CPU=1)])
    assert decision.launches == ({"g": 1} if is_match else {})
    assert bool(decision.impossible) is not is_match


@pytest.mark.rule("AS:S-30", "AS:C-4")
@pytest.mark.parametrize(
    ("own_timeout_s", "cluster_timeout_s", "is_ended"),
    [
        pytest.param(None, 60.0, False, id="idle for exactly the time-out is not longer than it"),
        pytest.param(None, 59.0, True, id="longer than the cluster's time-out"),
        pytest.param(30.0, 600.0, True, id="the group's timeout takes precedence over a longer one"),
        pytest.param(600.0, 30.0, False, id="the group's timeout takes precedence over a shorter one"),
        pytest.param(None, None, False, id="no time-out at all"),
    ],
)
def test_idle_time_outs(own_timeout_s, cluster_timeout_s, is_ended):
    nodes = [running("n", "g", idle_s=60, CPU=4)]
    decision = ask([group("g", idle=own_timeout_s, CPU=4)], nodes, idle_timeout_s=cluster_timeout_s)
    assert ended(decision) == ({"n": "IDLE"} if is_ended else {})


@pytest.mark.rule("AS:S-30")
def test_idle_nodes_of_the_minimum_are_kept_and_the_longest_idle_are_terminated():
    nodes = [running(f"n{i}", "g", idle_s=100 + i, CPU=4) for i in range(4)]
    assert ended(ask([group("g", least=2, CPU=4)], nodes)) == {"n2": "IDLE", "n3": "IDLE"}


@pytest.mark.rule("AS:S-31")
def test_an_idle_node_that_pending_work_fits_on_stays():
    nodes = [running("n", "g", idle_s=600, CPU=4)]
    decision = ask([group("g", CPU=4)], nodes, [tasks(1, CPU=1)])
    assert decision.terminations == ()
    assert decision.needed == {"n"}
    assert decision.launches == {}


@pytest.mark.rule("AS:S-2")
def test_a_pending_node_is_capacity_and_a_failed_one_is_not():
    demand = [tasks(1, CPU=4)]
    assert ask([group("g", CPU=4)], [pending("n", "g", Status.REQUESTED)], demand).launches == {}
    assert ask([group("g", CPU=4)], [pending("n", "g", Status.ALLOCATION_TIMEOUT)], demand).launches == {"g": 1}


@pytest.mark.rule("AS:S-32")
def test_cluster_resources_include_launched_and_exclude_terminated_nodes():
    nodes = [running("n", "g", idle_s=600, CPU=4)]
    decision = ask([group("g", CPU=4), group("h", CPU=6, GPU=1)], nodes, [tasks(1, GPU=1)])
    assert dict(decision.cluster_resources) == dict(amounts_of({"CPU": 6, "GPU": 1}))


def test_the_head_is_never_launched_nor_ended():
    unfilled = schedule(SchedulingRequest((HEAD, group("g", CPU=1)), (), (tasks(1, CPU=0),)))
    assert "headgroup" not in unfilled.launches
    alone = schedule(SchedulingRequest((HEAD,), (head(CPU=4),), max_nodes=1, idle_timeout_s=0.0))
    assert alone.terminations == ()


def test_an_empty_request_has_an_empty_reply():
    assert schedule(SchedulingRequest(())) == SchedulingReply()


def test_a_demand_of_a_hundred_thousand_stays_within_the_maximum():
    decision = ask([group("g", most=50, CPU=4)], demand=[tasks(100_000, CPU=1)])
    assert decision.launches == {"g": 50}
    assert decision.unplaced == (Demand(tasks(1, CPU=1).request, 100_000 - 200),)


def test_bundles_of_a_pack_group_may_share_a_node():
    assert ask([group("g", CPU=4)], gangs=(pack_gang("pg", 4, CPU=1),)).launches == {"g": 1}


@pytest.mark.rule("FD:AS-A22")
@pytest.mark.parametrize("hosts", [1, 4])
def test_a_demand_for_two_thousand_million_cpus_is_bounded_by_what_a_cluster_can_have(hosts):
    most = 2_147_483_647 // hosts * hosts
    began = time.process_time()
    decision = ask([group("cpu", most=most, hosts=hosts, CPU=1)], demand=[tasks(2_000_000_000, CPU=1)])
    assert 0 < decision.launches["cpu"] <= MAX_NODES
    assert sum(one.count for one in decision.unplaced) == 2_000_000_000 - decision.launches["cpu"]
    assert time.process_time() - began < 10


@pytest.mark.rule("FD:AS-A22")
def test_a_minimum_of_two_thousand_million_is_bounded_too():
    decision = ask([group("cpu", least=2_147_483_647, most=2_147_483_647, CPU=1)])
    assert MAX_NODES - 2 <= decision.launches["cpu"] <= MAX_NODES


@pytest.mark.rule("FD:AS-A22")
def test_bundles_by_the_ten_thousand_are_bounded_too():
    decision = ask([group("cpu", most=2_147_483_647, CPU=1)], gangs=(spread("g", 30_000, CPU=1),))
    assert decision.unplaced_gangs
    assert sum(decision.launches.values()) <= MAX_NODES
