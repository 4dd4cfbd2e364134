"""The fields of a PodView, decoded from a pod's JSON."""

import json

import msgspec
import pytest

from raytide.api.pod import PodCondition, decode_pod, pod_from_manifest
from raytide.api.trainingjob_pod import job_pod_from_manifest

POD = {
    "metadata": {
        "name": "demo-cpu-worker-a",
        "namespace": "default",
        "uid": "u1",
        "resourceVersion": "17",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "ray.io/cluster": "demo",
            "ray.io/group": "cpu",
            "ray.io/node-type": "worker",
            "ray.io/worker-group-replica-index": "3",
            "ray.io/worker-group-replica-name": "cpu-x2b4c",
            "ray.io/replica-host-index": "1",
        },
        "annotations": {
            "ray.io/upgrade-strategy-recreate-hash": "abc",
            "ray.io/kuberay-version": "v9",
            "raytide.io/num-of-hosts": "4",
        },
        "ownerReferences": [{"uid": "other"}, {"uid": "owner", "controller": True}],
        "managedFields": [{"manager": "x" * 1000}],
    },
    "spec": {"nodeName": "n0", "restartPolicy": "Never", "containers": [{"name": "ray"}, {"name": "side"}]},
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.5",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "ray"},
            {"type": "PodScheduled", "status": "True"},
        ],
        "containerStatuses": [
            {"name": "side", "state": {"running": {"startedAt": "x"}}, "restartCount": 0},
            {"name": "ray", "state": {"terminated": {"reason": "Error", "exitCode": 1}}, "restartCount": 4},
        ],
        "initContainerStatuses": [{"name": "wait", "state": {"waiting": {"reason": "PodInitializing"}}}],
    },
}


def test_everything_that_is_kept():
    view = decode_pod(json.dumps(POD).encode())
    assert (view.namespace, view.name, view.uid, view.resource_version) == ("default", "demo-cpu-worker-a", "u1", "17")
    assert (view.cluster, view.group, view.node_type, view.replica_index) == ("demo", "cpu", "worker", 3)
    assert (view.replica_name, view.host_index, view.num_of_hosts) == ("cpu-x2b4c", 1, 4)
    assert (view.owner_uid, view.node_name, view.pod_ip, view.phase) == ("owner", "n0", "10.0.0.5", "Running")
    assert view.ready == PodCondition("False", "ContainersNotReady", "ray")
    assert view.scheduled.is_true
    assert [(c.name, c.state, c.reason, c.restart_count) for c in view.containers] == [
        ("side", "running", "", 0),
        ("ray", "terminated", "Error", 4),
    ]
    assert view.init_containers[0].reason == "PodInitializing"
    assert (view.ray_container, view.restart_policy) == ("ray", "Never")
    assert (view.recreate_hash, view.kuberay_version) == ("abc", "v9")


@pytest.mark.rule("RC:SD-2")
def test_the_status_of_the_ray_container_is_found_by_its_name():
    assert pod_from_manifest(POD).is_finished
    swapped = {**POD, "spec": {**POD["spec"], "containers": [{"name": "side"}, {"name": "ray"}]}}
    assert not pod_from_manifest(swapped).is_finished


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({"metadata": {"name": "a"}}, id="a pod about to be created"),
        pytest.param({"metadata": {"name": "a"}, "spec": {}, "status": {}}, id="a pod without any state"),
        pytest.param(
            {
                "metadata": {"name": "a", "labels": None, "ownerReferences": None},
                "spec": {"containers": None},
                "status": {"conditions": None, "containerStatuses": [{"name": "x", "state": {}}], "podIP": None},
            },
            id="nulls everywhere",
        ),
    ],
)
def test_whatever_is_missing_is_empty(manifest):
    view = pod_from_manifest(manifest)
    assert (view.owner_uid, view.cluster, view.replica_name) == ("", "", "")
    assert (view.replica_index, view.host_index, view.num_of_hosts) == (None, None, None)
    assert (view.is_finished, view.is_terminating) == (False, False)


@pytest.mark.parametrize("label", ["", "x", "-1", "1.5", "²", "1" * 5000])
def test_an_invalid_index_label_is_none(label):
    labels = {"ray.io/worker-group-replica-index": label, "ray.io/replica-host-index": label}
    view = pod_from_manifest({"metadata": {"name": "a", "labels": labels}})
    assert (view.replica_index, view.host_index) == (None, None)


def test_what_is_no_pod_is_rejected():
    with pytest.raises(msgspec.MsgspecError):
        decode_pod(b'{"metadata": 3}')


