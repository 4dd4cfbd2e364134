"""Environment with the real autoscaler and a simulated Ray cluster.

The container `autoscaler` of the head pod runs the real loop as long as the container runs; raylets run in the worker pods.
Operator and autoscaler share one fault script; the GCS has faults of its own. The desired state: the tasks that users
requested run on the minimum number of workers, and `workersToDelete` is empty. Rules RM:I14, I15, I19, I21 to I24.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from raytide.api.meta import Key
from raytide_sandbox.apiserver.store import Change
from support.faults.transport import Faulty
from support.faults.types import Answer

from simulation.desired_state import DECISION_ANNOTATION, groups_of, workers_to_delete
from simulation.environment import Environment, Replica
from simulation.in_process_transport import InProcessTransport, StoreHistory, TransportErrors
from simulation.manifests import NAME
from simulation.operator_under_test import SimulatedClock
from simulation.sidecar_checks import CheckedSidecarTransport, SidecarChecks
from simulation.sidecar_under_test import SETTINGS, SidecarUnderTest
from simulation.simulated_kube import NAMESPACE, Kubelets
from simulation.simulated_ray import GcsFault, SimulatedRay

CONTAINER = "autoscaler"


class AutoscaledEnvironment(Environment):
    """One RayCluster with its operator, its autoscalers (one per head pod) and its Ray."""

    recorded_for_s = 0.0
    fault_wait_s = 12.0
    ray_class = SimulatedRay
    settings = SETTINGS
    """Settings of the autoscaler."""

    def __init__(self, seed: int, *, kubelets: Kubelets | None = None) -> None:
        super().__init__(seed, kubelets=kubelets)
        self.ray = self.ray_class(self.kube, NAME, self.checks.add_violation)
        self.sidecar_checks = SidecarChecks(self.checks, self.ray)
        self.sidecars: dict[str, SidecarUnderTest] = {}
        """By the uid of the head pod in which they run."""
        self.sidecar_transport = InProcessTransport(self.kube.api, lag_s=self.lag)
        self._store_history = StoreHistory(self.kube.api, self.kube.store, self.loop.time)
        self.checks_demand = True
        """False while the spec applies instead of the demand."""
        self._sidecar_transports: dict[str, CheckedSidecarTransport] = {}
        self.kube.store.subscribe(self._on_head, "pods")

    # --- processes ---------------------------------------------------------------------------------------------------

    def _on_head(self, change: Change) -> None:
        entry = change.entry
        if entry.labels.get("ray.io/node-type") != "head" or entry.labels.get("ray.io/cluster") != NAME:
            return
        is_running = change.type != "DELETED" and _is_sidecar_running(entry.shared())
        if is_running and entry.uid not in self.sidecars:
            self.sidecars[entry.uid] = self._new_sidecar(entry.uid, change.key.name)
            self.sidecars[entry.uid].start()
        elif not is_running and (sidecar := self.sidecars.get(entry.uid)):
            sidecar.end()

    def _new_sidecar(self, head_uid: str, head_name: str) -> SidecarUnderTest:
        faulty = Faulty(
            self.sidecar_transport,
            self.script,
            troubles=TransportErrors(),
            on_kill=lambda: self.kill() if self.kills_both else self.kill_sidecar(head_uid),
            past=self._store_history,
        )
        checked_transport = self._sidecar_transports[head_uid] = self.sidecar_checks.checked_transport(faulty)
        return SidecarUnderTest(
            checked_transport,
            self.ray.client(head_uid),
            SimulatedClock(self.skewed_now),
            Key(NAMESPACE, NAME),
            head=head_name,
            on_violation=self.checks.add_violation,
            settings=self.settings,
        )

    def kill_sidecar(self, head_uid: str) -> None:
        """SIGKILL for the loop in that head pod."""
        self._sidecar_transports[head_uid].reset()
        self.sidecars[head_uid].kill()

    def kill_replica(self, replica: Replica) -> None:
        """Kill the operator, and the autoscaler too if `kills_both`."""
        if self.kills_both:
            self.kill()
        else:
            super().kill_replica(replica)

    def kill(self) -> None:
        """SIGKILL for both."""
        super().kill()
        for head_uid in self.sidecars:
            self.kill_sidecar(head_uid)

    def start_recording(self) -> None:
        """Number calls of the GCS too."""
        self.ray.recount()
        super().start_recording()

    def gcs_calls(self) -> Sequence[str]:
        """The names of the GCS calls since `start_recording`."""
        return self.ray.calls

    def inject_gcs_fault(self, number: int, fault: GcsFault) -> None:
        """Inject the fault at the GCS call of this number."""
        self.ray.faults[number] = fault

    async def close(self) -> None:
        """Stop all processes in order."""
        for sidecar in self.sidecars.values():
            await sidecar.stop()
        await super().close()

    def revoke_rbac(self, *, is_revoked: bool = True) -> None:
        """Delete the autoscaler's RoleBinding, or restore it."""
        rejection = Answer(403, message="RBAC: the RoleBinding is missing")
        self.sidecar_transport.admission = lambda _request: rejection if is_revoked else None

    def comparable_state(self) -> dict[str, Any]:
        """All objects without what depends on the times of the autoscaler's ticks: generations and expired back-offs."""
        found = super().comparable_state()
        for cluster in found["clusters"].values():
            generation, observed = cluster["metadata"].pop("generation"), cluster["status"].pop("observedGeneration")
            cluster["status"]["is_seen"] = generation == observed
            for group in groups_of(cluster):
                if not any(group.get("scaleStrategy", {}).values()):
                    group.pop("scaleStrategy", None)
            for decision in cluster["metadata"].get("annotations", {}).get(DECISION_ANNOTATION, {}).values():
                decision.pop("backoff", None)
        return found

    # --- comparing-----------------------------------------------------------------------------------------------------

    def _faults_end_s(self) -> float:
        met_s = self.ray.last_met_s
        return max(super()._faults_end_s(), met_s + self.fault_lasts_s if met_s is not None else 0.0)

    def has_met_fault(self) -> bool:
        """Whether the fault of this run was injected, at the API server or at the GCS."""
        return super().has_met_fault() or self.ray.last_met_s is not None

    def difference(self) -> str:
        """The first difference from specs and demand; empty if there is none."""
        if found := super().difference():
            return found
        cluster = self.kube.cluster(NAME)
        if cluster is None or not self.checks_demand:
            return ""
        alive = self.pod_tracker.live_counts(cluster["metadata"]["uid"]).items()
        have = sum(count for group, count in alive if group not in ("headgroup", ""))
        most, need = needed(cluster, self.ray.requested_tasks)
        if have != need:
            return f"{have} workers for {self.ray.requested_tasks} tasks, needed: {need}"
        if self.ray.running_tasks != min(most, self.ray.requested_tasks):
            return f"{self.ray.running_tasks} of {self.ray.requested_tasks} tasks run"
        if names := workers_to_delete(cluster):
            return f"still in workersToDelete: {sorted(names)}"
        report = self.ray.gcs.kept
        if report is not None and (report.pending_instance_requests or report.pending_instances):
            return "the report to the GCS still has pending instances"
        return ""


def needed(cluster: Mapping[str, Any], tasks: int) -> tuple[int, int]:
    """The maximum of workers of the only group, and the number that so many tasks of one CPU need."""
    (group,) = groups_of(cluster)
    hosts = group.get("numOfHosts", 1)
    most, least = group["maxReplicas"] * hosts, group["minReplicas"] * hosts
    return most, min(most, max(least, -(-tasks // hosts) * hosts))


def _is_sidecar_running(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and any(
        each["name"] == CONTAINER and "running" in each["state"] for each in status.get("containerStatuses") or ()
    )
