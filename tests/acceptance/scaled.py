"""A RayCluster that follows its demand on a real control plane; only Ray is simulated.

The operator and `raytide autoscaler` are processes, each with its own rights and over TLS; `Ray` stands for what runs in
the pods: a GCS over gRPC whose nodes come when pods are Ready and go with them, whose tasks take a node each, and whose
raylets end the pod's container as a drained raylet does. Used by the scenarios S2, S6 and S7.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acceptance.environment import Env
from acceptance.fleet import GONE, MERGE, allowing, eventually
from raytide.autoscaler.model import HEAD_TYPE, Demand, NodeStatus, RayNode, Request, amounts_of
from raytide_sandbox.certificates import Identity, make_certificates
from support.builders import raycluster
from support.fake_gcs import GcsServer, GcsWorld
from support.faults.proxy import FaultProxy
from support.faults.script import Script
from support.faults.upstream import Upstream

Json = dict[str, Any]

NAME = "scaled"
IDLE_S = 5
POLL_S = 0.2
ENDED_WELL = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def scaled_cluster(namespace: str, *groups: Json) -> Json:
    """A RayCluster with autoscaling, as Git would have it."""
    manifest = raycluster(
        *groups,
        name=NAME,
        namespace=namespace,
        rayVersion="2.60.0",
        enableInTreeAutoscaling=True,
        autoscalerOptions={"version": "v2", "idleTimeoutSeconds": IDLE_S},
    )
    return {**manifest, "metadata": {"name": NAME, "namespace": namespace}}


class Ray:
    """One-CPU tasks on one-CPU nodes, which are the Ready workers of a cluster."""

    def __init__(self, env: Env) -> None:
        self.world = GcsWorld(temp_dir=str(env.folder), on_death=self._raylet_ended)
        self.world.kv["session", "session_name"] = b"session_1"
        self.world.kv["__autoscaler", "__autoscaler_v2_enabled"] = b"1"
        (env.folder / "session_1" / "logs").mkdir(parents=True)
        (env.folder / "session_latest").symlink_to("session_1")
        self.server = GcsServer(self.world)
        self.demand = 0
        """So many tasks run or want to."""
        self._env = env
        self._busy: set[str] = set()
        self._idle_since: dict[str, float] = {}

    @property
    def running(self) -> int:
        """Tasks that have a node."""
        return len(self._busy)

    async def run(self) -> None:
        """Follow pods and demand until cancelled."""
        try:
            while True:
                self._follow_pods()
                self._place_tasks()
                await asyncio.sleep(POLL_S)
        finally:
            await self.server.stop()

    def _alive(self) -> dict[str, RayNode]:
        return {node.instance_id: node for node in self.world.nodes.values() if node.is_alive}

    def _follow_pods(self) -> None:
        known = {node.instance_id for node in self.world.nodes.values()}
        ready = {name: pod for name, pod in self._env.pods.by_name.items() if _is_ready(pod)}
        for name in ready.keys() - known:
            group = ready[name]["metadata"]["labels"]["ray.io/group"]
            resources = {} if group == HEAD_TYPE else {"CPU": 1.0}
            self.world.add_node(name, group, resources=resources)
        for name in self._alive().keys() - ready.keys():
            self.world.kill_node(name)

    def _place_tasks(self) -> None:
        """Who runs a task goes on; the rest goes to idle nodes; what is left waits and is demand."""
        workers = {name: node for name, node in self._alive().items() if node.node_type != HEAD_TYPE}
        self._busy &= workers.keys()
        for name in sorted(self._busy)[self.demand :]:
            self._busy.discard(name)
        takers = sorted(
            name for name, node in workers.items() if name not in self._busy and node.status is not NodeStatus.DRAINING
        )
        self._busy.update(takers[: self.demand - len(self._busy)])
        now_s = asyncio.get_running_loop().time()
        for name in workers:
            if name in self._busy:
                self._idle_since.pop(name, None)
                self.world.make_busy(name)
            else:
                idle_s = now_s - self._idle_since.setdefault(name, now_s)
                self.world.make_idle(name, idle_ms=int(idle_s * 1000))
        waiting = self.demand - len(self._busy)
        request = Request(amounts_of({"CPU": 1.0}), selectors=((),))
        self.world.tasks = [Demand(request, waiting)] if waiting else []

    def _raylet_ended(self, node: RayNode) -> None:
        """It was drained: the container ends with 0, and as its pod never starts one again, so does the pod."""
        if node.instance_id in self._env.pods.by_name:
            self._env.run(self._end_pod(node.instance_id))

    async def _end_pod(self, name: str) -> None:
        pod = self._env.pods.by_name[name]
        ended = {**ENDED_WELL["terminated"], "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        container = pod["spec"]["containers"][0]
        container_status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
        status = {
            "phase": "Succeeded",
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
            "containerStatuses": [{**container_status, "restartCount": 0, "state": {"terminated": ended}}],
        }
        path = f"{self._env.pods.path}/{name}/status"
        await allowing(GONE, self._env.admin.call("PATCH", path, {"status": status}, content=MERGE))


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    is_ending = "deletionTimestamp" in pod["metadata"]
    return not is_ending and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class Sidecar:
    """`raytide autoscaler` as a sidecar of the head, a container that is restarted when it ends."""

    def __init__(self, env: Env, folder: Path, gcs_address: str) -> None:
        self.script = Script(asyncio.get_running_loop().time)
        """What happens to its calls."""
        self.user = f"system:serviceaccount:{env.namespace}:{NAME}"
        self.kills = 0
        self.log = env.folder / "autoscaler.log"
        self._env = env
        self._folder = folder
        self._gcs_address = gcs_address
        self._process: asyncio.subprocess.Process | None = None
        self._closing = AsyncExitStack()

    async def begin(self) -> None:
        """Wait for the head and its account, then start as its sidecar."""
        head = await eventually("there is a head", self._head)
        self._folder.mkdir()
        made = make_certificates(datetime.now(UTC), ["127.0.0.1"])
        (self._folder / "ca.crt").write_bytes(made.authority)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        accounts = f"/api/v1/namespaces/{self._env.namespace}/serviceaccounts"
        answer = await self._env.admin.call("POST", f"{accounts}/{NAME}/token", request)
        (self._folder / "token").write_text(answer["status"]["token"])
        upstream = Upstream(self._env.plane.server, self._env.plane.authority, self._env.plane.admin_token)
        serving = Identity(made.server, made.server_key)
        proxy = FaultProxy(upstream, self.script, on_kill=lambda _agent: self.kill(), serving=serving)
        await self._closing.enter_async_context(proxy)
        self._environ = {
            **os.environ,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT_HTTPS": proxy.server.rpartition(":")[2],
            "KUBERAY_REQUEST_TIMEOUT_S": "5",
            "RAYTIDE_SERVICE_ACCOUNT_DIR": str(self._folder),
            "RAYTIDE_OPERATOR_VERSION": "test",
            "RAY_HEAD_POD_NAME": head,
            "AUTOSCALER_METRIC_PORT": "0",
            "RAYTIDE_AUTOSCALER_HEALTH_PORT": "0",
        }

    async def _head(self) -> str:
        account = f"/api/v1/namespaces/{self._env.namespace}/serviceaccounts/{NAME}"
        if await allowing([404], self._env.admin.call("GET", account)) is None:
            return ""
        return next(iter(self._env.pods.alive(NAME, HEAD_TYPE)), "")

    async def run(self) -> None:
        """As a kubelet does that starts a container again at once."""
        flags = ("--cluster-name", NAME, "--cluster-namespace", self._env.namespace, "--gcs-address")
        command = (sys.executable, "-m", "raytide", "autoscaler", *flags, self._gcs_address)
        try:
            while True:
                with self.log.open("ab") as log:
                    self._process = await asyncio.create_subprocess_exec(
                        *command, stdout=log, stderr=log, env=self._environ
                    )
                await self._process.wait()
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()  # its child sees that and ends too
                await self._process.wait()
            await self._closing.aclose()

    def kill(self) -> None:
        """SIGKILL to the loop's process, and every other time to what would start it again too."""
        if self._process is None or self._process.returncode is not None:
            return
        self.kills += 1
        victims = [self._process.pid] if self.kills % 2 else self._children() or [self._process.pid]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _children(self) -> list[int]:
        assert self._process
        with suppress(OSError):
            path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            return [int(word) for word in path.read_text().split()]
        return []


