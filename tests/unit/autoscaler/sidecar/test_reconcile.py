"""The decisions of consecutive passes in simulated_cluster.py."""

import itertools
from dataclasses import replace

import pytest

from raytide.api import constants
from raytide.autoscaler.gcs.messages import encode_report
from raytide.autoscaler.model import Demand, DrainReason, Request, Status, amounts_of
from raytide.autoscaler.scaling.group_decisions import HOLD_S
from raytide.autoscaler.sidecar.reconcile import plan_names, reconcile
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from raytide.diagnosis.render import text_of
from support.builders import group
from unit.autoscaler.simulated_cluster import World

ONE_CPU = Demand(Request(amounts_of({"CPU": 1})), 1)


def written(world: World) -> list[list[int]]:
    """The numbers of each patch that changed one."""
    found = (
        [op["value"] for op in patch if op["path"].endswith("/replicas") and op["op"] != "test"]
        for _, _, patch in world.writes
    )
    return [numbers for numbers in found if numbers]


def at_work(count: int, **extra: object) -> World:
    """So many workers, each with a task."""
    world = World([group("cpu", replicas=0, **extra)])
    world.demand(count)
    world.run_until(lambda: bool(world.tasks) and world.waiting() == 0, 60)
    world.run(10)
    return world


# --- up --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SC:S1", "AS:B-11")
def test_a_burst_of_demand_is_one_patch_with_the_total_number():
    world = World([group("cpu", replicas=0, high=1500)])
    world.demand(1000)
    world.run(10)
    assert written(world) == [[1000]]


@pytest.mark.rule("D12", "AS:B-4")
def test_passes_while_pods_are_created_request_nothing_more():
    world = World(start_s=60)
    world.demand(7)
    world.run_until(lambda: world.waiting() == 0, 120)
    assert (len(world.created), written(world)) == (7, [[7]])


@pytest.mark.rule("AS:G-6")
def test_demand_that_lags_behind_nodes_that_have_just_joined_is_not_counted_twice():
    world = at_work(8)
    assert len(world.created) == 8


@pytest.mark.rule("RM:I19", "AS:G-6")
def test_after_a_restart_existing_reasons_are_neither_removed_nor_written_again():
    world = World([group("cpu", replicas=0, high=3)])
    world.demand(5)
    world.run(60)
    assert world.record().groups["cpu"].why[0].reason == "MaxReached"
    before = len(world.writes)
    world.restart()
    world.run(30)
    assert world.writes[before:] == []


@pytest.mark.rule("AS:G-6", "RM:I22")
def test_after_a_restart_no_idle_node_is_drained_while_demand_is_pending():
    world = at_work(3)
    world.demand(2)
    world.run(2)
    for node in world.nodes.values():
        node.idle_since = world.now_s - 600
    world.extra_tasks = (ONE_CPU,)
    plan = reconcile(world.snapshot(), ReconcilerState())
    assert (plan.drains, plan.decisions["cpu"].replicas) == ((), 3)


@pytest.mark.rule("AS:G-6")
def test_demand_that_is_gone_for_a_moment_withdraws_nothing():
    world = World()
    world.has_operator = False
    world.demand(5)
    world.run(3)
    for _ in range(4):
        world.demand(0)
        world.run(6)
        world.demand(5)
        world.run(6)
    assert written(world) == [[5]]


def test_replicas_without_demand_for_ten_seconds_are_withdrawn_before_pods_are_created():
    world = World()
    world.has_operator = False
    world.demand(5)
    world.run(3)
    world.demand(0)
    took_s = world.run_until(lambda: world.replicas() == 0, 30)
    assert took_s >= 10


@pytest.mark.rule("FD:REL-11")
@pytest.mark.parametrize(("passed_s", "replicas"), [(HOLD_S - 1, 5), (HOLD_S, 0)])
def test_replicas_without_demand_are_withdrawn_when_their_timer_ends(passed_s, replicas):
    world = World()
    world.has_operator = False
    world.demand(5)
    world.run(3)
    world.demand(0)
    world.run_until(lambda: "cpu" in world.state.unneeded_since_s, 10)
    world.now_s += round(passed_s - (world.snapshot().monotonic_s - world.state.unneeded_since_s["cpu"]))
    assert reconcile(world.snapshot(), world.state).decisions["cpu"].replicas == replicas


