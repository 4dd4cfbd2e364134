"""kubectl on the sandbox: the commands that users run on a RayCluster and its pods."""

import json
import shutil
import urllib.request
from collections.abc import Iterator

import pytest

from support.deadlines import PATIENCE
from support.sandbox_process import SANDBOXES, Kubectl, eventually, running_sandbox

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
]

CONTAINER = {"name": "main", "image": "rayproject/ray:2.60.0", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
RAYCLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "demo"},
    "spec": {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [CONTAINER]}}},
        "workerGroupSpecs": [
            {
                "groupName": "cpu",
                "replicas": 1,
                "minReplicas": 0,
                "maxReplicas": 5,
                "rayStartParams": {},
                "template": {"spec": {"containers": [CONTAINER]}},
            }
        ],
    },
}
WEB = """
echo serving; echo to-stderr >&2
cd /tmp && echo it-works > index.html && exec python3 -m http.server 8000
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": "python:3.11",
                "command": ["sh", "-c", WEB],
                "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
            }
        ],
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
}


@pytest.fixture(scope="module", params=SANDBOXES)
def kubectl(request) -> Iterator[Kubectl]:
    for sandbox in running_sandbox(request.param):
        yield Kubectl(sandbox)


@pytest.fixture(scope="module")
def web(kubectl) -> str:
    """A pod that serves and is Ready, behind a service."""
    kubectl("apply", "-f", "-", given=POD)
    kubectl("apply", "-f", "-", given=SERVICE)
    assert (
        kubectl("wait", "--for=condition=Ready", "pod/web", f"--timeout={20 * PATIENCE:.0f}s")
        == "pod/web condition met\n"
    )
    return "web"


# --- a RayCluster --------------------------------------------------------------------------------------------------------
def test_apply_get_describe_edit_and_delete_a_raycluster(kubectl):
    assert kubectl("apply", "-f", "-", given=RAYCLUSTER) == "raycluster.ray.io/demo created\n"
    kubectl("apply", "-f", "-", given=RAYCLUSTER)
    assert kubectl("get", "raycluster", "demo", "-o", "jsonpath={.metadata.generation}") == "1"
    header, row = kubectl("get", "raycluster").splitlines()
    assert header.split()[:3] == ["NAME", "DESIRED", "WORKERS"]
    assert row.split()[0] == "demo"
    assert "Group Name:" in kubectl("describe", "raycluster", "demo")
    edited = kubectl("edit", "raycluster", "demo", KUBE_EDITOR="sed -i s/maxReplicas:.5/maxReplicas:\\ 7/")
    assert "raycluster.ray.io/demo edited" in edited
    assert kubectl("get", "raycluster", "demo", "-o", "jsonpath={..maxReplicas}") == "7"
    patch = json.dumps({"metadata": {"labels": {"a": "b"}}})
    assert "patched" in kubectl("patch", "raycluster", "demo", "--type=merge", "-p", patch)
    assert "demo" in kubectl("get", "raycluster", "-l", "a=b", "-o", "name")
    assert 'raycluster.ray.io "demo" deleted' in kubectl(
        "delete", "raycluster", "demo", f"--timeout={10 * PATIENCE:.0f}s"
    )


def test_a_bad_raycluster_is_rejected_and_the_field_named(kubectl):
    bad = json.loads(json.dumps(RAYCLUSTER))
    bad["metadata"]["name"] = "bad"
    bad["spec"]["workerGroupSpecs"][0]["replicas"] = "two"
    output = kubectl("apply", "-f", "-", given=bad, exit_code=1)
    assert "spec.workerGroupSpecs[0].replicas" in output
    bad["spec"]["workerGroupSpecs"][0] |= {"replicas": 1, "maxReplica": 3}
    assert 'unknown field "spec.workerGroupSpecs[0].maxReplica"' in kubectl("apply", "-f", "-", given=bad, exit_code=1)


def test_explain_describes_the_fields_of_a_raycluster(kubectl):
    output = kubectl("explain", "raycluster.spec.workerGroupSpecs.replicas")
    assert "replicas <integer>" in output
    assert "containers\t<[]" in kubectl("explain", "raycluster.spec.headGroupSpec.template.spec")


# --- pods ----------------------------------------------------------------------------------------------------------------
def test_get_shows_pods_nodes_and_everything(kubectl, web):
    row = kubectl("get", "pods", "-o", "wide", "--no-headers").split()
    assert row[:4] == ["web", "1/1", "Running", "0"]
    assert row[6].startswith("sandbox-")
    everything = kubectl("get", "all")
    assert "pod/web" in everything
    assert "service/web" in everything
    assert "service/kubernetes" in everything
    assert len(kubectl("get", "nodes", "--no-headers").splitlines()) == 3
    assert "web" in kubectl("get", "endpoints,endpointslices")


def test_describe_shows_the_events_of_a_pod(kubectl, web):
    output = kubectl("describe", "pod", "web")
    for expected in (
        "Successfully assigned default/web to sandbox-",
        "Started container main",
        "Ready             True",
    ):
        assert expected in output, output
    assert "Allocated resources:" in kubectl("describe", "node", "sandbox-1")


def test_logs_are_followed_until_the_container_ends(kubectl):
    kubectl("run", "counter", "--image=busybox", "--restart=Never", "--", "sh", "-c", "echo one; sleep 1; echo two")
    kubectl(
        "wait", "--for=jsonpath={.status.containerStatuses[0].state}", "pod/counter", f"--timeout={10 * PATIENCE:.0f}s"
    )
    eventually(lambda: "one" in kubectl("logs", "counter"), "the first line")
    assert kubectl("logs", "-f", "counter") == "one\ntwo\n"
    assert kubectl("logs", "--tail=1", "counter") == "two\n"
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/counter", f"--timeout={10 * PATIENCE:.0f}s")
    assert kubectl("get", "pod", "counter", "--no-headers").split()[1:3] == ["0/1", "Completed"]


def test_exec_runs_a_command_and_returns_its_exit_code(kubectl, web):
    assert kubectl("exec", web, "--", "sh", "-c", "echo out; pwd >/dev/null; echo $HOSTNAME") == "out\nweb\n"
    kubectl("exec", web, "--", "sh", "-c", "exit 7", exit_code=7)
    assert kubectl("exec", "-i", web, "--", "cat", given="typed") == "typed"


def test_port_forward_reaches_a_pod_and_a_service(kubectl, web):
    for target, port in ((f"pod/{web}", 8000), ("service/web", 80)):
        with kubectl.start("port-forward", target, f":{port}") as forward:
            try:
                line = forward.stdout.readline()
                address = line.removeprefix("Forwarding from ").split(" ->")[0]
                with urllib.request.urlopen(f"http://{address}/", timeout=10 * PATIENCE) as answer:
                    assert answer.read() == b"it-works\n"
            finally:
                forward.kill()


def test_a_pod_that_keeps_failing_is_in_crash_loop_back_off(kubectl):
    kubectl("run", "crasher", "--image=busybox", "--", "sh", "-c", "exit 3")
    eventually(lambda: "CrashLoopBackOff" in kubectl("get", "pod", "crasher"), "CrashLoopBackOff", 20)
    assert kubectl("get", "pod", "crasher", "--no-headers").split()[3] != "0"
    kubectl("delete", "pod", "crasher", f"--timeout={10 * PATIENCE:.0f}s")


def test_an_unknown_image_cannot_be_pulled(kubectl):
    kubectl("run", "unknown", "--image=example.com/no/such:1")
    eventually(
        lambda: "PullBackOff" in kubectl("get", "pod", "unknown") or "ErrImagePull" in kubectl("get", "pod", "unknown"),
        "a pull error",
    )
    kubectl("delete", "pod", "unknown", f"--timeout={10 * PATIENCE:.0f}s")


def test_what_does_not_fit_is_explained(kubectl):
    big = json.loads(json.dumps(POD)) | {"metadata": {"name": "big"}}
    big["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9"}}
    kubectl("apply", "-f", "-", given=big)
    eventually(lambda: "FailedScheduling" in kubectl("describe", "pod", "big"), "the event")
    assert "0/3 nodes are available: 3 Insufficient cpu." in kubectl("describe", "pod", "big")
    assert 'pod "big" deleted' in kubectl("delete", "pod", "big", f"--timeout={10 * PATIENCE:.0f}s")


def test_cordon_and_taint_are_respected(kubectl):
    assert "cordoned" in kubectl("cordon", "sandbox-1", "sandbox-2", "sandbox-3")
    try:
        kubectl("run", "nowhere", "--image=busybox", "--restart=Never", "--", "true")
        eventually(lambda: "were unschedulable" in kubectl("describe", "pod", "nowhere"), "the reason")
    finally:
        kubectl("uncordon", "sandbox-1", "sandbox-2", "sandbox-3")
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/nowhere", f"--timeout={10 * PATIENCE:.0f}s")


def test_tokens_and_permissions_are_answered(kubectl):
    assert kubectl("create", "token", "default").count(".") == 2
    assert kubectl("auth", "can-i", "create", "rayclusters") == "yes\n"
    assert "-admin" in kubectl("auth", "whoami")


def test_a_namespace_is_deleted_with_its_content(kubectl):
    kubectl("create", "namespace", "team")
    kubectl("-n", "team", "create", "configmap", "c", "--from-literal=a=b")
    kubectl("-n", "team", "run", "p", "--image=busybox", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait")
    kubectl("-n", "team", "wait", "--for=condition=Ready", "pod/p", f"--timeout={10 * PATIENCE:.0f}s")
    assert 'namespace "team" deleted' in kubectl("delete", "namespace", "team", f"--timeout={20 * PATIENCE:.0f}s")
    assert "NotFound" in kubectl("get", "namespace", "team", exit_code=1)
