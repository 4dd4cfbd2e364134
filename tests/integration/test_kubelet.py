"""Pods of the sandbox: real processes in both isolation modes, through the API and `kubectl`."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml

from raytide_sandbox.connections import ClosingConnector
from support.deadlines import PATIENCE
from support.sandbox_process import SANDBOXES, SandboxProcess, eventually, running_sandbox

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module", params=SANDBOXES)
def sandbox(request) -> Iterator[SandboxProcess]:
    yield from running_sandbox(request.param)


def container(sandbox, pod, name="main"):
    """The status of a container; empty before there is one."""
    status = sandbox.get(f"{PODS}/{pod}").get("status", {})
    entries = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    return next((entry for entry in entries if entry["name"] == name), {"state": {}})


def waits_as(sandbox, pod, reason, name="main"):
    state = container(sandbox, pod, name)["state"]
    return state.get("waiting", {}).get("reason") == reason


def ended(sandbox, pod):
    phase = sandbox.phase(pod)
    return phase if phase in {"Succeeded", "Failed"} else ""


def row(sandbox, pod):
    """The columns of `kubectl get pods`, by their names."""
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]

    async def ask():
        async with (
            _session(cluster, user) as session,
            session.get(
                cluster["server"] + f"{PODS}/{pod}", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            ) as answer,
        ):
            return await answer.json()

    table = asyncio.run(ask())
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


@asynccontextmanager
async def _session(cluster, user) -> AsyncIterator[aiohttp.ClientSession]:
    """As that user."""
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    headers = {"Authorization": f"Bearer {user['token']}"}
    async with aiohttp.ClientSession(connector=ClosingConnector(ssl=tls), headers=headers) as session:
        yield session


@asynccontextmanager
async def _websocket(sandbox, path, query, protocol) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A WebSocket through the API server."""
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    async with asyncio.timeout(10 * PATIENCE), _session(cluster, user) as session:
        url = cluster["server"] + f"{PODS}/{path}"
        async with session.ws_connect(url, params=query, protocols=[protocol]) as socket:
            yield socket