@pytest.mark.rule("RM:I21")
def test_the_maximum_is_never_passed_and_the_reason_is_reported():
    world = World([group("cpu", replicas=0, high=3)])
    world.demand(10)
    world.run(40)
    assert (world.replicas(), "MaxReached" in world.reasons()) == (3, True)


def test_the_minimum_is_there_without_any_demand():
    world = World([group("cpu", replicas=0, low=2)])
    world.run(30)
    assert (world.plans[-1].decisions["cpu"].replicas, len(world.live()), world.writes) == (2, 2, [])


def test_request_resources_launches_nodes_before_there_are_tasks():
    world = World()
    world.constraint = (Demand(ONE_CPU.request, 4),)
    world.run(60)
    assert (world.replicas(), len(world.live())) == (4, 4)


@pytest.mark.rule("SC:S5")
def test_a_gang_is_not_taken_apart_while_its_last_node_is_starting():
    world = World([group("cpu", replicas=0, high=10)], spec={"autoscalerOptions": {"idleTimeoutSeconds": 5}})
    world.gangs = [("ab" * 16, 4)]
    world.run(3)
    for delay_s, pod in zip((5, 30, 60, 100), world.pods.values(), strict=True):
        pod.starts_at = world.now_s + delay_s
    world.run(110)
    assert (len(world.placed), len(world.created), world.deleted) == (1, 4, [])


@pytest.mark.rule("SC:S2")
def test_a_group_without_capacity_gives_its_work_to_the_next_one():
    world = World([group("spot", replicas=0, priority=10), group("solid", replicas=0, priority=5)])
    world.blocked = {"spot"}
    world.demand(6)
    took_s = world.run_until(lambda: len(world.live("solid")) == 6, 60)
    world.run(30)
    assert (world.replicas("spot"), world.live("spot"), "Unschedulable" in world.lines_and_reasons()) == (0, [], True)
    assert took_s <= 30


@pytest.mark.rule("AS:1.3")
@pytest.mark.parametrize(("is_conserving", "chosen"), [(True, "large"), (False, "gpu")])
def test_gpu_nodes_are_kept_for_gpu_tasks_unless_ray_is_configured_otherwise(*, is_conserving: bool, chosen: str):
    large = group("large", replicas=0, resources={"CPU": "4"})
    world = World(
        [group("gpu", replicas=0, resources={"CPU": "1", "GPU": "1"}), large], has_gpu_conservation=is_conserving
    )
    world.demand(1)
    world.run(2)
    assert (world.replicas("gpu"), world.replicas("large")) == ((0, 1) if chosen == "large" else (1, 0))


@pytest.mark.rule("AS:S-33")
@pytest.mark.parametrize(
    ("limit_s", "left"),
    [
        pytest.param(None, 4, id="unset: they come up and idle out"),
        pytest.param(30, 1, id="30 s: all but the minimum go"),
    ],
)
def test_pending_pods_without_demand_are_deleted_after_the_pending_idle_timeout(limit_s: float | None, left: int):
    world = World([group("cpu", replicas=0, low=1)], start_s=500, pending_idle_timeout_s=limit_s)
    world.demand(4)
    world.run(10)
    world.demand(0)
    world.run(60)
    assert (len(world.live()), len(world.created)) == (left, 4)


# --- down ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:B-28")
def test_replicas_are_lowered_before_the_drains_and_names_are_written_after_them():
    world = at_work(3)
    world.demand(0)
    world.run_until(lambda: bool(world.named()), 60)
    (lowered_at, first, patch), (named_at, second, _) = world.writes[-2:]
    assert (first, second) == ("decisions", "names")
    assert not any("scaleStrategy" in op["path"] for op in patch)
    assert lowered_at <= world.drain_calls[0][0] <= named_at
    assert {reason for _, _, reason in world.drain_calls} == {DrainReason.IDLE_TERMINATION}


@pytest.mark.rule("AS:B-28", "RM:I15")
def test_named_workers_are_not_replaced_and_the_names_are_removed_when_the_pods_are_gone():
    world = at_work(3)
    world.demand(0)
    world.run(60)
    assert (len(world.created), len(world.deleted), world.replicas(), world.named()) == (3, 3, 0, [])


