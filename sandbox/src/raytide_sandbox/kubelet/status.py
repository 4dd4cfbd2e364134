"""Pod status as a kubelet reports it.

Takes the pod, the records of its containers, facts about its sandbox, the previous status and the time; returns the
whole `status` object: phase, conditions, addresses, container states. A condition keeps its lastTransitionTime while
its status is unchanged, conditions of other controllers are kept as they are, and a Succeeded or Failed pod keeps its
phase. Pure; called by podworker.py before each write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide.api.quantity import QuantityError, to_millis
from raytide_sandbox.kubelet.compute_actions import Records, is_initialized
from raytide_sandbox.kubelet.containers import COMPLETED, ContainerRecord, Running, Terminated, Waiting
from raytide_sandbox.kubelet.podspec import ContainerSpec, PodSpec, RestartPolicy
from raytide_sandbox.rfc3339 import format_time

Condition = dict[str, Any]

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
FINAL_PHASES: Final = (SUCCEEDED, FAILED)

POD_SCHEDULED: Final = "PodScheduled"
READY_TO_START: Final = "PodReadyToStartContainers"
INITIALIZED: Final = "Initialized"
CONTAINERS_READY: Final = "ContainersReady"
READY: Final = "Ready"
_OURS: Final = (READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, POD_SCHEDULED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a pod failed as a whole, e.g. DeadlineExceeded."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """Facts about the pod beside its container records."""

    host_ip: str
    pod_ip: str | None = None
    has_sandbox: bool = False
    start_time: datetime | None = None
    is_final: bool = False
    """No container runs or will run again: the pod has finished or has been terminated."""
    failure: Failure | None = None


def build_status(
    pod: PodSpec, records: Records, facts: PodFacts, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Compute the status; equal inputs give an equal status, so that the caller writes only changes."""
    phase = pod_phase(pod, records, facts, str(previous.get("phase") or ""))
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": _conditions(pod, records, facts, phase=phase, previous=previous.get("conditions") or (), now=now),
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "qosClass": qos_class(pod),
        "containerStatuses": [_container_status(c, records[c.name]) for c in pod.containers],
    }
    if facts.start_time:
        status["startTime"] = format_time(facts.start_time)
    if facts.pod_ip:
        status |= {"podIP": facts.pod_ip, "podIPs": [{"ip": facts.pod_ip}]}
    if pod.init_containers:
        status["initContainerStatuses"] = [_container_status(c, records[c.name]) for c in pod.init_containers]
    if facts.failure:
        status |= {"reason": facts.failure.reason, "message": facts.failure.message}
    if generation := pod.raw["metadata"].get("generation"):
        status["observedGeneration"] = generation
    return status


