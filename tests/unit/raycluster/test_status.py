"""The status, one test per rule; the golden records have the rest (test_status_golden.py)."""

from datetime import UTC, datetime, timedelta

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Outcome, Result
from raytide.api.conditions import find_condition, timestamp
from raytide.api.config import ClusterConfig
from raytide.api.meta import PODS
from raytide.api.pod import NO_CONDITION, ContainerView, PodCondition
from raytide.api.raycluster import RayCluster
from raytide.api.status_patch import status_patch
from raytide.api.violations import Violation
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import Observed, PendingRetry
from raytide.raycluster.plan import plan
from raytide.raycluster.plan_types import RayClusterPlan
from raytide.raycluster.status import leaves_ready_in, requeue_after_s, status
from raytide.raycluster.unreadable import unreadable_patch
from support.builders import (
    NOT_READY,
    dying,
    group,
    head,
    head_service,
    parsed,
    pending,
    pod,
    raycluster,
    template,
    waiting,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKERS = (pod("demo-cpu-worker-a"), pod("demo-cpu-worker-b"))
UNSCHEDULABLE = PodCondition("False", "Unschedulable", "0/3 nodes are available")


def compute(cluster, *pods, outcomes=(), now=NOW, service=True, tracks_readiness=False, **observed):
    services = (head_service(),) if service else ()
    state = Observed(pods=pods, services=services, **observed)
    todo = plan(cluster, state, ClusterConfig(), str)
    return status(
        cluster, state, todo, outcomes, now, scaling=scaling_of(cluster, state), tracks_readiness=tracks_readiness
    )


def later(cluster, computed):
    """The cluster as it reads once that status is written."""
    metadata = {**cluster.raw["metadata"], "resourceVersion": "7"}
    return RayCluster.parse({**cluster.raw, "metadata": metadata, "status": computed})


def condition(computed, kind):
    return find_condition(computed["conditions"], kind)


def rejected(group_name="cpu", message='pods "demo-cpu-worker-abcde" is forbidden: exceeded quota: q'):
    manifest = {"metadata": {"name": f"demo-{group_name}-worker-abcde", "namespace": "default"}}
    create = Create(PODS, manifest, constants.CREATED_WORKER_POD, constants.FAILED_TO_CREATE_WORKER_POD, group_name)
    return Outcome(create, Result.REJECTED, "Forbidden", message)


# --- counts, head, endpoints ---------------------------------------------------------------------------------------


@pytest.mark.rule("RC §1.5")
def test_ready_counts_ready_and_available_counts_running():
    computed = compute(parsed(), head(), WORKERS[0], pod("demo-cpu-worker-b", ready=NOT_READY), pending("demo-x"))
    assert (computed["readyWorkerReplicas"], computed["availableWorkerReplicas"]) == (1, 2)


@pytest.mark.rule("RC §1.5")
@pytest.mark.parametrize(
    ("cluster_ip", "shown"),
    [
        pytest.param("None", "10.0.0.1", id="a headless service shows the head pod's address"),
        pytest.param("10.96.0.7", "10.96.0.7", id="any other its own"),
    ],
)
def test_head(cluster_ip, shown):
    state = Observed(pods=(head(),), services=(head_service(cluster_ip=cluster_ip),))
    computed = status(parsed(), state, RayClusterPlan(), (), NOW, scaling=scaling_of(parsed(), state))
    assert computed["head"] == {
        "podIP": "10.0.0.1",
        "podName": "demo-head-aaaaa",
        "serviceName": "demo-head-svc",
        "serviceIP": shown,
    }


@pytest.mark.rule("RC §1.5")
def test_a_missing_head_is_cleared_but_the_service_stays():
    cluster = later(parsed(), compute(parsed(), head()))
    assert compute(cluster)["head"] == {"serviceName": "demo-head-svc"}


def test_endpoints_are_added_and_overwritten_never_removed():
    cluster = parsed(status={"endpoints": {"old": "1", "client": "2"}})
    assert compute(cluster, head())["endpoints"] == {"old": "1", "client": "10001", "dashboard": "8265"}


def test_before_there_is_a_head_service_everything_else_is_reported():
    computed = compute(parsed(), head(), *WORKERS, service=False)
    assert "endpoints" not in computed
    assert computed["readyWorkerReplicas"] == 2


@pytest.mark.rule("RC:K-5")
def test_resources_are_summed_exactly_raw_replicas_unclamped():
    cluster = parsed(group(replicas=3, high=2, template=template(cpu="500m", memory="512Mi")))
    computed = compute(cluster, head())
    assert (computed["desiredCPU"], computed["desiredMemory"]) == ("2500m", "3584Mi")
    assert (computed["desiredGPU"], computed["desiredTPU"]) == ("0", "0")
    assert computed["desiredWorkerReplicas"] == 2, "the count is clamped"


def test_a_limit_counts_where_there_is_no_request_and_a_bad_quantity_counts_nothing():
    containers = [
        {"name": "ray", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 2}}},
        {"name": "side", "resources": {"requests": {"cpu": "lots"}}},
    ]
    computed = compute(parsed(group(replicas=2, template={"spec": {"containers": containers}})))
    assert (computed["desiredCPU"], computed["desiredGPU"]) == ("5", "6")


