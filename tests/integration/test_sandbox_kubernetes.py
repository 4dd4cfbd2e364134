"""The sandbox on a real control plane: what the emulator lacks, permissions, and shutdown."""

import json
import os
import re
import signal
import socket
import ssl
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from raytide_sandbox.certificates import Identity
from raytide_sandbox.state_dir import start_ticks
from support.deadlines import PATIENCE
from support.operator_process import OperatorProcess
from support.sandbox_process import SandboxProcess, can_isolate, eventually, processes_with

pytestmark = pytest.mark.kube

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"
CLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"
SAMPLE = Path(__file__).parents[2] / "samples" / "raycluster.yaml"
ASK_THE_API = """
import json, os, ssl, urllib.request as u
d = "/var/run/secrets/kubernetes.io/serviceaccount/"
c = ssl.create_default_context(cafile=d + "ca.crt")
h = {"Authorization": "Bearer " + open(d + "token").read(), "Content-Type": "application/json"}
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
for host in (os.environ["KUBERNETES_SERVICE_HOST"], *%s):
    url = "https://%%s:%%s/apis/authentication.k8s.io/v1/selfsubjectreviews" %% (host, os.environ["KUBERNETES_SERVICE_PORT"])
    print(json.load(u.urlopen(u.Request(url, body, h), context=c, timeout=10))["status"]["userInfo"]["username"])
"""


@pytest.fixture(scope="module", params=["ns", "plain"])
def sandbox(request) -> Iterator[SandboxProcess]:
    if not can_isolate(request.param):
        pytest.skip(f"this machine does not allow isolation {request.param}")
    running = SandboxProcess()
    try:
        running.up("--api=kubernetes", "--audit", f"--isolation={request.param}", "--nodes=2")
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def web(sandbox) -> str:
    """A Deployment that serves, behind a service."""
    serve = "cd $(mktemp -d) && echo it-works > index.html && exec python3 -m http.server 8011 --bind $POD_IP"
    container = {
        "name": "main",
        "image": "python",
        "command": ["sh", "-c", serve],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8011}, "periodSeconds": 1},
    }
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "type": "NodePort", "ports": [{"port": 8011}]}
    for path, kind, body in ((DEPLOYMENTS, "Deployment", spec), (SERVICES, "Service", service)):
        version = "apps/v1" if kind == "Deployment" else "v1"
        status, answer = sandbox.api(
            "POST", path, {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": body}
        )
        assert status == 201, answer
    eventually(lambda: ready_replicas(sandbox) == 2, "both pods are ready", 30)
    return "web"


def ready_replicas(sandbox):
    return sandbox.get(f"{DEPLOYMENTS}/web").get("status", {}).get("readyReplicas", 0)


def is_plain(sandbox):
    return json.loads((sandbox.state_dir / "sandbox.json").read_text())["isolation"] == "plain"


def audit(sandbox):
    log = json.loads((sandbox.state_dir / "sandbox.json").read_text())["audit_log"]
    return [json.loads(line) for line in Path(log).read_text().splitlines()]


# --- what is there -----------------------------------------------------------------------------------------------------
def test_nodes_are_ready_and_can_be_scheduled_on_as_soon_as_it_is_up(sandbox):
    for node in sandbox.get("/api/v1/nodes")["items"]:
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
        assert node["spec"].get("taints") is None
        lease = sandbox.get(
            f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node['metadata']['name']}"
        )
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


def test_status_shows_the_control_plane_and_the_path_of_its_audit_log(sandbox):
    output = sandbox.call("status").stdout
    assert "kubernetes: etcd, kube-apiserver" in output
    assert "audit.log" in output
    assert "in etcd, gone after `down`" in output


def test_the_crds_of_raytide_are_served(sandbox):
    def is_served() -> bool:
        status, answer = sandbox.api("GET", "/apis/ray.io/v1/rayclusters")
        assert status in (200, 429), answer  # an API server that has just learnt of a kind sets up its storage first
        return status == 200 and answer["items"] == []

    eventually(is_served, "RayClusters are served", 30)


