"""Conditions about scaling, one test per rule (D19, SC:S6, SC:S21)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api import constants
from raytide.api.actions import Delete
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide.api.conditions import find_condition, timestamp
from raytide.api.config import ClusterConfig
from raytide.api.limits import MAX_MANAGERS
from raytide.api.pod import ContainerView
from raytide.api.raycluster import RayCluster
from raytide.api.status_patch import status_patch
from raytide.diagnosis.model import Diagnosis
from raytide.raycluster import conditions_scaling
from raytide.raycluster.causes import MAX_FIXES
from raytide.raycluster.conditions_scaling import last_writer
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from raytide.raycluster.status import requeue_after_s, status
from support.builders import CLUSTER_UID, group, head, head_service, pod, raycluster

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = (ContainerView(constants.AUTOSCALER_CONTAINER, "running"),)
HEAD = head(containers=RUNNING)
OTHER_HEAD = head("demo-head-bbbbb", containers=RUNNING)
AGREED = GroupDecision(2)


class Scenario:
    """A RayCluster in time: a client edits it, the operator reconciles it, and its status is written."""

    def __init__(self, *groups):
        self.obj = raycluster(*groups, enableInTreeAutoscaling=True)
        self.obj["metadata"]["managedFields"] = []
        self.writes = 0
        self.last = None
        self.deletes = ()

    @property
    def replicas(self):
        """As the first group's spec has them."""
        return self.obj["spec"]["workerGroupSpecs"][0]["replicas"]

    def decide(self, record=DecisionRecord(CLUSTER_UID, HEAD.uid), **decisions):  # noqa: B008 - frozen
        """The sidecar writes its record."""
        self.head = record.head
        text = encode_record(replace(record, groups=decisions))
        self.obj["metadata"].setdefault("annotations", {})[constants.AUTOSCALER_DECISION_ANNOTATION] = text

    def rewrite(self, after_s, replicas, *, by="argocd"):
        """A client writes `replicas` of the first group; `by` is its field manager."""
        self.obj["spec"]["workerGroupSpecs"][0]["replicas"] = replicas
        entry = written(by, after_s)
        kept = [e for e in self.obj["metadata"]["managedFields"] if e["manager"] != by]
        for other in kept:
            other["fieldsV1"] = {"f:spec": {"f:rayVersion": {}}}
        self.obj["metadata"]["managedFields"] = [*kept, entry]

    def reconcile_after(self, after_s, *pods, times=1):
        """A pass of the operator; its status is written when it differs. The conditions as they stand then."""
        now = NOON + timedelta(seconds=after_s)
        for _ in range(times):
            cluster = RayCluster.parse(self.obj)
            observed = Observed(pods=pods or (HEAD,), services=(head_service(),), seen_at=now)
            todo = plan(cluster, observed, ClusterConfig(), str)
            self.deletes = [
                action for action in todo.actions if isinstance(action, Delete) and action.group != constants.HEAD_GROUP
            ]
            scaling = scaling_of(cluster, observed)
            computed = status(cluster, observed, todo, (), now, scaling=scaling)
            self.requeue_s = requeue_after_s(cluster, observed, computed, now, scaling=scaling)
            self.writes += status_patch(cluster, computed) is not None
            self.obj = {**self.obj, "status": computed}
        return computed["conditions"]

    def condition(self, kind, after_s, *pods):
        """One condition as (status, reason), None when it is not there."""
        found = find_condition(self.reconcile_after(after_s, *pods), kind)
        return found and (found["status"], found["reason"])

    def message(self, kind):
        """The message of the condition."""
        return find_condition(self.obj["status"]["conditions"], kind)["message"]


def replicas_of(group_name):
    """The managedFields entry of a writer of one group's replicas."""
    return {f'k:{{"groupName":"{group_name}"}}': {"f:replicas": {}}}


def written(manager, after_s, fields=None):
    fields = {"f:spec": {"f:workerGroupSpecs": replicas_of("cpu")}} if fields is None else fields
    at = timestamp(NOON + timedelta(seconds=after_s))
    return {"manager": manager, "operation": "Update", "time": at, "fieldsType": "FieldsV1", "fieldsV1": fields}