def invalid_pod_status(reason: str, message: str, previous: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The status of a pod whose spec is invalid."""
    start_time = previous.get("startTime") or format_time(now)
    return {"phase": FAILED, "reason": reason, "message": message, "startTime": start_time}


# --- phase ---------------------------------------------------------------------------------------------------------
def pod_phase(pod: PodSpec, records: Records, facts: PodFacts, before: str = "") -> str:
    """Phase of the pod; a final phase in `before` is kept."""
    if before in FINAL_PHASES:
        return before
    if facts.failure:
        return FAILED if facts.is_final else before or PENDING
    ends = [records[c.name].end for c in pod.init_containers if not c.is_sidecar]
    if pod.restart_policy is RestartPolicy.NEVER and any(end and not end.is_success for end in ends):
        return FAILED if facts.is_final else PENDING
    mains = [records[c.name] for c in pod.containers]
    if facts.is_final and not any(record.is_running for record in mains):
        return _final_phase(mains)
    if not _is_past_initialization(pod, records) or any(not record.has_ever_started for record in mains):
        return PENDING
    return RUNNING


def _is_past_initialization(pod: PodSpec, records: Records) -> bool:
    """Whether all init containers have succeeded (sidecars: started) once; a lost sandbox does not reset the phase."""
    for container in pod.init_containers:
        record = records[container.name]
        end = record.end
        if container.is_sidecar:
            if not record.has_ever_started:
                return False
        elif end is None or not end.is_success:
            return False
    return True


def _final_phase(mains: Sequence[ContainerRecord]) -> str:
    ends = [record.end for record in mains]
    return SUCCEEDED if all(end is not None and end.is_success for end in ends) else FAILED


# --- conditions ----------------------------------------------------------------------------------------------------
def _conditions(
    pod: PodSpec,
    records: Records,
    facts: PodFacts,
    *,
    phase: str,
    previous: Sequence[Mapping[str, Any]],
    now: datetime,
) -> list[Condition]:
    before = {condition.get("type"): condition for condition in previous}
    containers_ready = _containers_ready(pod, records, phase)
    ours = (
        _condition(READY_TO_START, is_true=facts.has_sandbox and facts.pod_ip is not None),
        _initialized(pod, records, phase),
        {**_ready(pod, containers_ready, before), "type": READY},
        containers_ready,
        _condition(POD_SCHEDULED, is_true=True),
    )
    foreign = [dict(condition) for condition in previous if condition.get("type") not in _OURS]
    generation = pod.raw["metadata"].get("generation")
    return [_timed(condition, before, generation, now) for condition in ours] + foreign


def _condition(kind: str, *, is_true: bool, reason: str = "", message: str = "") -> Condition:
    condition: Condition = {"type": kind, "status": "True" if is_true else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _timed(
    condition: Condition, before: Mapping[Any, Mapping[str, Any]], generation: object, now: datetime
) -> Condition:
    old = before.get(condition["type"]) or {}
    is_same = old.get("status") == condition["status"] and old.get("lastTransitionTime")
    timed = {
        **condition,
        "lastProbeTime": None,
        "lastTransitionTime": old["lastTransitionTime"] if is_same else format_time(now),
    }
    return {**timed, "observedGeneration": generation} if generation else timed


def _initialized(pod: PodSpec, records: Records, phase: str) -> Condition:
    if phase == SUCCEEDED:
        return _condition(INITIALIZED, is_true=True, reason="PodCompleted")
    has_begun = any(records[c.name].is_running for c in pod.containers)
    if has_begun or is_initialized(pod, records) or (phase == FAILED and _is_past_initialization(pod, records)):
        return _condition(INITIALIZED, is_true=True)
    incomplete = [c.name for c in pod.init_containers if not _is_complete(c, records[c.name])]
    return _condition(
        INITIALIZED,
        is_true=False,
        reason="ContainersNotInitialized",
        message=f"containers with incomplete status: [{' '.join(incomplete)}]",
    )


def _is_complete(container: ContainerSpec, record: ContainerRecord) -> bool:
    if container.is_sidecar:
        return record.is_started
    return isinstance(record.state, Terminated) and record.state.is_success


def _containers_ready(pod: PodSpec, records: Records, phase: str) -> Condition:
    if phase in FINAL_PHASES:
        return _condition(CONTAINERS_READY, is_true=False, reason="PodCompleted" if phase == SUCCEEDED else "PodFailed")
    counted = [c for c in pod.all_containers if c.is_sidecar or not c.is_init]
    unready = [c.name for c in counted if not records[c.name].is_ready]
    if not unready:
        return _condition(CONTAINERS_READY, is_true=True)
    message = f"containers with unready status: [{' '.join(unready)}]"
    return _condition(CONTAINERS_READY, is_true=False, reason="ContainersNotReady", message=message)


def _ready(pod: PodSpec, containers_ready: Condition, before: Mapping[Any, Mapping[str, Any]]) -> Condition:
    if containers_ready["status"] != "True":
        return containers_ready
    closed = [gate for gate in pod.readiness_gates if (before.get(gate) or {}).get("status") != "True"]
    if not closed:
        return containers_ready
    message = "; ".join(f'the status of pod readiness gate "{gate}" is not "True"' for gate in closed)
    return _condition(READY, is_true=False, reason="ReadinessGatesNotReady", message=message)


# --- containers ----------------------------------------------------------------------------------------------------
def _container_status(container: ContainerSpec, record: ContainerRecord) -> dict[str, Any]:
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": record.image_id,
        "ready": record.is_ready,
        "started": record.is_started,
        "restartCount": record.restart_count,
        "state": _state(record.state),
        "lastState": _state(record.last) if record.last else {},
    }
    end = record.end
    container_id = record.state.container_id if isinstance(record.state, Running) else end.container_id if end else ""
    if container_id:
        status["containerID"] = container_id
    return status


def _state(state: Waiting | Running | Terminated) -> dict[str, Any]:
    if isinstance(state, Waiting):
        waiting = {"reason": state.reason}
        return {"waiting": {**waiting, "message": state.message} if state.message else waiting}
    if isinstance(state, Running):
        return {"running": {"startedAt": format_time(state.started_at)}}
    ended: dict[str, Any] = {
        "exitCode": state.exit_code,
        "reason": state.reason or (COMPLETED if state.is_success else "Error"),
        "startedAt": format_time(state.started_at) if state.started_at else None,
        "finishedAt": format_time(state.finished_at),
    }
    optional = {"signal": state.signal, "message": state.message, "containerID": state.container_id}
    return {"terminated": ended | {key: value for key, value in optional.items() if value}}


# --- quality of service --------------------------------------------------------------------------------------------
def qos_class(pod: PodSpec) -> str:
    """Guaranteed, Burstable or BestEffort, by requests and limits of CPU and memory."""
    pairs = [_amounts(container) for container in pod.all_containers]
    if not any(requests or limits for requests, limits in pairs):
        return "BestEffort"
    is_guaranteed = all(
        limits.get(resource) and requests.get(resource, limits[resource]) == limits[resource]
        for requests, limits in pairs
        for resource in ("cpu", "memory")
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


def _amounts(container: ContainerSpec) -> tuple[dict[str, int], dict[str, int]]:
    resources = container.raw.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    return _positive(resources.get("requests")), _positive(resources.get("limits"))


def _positive(amounts: object) -> dict[str, int]:
    found = {}
    for resource in ("cpu", "memory"):
        try:
            amount = to_millis(amounts[resource]) if isinstance(amounts, Mapping) and resource in amounts else 0
        except QuantityError:
            amount = 0
        if amount > 0:
            found[resource] = amount
    return found
