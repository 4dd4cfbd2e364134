"""Test environment: a simulated cluster with an operator in it, invariant checks and fault injection.

Histories and scenarios edit the simulated cluster and let virtual time pass. The environment compares the state with the
specs (`difference`) and returns the state without times and random names (`comparable_state`), by which two runs are
compared. Rules RM:I14–I16, I18, I19.
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

from support.faults.script import Script
from support.faults.transport import Faulty

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
"""The desired state must be reached within this time after the last fault."""
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
    """One operator replica with its own transport and fault script."""

    kind = OperatorUnderTest

    def __init__(self, env: "Environment", number: int, *, is_elected: bool) -> None:
        self.lag_s = 0.0
        """Lag of the watch events of this replica, unless the lag of all replicas is larger."""
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
    """A simulated cluster with invariant checks and one operator, or several replicas of which one leads."""

    recorded_for_s = 20.0
    """Calls and watch events are recorded until so long after the end of the scenario."""
    fault_wait_s = 0.0
    """How long after the end of the scenario the fault may still be injected, where calls are periodic."""
    esr_s = ESR_S
    """The desired state must be reached within this time after the last fault."""
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
        """How long a fault of the script lasts after it was injected."""
        self.disturbed_until_s = 0.0
        """When disturbances other than the faults of the script end, in seconds of the loop."""
        self.on_recording_start: Callable[[], None] = lambda: None
        self.kills_both = False
        """Where there is an autoscaler, a kill of operator or autoscaler kills both."""
        self._controllers: asyncio.Task[None] | None = None

    def _set_up(self, kubelets: Kubelets | None, holder: Callable[[], str | None] | None) -> None:
        """Create the simulated cluster, the pod tracker and the invariant checks."""
        self.kube = SimulatedKube(self.rng, kubelets=kubelets)
        self.pod_tracker = PodTracker(self.kube.store)
        self.checks = RayClusterChecks(self.kube, self.pod_tracker, holder=holder)

    def lag(self) -> float:
        """Lag of the next watch event."""
        return self.rng.uniform(0.0, self.lag_s) if self.lag_s else 0.0

    def skewed_now(self) -> datetime:
        """Wall time of the machines on which operators and autoscalers run."""
        return self.kube.now() + timedelta(seconds=self.clock_ahead_s)

    def holder(self) -> str | None:
        """The holder of the lease now."""
        entry = self.kube.store.find("leases.coordination.k8s.io", LEASE.namespace, LEASE.name)
        return entry.shared()["spec"].get("holderIdentity") if entry else None

    def leader(self) -> Replica:
        """The leading replica, or the first one."""
        return next((replica for replica in self.replicas if replica.operator.is_leading), self.replicas[0])

    # --- running =-----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the cluster's controllers; the caller starts the operator."""
        self._controllers = self.loop.create_task(self.kube.run_controllers())

    async def close(self) -> None:
        """Stop all processes in order."""
        for replica in self.replicas:
            await replica.operator.stop()
        controllers = self._controllers
        assert controllers is not None
        if controllers.done():
            self.checks.add_violation(f"the controllers of the simulated cluster ended: {controllers.exception()!r}")
        controllers.cancel()

    def start_recording(self) -> None:
        """From now on calls and watch events are numbered, and the fault of this run may be injected."""
        self.script.recount()
        self.on_recording_start()

    def start(self) -> None:
        """Start every replica."""
        for replica in self.replicas:
            replica.operator.start()

    def kill(self) -> None:
        """SIGKILL for the leader; it restarts a moment later."""
        self.leader().operator.kill()
        self.checks.record_kill()

    def kill_replica(self, replica: Replica) -> None:
        """Kill this replica in the middle of a call, as the fault script says."""
        replica.operator.kill()
        self.checks.record_kill()

    def gcs_calls(self) -> Sequence[str]:
        """The names of the GCS calls since `start_recording`; none without Ray."""
        return ()

    def inject_gcs_fault(self, number: int, fault: Any) -> None:
        """Inject the fault at the GCS call of this number."""
        raise AssertionError(f"no Ray is simulated here: {number} {fault}")

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, less if the limit of violations is reached."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.checks.limit_reached.wait(), seconds)

    async def settle(self, within_s: float | None = None, step_s: float = 0.5) -> float:
        """Wait for the desired state; a violation if it takes longer. Returns the seconds after the last fault."""
        begun_s, within_s = self.loop.time(), self.esr_s if within_s is None else within_s
        while (difference := self.difference()) and not self.checks.limit_reached.is_set():
            if self.loop.time() > max(begun_s, self._faults_end_s()) + within_s:
                self.checks.add_violation(
                    f"not in the desired state {within_s:.0f} s after the last fault: {difference}"
                )
                break
            await self.pass_time(step_s)
        return self.loop.time() - max(begun_s, self._faults_end_s())

    def _faults_end_s(self) -> float:
        met_s = self.script.last_met_s
        return max(met_s + self.fault_lasts_s if met_s is not None else 0.0, self.disturbed_until_s)

    def has_met_fault(self) -> bool:
        """Whether the fault of this run was injected."""
        return bool(self.script.met)

    async def wait_for_faults(self) -> None:
        """Wait until the fault was injected and has ended."""
        until_s = self.loop.time() + self.fault_wait_s
        while not self.has_met_fault() and self.loop.time() < until_s:
            await self.pass_time(0.5)
        await self.pass_time(max(0.0, self._faults_end_s() - self.loop.time()))

    # --- comparing-----------------------------------------------------------------------------------------------------

    def clusters(self) -> Iterator[dict[str, Any]]:
        """All RayClusters, read-only."""
        return (entry.shared() for _, entry in self.kube.store.entries(RAYCLUSTERS, NAMESPACE))

    def difference(self) -> str:
        """The first difference from the desired state; empty if there is none."""
        existing = set()
        for cluster in self.clusters():
            if "deletionTimestamp" in cluster["metadata"]:
                return f"{cluster['metadata']['name']} is still terminating"
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
        counts = is_suspended(cluster)  # a worker that lost its group label runs until the cluster is suspended
        have = {group: count for group, count in self.pod_tracker.live_counts(uid).items() if group or counts}
        has_other_head = self._has_ownerless_head(cluster["metadata"]["name"])
        want = {
            "headgroup": 0 if is_suspended(cluster) or (has_other_head and not have.get("headgroup")) else 1,
            **{k: v for k, v in desired_workers(cluster).items() if v},
        }
        want = {group: count for group, count in want.items() if count}
        if is_suspended(cluster) and (cluster.get("status") or {}).get("state") != "suspended":
            return "its status does not report the suspension"
        if have != want:
            return f"has {have}, desired {want}"
        services = self.kube.store.find("services", NAMESPACE, f"{cluster['metadata']['name']}-head-svc")
        if services is None or services.owners != (uid,):
            return "the head service is missing or another cluster's"
        members = [
            pod
            for pod in self.pod_tracker.all_pods(uid)
            if (pod.group or counts) and not self._is_on_stopped_kubelet(pod.name)
        ]
        if len(members) != sum(want.values()):
            return "ended pods still exist"
        known = [pod for pod in members if pod.name not in self.checks.created_after_kill]
        if len({(pod.group, pod.index, pod.host) for pod in known}) != len(known):
            return "two workers of a group have the same replica index"
        if fault := self.checks.replica_checks.find_incomplete_replica(members, desired_state(cluster)):
            return fault
        if any(hosts > 1 for hosts in hosts_by_group(cluster).values()) and not self._has_headless_service(cluster):
            return "the headless service is missing or another cluster's"
        named = [pod.name for pod in members if pod.name in workers_to_delete(cluster)]
        return f"still not deleted, though in workersToDelete: {named}" if named else ""

    def _has_ownerless_head(self, name: str) -> bool:
        """Whether there is a pod beside which the cluster gets no other head (FD:PS3-1)."""
        entries = self.kube.store.entries("pods", NAMESPACE)
        ownerless = (entry.shared() for _, entry in entries if not entry.owners)
        return any(
            (pod["metadata"].get("labels") or {}).get("ray.io/cluster") == name
            and pod["metadata"]["labels"].get("ray.io/node-type") == "head"
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            for pod in ownerless
        )

    def _is_on_stopped_kubelet(self, name: str) -> bool:
        """Whether it terminates on a node whose kubelet is stopped: it remains until the node is back or the Node is deleted."""
        pod = self.kube.store.find("pods", NAMESPACE, name)
        return pod is not None and pod.is_terminating and self.kube.is_kubelet_stopped(node_of(pod.shared()))

    def _has_headless_service(self, cluster: dict[str, Any]) -> bool:
        service = self.kube.store.find("services", NAMESPACE, f"{cluster['metadata']['name']}-headless")
        return service is not None and service.owners == (cluster["metadata"]["uid"],)

    def comparable_state(self) -> dict[str, Any]:
        """All objects without times, uids and random names, to compare two runs."""
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
        """The types of the conditions of a cluster whose status is True."""
        cluster = self.kube.cluster(name) or {}
        conditions = (cluster.get("status") or {}).get("conditions") or ()
        return {each["type"] for each in conditions if each["status"] == "True"}

    def counts(self) -> dict[str, Any]:
        """Numbers of created and deleted pods, per cluster and group."""
        return {"created": as_counts(self.pod_tracker.created), "deleted": as_counts(self.pod_tracker.deleted)}