def test_max_workers_are_saturated():
    cluster = parsed(group("a", high=2147483647), group("b", high=5))
    assert compute(cluster)["maxWorkerReplicas"] == 2147483647


# --- state ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC §1.5", "RM:I9")
@pytest.mark.parametrize(
    ("pods", "outcomes", "state"),
    [
        pytest.param((head(), *WORKERS), (), "ready", id="all there and running: ready"),
        pytest.param((head(), WORKERS[0]), (), None, id="one worker missing: not ready"),
        pytest.param((head(), *WORKERS, pod("demo-cpu-worker-c")), (), None, id="one too many: not ready"),
        pytest.param((head(ready=NOT_READY), *WORKERS), (), None, id="an unready head: not ready"),
        pytest.param((head(), *WORKERS), (rejected(),), None, id="a rejection in this pass: not ready"),
        pytest.param(
            (head(), WORKERS[0], dying("demo-cpu-worker-b")), (), None, id="a dying worker is no worker: not ready"
        ),
    ],
)
def test_state_becomes_ready(pods, outcomes, state):
    assert compute(parsed(), *pods, outcomes=outcomes).get("state") == state


def test_the_moment_of_a_new_state_is_kept():
    computed = compute(parsed(), head(), *WORKERS)
    assert computed["stateTransitionTimes"] == {"ready": timestamp(NOW)}
    again = compute(later(parsed(), computed), head(), *WORKERS, now=NOW + timedelta(hours=1))
    assert again["stateTransitionTimes"] == {"ready": timestamp(NOW)}


MISSING = pytest.mark.parametrize(
    "missing",
    [
        pytest.param((head(), WORKERS[0]), id="a worker"),
        pytest.param(WORKERS, id="the head"),
    ],
)


@pytest.mark.rule("FD:RC-B5", "RC §1.5")
@MISSING
def test_state_stays_ready_while_pods_are_missing_and_a_condition_reports_them(missing):
    cluster = later(parsed(), compute(parsed(), head(), *WORKERS))
    cluster = later(cluster, compute(cluster, *missing))
    late = NOW + timedelta(minutes=5)
    computed = compute(cluster, *missing, now=late)
    assert computed["state"] == "ready"
    lack = constants.WORKERS_MISSING if len(missing) == 2 and missing != WORKERS else constants.HEAD_POD_READY
    assert condition(computed, lack)["lastTransitionTime"] == timestamp(NOW)
    observed = Observed(pods=missing, services=(head_service(),))
    assert (
        requeue_after_s(cluster, observed, compute(cluster, *missing), NOW, scaling=scaling_of(cluster, observed))
        is None
    )


@pytest.mark.rule("FD:RC-B5")
def test_a_cluster_that_is_scaled_up_stays_ready():
    """Kueue takes a cluster that is not ready for one that has to be evicted."""
    cluster = later(parsed(), compute(parsed(), head(), *WORKERS))
    larger = RayCluster.parse({**cluster.raw, "spec": parsed(group(replicas=5)).raw["spec"]})
    scaling = later(larger, compute(larger, head(), *WORKERS))
    assert compute(scaling, head(), *WORKERS, now=NOW + timedelta(seconds=31))["state"] == "ready"


@pytest.mark.rule("SC:S21")
@MISSING
def test_state_that_tracks_readiness_leaves_ready_once_something_has_been_missing_for_thirty_seconds(missing):
    cluster = later(parsed(), compute(parsed(), head(), *WORKERS))
    at_once = compute(cluster, *missing, tracks_readiness=True)
    assert at_once["state"] == "ready"
    assert leaves_ready_in(at_once, NOW) == 30
    cluster = later(cluster, at_once)
    early = compute(cluster, *missing, now=NOW + timedelta(seconds=29), tracks_readiness=True)
    assert early["state"] == "ready"
    late = compute(cluster, *missing, now=NOW + timedelta(seconds=30), tracks_readiness=True)
    assert "state" not in late
    assert leaves_ready_in(late, NOW) is None
    assert status_patch(cluster, late)["status"]["state"] is None
    assert compute(later(cluster, late), head(), *WORKERS)["state"] == "ready"


