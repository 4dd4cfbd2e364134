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

from simulation.manifests import NAME
from simulation.operator_under_test import WorldClock
from simulation.ray_world import GcsFault, RayWorld
from simulation.sidecar_judge import SidecarDoor, SidecarJudge
from simulation.sidecar_under_test import SETTINGS, SidecarUnderTest
from simulation.stage import Replica, Stage
from simulation.wire import InProcess, StorePast, Troubles
from simulation.wishes import RECORD, groups_of, named_workers
from simulation.world import NAMESPACE, Kubelets

CONTAINER = "autoscaler"


class AutoscaledStage(Stage):
    """One RayCluster `life`, its operator, its autoscalers (one per head) and its Ray."""

    learned_for_s = 0.0
    awaited_for_s = 12.0
    ray_world = RayWorld
    settings = SETTINGS
    """Of the autoscaler."""

    def __init__(self, seed: int, *, kubelets: Kubelets | None = None) -> None:
        super().__init__(seed, kubelets=kubelets)
        self.ray = self.ray_world(self.world, NAME, self.judge.note)
        self.rights = SidecarJudge(self.judge, self.ray)
        self.sidecars: dict[str, SidecarUnderTest] = {}
        """By the uid of the head beside which they live."""
        self.wire_of_sidecar = InProcess(self.world.api, lag_s=self.lag)
        self._past = StorePast(self.world.api, self.world.store, self.loop.time)
        self.is_judging_demand = True
        """False while the spec rules."""
        self._doors: dict[str, SidecarDoor] = {}
        self.world.store.subscribe(self._on_head, "pods")

    # --- processes ---------------------------------------------------------------------------------------------------

    def _on_head(self, change: Change) -> None:
        entry = change.entry
        if entry.labels.get("ray.io/node-type") != "head" or entry.labels.get("ray.io/cluster") != NAME:
            return
        runs = change.type != "DELETED" and _runs(entry.shared())
        if runs and entry.uid not in self.sidecars:
            self.sidecars[entry.uid] = self._new_sidecar(entry.uid, change.key.name)
            self.sidecars[entry.uid].start()
        elif not runs and (sidecar := self.sidecars.get(entry.uid)):
            sidecar.end()

    def _new_sidecar(self, head_uid: str, head_name: str) -> SidecarUnderTest:
        faulty = Faulty(
            self.wire_of_sidecar,
            self.script,
            troubles=Troubles(),
            on_kill=lambda: self.kill() if self.both_die else self.kill_sidecar(head_uid),
            past=self._past,
        )
        door = self._doors[head_uid] = self.rights.door(faulty)
        return SidecarUnderTest(
            door,
            self.ray.client(head_uid),
            WorldClock(self.skewed_now),
            Key(NAMESPACE, NAME),
            head=head_name,
            note=self.judge.note,
            settings=self.settings,
        )

    def kill_sidecar(self, head_uid: str) -> None:
        """SIGKILL for the loop beside that head."""
        self._doors[head_uid].forget()
        self.sidecars[head_uid].kill()

    def strike(self, replica: Replica) -> None:
        """The script kills the operator, and perhaps the autoscaler with it."""
        if self.both_die:
            self.kill()
        else:
            super().strike(replica)

    def kill(self) -> None:
        """SIGKILL for both."""
        super().kill()
        for head_uid in self.sidecars:
            self.kill_sidecar(head_uid)

    def begin(self) -> None:
        """Calls of the GCS are counted, too."""
        self.ray.recount()
        super().begin()

    def asked_of_ray(self) -> Sequence[str]:
        """The calls of the GCS since the beginning."""
        return self.ray.calls

    def spoil_ray(self, number: int, fault: GcsFault) -> None:
        """This call of the GCS meets that fault."""
        self.ray.faults[number] = fault

    async def close(self) -> None:
        """The ordered end of everything."""
        for sidecar in self.sidecars.values():
            await sidecar.stop()
        await super().close()

    def withdraw_rights(self, *, is_withdrawn: bool = True) -> None:
        """Somebody deletes the autoscaler's RoleBinding, or brings it back."""
        rejection = Answer(403, message="RBAC: the RoleBinding is gone")
        self.wire_of_sidecar.admission = lambda _request: rejection if is_withdrawn else None

    def portrait(self) -> dict[str, Any]:
        """In how many patches the autoscaler got there depends on when it looked, and so do back-offs that are over."""
        found = super().portrait()
        for cluster in found["clusters"].values():
            generation, seen = cluster["metadata"].pop("generation"), cluster["status"].pop("observedGeneration")
            cluster["status"]["is_seen"] = generation == seen
            for group in groups_of(cluster):
                if not any(group.get("scaleStrategy", {}).values()):
                    group.pop("scaleStrategy", None)
            for decision in cluster["metadata"].get("annotations", {}).get(RECORD, {}).values():
                decision.pop("backoff", None)
        return found

    # --- looking -----------------------------------------------------------------------------------------------------

    def _faults_over_s(self) -> float:
        met_s = self.ray.last_met_s
        return max(super()._faults_over_s(), met_s + self.fault_lasts_s if met_s is not None else 0.0)

    def has_met_fault(self) -> bool:
        """Whether the fault of this run has come, to Kubernetes or to Ray."""
        return super().has_met_fault() or self.ray.last_met_s is not None

    def difference(self) -> str:
        """What is not as specs and users want it."""
        if found := super().difference():
            return found
        cluster = self.world.cluster(NAME)
        if cluster is None or not self.is_judging_demand:
            return ""
        alive = self.census.alive(cluster["metadata"]["uid"]).items()
        have = sum(count for group, count in alive if group not in ("headgroup", ""))
        most, need = needed(cluster, self.ray.asked)
        if have != need:
            return f"{have} workers for {self.ray.asked} tasks, needed are {need}"
        if self.ray.working != min(most, self.ray.asked):
            return f"{self.ray.working} tasks of {self.ray.asked} run"
        if names := named_workers(cluster):
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


def _runs(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and any(
        each["name"] == CONTAINER and "running" in each["state"] for each in status.get("containerStatuses") or ()
    )