@functools.lru_cache(maxsize=1024)  # most objects have not changed since the last comparison
def _plain(raw: bytes) -> bytes:
    encoded = _RANDOM_SUFFIX.sub(rb"\1-*", msgspec.json.encode(_without_times(msgspec.json.decode(raw))))
    plain: dict[str, Any] = msgspec.json.decode(encoded)
    plain.get("spec", {}).pop("nodeName", None)
    if record := plain["metadata"].get("annotations", {}).get(DECISION_ANNOTATION):
        plain["metadata"]["annotations"][DECISION_ANNOTATION] = msgspec.json.decode(record)["groups"]
    # Which index is free depends on which pod was deleted last; that no two are equal is checked elsewhere.
    for label in ("ray.io/worker-group-replica-index", "ray.io/worker-group-replica-name"):
        plain["metadata"].get("labels", {}).pop(label, None)
    return msgspec.json.encode(plain)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in _TIME_FIELDS}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


class _ErrorLogHandler(logging.Handler):
    """Records errors in the product's log as violations."""

    def __init__(self, checks: RayClusterChecks) -> None:
        super().__init__(logging.ERROR)
        self._checks = checks

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else ""
        self._checks.add_violation(f"logged as an error: {record.getMessage()} {error!r}")


@contextmanager
def log_errors_as_violations(checks: RayClusterChecks) -> Iterator[None]:
    """Record everything that the product logs as an error, such as the traceback of a bug, as a violation."""
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
