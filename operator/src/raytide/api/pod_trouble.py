"""Why is a pod, or its creation, stuck?

Takes the view of a pod of any kind, or the API's words when it refused a create, and names the one cause a person would
act on: quota, image, gate, crash, configuration, no node that fits. It promises one short code per cause and keeps the
words of Kubernetes as detail; a pod that is merely starting has no trouble. Read by the order of victims, by status and
by events (SC:S21, SC:S13).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from raytide.api.pod import ContainerView, PodCondition


class Cause(StrEnum):
    """The cause, spelled as condition reasons are."""

    QUOTA = "QuotaExceeded"
    FORBIDDEN = "CreationForbidden"
    NAME_TAKEN = "NameTaken"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "SchedulingGated"
    IMAGE = "ImagePullFailed"
    CRASH = "CrashLoop"
    CONFIG = "ContainerConfigError"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One cause, and what Kubernetes says about it."""

    cause: Cause
    detail: str


IMAGE_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
NOT_OURS: Final = "and is not ours"
"""What the executor adds to "already exists" when somebody else's object has the name."""
CRASH_REASONS: Final = frozenset({"CrashLoopBackOff", "RunContainerError", "StartError", "PostStartHookError"})
CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_CAUSE_BY_REASON: Final = {
    **dict.fromkeys(IMAGE_REASONS, Cause.IMAGE),
    **dict.fromkeys(CRASH_REASONS, Cause.CRASH),
    **dict.fromkeys(CONFIG_REASONS, Cause.CONFIG),
}
_CAUSE_BY_WORDS: Final = {"exceeded quota": Cause.QUOTA, NOT_OURS: Cause.NAME_TAKEN}


class PodSigns(Protocol):
    """What every view of a pod shows, whatever the pod is for."""

    @property
    def scheduled(self) -> PodCondition:
        """PodScheduled."""
        ...

    @property
    def containers(self) -> tuple[ContainerView, ...]:
        """How its containers are doing."""
        ...

    @property
    def init_containers(self) -> tuple[ContainerView, ...]:
        """Those that come before."""
        ...


def trouble_of(pod: PodSigns) -> Trouble | None:
    """What keeps this pod from working, or None when nothing is known to."""
    for container in (*pod.init_containers, *pod.containers):
        cause = _CAUSE_BY_REASON.get(container.reason) if container.state == "waiting" else None
        if cause is not None:
            return Trouble(cause, _said_of(container))
    if pod.scheduled.reason == "SchedulingGated":
        return Trouble(Cause.GATED, pod.scheduled.message or "scheduling gates are present")
    if pod.scheduled.status == "False" and pod.scheduled.reason == "Unschedulable":
        return Trouble(Cause.UNSCHEDULABLE, pod.scheduled.message)
    return None


def trouble_of_refusal(reason: str, message: str) -> Trouble:
    """What keeps a pod from being created, from the API's own words."""
    cause = next((cause for words, cause in _CAUSE_BY_WORDS.items() if words in message), Cause.FORBIDDEN)
    return Trouble(cause, message or reason)


def is_namespace_terminating(message: str) -> bool:
    """Whether a refusal only says that the whole namespace is on its way out (nobody needs to be told)."""
    return "because it is being terminated" in message


def _said_of(container: ContainerView) -> str:
    return f"container {container.name}: {container.reason}" + (f": {container.message}" if container.message else "")