@pytest.fixture
def scenario():
    scenario = Scenario(group(replicas=2, high=50))
    scenario.decide(cpu=AGREED)
    return scenario


# --- AutoscalerDown --------------------------------------------------------------------------------------------------

FOLLOWED, DOWN = ("False", "HeadReplaced"), ("True", "HeadReplaced")


@pytest.mark.rule("D19")
def test_autoscaler_down_is_true_after_five_minutes_and_gone_when_a_record_is_valid(scenario):
    conditions = [scenario.condition(constants.AUTOSCALER_DOWN, at, OTHER_HEAD) for at in (0, 1, 299, 300, 400)]
    assert conditions == [FOLLOWED, FOLLOWED, FOLLOWED, DOWN, DOWN]
    assert "replicas of the spec apply" in scenario.message(constants.AUTOSCALER_DOWN)
    scenario.decide(DecisionRecord(CLUSTER_UID, OTHER_HEAD.uid), cpu=AGREED)
    assert scenario.condition(constants.AUTOSCALER_DOWN, 401, OTHER_HEAD) is None


@pytest.mark.rule("D19", "RC:K-6")
def test_what_is_not_valid_for_another_reason_meanwhile_counts_on(scenario):
    assert scenario.condition(constants.AUTOSCALER_DOWN, 0, pod()) == ("False", "HeadMissing")
    assert scenario.condition(constants.AUTOSCALER_DOWN, 200, OTHER_HEAD) == FOLLOWED
    assert scenario.condition(constants.AUTOSCALER_DOWN, 300, OTHER_HEAD) == DOWN


@pytest.mark.rule("D19")
def test_a_record_that_was_valid_in_between_restarts_the_grace_period(scenario):
    scenario.reconcile_after(0, OTHER_HEAD)
    assert scenario.condition(constants.AUTOSCALER_DOWN, 200, HEAD) is None
    assert scenario.condition(constants.AUTOSCALER_DOWN, 310, OTHER_HEAD) == FOLLOWED


@pytest.mark.rule("D19")
def test_the_five_minutes_are_waited_for(scenario):
    scenario.reconcile_after(0, OTHER_HEAD)
    assert scenario.requeue_s == 300
    scenario.reconcile_after(299.5, OTHER_HEAD)
    assert scenario.requeue_s == pytest.approx(0.5)
    scenario.reconcile_after(300, OTHER_HEAD)
    assert scenario.requeue_s is None or scenario.requeue_s > 1


@pytest.mark.rule("D19", "RM:I13")
def test_an_invalid_cluster_is_not_requeued(scenario):
    scenario.reconcile_after(0, OTHER_HEAD)
    scenario.rewrite(1, 1)
    scenario.reconcile_after(1, HEAD)
    scenario.obj["spec"]["workerGroupSpecs"][0]["minReplicas"] = 99
    scenario.reconcile_after(400, OTHER_HEAD)
    assert find_condition(scenario.obj["status"]["conditions"], constants.INVALID)
    assert scenario.requeue_s is None


@pytest.mark.rule("D19")
def test_a_copied_record_is_reported_as_not_followed(scenario):
    scenario.decide(DecisionRecord("uid-of-the-backup", HEAD.uid), cpu=AGREED)
    assert scenario.condition(constants.AUTOSCALER_DOWN, 0) == ("False", "RecordOfAnotherCluster")
    assert "replicas of the spec apply" in scenario.message(constants.AUTOSCALER_DOWN)


@pytest.mark.rule("D19")
def test_desired_workers_follow_the_record_and_after_its_grace_period_the_spec(scenario):
    scenario.decide(cpu=GroupDecision(7))
    scenario.reconcile_after(0, OTHER_HEAD)
    desired = [scenario.obj["status"][key] for key in ("desiredWorkerReplicas", "desiredCPU")]
    assert desired == [7, "8"]
    scenario.reconcile_after(300, OTHER_HEAD)
    scenario.reconcile_after(301, OTHER_HEAD)
    assert [scenario.obj["status"][key] for key in ("desiredWorkerReplicas", "desiredCPU")] == [2, "3"]