def idle_and_about_to_shrink() -> World:
    """Two nodes that have been idle for long enough, and a sidecar that has not looked since."""
    world = at_work(2)
    world.demand(0)
    world.next_tick_s = 10**6
    world.run(30)
    return world


@pytest.mark.rule("AS:B-28")
def test_no_node_is_drained_while_the_patch_with_lower_replicas_has_to_wait():
    world = idle_and_about_to_shrink()
    now_s = world.snapshot().monotonic_s
    too_soon = reconcile(world.snapshot(), replace(world.state, written_at_s=now_s - 1))
    in_time = reconcile(world.snapshot(), replace(world.state, written_at_s=now_s - 2))
    assert (too_soon.patch, too_soon.drains, too_soon.requeue_after_s) == ((), (), 1.0)
    assert (bool(in_time.patch), len(in_time.drains)) == (True, 2)


@pytest.mark.rule("D12")
def test_a_drained_node_whose_name_was_not_written_is_named_in_the_next_pass():
    world = idle_and_about_to_shrink()
    plan = reconcile(world.snapshot(), world.state)
    answers = {drain.node_id: world.drain(drain.node_id, drain.reason) for drain in plan.drains}
    lost = plan_names(world.snapshot(), plan, answers)
    assert lost.patch
    following = reconcile(world.snapshot(), replace(lost.state, written_at_s=None))
    assert sorted(following.decisions["cpu"].delete) == sorted(world.pods)


def test_a_rejected_drain_restores_the_replicas_and_is_retried_with_backoff():
    world = at_work(3)
    world.demand(0)
    world.rejects = set(world.nodes)
    world.run(60)
    assert (world.replicas(), world.deleted) == (3, [])
    assert len(world.drain_calls) <= 9, "three nodes, at most three times a minute"


@pytest.mark.rule("RM:I22")
def test_a_node_that_got_work_in_the_last_moment_stays():
    world = at_work(2)
    world.demand(0)
    world.run_until(lambda: world.next_tick_s == world.now_s + 1 and world.idle_for() >= 20, 60)
    snapshot = world.snapshot()
    plan = reconcile(snapshot, world.state)
    world.demand(2)
    world.run(1)
    assert len(plan.drains) == 2
    assert {world.drain(drain.node_id, drain.reason).is_accepted for drain in plan.drains} == {False}


@pytest.mark.parametrize("step", ["patch", "drain"])
@pytest.mark.rule("D12")
def test_a_restart_between_any_two_steps_of_a_scale_down_changes_nothing(step: str):
    world = at_work(4)
    world.demand(1)
    world.dies_at = lambda: (
        step if not any("killed" in line for line in world.lines) and not world.lines.append("killed") else ""
    )
    world.run(120)
    assert (len(world.created), len(world.deleted), world.replicas(), world.named()) == (4, 3, 1, [])


def test_without_the_gcs_no_ready_worker_is_named_and_nothing_changes():
    world = at_work(2)
    world.demand(0)
    world.is_gcs_away = True
    world.run(120)
    assert (world.replicas(), world.deleted, world.reasons()) == (2, [], {"HeadDown"})


@pytest.mark.rule("AS:B-2", "RM:I22")
def test_a_maximum_below_what_runs_moves_the_busy_out_with_a_deadline():
    world = at_work(4)
    world.is_over_max_expected = True
    world.edit("cpu", maxReplicas=2)
    world.run(20)
    assert {reason for _, _, reason in world.drain_calls} == {DrainReason.PREEMPTION}
    assert (world.replicas(), world.deleted) == (2, [])
    world.run(330)
    assert (len(world.live()), len(world.deleted), world.named()) == (2, 2, [])


@pytest.mark.rule("AS:B-2")
def test_a_maximum_below_what_runs_ends_the_idle_at_once():
    world = at_work(4)
    world.demand(2)
    world.is_over_max_expected = True
    world.edit("cpu", maxReplicas=2)
    world.run(25)
    assert (len(world.live()), world.waiting()) == (2, 0)


@pytest.mark.rule("AS:B-1")
def test_a_group_that_leaves_the_spec_stops_no_other():
    world = World([group("cpu", replicas=0), group("old", replicas=2)])
    world.run(30)
    world.cluster["spec"]["workerGroupSpecs"].pop()
    world.demand(3)
    world.run(60)
    assert (world.waiting(), world.live("old"), world.replicas("cpu")) == (0, [], 3)