def test_marking_a_terminating_pod_changes_nothing():
    view = pod_from_manifest(POD)
    marked = view.marked_terminating("now")
    assert (marked.is_terminating, marked.name) == (True, view.name)
    assert marked.marked_terminating("later") is marked


def test_repeated_strings_are_interned_to_save_memory():
    one, other = (decode_pod(json.dumps(POD).encode()) for _ in range(2))
    for field in ("namespace", "owner_uid", "cluster", "group", "node_type", "phase", "node_name", "ray_container"):
        assert getattr(one, field) is getattr(other, field), field


# --- containers ------------------------------------------------------------------------------------------------------


def with_container(state, *, phase="Running", name="ray", kind="containerStatuses"):
    """A pod with one container in that state, whose container 0 is called `ray`."""
    return pod_from_manifest(
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "ray"}]},
            "status": {"phase": phase, kind: [{"name": name, "restartCount": 3, "state": state}]},
        }
    )


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("pod", "is_running"),
    [
        pytest.param(with_container({"running": {}}, name="autoscaler"), True, id="it runs, restarted or not"),
        pytest.param(
            with_container({"running": {}}, name="autoscaler", kind="initContainerStatuses"),
            True,
            id="a native sidecar",
        ),
        pytest.param(
            with_container({"waiting": {"reason": "CrashLoopBackOff"}}, name="autoscaler"), False, id="a crash loop"
        ),
        pytest.param(with_container({"terminated": {"exitCode": 0}}, name="autoscaler"), False, id="it has ended"),
        pytest.param(with_container({}, name="autoscaler"), False, id="not reported yet"),
        pytest.param(with_container(None, name="autoscaler"), False, id="no state"),
        pytest.param(with_container({"running": {}}), False, id="another container"),
        pytest.param(with_container({"running": {}}, phase="Failed", name="autoscaler"), False, id="the pod has ended"),
    ],
)
def test_whether_a_container_runs(pod, is_running):
    assert pod.is_container_running("autoscaler") is is_running


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("state", "name", "ended_at"),
    [
        pytest.param({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T12:00:00Z"}}, "ray", True, id="exited 0"),
        pytest.param({"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T12:00:00Z"}}, "ray", False, id="failed"),
        pytest.param(
            {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T12:00:00Z"}},
            "sidecar",
            False,
            id="a sidecar ended",
        ),
        pytest.param({"terminated": {"exitCode": 0, "finishedAt": None}}, "ray", False, id="no timestamp"),
        pytest.param({"running": {"startedAt": "2026-01-01T12:00:00Z"}}, "ray", False, id="it runs"),
    ],
)
def test_when_the_ray_container_ended_well(state, name, ended_at):
    assert with_container(state, name=name).ended_well_at == ("2026-01-01T12:00:00Z" if ended_at else "")


@pytest.mark.parametrize(
    ("policy", "status", "expected"),
    [
        ("Always", {"started": True}, (True, True)),
        ("Always", {"started": False}, (True, False)),
        ("Always", {}, (True, False)),
        ("Always", {"started": False, "restartCount": 1}, (True, True)),
        (None, {"started": True, "restartCount": 1}, (False, False)),
        ("OnFailure", {"started": True}, (False, False)),
    ],
    ids=["started", "startup probe pending", "not reported", "being restarted", "init container", "its own policy"],
)
def test_native_sidecars_are_distinguished_from_init_containers(policy, status, expected):
    view = pod_from_manifest(
        {
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {"initContainers": [{"name": "proxy", "restartPolicy": policy}], "containers": [{"name": "ray"}]},
            "status": {
                "initContainerStatuses": [{"name": "proxy", "state": {"running": {}}, **status}],
                "containerStatuses": [{"name": "ray", "started": True, "restartCount": 1}],
            },
        }
    )
    (proxy,), (ray,) = view.init_containers, view.containers
    assert (proxy.is_sidecar, proxy.has_started) == expected
    assert (ray.is_sidecar, ray.has_started) == (False, False)


@pytest.mark.rule("SC:S21", "D21")
@pytest.mark.parametrize("decode", [pod_from_manifest, job_pod_from_manifest])
@pytest.mark.parametrize(
    ("gates", "names"),
    [
        (None, ()),
        ([{"name": "kueue.x-k8s.io/admission"}], ("kueue.x-k8s.io/admission",)),
        ([{"name": f"example.com/{i}"} for i in range(1000)], tuple(f"example.com/{i}" for i in range(8))),
        ("text", ()),
        ([None, 5, {}, {"name": 5}], ()),
    ],
)
def test_scheduling_gates_of_any_shape_are_names_and_bounded(decode, gates, names):
    manifest = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"schedulingGates": gates}}
    assert decode(manifest).scheduling_gates == names
