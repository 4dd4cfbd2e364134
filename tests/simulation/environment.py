"""Where is a life of RayClusters played, and is everything as wanted now?

A stage is one world with an operator in it, a judge at the operator's door and a fault script between them and the API.
Whoever plays on it (random histories, scenarios with one fault) edits the world and waits; the stage says what differs
from what the specs want, and paints the portrait by which two runs are compared. It never decides what happens. Rules
RM:I14–I16, I18, I19.
"""

import asyncio
import functools
import logging
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec

from raytide_sandbox.faults.script import Script
from raytide_sandbox.faults.transport import Faulty

from simulation.desired_state import (
    DECISION_ANNOTATION,
    desired_state,
    desired_workers,
    hosts_by_group,
    is_suspended,
    workers_to_delete,
)
from simulation.in_process_transport import InProcessTransport, StoreHistory, TransportErrors
from simulation.invariant_checks import SENDER, RayClusterChecks
from simulation.operator_under_test import LEASE, OperatorUnderTest, SimulatedClock
from simulation.pod_tracker import PodTracker, as_counts
from simulation.simulated_kube import NAMESPACE, RAYCLUSTERS, Kubelets, SimulatedKube, node_of

ESR_S = 60.0
"""So long after the last fault everything must be as wanted."""
_TIME_FIELDS = {
    "creationTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "stateTransitionTimes",
    "resourceVersion",
    "uid",
    "managedFields",
}
_RANDOM_SUFFIX = re.compile(rb"(-worker|-head|kube-api-access)-[a-z0-9]{5}\b")


class Replica:
    """One operator with its own way to the API, and what goes wrong on it."""

    kind = OperatorUnderTest

    def __init__(self, env: "Environment", number: int, *, is_elected: bool) -> None:
        self.lag_s = 0.0
        """How late every line comes here, if not later for all."""
        self.transport = InProcessTransport(env.kube.api, lag_s=lambda: max(self.lag_s, env.lag()))
        self.script = Script(now_s=env.loop.time)
        self.faulty = Faulty(
            self.transport,
            self.script,
            troubles=TransportErrors(),
            on_kill=lambda: env.kill_replica(self),
            on_late_commit=env.checks.expect_late_create,
            past=StoreHistory(env.kube.api, env.kube.store, env.loop.time),
        )
        checked_transport = env.checks.checked_transport(self.faulty, lambda: self.operator.identity)
        self.operator = self.kind(
            checked_transport,
            SimulatedClock(env.skewed_now),
            env.rng,
            env.checks.add_violation,
            identity=f"operator-{number}",
            is_elected=is_elected,
        )
        self.transport.on_request = lambda request: env.checks.check_lease(SENDER.get(), request.method, request.path)


