"""Choice of the isolation mode for pods on this machine.

Takes the requested mode (ns, plain or auto) and returns a started runtime with the reason for `sandbox status`. The
choice is by trial: namespaces are used when a pod in them has run `true`. A request for ns that fails raises
ContainerRuntimeError with the reason. Called by `raytide_sandbox/cluster.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from raytide_sandbox.container_runtime.host_network import PlainRuntime
from raytide_sandbox.container_runtime.interface import ContainerRuntimeError, Runtime
from raytide_sandbox.container_runtime.namespaced import NamespaceRuntime
from raytide_sandbox.container_runtime.process_runtime import Engine

REQUESTS = ("auto", "ns", "plain")


@dataclass(frozen=True, slots=True)
class Choice:
    """A started runtime and the reason for its mode."""

    runtime: Runtime
    reason: str


async def choose_runtime(
    requested: str,
    *,
    state_dir: Path,
    now: Callable[[], datetime],
    given_images: Mapping[str, Path] = MappingProxyType({}),
) -> Choice:
    """Start the requested runtime; auto prefers namespaces and falls back to plain."""
    if requested not in REQUESTS:
        raise ContainerRuntimeError(f"mode {requested!r} is none of {', '.join(REQUESTS)}")
    if requested == "plain":
        return Choice(await _started(PlainRuntime(state_dir, now=now, given_images=given_images)), "plain: asked for")
    try:
        runtime = await _started(NamespaceRuntime(state_dir, now=now, given_images=given_images))
    except (ContainerRuntimeError, OSError) as error:
        if requested == "ns":
            raise ContainerRuntimeError(f"mode ns does not work on this machine: {error}") from error
        return Choice(
            await _started(PlainRuntime(state_dir, now=now, given_images=given_images)),
            f"plain: unprivileged namespaces do not work on this machine ({error})",
        )
    return Choice(runtime, "ns: a trial pod in unprivileged namespaces worked")


async def _started(runtime: Engine) -> Engine:
    await runtime.start()
    return runtime
