"""Decision which containers of a pod to start or stop now.

Takes the pod, the record of each container and the time. Returns the updated records (a terminated container may have
become a waiting one), the names to start and to stop, and when to decide again. Init containers run one after another;
a sidecar blocks the next one only until it has started. The app containers then start together and restart as
restartPolicy says. Pure; podworker.py calls it after every change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from raytide_sandbox.kubelet.containers import (
    CONTAINER_CREATING,
    CRASH_LOOP_BACK_OFF,
    ERR_IMAGE_PULL,
    POD_INITIALIZING,
    SHOW_PULL_ERROR_S,
    SIGKILL_EXIT_CODE,
    STATUS_UNKNOWN,
    ContainerRecord,
    Terminated,
    Waiting,
    backoff_message,
    exited,
    held_back,
    shown_pull_error,
)
from raytide_sandbox.kubelet.podspec import ContainerSpec, PodSpec, RestartPolicy
from raytide_sandbox.rfc3339 import parse_time

Records = Mapping[str, ContainerRecord]


@dataclass(frozen=True, slots=True)
class PodActions:
    """The next step of a pod; `is_over` means that no container of it runs or will run again."""

    records: Records
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: datetime | None = None
    is_over: bool = False


@dataclass(slots=True)
class _ActionsBuilder:
    records: dict[str, ContainerRecord]
    now: datetime
    start: list[str] = field(default_factory=list)
    wakes: list[datetime] = field(default_factory=list)

    def finish(self, *, stop: tuple[str, ...] = (), is_over: bool = False) -> PodActions:
        return PodActions(
            records=self.records,
            start=tuple(self.start),
            stop=stop,
            wake_at=min(self.wakes, default=None),
            is_over=is_over,
        )


def initial_records(pod: PodSpec) -> dict[str, ContainerRecord]:
    """Records of a pod whose containers have never started."""
    reason = POD_INITIALIZING if pod.init_containers else CONTAINER_CREATING
    return {container.name: ContainerRecord(Waiting(reason)) for container in pod.all_containers}


def decide(pod: PodSpec, records: Records, now: datetime) -> PodActions:
    """Decide the next step of a pod that is not terminating."""
    builder = _ActionsBuilder(dict(records), now)
    if _is_spent(pod, records):
        return _wind_down(pod, builder)
    if _initialize(pod, builder):
        for container in pod.containers:
            _keep_running(pod, container, builder)
    return builder.finish()


def is_finished(pod: PodSpec, container: ContainerSpec, record: ContainerRecord) -> bool:
    """Whether the container has terminated and its restart policy does not restart it."""
    return isinstance(record.state, Terminated) and not _is_wanted_again(pod, container, record.state)


def _is_spent(pod: PodSpec, records: Records) -> bool:
    """Whether no app container will run again: all have finished, or an init container has failed permanently."""
    has_failed = any(
        is_finished(pod, c, records[c.name]) and not _has_done_its_part(c, records[c.name]) for c in pod.init_containers
    )
    return has_failed or all(is_finished(pod, c, records[c.name]) for c in pod.containers)


def is_initialized(pod: PodSpec, records: Records) -> bool:
    """Whether every init container has succeeded or, if it is a sidecar, has started."""
    return all(_has_done_its_part(c, records[c.name]) for c in pod.init_containers)


# --- init containers -----------------------------------------------------------------------------------------------
def _initialize(pod: PodSpec, builder: _ActionsBuilder) -> bool:
    """Start the init containers that are due; returns whether the app containers may run."""
    for container in pod.init_containers:
        record = builder.records[container.name]
        if not record.is_running:
            _keep_running(pod, container, builder)
        if not _has_done_its_part(container, record) and not _has_begun(pod, builder):
            return False
    return True


def _has_done_its_part(container: ContainerSpec, record: ContainerRecord) -> bool:
    if container.is_sidecar:
        return record.is_running and record.is_started
    return isinstance(record.state, Terminated) and record.state.is_success


def _has_begun(pod: PodSpec, builder: _ActionsBuilder) -> bool:
    """Whether the pod is past initialization, so that a restarting sidecar does not block the app containers."""
    is_past = any(builder.records[c.name].is_running for c in pod.containers)
    return is_past and all(c.is_sidecar or _has_done_its_part(c, builder.records[c.name]) for c in pod.init_containers)


# --- starting and stopping -----------------------------------------------------------------------------------------
def _keep_running(pod: PodSpec, container: ContainerSpec, builder: _ActionsBuilder) -> None:
    record = builder.records[container.name]
    if record.is_running or is_finished(pod, container, record):
        return
    if not record.is_held_back(builder.now):
        builder.start.append(container.name)
        return
    record = shown_pull_error(held_back(record), container.image, builder.now)
    if isinstance(record.state, Waiting) and record.state.reason == CRASH_LOOP_BACK_OFF:
        message = backoff_message(record, container.name, pod.full_name)
        record = replace(record, state=replace(record.state, message=message))
    builder.records[container.name] = record
    builder.wakes.append(_next_look(record, builder.now))


def _next_look(record: ContainerRecord, now: datetime) -> datetime:
    retry_at = record.retry_at or now
    if isinstance(record.state, Waiting) and record.state.reason == ERR_IMAGE_PULL:
        return min(retry_at, retry_at - timedelta(seconds=record.pull_backoff_s - SHOW_PULL_ERROR_S))
    return retry_at


def _is_wanted_again(pod: PodSpec, container: ContainerSpec, end: Terminated) -> bool:
    policy = pod.policy_of(container)
    return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and not end.is_success)


def _wind_down(pod: PodSpec, builder: _ActionsBuilder) -> PodActions:
    """Stop the containers that still run, in reverse order; the pod is over when none runs."""
    running = tuple(c.name for c in reversed(pod.all_containers) if builder.records[c.name].is_running)
    return builder.finish(stop=running, is_over=not running)


# --- after the loss of a sandbox -----------------------------------------------------------------------------------
def after_sandbox_loss(pod: PodSpec, records: Records) -> dict[str, ContainerRecord]:
    """Reset the init containers for a new sandbox, unless restartPolicy is Never or all app containers are done."""
    fresh = dict(records)
    if pod.restart_policy is RestartPolicy.NEVER:
        return fresh
    if all(is_finished(pod, c, fresh[c.name]) for c in pod.containers):
        return fresh
    for container in pod.init_containers:
        record = fresh[container.name]
        if isinstance(record.state, Terminated):
            fresh[container.name] = replace(record, state=Waiting(POD_INITIALIZING), last=record.state, retry_at=None)
    return fresh


def recovered_records(pod: PodSpec, status: Mapping[str, Any], now: datetime) -> dict[str, ContainerRecord]:
    """Rebuild the records from the API status after a kubelet restart: running containers count as lost."""
    status_by_name = {
        entry.get("name"): entry
        for entry in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    }
    records = initial_records(pod)
    for name, record in records.items():
        if name in status_by_name:
            records[name] = _recovered(record, status_by_name[name], now)
    if any(r.has_ever_started for r in records.values()):
        return after_sandbox_loss(pod, records)
    return records


def _recovered(record: ContainerRecord, status: Mapping[str, Any], now: datetime) -> ContainerRecord:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    known = replace(
        record,
        last=_terminated_from_status(last["terminated"], now) if last.get("terminated") else None,
        restart_count=int(status.get("restartCount") or 0),
        image_id=str(status.get("imageID") or ""),
    )
    if state.get("terminated"):
        return replace(known, state=_terminated_from_status(state["terminated"], now))
    if not state.get("running"):
        return known
    lost = Terminated(
        exit_code=SIGKILL_EXIT_CODE,
        finished_at=now,
        started_at=parse_time(state["running"].get("startedAt")),
        reason=STATUS_UNKNOWN,
        message="The container could not be located when the kubelet started",
        container_id=str(status.get("containerID") or ""),
    )
    return exited(known, lost)


def _terminated_from_status(ended: Mapping[str, Any], now: datetime) -> Terminated:
    return Terminated(
        exit_code=int(ended.get("exitCode") or 0),
        finished_at=parse_time(ended.get("finishedAt")) or now,
        started_at=parse_time(ended.get("startedAt")),
        signal=int(ended.get("signal") or 0),
        reason=str(ended.get("reason") or ""),
        message=str(ended.get("message") or ""),
        container_id=str(ended.get("containerID") or ""),
    )
