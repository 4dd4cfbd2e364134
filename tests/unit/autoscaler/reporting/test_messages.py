"""Reasons, log lines, events and the report: equal texts for equal situations, of bounded number."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision
from raytide.api.pod import PodCondition, PodView
from raytide.autoscaler.feasibility import could_hold
from raytide.autoscaler.gcs.messages import REPORTED_ONE_BY_ONE, encode_report
from raytide.autoscaler.model import (
    Demand,
    Drained,
    DrainReason,
    Gang,
    GcsState,
    Instance,
    LabelConstraint,
    NodeType,
    Request,
    SchedulingReply,
    Status,
    TerminationCause,
    amounts_of,
    labels_of,
)
from raytide.autoscaler.reporting.gcs_report import ReportInputs, build_report
from raytide.autoscaler.reporting.messages import (
    ResizeFacts,
    impossible_events,
    overdue_lines,
    reason_lines,
    resize_events,
    resizing_lines,
)
from raytide.autoscaler.request_text import shape_of
from raytide.autoscaler.scaling.decision_patch import (
    Change,
    change_between,
    since_last_write_s,
    wait_s,
)
from raytide.autoscaler.scaling.drains import FIRST_RETRY_S, LONGEST_RETRY_S, names_to_delete_after, rejections_after
from raytide.autoscaler.scaling.group_decisions import GroupResult
from raytide.autoscaler.scaling.limit_reasons import LimitInputs, reasons
from raytide.autoscaler.spec_group import SpecGroup
from raytide.autoscaler.state.current_targets import CurrentTarget, CurrentTargets, recorded_target
from raytide.autoscaler.state.group_availability import UnavailableGroup
from raytide.autoscaler.state.snapshot import Drain, DrainRejection
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import text_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = NodeType("headgroup", max_nodes=1)
CPU = NodeType("cpu", max_nodes=2, resources=amounts_of({"CPU": 4}), labels=labels_of({"zone": "a"}))


def request(labels: dict[str, str] | None = None, **resources: float) -> Request:
    selector = tuple(LabelConstraint(key, (value,)) for key, value in (labels or {}).items())
    return Request(amounts_of(resources), selectors=(selector,))


def codes(reply: SchedulingReply | None = None, nodes: int = 0, **extra: Any) -> dict[str, list[tuple[str, int]]]:
    found = reasons(LimitInputs((HEAD, CPU), reply or SchedulingReply(), {"cpu": nodes}, **extra))
    return {group: [(why.reason, why.count) for why in reasons] for group, reasons in found.items()}


# --- could it ever fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(request(CPU=4), True, id="all of an empty node"),
        pytest.param(request(CPU=5), False, id="more than a node has"),
        pytest.param(request(GPU=1), False, id="a resource it does not have"),
        pytest.param(request(GPU=0), True, id="none of a resource it does not have"),
        pytest.param(request({"zone": "a"}, CPU=1), True, id="its label"),
        pytest.param(request({"zone": "b"}, CPU=1), False, id="another label"),
        pytest.param(
            Request((), ((LabelConstraint("zone", ("b",)),), (LabelConstraint("zone", ("b",), is_in=False),))),
            True,
            id="the second alternative",
        ),
        pytest.param(
            Request((), ((LabelConstraint("zone", ("a",), is_known=False),),)), False, id="an unknown operator"
        ),
        pytest.param(request(**{"node:__internal_implicit_resource_x": 1}), True, id="what every node has one of"),
    ],
)
@pytest.mark.rule("AS:B-14")
def test_whether_an_empty_node_could_hold_it(asked: Request, *, expected: bool):
    assert could_hold(CPU, asked) is expected


# --- reasons ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        pytest.param({}, {}, id="all is well"),
        pytest.param(
            {"reply": SchedulingReply(unplaced=(Demand(request(CPU=1), 7),)), "nodes": 2},
            {"cpu": [("MaxReached", 7)]},
            id="work waits and the group is at its maximum",
        ),
        pytest.param(
            {"reply": SchedulingReply(unplaced=(Demand(request(CPU=1), 7),)), "nodes": 1},
            {"cpu": [("MaxReached", 7)]},
            id="work waits although the group is below its maximum",
        ),
        pytest.param(
            {
                "reply": SchedulingReply(
                    unplaced=(Demand(request(GPU=1), 3),), impossible=(Demand(request(GPU=1), 3),)
                ),
                "nodes": 2,
            },
            {"headgroup": [("NoFittingGroup", 3)]},
            id="infeasible demand: the maximum is not the reason",
        ),
        pytest.param(
            {"reply": SchedulingReply(unplaced_gangs=(Gang("g", (request(CPU=1),) * 4),)), "nodes": 2},
            {"cpu": [("MaxReached", 4)]},
            id="a gang waits",
        ),
        pytest.param(
            {
                "limits": {"cpu": Diagnosis("QuotaExceeded", 5, "no")},
                "nodes": 2,
                "reply": SchedulingReply(unplaced=(Demand(request(CPU=1)),)),
            },
            {"cpu": [("QuotaExceeded", 5)]},
            id="what blocks the group comes before its maximum",
        ),
        pytest.param({"held_back": {"cpu": 6}}, {"cpu": [("UpscalingLimited", 6)]}, id="Conservative holds some back"),
        pytest.param({"leaving": {"cpu": 2}}, {"cpu": [("Draining", 2)]}, id="nodes work off their drain"),
        pytest.param(
            {"problems": {"odd": "mend it"}}, {"odd": [("InvalidGroup", 1)]}, id="a group that cannot be read"
        ),
        pytest.param({"problems": {"": "mend it"}}, {"headgroup": [("InvalidGroup", 1)]}, id="the spec as a whole"),
        pytest.param(
            {"reply": SchedulingReply(unmet=(Demand(request(CPU=1), 9),))},
            {"headgroup": [("ConstraintUnmet", 1)]},
            id="request_resources() asks for more than the maxima allow",
        ),
        pytest.param(
            {
                "reply": SchedulingReply(
                    unmet=(Demand(request(CPU=9), 2),), impossible_constraint=(Demand(request(CPU=9), 2),)
                )
            },
            {"headgroup": [("NoFittingGroup", 2)]},
            id="request_resources() asks for bundles that are larger than any node",
        ),
        pytest.param(
            {
                "reply": SchedulingReply(
                    unmet=(Demand(request(CPU=9), 2), Demand(request(CPU=1), 9)),
                    impossible_constraint=(Demand(request(CPU=9), 2),),
                )
            },
            {"headgroup": [("NoFittingGroup", 2), ("ConstraintUnmet", 1)]},
            id="request_resources() asks for both",
        ),
    ],
)
@pytest.mark.rule("SC:S21")
def test_the_reason_when(situation: dict[str, Any], expected: dict[str, list[tuple[str, int]]]):
    assert codes(**situation) == expected


def test_a_sentence_names_three_shapes_and_counts_the_others():
    demands = tuple(Demand(request(CPU=0.5 * n), n) for n in range(1, 6))
    found = reasons(LimitInputs((HEAD, CPU), SchedulingReply(unplaced=demands), {"cpu": 2}))["cpu"][0]
    assert text_of(found) == (
        "pending: {CPU: 0.5} x 1, {CPU: 1.5} x 3, {CPU: 1} x 2 and 2 other shapes; the group is at its maximum of 2: "
        "raise maxReplicas"
    )


@pytest.mark.rule("FD:UX-4")
def test_infeasible_demand_is_said_to_never_run():
    impossible = (Demand(request(CPU=8)), Demand(request(CPU=1, GPU=1)))
    found = reasons(LimitInputs((HEAD, CPU), SchedulingReply(impossible=impossible), {"cpu": 2}))["headgroup"][0]
    assert found.count == 2
    assert text_of(found) == (
        "can never run: {CPU: 1, GPU: 1} x 1, {CPU: 8} x 1 fit no group, whose nodes have at most {CPU: 4, GPU: 0}; "
        "add a group with such nodes"
    )


@pytest.mark.rule("FD:AS3-4")
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        pytest.param(
            SchedulingReply(
                unmet=(Demand(request(CPU=5), 2), Demand(request(CPU=1), 7)),
                impossible_constraint=(Demand(request(CPU=5), 2),),
            ),
            "can never run: {CPU: 5} x 2 fit no group, whose nodes have at most {CPU: 4}; add a group with such nodes",
            id="bundles of request_resources()",
        ),
        pytest.param(
            SchedulingReply(impossible_gangs=(Gang("g", (request(CPU=1), request(CPU=6), request(CPU=4))),)),
            "can never run: {CPU: 6} x 1 fit no group, whose nodes have at most {CPU: 4}; add a group with such nodes",
            id="of a gang only the bundle that fits no node",
        ),
        pytest.param(
            SchedulingReply(impossible_gangs=(Gang("g", (replace(request(CPU=3), affinity=("_PG_g", "")),) * 2),)),
            "can never run: {CPU: 6} x 1 fit no group, whose nodes have at most {CPU: 4}; add a group with such nodes",
            id="bundles that have to share a node are one request",
        ),
        pytest.param(
            SchedulingReply(impossible=(Demand(request({"zone": "b"}, CPU=1)),)),
            "can never run: {CPU: 1} where zone in [b] x 1 fit no group; add a group with such nodes",
            id="no amount is too large, the labels do not fit",
        ),
    ],
)
def test_the_reason_names_what_fits_no_group_and_the_amounts_that_exceed_any_node(reply, message):
    found = reasons(LimitInputs((HEAD, CPU), reply, {"cpu": 0}))["headgroup"][0]
    assert (found.reason, text_of(found)) == ("NoFittingGroup", message)


def test_reasons_do_not_depend_on_the_order_of_demands():
    demands = [Demand(request(CPU=n), n) for n in range(1, 4)]
    first, second = (
        reasons(LimitInputs((HEAD, CPU), SchedulingReply(unplaced=tuple(order)), {"cpu": 2}))
        for order in (demands, demands[::-1])
    )
    assert first == second


def test_a_shape_names_its_label_selector():
    assert shape_of(request({"zone": "a"}, CPU=1)) == "{CPU: 1} where zone in [a]"


# --- lines and events ------------------------------------------------------------------------------------------------


def test_a_reason_is_reported_when_it_is_new_and_not_when_its_count_moves():
    first, results = reason_lines({"cpu": (Diagnosis("MaxReached", 4, "four"),)}, frozenset())
    again, results = reason_lines({"cpu": (Diagnosis("MaxReached", 5, "five"),)}, results)
    _, results = reason_lines({}, results)
    back, _ = reason_lines({"cpu": (Diagnosis("MaxReached", 4, "four"),)}, results)
    assert ([line.message for line in first], again, len(back)) == (["MaxReached: four"], (), 1)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param(
            {"after": GroupDecision(4), "launches": 4}, "group cpu: 0 -> 4 (4 more nodes needed)", id="it grows"
        ),
        pytest.param({"after": GroupDecision(1), "launches": 1}, "group cpu: 0 -> 1 (1 more node needed)", id="by one"),
        pytest.param(
            {"before": GroupDecision(3, delete=("a", "b")), "after": GroupDecision(3)},
            "group cpu: stays at 3 (2 named pods deleted)",
            id="only the names are taken back",
        ),
        pytest.param(
            {"before": GroupDecision(1), "after": GroupDecision(6), "raised": 6},
            "group cpu: 1 -> 6 (6 replicas set by another writer, adopted)",
            id="a person raised it",
        ),
    ],
)
def test_a_change_is_one_sentence_when(change: dict[str, Any], line: str):
    group, before = SpecGroup(0, "cpu"), change.get("before", GroupDecision(0))
    current = CurrentTarget(group, before, before.replicas, raised=change.get("raised"))
    (found,) = resizing_lines([GroupResult(group, current, change["after"], launches=change.get("launches", 0))])
    assert found.message == line


def test_a_reason_of_the_whole_cluster_names_no_group():
    (line,), _ = reason_lines({"": (Diagnosis("HeadDown", 1, "no head"),)}, frozenset())
    assert line.values == (("reason", "HeadDown"), ("count", 1))


def test_events_for_drivers_use_the_messages_of_ray():
    facts = ResizeFacts({"cpu": 3, "gpu": 0}, {("cpu", TerminationCause.IDLE): 2}, amounts_of({"CPU": 12.5, "GPU": 2}))
    assert [event.message for event in resize_events(facts)] == [
        "Adding 3 node(s) of type cpu.",
        "Removing 2 nodes of type cpu (idle).",
        "Resized to 12 CPUs, 2 GPUs.",
    ]


def test_drivers_are_warned_of_the_impossible_only():
    reply = SchedulingReply(
        unplaced=(Demand(request(CPU=1)), Demand(request(GPU=8), 2)), impossible=(Demand(request(GPU=8), 2),)
    )
    (warning,) = impossible_events(reply).values()
    assert "{GPU: 8}*2" in warning.message
    assert "CPU" not in warning.message


@pytest.mark.rule("AS:B-14")
def test_more_of_what_is_impossible_is_the_same_warning():
    def about(count: int) -> set[str]:
        return set(impossible_events(SchedulingReply(impossible=(Demand(request(GPU=8), count),))))

    assert about(2) == about(30)
    assert about(2) != set(impossible_events(SchedulingReply(impossible=(Demand(request(GPU=9), 2),))))


# --- report ----------------------------------------------------------------------------------------------------------


def reported(**extra: Any) -> ReportInputs:
    fields = {
        "gcs": GcsState(version=7),
        "instances": (),
        "reply": SchedulingReply(),
        "pending_counts": {},
    }
    return ReportInputs(**{**fields, "pods": {}, "now": NOW, **extra})


@pytest.mark.rule("AS:B-5")
@pytest.mark.parametrize(("kept", "version"), [(0, 1767225600000), (1767225600000 + 5, 1767225600000 + 5)])
def test_the_version_is_the_time_and_never_below_what_the_gcs_keeps(kept: int, version: int):
    assert build_report(reported(at_least=kept)).version == version


@pytest.mark.rule("AS:B-14", "AS:G-11")
def test_a_constraint_that_only_finds_no_capacity_is_not_infeasible():
    tight, too_big = (Demand(request(CPU=1), 99),), (Demand(request(CPU=9), 1),)
    for asked, impossible, expected in ((tight, (), None), ((*tight, *too_big), too_big, (*tight, *too_big))):
        reply = SchedulingReply(unmet=asked, impossible_constraint=impossible)
        facts = reported(gcs=GcsState(constraint=asked), reply=reply)
        assert build_report(facts).infeasible_constraint == expected


def test_the_report_has_the_reason_of_a_pending_pod():
    stuck = PodView(
        namespace="n", name="p", phase="Pending", scheduled=PodCondition("False", "Unschedulable", "no node")
    )
    found = build_report(reported(instances=(Instance("p", "cpu", Status.ALLOCATED, pod="p"),), pods={"p": stuck}))
    assert [(one.instance_id, one.details) for one in found.pending_instances] == [("p", "Unschedulable: no node")]


def test_a_blocked_group_is_a_failed_request():
    found = build_report(
        reported(blocked={"cpu": UnavailableGroup(Diagnosis("QuotaExceeded", 3, "full"))})
    ).failed_requests
    assert [(one.node_type, one.count, one.reason) for one in found] == [("cpu", 3, "QuotaExceeded: full")]


@pytest.mark.rule("FD:SEC3-6")
def test_messages_of_other_objects_forge_no_line_of_ray_status():
    forged, shown = "full\x1b[2J\nforged\u202e", r"full\x1b[2J\nforged\u202e"
    stuck = PodView(namespace="n", name="p", phase="Pending", scheduled=PodCondition("False", "Unschedulable", forged))
    instances = (Instance("p", "cpu", Status.ALLOCATED, pod="p"),)
    blocked = {"cpu": UnavailableGroup(Diagnosis("QuotaExceeded", 3, forged))}
    report = build_report(reported(instances=instances, pods={"p": stuck}, blocked=blocked))
    assert report.pending_instances[0].details == f"Unschedulable: {shown}"
    assert report.failed_requests[0].reason == f"QuotaExceeded: {shown}"


@pytest.mark.rule("FD:AS-A14")
def test_times_are_those_at_which_things_began():
    since = NOW - timedelta(seconds=90)
    blocked = {"cpu": UnavailableGroup(Diagnosis("QuotaExceeded", 2, ""), since=since)}
    report = build_report(
        reported(pending_counts={"cpu": 5}, request_ages_s={"cpu": [40.0, 40.0, 7.0]}, blocked=blocked)
    )
    now_s = int(NOW.timestamp())
    found = [(each.count, each.requested_at_s - now_s) for each in report.pending_requests]
    assert found == [(2, -40), (1, -7), (2, 0)]
    (request,) = report.failed_requests
    assert (request.started_at_s - now_s, request.failed_at_s - now_s) == (-90, -90)


def test_a_huge_number_of_pending_nodes_does_not_fill_the_report():
    report = build_report(reported(pending_counts={"cpu": 2_000_000_000}))
    assert len(encode_report(report).autoscaling_state.pending_instance_requests) == REPORTED_ONE_BY_ONE + 1


# --- pace ------------------------------------------------------------------------------------------------------------

GROUP = SpecGroup(0, "cpu", replicas=2, max_replicas=10)


def current_targets(
    decision: GroupDecision | None = None, group: SpecGroup = GROUP, at: datetime = NOW, **extra: Any
) -> CurrentTargets:
    record = None if decision is None else DecisionRecord("uid", "head", at, {"cpu": decision})
    return CurrentTargets((recorded_target(group, record),), "head", is_recorded=True, record=record, **extra)


@pytest.mark.parametrize(
    ("before", "order", "change"),
    [
        pytest.param(
            None, GroupDecision(2, adopted_replicas=2), Change.NONE, id="no record, and the spec has the same replicas"
        ),
        pytest.param(GroupDecision(2), GroupDecision(2), Change.NONE, id="the same"),
        pytest.param(GroupDecision(2), GroupDecision(3), Change.DECISION, id="another number"),
        pytest.param(GroupDecision(2), GroupDecision(2, ("a",)), Change.DECISION, id="a name more"),
        pytest.param(
            GroupDecision(2, adopted_replicas=1),
            GroupDecision(2, adopted_replicas=2),
            Change.DECISION,
            id="a number was adopted",
        ),
        pytest.param(GroupDecision(5), GroupDecision(5), Change.CONFLICT, id="the same, but the spec differs"),
        pytest.param(GroupDecision(2), GroupDecision(2, why=(Diagnosis("X"),)), Change.MESSAGE, id="only the reasons"),
    ],
)
def test_what_kind_of_change_it_is(before: GroupDecision | None, order: GroupDecision, change: Change):
    assert change_between(current_targets(before), {"cpu": order}) is change


def test_a_record_of_another_head_is_rewritten():
    assert (
        change_between(current_targets(GroupDecision(2), is_record_foreign=True), {"cpu": GroupDecision(2)})
        is Change.DECISION
    )


@pytest.mark.parametrize(
    ("change", "since_s", "expected"),
    [
        (Change.DECISION, None, 0.0),
        (Change.DECISION, 1.5, 0.5),
        (Change.DECISION, 2.0, 0.0),
        (Change.CONFLICT, 4.0, 6.0),
        (Change.MESSAGE, 9.0, 1.0),
        (Change.NONE, 0.0, 0.0),
    ],
)
def test_how_long_a_change_waits(change: Change, since_s: float | None, expected: float):
    assert wait_s(change, since_s) == expected


@pytest.mark.rule("D12")
@pytest.mark.parametrize(
    ("written_at_s", "age_s", "expected"),
    [
        pytest.param(95.0, 1, 5.0, id="our own memory counts"),
        pytest.param(None, 7, 7.0, id="after a restart the record's time does"),
        pytest.param(None, -60, None, id="a record from the future is ignored"),
    ],
)
def test_the_time_of_the_last_write(written_at_s: float | None, age_s: int, expected: float | None):
    found = current_targets(GroupDecision(2), at=NOW - timedelta(seconds=age_s))
    assert since_last_write_s(found, written_at_s, 100.0, NOW) == expected


# --- drains ----------------------------------------------------------------------------------------------------------


def drain(
    node: str, replica: str, *, is_ready: bool = True, reason: DrainReason = DrainReason.IDLE_TERMINATION
) -> Drain:
    return Drain(node, f"pod-{node}", "cpu", replica, reason, "", is_pod_ready=is_ready)


HOSTS = tuple(Instance(f"pod-{n}", "cpu", Status.RAY_RUNNING, pod=f"pod-{n}", replica="r") for n in "ab")


@pytest.mark.parametrize(
    ("drains", "answers", "named"),
    [
        pytest.param(("a", "b"), {"a": True, "b": True}, ("pod-a", "pod-b"), id="both hosts agree"),
        pytest.param(("a", "b"), {"a": True, "b": False}, (), id="one rejects: the replica is not named"),
        pytest.param(("a", "b"), {"a": True, "b": None}, (), id="one does not answer and its pod is Ready"),
        pytest.param(("a",), {"a": True}, ("pod-a", "pod-b"), id="the other has no Ray node: both are named"),
    ],
)
@pytest.mark.rule("AS:B-8")
def test_a_replica_is_named_when(drains: tuple[str, ...], answers: dict[str, bool | None], named: tuple[str, ...]):
    results = {node: None if yes is None else Drained(yes) for node, yes in answers.items()}
    assert names_to_delete_after([drain(node, "r") for node in drains], results, HOSTS).get("cpu", ()) == named


def test_without_an_answer_only_a_pod_that_is_not_ready_is_named():
    found = names_to_delete_after([drain("a", "r", is_ready=False), drain("b", "r", is_ready=False)], {}, HOSTS)
    assert found == {"cpu": ("pod-a", "pod-b")}


@pytest.mark.rule("RM:I22")
def test_a_node_under_preemption_is_never_named_at_once():
    asked = [drain(node, "r", reason=DrainReason.PREEMPTION) for node in "ab"]
    assert names_to_delete_after(asked, {"a": Drained(True), "b": Drained(True)}, HOSTS) == {}


def test_consecutive_drain_rejections_double_the_backoff_and_an_accepted_drain_ends_it():
    rejections: dict[str, DrainRejection] = {}
    rests = []
    for _ in range(8):
        rejections = rejections_after(rejections, [drain("a", "r")], {"a": Drained(False)}, 0.0)
        rests.append(rejections["a"].until_s)
    assert rests[:3] == [FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
    assert rests[-1] == LONGEST_RETRY_S
    assert rejections_after(rejections, [drain("a", "r")], {"a": Drained(True)}, 0.0) == {}


def test_pods_that_should_have_gone_are_named_once_and_few_of_them():
    pods = [f"w-{n}" for n in range(7)]
    lines, results = overdue_lines(pods, frozenset())
    assert [line.message for line in lines] == [
        "7 pods not gone long after termination was requested: w-0, w-1, w-2, w-3, w-4 and 2 more",
    ]
    assert overdue_lines(pods, results) == ((), results)
    more, _ = overdue_lines([*pods, "x"], results)
    assert [line.message for line in more] == ["1 pod not gone long after termination was requested: x"]
    assert overdue_lines([], results) == ((), frozenset())