@pytest.mark.rule("D19")
@pytest.mark.parametrize("change", ["paused", "off"])
def test_a_paused_or_disabled_autoscaler_is_not_reported_as_down(scenario, change):
    scenario.reconcile_after(0, OTHER_HEAD)
    if change == "paused":
        scenario.obj["metadata"]["annotations"][constants.AUTOSCALER_ANNOTATION] = constants.PAUSED
    else:
        scenario.obj["spec"]["enableInTreeAutoscaling"] = False
    assert scenario.condition(constants.AUTOSCALER_DOWN, 1, OTHER_HEAD) is None


@pytest.mark.rule("D19", "RC:SU-4")
def test_a_suspended_cluster_has_no_autoscaler_to_miss(scenario):
    scenario.reconcile_after(0, OTHER_HEAD)
    scenario.obj["spec"]["suspend"] = True
    assert scenario.condition(constants.AUTOSCALER_DOWN, 1, OTHER_HEAD) is None
    assert scenario.condition(constants.AUTOSCALER_DOWN, 900, OTHER_HEAD) is None
    scenario.obj["spec"]["suspend"] = False
    scenario.obj["status"]["conditions"] = []  # the suspension has ended, and it has been resumed
    assert scenario.condition(constants.AUTOSCALER_DOWN, 901, OTHER_HEAD) == FOLLOWED


# --- ReplicasContended -----------------------------------------------------------------------------------------------

DIFFERS, CONTENDED = ("False", "ReplicasDiffer"), ("True", "ReplicasRewritten")


@pytest.mark.rule("D19", "SC:S6")
def test_replicas_contended_is_true_after_ten_seconds_and_gone_after_fifteen_of_agreement(scenario):
    assert scenario.condition(constants.REPLICAS_CONTENDED, 0) is None
    scenario.rewrite(5, 1)
    conditions = [scenario.condition(constants.REPLICAS_CONTENDED, at) for at in (5, 14, 15, 30)]
    assert conditions == [DIFFERS, DIFFERS, CONTENDED, CONTENDED]
    scenario.rewrite(31, 2, by=constants.AUTOSCALER_FIELD_MANAGER)
    conditions = [scenario.condition(constants.REPLICAS_CONTENDED, at) for at in (31, 45, 46)]
    assert conditions == [CONTENDED, CONTENDED, None]


@pytest.mark.rule("D19", "SC:S6")
def test_it_names_group_numbers_and_field_manager(scenario):
    scenario.rewrite(0, 1)
    scenario.reconcile_after(0)
    scenario.reconcile_after(11)
    assert scenario.message(constants.REPLICAS_CONTENDED) == (
        "group cpu: replicas is 1 (written by argocd), the autoscaler decided 2; held by: argocd, which also writes replicas; "
        "fix: stop that client from writing replicas, or set minReplicas"
    )


@pytest.mark.rule("D19")
def test_replicas_that_were_applied_once_are_named_in_the_message(scenario):
    scenario.decide(cpu=GroupDecision(2, adopted_replicas=30))
    scenario.rewrite(0, 30)
    scenario.reconcile_after(0)
    assert "decided 2; 30 was already applied once" in scenario.message(constants.REPLICAS_CONTENDED)


@pytest.mark.rule("SC:S6")
def test_a_loop_that_writes_every_five_seconds_is_contention_though_the_sidecar_writes_back_every_ten(scenario):
    conditions = {}
    for at in range(60):
        if at % 5 == 0:
            scenario.rewrite(at, 1)
        if at % 10 == 2:
            scenario.rewrite(at, 2, by=constants.AUTOSCALER_FIELD_MANAGER)
        conditions[at] = scenario.condition(constants.REPLICAS_CONTENDED, at)
    assert conditions[9] != CONTENDED
    assert all(conditions[at] == CONTENDED for at in range(15, 60)), "and it does not flap"
    scenario.rewrite(62, 2, by=constants.AUTOSCALER_FIELD_MANAGER)
    assert scenario.condition(constants.REPLICAS_CONTENDED, 77) is None, "the loop has stopped"


