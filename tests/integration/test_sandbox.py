"""The sandbox from the command line: up, status, down; and nothing is left, however it ends."""

import os
import re
import signal
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raytide_sandbox.state_dir import start_ticks
from support.deadlines import PATIENCE
from support.sandbox_process import SandboxProcess, can_isolate, eventually, processes_with

pytestmark = pytest.mark.slow

MODES = ("ns", "plain")


@pytest.fixture(scope="module", params=MODES)
def running(request) -> Iterator[SandboxProcess]:
    """A sandbox in each mode, shared by the tests that break nothing."""
    if not can_isolate(request.param):
        pytest.skip(f"this machine does not allow isolation {request.param}")
    sandbox = SandboxProcess()
    try:
        sandbox.up(f"--isolation={request.param}")
        yield sandbox
    finally:
        sandbox.end()


@pytest.fixture
def fresh() -> Iterator[SandboxProcess]:
    sandbox = SandboxProcess()
    try:
        yield sandbox
    finally:
        sandbox.end()


# --- what is there -----------------------------------------------------------------------------------------------------
def test_three_ready_nodes_of_the_requested_size(running):
    nodes = running.get("/api/v1/nodes")["items"]
    assert len(nodes) == 3
    for node in nodes:
        assert (node["status"]["allocatable"]["cpu"], node["status"]["allocatable"]["memory"]) == ("8", "32Gi")
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"


