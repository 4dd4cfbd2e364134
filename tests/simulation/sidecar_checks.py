"""Invariants that are checked at every write and every drain of the autoscaler.

A checked transport between the sidecar and the API; the number of tasks on each raylet at that instant is known. Pods are
counted in the store and tasks in the simulated Ray, not in what the sidecar read. Violations are recorded, not raised. Rules
RM:I7 and I21 to I24 and the order of the contract: lower `replicas`, then drain, then add to `workersToDelete`; two
decisions are 2 s apart.
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
"""Minimum time between two decisions of one process; `workersToDelete` may follow a decision at once."""
GROUPS = "/spec/workerGroupSpecs/"


class SidecarChecks:
    """Invariants of the autoscaler of one cluster."""

    def __init__(self, checks: RayClusterChecks, ray: SimulatedRay) -> None:
        self._checks = checks
        self._ray = ray
        self.patches = 0
        """Number of patches sent."""
        ray.on_drain = self.check_drain

    def checked_transport(self, inner: Transport) -> "CheckedSidecarTransport":
        """The transport of one container."""
        return CheckedSidecarTransport(self, inner)

    def add_violation(self, text: str) -> None:
        """Record a violation."""
        self._checks.add_violation(f"autoscaler: {text}")

    def _cluster(self) -> Mapping[str, Any] | None:
        return self._checks.kube.cluster(NAME)

    def check_call(self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None = None) -> None:
        """Check a request of the sidecar against its few permissions (RC §2.4); it may list and watch its own RayCluster only."""
        own = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters/{NAME}"
        core = f"/api/v1/namespaces/{NAMESPACE}"
        if method == "GET" and path in (own, f"{core}/pods", f"{core}/events"):
            return
        is_of_own = (query or {}).get("fieldSelector") == f"metadata.name={NAME}"
        if method == "GET" and is_of_own and path == own.rpartition("/")[0]:
            return
        if method != "PATCH" or path != own:
            self.add_violation(f"its Role does not permit: {method} {path}")
            return
        self.patches += 1
        cluster = self._cluster()
        if cluster is not None:
            self._check_patch(cluster, msgspec.json.decode(body or b"[]"))

    def after_patch(self, path: str, status: int) -> None:
        """Record the write, for checks that nothing is written in the desired state."""
        self._checks.writes.append(f"PATCH {path} by the autoscaler -> {status}")

    def _check_patch(self, cluster: Mapping[str, Any], patch: list[dict[str, Any]]) -> None:
        tested = {op["path"]: op["value"] for op in patch if op["op"] == "test"}
        if "/metadata/uid" not in tested:
            self.add_violation("a patch without a test of the uid (RM:I24)")
        if tested.get("/metadata/uid") != cluster["metadata"]["uid"]:
            return  # the API server will reject it
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
            self.add_violation(f"writes a field that it does not own (RM:I7): {path}")
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
        """No busy worker is named, and none before it accepted the drain (RM:I22, contract)."""
        for pod in self._checks.pod_tracker.live_pods(cluster["metadata"]["uid"], group):
            if pod.name not in names:
                continue
            if self._ray.is_busy(pod.name):
                self.add_violation(f"{pod.name} is busy and named (RM:I22)")
            elif (
                self._ray.has_raylet(pod.name)
                and pod.is_ready
                and pod.replica not in self._incomplete_replicas(cluster, group)
            ):
                self.add_violation(f"{pod.name} is named before it accepted the drain")

    def _incomplete_replicas(self, cluster: Mapping[str, Any], group: str) -> set[str]:
        """Multi-host replicas that lost a host: the others are deleted with it."""
        size = next(each.get("numOfHosts", 1) for each in groups_of(cluster) if each["groupName"] == group)
        hosts: dict[str, int] = {}
        for pod in self._checks.pod_tracker.live_pods(cluster["metadata"]["uid"], group):
            hosts[pod.replica] = hosts.get(pod.replica, 0) + self._ray.has_raylet(pod.name)
        return {replica for replica, count in hosts.items() if replica and count < size}

    def check_drain(self, raylet: Raylet, reason: DrainReason) -> None:
        """Replicas are lowered before a drain, so that the worker is not replaced (contract, "Order of a scale-down").

        A Ready pod whose raylet has ended is about to end and does not stay. A Ready pod whose raylet has not joined yet
        does: a raylet joins up to 2 s after its pod is Ready (`JOIN_S`), and until then the sidecar observes only
        that the worker is starting. The operator counts that pod as well and replaces nothing.
        """
        cluster = self._cluster()
        if cluster is None or reason is not DrainReason.IDLE_TERMINATION:
            return
        if raylet.tasks:
            self.add_violation(f"{raylet.pod} is drained while it is busy")
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
            self.add_violation(
                f"{raylet.pod} is drained while {most} of {raylet.group} are desired and {len(staying)} stay"
            )

    @staticmethod
    def _has_group(cluster: Mapping[str, Any], name: str) -> bool:
        return any(group["groupName"] == name for group in groups_of(cluster))


class CheckedSidecarTransport:
    """Transport that checks each request of one container and passes it to the inner transport."""

    def __init__(self, checks: SidecarChecks, inner: Transport) -> None:
        self._checks = checks
        self._inner = inner
        self._decision_times_s: deque[float] = deque(maxlen=2)

    def stream(self, path: str, **rest: Any) -> AsyncIterator[bytes]:
        """A watch."""
        self._checks.check_call("GET", path, None, rest.get("query"))
        return self._inner.stream(path, **rest)

    async def close(self) -> None:
        """Close the inner transport."""
        await self._inner.close()

    def reset(self) -> None:
        """The following requests are of another process."""
        self._decision_times_s.clear()

    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        """One call, checked before and after."""
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
