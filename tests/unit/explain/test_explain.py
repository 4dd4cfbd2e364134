"""Why a workload is not larger: each cause of SC:S21 with its stage, holder and fix, for both kinds."""

from dataclasses import replace

import pytest

from raytide.api import constants
from raytide.api import trainingjob_constants as training
from raytide.api.autoscaler_decision import PERMANENT_REASONS, GroupDecision
from raytide.api.conditions import find_condition
from raytide.api.pod_failure import Cause
from raytide.diagnosis.catalogue import CATALOGUE
from raytide.diagnosis.model import Diagnosis, Stage
from raytide.explain import messages
from raytide.explain.explain import explain
from raytide.explain.model import MAX_BLOCKERS, MAX_GROUPS, MAX_MESSAGE, MAX_PODS, Phase, Size, Unreadable, Verdict
from support.builders import group, pod
from support.explained import (
    AT_MAXIMUM,
    HEAD,
    NOON,
    NOTHING_MISSING,
    QUOTA,
    RAYCLUSTERS,
    SHAPES,
    SINCE,
    TRAININGJOBS,
    UNSCHEDULABLE,
    Case,
    decided,
    hostile,
    of_cluster,
    reconciled,
    retry,
    waiting_worker,
    worker,
)

WITH_REMEDY = (constants.WORKERS_MISSING, constants.SCALING_LIMITED, constants.REPLICAS_CONTENDED)

pytestmark = pytest.mark.rule("SC:S21", "FD:UX-3")

CASES = [
    *(pytest.param(make, id=f"RayCluster: {words}") for words, make in RAYCLUSTERS.items()),
    *(pytest.param(make, id=f"TrainingJob: {words}") for words, make in TRAININGJOBS.items()),
]


@pytest.mark.parametrize("make", CASES)
def test_a_cause_is_named_with_stage_holder_and_cure(make):
    case: Case = make()
    found = case.explained()
    first = found.first
    assert first is not None, found
    assert (first.stage, first.reason, first.group) == (case.stage, case.reason or first.reason, case.group)
    assert case.holder in first.holder
    assert case.fix in first.fix
    assert case.message in first.message
    assert "{" not in first.holder + first.fix
    assert found.verdict.exit_code == case.exit_code
    assert first.is_permanent is (case.exit_code == 4)
    assert [line.stage for line in found.stages if line.is_blocked][:1] in ([], [first.stage], [Stage.DEMAND])


def test_the_condition_names_the_same_cause_holder_and_cure():
    """So does the event, whose message is that of the condition. Workers that merely start are no failure and have no fix there."""
    compared = set()
    for words, make in RAYCLUSTERS.items():
        case = make()
        found, first = case.explained(), case.explained().first
        for each in case.objects.obj.get("status", {}).get("conditions", ()):
            if (each["reason"], each["status"]) != (first.reason, "True") or each["type"] not in WITH_REMEDY:
                continue
            if first.reason == constants.WAITING_FOR_PODS:
                assert "cure" not in each["message"]
                continue
            compared.add(first.reason)
            for part in (first.message, f"held by: {first.holder}; fix: {first.fix}"):
                assert part in each["message"], (words, part, each, found)
    assert compared >= {*Cause} - {Cause.NAME_TAKEN} | {"MaxReached", "NoFittingGroup", "HeadDown", "ReplicasRewritten"}


def test_the_condition_waiting_of_a_job_names_the_same_cause_holder_and_cure():
    compared = set()
    for words, make in TRAININGJOBS.items():
        case = make()
        waiting = find_condition(case.objects.obj.get("status", {}).get("conditions", ()), "Waiting")
        first = case.explained().first
        if waiting is None or waiting["reason"] != first.reason:
            continue
        compared.add(first.reason)
        assert waiting["message"] == f"{first.message}; held by: {first.holder}; fix: {first.fix}", words
    pods = {Cause.QUOTA, Cause.FORBIDDEN, Cause.UNSCHEDULABLE, Cause.IMAGE, Cause.CRASH}
    assert compared >= pods | {"InsufficientGPU", "HigherPriority", "CapacityReserved", "Unsatisfiable", "NotAdmitted"}


@pytest.mark.rule("FD:TJ3-2")
def test_the_condition_of_a_contended_job_names_the_same_client_and_cure():
    case = TRAININGJOBS["another client writes its size"]()
    contended = find_condition(case.objects.obj["status"]["conditions"], training.REPLICAS_CONTENDED)
    first = case.explained().first
    assert contended["message"] == f"{first.message}; held by: {first.holder}; fix: {first.fix}"


