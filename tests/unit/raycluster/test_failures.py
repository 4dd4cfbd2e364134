"""Failed workers that are kept for inspection."""

import pytest

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.pod import ContainerView, pod_from_manifest
from raytide.api.raycluster import RayCluster
from raytide.raycluster.failures import kept_groups, names_to_delete
from raytide.raycluster.observed import observe
from raytide.raycluster.plan import plan
from support.builders import dying, group, head, head_service, pod, raycluster

pytestmark = pytest.mark.rule("FD:RC-B15")
SUSPENDING = {"type": constants.SUSPENDING, "status": "True"}
ASKED = {constants.KEEP_FAILED_PODS_ANNOTATION: "true"}


def cluster(*groups, annotations=ASKED, conditions=(), **spec):
    obj = raycluster(*groups)
    obj["metadata"]["annotations"] = annotations
    return RayCluster.parse({**obj, "spec": {**obj["spec"], **spec}, "status": {"conditions": [*conditions]}})


def failed(name, at="", **fields):
    ended = ContainerView("ray-worker", "terminated", "OOMKilled", exit_code=137, finished_at=at)
    return pod(name, phase="Failed", containers=(ended,), ended_at=at, **fields)


def seen(found, *pods):
    kept, named = kept_groups(found), names_to_delete(found)
    return observe(
        found.metadata.uid, pods=(head(), *pods), services=[head_service()], kept_groups=kept, names_to_delete=named
    )


def decide(found, *pods):
    return plan(found, seen(found, *pods), ClusterConfig(), lambda prefix: f"{prefix}new")


def writes(todo):
    return [(type(action).__name__, action.name) for action in todo.actions]


def test_the_last_failed_worker_is_kept_with_its_successor_and_reported():
    todo = decide(cluster(group(replicas=1)), failed("demo-cpu-worker-a"))
    assert writes(todo) == [("Create", "demo-cpu-worker-new")]
    (event,) = todo.events
    assert event.reason == constants.KEPT_FAILED_POD
    assert event.message.startswith(
        "Pod demo-cpu-worker-a is kept until another pod of group cpu fails: its phase is Failed"
    )
    assert "exit code 137 (OOMKilled)" in event.message


def test_it_is_deleted_for_the_next_one_that_fails():
    before, after = (
        failed("demo-cpu-worker-z", "2026-01-01T00:00:00Z"),
        failed("demo-cpu-worker-a", "2026-01-01T00:01:00Z"),
    )
    todo = decide(cluster(group(replicas=1)), before, after, pod("demo-cpu-worker-b"))
    assert writes(todo) == [("Delete", "demo-cpu-worker-z")]


def test_a_failed_worker_that_the_user_names_is_deleted_and_an_earlier_one_kept():
    named = group(replicas=1, scaleStrategy={"workersToDelete": ["demo-cpu-worker-a"]})
    before, last = (
        failed("demo-cpu-worker-z", "2026-01-01T00:00:00Z"),
        failed("demo-cpu-worker-a", "2026-01-01T00:01:00Z"),
    )
    assert writes(decide(cluster(named), last, pod("demo-cpu-worker-b"))) == [("Delete", "demo-cpu-worker-a")]
    assert [each.name for each in seen(cluster(named), before, last).kept] == ["demo-cpu-worker-z"]


@pytest.mark.parametrize(
    ("status", "ended_at"),
    [
        pytest.param(
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T03:00:00Z"}
                ]
            },
            "2026-01-01T03:00:00Z",
            id="an evicted pod ends when it is marked",
        ),
        pytest.param(
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T03:00:00Z"}
                ],
                "containerStatuses": [{"name": "ray", "state": {"terminated": {"finishedAt": "2026-01-01T03:00:30Z"}}}],
            },
            "2026-01-01T03:00:30Z",
            id="a container that needs its time to end ends it",
        ),
        pytest.param(
            {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T03:00:00Z"}]},
            "2026-01-01T03:00:00Z",
            id="else when it was ready for the last time",
        ),
        pytest.param(
            {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T03:00:00Z"}]},
            "",
            id="a status without a termination",
        ),
    ],
)
def test_when_a_failed_pod_ended(status, ended_at):
    labels = {constants.CLUSTER_LABEL: "demo", constants.GROUP_LABEL: "cpu", constants.NODE_TYPE_LABEL: "worker"}
    metadata = {"name": "demo-cpu-worker-a", "namespace": "default", "uid": "a", "labels": labels}
    manifest = {"metadata": metadata, "spec": {}, "status": {"phase": "Failed", "reason": "Evicted", **status}}
    assert pod_from_manifest(manifest).ended_at == ended_at


def test_an_old_pod_that_was_evicted_last_is_the_last_failure():
    evicted = pod(
        "demo-cpu-worker-a",
        phase="Failed",
        reason="Evicted",
        creation_timestamp="2026-01-01T00:00:00Z",
        ended_at="2026-01-01T03:00:00Z",
    )
    crashed = failed("demo-cpu-worker-z", "2026-01-01T02:00:00Z", creation_timestamp="2026-01-01T01:00:00Z")
    assert [each.name for each in seen(cluster(group(replicas=2)), evicted, crashed).kept] == ["demo-cpu-worker-a"]


def test_each_group_keeps_one_and_a_hundred_failures_leave_one():
    found = cluster(group("a", replicas=0), group("b", replicas=0))
    pods = [failed(f"demo-{name}-worker-{n}", group=name) for name in "ab" for n in range(100)]
    assert [each.group for each in seen(found, *pods).kept] == ["a", "b"]
    assert len(decide(found, *pods).actions) == 198


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(cluster(group(replicas=1), annotations={}), id="without the annotation"),
        pytest.param(cluster(group(replicas=1), enableInTreeAutoscaling=True), id="with an autoscaler"),
        pytest.param(cluster(group(replicas=1), suspend=True), id="a suspended cluster"),
        pytest.param(cluster(group(replicas=1), conditions=[SUSPENDING]), id="one whose suspension is not finished"),
        pytest.param(cluster(group("other", replicas=1)), id="its group left the spec"),
    ],
)
def test_otherwise_a_failed_worker_is_not_kept(found):
    assert seen(found, failed("demo-cpu-worker-a")).kept == ()


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param(pod("demo-cpu-worker-a", phase="Succeeded"), id="it ended well"),
        pytest.param(dying("demo-cpu-worker-a", phase="Failed"), id="a client deletes it"),
        pytest.param(head("demo-head-b", phase="Failed"), id="a head"),
    ],
)
def test_nothing_else_is_kept(worker):
    assert seen(cluster(group(replicas=1)), worker).kept == ()


def test_its_name_is_not_given_again():
    assert "demo-cpu-worker-a" in set(seen(cluster(group()), failed("demo-cpu-worker-a")).names_in_use())