# --- pods --------------------------------------------------------------------------------------------------------------
def test_a_deployments_pods_run_and_are_replaced_when_they_are_deleted(sandbox, web):
    before = {pod["metadata"]["uid"] for pod in sandbox.get(PODS + "?labelSelector=app%3Dweb")["items"]}
    (one, *_) = sandbox.get(PODS + "?labelSelector=app%3Dweb")["items"]
    sandbox.api("DELETE", f"{PODS}/{one['metadata']['name']}")

    def uids():
        return {pod["metadata"]["uid"] for pod in sandbox.get(PODS + "?labelSelector=app%3Dweb")["items"]}

    eventually(lambda: one["metadata"]["uid"] not in uids() and len(uids() - before) == 1, "another pod", 30)
    eventually(lambda: ready_replicas(sandbox) == 2, "both are ready again", 30)


def test_a_service_leads_to_its_pods_by_name_and_by_node_port(sandbox, web):
    sandbox.run_pod(
        "caller", "python3", "-c", "import urllib.request as u; print(u.urlopen('http://web.default.svc:8011').read())"
    )
    eventually(lambda: sandbox.phase("caller") in {"Succeeded", "Failed"}, "the caller ends", 30)
    assert sandbox.pod_log("caller") == "b'it-works\\n'\n"
    port = sandbox.get(f"{SERVICES}/web")["spec"]["ports"][0]["nodePort"]
    with socket.create_connection(("127.0.0.1", port), timeout=10 * PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.0 200")


def test_pods_and_services_are_reached_through_the_api(sandbox, web):
    if is_plain(sandbox):
        pytest.skip("Kubernetes does not proxy to loopback addresses")
    (pod, *_) = sandbox.get(PODS + "?labelSelector=app%3Dweb")["items"]
    for place in (f"{PODS}/{pod['metadata']['name']}:8011/proxy/", f"{SERVICES}/web:8011/proxy/"):
        assert sandbox.api("GET", place) == (200, "it-works\n")


def test_a_pod_authenticates_as_its_service_account(sandbox):
    names = () if is_plain(sandbox) else ("kubernetes.default.svc", "kubernetes")
    sandbox.run_pod("who-am-i", "python3", "-c", ASK_THE_API % repr(names))
    eventually(lambda: sandbox.phase("who-am-i") in {"Succeeded", "Failed"}, "it ends", 30)
    assert sandbox.pod_log("who-am-i").split() == ["system:serviceaccount:default:default"] * (1 + len(names))


def test_a_pod_is_deleted_with_the_grace_it_needs_and_no_more(sandbox):
    ignoring_sigterm = "trap '' TERM; echo up; while true; do sleep 0.1; done"
    sandbox.run_pod("stubborn", "sh", "-c", ignoring_sigterm, terminationGracePeriodSeconds=2)
    eventually(lambda: sandbox.pod_log("stubborn") == "up\n", "it runs", 30)
    sandbox.api("DELETE", f"{PODS}/stubborn")
    assert sandbox.get(f"{PODS}/stubborn")["metadata"]["deletionGracePeriodSeconds"] == 2
    eventually(lambda: sandbox.api("GET", f"{PODS}/stubborn")[0] == 404, "it is gone", 15)


# --- permissions -------------------------------------------------------------------------------------------------------
def test_each_node_writes_the_status_of_its_own_pods_only(sandbox, web):
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in sandbox.get(PODS)["items"]}
    writes = [
        (event["objectRef"]["name"], event["user"]["username"])
        for event in audit(sandbox)
        if event["verb"] == "patch" and event["objectRef"].get("subresource") == "status"
        if event["objectRef"]["resource"] == "pods" and event["objectRef"]["name"] in nodes
    ]
    assert {user for _, user in writes} <= {"system:node:sandbox-1", "system:node:sandbox-2"}
    for pod, user in writes:
        assert user == f"system:node:{nodes[pod]}"


def test_the_router_of_services_may_read_them(sandbox):
    asked = {
        (event["verb"], event["objectRef"]["resource"])
        for event in audit(sandbox)
        if event["user"]["username"] == "system:kube-proxy" and event["responseStatus"]["code"] == 200
    }
    assert asked >= {("list", "services"), ("list", "endpoints")}


