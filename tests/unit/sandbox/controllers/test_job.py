"""Jobs of the sandbox."""

from typing import Any

import pytest

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}


def job(cluster, **spec: Any):
    made = cluster.create("jobs.batch", "work", spec={"template": TEMPLATE, **spec})
    return made["metadata"]["uid"]


def ended(cluster):
    status = cluster.get("jobs.batch", "work").get("status", {})
    return [(each["type"], each["reason"]) for each in status.get("conditions", [])]


def test_a_job_has_one_pod_that_it_owns_and_is_complete_when_that_succeeds(cluster):
    uid = job(cluster)
    (name,) = cluster.names("pods")
    pod = cluster.get("pods", name)
    assert name.startswith("work-")
    assert pod["metadata"]["ownerReferences"][0]["uid"] == uid
    assert pod["metadata"]["labels"]["job-name"] == "work"
    assert cluster.get("jobs.batch", "work")["status"]["active"] == 1
    cluster.report(name, phase="Succeeded")
    assert ended(cluster) == [("Complete", "CompletionsReached")]
    assert cluster.names("pods") == [name]
    assert cluster.get("jobs.batch", "work")["status"]["succeeded"] == 1


@pytest.mark.parametrize("limit", [0, 2])
def test_a_failed_pod_is_replaced_until_the_limit(cluster, limit):
    job(cluster, backoffLimit=limit)
    for number in range(limit + 1):
        assert ended(cluster) == []
        (alive,) = [name for name in cluster.names("pods") if cluster.get("pods", name)["status"]["phase"] == "Pending"]
        cluster.report(alive, phase="Failed")
        assert cluster.get("jobs.batch", "work")["status"]["failed"] == number + 1
    assert ended(cluster) == [("Failed", "BackoffLimitExceeded")]


def test_several_completions_run_side_by_side(cluster):
    job(cluster, completions=3, parallelism=2)
    first = cluster.names("pods")
    assert len(first) == 2
    for name in first:
        cluster.report(name, phase="Succeeded")
    (last,) = set(cluster.names("pods")) - set(first)
    cluster.report(last, phase="Succeeded")
    assert ended(cluster) == [("Complete", "CompletionsReached")]


def test_at_its_deadline_it_fails_and_its_pods_are_deleted(cluster):
    job(cluster, activeDeadlineSeconds=60)
    assert cluster.pass_time(seconds=59) is not None
    assert len(cluster.names("pods")) == 1
    cluster.pass_time(seconds=1)
    assert cluster.names("pods") == []
    assert ended(cluster) == [("Failed", "DeadlineExceeded")]


def test_after_its_time_to_live_it_is_deleted_with_its_pods(cluster):
    job(cluster, ttlSecondsAfterFinished=30)
    cluster.report(cluster.names("pods")[0], phase="Succeeded")
    cluster.pass_time(seconds=29)
    assert cluster.names("jobs.batch") == ["work"]
    cluster.pass_time(seconds=1)
    assert (cluster.names("jobs.batch"), cluster.names("pods")) == ([], [])


def test_a_suspended_job_has_no_pods(cluster):
    job(cluster, suspend=True)
    assert cluster.names("pods") == []


def test_a_pod_of_a_service_account_that_does_not_exist_yet_is_tried_again(cluster):
    spec = {**TEMPLATE["spec"], "serviceAccountName": "late"}
    cluster.create("jobs.batch", "work", spec={"template": {"spec": spec}})
    assert cluster.names("pods") == []
    cluster.create("serviceaccounts", "late")
    cluster.pass_time(seconds=10)
    assert len(cluster.names("pods")) == 1


def test_a_running_pod_that_is_deleted_has_failed(cluster):
    job(cluster, backoffLimit=0)
    cluster.delete("pods", cluster.names("pods")[0])
    assert ended(cluster) == [("Failed", "BackoffLimitExceeded")]
    assert cluster.names("pods") == []