@pytest.mark.rule("RM:I13")
def test_a_cluster_that_stays_ready_gives_no_reason_to_requeue_at_once():
    """A head without a Ready condition counts as running (RC §1.5), although HeadPodReady is False."""
    pods = (head(ready=NO_CONDITION), *WORKERS)
    cluster = later(parsed(), compute(parsed(), *pods))
    late = NOW + timedelta(minutes=5)
    computed = compute(cluster, *pods, now=late, tracks_readiness=True)
    assert computed["state"] == "ready"
    assert leaves_ready_in(computed, late) is None


def test_a_suspended_cluster_without_pods_is_suspended():
    assert compute(parsed(suspend=True))["state"] == "suspended"
    assert "state" not in compute(parsed(suspend=True), head())


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC §1.6")
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param((), ("False", "HeadPodNotFound", "head pod not found"), id="no head pod"),
        pytest.param((head(),), ("True", "HeadPodRunningAndReady", ""), id="a ready head"),
        pytest.param((head(ready=PodCondition()),), ("False", "Unknown", ""), id="a head without a Ready condition"),
        pytest.param(
            (head(ready=NOT_READY, containers=(waiting("ray-head", "ImagePullBackOff", "no such image"),)),),
            ("False", "ImagePullBackOff", f"{NOT_READY.message}; ray-head: no such image"),
            id="a head whose container waits",
        ),
        pytest.param(
            (
                head(
                    ready=NOT_READY,
                    containers=(waiting("ray-head", "PodInitializing", ""),),
                    init_containers=(
                        ContainerView("prepare", "terminated", "Completed", exit_code=0),
                        ContainerView("autoscaler", "waiting", "ErrImagePull", "no such image", is_sidecar=True),
                    ),
                ),
            ),
            ("False", "ErrImagePull", f"{NOT_READY.message}; autoscaler: no such image"),
            id="a head whose native sidecar does not start",
        ),
        pytest.param(
            (head(ready=NOT_READY, containers=(ContainerView("ray-head", "running"),)),),
            ("False", "ContainersNotReady", NOT_READY.message),
            id="a head whose probe fails",
        ),
        pytest.param(
            (head(ready=NOT_READY, containers=(ContainerView("autoscaler", "terminated", "Error", exit_code=137),)),),
            ("False", "Error", f"{NOT_READY.message}; autoscaler: terminated with exit code 137"),
            id="a head with a container that was killed",
        ),
        pytest.param(
            (head(ready=NOT_READY, containers=(waiting("ray-head", "ContainerCreating", ""),)),),
            ("False", "ContainerCreating", f"{NOT_READY.message}; ray-head: ContainerCreating"),
            id="a head whose container is being created",
        ),
    ],
)
def test_head_pod_ready(pods, expected):
    found = condition(compute(parsed(), *pods), constants.HEAD_POD_READY)
    assert (found["status"], found["reason"], found["message"]) == expected


@pytest.mark.rule("RC §1.6")
@pytest.mark.rule("FD:RC-B20", "RC §1.6")
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param((head(), *WORKERS), "True", id="head and all workers"),
        pytest.param((head(),), "False", id="no worker, for the API rejected them"),
        pytest.param((head(), WORKERS[0]), "False", id="one of two workers"),
        pytest.param(WORKERS, "False", id="no head"),
        pytest.param((head(), WORKERS[0], dying("demo-cpu-worker-b")), "False", id="a worker on its way out"),
        pytest.param((head(), *WORKERS, pod("demo-cpu-worker-c")), "True", id="one worker more than wanted"),
        pytest.param((head(), *WORKERS, pending("demo-cpu-worker-c")), "False", id="a pod that is not ready"),
        pytest.param((head(), WORKERS[0], pod("x", group="gpu")), "False", id="a worker of a group that is gone"),
    ],
)
def test_provisioned_is_true_once_all_desired_pods_were_ready(pods, expected):
    assert condition(compute(parsed(), *pods), constants.PROVISIONED)["status"] == expected


