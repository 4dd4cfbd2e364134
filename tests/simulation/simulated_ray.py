"""Simulated Ray cluster inside the simulated pods.

A GCS that runs as long as the head pod, raylets that register some time after their pods run, and tasks of one CPU that are
placed on free CPUs. An idle raylet accepts a drain and exits, and its pod ends; a busy one rejects it. Tasks of a lost
raylet are pending again. From Kubernetes it reads only pods as they are in the store. Faults of the GCS are selected by the
number of the call, or last for a while (RM:F13, AS:G-2 to G-12).
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs.client import DRAIN, GET_STATE, GcsClient, Rpc
from raytide.autoscaler.model import HEAD_TYPE, Demand, Drained, DrainReason, NodeStatus, RayNode, Request, amounts_of
from raytide_sandbox.apiserver.store import Change, Entry
from support.fake_gcs import GcsWorld, fake_gcs, node_id_of

from simulation.simulated_kube import NAMESPACE, SimulatedKube

ONE_CPU = Request(amounts_of({"CPU": 1}))
JOIN_S = (0.3, 2.0)
"""From a Ready pod to its raylet in the GCS."""
PLACE_S = (0.1, 0.8)
"""From a free CPU to the task that is placed on it; raylets report pending tasks up to a second late (AS:G-6)."""
FAILURE_DETECTED_S = (0.5, 4.0)
"""From the loss of a raylet to its removal from the GCS."""
EXIT_S = (0.1, 1.0)
"""From an accepted drain to the end of the pod."""
ORPHANED_S = (2.0, 6.0)
"""How long raylets run without their GCS."""


@dataclass(frozen=True, slots=True)
class GcsUnavailable:
    """The GCS cannot be reached from this call on, for `for_s`."""

    for_s: float


@dataclass(frozen=True, slots=True)
class GcsSlow:
    """The response to this call is delayed by `for_s`."""

    for_s: float


@dataclass(frozen=True, slots=True)
class GcsAnswerLost:
    """The call is carried out, and the response is lost."""


@dataclass(frozen=True, slots=True)
class GcsPermissionDenied:
    """The call is rejected."""


@dataclass(frozen=True, slots=True)
class GcsRestart:
    """The GCS restarts with another session and without nodes: raylets register again one by one."""


GcsFault = GcsUnavailable | GcsSlow | GcsAnswerLost | GcsPermissionDenied | GcsRestart


@dataclass(slots=True)
class Raylet:
    """A running raylet."""

    pod: str
    uid: str
    group: str
    idle_since_s: float
    tasks: int = 0
    cpus: int = 1

    @property
    def node_id(self) -> str:
        return node_id_of(self.pod)


@dataclass
class _Gcs(GcsWorld):
    """The fake GCS, whose nodes are updated before each response."""

    ray: "SimulatedRay" = field(default=None, repr=False)  # type: ignore[assignment]

    async def answer(self, rpc: Rpc[Any, Any], request: Any) -> Any:
        return await self.ray.serve(rpc, request, super().answer)


class SimulatedRay:
    """The Ray cluster of one RayCluster.

    - `ask(n)` sets the number of tasks of one CPU that users request; tasks run until fewer are requested.
    - `client(head_uid)` is the GCS client of the sidecar in that head pod.
    - `faults` are injected by the number of the GCS call; `calls` has the names of all calls since `recount`.
    """

    def __init__(self, kube: SimulatedKube, name: str, on_violation: Callable[[str], None]) -> None:
        self._kube = kube
        self._name = name
        self._on_violation = on_violation
        self._rng = kube.rng
        self._loop = asyncio.get_running_loop()
        self.raylets: dict[str, Raylet] = {}
        """By node id."""
        self._joined: set[str] = set()
        """Node ids of all raylets that ever joined; pod names are not used again."""
        self.pending_tasks = 0
        self.requested_tasks = 0
        self.head = ""
        """The uid of the pod in which the GCS runs; empty without a GCS."""
        self.gcs = _Gcs(ray=self)
        self.gcs.answer_drain = self._answer_drain
        self.gcs.on_death = self._on_drained
        self.faults: dict[int, GcsFault] = {}
        self.calls: list[str] = []
        self.last_met_s: float | None = None
        self.on_drain: Callable[[Raylet, DrainReason], None] = lambda _raylet, _reason: None
        """Called with every drain that a raylet is about to accept."""
        self.tasks_on_drain = 0
        """Number of tasks that start on a node while its drain is requested."""
        self._unavailable_until_s = 0.0
        self._sessions = 0
        self._reported_pending = 0
        kube.store.subscribe(self._on_pod, "pods")

    # --- users =------------------------------------------------------------------------------------------------------

    def set_tasks(self, tasks: int) -> None:
        """Set the number of tasks; pending tasks are withdrawn first, then those of the youngest raylets."""
        surplus = self.requested_tasks - tasks
        self.requested_tasks = tasks
        if surplus < 0:
            self.pending_tasks -= surplus
        else:
            withdrawn = min(surplus, self.pending_tasks)
            self.pending_tasks -= withdrawn
            is_busy = (raylet for raylet in reversed(self.raylets.values()) if raylet.tasks)
            for raylet, _ in zip(is_busy, range(surplus - withdrawn), strict=False):
                self._add_tasks(raylet, -1)
        self._place_soon()

    def is_busy(self, pod: str) -> bool:
        """Whether a task runs on the raylet in that pod."""
        raylet = self.raylets.get(node_id_of(pod))
        return raylet is not None and raylet.tasks > 0

    def has_raylet(self, pod: str) -> bool:
        """Whether the raylet in that pod runs."""
        return node_id_of(pod) in self.raylets

    def has_exited(self, pod: str) -> bool:
        """Whether the raylet in that pod registered earlier and has exited."""
        return node_id_of(pod) in self._joined and not self.has_raylet(pod)

    # --- the GCS -----------------------------------------------------------------------------------------------------

    def client(self, head_uid: str) -> GcsClient:
        """The GCS client in that head pod."""
        return _GcsFromHead(self, head_uid)  # type: ignore[return-value]

    def recount(self) -> None:
        """The next call is number 0."""
        self.calls.clear()

    async def serve(self, rpc: Rpc[Any, Any], request: Any, answer: Callable[[Any, Any], Any]) -> Any:
        """One call, with the fault that is injected at it."""
        number, name = len(self.calls), rpc.path.rpartition("/")[2]
        self.calls.append(name)
        fault = self.faults.pop(number, None)
        if fault is not None:
            self.last_met_s = self._loop.time()
        match fault:
            case GcsUnavailable(for_s):
                self._unavailable_until_s = self._loop.time() + for_s
            case GcsSlow(for_s):
                await asyncio.sleep(for_s)
            case GcsPermissionDenied():
                raise ApiStatusError(403, "PermissionDenied", f"{name}: injected")
            case GcsRestart():
                self.restart_gcs()
        if not self.head or self._loop.time() < self._unavailable_until_s:
            raise ApiUnavailableError(f"{name}: connection refused", is_outcome_unknown=rpc.is_write)
        if rpc is GET_STATE:
            self._update_nodes()
        if rpc is DRAIN and self.tasks_on_drain and (raylet := self.raylets.get(request.node_id.hex())):
            self.tasks_on_drain -= 1
            self.requested_tasks += 1
            self._add_tasks(raylet, 1)
        found = await answer(rpc, request)
        if isinstance(fault, GcsAnswerLost):
            raise ApiUnavailableError(f"{name}: the answer was lost", is_outcome_unknown=rpc.is_write)
        return found

    def _update_nodes(self) -> None:
        now_s = self._loop.time()
        for node_id, raylet in self.raylets.items():
            idle_ms = 0 if raylet.tasks else int((now_s - raylet.idle_since_s) * 1000) + 1
            if node_id in self.gcs.nodes:
                self.gcs.nodes[node_id] = replace(
                    self.gcs.nodes[node_id],
                    status=NodeStatus.RUNNING if raylet.tasks else NodeStatus.IDLE,
                    idle_ms=idle_ms,
                    available=amounts_of({"CPU": raylet.cpus - raylet.tasks} if raylet.cpus > raylet.tasks else {}),
                )
        self.gcs.tasks = [Demand(ONE_CPU, self._reported_pending)] if self._reported_pending else []

    def _answer_drain(self, node: RayNode | None, reason: DrainReason) -> Drained:
        raylet = self.raylets.get(node.node_id) if node else None
        if raylet is None:
            return Drained(is_accepted=True)
        if raylet.tasks and reason is DrainReason.IDLE_TERMINATION:
            return Drained(is_accepted=False, message="The node is not idle: it runs leased workers.")
        self.on_drain(raylet, reason)
        return Drained(is_accepted=True)

    def _on_drained(self, node: RayNode) -> None:
        """The raylet accepted the drain and exits; its container ends too."""
        if raylet := self.raylets.pop(node.node_id, None):
            self._resubmit(raylet.tasks)
            self._call_later(EXIT_S, lambda: self._end_pod(raylet, "Succeeded"))

    def restart_gcs(self) -> None:
        """Start another session; all running raylets register again."""
        self._sessions += 1
        self.gcs.restart(f"session_{self._sessions}")
        self._reported_pending = 0
        self._call_later((0.5, 1.0), self._report_pending)
        self._register_head()
        for raylet in self.raylets.values():
            self._call_later(JOIN_S, lambda raylet=raylet: self._register(raylet))

    # --- pods --------------------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change) -> None:
        entry = change.entry
        if entry.labels.get("ray.io/cluster") != self._name:
            return
        is_head = entry.labels.get("ray.io/node-type") == "head"
        is_gone = change.type == "DELETED"
        pod = None if is_gone else entry.shared()
        is_running = pod is not None and pod.get("status", {}).get("phase") == "Running"
        if is_head:
            self._on_head(entry, is_running=is_running)
        elif is_running and not entry.is_terminating and not self.has_raylet(change.key.name):
            self._call_later(JOIN_S, lambda: self._join(change.key.name, entry.uid, entry.labels["ray.io/group"]))
        elif not is_running or entry.is_terminating:
            self._on_pod_lost(change.key.name, entry.uid)

    def _on_head(self, entry: Entry, *, is_running: bool) -> None:
        if is_running and not entry.is_terminating and not self.head:
            self.head = entry.uid
            self._head_name = entry.shared()["metadata"]["name"]
            self.restart_gcs()
        elif entry.uid == self.head and (not is_running or entry.is_terminating):
            self.head = ""
            for raylet in self.raylets.values():
                self._call_later(ORPHANED_S, lambda raylet=raylet: self._end_pod(raylet, "Failed"))

    def _register_head(self) -> None:
        self.gcs.add_node(self._head_name, HEAD_TYPE, resources={}, status=NodeStatus.IDLE, idle_ms=1)

    def _join(self, name: str, uid: str, group: str) -> None:
        pod = self._pod(name, uid)
        if pod is None or self.has_raylet(name) or self.gcs.nodes.get(node_id_of(name)) is not None:
            return
        if not self.head:
            self._call_later(JOIN_S, lambda: self._join(name, uid, group))
            return
        raylet = Raylet(name, uid, group, self._loop.time())
        self.raylets[raylet.node_id] = raylet
        self._joined.add(raylet.node_id)
        self._register(raylet)

    def _register(self, raylet: Raylet) -> None:
        if raylet.node_id in self.raylets and self.head:
            self.gcs.add_node(raylet.pod, raylet.group, resources={"CPU": float(raylet.cpus)})
            self._place_soon()

    def _on_pod_lost(self, name: str, uid: str) -> None:
        raylet = self.raylets.get(node_id_of(name))
        if raylet is None or raylet.uid != uid:
            return
        del self.raylets[raylet.node_id]

        def report_failure() -> None:
            if self.head and raylet.node_id in self.gcs.nodes:
                self.gcs.kill_node(name)
            self._resubmit(raylet.tasks)

        self._call_later(FAILURE_DETECTED_S, report_failure)

    def _end_pod(self, raylet: Raylet, phase: str) -> None:
        pod = self._pod(raylet.pod, raylet.uid)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            self._kube.end_pod(raylet.pod, phase)

    def _pod(self, name: str, uid: str) -> dict[str, Any] | None:
        """The pod if it still runs."""
        entry = self._kube.store.find("pods", NAMESPACE, name)
        if entry is None or entry.uid != uid or entry.is_terminating:
            return None
        pod = entry.shared()
        return pod if pod.get("status", {}).get("phase") == "Running" else None

    # --- tasks =--------------------------------------------------------------------------------------------------------

    def _resubmit(self, tasks: int) -> None:
        self.pending_tasks += max(0, min(tasks, self.requested_tasks - self.pending_tasks - self.running_tasks))
        self._place_soon()

    @property
    def running_tasks(self) -> int:
        """How many tasks run."""
        return sum(raylet.tasks for raylet in self.raylets.values())

    def _place_soon(self) -> None:
        self._call_later(PLACE_S, self._place)

    def _place(self) -> None:
        for raylet in self._with_free_cpus():
            if not self.pending_tasks:
                break
            self.pending_tasks -= 1
            self._add_tasks(raylet, 1)
        self._call_later((0.0, 1.0), self._report_pending)

    def _report_pending(self) -> None:
        self._reported_pending = self.pending_tasks

    def _with_free_cpus(self) -> Iterator[Raylet]:
        if self.head and self._loop.time() >= self._unavailable_until_s:
            yield from (
                raylet
                for raylet in self.raylets.values()
                if raylet.tasks < raylet.cpus and raylet.node_id in self.gcs.nodes
            )
        elif self.pending_tasks:
            self._place_soon()

    def _add_tasks(self, raylet: Raylet, tasks: int) -> None:
        raylet.tasks += tasks
        raylet.idle_since_s = self._loop.time()

    def _call_later(self, delay_s: tuple[float, float], callback: Callable[[], None]) -> None:
        self._loop.call_later(self._rng.uniform(*delay_s), callback)


class _GcsFromHead:
    """GCS client in one head pod; it fails once the GCS runs in another head pod."""

    def __init__(self, ray: SimulatedRay, head_uid: str) -> None:
        self._ray = ray
        self._head_uid = head_uid
        self._gcs = fake_gcs(ray.gcs)

    def __getattr__(self, name: str) -> Any:
        if self._ray.head != self._head_uid:
            return self._reject
        return getattr(self._gcs, name)

    async def _reject(self, *_: Any, **__: Any) -> Any:
        raise ApiUnavailableError("connection refused")