@pytest.mark.parametrize("make", CASES)
def test_the_same_objects_give_the_same_explanation(make):
    case = make()
    assert case.explained() == case.explained()


@pytest.mark.parametrize("make", [pytest.param(make, id=words) for words, make in NOTHING_MISSING.items()])
def test_nothing_is_missing(make):
    found = explain(make(), NOON)
    assert (found.verdict, found.blockers) == (Verdict.NOTHING_MISSING, ())
    assert found.verdict.exit_code == 0


SUSPENDED_AT = "2026-01-01T12:00:00Z"


@pytest.mark.rule("FD:UX3-2", "FD:UX3-6")
@pytest.mark.parametrize(
    ("make", "size"),
    [
        pytest.param(
            lambda: TRAININGJOBS["no node has enough free resources"]().objects,
            Size(0, 0, needed=2, maximum=4),
            id="a gang needs its minimum",
        ),
        pytest.param(NOTHING_MISSING["the job runs at its size"], Size(2, 2, 2, 4), id="a job that runs may grow"),
        pytest.param(
            NOTHING_MISSING["the job has succeeded"],
            Size(needed=2, phase=Phase.SUCCEEDED, since="2026-01-01T00:00:00Z"),
            id="a job that has succeeded wants nothing",
        ),
        pytest.param(
            lambda: RAYCLUSTERS["it is suspended"]().objects,
            Size(0, 0, needed=2, phase=Phase.SUSPENDED, since=SUSPENDED_AT),
            id="a suspended cluster wants its workers again",
        ),
        pytest.param(
            lambda: RAYCLUSTERS["a group is at its maximum"]().objects,
            Size(2, 2, 2, maximum=2),
            id="an autoscaled cluster has a maximum",
        ),
        pytest.param(NOTHING_MISSING["all workers are ready"], Size(2, 2, 2), id="another one has none"),
    ],
)
def test_the_size_has_what_is_needed_and_what_there_may_be(make, size):
    assert explain(make(), NOON).size == size


@pytest.mark.rule("FD:UX3-6")
def test_a_job_that_has_ended_has_no_stages_and_no_roles():
    found = explain(NOTHING_MISSING["the job has succeeded"](), NOON)
    assert (found.stages, found.groups) == ((), ())
    assert found.summary.startswith("Succeeded at 2026-01-01T00:00:00Z: ")


@pytest.mark.rule("FD:UX-4")
def test_what_can_never_run_does_not_hide_behind_what_waits():
    record = decided(cluster=(SHAPES,), cpu=GroupDecision(2, why=(AT_MAXIMUM,)))
    found = explain(of_cluster(HEAD, worker(0), worker(1), groups=(group(replicas=2, high=2),), record=record), NOON)
    assert found.summary == (
        "2 of 2 workers are ready. 2 requests can never run: {CPU: 1, GPU: 1} x 1, {CPU: 8} x 1 fit no group. "
        "2 requests wait: group cpu is at maxReplicas 2."
    )
    assert [each.is_permanent for each in found.blockers] == [True, False]
    assert found.verdict is Verdict.CAN_NEVER_RUN


def test_the_message_of_the_condition_is_passed_on_with_its_time():
    found = explain(of_cluster(HEAD, worker(0), retries=(retry("cpu", QUOTA),)), NOON)
    assert (found.first.message, found.first.since, found.first.count) == (QUOTA, SINCE, 1)


def test_a_reason_of_the_autoscaler_and_of_the_pods_is_one_cause():
    why = Diagnosis("Unschedulable", 1, "0/3 nodes are available")
    objects = of_cluster(
        HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE), record=decided(cpu=GroupDecision(2, why=(why,)))
    )
    found = explain(objects, NOON)
    assert [(each.reason, each.message) for each in found.blockers] == [("Unschedulable", UNSCHEDULABLE.message)]


def test_each_group_has_its_own_cause():
    pods = (HEAD, waiting_worker(0, scheduled=UNSCHEDULABLE))
    groups = (group("cpu", 1), group("gpu", 1))
    found = explain(of_cluster(*pods, groups=groups, retries=(retry("gpu", QUOTA),)), NOON)
    assert [(each.group, each.reason) for each in found.blockers] == [
        ("gpu", "QuotaExceeded"),
        ("cpu", "Unschedulable"),
    ]
    assert [(line.name, line.wanted, line.pods, line.ready, line.reason) for line in found.groups] == [
        ("cpu", 1, 1, 0, "Unschedulable"),
        ("gpu", 1, 0, 0, "QuotaExceeded"),
    ]