@pytest.mark.rule("D19")
def test_a_number_that_is_adopted_in_time_is_no_contention(scenario):
    scenario.rewrite(0, 30, by="kubectl-edit")
    conditions = [scenario.condition(constants.REPLICAS_CONTENDED, 0)]
    scenario.decide(cpu=GroupDecision(30, adopted_replicas=30))
    scenario.rewrite(5, 30, by=constants.AUTOSCALER_FIELD_MANAGER)
    conditions += [scenario.condition(constants.REPLICAS_CONTENDED, at) for at in (5, 11, 19, 20)]
    assert conditions == [DIFFERS, DIFFERS, DIFFERS, DIFFERS, None]


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"replicas": 70}, id="more than max is max"),
        pytest.param({"replicas": 1, "minReplicas": 50}, id="less than min is min"),
    ],
)
def test_numbers_that_mean_the_same_are_no_contention(spec):
    scenario = Scenario(group(replicas=50, high=50))
    scenario.obj["spec"]["workerGroupSpecs"][0].update(spec)
    scenario.decide(cpu=GroupDecision(50))
    assert scenario.condition(constants.REPLICAS_CONTENDED, 0) is None


@pytest.mark.rule("D19")
def test_replicas_are_not_contended_while_the_autoscaler_is_absent(scenario):
    scenario.rewrite(0, 1)
    scenario.reconcile_after(0)
    assert scenario.condition(constants.REPLICAS_CONTENDED, 1, OTHER_HEAD) is None


@pytest.mark.rule("D19")
def test_its_deadlines_are_waited_for(scenario):
    scenario.rewrite(0, 1)
    scenario.reconcile_after(0)
    assert scenario.requeue_s == 10
    scenario.reconcile_after(10)
    assert scenario.requeue_s is None or scenario.requeue_s > 15
    scenario.rewrite(12, 2, by=constants.AUTOSCALER_FIELD_MANAGER)
    scenario.reconcile_after(13)
    assert scenario.requeue_s == 14


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("entries", "writer"),
    [
        pytest.param(None, "", id="no managedFields"),
        pytest.param("x", "", id="a text for managedFields"),
        pytest.param([None, "x", {}, {"fieldsV1": 3}], "", id="entries that are none"),
        pytest.param([written("kubectl", 0) | {"time": "noon"}], "", id="a time that is none"),
        pytest.param([written("kubectl", 0) | {"manager": None}], "", id="a nameless writer"),
        pytest.param([written("kubectl", 0, {"f:spec": {"f:rayVersion": {}}})], "", id="a writer of something else"),
        pytest.param([written("kubectl", 0, {"f:spec": "x"})], "", id="fields that are none"),
        pytest.param([written("kubectl", 0), written("argocd", 1)], "argocd", id="the last one"),
        pytest.param(
            [written("kubectl", 0), written("keda", 1, {"f:spec": {"f:workerGroupSpecs": replicas_of("gpu")}})],
            "kubectl",
            id="not the writer of another group",
        ),
        pytest.param(
            [written("kubectl", 0), written("argocd", 1, {"f:spec": {"f:workerGroupSpecs": {}}})],
            "argocd",
            id="under KubeRay's CRD the list has one owner",
        ),
        pytest.param(
            [written("kubectl", 0), written(constants.AUTOSCALER_FIELD_MANAGER, 1)], "kubectl", id="never the sidecar"
        ),
        pytest.param(
            [
                written("kubectl", 0),
                written(
                    "odd",
                    1,
                    {
                        "f:spec": {"f:workerGroupSpecs": {}},
                        "f:metadata": {"f:annotations": {f"f:{constants.AUTOSCALER_DECISION_ANNOTATION}": {}}},
                    },
                ),
            ],
            "kubectl",
            id="the sidecar under another name",
        ),
    ],
)
def test_the_field_manager_of_the_last_write(entries, writer):
    cluster = raycluster()
    cluster["metadata"]["managedFields"] = entries
    assert last_writer(RayCluster.parse(cluster), "cpu") == writer