def test_a_kubelet_opens_to_its_api_server_only(sandbox):
    (node, *_) = sandbox.get("/api/v1/nodes")["items"]
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    default_context = ssl.create_default_context()
    default_context.check_hostname, default_context.verify_mode = False, ssl.CERT_NONE
    assert ask(port, default_context) == b""
    administrator = yaml.safe_load((sandbox.state_dir / "plane" / "kubeconfig").read_text())["users"][0]["user"]
    keys = (b64decode(administrator[f"client-{part}-data"]) for part in ("certificate", "key"))
    Identity(*keys).load_into(default_context)
    assert ask(port, default_context) == b""


def ask(port, tls):
    """The response of a kubelet to an arbitrary client; empty if it does not even finish the handshake."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10 * PATIENCE) as plain,
            tls.wrap_socket(plain) as connection,
        ):
            connection.sendall(b"GET /containerLogs/default/any/main HTTP/1.1\r\nHost: x\r\n\r\n")
            return connection.recv(4096)
    except (ssl.SSLError, ConnectionResetError):
        return b""


# --- Ray ---------------------------------------------------------------------------------------------------------------
@pytest.mark.ray
@pytest.mark.timeout(400)
def test_a_raycluster_becomes_ready_with_real_ray(sandbox, tmp_path):
    with OperatorProcess(sandbox.kubeconfig, tmp_path / "operator.log"):
        sample = yaml.safe_load(SAMPLE.read_text())
        sample["spec"]["workerGroupSpecs"][0]["replicas"] = 1
        assert sandbox.api("POST", CLUSTERS, sample)[0] == 201

        def state():
            return sandbox.get(f"{CLUSTERS}/sample").get("status", {}).get("state")

        eventually(lambda: state() == "ready", "the cluster is ready", 240)
        sandbox.api("DELETE", f"{CLUSTERS}/sample")
        eventually(lambda: sandbox.get(PODS + "?labelSelector=ray.io%2Fcluster")["items"] == [], "no pod is left", 60)


def test_a_start_that_takes_too_long_names_the_component_with_the_end_of_its_log():
    sandbox = SandboxProcess()
    try:
        done = sandbox.call("up", "--api=kubernetes", "--isolation=plain", "--timeout=0.3")
        assert done.returncode == 1
        reason, *log = done.stderr.splitlines()
        assert re.fullmatch(r"Error: (etcd|kube-apiserver) was not ready within 0\.3 s; from /.*\.log:", reason), reason
        assert log
        assert processes_with(str(sandbox.state_dir)) == []
    finally:
        sandbox.end()


# --- ends --------------------------------------------------------------------------------------------------------------
def test_down_leaves_no_process_no_port_and_no_object():
    sandbox = SandboxProcess()
    try:
        sandbox.up("--api=kubernetes", "--nodes=1", "--no-crds", "--isolation=plain")
        address = urlsplit(sandbox.server)
        mark = str(sandbox.state_dir)
        assert len(processes_with(mark)) >= 5, "the sandbox and four components"
        assert sandbox.call("down").stdout == "The sandbox is down.\n"
        assert processes_with(mark) == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.hostname, address.port), timeout=2 * PATIENCE)
        assert not (sandbox.state_dir / "plane").exists()
    finally:
        sandbox.end()


def test_kill_9_and_a_lost_component_end_all_of_it():
    sandbox = SandboxProcess()
    mark = str(sandbox.state_dir)
    try:
        sandbox.up("--api=kubernetes", "--nodes=1", "--no-crds", "--isolation=plain")
        os.kill(sandbox.pid, signal.SIGKILL)
        eventually(lambda: not processes_with(mark), "nothing is left", 10)
        assert "was killed or crashed" in sandbox.up("--api=kubernetes", "--nodes=1", "--no-crds", "--isolation=plain")
        pid = sandbox.pid
        (scheduler,) = [p for p in processes_with(mark) if b"kube-scheduler" in Path(f"/proc/{p}/cmdline").read_bytes()]
        os.kill(scheduler, signal.SIGKILL)
        eventually(lambda: not processes_with(mark), "nothing is left", 30)
        assert start_ticks(pid) is None
        assert "kube-scheduler was ended by SIGKILL" in sandbox.log()
    finally:
        sandbox.end()
