"""Security context of a container, as far as the sandbox applies it.

Takes a container, its pod and its image, merges both security contexts as a kubelet does, and returns what a process on
this machine can apply: user, group, read-only root, no new privileges. Other settings (capabilities, seccomp, SELinux,
privileged, supplementary groups) are ignored silently; docs/sandbox.md lists them. A container that violates
runAsNonRoot raises `PodSpecError` with the kubelet's message. Pure; called by start_container.py.
"""

from collections.abc import Mapping
from typing import Any, Final

from raytide_sandbox.container_runtime.interface import Image, Security
from raytide_sandbox.kubelet.podspec import ContainerSpec, PodSpec, PodSpecError, integer

_MERGED: Final = ("runAsUser", "runAsGroup", "runAsNonRoot")
"""Fields of the pod's security context that the container's overrides."""


def build_security(pod: PodSpec, container: ContainerSpec, image: Image) -> Security:
    """Merge both security contexts for one start of this container; raises PodSpecError."""
    of_pod, of_container = _context(pod.raw.get("spec")), _context(container.raw)
    merged = {
        name: of_container.get(name) if of_container.get(name) is not None else of_pod.get(name) for name in _MERGED
    }
    user, group = integer(merged["runAsUser"], 0), integer(merged["runAsGroup"], 0)
    if merged["runAsNonRoot"] is True and user == 0:
        user = _non_root_user(pod, container, image, is_root_asked_for=merged["runAsUser"] is not None)
    return Security(
        user=user,
        group=group,
        is_root_read_only=of_container.get("readOnlyRootFilesystem") is True,
        has_no_new_privileges=of_container.get("allowPrivilegeEscalation") is False,
    )


def _non_root_user(pod: PodSpec, container: ContainerSpec, image: Image, *, is_root_asked_for: bool) -> int:
    """The image's user, which is used for runAsNonRoot only; raises PodSpecError when root is requested or the default."""
    place = f'(pod: "{pod.full_name}", container: {container.name})'
    if is_root_asked_for:
        raise PodSpecError(f"container's runAsUser breaks non-root policy {place}")
    if image.user == 0:
        raise PodSpecError(f"container has runAsNonRoot and image will run as root {place}")
    return image.user


def _context(holder: Any) -> Mapping[str, Any]:
    found = holder.get("securityContext") if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}