@pytest.mark.rule("FD:SEC3-1")
def test_of_thousands_of_managers_the_latest_are_read():
    cluster = raycluster()
    fields = {"f:spec": {"f:workerGroupSpecs": {}}}
    cluster["metadata"]["managedFields"] = [
        {"manager": f"m{n}", "time": f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z", "fieldsV1": fields}
        for n in range(5_000)
    ]
    parsed = RayCluster.parse(cluster)
    assert last_writer(parsed, "cpu") == "m4999"
    assert len(conditions_scaling._writes(parsed)) == MAX_MANAGERS


@pytest.mark.rule("D19")
def test_agreement_without_any_trace_of_a_writer_counts_from_the_condition(scenario):
    scenario.rewrite(0, 1)
    scenario.reconcile_after(0)
    scenario.rewrite(3, 2)
    scenario.obj["metadata"]["managedFields"] = None
    conditions = [scenario.condition(constants.REPLICAS_CONTENDED, at) for at in (14, 15)]
    assert conditions == [DIFFERS, None]


# --- ScalingLimited --------------------------------------------------------------------------------------------------


@pytest.mark.rule("SC:S21", "D19")
@pytest.mark.parametrize(
    "reason",
    [
        "MaxReached",
        "QuotaExceeded",
        "Unschedulable",
        "SchedulingGated",
        "ImagePullFailed",
        "CrashLoop",
        "NoFittingGroup",
        "NodeBusy",
        "TopologyUnmet",
        "ScaleGated",
        "HeadDown",
    ],
)
def test_scaling_limited_has_reason_group_and_count_and_is_removed_with_the_reason(scenario, reason):
    scenario.decide(cpu=GroupDecision(2, why=(Diagnosis(reason, 4, "as it is"),)))
    assert scenario.condition(constants.SCALING_LIMITED, 0) == ("True", reason)
    message = scenario.message(constants.SCALING_LIMITED)
    assert message.startswith(f"group cpu: 4 × {reason} (as it is); held by: ")
    assert "; fix: " in message
    scenario.decide(cpu=AGREED)
    assert scenario.condition(constants.SCALING_LIMITED, 1) is None


@pytest.mark.rule("SC:S21", "FD:UX-4")
def test_what_can_never_run_comes_first_and_other_reasons_are_ordered_as_groups_in_the_spec():
    scenario = Scenario(group("b"), group("a"))
    record = DecisionRecord(CLUSTER_UID, HEAD.uid, why=(Diagnosis("NoFittingGroup", 3, "{TPU: 1}"),))
    scenario.decide(
        record, a=GroupDecision(2, why=(Diagnosis("MaxReached"),)), b=GroupDecision(2, why=(Diagnosis("CrashLoop", 1),))
    )
    scenario.reconcile_after(0)
    assert scenario.message(constants.SCALING_LIMITED) == (
        "3 × NoFittingGroup ({TPU: 1}); held by: the worker groups in the spec; fix: add a worker group with such nodes, or "
        "request less per task, actor or bundle; "
        "group b: 1 × CrashLoop; held by: the container of pod POD; fix: kubectl logs POD -n default --all-containers "
        "--previous; "
        "group a: MaxReached; held by: maxReplicas of group a; fix: raise maxReplicas of group a, or wait until work in it ends"
    )
    assert scenario.condition(constants.SCALING_LIMITED, 0) == ("True", "NoFittingGroup")


@pytest.mark.rule("SC:S21")
def test_draining_and_unknown_reasons_have_neither_holder_nor_cure(scenario):
    scenario.decide(
        cpu=GroupDecision(2, why=(Diagnosis("Draining", 1, "draining nodes: 1"), Diagnosis("Odd", 1, "odd")))
    )
    scenario.reconcile_after(0)
    assert scenario.message(constants.SCALING_LIMITED) == (
        "group cpu: 1 × Draining (draining nodes: 1); group cpu: 1 × Odd (odd)"
    )


@pytest.mark.rule("SC:S21", "D21")
def test_a_record_with_thousands_of_reasons_has_holder_and_fix_of_the_first_ones(scenario):
    scenario.decide(cpu=GroupDecision(2, why=tuple(Diagnosis("MaxReached", count) for count in range(900))))
    scenario.reconcile_after(0)
    assert scenario.message(constants.SCALING_LIMITED).count("; fix: ") == MAX_FIXES


@pytest.mark.rule("SC:S21")
@pytest.mark.parametrize("reason", ["no reason", "9lives", "ends:", "é", "a" * 2000])
def test_a_reason_the_api_would_reject_does_not_cost_the_status(scenario, reason):
    scenario.decide(cpu=GroupDecision(2, why=(Diagnosis(reason, 1),)))
    assert scenario.condition(constants.SCALING_LIMITED, 0) == ("True", "Other")
    assert reason in scenario.message(constants.SCALING_LIMITED)


@pytest.mark.rule("D19")
def test_a_record_that_is_not_followed_sets_no_scaling_limit(scenario):
    scenario.decide(cpu=GroupDecision(2, why=(Diagnosis("MaxReached", 4),)))
    scenario.obj["metadata"]["annotations"][constants.AUTOSCALER_ANNOTATION] = constants.PAUSED
    assert scenario.condition(constants.SCALING_LIMITED, 0) is None


# --- quiet -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D8", "RC:K-6", "RM:I19")
def test_looking_again_writes_nothing_and_times_move_only_with_a_status(scenario):
    scenario.decide(cpu=GroupDecision(2, why=(Diagnosis("MaxReached", 4),)))
    scenario.rewrite(0, 1)
    scenario.reconcile_after(0)
    written_before, first = scenario.writes, scenario.obj["status"]["conditions"]
    scenario.reconcile_after(1)
    scenario.reconcile_after(9)
    assert scenario.writes == written_before
    scenario.decide(cpu=GroupDecision(2, why=(Diagnosis("MaxReached", 5),)))
    times = {c["type"]: c["lastTransitionTime"] for c in first}
    assert times == {c["type"]: c["lastTransitionTime"] for c in scenario.reconcile_after(9)}
    assert scenario.writes == written_before + 1


# --- whatever happens ------------------------------------------------------------------------------------------------

LOW, HIGH = 1, 9
WORKERS = tuple(pod(f"demo-cpu-worker-{i:05d}") for i in range(6))
some_names = st.lists(st.sampled_from([worker.name for worker in WORKERS]), max_size=2).map(tuple)
happenings = st.one_of(
    st.tuples(st.just("rewrite"), st.integers(0, 12)),
    st.tuples(st.just("decide"), st.builds(GroupDecision, st.integers(0, 12), some_names)),
    st.tuples(st.just("head"), st.sampled_from([HEAD, OTHER_HEAD, head(), None])),
    st.tuples(st.just("wait"), st.integers(1, 400)),
)


def is_valid(scenario, here):
    """Whether the sidecar of this head wrote the last record, and its autoscaler runs."""
    return here is not None and bool(here.containers) and here.uid == scenario.head


@pytest.mark.rule("D19", "RM:I4", "RM:I21", "SC:S6")
@given(st.lists(happenings, max_size=12))
def test_workers_are_removed_only_by_name_in_any_history_of_writes(steps):
    scenario = Scenario(group(replicas=2, low=LOW, high=HIGH))
    here, at, ordered, adopted_replicas = HEAD, 0, set(), None
    for kind, what in steps:
        at += what if kind == "wait" else 1
        if kind == "rewrite":
            scenario.rewrite(at, what)
        elif kind == "decide" and here is not None:
            raised = None if scenario.last is None else scenario.last.replicas_to_adopt(scenario.replicas)
            adopted_replicas = adopted_replicas if raised is None else raised
            scenario.last = replace(what, replicas=raised or what.replicas, adopted_replicas=adopted_replicas)
            ordered |= set(what.delete)
            scenario.decide(DecisionRecord(CLUSTER_UID, here.uid), cpu=scenario.last)
            scenario.rewrite(at, scenario.last.replicas, by=constants.AUTOSCALER_FIELD_MANAGER)
        elif kind == "head":
            here = what
        pods = (*((here,) if here else ()), *WORKERS)
        conditions = scenario.reconcile_after(at, *pods, times=2)
        assert {delete.name for delete in scenario.deletes} <= ordered
        assert LOW <= scenario.obj["status"]["desiredWorkerReplicas"] <= HIGH
        is_down = find_condition(conditions, constants.AUTOSCALER_DOWN) is not None
        assert is_down == (scenario.last is not None and not is_valid(scenario, here))