@pytest.mark.rule("FD:RC-B21", "RC §1.6")
def test_conditions_are_in_the_order_in_which_kuberay_first_sets_them():
    at_once = compute(parsed(), head(ready=NOT_READY), outcomes=[rejected()])
    first = [
        constants.REPLICA_FAILURE,
        constants.HEAD_POD_READY,
        constants.PROVISIONED,
        constants.SUSPENDED,
        constants.SUSPENDING,
    ]
    assert [each["type"] for each in at_once["conditions"]][:5] == first
    cluster = later(parsed(), compute(parsed(), head(), WORKERS[0]))
    late = [each["type"] for each in compute(cluster, head(), WORKERS[0], outcomes=[rejected()])["conditions"]]
    assert late.index(constants.REPLICA_FAILURE) > late.index(constants.SUSPENDING), (
        "appended after the existing conditions"
    )


def test_provisioned_sticks():
    cluster = later(parsed(), compute(parsed(), head(), *WORKERS))
    assert condition(compute(cluster), constants.PROVISIONED)["status"] == "True"


@pytest.mark.rule("RC §1.6", "SC:S3")
def test_replica_failure_has_group_and_api_message_and_is_removed_without_rejections():
    computed = compute(parsed(), head(), outcomes=(rejected(),))
    found = condition(computed, constants.REPLICA_FAILURE)
    assert (found["status"], found["reason"]) == ("True", "FailedCreateWorkerPod")
    assert found["message"] == 'group cpu: pods "demo-cpu-worker-*" is forbidden: exceeded quota: q'
    assert condition(compute(later(parsed(), computed), head()), constants.REPLICA_FAILURE) is None


def test_a_rejection_is_remembered_while_its_group_waits():
    memory = PendingRetry("cpu", constants.FAILED_TO_CREATE_WORKER_POD, "exceeded quota: q", 10)
    found = condition(compute(parsed(), head(), pending_retries=(memory,)), constants.REPLICA_FAILURE)
    assert found["message"] == "group cpu: exceeded quota: q"


def test_a_terminating_namespace_is_no_replica_failure():
    message = 'pods "demo-cpu-worker-abcde" is forbidden: unable to create: because it is being terminated'
    assert condition(compute(parsed(), outcomes=(rejected(message=message),)), constants.REPLICA_FAILURE) is None


@pytest.mark.rule("SC:S21")
@pytest.mark.parametrize(
    ("pods", "outcomes", "reason", "word"),
    [
        pytest.param((), (), "WaitingForPods", "2 of 2 workers not ready", id="workers on their way"),
        pytest.param((), (rejected(),), "QuotaExceeded", "exceeded quota: q", id="quota"),
        pytest.param((), (rejected(message="denied"),), "CreationForbidden", "denied", id="some other rejection"),
        pytest.param(
            (pending("demo-a", scheduled=UNSCHEDULABLE),), (), "Unschedulable", "0/3 nodes", id="nowhere to run"
        ),
        pytest.param(
            (pending("demo-a", scheduled=PodCondition("False", "SchedulingGated", "gated")),),
            (),
            "SchedulingGated",
            "gated",
            id="a scheduling gate",
        ),
        pytest.param(
            (pending("demo-a", containers=(waiting("ray", "ErrImagePull", "not found"),)),),
            (),
            "ImagePullFailed",
            "container ray: ErrImagePull: not found",
            id="an image that is not there",
        ),
        pytest.param(
            (pod("demo-a", ready=NOT_READY, containers=(waiting("ray", "CrashLoopBackOff"),)),),
            (),
            "CrashLoop",
            "CrashLoopBackOff",
            id="a crash loop",
        ),
    ],
)
def test_workers_missing_has_a_reason_and_the_group(pods, outcomes, reason, word):
    found = condition(compute(parsed(), head(), *pods, outcomes=outcomes), constants.WORKERS_MISSING)
    assert found["reason"] == reason
    assert "group cpu" in found["message"]
    assert word in found["message"]


def test_nothing_is_missing_when_all_workers_are_ready():
    cluster = later(parsed(), compute(parsed(), head()))
    assert condition(compute(cluster, head(), *WORKERS), constants.WORKERS_MISSING) is None


def test_unsupported_names_the_fields():
    found = condition(compute(parsed(upgradeStrategy={"type": "Recreate"})), constants.UNSUPPORTED)
    assert "spec.upgradeStrategy.type" in found["message"]
    assert condition(compute(parsed()), constants.UNSUPPORTED) is None