class Environment:
    """One world, one judge, and one operator, or several replicas of which one leads."""

    recorded_for_s = 20.0
    """So long after its end a life still goes on as far as faults are concerned."""
    fault_wait_s = 0.0
    """So long after its end a fault is waited for, where calls come by the clock."""
    esr_s = ESR_S
    """So long after the last fault everything must be as wanted."""
    replica = Replica

    def __init__(self, seed: int, *, kubelets: Kubelets | None = None, replicas: int = 1) -> None:
        self.rng = random.Random(seed)
        self.loop = asyncio.get_running_loop()
        self.lag_s = 0.0
        self.clock_ahead_s = 0.0
        """How far the wall clocks of operators and autoscalers are ahead of the API server's (RM:F9)."""
        self._set_up(kubelets, self.holder if replicas > 1 else None)
        self.checks.operator_now = self.skewed_now
        self.replicas = [self.replica(self, number, is_elected=replicas > 1) for number in range(replicas)]
        self.operator, self.script, self.transport = (
            self.replicas[0].operator,
            self.replicas[0].script,
            self.replicas[0].transport,
        )
        self.fault_lasts_s = 0.0
        """How long a fault of the script goes on after it was met."""
        self.disturbed_until_s = 0.0
        """When other trouble than the script's is over."""
        self.on_recording_start: Callable[[], None] = lambda: None
        self.kills_both = False
        """Where an autoscaler lives beside the operator, a kill of one takes the other with it."""
        self._controllers: asyncio.Task[None] | None = None

    def _set_up(self, kubelets: Kubelets | None, holder: Callable[[], str | None] | None) -> None:
        """The world, who counts in it and who judges."""
        self.kube = SimulatedKube(self.rng, kubelets=kubelets)
        self.pod_tracker = PodTracker(self.kube.store)
        self.checks = RayClusterChecks(self.kube, self.pod_tracker, holder=holder)

    def lag(self) -> float:
        """How late the next watch line comes."""
        return self.rng.uniform(0.0, self.lag_s) if self.lag_s else 0.0

    def skewed_now(self) -> datetime:
        """Wall time of the machines on which operators and autoscalers run."""
        return self.kube.now() + timedelta(seconds=self.clock_ahead_s)

    def holder(self) -> str | None:
        """Whose lease it is at this instant."""
        entry = self.kube.store.find("leases.coordination.k8s.io", LEASE.namespace, LEASE.name)
        return entry.shared()["spec"].get("holderIdentity") if entry else None

    def leader(self) -> Replica:
        """Who works now, or would."""
        return next((replica for replica in self.replicas if replica.operator.is_leading), self.replicas[0])

    # --- playing -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The world begins to turn; the operator is started by whoever plays."""
        self._controllers = self.loop.create_task(self.kube.run_controllers())

    async def close(self) -> None:
        """The ordered end of everything."""
        for replica in self.replicas:
            await replica.operator.stop()
        controllers = self._controllers
        assert controllers is not None
        if controllers.done():
            self.checks.add_violation(f"the world's own controllers ended: {controllers.exception()!r}")
        controllers.cancel()

    def start_recording(self) -> None:
        """From here on calls and lines are counted, and the fault of this run may come."""
        self.script.recount()
        self.on_recording_start()

    def start(self) -> None:
        """Every replica begins to work."""
        for replica in self.replicas:
            replica.operator.start()

    def kill(self) -> None:
        """SIGKILL for whoever works; it comes back a moment later."""
        self.leader().operator.kill()
        self.checks.record_kill()

    def kill_replica(self, replica: Replica) -> None:
        """The script kills this one in the middle of a call."""
        replica.operator.kill()
        self.checks.record_kill()

    def gcs_calls(self) -> Sequence[str]:
        """The calls of the GCS since the beginning, where there is one."""
        return ()

    def inject_gcs_fault(self, number: int, fault: Any) -> None:
        """This call of the GCS meets that fault."""
        raise AssertionError(f"no Ray is played here: {number} {fault}")

    async def pass_time(self, seconds: float) -> None:
        """Let so much virtual time go by, or less when the run is red enough."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.checks.limit_reached.wait(), seconds)

    async def settle(self, within_s: float | None = None, step_s: float = 0.5) -> float:
        """Wait until everything is as wanted; a violation when it takes longer. Returns the seconds it took."""
        begun_s, within_s = self.loop.time(), self.esr_s if within_s is None else within_s
        while (difference := self.difference()) and not self.checks.limit_reached.is_set():
            if self.loop.time() > max(begun_s, self._faults_end_s()) + within_s:
                self.checks.add_violation(f"not as wanted {within_s:.0f} s after the last fault: {difference}")
                break
            await self.pass_time(step_s)
        return self.loop.time() - max(begun_s, self._faults_end_s())

    def _faults_end_s(self) -> float:
        met_s = self.script.last_met_s
        return max(met_s + self.fault_lasts_s if met_s is not None else 0.0, self.disturbed_until_s)

    def has_met_fault(self) -> bool:
        """Whether the fault of this run has come."""
        return bool(self.script.met)

    async def wait_for_faults(self) -> None:
        """Let the last fault come, and end."""
        until_s = self.loop.time() + self.fault_wait_s
        while not self.has_met_fault() and self.loop.time() < until_s:
            await self.pass_time(0.5)
        await self.pass_time(max(0.0, self._faults_end_s() - self.loop.time()))

    # --- looking -----------------------------------------------------------------------------------------------------

    def clusters(self) -> Iterator[dict[str, Any]]:
        """Every RayCluster there is, for reading."""
        return (entry.shared() for _, entry in self.kube.store.entries(RAYCLUSTERS, NAMESPACE))

    def difference(self) -> str:
        """What is not as the specs want it, in words; empty when all is well."""
        existing = set()
        for cluster in self.clusters():
            if "deletionTimestamp" in cluster["metadata"]:
                return f"{cluster['metadata']['name']} is still going"
            existing.add(cluster["metadata"]["uid"])
            if difference := self._difference_of(cluster):
                return f"{cluster['metadata']['name']}: {difference}"
        orphans = [pod.name for pod in self.pod_tracker.tracked_pods() if pod.owner_uid not in existing]
        return f"orphans: {orphans}" if orphans else self._orphaned_services(existing)

    def _orphaned_services(self, existing: set[str]) -> str:
        entries = self.kube.store.entries("services", NAMESPACE)
        orphans = [key.name for key, entry in entries if entry.owners and not existing.issuperset(entry.owners)]
        return f"orphans: {orphans}" if orphans else ""

    def _difference_of(self, cluster: dict[str, Any]) -> str:
        uid = cluster["metadata"]["uid"]
        counts = is_suspended(cluster)  # whether a worker that lost its group's label does: it runs on until then
        have = {group: count for group, count in self.pod_tracker.live_counts(uid).items() if group or counts}
        want = {
            "headgroup": 0 if is_suspended(cluster) else 1,
            **{k: v for k, v in desired_workers(cluster).items() if v},
        }
        want = {group: count for group, count in want.items() if count}
        if is_suspended(cluster) and (cluster.get("status") or {}).get("state") != "suspended":
            return "it does not say that it is suspended"
        if have != want:
            return f"have {have}, want {want}"
        services = self.kube.store.find("services", NAMESPACE, f"{cluster['metadata']['name']}-head-svc")
        if services is None or services.owners != (uid,):
            return "the head service is missing or another cluster's"
        members = [
            pod
            for pod in self.pod_tracker.all_pods(uid)
            if (pod.group or counts) and not self._is_on_stopped_kubelet(pod.name)
        ]
        if len(members) != sum(want.values()):
            return "pods that ended are still there"
        known = [pod for pod in members if pod.name not in self.checks.created_after_kill]
        if len({(pod.group, pod.index, pod.host) for pod in known}) != len(known):
            return "two workers of a group have the same replica index"
        if fault := self.checks.replica_checks.find_incomplete_replica(members, desired_state(cluster)):
            return fault
        if any(hosts > 1 for hosts in hosts_by_group(cluster).values()) and not self._has_headless_service(cluster):
            return "the headless service is missing or another cluster's"
        named = [pod.name for pod in members if pod.name in workers_to_delete(cluster)]
        return f"named and still there: {named}" if named else ""

    def _is_on_stopped_kubelet(self, name: str) -> bool:
        """It was told to end on a machine that is away: it stays until the machine or somebody with its Node decides."""
        pod = self.kube.store.find("pods", NAMESPACE, name)
        return pod is not None and pod.is_terminating and self.kube.is_kubelet_stopped(node_of(pod.shared()))

    def _has_headless_service(self, cluster: dict[str, Any]) -> bool:
        service = self.kube.store.find("services", NAMESPACE, f"{cluster['metadata']['name']}-headless")
        return service is not None and service.owners == (cluster["metadata"]["uid"],)

    def comparable_state(self) -> dict[str, Any]:
        """Everything that two runs may be compared by: no times, no uids, no random names."""
        clusters = {each["metadata"]["name"]: each for each in map(msgspec.json.decode, self._plain(RAYCLUSTERS))}
        for cluster in clusters.values():
            for group in cluster["spec"].get("workerGroupSpecs") or []:
                strategy = group.get("scaleStrategy") or {}
                if names := strategy.get("workersToDelete"):
                    strategy["workersToDelete"] = len(names)
        pods = [msgspec.json.decode(each) for each in sorted(self._plain("pods"))]
        services = [msgspec.json.decode(each) for each in self._plain("services")]
        return {"clusters": clusters, "pods": pods, "services": services}

    def _plain(self, resource: str) -> list[bytes]:
        return [_plain(entry.raw) for _, entry in self.kube.store.entries(resource, NAMESPACE)]

    def true_conditions(self, name: str) -> set[str]:
        """The types of a cluster's conditions that hold."""
        cluster = self.kube.cluster(name) or {}
        conditions = (cluster.get("status") or {}).get("conditions") or ()
        return {each["type"] for each in conditions if each["status"] == "True"}

    def counts(self) -> dict[str, Any]:
        """How many pods were made and are gone, per cluster and group."""
        return {"created": as_counts(self.pod_tracker.created), "deleted": as_counts(self.pod_tracker.deleted)}


