"""Decisions that are better than Ray's, one test per defect of Ray (AS §7.1); most also show Ray's decision."""

from dataclasses import replace

import pytest

from oracle.ray_scheduler import RaySchedulingError, schedule_as_ray
from raytide.autoscaler.model import Gang, LabelConstraint, Request, SchedulingRequest, Status, amounts_of
from raytide.autoscaler.scheduling.resource_shapes import ACCELERATORS
from raytide.autoscaler.scheduling.schedule import schedule
from unit.autoscaler.scheduling.questions import (
    HEAD,
    ask,
    ended,
    group,
    head,
    pack_gang,
    pending,
    running,
    spread,
    tasks,
)


def both(groups, nodes=(), demand=(), **more):
    """Our decision and Ray's."""
    question = SchedulingRequest((HEAD, *groups), (head(), *nodes), tuple(demand), **more)
    return schedule(question), schedule_as_ray(question)


@pytest.mark.rule("AS:B-1")
def test_nodes_of_a_removed_group_are_terminated_and_the_other_groups_scale():
    nodes = [running("left-over", "gone", CPU=8), pending("on-its-way", "gone")]
    ours = ask([group("g", CPU=4)], nodes, [tasks(1, CPU=4)])
    assert ended(ours) == {"left-over": "OUTDATED", "on-its-way": "OUTDATED"}
    assert ours.launches == {"g": 1}
    with pytest.raises(RaySchedulingError, match="KeyError"):
        both([group("g", CPU=4)], nodes, [tasks(1, CPU=4)])


@pytest.mark.rule("AS:B-3")
def test_a_minimum_that_meets_the_limit_of_the_cluster_launches_up_to_it():
    ours, rays = both([group("g", least=5, CPU=4)], max_nodes=3)
    assert ours.launches == {"g": 2}
    assert ours.terminations == ()
    assert [one.instance_id for one in rays.terminations] == [""] * 5


@pytest.mark.rule("AS:B-6")
def test_a_draining_node_is_no_capacity():
    draining = replace(running("n", "g", CPU=4), status=Status.RAY_STOP_REQUESTED)
    ours, rays = both([group("g", CPU=4)], [draining], [tasks(1, CPU=4)])
    assert ours.launches == {"g": 1}
    assert rays.launches == {}


@pytest.mark.rule("AS:B-7")
def test_a_node_that_is_to_end_takes_no_work_and_no_capacity():
    nodes = [running(f"n{i}", "g", CPU=4) for i in range(2)]
    ours, rays = both([group("g", most=1, CPU=4), group("h", CPU=4)], nodes, [tasks(2, CPU=4)])
    assert len(ours.terminations) == 1
    assert ours.launches == {"h": 1}
    assert rays.launches == {}


@pytest.mark.rule("AS:B-8")
class TestMultiHost:
    SLICES = group("tpu", most=8, hosts=4, TPU=4)

    def test_a_launch_is_whole_replicas(self):
        ours, rays = both([self.SLICES], demand=[tasks(5, TPU=4)])
        assert ours.launches == {"tpu": 8}
        assert rays.launches == {"tpu": 5}

    def test_hosts_that_come_anyway_are_used_before_another_group_is_launched(self):
        groups = [self.SLICES, group("small", TPU=1)]
        assert ask(groups, demand=[tasks(1, TPU=4), tasks(3, TPU=1)]).launches == {"tpu": 4}

    def test_the_maximum_counts_whole_replicas(self):
        uneven = replace(self.SLICES, max_nodes=7)
        assert ask([uneven], demand=[tasks(5, TPU=4)]).launches == {"tpu": 4}

    def test_the_limit_of_the_cluster_counts_whole_replicas(self):
        assert ask([self.SLICES], demand=[tasks(5, TPU=4)], max_nodes=7).launches == {"tpu": 4}

    def test_a_minimum_is_rounded_up_to_whole_replicas(self):
        assert ask([replace(self.SLICES, min_nodes=5)]).launches == {"tpu": 8}

    def test_a_replica_with_one_busy_host_stays(self):
        hosts = [running(f"h{i}", "tpu", idle_s=0 if i == 2 else 600, replica="r", TPU=4) for i in range(4)]
        assert ask([self.SLICES], hosts).terminations == ()

    def test_a_replica_of_idle_hosts_ends_whole(self):
        hosts = [running(f"{r}{i}", "tpu", idle_s=600 + i, replica=r, TPU=4) for r in "rs" for i in range(4)]
        assert len(ask([self.SLICES], hosts).terminations) == 8
        assert len(ask([replace(self.SLICES, min_nodes=4)], hosts).terminations) == 4

    def test_a_replica_of_which_one_host_is_needed_stays_whole(self):
        hosts = [running(f"h{i}", "tpu", idle_s=600, replica="r", TPU=4) for i in range(4)]
        assert ask([self.SLICES], hosts, [tasks(1, TPU=1)]).terminations == ()

    def test_above_the_maximum_a_whole_replica_ends(self):
        hosts = [running(f"{r}{i}", "tpu", idle_s=5 * (r == "s"), replica=r, TPU=4) for r in "rs" for i in range(4)]
        decision = ask([replace(self.SLICES, max_nodes=4)], hosts)
        assert set(ended(decision)) == {"s0", "s1", "s2", "s3"}

    def test_a_replica_that_lacks_a_host_takes_the_capacity_of_a_whole_one(self):
        hosts = [running(f"h{i}", "tpu", free={}, replica="r", TPU=4) for i in range(3)]
        assert ask([replace(self.SLICES, max_nodes=4)], hosts, [tasks(1, TPU=4)]).launches == {}