@pytest.mark.rule("RM:I9")
def test_an_invalid_spec_is_reported_without_observing_its_generation_and_counts_stay_current():
    good = parsed(status=compute(parsed(), head(), *WORKERS))
    bad = RayCluster.parse({**good.raw, "spec": {**good.raw["spec"], "workerGroupSpecs": [group(low=3, high=2)]}})
    bad = bad.model_copy(update={"metadata": bad.metadata.model_copy(update={"generation": 2})})
    computed = compute(bad, head(), WORKERS[0])
    found = condition(computed, constants.INVALID)
    assert (found["status"], found["reason"]) == ("True", constants.INVALID_SPEC)
    assert "spec.workerGroupSpecs[0].minReplicas" in found["message"]
    assert computed["observedGeneration"] == 1
    assert computed["readyWorkerReplicas"] == 1
    assert computed["desiredWorkerReplicas"] == 2
    assert condition(compute(later(good, computed), head(), *WORKERS), constants.INVALID) is None


# --- the patch -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D8", "PF:P8")
def test_nothing_changed_means_no_patch_whatever_the_time():
    cluster = later(parsed(), compute(parsed(), head(), *WORKERS))
    assert status_patch(cluster, compute(cluster, head(), *WORKERS, now=NOW + timedelta(days=1))) is None


@pytest.mark.rule("D8", "RC:ST-2", "RC:K-4")
def test_the_patch_is_the_difference_guarded_by_the_version_read():
    cluster = later(parsed(), compute(parsed(), head(), *WORKERS))
    lost = compute(cluster, head(), WORKERS[0], now=NOW + timedelta(seconds=5))
    body = status_patch(cluster, lost)
    assert body["metadata"] == {"resourceVersion": "7"}
    assert set(body["status"]) == {
        "availableWorkerReplicas",
        "readyWorkerReplicas",
        "conditions",
        "diagnoses",
        "lastUpdateTime",
    }


FORGED = {"observedGeneration": 7}


@pytest.mark.rule("RM:I9")
def test_a_generation_that_the_object_has_not_reached_is_not_kept():
    cluster = parsed(status=FORGED)
    computed = compute(cluster)
    assert computed["observedGeneration"] == 1
    patch = status_patch(cluster, computed)
    assert patch is not None
    assert patch["status"]["observedGeneration"] == 1
    assert status_patch(later(cluster, computed), compute(later(cluster, computed))) is None


@pytest.mark.rule("RM:I9")
def test_a_forged_observed_generation_of_an_invalid_spec_is_removed():
    invalid = parsed(group(low=3, high=2), status=FORGED)
    assert status_patch(invalid, compute(invalid))["status"]["observedGeneration"] is None
    obj = {**raycluster(), "status": FORGED}
    faults = (Violation("V-1", "spec", "cannot be read"),)
    patch = unreadable_patch(obj, faults, NOW)
    assert patch["status"]["observedGeneration"] is None
    written = {key: value for key, value in patch["status"].items() if value is not None}
    assert unreadable_patch({**obj, "status": written}, faults, NOW) is None


def test_terminating_pods_still_count_as_running():
    assert compute(parsed(), head(), dying("demo-cpu-worker-d"))["availableWorkerReplicas"] == 1


# --- numbers of 0 ------------------------------------------------------------------------------------------------------------

NUMBERS = ("desiredWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas")


@pytest.mark.rule("FD:UX-4", "RC:1.5")
def test_numbers_of_workers_are_written_when_they_are_0():
    """Columns of kubectl were empty."""
    computed = compute(parsed(group(replicas=0)))
    assert [computed[name] for name in NUMBERS] == [0, 0, 0]


@pytest.mark.rule("D8", "RM:I14")
def test_a_0_that_kuberay_omitted_is_written_once_the_number_was_another_one():
    written = compute(parsed(group(replicas=0)), head())
    kuberays = {name: value for name, value in written.items() if name not in NUMBERS}
    cluster = parsed(group(replicas=0), status=kuberays)
    assert status_patch(cluster, compute(cluster, head())) is None
    lost = compute(cluster, now=NOW + timedelta(seconds=5))
    assert not lost.keys() & set(NUMBERS)
    scaled = compute(later(parsed(group(replicas=1)), kuberays), head(), WORKERS[0])
    assert [scaled[name] for name in NUMBERS] == [1, 1, 1]
    again = compute(later(cluster, scaled), head())
    assert [again[name] for name in NUMBERS] == [0, 0, 0]