@functools.lru_cache(maxsize=1024)  # most objects are as they were when they were looked at last
def _plain(raw: bytes) -> bytes:
    encoded = _RANDOM_SUFFIX.sub(rb"\1-*", msgspec.json.encode(_without_times(msgspec.json.decode(raw))))
    plain: dict[str, Any] = msgspec.json.decode(encoded)
    plain.get("spec", {}).pop("nodeName", None)
    if record := plain["metadata"].get("annotations", {}).get(DECISION_ANNOTATION):
        plain["metadata"]["annotations"][DECISION_ANNOTATION] = msgspec.json.decode(record)["groups"]
    # Which index is free when a worker comes depends on who has just gone; that no two have the same is asked elsewhere.
    for label in ("ray.io/worker-group-replica-index", "ray.io/worker-group-replica-name"):
        plain["metadata"].get("labels", {}).pop(label, None)
    return msgspec.json.encode(plain)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in _TIME_FIELDS}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


class _ErrorLogHandler(logging.Handler):
    """Hears errors in the product's log."""

    def __init__(self, checks: RayClusterChecks) -> None:
        super().__init__(logging.ERROR)
        self._checks = checks

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else ""
        self._checks.add_violation(f"logged as an error: {record.getMessage()} {error!r}")


@contextmanager
def log_errors_as_violations(checks: RayClusterChecks) -> Iterator[None]:
    """Whatever the product logs as an error, a bug's traceback above all, is a violation."""
    logger, handler = logging.getLogger("raytide"), _ErrorLogHandler(checks)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
