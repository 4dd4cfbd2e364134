"""What must hold at every write of the autoscaler, and at every node that it lets go?

A judge between the sidecar and the API, which knows what runs on every raylet at that instant. It counts in the store and
in Ray, not in what the sidecar read; it raises nothing while a run lasts, but notes. Rules RM:I7 and I21 to I24 and the
orders of the contract: lower `replicas` first, then drain, then name; two decisions are two seconds apart.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec

from raytide.autoscaler.model import DrainReason
from raytide.kube.transport import Response, Transport

from simulation.desired_state import desired_workers, groups_of, workers_to_delete
from simulation.invariant_checks import RayClusterChecks
from simulation.manifests import NAME
from simulation.simulated_kube import NAMESPACE
from simulation.simulated_ray import Raylet, SimulatedRay

PAUSE_S = 2.0
"""Between two decisions of one process; names may follow a decision at once."""
GROUPS = "/spec/workerGroupSpecs/"


class SidecarChecks:
    """What one cluster's autoscaler may do."""

    def __init__(self, checks: RayClusterChecks, ray: SimulatedRay) -> None:
        self._checks = checks
        self._ray = ray
        self.patches = 0
        """How many were sent."""
        ray.on_drain = self.check_drain

    def checked_transport(self, inner: Transport) -> "CheckedSidecarTransport":
        """Where one container comes in."""
        return CheckedSidecarTransport(self, inner)

    def add_violation(self, text: str) -> None:
        """Something is wrong."""
        self._checks.add_violation(f"autoscaler: {text}")

    def _cluster(self) -> Mapping[str, Any] | None:
        return self._checks.kube.cluster(NAME)

    def check_call(self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None = None) -> None:
        """A request leaves the sidecar, which may do very little (RC §2.4); of RayClusters it may list and watch its own."""
        own = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters/{NAME}"
        core = f"/api/v1/namespaces/{NAMESPACE}"
        if method == "GET" and path in (own, f"{core}/pods", f"{core}/events"):
            return
        is_of_own = (query or {}).get("fieldSelector") == f"metadata.name={NAME}"
        if method == "GET" and is_of_own and path == own.rpartition("/")[0]:
            return
        if method != "PATCH" or path != own:
            self.add_violation(f"its role has no such right: {method} {path}")
            return
        self.patches += 1
        cluster = self._cluster()
        if cluster is not None:
            self._check_patch(cluster, msgspec.json.decode(body or b"[]"))

    def after_patch(self, path: str, status: int) -> None:
        """For those who ask whether anything is written at rest."""
        self._checks.writes.append(f"PATCH {path} by the autoscaler -> {status}")

    def _check_patch(self, cluster: Mapping[str, Any], patch: list[dict[str, Any]]) -> None:
        tested = {op["path"]: op["value"] for op in patch if op["op"] == "test"}
        if "/metadata/uid" not in tested:
            self.add_violation("a patch without a test of the uid (RM:I24)")
        if tested.get("/metadata/uid") != cluster["metadata"]["uid"]:
            return  # it will be rejected
        for op in patch:
            if op["op"] != "test":
                self._check_operation(cluster, op, tested)

    def _check_operation(self, cluster: Mapping[str, Any], op: Mapping[str, Any], tested: Mapping[str, Any]) -> None:
        path = op["path"]
        if path.startswith("/metadata/annotations"):
            return
        index, _, what = path.removeprefix(GROUPS).partition("/")
        name = tested.get(f"{GROUPS}{index}/groupName")
        is_guarded = path in tested or "/metadata/generation" in tested
        if not path.startswith(GROUPS) or what.split("/")[0] not in ("replicas", "scaleStrategy"):
            self.add_violation(f"writes what is not its own (RM:I7): {path}")
        elif name is None or (not is_guarded and not what.endswith("scaleStrategy")):
            self.add_violation(f"a patch without a test of the group or its old value (RM:I24): {path}")
        elif (group := next((each for each in groups_of(cluster) if each["groupName"] == name), None)) is not None:
            if what == "replicas":
                self._check_replicas(group, op["value"])
            else:
                named = op["value"]["workersToDelete"] if isinstance(op["value"], dict) else op["value"]
                self._check_names(cluster, name, set(named) - workers_to_delete(cluster))

    def _check_replicas(self, group: Mapping[str, Any], replicas: int) -> None:
        low, high = group.get("minReplicas") or 0, group.get("maxReplicas", replicas)
        if not low <= replicas <= high:
            self.add_violation(f"{replicas} replicas of {group['groupName']}, allowed are {low} to {high} (RM:I21)")

    def _check_names(self, cluster: Mapping[str, Any], group: str, names: set[str]) -> None:
        """Nobody is named at work, or before it agreed to leave (RM:I22, contract)."""
        for pod in self._checks.pod_tracker.live_pods(cluster["metadata"]["uid"], group):
            if pod.name not in names:
                continue
            if self._ray.is_busy(pod.name):
                self.add_violation(f"{pod.name} is named at work (RM:I22)")
            elif (
                self._ray.has_raylet(pod.name)
                and pod.is_ready
                and pod.replica not in self._incomplete_replicas(cluster, group)
            ):
                self.add_violation(f"{pod.name} is named before it agreed to leave")

    def _incomplete_replicas(self, cluster: Mapping[str, Any], group: str) -> set[str]:
        """Replicas of several hosts that have lost one: the others go with it."""
        size = next(each.get("numOfHosts", 1) for each in groups_of(cluster) if each["groupName"] == group)
        hosts: dict[str, int] = {}
        for pod in self._checks.pod_tracker.live_pods(cluster["metadata"]["uid"], group):
            hosts[pod.replica] = hosts.get(pod.replica, 0) + self._ray.has_raylet(pod.name)
        return {replica for replica, count in hosts.items() if replica and count < size}

    def check_drain(self, raylet: Raylet, reason: DrainReason) -> None:
        """Replicas are lowered before a drain, so that the worker is not replaced (contract, "Order of a scale-down").

        A Ready pod whose raylet has ended is about to end and does not stay. A Ready pod whose raylet has not joined yet
        does: a raylet joins up to 2 s after its pod is Ready (`JOIN_S`), and until then neither the pod nor the GCS tells
        the sidecar more than that the worker is starting. The operator counts that pod as well and replaces nothing.
        """
        cluster = self._cluster()
        if cluster is None or reason is not DrainReason.IDLE_TERMINATION:
            return
        if raylet.tasks:
            self.add_violation(f"{raylet.pod} leaves at work")
        uid = cluster["metadata"]["uid"]
        names = workers_to_delete(cluster)
        staying = [
            pod.name
            for pod in self._checks.pod_tracker.live_pods(uid, raylet.group)
            if pod.name != raylet.pod
            and pod.name not in names
            and not (pod.is_ready and self._ray.has_exited(pod.name))
        ]
        most = desired_workers(cluster).get(raylet.group, 0)
        if self._has_group(cluster, raylet.group) and len(staying) < most:
            self.add_violation(f"{raylet.pod} leaves while {most} of {raylet.group} are wanted and {len(staying)} stay")

    @staticmethod
    def _has_group(cluster: Mapping[str, Any], name: str) -> bool:
        return any(group["groupName"] == name for group in groups_of(cluster))


