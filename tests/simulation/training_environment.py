"""Environment for TrainingJobs: both controllers, the job controller and the fair sharing, as manager.py runs them.

The desired state: every job has exactly the pods that its spec and size require, is running or reports why not, its
membership is complete, and a plan from the store, after all cooldowns, changes nothing. Rules RM:I14, I16, I19, I25.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

from raytide.api import trainingjob_constants as constants
from raytide.api.capacity import capacity_node_from_object, capacity_pod_from_object
from raytide.api.config import JobConfig, SharingConfig
from raytide.api.meta import Key
from raytide.api.sharing_record import CREATION_FORBIDDEN
from raytide.api.trainingjob import TrainingJob
from raytide.controller.base import ControllerOptions
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.controller import FairShareController, FairShareOptions
from raytide.fairshare.reconciler import run_at_once
from raytide.fairshare.snapshot import build_snapshot
from raytide.kube.client import Client
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock
from raytide.trainingjob.controller import TrainingJobController

from simulation.environment import Environment, Replica
from simulation.operator_under_test import OperatorUnderTest
from simulation.pod_tracker import ENDED
from simulation.simulated_kube import Kubelets
from simulation.training_checks import TrainingJobChecks
from simulation.training_desired_state import condition, desired_job_state, has_ended, permanently_failed, record_of
from simulation.training_kube import JOBS, TrainingKube
from simulation.training_pod_tracker import JobPodTracker

COOLDOWNS_OVER = timedelta(hours=1)
"""All cooldowns and intervals between admissions are over after this time."""
START_ORDER = (constants.MASTER, constants.PSERVER, constants.TRAINER)
SHARING = SharingConfig()


class JobControllers:
    """Both controllers, as manager.py runs them."""

    def __init__(self, client: Client, clock: Clock, config: SharingConfig = SHARING) -> None:
        watches = SharedWatches(client, clock=clock)
        self._jobs = TrainingJobController(
            client, clock=clock, config=JobConfig(), options=ControllerOptions(watches=watches)
        )
        sharing = FairShareController(
            client, clock=clock, config=config, options=FairShareOptions(watches=watches, run=run_at_once)
        )
        self._controllers = (self._jobs, sharing)

    async def run(self) -> None:
        """Run informers and reconcilers until stopped."""
        await _run_concurrently(controller.run() for controller in self._controllers)

    async def run_informers(self) -> None:
        """Run the informers."""
        await _run_concurrently(controller.run_informers() for controller in self._controllers)

    async def run_reconcilers(self) -> None:
        """Run the reconcilers for one term of leadership."""
        await _run_concurrently(controller.run_reconcilers() for controller in self._controllers)

    async def stop(self) -> None:
        """Stop in order."""
        await _run_concurrently(controller.stop() for controller in self._controllers)

    def enqueue(self, key: Key) -> None:
        """Enqueue one job and the sharing pass."""
        self._jobs.reconcile_loop.enqueue(key)
        self._controllers[1].reconciler.enqueue()


class JobsOperator(OperatorUnderTest):
    """The operator with the controllers of TrainingJobs."""

    def _new_controllers(self, client: Client) -> JobControllers:
        return JobControllers(client, self._clock)


class JobsReplica(Replica):
    """A replica of that operator."""

    kind = JobsOperator


class TrainingEnvironment(Environment):
    """A simulated cluster of TrainingJobs with invariant checks and an operator."""

    fault_wait_s = 40.0
    replica = JobsReplica
    kube: TrainingKube
    pod_tracker: JobPodTracker
    checks: TrainingJobChecks

    def _set_up(self, kubelets: Kubelets | None, holder: Callable[[], str | None] | None) -> None:
        self.kube = TrainingKube(self.rng, kubelets=kubelets)
        self.pod_tracker = JobPodTracker(self.kube.store)
        self.checks = TrainingJobChecks(self.kube, self.pod_tracker, holder=holder)

    # --- comparing-----------------------------------------------------------------------------------------------------

    def clusters(self) -> Iterator[dict[str, Any]]:
        """All TrainingJobs."""
        return (entry.obj() for _, entry in self.kube.store.entries(JOBS))

    def sizes(self) -> dict[str, int]:
        """Name of a job -> its live trainers."""
        return {
            job["metadata"]["name"]: len(self.pod_tracker.live_pods(job["metadata"]["uid"], constants.TRAINER))
            for job in self.clusters()
        }

    def difference(self) -> str:
        """The first difference from the desired state; empty if there is none."""
        jobs = list(self.clusters())
        for job in jobs:
            if "deletionTimestamp" in job["metadata"]:
                return f"{job['metadata']['name']} is still terminating"
            if difference := self._difference_of(job):
                return f"{job['metadata']['name']}: {difference}"
        existing = {job["metadata"]["uid"] for job in jobs}
        orphans = [pod.name for pod in self.pod_tracker.tracked_pods() if pod.owner_uid not in existing]
        for kind in ("services", "configmaps"):
            orphans += [
                key.name
                for key, entry in self.kube.store.entries(kind)
                if constants.JOB_LABEL in entry.labels and not existing.issuperset(entry.owners)
            ]
        return f"orphans: {orphans}" if orphans else self._pending_resizes(jobs)

    def _difference_of(self, job: dict[str, Any]) -> str:
        uid, desired, status = job["metadata"]["uid"], desired_job_state(job), job.get("status") or {}
        if uid in self.kube.finished_jobs and any(desired.counts.values()):
            is_waiting = condition(job, constants.WAITING).get("status") == "True"
            return "" if is_waiting else "its data is processed, and its status does not report it"
        want = {role: count for role, count in desired.counts.items() if count}
        if constants.TRAINER in want:
            want[constants.TRAINER] -= permanently_failed(job)
        have, blocked_roles = self.pod_tracker.live_counts(uid), self._blocked_roles(job)
        expected_counts = {
            role: min(count, have.get(role, 0)) if role in blocked_roles else count for role, count in want.items()
        }
        if have != {role: count for role, count in expected_counts.items() if count}:
            return f"has {have}, desired {want}"
        waiting = condition(job, constants.WAITING)
        if want and have == want and (waiting.get("status"), waiting.get("reason")) == ("True", CREATION_FORBIDDEN):
            return "the pods of its minimum exist, and its status says that the API server rejects them"
        if not has_ended(job) and status.get("observedGeneration") != job["metadata"]["generation"]:
            return "its status is of another generation"
        unwanted = [
            pod.name
            for pod in self.pod_tracker.all_pods(uid)
            if not pod.is_alive and self._is_terminating(pod.name, job)
        ]
        if unwanted:
            return f"still there: {unwanted}"
        numbers, ready = status.get(constants.TRAINER) or {}, self.pod_tracker.ready_counts(uid)[constants.TRAINER]
        if not has_ended(job) and numbers.get("replicas", 0) != have.get(constants.TRAINER, 0):
            return f"has {have}, its status has {numbers}"
        if numbers.get("ready", 0) != ready:
            return f"{ready} trainers are ready, its status has {numbers}"
        if want and (difference := self._membership_difference(job)):
            return difference
        return self._unexplained_size(job, ready)

    def _blocked_roles(self, job: dict[str, Any]) -> tuple[str, ...]:
        """Roles that start after a role with unschedulable pods; the job reports what it waits for."""
        if condition(job, constants.WAITING).get("status") != "True":
            return ()
        pods = [
            entry.shared()
            for _, entry in self.kube.store.entries("pods")
            if job["metadata"]["uid"] in entry.owners and not entry.is_terminating
        ]
        unschedulable_roles = {
            pod["metadata"]["labels"].get(constants.ROLE_LABEL)
            for pod in pods
            if condition(pod, "PodScheduled").get("status") == "False"  # missing: kube-scheduler is about to try
        }
        first = next((place for place, role in enumerate(START_ORDER) if role in unschedulable_roles), len(START_ORDER))
        return START_ORDER[first + 1 :]

    def _is_terminating(self, name: str, job: dict[str, Any]) -> bool:
        """Whether the pod is terminating; succeeded pods are kept for their logs."""
        entry = self.kube.store.find("pods", job["metadata"]["namespace"], name)
        if entry is None:
            return False
        return entry.is_terminating

    def _membership_difference(self, job: dict[str, Any]) -> str:
        metadata = job["metadata"]
        entry = self.kube.store.find("configmaps", metadata["namespace"], f"{metadata['name']}-membership")
        if entry is None or entry.owners != (metadata["uid"],):
            return "its list of members is missing or owned by another job"
        members = json.loads(entry.obj()["data"]["membership.json"])["trainer"]["members"]
        listed = [member["name"] for member in members]
        alive = [pod.name for pod in self.pod_tracker.live_pods(metadata["uid"], constants.TRAINER)]
        done = [pod.name for pod in self.pod_tracker.all_pods(metadata["uid"]) if not pod.is_alive]
        expected = {*alive, *done} if constants.TRAINER not in self._blocked_roles(job) else {*alive, *listed}
        if not set(alive) <= set(listed) <= expected:
            return f"its members are {listed}, its trainers {alive}"
        if len(listed) > (size := desired_job_state(job).counts[constants.TRAINER]):
            return f"its members are {listed}, and {size} trainers are desired"
        service = self.kube.store.find("services", metadata["namespace"], metadata["name"])
        return (
            "" if service and service.owners == (metadata["uid"],) else "its service is missing or owned by another job"
        )

    def _unexplained_size(self, job: dict[str, Any], ready: int) -> str:
        """Every job has its minimum or a condition with the reason; so has every job below its maximum (I25)."""
        desired, waiting = desired_job_state(job), condition(job, constants.WAITING)
        if job["spec"].get("suspend") or condition(job, constants.SUCCEEDED) or condition(job, constants.FAILED):
            return ""
        if record_of(job).get("uid") != job["metadata"]["uid"] or waiting.get("reason") == "NotAdmitted":
            return "no sharing pass has included it yet"
        if ready + permanently_failed(job) < desired.low and waiting.get("status") != "True":
            return f"{ready} of its minimum of {desired.low} run, without a reason in its conditions"
        if desired.low <= ready < desired.high and not desired.is_ending and not waiting.get("reason"):
            return f"{ready} of {desired.high} run, without a reason in its conditions not more"
        return ""

    def _pending_resizes(self, jobs: list[dict[str, Any]]) -> str:
        """The resizes that a plan from the store would still make."""
        pods = [entry.shared() for _, entry in self.kube.store.entries("pods")]
        shared = build_snapshot(
            [TrainingJob.parse(job) for job in jobs],
            [capacity_pod_from_object(pod) for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED],
            [capacity_node_from_object(entry.shared()) for _, entry in self.kube.store.entries("nodes")],
            config=SHARING,
            now=self.kube.now() + COOLDOWNS_OVER,
        )
        resizes = allocate(shared).resizes
        return f"still to come: {[each.message for each in resizes]}" if resizes else ""

    # --- comparing ---------------------------------------------------------------------------------------------------

    def comparable_state(self) -> dict[str, Any]:
        """All objects without times, uids and messages with current numbers, to compare two runs."""
        return {
            "jobs": {
                f"{job['metadata']['namespace']}/{job['metadata']['name']}": _comparable_job(job)
                for job in self.clusters()
            },
            "pods": {str(key): _comparable_pod(entry.obj()) for key, entry in sorted(self.kube.store.entries("pods"))},
        }


class AnyIndexEnvironment(TrainingEnvironment):
    """Environment in which the index that a trainer gets depends on timing.

    After a node failed, the index of a terminating pod is not reused; only the name of trainer 0 is compared.
    """

    def comparable_state(self) -> dict[str, Any]:
        """Pods by role and phase, and trainer 0 of each job."""
        found = super().comparable_state()
        pods: Counter[str] = Counter()
        for key, entry in self.kube.store.entries("pods"):
            label = (
                "first"
                if entry.labels.get(constants.INDEX_LABEL) == "0"
                else entry.labels.get(constants.ROLE_LABEL, key.name)
            )
            pods[f"{label} {_comparable_pod(entry.obj())}"] += 1
        return {**found, "pods": dict(pods)}


def _comparable_job(job: dict[str, Any]) -> dict[str, Any]:
    status = job.get("status") or {}
    roles = {role: status.get(role) for role in constants.ROLES}
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions") or ()}
    return {"spec": job["spec"], "phase": status.get("phase"), "conditions": conditions, **roles}


def _comparable_pod(pod: dict[str, Any]) -> dict[str, Any]:
    owners = [owner["name"] for owner in pod["metadata"].get("ownerReferences") or ()]
    return {"owners": owners, "phase": (pod.get("status") or {}).get("phase")}


async def _run_concurrently(coroutines: Iterator[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for coroutine in coroutines:
            tasks.create_task(coroutine)
