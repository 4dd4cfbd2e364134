"""Ready count, STATUS text and restarts of a pod, as `kubectl get` prints them.

Takes a pod and returns the values of the READY, STATUS and RESTARTS columns by the rules of the real printer: init
containers first, then the reasons of containers, then the pod's phase; Terminating overrides them. Pure. Called by
`printers.py`.
"""

from typing import Any, Final, NamedTuple

Json = dict[str, Any]

_ENDED: Final = {"Succeeded", "Failed"}


class Summary(NamedTuple):
    """The values of one row; `last_restart` is the timestamp of the last restart, "" without one."""

    ready: int
    total: int
    reason: str
    restarts: int
    last_restart: str


def summary(pod: Json) -> Summary:
    """Compute the row of one pod."""
    spec, status, metadata = pod.get("spec") or {}, pod.get("status") or {}, pod["metadata"]
    containers = status.get("containerStatuses") or []
    init = status.get("initContainerStatuses") or []
    sidecars = {item["name"] for item in spec.get("initContainers") or () if item.get("restartPolicy") == "Always"}
    reason = _pod_reason(status)
    init_reason = _init_reason(init, spec, sidecars)
    counted = init if init_reason else [*containers, *(item for item in init if item.get("name") in sidecars)]
    reason = init_reason or _container_reason(containers, status, reason)
    ready = sum(1 for item in containers if item.get("ready") and "running" in (item.get("state") or {}))
    ready += sum(1 for item in init if item.get("name") in sidecars and item.get("ready"))
    if metadata.get("deletionTimestamp") and status.get("reason") == "NodeLost":
        reason = "Unknown"
    elif metadata.get("deletionTimestamp") and status.get("phase") not in _ENDED:
        reason = "Terminating"
    restarts = sum(item.get("restartCount", 0) for item in counted)
    ends = [_ended(item.get("lastState")).get("finishedAt") or "" for item in counted]
    total = len(spec.get("containers") or ()) + len(sidecars)
    return Summary(ready, total, reason, restarts, max(ends, default=""))


def _pod_reason(status: Json) -> str:
    phase = status.get("phase") or ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            phase = "SchedulingGated"
    return status.get("reason") or phase


def _ended(state: Json | None) -> Json:
    found: Json = (state or {}).get("terminated") or {}
    return found


def _exit_text(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _init_reason(statuses: list[Json], spec: Json, sidecars: set[str]) -> str:
    """Why the pod is still initializing, or "" when it is not."""
    total = len(spec.get("initContainers") or ())
    for index, item in enumerate(statuses):
        state = item.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if item.get("name") in sidecars and item.get("started"):
            continue
        if ended is not None:
            return f"Init:{_exit_text(ended)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return ""


def _container_reason(statuses: list[Json], status: Json, reason: str) -> str:
    has_running = False
    for item in reversed(statuses):
        state = item.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _exit_text(ended)
        elif item.get("ready") and "running" in state:
            has_running = True
    if reason == "Completed" and has_running:
        conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or ()}
        return "Running" if conditions.get("Ready") == "True" else "NotReady"
    return reason