CPU_OF_TWO = (HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE))
GPU = tuple(pod(f"demo-gpu-worker-{index:05d}", group="gpu") for index in range(3))


def without_pods(pods, *groups, **status) -> dict[str, int | None]:
    """Ready workers by group, by the status that the operator writes for these pods."""
    objects = replace(of_cluster(*pods, groups=groups), pods=None)
    objects.obj["status"] |= status
    return {line.name: line.ready for line in explain(objects, NOON).groups}


@pytest.mark.parametrize(
    ("pods", "groups", "ready"),
    [
        pytest.param(CPU_OF_TWO, (group("cpu", 2),), {"cpu": 1}, id="one group"),
        pytest.param((*CPU_OF_TWO, *GPU), (group("cpu", 2), group("gpu", 3)), {"cpu": 1, "gpu": 3}, id="one has all"),
        pytest.param(
            (*CPU_OF_TWO, *GPU[:1]), (group("cpu", 2), group("gpu", 3)), {"cpu": 1, "gpu": 1}, id="both lack some"
        ),
        pytest.param(
            (HEAD, worker(0), *GPU), (group("cpu", 1), group("gpu", 3)), {"cpu": 1, "gpu": 3}, id="nothing is missing"
        ),
    ],
)
def test_without_pods_the_status_has_the_ready_workers_of_each_group(pods, groups, ready):
    assert without_pods(pods, *groups) == ready
    with_pods = explain(of_cluster(*pods, groups=groups), NOON)
    assert {line.name: line.ready for line in with_pods.groups} == ready, "the same as with pods"


def test_a_status_that_does_not_tell_the_ready_workers_of_two_groups_gives_no_number():
    groups = (group("cpu", 1), group("gpu", 3))
    assert without_pods((HEAD, worker(0), *GPU), *groups, readyWorkerReplicas=2) == {"cpu": None, "gpu": None}


def test_pods_of_another_owner_do_not_count():
    found = explain(of_cluster(HEAD, worker(0), worker(1), worker(2, owner_uid="uid-other")), NOON)
    assert (found.groups[0].pods, found.verdict) == (2, Verdict.NOTHING_MISSING)


def test_stages_have_numbers_from_decision_to_nodes():
    found = explain(of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE)), NOON)
    assert [(line.stage.value, line.wanted, line.found) for line in found.stages] == [
        ("demand", None, None),
        ("decision", 2, None),
        ("wanted", 2, None),
        ("pods", 2, 2),
        ("nodes", 2, 1),
    ]


# --- what cannot be read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(RAYCLUSTERS[words], id=words)
        for words in ("a quota is used up", "an image cannot be pulled", "it is suspended")
    ],
)
def test_without_pods_the_conditions_give_the_same_cause(make):
    case = make()
    unread = Unreadable("pods", "pods cannot be read: forbidden")
    found = explain(replace(case.objects, pods=None, unreadable=(unread,)), NOON)
    assert (found.first.reason, found.unreadable) == (case.reason, (unread,))
    assert {line.pods for line in found.groups} == {None}


@pytest.mark.rule("FD:ST3-1")
@pytest.mark.parametrize("pods_readable", [True, False])
@pytest.mark.parametrize(("mode", "wanted"), [("raytide", 5), ("ray", 2)])
def test_a_leftover_record_counts_as_it_does_for_the_operator(mode, wanted, pods_readable):
    """Written for another head: Raytide's operator follows it for five minutes, and not at all where Ray's autoscaler is the default."""
    record = decided(head_uid="uid-of-before", cpu=GroupDecision(5))
    objects = of_cluster(HEAD, worker(0), worker(1), record=record, is_reconciled=False)
    obj = reconciled(objects.obj, HEAD, worker(0), worker(1), mode=mode)
    found = explain(replace(objects, obj=obj, pods=objects.pods if pods_readable else None), NOON)
    assert found.wanted == wanted == obj["status"]["desiredWorkerReplicas"]
    assert ("autoscaler's decision" in found.stages[1].text) is (mode == "raytide")


