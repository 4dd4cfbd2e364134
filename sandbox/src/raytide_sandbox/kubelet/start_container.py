"""Start of one container from its spec.

Takes a container, its pod, its sandbox and the paths of its volumes; reads the objects it refers to, completes command,
environment and mounts, and starts it in the runtime. A start that is not possible raises `StartContainerError` or
`ImageMissingError` with the reason a kubelet would report; errors of the runtime raise ContainerRuntimeError. Called by
podworker.py for each start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raytide_sandbox.container_runtime.interface import Container, ContainerConfig, Image, Mount, Sandbox
from raytide_sandbox.kubelet.apiclient import ApiStatusError, ApiUnavailableError
from raytide_sandbox.kubelet.containers import CONFIG_ERROR, ERR_IMAGE_NEVER_PULL
from raytide_sandbox.kubelet.env import ConfigMissingError, build_argv, build_environment, references
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.podfiles import PodFiles
from raytide_sandbox.kubelet.podspec import ContainerSpec, PodSpec, PodSpecError
from raytide_sandbox.kubelet.security import build_security
from raytide_sandbox.kubelet.volumefiles import ensure_mount_source
from raytide_sandbox.kubelet.volumes import plan_mounts


class StartContainerError(Exception):
    """A reference or setting of the container is missing or invalid; the start is retried later."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ImageMissingError(Exception):
    """No environment on this machine stands for the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Input of one start of a container."""

    pod: PodSpec
    spec: ContainerSpec
    sandbox: Sandbox
    files: PodFiles
    places: Mapping[str, Path]
    attempt: int


def find_image(host: Host, spec: ContainerSpec) -> Image:
    """Find the image; raises ImageMissingError, or StartContainerError when imagePullPolicy is Never."""
    image = host.runtime.image(spec.image)
    if image is not None:
        return image
    if spec.image_pull_policy == "Never":
        message = f'Container image "{spec.image}" is not present with pull policy of Never'
        raise StartContainerError(ERR_IMAGE_NEVER_PULL, message)
    raise ImageMissingError(f'no local command environment stands for the image "{spec.image}"')


async def start_container(host: Host, start: Start, image: Image) -> Container:
    """Start the container; raises StartContainerError and ContainerRuntimeError."""
    try:
        config = await _configure(host, start, image)
    except (ConfigMissingError, PodSpecError, ApiStatusError, ApiUnavailableError, OSError, ValueError) as error:
        raise StartContainerError(CONFIG_ERROR, str(error)) from error
    if not config.argv:
        raise StartContainerError("CreateContainerError", "no command specified")
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
    """Create the termination message file; returns its mount."""
    path = start.files.prepare_message(start.spec.name, start.attempt)
    return Mount(source=path, target=start.spec.termination_message_path)