class CheckedSidecarTransport:
    """Carries the requests of one container on and looks at each: a Transport around a Transport."""

    def __init__(self, checks: SidecarChecks, inner: Transport) -> None:
        self._checks = checks
        self._inner = inner
        self._decision_times_s: deque[float] = deque(maxlen=2)

    def stream(self, path: str, **rest: Any) -> AsyncIterator[bytes]:
        """A watch."""
        self._checks.check_call("GET", path, None, rest.get("query"))
        return self._inner.stream(path, **rest)

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()

    def reset(self) -> None:
        """Another process comes in from now on."""
        self._decision_times_s.clear()

    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        """One call, looked at before and after."""
        self._checks.check_call(method, path, body, rest.get("query"))
        if method == "PATCH":
            self._check_rate(body)
        response = await self._inner.request(method, path, body=body, **rest)
        if method == "PATCH":
            self._checks.after_patch(path, response.status)
        return response

    def _check_rate(self, body: bytes | None) -> None:
        if not any(op["path"].endswith("/replicas") for op in _write_operations(body)):
            return
        self._decision_times_s.append(asyncio.get_running_loop().time())
        if len(self._decision_times_s) > 1 and self._decision_times_s[1] - self._decision_times_s[0] < PAUSE_S - 0.1:
            self._checks.add_violation(
                f"two decisions within {self._decision_times_s[1] - self._decision_times_s[0]:.2f} s"
            )


def _write_operations(body: bytes | None) -> Iterator[dict[str, Any]]:
    return (op for op in msgspec.json.decode(body or b"[]") if op["op"] != "test")
