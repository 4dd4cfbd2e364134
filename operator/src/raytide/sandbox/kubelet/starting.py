"""How does one container get from its specification to a running one?

Takes a container, its pod, its sandbox and the paths of its volumes; reads what it refers to, completes command,
environment and mounts, and asks the runtime to start it. What prevents a start raises `CannotStart` or
`ImageMissing`, which say the reason a kubelet would report; nothing else escapes but trouble of the runtime. Called by
podworker.py for each start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raytide.sandbox.kubelet.apiclient import ApiRefusal, ApiSilence
from raytide.sandbox.kubelet.containers import CONFIG_ERROR, ERR_IMAGE_NEVER_PULL
from raytide.sandbox.kubelet.env import ConfigMissing, build_argv, build_environment, references
from raytide.sandbox.kubelet.host import Host
from raytide.sandbox.kubelet.podfiles import PodFiles
from raytide.sandbox.kubelet.podspec import BadSpec, ContainerSpec, PodSpec
from raytide.sandbox.kubelet.security import build_security
from raytide.sandbox.kubelet.volumefiles import ensure_mount_source
from raytide.sandbox.kubelet.volumes import plan_mounts
from raytide.sandbox.node.runtime import Container, ContainerConfig, Image, Mount, Sandbox


class CannotStart(Exception):  # noqa: N818 - an answer about the pod, not an error of ours
    """Something the container refers to is missing or has no meaning; tried again later."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ImageMissing(Exception):  # noqa: N818 - an answer about the pod, not an error of ours
    """Nothing on this machine stands for the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of one container."""

    pod: PodSpec
    spec: ContainerSpec
    sandbox: Sandbox
    files: PodFiles
    places: Mapping[str, Path]
    attempt: int


def find_image(host: Host, spec: ContainerSpec) -> Image:
    """The image; raises ImageMissing, or CannotStart when the policy is to pull nothing."""
    image = host.runtime.image(spec.image)
    if image is not None:
        return image
    if spec.image_pull_policy == "Never":
        message = f'Container image "{spec.image}" is not present with pull policy of Never'
        raise CannotStart(ERR_IMAGE_NEVER_PULL, message)
    raise ImageMissing(f'no local command environment stands for the image "{spec.image}"')


async def start_container(host: Host, start: Start, image: Image) -> Container:
    """Start it; raises CannotStart and RuntimeTrouble."""
    try:
        config = await _configure(host, start, image)
    except (ConfigMissing, BadSpec, ApiRefusal, ApiSilence, OSError, ValueError) as trouble:
        raise CannotStart(CONFIG_ERROR, str(trouble)) from trouble
    if not config.argv:
        raise CannotStart("CreateContainerError", "no command specified")
    return await host.runtime.start_container(start.sandbox, config)


async def _configure(host: Host, start: Start, image: Image) -> ContainerConfig:
    pod, spec = start.pod, start.spec
    sources = await host.read_sources(pod, references(spec))
    environment = build_environment(pod, spec, host.surroundings(start.sandbox.ip), sources)
    seen = {**image.env, **environment}
    mounts = tuple(
        Mount(source=ensure_mount_source(mount.source), target=mount.target, is_read_only=mount.is_read_only)
        for mount in plan_mounts(spec, start.places, environment)
    )
    return ContainerConfig(
        name=spec.name,
        image=spec.image,
        argv=build_argv(spec, seen, entrypoint=image.entrypoint, image_command=image.command),
        log_path=start.files.log(spec.name, start.attempt),
        env=environment,
        working_dir=spec.working_dir,
        mounts=(*mounts, _message_mount(start)),
        attempt=start.attempt,
        has_stdin=spec.has_stdin,
        is_tty=spec.is_tty,
        security=build_security(pod, spec, image),
    )


def _message_mount(start: Start) -> Mount:
    """The file for last words."""
    path = start.files.prepare_message(start.spec.name, start.attempt)
    return Mount(source=path, target=start.spec.termination_message_path)