@pytest.mark.rule("AS:B-10", "AS:B-20")
def test_no_groups_and_a_minimum_above_the_maximum_are_accepted():
    assert ask([]).launches == {}
    assert ask([group("g", least=5, most=2, CPU=1)]).launches == {"g": 2}


@pytest.mark.rule("AS:B-11")
def test_the_whole_target_is_named_at_once():
    assert ask([group("g", most=2000, CPU=1)], demand=[tasks(1000, CPU=1)]).launches == {"g": 1000}


@pytest.mark.rule("AS:B-12")
def test_the_labels_a_group_will_have_count_before_its_first_node():
    wanted = ((LabelConstraint("ray.io/node-group", ("g",)),),)
    groups = [group("g", labels={"ray.io/node-group": "g"}, CPU=4)]
    assert ask(groups, demand=[tasks(1, wanted, CPU=1)]).launches == {"g": 1}


@pytest.mark.rule("AS:B-13")
def test_a_node_stuck_in_its_end_blocks_no_other_group():
    stuck = pending("n", "a", Status.TERMINATING)
    decision = ask([group("a", most=1, CPU=4), group("b", CPU=8)], [stuck], [tasks(1, CPU=8)])
    assert decision.launches == {"b": 1}


@pytest.mark.rule("AS:B-14")
def test_unplaced_demand_is_distinguished_from_infeasible_demand():
    too_large, fitting = tasks(1, CPU=99), tasks(9, CPU=4)
    decision = ask([group("g", most=2, CPU=4)], demand=[too_large, fitting], gangs=(pack_gang("pg", 2, CPU=50),))
    assert set(decision.unplaced) == {too_large, replace(fitting, count=7)}
    assert decision.impossible == (too_large,)
    assert [gang.details for gang in decision.impossible_gangs] == ["pg:PACK|PENDING"]


@pytest.mark.rule("AS:B-14")
def test_a_group_without_capacity_makes_nothing_impossible():
    decision = ask([group("g", most=0, CPU=4)], demand=[tasks(1, CPU=4)])
    assert decision.unplaced == (tasks(1, CPU=4),)
    assert decision.impossible == ()


@pytest.mark.rule("AS:B-15")
def test_the_part_of_a_constraint_that_fits_is_launched():
    ours, rays = both([group("g", most=2, CPU=4)], constraint=(tasks(100, (), CPU=1),))
    assert ours.launches == {"g": 2}
    assert ours.unmet
    assert rays.launches == {}


@pytest.mark.rule("AS:B-15")
def test_a_node_that_a_waiting_gang_needs_is_not_idle():
    nodes = [running(f"n{i}", "g", idle_s=600, CPU=4) for i in range(3)]
    without_more = replace(group("g", most=4, CPU=4), available=0)
    waiting = ask([without_more], nodes, gangs=(spread("pg", 4, CPU=1),))
    assert waiting.terminations == ()
    assert len(waiting.unplaced_gangs) == 1
    hopeless = ask([group("g", most=3, CPU=4)], nodes, gangs=(spread("pg", 4, CPU=9),))
    assert len(hopeless.terminations) == 3, "what can never be is no reason to keep nodes"


@pytest.mark.rule("AS:B-23")
def test_ten_tenths_fit_into_one():
    assert ask([group("g", CPU=1)], demand=[tasks(10, CPU=0.1)]).launches == {"g": 1}


