"""What is a pod without a Ray node doing, and how long may it take?

Takes the view of a pod whose Ray node has not registered, gives the one step of its start-up that it is in: waiting for a
scheduler, for a node, for init containers, for images, failing, or running without Ray. Each step has a time limit of its
own and its clock starts when the step does, so that a slow image pull is not counted against Ray and a pod that goes on
from step to step is never given up (SC:S13, B-16). A container that was restarted once has no trouble; one that waits to be
restarted, or is restarted again within the patience, has. Pure; used by instances.py, which keeps the clocks, and limits.py.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from raytide.api.pod import ContainerView, PodView
from raytide.api.pod_trouble import Cause, trouble_of
from raytide.autoscaler.inputs.lifecycle import TimeLimits


class Unready(StrEnum):
    """Steps that no trouble of a pod names; the others are those of api/pod_trouble.py."""

    NOT_SCHEDULED = "NotScheduled"
    NOT_INITIALIZED = "NotInitialized"
    NOT_STARTED = "ContainersNotStarted"
    NEVER_REGISTERED = "NeverRegistered"


NOT_PLACED: Final = frozenset({Unready.NOT_SCHEDULED, Cause.UNSCHEDULABLE, Cause.GATED})
"""Steps of a pod without a Kubernetes node."""


@dataclass(frozen=True, slots=True)
class Startup:
    """The step that a pod is in."""

    reason: str
    """A code, as in conditions; a value of `Unready` or `Cause`."""
    detail: str
    finished: int = 0
    """Containers that are done or running: one more is progress, and starts the clock anew."""
    has_ray_restarted: bool = False
    """Ray had its chance: however often it is started again, that is one step with one clock."""

    @property
    def step(self) -> str:
        """Changes whenever the pod gets further, or falls back."""
        return "RayRestarted" if self.has_ray_restarted else f"{self.reason}/{self.finished}"


def startup_of(pod: PodView, *, is_crash_loop: bool = False) -> Startup:
    """The step that it is in; `is_crash_loop`: containers were restarted again within the patience, says who counts."""
    trouble = trouble_of(pod)
    if trouble is not None and trouble.cause is not Cause.CRASH:
        return Startup(trouble.cause, trouble.detail)
    ray = _ray(pod)
    has_ray_restarted = ray is not None and ray.restart_count > 0
    if trouble is not None or is_crash_loop:
        # Between two crashes the container runs for a moment: that is the same step, with the same clock.
        detail = trouble.detail if trouble else _restarts(_most_restarted(pod))
        return Startup(Cause.CRASH, detail, has_ray_restarted=has_ray_restarted)
    if not pod.node_name and not pod.is_running:
        return Startup(Unready.NOT_SCHEDULED, "no scheduler has looked at it")
    if has_ray_restarted:
        detail = f"{_restarts(ray)} and its Ray node does not register"
        return Startup(Unready.NEVER_REGISTERED, detail, has_ray_restarted=True)
    if has_ray_started(pod):
        return Startup(Unready.NEVER_REGISTERED, "its Ray container runs and its Ray node does not register")
    finished = sum(map(_is_done, (*pod.init_containers, *pod.containers)))
    waiting = next((c for c in pod.init_containers if not _is_done(c)), None)
    if waiting is not None:
        return Startup(Unready.NOT_INITIALIZED, f"init container {waiting.name} has not finished", finished)
    return Startup(Unready.NOT_STARTED, "its images are pulled or its volumes mounted", finished)


def restart_count(pod: PodView) -> int:
    """Of the container that was restarted most often, those that are done left out."""
    container = _most_restarted(pod)
    return 0 if container is None else container.restart_count


def has_ray_started(pod: PodView) -> bool:
    """Whether the Ray container runs: from then on a Ray node is due."""
    ray = _ray(pod)
    return pod.is_running if ray is None else ray.state == "running"


def limit_s(startup: Startup, limits: TimeLimits, *, node_s: float | None = None) -> float:
    """How many seconds that step may last; `node_s`: how long the pod may wait for a node (node_autoscaler.py)."""
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


def _is_done(container: ContainerView) -> bool:
    """An init container that ended well, or any that runs beside the others (a native sidecar too)."""
    return container.exit_code == 0


def _most_restarted(pod: PodView) -> ContainerView | None:
    unfinished = (c for c in (*pod.init_containers, *pod.containers) if not _is_done(c))
    return max(unfinished, key=lambda container: container.restart_count, default=None)


def _restarts(container: ContainerView | None) -> str:
    if container is None:
        return ""
    count = container.restart_count
    return f"container {container.name} has been restarted {f'{count} times' if count > 1 else 'once'}"
