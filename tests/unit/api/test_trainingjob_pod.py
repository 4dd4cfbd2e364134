"""The views of pods, services and ConfigMaps of a job."""

import json

import msgspec
import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.meta import Key
from raytide.api.trainingjob_object import decode_job_object, digest, job_object_from_manifest
from raytide.api.trainingjob_pod import decode_job_pod, job_pod_from_manifest

OWNER = [{"uid": "other", "controller": False}, {"uid": "uid-job", "controller": True}]
LABELS = {
    "raytide.io/training-job": "demo",
    "raytide.io/training-role": "trainer",
    "raytide.io/training-index": "3",
}
META = {"namespace": "default", "name": "demo-trainer-3", "uid": "u", "resourceVersion": "7", "labels": LABELS}


def container(name="trainer", **state):
    return {"name": name, "state": state, "restartCount": 0}


def pod(phase="Running", *containers, **status):
    return job_pod_from_manifest(
        {"metadata": META, "status": {"phase": phase, "containerStatuses": list(containers), **status}}
    )


def test_a_running_pod_has_its_owner_and_its_state():
    document = {
        "metadata": {**META, "ownerReferences": OWNER, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "node-0", "containers": [{"name": "trainer"}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [container(running={"startedAt": "2026-01-01T00:00:05Z"})],
        },
    }
    view = decode_job_pod(json.dumps(document).encode())
    assert (view.job_key, view.role, view.index) == (Key("default", "demo"), "trainer", 3)
    assert (view.owner_uid, view.uid, view.resource_version) == ("uid-job", "u", "7")
    assert (view.node_name, view.pod_ip, view.started_at) == ("node-0", "10.0.0.9", "2026-01-01T00:00:05Z")
    assert view.is_running_and_ready
    assert not (view.is_terminating)
    assert not view.is_finished
    assert not view.is_disrupted


def test_a_manifest_without_a_status_has_defaults():
    view = job_pod_from_manifest({"metadata": {"namespace": "default", "name": "x"}})
    assert (view.index, view.phase, view.uid, view.started_at, view.exit_code) == (None, "", "", "", None)
    assert not view.is_running
    assert not view.is_finished


def test_invalid_containers_do_not_prevent_reading_the_pod():
    spec = {"nodeName": "node-0", "containers": [{"name": 5}], "initContainers": "x", "restartPolicy": 1}
    assert job_pod_from_manifest({"metadata": META, "spec": spec}).node_name == "node-0"


@pytest.mark.parametrize("label", ["", "x", "-1", "²", "9" * 30])
def test_an_invalid_index_label_is_none(label):
    labels = {**LABELS, "raytide.io/training-index": label}
    assert job_pod_from_manifest({"metadata": {**META, "labels": labels}}).index is None


@pytest.mark.parametrize(
    ("view", "code", "reason"),
    [
        pytest.param(
            pod("Failed", container(terminated={"exitCode": 137, "reason": "OOMKilled"})), 137, "OOMKilled", id="killed"
        ),
        pytest.param(
            pod("Failed", container("a", terminated={"exitCode": 0}), container("b", terminated={"exitCode": 3})),
            3,
            "",
            id="the container that failed",
        ),
        pytest.param(
            pod("Failed", initContainerStatuses=[container("init", terminated={"exitCode": 9, "reason": "Error"})]),
            9,
            "Error",
            id="an init container fails first",
        ),
    ],
)
def test_a_failed_pod_has_exit_code_and_reason(view, code, reason):
    assert view.has_failed
    assert view.exit_code == code
    assert view.failed_container.reason == reason


def test_a_pod_ended_when_its_last_container_did():
    view = pod(
        "Succeeded",
        container("a", terminated={"exitCode": 0, "finishedAt": "2026-01-01T00:00:09Z"}),
        container("b", terminated={"exitCode": 0, "finishedAt": "2026-01-01T00:00:07Z"}),
    )
    assert view.has_succeeded
    assert view.finished_at == "2026-01-01T00:00:09Z"


@pytest.mark.parametrize(
    ("status", "is_disrupted"),
    [
        pytest.param({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, True, id="a disruption target"),
        pytest.param({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False, id="not any more"),
        pytest.param({"reason": "Evicted"}, True, id="evicted"),
        pytest.param({"reason": "OutOfmemory"}, True, id="turned away by a full node"),
        pytest.param({"reason": "DeadlineExceeded"}, False, id="its own deadline"),
    ],
)
def test_disruptions_by_the_cluster_are_recognised(status, is_disrupted):
    assert pod("Failed", **status).is_disrupted is is_disrupted


def test_a_pod_is_marked_terminating_once():
    marked = pod().marked_terminating("2026-01-01T00:00:00Z")
    assert marked.is_terminating
    assert marked.marked_terminating("later") is marked


def test_what_is_no_pod_is_rejected():
    with pytest.raises(msgspec.MsgspecError):
        decode_job_pod(b'{"metadata": 7}')


@pytest.mark.rule("FD:SEC3-2")
def test_a_config_map_has_digests_of_its_content_and_a_service_has_none():
    meta = {"namespace": "default", "name": "demo-membership", "uid": "u", "labels": LABELS, "ownerReferences": OWNER}
    found = decode_job_object(json.dumps({"metadata": meta, "data": {"world_size": "3\n"}}).encode())
    assert (found.job_key, found.owner_uid, found.files) == (
        Key("default", "demo"),
        "uid-job",
        {"world_size": digest("3\n")},
    )
    large = {f"{number}": "x" * 900 for number in range(1000)}
    meta["annotations"] = {constants.MEMBERSHIP_ANNOTATION: "x" * 200_000}
    found = decode_job_object(json.dumps({"metadata": meta, "data": large}).encode())
    assert len(msgspec.json.encode(found)) < 2048
    service = job_object_from_manifest({"metadata": meta, "spec": {"clusterIP": "None"}})
    assert service.files == {}
    assert service.marked_terminating("now").is_terminating