def test_default_namespaces_accounts_services_and_configmaps_exist(running):
    namespaces = [item["metadata"]["name"] for item in running.get("/api/v1/namespaces")["items"]]
    assert namespaces == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert running.get("/api/v1/namespaces/default/serviceaccounts/default")
    assert running.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["ports"][0]["port"] == 443
    assert (
        "BEGIN CERTIFICATE"
        in running.get("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    )


def test_the_crds_of_raytide_are_installed(running):
    assert running.get("/apis/ray.io/v1/rayclusters")["items"] == []


@pytest.mark.parametrize("token", ["", "wrong", "a.b.c"])
def test_without_a_known_token_the_answer_is_401(running, token):
    status, answer = running.api("GET", "/api/v1/nodes", token=token)
    assert (status, answer["reason"]) == (401, "Unauthorized")


def test_a_kubelet_answers_its_api_server_only(running):
    (node, *_) = running.get("/api/v1/nodes")["items"]
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    url = f"http://127.0.0.1:{port}/containerLogs/default/any/main"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=5 * PATIENCE)


def test_a_service_accounts_token_opens_the_api(running):
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    status, answer = running.api("POST", path, {"spec": {"expirationSeconds": 3600}})
    assert status == 201, answer
    assert running.api("GET", "/api/v1/nodes", token=answer["status"]["token"])[0] == 200


def test_the_files_are_their_owners_only(running):
    assert stat.S_IMODE(running.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.state_dir.stat().st_mode) == 0o700


def test_status_shows_nodes_address_and_isolation(running):
    done = running.call("status")
    assert done.returncode == 0, done.stdout + done.stderr
    mode = re.search(r"isolation\s+(ns|plain): .+", done.stdout)
    assert mode, done.stdout
    for expected in ("https://127.0.0.1:", "3 × 8 CPU, 32Gi", str(running.kubeconfig), f"process {running.pid}"):
        assert expected in done.stdout


def test_kubeconfig_prints_the_file_or_where_it_is(running):
    assert running.call("kubeconfig").stdout == running.kubeconfig.read_text()
    assert running.call("kubeconfig", "--path").stdout == f"{running.kubeconfig}\n"


def test_up_twice_changes_nothing(running):
    pid = running.pid
    assert "already running" in running.up("--nodes=5")
    assert running.pid == pid
    assert len(running.get("/api/v1/nodes")["items"]) == 3


def test_a_start_that_takes_too_long_is_given_up_with_its_log(fresh):
    done = fresh.call("up", "--timeout=0.1")
    assert done.returncode == 1
    reason, *log = done.stderr.splitlines()
    assert reason.startswith("Error: the sandbox was not ready within 0.1 s (--timeout); waiting for sandbox-1")
    assert "the sandbox ends" in log[-1]
    assert fresh.call("status").returncode == 1


# --- pods --------------------------------------------------------------------------------------------------------------
def test_a_pod_finds_the_api_as_in_every_cluster(running):
    script = (
        "import json,os,ssl,urllib.request as u\n"
        "d='/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "d=os.environ.get('SERVICE_ACCOUNT_DIR',d)\n"
        "c=ssl.create_default_context(cafile=d+'ca.crt')\n"
        "h,p=os.environ['KUBERNETES_SERVICE_HOST'],os.environ['KUBERNETES_SERVICE_PORT']\n"
        "r=u.Request(f'https://{h}:{p}/api/v1/namespaces/default/pods',headers={'Authorization':'Bearer '+open(d+'token').read()})\n"
        "print(json.load(u.urlopen(r,context=c,timeout=10))['kind'])"
    )
    running.run_pod("in-cluster", "python3", "-c", script)
    eventually(lambda: running.phase("in-cluster") in {"Succeeded", "Failed"}, "the pod ends")
    assert running.pod_log("in-cluster") == "PodList\n"


def test_a_pod_that_does_not_fit_stays_pending_with_a_condition(running):
    running.run_pod("big", "true", nodeSelector={"no-such": "node"})

    def conditions():
        return running.get("/api/v1/namespaces/default/pods/big").get("status", {}).get("conditions")

    (condition,) = eventually(conditions, "the scheduler sets a condition")
    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    running.api("DELETE", "/api/v1/namespaces/default/pods/big")


def test_a_plain_container_waits_for_the_address_of_a_service_it_names(running):
    """Where pods have a network of their own, names are not rewritten: a name server resolves them at every query."""
    is_plain = "plain" in running.call("status").stdout.split("isolation")[1].split("\n")[0]
    spec = {"selector": {"app": "late"}, "clusterIP": "None", "publishNotReadyAddresses": True, "ports": [{"port": 1}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "late"}, "spec": spec}
    assert running.api("POST", "/api/v1/namespaces/default/services", body)[0] == 201
    running.run_pod("early", "echo", "late.default.svc.cluster.local")
    eventually(lambda: running.phase("early"), "the pod is known")
    running.run_pod("late", "sleep", "600", labels={"app": "late"})
    eventually(lambda: running.phase("early") == "Succeeded", "the pod ends")
    address = running.get("/api/v1/namespaces/default/pods/late")["status"]["podIP"]
    assert running.pod_log("early").strip() == (address if is_plain else "late.default.svc.cluster.local")


# --- ends --------------------------------------------------------------------------------------------------------------
DAEMON = "(setsid sh -c '(setsid sleep {0} &)' &) ; exec sleep {0}"


@pytest.mark.parametrize("mode", MODES)
def test_kill_9_leaves_nothing_behind_and_up_works_again(fresh, mode):
    if not can_isolate(mode):
        pytest.skip(f"this machine does not allow isolation {mode}")
    number = str(700_000_000 + os.getpid() * 10 + MODES.index(mode))
    fresh.up(f"--isolation={mode}")
    fresh.run_pod("daemon", "sh", "-c", DAEMON.format(number))
    eventually(lambda: len(processes_with(f"sleep\0{number}")) == 2, "the pod and its daemon run")
    mark = f"RAYTIDE_SANDBOX_MARK={fresh.scratch}"
    assert processes_with(mark, "environ")

    os.kill(fresh.pid, signal.SIGKILL)

    eventually(lambda: not processes_with(f"sleep\0{number}"), "the pod and its daemon are gone", 5.0)
    eventually(lambda: not processes_with(mark, "environ"), "nothing of the node is left", 5.0)
    status = fresh.call("status")
    assert status.returncode == 1
    assert "was killed or crashed" in status.stdout
    assert "was killed or crashed" in fresh.up(f"--isolation={mode}")
    assert fresh.get("/api/v1/pods")["items"] == []


@pytest.mark.parametrize("mode", MODES)
def test_the_sandbox_ends_with_an_error_if_the_first_process_of_a_node_is_killed(fresh, mode):
    if not can_isolate(mode):
        pytest.skip(f"this machine does not allow isolation {mode}")
    number = str(900_000_000 + os.getpid() * 10 + MODES.index(mode))
    fresh.up(f"--isolation={mode}", "--nodes=1", "--no-crds")
    fresh.run_pod("daemon", "sh", "-c", DAEMON.format(number))
    eventually(lambda: len(processes_with(f"sleep\0{number}")) == 2, "the pod and its daemon run")
    pid = fresh.pid

    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)

    eventually(lambda: start_ticks(pid) is None, "the sandbox has ended")
    eventually(lambda: not processes_with(f"sleep\0{number}"), "the pod and its daemon are gone", 5.0)
    assert "No sandbox is running. Start one" in fresh.call("status").stdout
    assert "NodeLost" in fresh.log()


def test_down_ends_pods_waits_and_is_idempotent(fresh):
    number = str(800_000_000 + os.getpid())
    fresh.up("--nodes=1", "--no-crds")
    scratch = fresh.scratch
    fresh.run_pod("daemon", "sh", "-c", DAEMON.format(number))
    eventually(lambda: len(processes_with(f"sleep\0{number}")) == 2, "the pod and its daemon run")
    pid = fresh.pid

    done = fresh.call("down")

    assert (done.returncode, done.stdout) == (0, "The sandbox is down.\n"), done.stderr
    assert processes_with(f"sleep\0{number}") == []
    assert start_ticks(pid) is None
    assert not fresh.kubeconfig.exists()
    assert not Path(scratch).exists()
    assert fresh.call("down").stdout == "No sandbox is running.\n"
    assert "the sandbox has ended" in fresh.call("logs").stdout


def test_a_port_in_use_is_one_line_with_the_remedy_and_leaves_no_state(fresh):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = fresh.call("up", f"--port={port}")
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use by another program; choose another with --port" in done.stderr
    assert fresh.call("status").returncode == 1
    fresh.up(f"--port={port}", "--nodes=1", "--no-crds")
    assert f"https://127.0.0.1:{port}" in fresh.call("status").stdout
