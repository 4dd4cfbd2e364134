"""Start-up step of a pod without a Ray node, and its time limit.

Takes the view of a pod whose Ray node has not registered. Returns its current step: waiting for a scheduler, a node,
init containers or images, failing, or running without Ray. Each step has its own limit and clock, so that a slow image
pull is not counted against Ray and a pod that makes progress is never given up (SC:S13, B-16). A single container
restart is no failure; waiting to be restarted, or another restart within the limit, is. The clock of crashes starts over
only after a container ran longer than the kubelet's longest back-off. An init container is waited
for until it has finished, a native sidecar until it has started. Pure; used by instances.py, which keeps the clocks,
and by group_availability.py.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from raytide.api.pod import ContainerView, PodView
from raytide.api.pod_failure import Cause, failure_of
from raytide.autoscaler.state.instance_lifecycle import TimeLimits
from raytide.diagnosis.model import Diagnosis


class Unready(StrEnum):
    """Steps without a pod failure; the others are those of api/pod_failure.py."""

    NOT_SCHEDULED = "NotScheduled"
    """No scheduler has considered a pod of the group within its time limit; the group backs off."""
    NOT_INITIALIZED = "NotInitialized"
    """Init containers took longer than their time limit; the group backs off."""
    NOT_STARTED = "ContainersNotStarted"
    """Pulling images and mounting volumes took longer than their time limit; the group backs off."""
    NEVER_REGISTERED = "NeverRegistered"
    """The Ray container runs, but its Ray node has not registered within its time limit; the group backs off."""


NOT_PLACED: Final = frozenset({Unready.NOT_SCHEDULED, Cause.UNSCHEDULABLE, Cause.GATED})
"""Steps of a pod without a Kubernetes node."""


@dataclass(frozen=True, slots=True)
class Startup:
    """The step a pod is in."""

    diagnosis: Diagnosis
    """Its reason is a value of `Unready` or `Cause`."""
    finished: int = 0
    """Completed containers and started native sidecars: one more is progress and restarts the clock."""
    has_ray_restarted: bool = False
    """The Ray container has been restarted: further restarts are one step with one clock."""

    @property
    def reason(self) -> str:
        """Reason code, as in conditions."""
        return self.diagnosis.reason

    @property
    def step(self) -> str:
        """Key of the step; it changes whenever the pod makes progress or falls back."""
        return "RayRestarted" if self.has_ray_restarted else f"{self.reason}/{self.finished}"


def startup_of(pod: PodView, *, is_crash_loop: bool = False) -> Startup:
    """The step of the pod; `is_crash_loop`: a container was restarted again within the limit (see `Restarts`)."""
    failure = failure_of(pod)
    if failure is not None and failure.reason != Cause.CRASH:
        return Startup(failure)
    ray = _ray(pod)
    has_ray_restarted = ray is not None and ray.restart_count > 0
    if failure is not None or is_crash_loop:
        # Between two crashes the container runs for a moment: that is the same step, with the same clock.
        crash = failure or _of_restarts(_most_restarted(pod))
        return Startup(crash, has_ray_restarted=has_ray_restarted)
    if not pod.node_name and not pod.is_running:
        return _startup(Unready.NOT_SCHEDULED, "no scheduler has processed it: check schedulerName of its template")
    if has_ray_restarted:
        detail = f"{_restarts(ray)}, and its Ray node has not registered"
        return _startup(Unready.NEVER_REGISTERED, detail, has_ray_restarted=True)
    if has_ray_started(pod):
        return _startup(Unready.NEVER_REGISTERED, "its Ray container is running, but its Ray node has not registered")
    finished = sum(map(_is_passed, (*pod.init_containers, *pod.containers)))
    waiting = next((c for c in pod.init_containers if not _is_passed(c)), None)
    if waiting is not None:
        return _startup(Unready.NOT_INITIALIZED, _not_initialized(waiting), finished)
    return _startup(Unready.NOT_STARTED, "its images are being pulled or its volumes mounted", finished)


def _startup(reason: Unready, message: str, finished: int = 0, *, has_ray_restarted: bool = False) -> Startup:
    return Startup(Diagnosis(reason.value, message=message), finished, has_ray_restarted)


def is_crashed(pod: PodView) -> bool:
    """Whether a container waits to be restarted after a crash."""
    failure = failure_of(pod)
    return failure is not None and failure.reason == Cause.CRASH


def restart_count(pod: PodView) -> int:
    """Restarts of the container that was restarted most often, completed ones left out."""
    container = _most_restarted(pod)
    return 0 if container is None else container.restart_count


def has_ray_started(pod: PodView) -> bool:
    """Whether the Ray container runs: from then on its Ray node should register."""
    ray = _ray(pod)
    return pod.is_running if ray is None else ray.state == "running"


def limit_s(startup: Startup, limits: TimeLimits, *, node_s: float | None = None) -> float:
    """Seconds the step may last; `node_s`: how long the pod may wait for a node (node_autoscaler_events.py)."""
    match startup.reason:
        case Cause.UNSCHEDULABLE:
            return limits.capacity_s if node_s is None else node_s
        case Cause.GATED:
            return limits.capacity_s
        case Unready.NOT_SCHEDULED:
            return limits.schedule_s
        case Unready.NOT_INITIALIZED:
            return limits.initialize_s
        case Unready.NOT_STARTED:
            return limits.pull_s
        case Unready.NEVER_REGISTERED:
            return limits.register_s
    return limits.broken_s


def _ray(pod: PodView) -> ContainerView | None:
    return next((c for c in pod.containers if c.name == pod.ray_container), None)


def _is_completed(container: ContainerView) -> bool:
    return container.exit_code == 0


def _is_passed(container: ContainerView) -> bool:
    """Whether the next container need not wait for it: it completed, or is a native sidecar that has started."""
    return _is_completed(container) or container.has_started


def _not_initialized(container: ContainerView) -> str:
    if container.is_sidecar:
        return f"sidecar container {container.name} has not started"
    return f"init container {container.name} has not completed"


def _most_restarted(pod: PodView) -> ContainerView | None:
    unfinished = (c for c in (*pod.init_containers, *pod.containers) if not _is_completed(c))
    return max(unfinished, key=lambda container: container.restart_count, default=None)


def _of_restarts(container: ContainerView | None) -> Diagnosis:
    found = Diagnosis(Cause.CRASH.value, message=_restarts(container))
    return found.having(container=container.name) if container is not None else found


def _restarts(container: ContainerView | None) -> str:
    if container is None:
        return ""
    count = container.restart_count
    return f"container {container.name} has been restarted {f'{count} times' if count > 1 else 'once'}"