class Scaled:
    """The whole scene."""

    def __init__(self, env: Env, ray: Ray, sidecar: Sidecar) -> None:
        self.env = env
        self.ray = ray
        self.sidecar = sidecar
        self.path = f"{env.fleet.path}/{NAME}"

    def workers(self, group: str = "cpu") -> list[str]:
        """Pods of a group that do not terminate and have not ended."""
        pods = self.env.pods
        return [
            name for name in pods.alive(NAME, group) if pods.by_name[name].get("status", {}).get("phase") != "Succeeded"
        ]

    async def ask_for(self, tasks: int, workers: int, *, within_s: float, group: str = "cpu") -> float:
        """So many tasks; returns after how many seconds there were exactly so many workers."""
        began = asyncio.get_running_loop().time()
        self.ray.demand = tasks

        async def are_there() -> bool:
            return len(self.workers(group)) == workers

        try:
            await eventually(f"{workers} workers for {tasks} tasks", are_there, within_s=within_s)
        except AssertionError as error:
            last = "\n".join(self.sidecar.log.read_text().splitlines()[-15:])
            raise AssertionError(f"{error}; there are {len(self.workers(group))}; its autoscaler:\n{last}") from None
        return asyncio.get_running_loop().time() - began

    async def condition(self, kind: str) -> Json:
        """One condition; empty when it is not there."""
        cluster = await self.env.admin.call("GET", self.path)
        conditions = cluster.get("status", {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == kind), {})


async def scene(env: Env, *groups: Json, change: Callable[[Json], Json] = lambda manifest: manifest) -> Scaled:
    """Create a cluster and wait until the autoscaler of its head reports to Ray."""
    ray = Ray(env)
    await env.operator(env.direct_kubeconfig(await env.account("op")))
    await env.admin.call("POST", env.fleet.path, change(scaled_cluster(env.namespace, *groups)))
    await ray.server.start()
    env.run(ray.run())
    sidecar = Sidecar(env, env.folder / "account", ray.server.address)
    await sidecar.begin()
    env.run(sidecar.run())

    async def is_reported() -> bool:
        return bool(ray.world.reports)

    await eventually("the autoscaler reports to Ray", is_reported, within_s=60)
    return Scaled(env, ray, sidecar)