@pytest.mark.rule("AS:B-24", "AS:V-9")
class TestUnmanagedNodes:
    JOINED = running("joined", "", idle_s=9999, CPU=4)

    def test_they_are_capacity(self):
        assert ask([group("g", CPU=4)], [self.JOINED], [tasks(4, CPU=1)]).launches == {}

    def test_they_are_never_ended(self):
        assert ask([group("g", CPU=4)], [self.JOINED], max_nodes=1, idle_timeout_s=0.0).terminations == ()

    def test_they_count_against_no_limit(self):
        decision = ask([group("g", CPU=4)], [self.JOINED], [tasks(2, CPU=4)], max_nodes=2)
        assert decision.launches == {"g": 1}

    def test_what_only_they_could_hold_is_not_impossible(self):
        busy = replace(self.JOINED, total=amounts_of({"CPU": 64}), available=())
        decision = ask([group("g", CPU=4)], [busy], [tasks(1, CPU=64)])
        assert decision.unplaced
        assert not decision.impossible


def test_an_instance_that_must_not_be_ended_as_idle_stays():
    blocked = replace(running("n", "g", idle_s=600, CPU=4), is_idle_blocked=True)
    assert ask([group("g", CPU=4)], [blocked]).terminations == ()


def test_contradicting_limits_terminate_no_busy_node():
    nodes = [running(f"n{i}", "g", free={}, CPU=4) for i in range(3)]
    assert ask([group("g", least=3, CPU=4)], nodes, max_nodes=2).terminations == ()


def test_running_nodes_are_filled_before_pending_ones_so_that_results_are_stable():
    gpu_node = running("gpu", "gpu", CPU=3, GPU=1)
    groups, demand = [group("gpu", CPU=3, GPU=1), group("g", CPU=4)], [tasks(1, CPU=3), tasks(2, CPU=2)]
    first = ask(groups, [gpu_node], demand)
    assert first.launches == {"g": 1}
    again, rays = both(groups, [gpu_node, pending("new", "g")], demand)
    assert again.launches == {}
    assert rays.launches == {"g": 1}, "Ray fills the pending node first and launches another"


def test_more_free_than_there_is_counts_as_all_free():
    odd = running("n", "g", free={"CPU": 9}, CPU=4)
    ours, rays = both([group("g", CPU=4)], [odd], [tasks(2, CPU=4)])
    assert ours.launches == {"g": 1}
    assert rays.launches == {}, "Ray puts both on a node of four CPUs"


@pytest.mark.rule("FD:AS-A5")
def test_a_gang_above_the_maximum_keeps_no_idle_node():
    nodes = [running(f"n{i}", "g", idle_s=3600, CPU=4) for i in range(10)]
    gangs = (spread("p", 16, CPU=4),)
    ours, rays = both([group("g", most=10, CPU=4)], nodes, gangs=gangs, idle_timeout_s=60.0)
    assert len(ended(ours)) == len(ended(rays)) == 10
    assert ours.unplaced_gangs == gangs


@pytest.mark.rule("FD:AS-A5")
def test_a_gang_within_the_maximum_keeps_its_nodes_though_its_group_is_blocked():
    nodes = [running(f"n{i}", "g", idle_s=3600, CPU=4) for i in range(10)]
    blocked = replace(group("g", most=16, CPU=4), available=0)
    ours, _ = both([blocked], nodes, gangs=(spread("p", 16, CPU=4),), idle_timeout_s=60.0)
    assert ended(ours) == {}


@pytest.mark.rule("FD:AS-A23")
@pytest.mark.parametrize("accelerator", ["GPU", "TPU", "neuron_cores", "HPU"])
class TestNodesWithAcceleratorsAreKept:
    CPU = group("cpu", CPU=8, memory=64)

    def test_tasks_without_accelerators_prefer_a_node_type_without_them(self, accelerator):
        fast = group("fast", CPU=4, memory=64, **{accelerator: 1})
        ours, rays = both([fast, self.CPU], demand=[tasks(1, CPU=4)])
        assert ours.launches == {"cpu": 1}
        assert rays.launches == ({"cpu": 1} if accelerator == "GPU" else {"fast": 1})

    def test_running_nodes_without_accelerators_are_filled_first(self, accelerator):
        fast = running("f", "fast", CPU=4, memory=64, **{accelerator: 1})
        nodes = [fast, running("c", "cpu", CPU=8, memory=64)]
        types = [group("fast", CPU=4, memory=64, **{accelerator: 1}), self.CPU]
        assert both(types, nodes, [tasks(1, CPU=4)])[0].needed == {"c"}

    def test_work_that_names_the_accelerator_gets_it(self, accelerator):
        demand = [tasks(1, CPU=1, **{accelerator: 1})]
        ours, _ = both([group("cpu", CPU=8), group("fast", CPU=4, **{accelerator: 1})], demand=demand)
        assert ours.launches == {"fast": 1}

    def test_work_without_accelerators_takes_such_a_node_where_there_is_no_other(self, accelerator):
        assert ask([group("fast", CPU=4, **{accelerator: 1})], demand=[tasks(1, CPU=4)]).launches == {"fast": 1}


