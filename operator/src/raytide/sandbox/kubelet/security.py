"""As whom may a container run, and what may it write?

Takes a container, its pod and its image, merges both security contexts the way a kubelet does, and gives the few values
that a process on this machine can honour: user, group, a read-only root, no new privileges. What cannot be
(capabilities, seccomp, SELinux, privileged, supplementary groups) is left out without a word here and listed in
docs/sandbox.md. A container that must not be root and would be raises `BadSpec` with the words of a kubelet. Pure; called
by starting.py.
"""

from collections.abc import Mapping
from typing import Any, Final

from raytide.sandbox.kubelet.podspec import BadSpec, ContainerSpec, PodSpec, integer
from raytide.sandbox.node.runtime import Image, Security

_MERGED: Final = ("runAsUser", "runAsGroup", "runAsNonRoot")
"""Said for the pod, and by a container differently."""


def build_security(pod: PodSpec, container: ContainerSpec, image: Image) -> Security:
    """What holds for one start of this container; raises BadSpec."""
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
    """The image's own user, which otherwise counts for nothing here."""
    place = f'(pod: "{pod.full_name}", container: {container.name})'
    if is_root_asked_for:
        raise BadSpec(f"container's runAsUser breaks non-root policy {place}")
    if image.user == 0:
        raise BadSpec(f"container has runAsNonRoot and image will run as root {place}")
    return image.user


def _context(holder: Any) -> Mapping[str, Any]:
    found = holder.get("securityContext") if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}
