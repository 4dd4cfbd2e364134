"""Where do operator and autoscaler live together?

A stage with Ray in it: the head's container `autoscaler` runs the real loop, as long as the container does, and raylets run
in the workers' pods. Both programs meet the faults of one script, so that a fault goes to whoever makes that call; the GCS
has faults of its own. All is as wanted when the tasks that users ask for run, on no more workers than they need, and
nobody is named any more. Rules RM:I14, I15, I19, I21 to I24.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from raytide.api.meta import Key
from raytide_sandbox.apiserver.store import Change
from raytide_sandbox.faults.transport import Faulty
from raytide_sandbox.faults.types import Answer

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
    """One RayCluster `life`, its operator, its autoscalers (one per head) and its Ray."""

    recorded_for_s = 0.0
    fault_wait_s = 12.0
    ray_class = SimulatedRay
    settings = SETTINGS
    """Of the autoscaler."""

    def __init__(self, seed: int, *, kubelets: Kubelets | None = None) -> None:
        super().__init__(seed, kubelets=kubelets)
        self.ray = self.ray_class(self.kube, NAME, self.checks.add_violation)
        self.sidecar_checks = SidecarChecks(self.checks, self.ray)
        self.sidecars: dict[str, SidecarUnderTest] = {}
        """By the uid of the head beside which they live."""
        self.sidecar_transport = InProcessTransport(self.kube.api, lag_s=self.lag)
        self._store_history = StoreHistory(self.kube.api, self.kube.store, self.loop.time)
        self.checks_demand = True
        """False while the spec rules."""
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
        """SIGKILL for the loop beside that head."""
        self._sidecar_transports[head_uid].reset()
        self.sidecars[head_uid].kill()

    def kill_replica(self, replica: Replica) -> None:
        """The script kills the operator, and perhaps the autoscaler with it."""
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
        """Calls of the GCS are counted, too."""
        self.ray.recount()
        super().start_recording()

    def gcs_calls(self) -> Sequence[str]:
        """The calls of the GCS since the beginning."""
        return self.ray.calls

    def inject_gcs_fault(self, number: int, fault: GcsFault) -> None:
        """This call of the GCS meets that fault."""
        self.ray.faults[number] = fault

    async def close(self) -> None:
        """The ordered end of everything."""
        for sidecar in self.sidecars.values():
            await sidecar.stop()
        await super().close()

    def revoke_rbac(self, *, is_revoked: bool = True) -> None:
        """Somebody deletes the autoscaler's RoleBinding, or brings it back."""
        rejection = Answer(403, message="RBAC: the RoleBinding is gone")
        self.sidecar_transport.admission = lambda _request: rejection if is_revoked else None

    def comparable_state(self) -> dict[str, Any]:
        """In how many patches the autoscaler got there depends on when it looked, and so do back-offs that are over."""
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

    # --- looking -----------------------------------------------------------------------------------------------------

    def _faults_end_s(self) -> float:
        met_s = self.ray.last_met_s
        return max(super()._faults_end_s(), met_s + self.fault_lasts_s if met_s is not None else 0.0)

    def has_met_fault(self) -> bool:
        """Whether the fault of this run has come, to Kubernetes or to Ray."""
        return super().has_met_fault() or self.ray.last_met_s is not None

    def difference(self) -> str:
        """What is not as specs and users want it."""
        if found := super().difference():
            return found
        cluster = self.kube.cluster(NAME)
        if cluster is None or not self.checks_demand:
            return ""
        alive = self.pod_tracker.live_counts(cluster["metadata"]["uid"]).items()
        have = sum(count for group, count in alive if group not in ("headgroup", ""))
        most, need = needed(cluster, self.ray.requested_tasks)
        if have != need:
            return f"{have} workers for {self.ray.requested_tasks} tasks, needed are {need}"
        if self.ray.running_tasks != min(most, self.ray.requested_tasks):
            return f"{self.ray.running_tasks} tasks of {self.ray.requested_tasks} run"
        if names := workers_to_delete(cluster):
            return f"still named: {sorted(names)}"
        report = self.ray.gcs.kept
        if report is not None and (report.pending_instance_requests or report.pending_instances):
            return "something is still shown as launching"
        return ""


def needed(cluster: Mapping[str, Any], tasks: int) -> tuple[int, int]:
    """How many workers there may be at most, and how many so many tasks of one CPU need; for one group."""
    (group,) = groups_of(cluster)
    hosts = group.get("numOfHosts", 1)
    most, least = group["maxReplicas"] * hosts, group["minReplicas"] * hosts
    return most, min(most, max(least, -(-tasks // hosts) * hosts))


def _is_sidecar_running(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and any(
        each["name"] == CONTAINER and "running" in each["state"] for each in status.get("containerStatuses") or ()
    )