# --- one lifecycle -----------------------------------------------------------------------------------------------------
def test_a_pod_runs_prints_its_output_and_is_gone_when_it_is_deleted(sandbox):
    sandbox.run_pod(
        "life",
        "sh",
        "-c",
        "echo $GREETING to $POD; exec sleep 600",
        containers=[
            {
                "name": "main",
                "image": "busybox",
                "command": ["sh", "-c", "echo $GREETING to $POD; exec sleep 600"],
                "env": [
                    {"name": "GREETING", "value": "hello"},
                    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            }
        ],
    )
    eventually(lambda: sandbox.phase("life") == "Running", "life runs")
    eventually(lambda: sandbox.pod_log("life") == "hello to life\n", "it has said it")
    begun = time.monotonic()
    sandbox.api("DELETE", f"{PODS}/life")
    eventually(lambda: sandbox.api("GET", f"{PODS}/life")[0] == 404, "life is gone")
    assert time.monotonic() - begun < 5


def test_volumes_and_secrets_reach_the_containers_in_order(sandbox):
    sandbox.api(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "settings"}, "data": {"color": "red"}}
    )
    secret = {"metadata": {"name": "keys"}, "data": {"k": base64.b64encode(b"hush").decode()}}
    sandbox.api("POST", "/api/v1/namespaces/default/secrets", secret)
    shared = {"name": "shared", "mountPath": "/shared"}
    read = "cat /shared/note /etc/settings/color; echo; cat /etc/keys/k; echo; wc -c < /var/run/secrets/kubernetes.io/serviceaccount/token"
    sandbox.run_pod(
        "volumes",
        initContainers=[
            {
                "name": "note",
                "image": "busybox",
                "command": ["sh", "-c", "echo first > /shared/note"],
                "volumeMounts": [shared],
            }
        ],
        containers=[
            {
                "name": "main",
                "image": "busybox",
                "command": ["sh", "-c", read],
                "volumeMounts": [
                    shared,
                    {"name": "settings", "mountPath": "/etc/settings"},
                    {"name": "keys", "mountPath": "/etc/keys", "readOnly": True},
                ],
            }
        ],
        volumes=[
            {"name": "shared", "emptyDir": {}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
        ],
    )
    assert eventually(lambda: ended(sandbox, "volumes"), "it has read everything") == "Succeeded", sandbox.pod_log(
        "volumes"
    )
    lines = sandbox.pod_log("volumes").split()
    assert lines[:3] == ["first", "red", "hush"]
    assert int(lines[3]) > 100


# --- what kubectl shows ------------------------------------------------------------------------------------------------
def test_a_container_that_fails_again_and_again_is_in_crash_loop_back_off(sandbox):
    sandbox.run_pod("crash", "false", restartPolicy="Always")
    eventually(lambda: waits_as(sandbox, "crash", "CrashLoopBackOff"), "it has crashed twice")
    shown = row(sandbox, "crash")
    assert (shown["Ready"], shown["Status"]) == ("0/1", "CrashLoopBackOff")
    assert str(shown["Restarts"]).startswith("1")
    assert container(sandbox, "crash")["lastState"]["terminated"]["exitCode"] == 1


def test_an_init_container_that_still_runs_is_shown(sandbox):
    init = {"name": "first", "image": "busybox", "command": ["sleep", "600"]}
    sandbox.run_pod("init", "true", initContainers=[init])
    eventually(lambda: "running" in container(sandbox, "init", "first")["state"], "the init container runs")
    assert row(sandbox, "init")["Status"] == "Init:0/1"
    assert waits_as(sandbox, "init", "PodInitializing")


@pytest.mark.parametrize(
    ("name", "spec", "reason"),
    [
        pytest.param("no-image", {"image": "nowhere.example/x:1", "command": ["true"]}, "ErrImagePull", id="no image"),
        pytest.param(
            "no-secret",
            {"image": "busybox", "command": ["true"], "envFrom": [{"secretRef": {"name": "none"}}]},
            "CreateContainerConfigError",
            id="no secret",
        ),
    ],
)
def test_a_container_that_cannot_start_has_a_waiting_reason(sandbox, name, spec, reason):
    sandbox.run_pod(name, containers=[{"name": "main", **spec}])
    eventually(lambda: waits_as(sandbox, name, reason), reason)


@pytest.mark.parametrize(
    ("name", "command", "code", "reason"),
    [
        pytest.param("ended-3", "echo sorry > /dev/termination-log; exit 3", 3, "Error", id="its own exit code"),
        pytest.param("ended-9", "kill -9 $$$$", 137, "Error", id="killed by a signal"),
        pytest.param("ended-0", "true", 0, "Completed", id="ended well"),
    ],
)
def test_an_end_is_reported(sandbox, name, command, code, reason):
    sandbox.run_pod(name, "sh", "-c", command)
    eventually(lambda: ended(sandbox, name), "it has ended")
    state = container(sandbox, name)["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (code, reason)
    assert state.get("message", "") == ("sorry\n" if code == 3 else "")


# --- streams -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def talker(sandbox) -> str:
    """A pod that prints a line and serves its directory on port 8123."""
    name = "talker"
    if sandbox.api("GET", f"{PODS}/{name}")[0] == 404:
        sandbox.run_pod(
            name, "sh", "-c", "echo started; exec python3 -m http.server 8123 --bind 0.0.0.0 --directory /usr/share"
        )
    eventually(lambda: sandbox.phase(name) == "Running", "the talker runs")
    eventually(lambda: "started" in sandbox.pod_log(name), "the talker has spoken")
    eventually(lambda: sandbox.api("GET", f"{PODS}/{name}:8123/proxy/")[0] == 200, "the talker serves")
    return name


async def _exec(sandbox, pod, *command, stdin=b""):
    """Exit status, standard output and standard error of a command, as kubectl gets them."""
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    query += [("stdin", "true")] if stdin else []
    outputs = {1: b"", 2: b"", 3: b""}
    async with _websocket(sandbox, f"{pod}/exec", query, "v5.channel.k8s.io") as socket:
        if stdin:
            await socket.send_bytes(b"\x00" + stdin)
            await socket.send_bytes(b"\xff\x00")
        async for message in socket:
            outputs[message.data[0]] += message.data[1:]
    return json.loads(outputs[3]), outputs[1], outputs[2]


async def test_exec_returns_output_errors_and_exit_code(sandbox, talker):
    status, output, errors = await _exec(sandbox, talker, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (output, errors) == (b"out\n", b"err\n")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


async def test_exec_reads_its_input_to_the_end(sandbox, talker):
    status, output, _ = await _exec(sandbox, talker, "cat", stdin=b"through and back\n")
    assert (status["status"], output) == ("Success", b"through and back\n")


async def test_exec_of_a_missing_command_fails(sandbox, talker):
    status, _, _ = await _exec(sandbox, talker, "/no/such/command")
    assert status["status"] == "Failure"


async def test_following_a_log_ends_with_the_container(sandbox):
    sandbox.run_pod("slow", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done")
    eventually(lambda: sandbox.phase("slow") == "Running", "it runs")
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    url = cluster["server"] + f"{PODS}/slow/log"
    async with (
        asyncio.timeout(10 * PATIENCE),
        _session(cluster, user) as session,
        session.get(url, params={"follow": "true"}) as answer,
    ):
        assert await answer.text() == "1\n2\n3\n"


async def test_a_port_of_a_pod_is_reached_through_the_api(sandbox, talker):
    page = b""
    async with _websocket(sandbox, f"{talker}/portforward", {"ports": "8123"}, "v4.channel.k8s.io") as socket:
        assert [(await socket.receive()).data for _ in range(2)] == [b"\x00\xbb\x1f", b"\x01\xbb\x1f"]
        await socket.send_bytes(b"\x00GET / HTTP/1.0\r\n\r\n")
        async for message in socket:
            page += message.data[1:]
    assert page.startswith(b"HTTP/1.0 200 OK")


def test_plain_http_reaches_a_pod_through_the_api(sandbox, talker):
    status, page = sandbox.api("GET", f"{PODS}/{talker}:8123/proxy/")
    assert status == 200
    assert "Directory listing" in page
    assert sandbox.api("GET", f"{PODS}/{talker}:8123/proxy/no/such/file")[0] == 404


# --- users and files -----------------------------------------------------------------------------------------------------
SHOW_RIGHTS = (
    "echo user $(id -u):$(id -g); for place in / /tmp /etc /cache /dev/shm; do touch $place/x && echo can write $place; "
    "done 2>/dev/null; grep CapEff /proc/self/status; stat -c %u:%g /cache; echo bye > /dev/termination-log"
)
RIGHTS = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 1234, "readOnlyRootFilesystem": True}


def test_a_container_runs_as_its_user_and_writes_to_its_volumes_only(sandbox):
    is_plain = "ns" not in sandbox.call("status").stdout.split("isolation")[1][:10]
    command = ["true"] if is_plain else ["sh", "-c", SHOW_RIGHTS]  # in plain it would write to this machine's own files
    main = {"name": "main", "image": "busybox", "command": command, "securityContext": RIGHTS}
    main["volumeMounts"] = [{"name": "cache", "mountPath": "/cache"}]
    sandbox.run_pod("rights", containers=[main], volumes=[{"name": "cache", "emptyDir": {}}])
    eventually(lambda: ended(sandbox, "rights"), "the pod ends")
    if is_plain:
        assert ended(sandbox, "rights") == "Succeeded"  # accepted, and listed among what plain cannot do
        return
    lines = sandbox.pod_log("rights").splitlines()
    assert lines == [
        "user 65532:1234",
        "can write /cache",
        "can write /dev/shm",
        "CapEff:\t0000000000000000",
        "65532:1234",
    ]
    assert container(sandbox, "rights")["state"]["terminated"]["message"] == "bye\n"


def test_an_exec_is_the_same_user_as_its_container(sandbox):
    if "ns" not in sandbox.call("status").stdout.split("isolation")[1][:10]:
        pytest.skip("plain has one user")
    main = {"name": "main", "image": "busybox", "command": ["sleep", "600"], "securityContext": RIGHTS}
    main["readinessProbe"] = {"exec": {"command": ["sh", "-c", "test $(id -u) = 65532"]}, "periodSeconds": 1}
    sandbox.run_pod("same-user", containers=[main])
    eventually(lambda: container(sandbox, "same-user").get("ready"), "the probe has the container's user")
    sandbox.api("DELETE", f"{PODS}/same-user?gracePeriodSeconds=0")


def test_a_container_with_run_as_non_root_that_would_run_as_root_is_rejected(sandbox):
    sandbox.run_pod("would-be-root", "true", securityContext={"runAsNonRoot": True})
    eventually(lambda: waits_as(sandbox, "would-be-root", "CreateContainerConfigError"), "it is rejected")
    assert "image will run as root" in container(sandbox, "would-be-root")["state"]["waiting"]["message"]
    sandbox.api("DELETE", f"{PODS}/would-be-root")