@pytest.mark.rule("AS:B-1")
def test_workers_of_a_removed_group_that_stay_without_an_operator_are_drained_once():
    world = World([group("cpu", replicas=0), group("old", replicas=2)], is_recorded=False)
    world.run(30)
    world.has_operator = False
    world.cluster["spec"]["workerGroupSpecs"].pop()
    world.run(30)
    assert (len(world.drain_calls), {node.status.value for node in world.nodes.values()}) == (2, {"DEAD"})


def test_a_suspended_group_is_left_as_it_is():
    world = World([group("cpu", replicas=0), group("off", replicas=3, suspend=True)])
    world.demand(2)
    world.run(60)
    assert (world.replicas("off"), world.replicas("cpu"), world.waiting()) == (3, 2, 0)


def test_a_group_that_cannot_be_read_is_left_as_it_is_and_named():
    broken = {**group("odd", replicas=2), "numOfHosts": 0}
    world = World([group("cpu", replicas=0), broken])
    world.pods = {}
    world.has_operator = False
    world.demand(2)
    world.run(10)
    assert (world.replicas("cpu"), world.replicas("odd"), "InvalidGroup" in world.reasons()) == (2, 2, True)


# --- nothing is done -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"suspend": True}, id="the cluster is suspended"),
        pytest.param({"enableInTreeAutoscaling": False}, id="autoscaling is switched off"),
    ],
)
def test_nothing_is_ordered_while(spec: dict[str, bool]):
    world = World()
    world.cluster["spec"].update(spec)
    world.demand(5)
    world.run(20)
    assert (world.writes, world.drain_calls, {bool(plan.why_not) for plan in world.plans}) == ([], [], {True})


def test_a_paused_cluster_is_reported_and_not_written():
    world = World()
    world.cluster["metadata"]["annotations"] = {constants.AUTOSCALER_ANNOTATION: constants.PAUSED}
    world.demand(5)
    world.run(20)
    assert (world.writes, len(world.reports) > 0, world.plans[-1].why_not) == ([], True, "paused")


def test_an_idle_cluster_is_never_written():
    world = World([group("cpu", replicas=0)])
    world.run(300)
    assert world.writes == []


def test_a_busy_cluster_in_steady_state_is_not_written_after_a_restart():
    world = at_work(3)
    before = len(world.writes)
    for _ in range(5):
        world.restart()
        world.run(13)
    assert len(world.writes) == before


# --- other writers ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("SC:S6")
def test_lower_replicas_of_another_writer_are_overwritten_every_ten_seconds_and_no_pod_is_deleted():
    world = at_work(6)
    before = len(world.writes)
    for _ in range(24):
        world.edit("cpu", replicas=1)
        world.run(5)
    writes = [at for at, _, _ in world.writes[before:]]
    assert (len(world.live()), world.deleted) == (6, [])
    assert writes
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(writes))


def test_a_higher_number_is_adopted_once_and_idles_out():
    world = World()
    world.edit("cpu", replicas=4)
    world.run(100)
    assert (len(world.created), world.replicas()) == (4, 0)
    for _ in range(10):
        world.edit("cpu", replicas=4)
        world.run(12)
    assert (len(world.created), world.record().groups["cpu"].adopted_replicas) == (4, 4)


# --- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:B-14")
def test_only_the_impossible_is_reported_as_infeasible_and_logged_once():
    world = World([group("cpu", replicas=0, high=2)])
    world.demand(5)
    world.run(40)
    assert world.reports[-1].infeasible == ()
    world.gangs = [("cd" * 16, 3)]
    world.constraint = None
    world.run(5)
    assert world.reports[-1].infeasible == ()
    assert not [event for event in world.events if "No available node types" in event and "resource requests" in event]


@pytest.mark.rule("SC:S21", "AS:B-14")
def test_what_no_group_could_hold_is_no_groups_fault_and_is_reported_once():
    world = World([group("cpu", replicas=0)])
    world.constraint = None
    world.extra_tasks = (Demand(Request(amounts_of({"GPU": 8})), 2),)
    world.run(60)
    assert [(why.reason, why.count) for why in world.record().why] == [("NoFittingGroup", 2)]
    assert world.reports[-1].infeasible == world.extra_tasks
    assert (len(world.writes), len([e for e in world.events if "No available node types" in e])) == (1, 1)
    world.extra_tasks = ()
    took_s = world.run_until(lambda: world.record().why == (), 20)
    assert took_s <= 10


