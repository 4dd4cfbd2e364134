"""A real training continues and loses no task while its trainers are added, removed and killed.

The sample as a user applies it, on the sandbox, with the real operator and real PaddlePaddle processes; its master keeps
its state in a folder of this machine, as with a persistent volume, so that tests can read it and its pod can be replaced.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from paddle_env import IMAGE, PaddleMissingError, provide_paddle
from support.operator_process import OperatorProcess
from support.sandbox_process import SandboxProcess, can_isolate, eventually, processes_with

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

SAMPLE = Path(__file__).parents[2] / "samples" / "trainingjob.yaml"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs"
TASKS, PASSES = 50, 4
FEWEST, MOST = 2, 5
STARTED_S = 60.0
"""Importing PaddlePaddle takes seconds of CPU in each process."""


@pytest.fixture(scope="module")
def paddle() -> Path:
    try:
        return provide_paddle()
    except PaddleMissingError as error:
        pytest.skip(str(error))


class Training:
    """The sample on a running sandbox, and what its master has on disk."""

    def __init__(self, sandbox: SandboxProcess, state_dir: Path) -> None:
        self.sandbox = sandbox
        self._state_dir = state_dir
        job, programs = yaml.safe_load_all(SAMPLE.read_text())
        self.name = job["metadata"]["name"]
        spec = job["spec"]
        spec["volumes"][1] = {"name": "state", "hostPath": {"path": str(state_dir)}}
        spec["trainer"] |= {"min-instance": FEWEST, "max-instance": MOST}
        (container,) = spec["master"]["template"]["spec"]["containers"]
        container["command"][-1] = container["command"][-1].replace(
            "--tasks 60 --passes 5", f"--tasks {TASKS} --passes {PASSES}"
        )
        for path, body in ((PODS.replace("pods", "configmaps"), programs), (JOBS, job)):
            status, answer = sandbox.api("POST", path, body)
            assert status == 201, answer

    @property
    def state(self) -> dict:
        """As the master would go on from it."""
        return json.loads((self._state_dir / "tasks.json").read_text())

    @property
    def phase(self) -> str:
        return self.sandbox.get(f"{JOBS}/{self.name}").get("status", {}).get("phase", "")

    def running(self, role: str = "trainer") -> dict[str, str]:
        """The uids of running pods of a role that are to stay, by name."""
        query = f"?labelSelector=raytide.io/training-job={self.name},raytide.io/training-role={role}"
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.sandbox.get(PODS + query)["items"]
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def done_by(self) -> set[str]:
        """Trainers that have finished tasks; none before there is a master."""
        if not (self._state_dir / "tasks.json").exists():
            return set()
        return {done["trainer"] for done in self.state["done"]}

    def scale(self, replicas: int) -> None:
        status, answer = self.sandbox.api(
            "PATCH", f"{JOBS}/{self.name}/scale", [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        )
        assert status == 200, answer

    def kill(self, pod: str, program: str) -> None:
        """SIGKILL to the program of a pod of this sandbox, and to nothing else."""
        mine = set(processes_with(self.sandbox.scratch, "environ")) & set(processes_with(f"POD_NAME={pod}", "environ"))
        (found,) = [pid for pid in mine & set(processes_with(program)) if "sh" not in _program(pid)]
        os.kill(found, signal.SIGKILL)


def _program(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode().rpartition("/")[2]


@pytest.fixture(params=["ns", "plain"])
def mode(request) -> str:
    if not can_isolate(request.param):
        pytest.skip(f"this machine does not allow {request.param}")
    return request.param


@pytest.fixture
def training(mode: str, paddle: Path) -> Iterator[Training]:
    sandbox = SandboxProcess()
    try:
        sandbox.up(f"--isolation={mode}", f"--image={IMAGE}={paddle}")
        state_dir = sandbox.directory / "master"
        state_dir.mkdir()
        with OperatorProcess(sandbox.kubeconfig, sandbox.directory / "operator.log"):
            yield Training(sandbox, state_dir)
    finally:
        sandbox.end()


@pytest.mark.rule("TJ:2.2", "TJ:7-8")
def test_every_task_is_done_and_the_loss_falls_while_trainers_are_added_removed_and_killed(
    training: Training, mode: str
) -> None:
    eventually(lambda: len(training.running()) == MOST, "the sharing pass gives it all it can use", STARTED_S)
    eventually(lambda: len(training.done_by()) == MOST, "trainers that came later work too", STARTED_S)

    training.scale(FEWEST + 1)
    eventually(lambda: len(training.running()) == FEWEST + 1, "the job shrinks", STARTED_S)
    assert sorted(training.running()) == [f"training-trainer-{index}" for index in range(FEWEST + 1)]

    before = training.running()
    training.kill("training-trainer-1", "/program/train.py" if mode == "ns" else "/train.py")
    eventually(
        lambda: training.running().get("training-trainer-1") not in (None, before["training-trainer-1"]),
        "another pod replaces the killed trainer",
        STARTED_S,
    )

    done = len(training.state["done"])
    training.kill("training-master", "/master.py")
    eventually(lambda: len(training.state["done"]) > done, "the master goes on in its pod", STARTED_S)
    if mode == "ns":  # in the other mode, addresses of what is replaced do not reach running programs
        master = training.running("master")["training-master"]
        training.sandbox.api("DELETE", f"{PODS}/training-master")
        eventually(
            lambda: training.running("master").get("training-master") not in (None, master),
            "another master in place of the deleted one",
            STARTED_S,
        )

    eventually(lambda: training.phase == "Succeeded", "the job ends well", 200.0)
    assert_all_done(training.state)


def assert_all_done(state: dict) -> None:
    assert (state["finished"], state["dropped"]) == (True, [])
    done = sorted((done["pass"], done["task"]) for done in state["done"])
    assert done == [(number, task) for number in range(PASSES) for task in range(TASKS)]
    losses = [done["loss"] for done in state["done"]]
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    assert last < first / 20, f"the loss went from {first} to {last}"