@pytest.mark.rule("FD:AS3-6")
@pytest.mark.parametrize("of", ["tasks", "a gang", "request_resources()"])
def test_zero_gpus_buy_no_node_with_gpus(of):
    groups = [group("cpu", CPU=32, memory=64), group("gpu", CPU=8, memory=64, GPU=1)]
    work = {"CPU": 2, "GPU": 0}
    asked = {
        "tasks": {"demand": [tasks(2, **work)]},
        "a gang": {"gangs": (pack_gang("p", 2, **work),)},
        "request_resources()": {"constraint": (tasks(2, (), **work),)},
    }[of]
    ours, rays = both(groups, **asked)
    assert ours.launches == {"cpu": 1}
    assert rays.launches == {"gpu": 1}


@pytest.mark.rule("FD:AS3-2")
@pytest.mark.parametrize("device", ACCELERATORS)
@pytest.mark.parametrize(
    ("work", "nodes", "of_ray"),
    [
        pytest.param([(3, 0.6)], 2, 1, id="each device holds one"),
        pytest.param([(4, 0.5)], 1, 1, id="each device holds two"),
        pytest.param([(7, 0.3)], 2, 2, id="each device holds three"),
        pytest.param([(2, 0.6), (2, 0.4)], 1, 1, id="fractions share a device"),
        pytest.param([(1, 0.7), (1, 0.5), (2, 0.4)], 2, 1, id="what is left of two devices is not one device"),
        pytest.param([(1, 1), (2, 0.4)], 1, 1, id="a whole device, and two parts of the other"),
        pytest.param([(1, 1), (2, 0.6)], 2, 2, id="whole devices are not shared"),
        pytest.param([(1, 2)], 1, 1, id="all devices"),
    ],
)
def test_a_fraction_of_a_device_has_to_fit_on_a_single_device(device, work, nodes, of_ray):
    demand = [tasks(count, **{device: amount}) for count, amount in work]
    ours, rays = both([group("g", **{device: 2})], demand=demand)
    assert (ours.launches, rays.launches) == ({"g": nodes}, {"g": of_ray})


@pytest.mark.rule("FD:AS3-2")
def test_fractions_of_other_resources_are_added_up():
    assert ask([group("g", CPU=2, widget=2)], demand=[tasks(3, CPU=0.6, widget=0.6)]).launches == {"g": 1}


@pytest.mark.rule("FD:AS3-2")
def test_a_free_running_node_and_a_node_on_its_way_hold_what_their_devices_hold():
    groups, work = [group("g", CPU=8, GPU=2)], [tasks(3, CPU=1, GPU=0.6)]
    for node in (running("n", "g", CPU=8, GPU=2), pending("n", "g")):
        ours, rays = both(groups, [node], work)
        assert (ours.launches, rays.launches) == ({"g": 1}, {})


@pytest.mark.rule("FD:AS3-2")
def test_request_resources_and_placement_groups_are_planned_by_device():
    groups = [group("g", CPU=8, GPU=2)]
    assert ask(groups, constraint=(tasks(3, (), CPU=1, GPU=0.6),)).launches == {"g": 2}
    assert ask(groups, gangs=(pack_gang("p", 3, CPU=1, GPU=0.6),)).launches == {"g": 2}


@pytest.mark.rule("FD:AS3-2")
@pytest.mark.parametrize(
    ("parts", "launches"),
    [
        pytest.param((0.6, 0.6), {"small": 1}, id="a device each"),
        pytest.param((0.6, 0.4, 1), {"small": 1}, id="parts that share a device"),
        pytest.param((0.6, 0.6, 0.6), {"large": 1}, id="more devices than the sum tells"),
    ],
)
def test_bundles_that_share_a_node_need_as_many_devices_as_hold_them(parts, launches):
    bundles = tuple(Request(amounts_of({"GPU": part}), affinity=("_PG_p", "")) for part in parts)
    groups = [group("small", GPU=2), group("large", GPU=3)]
    assert ask(groups, gangs=(Gang("p:STRICT_PACK|PENDING", bundles),)).launches == launches


@pytest.mark.rule("FD:AS3-2")
def test_a_resource_of_very_many_units_is_added_up():
    assert ask([group("g", GPU=1000)], demand=[tasks(1500, GPU=0.6)]).launches == {"g": 1}
