"""The pods of a job find each other by their environment, and see changes of the job, in both isolation modes.

Real processes on the sandbox, children built for a stored TrainingJob; no controller runs. Each process listens where its
variables say, returns its name to every caller, and calls all its peers; then it reads the live files.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from raytide.api.config import JobConfig
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS, Manifest
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.manifests.objects import build_membership, build_pod, build_service, membership_name
from support.sandbox_process import SANDBOXES, SandboxProcess, eventually, running_sandbox
from support.training_builders import roles_of, trainingjob

NAMESPACE = "default"
CONFIG = JobConfig()
PATIENCE_S = 60.0
PROGRAM = """
import os, pathlib, signal, socket, sys, threading, time

me = os.environ["RAYTIDE_ROLE"] + os.environ["RAYTIDE_INDEX"]
port = int(os.environ.get("PADDLE_PORT", "8080"))
listener = socket.create_server((os.environ["POD_IP"], port))

def serve():
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(me.encode())

def ask(endpoint):
    host, port = endpoint.rsplit(":", 1)
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                return connection.recv(100).decode()
        except OSError:
            time.sleep(0.05)

threading.Thread(target=serve, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
peers = os.environ.get("PADDLE_PSERVERS_IP_PORT_LIST", "").split(",")
peers += os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
peers += [os.environ["RAYTIDE_MASTER_ENDPOINT"]]
print("met", *(ask(peer) for peer in peers if peer), flush=True)
own = f"{os.environ['POD_IP']}:{port}"
print("rank", peers.index(own), flush=True)
folder = os.environ.get("RAYTIDE_MEMBERSHIP_DIR")
seen = ""
while True:
    size = pathlib.Path(folder, "world_size").read_text().strip() if folder else ""
    if size != seen:
        seen = size
        print("size", size, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module", params=SANDBOXES)
def sandbox(request) -> Iterator[SandboxProcess]:
    yield from running_sandbox(request.param)


def create(sandbox: SandboxProcess, path: str, manifest: Manifest) -> Any:
    status, answer = sandbox.api("POST", path, manifest)
    assert status == 201, answer
    return answer


@pytest.fixture(scope="module")
def job(sandbox) -> TrainingJob:
    """A job with two trainers, two parameter servers and a master, whose pods have all been created."""
    bare = {"resources": {"requests": {"cpu": "100m"}}}
    program = {"entrypoint": 'exec python3 -c "$PROGRAM"', "envs": {"PROGRAM": PROGRAM}, **bare}
    manifest = trainingjob(
        name="peers",
        framework="generic",
        image="python",
        imagePullPolicy="IfNotPresent",
        trainer=program,
        pserver={"min-instance": 2, "envs": {"PROGRAM": PROGRAM}, **bare},
        master=program,
    )
    del manifest["metadata"]["uid"]
    found = TrainingJob.parse(create(sandbox, TRAININGJOBS.path(NAMESPACE), manifest))
    size = Size(2, 2)
    create(sandbox, SERVICES.path(NAMESPACE), build_service(found))
    create(sandbox, CONFIG_MAPS.path(NAMESPACE), build_membership(found, size, CONFIG))
    for role, count in roles_of(found, size).items():
        for index in range(count):
            create(sandbox, PODS.path(NAMESPACE), build_pod(found, role, index, size, CONFIG))
    return found


def lines_of(sandbox: SandboxProcess, pod: str) -> dict[str, str]:
    """The last line of each kind in its log."""
    return dict(line.split(" ", 1) for line in sandbox.pod_log(pod).splitlines() if " " in line)


SERVERS = "pserver0 pserver1"


@pytest.mark.rule("TJ:7-7")
@pytest.mark.parametrize(
    ("pod", "met", "rank"),
    [
        ("peers-trainer-0", f"{SERVERS} trainer0 trainer1 master0", "2"),
        ("peers-trainer-1", f"{SERVERS} trainer0 trainer1 master0", "3"),
        ("peers-pserver-0", f"{SERVERS} master0", "0"),
        ("peers-pserver-1", f"{SERVERS} master0", "1"),
    ],
)
def test_each_pod_reaches_all_its_peers_and_finds_its_rank(sandbox, job, pod, met, rank):
    del job
    eventually(lambda: "rank" in lines_of(sandbox, pod), f"{pod} has reached all peers", PATIENCE_S)
    found = lines_of(sandbox, pod)
    assert (found["met"], found["rank"]) == (met, rank)


@pytest.mark.rule("TJ:7-7")
def test_the_master_finds_its_own_name(sandbox, job):
    del job
    eventually(lambda: "met" in lines_of(sandbox, "peers-master"), "the master runs", PATIENCE_S)
    assert lines_of(sandbox, "peers-master")["met"] == "master0"


@pytest.mark.rule("TJ:7-7")
def test_a_running_trainer_sees_its_job_grow(sandbox, job):
    pod = "peers-trainer-0"
    eventually(lambda: "size" in lines_of(sandbox, pod), "it has looked at the files", PATIENCE_S)
    assert lines_of(sandbox, pod)["size"] == "2"
    path = f"{CONFIG_MAPS.path(NAMESPACE)}/{membership_name(job)}"
    grown = build_membership(job, Size(3, 2), CONFIG)["data"]
    status, answer = sandbox.api("PUT", path, {**sandbox.get(path), "data": grown})
    assert status == 200, answer
    eventually(lambda: lines_of(sandbox, pod)["size"] == "3", "it sees the new size", PATIENCE_S)