@pytest.mark.rule("FD:AS3-4")
def test_a_bundle_of_request_resources_that_is_larger_than_any_node_is_named_with_the_amount():
    world = World([group("cpu", replicas=0)])
    memory = 2 * 1024**3
    world.constraint = (Demand(Request(amounts_of({"CPU": 1, "memory": memory + 1})), 2), ONE_CPU)
    world.run(30)
    (why,) = world.record().why
    assert f"{why.reason}: {text_of(why)}" == (
        f"NoFittingGroup: can never run: {{CPU: 1, memory: {memory + 1}}} x 2 fit no group, "
        f"whose nodes have at most {{memory: {memory}}}; add a group with such nodes"
    )
    assert world.reports[-1].infeasible_constraint == world.constraint


@pytest.mark.rule("SC:S21")
def test_a_head_that_is_down_is_the_only_reason_and_is_removed_afterwards():
    world = at_work(2)
    world.is_head_up = False
    world.run(30)
    assert world.reasons() == {"HeadDown"}
    world.is_head_up = True
    world.run(20)
    assert (world.reasons(), world.replicas(), world.deleted) == (set(), 2, [])


@pytest.mark.rule("AS:B-5")
def test_report_versions_never_fall_even_when_the_clock_does():
    world = World()
    world.run(10)
    snapshot = world.snapshot()
    ahead = Snapshot(**{**_fields(snapshot), "reported_version": 10**15})
    first = reconcile(ahead, ReconcilerState())
    second = reconcile(snapshot, first.state)
    assert first.report is not None
    assert second.report is not None
    assert (first.report.version, second.report.version) == (10**15, 10**15)


@pytest.mark.rule("AS:5.5")
def test_each_pending_node_is_one_entry_of_the_report():
    world = World()
    world.has_operator = False
    world.demand(5)
    world.run(8)
    entries = encode_report(world.reports[-1]).autoscaling_state.pending_instance_requests
    assert [entry.count for entry in entries] == [1] * 5
    world.has_operator = True
    world.run(4)
    assert (len(world.reports[-1].pending_requests), len(world.reports[-1].pending_instances)) == (0, 5)


def test_a_change_of_replicas_is_one_log_line_and_events_for_drivers():
    world = at_work(3)
    assert [line for line in world.lines if "group cpu" in line] == ["group cpu: 0 -> 3 (3 more nodes needed)"]
    assert world.events == ["Adding 3 node(s) of type cpu.", "Resized to 3 CPUs."]


def test_every_instance_of_the_plan_has_a_status_of_ray():
    world = at_work(3)
    assert {instance.status for instance in world.plans[-1].instances} == {Status.RAY_RUNNING}


# --- multi-host ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:B-8", "RM:I6")
def test_multi_host_replicas_are_launched_and_terminated_as_a_whole():
    world = World([group("slice", replicas=0, high=3, numOfHosts=4)])
    world.demand(6)
    world.run(40)
    assert (world.replicas("slice"), len(world.live("slice")), world.waiting()) == (2, 8, 0)
    world.demand(1)
    world.run(60)
    assert (world.replicas("slice"), len(world.live("slice"))) == (1, 4)
    assert len({pod.replica for pod in world.live("slice")}) == 1


@pytest.mark.rule("AS:B-9")
def test_under_another_operator_there_is_no_record_and_the_same_order():
    world = World(is_recorded=False)
    world.demand(3)
    world.run(40)
    world.demand(0)
    world.run(60)
    assert "annotations" not in world.cluster["metadata"]
    assert [kind for _, kind, _ in world.writes] == ["decisions", "decisions", "names", "decisions"]
    assert (len(world.created), len(world.deleted), world.replicas(), world.named()) == (3, 3, 0, [])


def _fields(snapshot: Snapshot) -> dict[str, object]:
    return {name: getattr(snapshot, name) for name in Snapshot.__slots__}


@pytest.mark.rule("AS §3.4 j")
def test_a_node_that_terminates_for_long_is_logged_once():
    world = at_work(1)
    world.is_over_max_expected = True
    world.edit("cpu", maxReplicas=0)
    world.run(200)
    assert sum("not gone long after termination was requested" in line for line in world.lines) == 1
