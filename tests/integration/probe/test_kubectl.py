"""kubectl against both API servers."""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.probe.client import Client, cluster, eventually, pod
from support.deadlines import PATIENCE

pytestmark = pytest.mark.kubectl

Run = Callable[..., str]
SHORT_S = 20 * PATIENCE


@pytest.fixture
def kubectl(client: Client, tmp_path: Path) -> Run:
    server = {"server": client.endpoint.url}
    if client.endpoint.authority:
        server["certificate-authority-data"] = base64.b64encode(client.endpoint.authority.encode()).decode()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": client.endpoint.token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": client.namespace}}],
        "current-context": "c",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    chosen = client.endpoint.kubeconfig or str(path)

    def run(*arguments: str, given: str | None = None, code: int = 0) -> str:
        where = ["--kubeconfig", chosen, "--namespace", client.namespace, f"--cache-dir={tmp_path}/cache"]
        command = ["kubectl", *where, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SHORT_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def columns(table: str) -> list[str]:
    return table.splitlines()[0].split()


def test_api_resources(kubectl: Run) -> None:
    found = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "deployments.apps", "rayclusters.probe.raytide.io"} <= set(found)


def test_explain(kubectl: Run) -> None:
    assert "rayVersion" in kubectl("explain", "raycluster.spec", "--api-version=probe.raytide.io/v1")


def test_get(client: Client, kubectl: Run) -> None:
    client.new_pod("p1")
    client.new_cluster("c1")
    assert columns(kubectl("get", "pods")) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert columns(kubectl("get", "rayclusters")) == ["NAME", "REPLICAS"]
    assert client.namespace in kubectl("get", "ns")
    assert "pod/p1" in kubectl("get", "all")


def test_apply_creates_and_changes(client: Client, kubectl: Run) -> None:
    wanted = pod("kp", labels={"a": "b"})
    assert "created" in kubectl("apply", "-f", "-", given=json.dumps(wanted))
    assert "unchanged" in kubectl("apply", "-f", "-", given=json.dumps(wanted))
    wanted["metadata"]["labels"] = {"a": "c"}
    assert "configured" in kubectl("apply", "-f", "-", given=json.dumps(wanted))
    assert client.get(f"{client.pods}/kp").metadata["labels"] == {"a": "c"}


def test_apply_of_a_custom_kind(client: Client, kubectl: Run) -> None:
    wanted = cluster("kr")
    assert "created" in kubectl("apply", "-f", "-", given=json.dumps(wanted))
    wanted["spec"]["replicas"] = 3
    assert "configured" in kubectl("apply", "-f", "-", given=json.dumps(wanted))
    assert client.get(f"{client.clusters}/kr").body["spec"]["replicas"] == 3
    wanted["spec"]["bogus"] = 1
    assert 'unknown field "spec.bogus"' in kubectl("apply", "-f", "-", given=json.dumps(wanted), code=1)


def test_apply_on_the_server_side(client: Client, kubectl: Run) -> None:
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", given=json.dumps(cluster("kr")))
    assert client.get(f"{client.clusters}/kr").metadata["managedFields"][0]["manager"] == "kubectl"


def test_apply_moves_from_the_client_to_the_server(client: Client, kubectl: Run) -> None:
    wanted = cluster("kr", {"rayVersion": "1", "suspend": True})
    kubectl("apply", "-f", "-", given=json.dumps(wanted))
    del wanted["spec"]["suspend"]
    kubectl("apply", "--server-side", "-f", "-", given=json.dumps(wanted))
    assert "suspend" not in client.get(f"{client.clusters}/kr").body["spec"]


def test_create_label_patch_scale(client: Client, kubectl: Run) -> None:
    kubectl("create", "-f", "-", given=json.dumps(cluster("kr")))
    kubectl("label", "raycluster", "kr", "zz=1")
    patch = '[{"op":"replace","path":"/spec/rayVersion","value":"5"}]'
    kubectl("patch", "raycluster", "kr", "--type=json", "-p", patch)
    kubectl("scale", "raycluster/kr", "--replicas=4")
    found = client.get(f"{client.clusters}/kr").body
    assert found["metadata"]["labels"] == {"zz": "1"}
    assert (found["spec"]["rayVersion"], found["spec"]["replicas"]) == ("5", 4)


def test_describe_shows_events_of_both_apis(client: Client, kubectl: Run) -> None:
    uid = client.new_pod("p1").metadata["uid"]
    about = {"kind": "Pod", "name": "p1", "namespace": client.namespace, "uid": uid, "apiVersion": "v1"}
    event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": about}
    event.update(reason="Looked", note="a modern event", type="Normal", action="Look", reportingController="test")
    event.update(eventTime="2026-01-01T00:00:00.000000Z", reportingInstance="test-1")
    path = f"/apis/events.k8s.io/v1/namespaces/{client.namespace}/events"
    assert client.post(path, event).status == 201
    output = kubectl("describe", "pod", "p1")
    assert "a modern event" in output
    assert "QoS Class" in output


def test_wait(client: Client, kubectl: Run) -> None:
    client.new_pod("p1")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    client.patch(f"{client.pods}/p1/status", ready)
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/p1", f"--timeout={5 * PATIENCE:.0f}s")


def test_permissions_and_logs(client: Client, kubectl: Run) -> None:
    client.new_pod("p1")
    assert kubectl("auth", "can-i", "get", "pods").startswith("yes")
    assert kubectl("logs", "p1") == ""


def test_delete_waits_until_it_is_gone(client: Client, kubectl: Run) -> None:
    client.new_pod("kp")
    client.new_cluster("kr")
    kubectl("delete", "pod", "kp", f"--timeout={8 * PATIENCE:.0f}s", "--grace-period=0", "--force")
    kubectl("delete", "raycluster", "kr", f"--timeout={8 * PATIENCE:.0f}s")
    eventually(lambda: client.get(f"{client.clusters}/kr").status == 404, "the cluster is gone")


def test_watch(client: Client, kubectl: Run) -> None:
    client.new_pod("p1")
    output = kubectl("get", "pods", "-w", "--request-timeout=2s")
    assert "p1" in output
