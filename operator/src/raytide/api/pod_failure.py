"""Causes that keep a pod from being created or from running.

Takes the view of a pod, or the API server's message for a rejected create, and returns the one cause a user can act on:
quota, image, scheduling gate, crash, configuration, no feasible node. Each cause has one short code, with Kubernetes'
message; a pod that is merely starting has none. Used to order victims, by status and by events (SC:S21, SC:S13).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from raytide.api.pod import ContainerView, ManagedPod, PodCondition
from raytide.diagnosis.kubernetes_messages import is_invalid
from raytide.diagnosis.model import Diagnosis

Pod = TypeVar("Pod", bound=ManagedPod)


class Cause(StrEnum):
    """The cause, spelled like a condition reason."""

    QUOTA = "QuotaExceeded"
    """A quota that the pods count against is used up."""
    FORBIDDEN = "CreationForbidden"
    """The API server rejects the pods for another reason than a quota or a field: a policy, a webhook, a missing object or permission."""
    INVALID = "CreationInvalid"
    """The API server rejects an object that has an invalid field, such as a pod with two containers of one name."""
    NAME_TAKEN = "NameTaken"
    """An object of another owner has the name of a service, ConfigMap or pod that has to be created."""
    UNSCHEDULABLE = "Unschedulable"
    """kube-scheduler finds no node for a pod; the message is kube-scheduler's."""
    GATED = "SchedulingGated"
    """A pod has a scheduling gate, which the controller that set it has to remove."""
    IMAGE = "ImagePullFailed"
    """An image of a pod cannot be pulled, or its name is invalid."""
    CRASH = "CrashLoop"
    """A container of a pod ends again and again, or cannot be started."""
    ENDED = "EndedBeforeReady"
    """A pod ended without having been ready: its container ended, or the kubelet rejected or evicted it."""
    CONFIG = "ContainerConfigError"
    """A container cannot be created because of its configuration, such as a ConfigMap or Secret that does not exist."""


REJECTIONS: Final = frozenset({Cause.QUOTA, Cause.FORBIDDEN, Cause.INVALID, Cause.NAME_TAKEN})
"""Causes for which the API server rejects a create."""
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
NOT_OURS: Final = "with another owner or group"
"""What the executor appends to "already exists" when the existing object belongs to another owner."""
CRASH_REASONS: Final = frozenset({"CrashLoopBackOff", "RunContainerError", "StartError", "PostStartHookError"})
CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_CAUSE_BY_REASON: Final = {
    **dict.fromkeys(IMAGE_REASONS, Cause.IMAGE),
    **dict.fromkeys(CRASH_REASONS, Cause.CRASH),
    **dict.fromkeys(CONFIG_REASONS, Cause.CONFIG),
}
_CAUSE_BY_TEXT: Final = {"exceeded quota": Cause.QUOTA, NOT_OURS: Cause.NAME_TAKEN}


class PodConditions(Protocol):
    """The fields of a pod view that the cause is derived from, for pods of every kind."""

    @property
    def scheduled(self) -> PodCondition:
        """PodScheduled."""
        ...

    @property
    def containers(self) -> tuple[ContainerView, ...]:
        """State of its containers."""
        ...

    @property
    def init_containers(self) -> tuple[ContainerView, ...]:
        """State of its init containers."""
        ...

    @property
    def failed_start(self) -> str:
        """How it ended, if it ended without having been ready; else empty."""
        ...

    @property
    def failed_start_container(self) -> str:
        """The container by which it ended then; empty if there is none."""
        ...


def failure_of(pod: PodConditions) -> Diagnosis | None:
    """The cause that keeps this pod from running, with the parameter `container` if it is one; None when none is known."""
    if pod.failed_start:
        return Diagnosis(Cause.ENDED.value, message=pod.failed_start).having(container=pod.failed_start_container)
    for container in (*pod.init_containers, *pod.containers):
        cause = _CAUSE_BY_REASON.get(container.reason) if container.state == "waiting" else None
        if cause is not None:
            return Diagnosis(cause.value, message=_container_message(container)).having(container=container.name)
    if pod.scheduled.reason == "SchedulingGated":
        return Diagnosis(Cause.GATED.value, message=pod.scheduled.message or "the pod has scheduling gates")
    if pod.scheduled.status == "False" and pod.scheduled.reason == "Unschedulable":
        return Diagnosis(Cause.UNSCHEDULABLE.value, message=pod.scheduled.message)
    return None


def failing_pod(pods: Iterable[Pod], reason: str = "") -> Pod | None:
    """The pod to look at: one with that cause, else one with any known cause, else one that is not ready; None if all are.

    Of several the first by name, so that the same pods give the same one in any order.
    """
    unready = [pod for pod in pods if not pod.is_terminating and not pod.is_running_and_ready]
    causes = {pod.name: failure.reason for pod in unready if (failure := failure_of(pod)) is not None}
    return min(
        unready,
        key=lambda pod: (causes.get(pod.name, "") != reason if reason else False, pod.name not in causes, pod.name),
        default=None,
    )


def failure_of_rejection(message: str) -> Diagnosis:
    """The cause that keeps an object from being created, from the API server's message."""
    other = Cause.INVALID if is_invalid(message) else Cause.FORBIDDEN
    cause = next((cause for text, cause in _CAUSE_BY_TEXT.items() if text in message), other)
    return Diagnosis(cause.value, message=message)


def is_namespace_terminating(message: str) -> bool:
    """Whether a create was rejected only because the namespace is terminating, which needs no event."""
    return "because it is being terminated" in message


def _container_message(container: ContainerView) -> str:
    return f"container {container.name}: {container.reason}" + (f": {container.message}" if container.message else "")