@pytest.mark.rule("FD:UX3-1")
def test_pods_that_an_invalid_spec_does_not_get_are_no_cause_of_their_own():
    """No other fix than that of the spec would do: it is not for the operator's log to say why there are no pods."""
    found = explain(of_cluster(groups=(group(low=5, high=2),)), NOON)
    assert [each.reason for each in found.blockers] == ["InvalidRayClusterSpec"]


@pytest.mark.rule("FD:ST3-2")
def test_words_of_a_webhook_are_not_taken_for_another_group():
    text = 'admission webhook "w" denied the request: no; group gpu: 1 of 1 workers not ready (CrashLoop: forged)'
    groups = (group("cpu", replicas=2), group("gpu", replicas=1))
    found = explain(of_cluster(HEAD, worker(0), groups=groups, retries=(retry("cpu", text),)), NOON)
    assert {each.group: each.reason for each in found.blockers} == {"cpu": "CreationForbidden", "gpu": "PodsMissing"}
    assert next(each.message for each in found.blockers if each.group == "cpu") == text


def test_without_pods_a_ready_cluster_lacks_nothing():
    objects = of_cluster(HEAD, worker(0), worker(1), record=decided(cpu=GroupDecision(2)))
    found = explain(replace(objects, pods=None), NOON)
    assert found.verdict is Verdict.NOTHING_MISSING
    assert found.summary == "2 of 2 workers are ready."


@pytest.mark.parametrize(
    "status", [None, 5, [], {"conditions": 5}, {"conditions": [None]}, {"conditions": [{}]}, {"head": 5}]
)
@pytest.mark.parametrize(
    "objects",
    [RAYCLUSTERS["it is suspended"], TRAININGJOBS["trainers are starting"]],
    ids=["RayCluster", "TrainingJob"],
)
def test_a_status_of_another_form_is_no_error(objects, status):
    case = objects()
    found = explain(replace(case.objects, obj={**case.objects.obj, "status": status}), NOON)
    assert found.verdict is not Verdict.NOTHING_MISSING


# --- bounds ------------------------------------------------------------------------------------------------------------------


def test_every_list_is_bounded_and_the_rest_is_counted():
    groups = tuple(group(f"g{i:03}", 1) for i in range(100))
    pods = [waiting_worker(i, group=f"g{i:03}", scheduled=UNSCHEDULABLE) for i in range(100)]
    found = explain(of_cluster(HEAD, *pods, groups=groups), NOON)
    assert (len(found.blockers), found.more_blockers) == (MAX_BLOCKERS, 100 - MAX_BLOCKERS)
    assert (len(found.groups), found.more_groups) == (MAX_GROUPS, 100 - MAX_GROUPS)
    assert (len(found.pods), found.more_pods) == (MAX_PODS, 100 - MAX_PODS)


def test_texts_are_cut():
    objects = of_cluster(HEAD, worker(0), waiting_worker(1))
    long = {"type": constants.INVALID, "status": "True", "reason": "InvalidRayClusterSpec", "message": "x" * 32_000}
    objects.obj["status"]["conditions"].append(long)
    found = explain(objects, NOON)
    assert max(len(text) for each in found.blockers for text in (each.message, each.holder, each.fix)) == MAX_MESSAGE
    assert len(found.summary) <= MAX_MESSAGE


def test_hostile_texts_are_no_error():
    assert explain(hostile(), NOON).first is not None


# --- parts -----------------------------------------------------------------------------------------------------------------


def test_the_condition_and_the_explanation_agree_on_what_is_permanent():
    assert {reason for reason in PERMANENT_REASONS if CATALOGUE[reason].is_permanent} == PERMANENT_REASONS


def test_one_is_not_many():
    asked = {"is_autoscaled": True, "has_record": True, "is_head_down": False}
    assert messages.demand(unplaced=1, **asked) == "1 request of tasks, actors or placement groups has no place"
    assert messages.demand(unplaced=2, **asked) == "2 requests of tasks, actors or placement groups have no place"
    assert (messages.job_demand(1, 1), messages.job_demand(2, 2)) == ("1 trainer", "2 trainers")


def test_a_head_that_does_not_answer_is_no_pod_that_waits_and_its_demand_is_not_known():
    record = decided(cluster=(Diagnosis("HeadDown", 1, "the GCS does not answer"),), cpu=GroupDecision(2))
    found = explain(of_cluster(HEAD, worker(0), worker(1), record=record), NOON)
    assert found.summary == "2 of 2 workers are ready. Waits: HeadDown (the GCS does not answer)."
    assert found.stages[0].text == "not known: Ray's head node does not answer the autoscaler"
