"""A RayCluster with real Ray on a sandbox with its operator, accessed as with kubectl.

`RayStage` starts both as processes of their own and ends them; it creates and edits a RayCluster through the API, counts
its pods, and runs Python in the head as a user would: to the end, or as a driver in the background whose words are read
later. Everything waits for a state with a deadline of a machine that has much else to do.
"""

import asyncio
import json
import os
import secrets
import signal
import ssl
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

import aiohttp
import yaml

from raytide_sandbox.connections import ClosingConnector
from support.deadlines import PATIENCE
from support.operator_process import OperatorProcess, tail
from support.sandbox_process import Json, SandboxProcess, eventually, processes_with

PATIENCE_S = 150.0
RAYCLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
PRELUDE = """
import os, time, ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
def pod():
    return os.environ["RAY_CLOUD_INSTANCE_ID"]
"""
"""What every driver begins with."""


PATIENT_RAY = {"name": "RAY_raylet_start_wait_time_s", "value": "60"}
"""Of itself it gives up after half a minute, which a busy machine may need."""


def small(sample: Json) -> Json:
    """A sample's RayCluster with small object stores, and a Ray that waits for a busy machine."""
    spec = sample["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        group["rayStartParams"]["object-store-memory"] = "100000000"
        group["template"]["spec"]["containers"][0]["env"] = [PATIENT_RAY]
    return sample


class RayEnv:
    """One sandbox, one operator, one RayCluster at a time."""

    def __init__(self, manifest: Json, before: Mapping[str, Json] | None = None, *, flags: Sequence[str] = ()) -> None:
        """`before`: objects that are there before the RayCluster, by the path of their collection; `flags`: the operator's."""
        self.name = f"{manifest['metadata']['name']}-{secrets.token_hex(2)}"
        """Of its own, so that its processes are found among those of other people."""
        self.manifest = {**manifest, "metadata": {**manifest["metadata"], "name": self.name}}
        self.path = f"{RAYCLUSTERS}/{self.name}"
        self._before = before or {}
        self.sandbox = SandboxProcess()
        self.operator = OperatorProcess(self.sandbox.kubeconfig, self.sandbox.directory / "operator.log", *flags)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __enter__(self) -> Self:
        try:
            self.sandbox.up()
            self.operator.start()
            for path, obj in (*self._before.items(), (RAYCLUSTERS, self.manifest)):
                status, answer = self.sandbox.api("POST", path, obj)
                assert status == 201, answer
            self.until(self.is_head_ready, "the head is Ready")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left; drivers end with their pods."""
        self.operator.stop()
        self.sandbox.end()
        asyncio.run_coroutine_threadsafe(_others_end(), self._loop).result(PATIENCE_S * PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- looking -----------------------------------------------------------------------------------------------------

    def until(self, check: Callable[[], Any], what: str, deadline_s: float = PATIENCE_S) -> Any:
        """The first true thing that `look` finds; else what stands."""
        try:
            return eventually(check, what, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.state()}") from None

    def state(self) -> str:
        """Details for a failed wait."""
        pods = {pod["metadata"]["name"]: pod.get("status", {}).get("phase") for pod in self.pods()}
        return "\n".join(
            [
                str(self.replicas()),
                str(pods),
                self.sidecar_log()[-3000:],
                tail(self.operator.log),
                self.sandbox.log()[-500:],
            ]
        )

    def cluster(self) -> Json:
        """The RayCluster as it is."""
        found: Json = self.sandbox.get(self.path)
        return found

    def condition(self, kind: str) -> Json:
        """That condition of its status; empty when there is none."""
        conditions = self.cluster().get("status", {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def replicas(self) -> dict[str, int]:
        """By group, as the spec wants them."""
        return {group["groupName"]: group["replicas"] for group in self.cluster()["spec"]["workerGroupSpecs"]}

    def pods(self) -> list[Json]:
        """All pods of the cluster."""
        found: list[Json] = self.sandbox.get(f"{PODS}?labelSelector=ray.io%2Fcluster%3D{self.name}")["items"]
        return found

    def services(self) -> list[Json]:
        """All services of the cluster."""
        found: list[Json] = self.sandbox.get(f"{SERVICES}?labelSelector=ray.io%2Fcluster%3D{self.name}")["items"]
        return found

    def workers(self) -> list[Json]:
        """The worker pods, ending ones too."""
        return [pod for pod in self.pods() if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"]

    def sizes(self) -> dict[str, int]:
        """Worker pods by group."""
        return dict(Counter(pod["metadata"]["labels"]["ray.io/group"] for pod in self.workers()))

    def head(self) -> str:
        """The head pod's name."""
        (head,) = (pod for pod in self.pods() if pod["metadata"]["labels"]["ray.io/node-type"] == "head")
        return str(head["metadata"]["name"])

    def is_head_ready(self) -> bool:
        return any(is_ready(pod) for pod in self.pods() if pod["metadata"]["labels"]["ray.io/node-type"] == "head")

    def ready_workers(self) -> list[str]:
        """Names of the workers that are Ready and stay."""
        staying = [pod for pod in self.workers() if "deletionTimestamp" not in pod["metadata"]]
        return [pod["metadata"]["name"] for pod in staying if is_ready(pod)]

    def container(self, name: str, pod: str = "") -> Json:
        """The kubelet's status of a container, by default of the head."""
        status = self.sandbox.get(f"{PODS}/{pod or self.head()}")["status"]
        statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
        return next((each for each in statuses if each["name"] == name), {})

    def sidecar_log(self) -> str:
        """Of the container `autoscaler`; empty where there is none."""
        heads = [pod for pod in self.pods() if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
        if not heads or not any(
            container["name"] == "autoscaler"
            for kind in ("containers", "initContainers")
            for container in heads[0]["spec"].get(kind, ())
        ):
            return ""
        _, answer = self.sandbox.api("GET", f"{PODS}/{heads[0]['metadata']['name']}/log?container=autoscaler")
        return str(answer)

    # --- doing -------------------------------------------------------------------------------------------------------

    def edit_group(self, index: int, **fields: Any) -> None:
        """As `kubectl edit`."""
        operations = [
            {"op": "add", "path": f"/spec/workerGroupSpecs/{index}/{name}", "value": value}
            for name, value in fields.items()
        ]
        status, answer = self.sandbox.api("PATCH", self.path, operations)
        assert status == 200, answer

    def run(self, *command: str, pod: str = "", deadline_s: float = PATIENCE_S, is_success_needed: bool = True) -> str:
        """Run a command in the first container of a pod, by default of the head, and return its output."""
        return self._start(pod or self.head(), command, deadline_s, is_success_needed=is_success_needed).result()

    def drive(self, program: str) -> "Future[str]":
        """A driver in the head, in the background; its output is the result."""
        return self._start(self.head(), ("python", "-c", PRELUDE + program), PATIENCE_S)

    def ray_status(self) -> str:
        """The output of `ray status` in the head."""
        return self.run("ray", "status")

    def kill_sidecar(self) -> int:
        """Kill the process under the supervisor, once it is there; its pid."""
        mark = f"raytide.autoscaler.sidecar.main\0{self.name}\0"
        (pid,) = self.until(lambda: processes_with(mark), "the sidecar's process runs", 30)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pid not in processes_with(mark), "it is gone")
        return int(pid)

    def kill_supervisor(self) -> None:
        """Kill the first process of the container `autoscaler`, as the kernel does when the container exceeds its memory limit."""
        (pid,) = self.until(lambda: processes_with(f"autoscaler\0--cluster-name\0{self.name}\0"), "it runs", 30)
        os.kill(pid, signal.SIGKILL)

    def _start(
        self, pod: str, command: tuple[str, ...], deadline_s: float, *, is_success_needed: bool = True
    ) -> "Future[str]":
        """Begin a command in the pod's first container; its output is the result."""
        config = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = b64decode(cluster["certificate-authority-data"]).decode()
        container = self.sandbox.get(f"{PODS}/{pod}")["spec"]["containers"][0]["name"]
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]

        async def execute() -> str:
            outputs = {1: b"", 2: b"", 3: b""}
            async with (
                asyncio.timeout(deadline_s * PATIENCE),
                aiohttp.ClientSession(
                    connector=ClosingConnector(ssl=ssl.create_default_context(cadata=authority)),
                    headers={"Authorization": f"Bearer {user['token']}"},
                ) as session,
                session.ws_connect(
                    f"{cluster['server']}{PODS}/{pod}/exec",
                    params=query,
                    protocols=("v5.channel.k8s.io",),
                    max_msg_size=0,
                ) as socket,
            ):
                async for message in socket:
                    outputs[message.data[0]] += message.data[1:]
            output = (outputs[1] + outputs[2]).decode(errors="replace")
            assert not is_success_needed or json.loads(outputs[3] or b"{}").get("status") == "Success", output
            return output

        return asyncio.run_coroutine_threadsafe(execute(), self._loop)


async def _others_end() -> None:
    """Commands whose pods are gone are hung up."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def answer_in(output: str) -> list[str]:
    """The words of a driver's line `ANSWER …`; Ray prints other lines in between."""
    (line,) = (line for line in output.splitlines() if line.startswith("ANSWER"))
    return line.split()[1:]


def is_ready(pod: Json) -> bool:
    """Whether its Ready condition is True."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or [])
