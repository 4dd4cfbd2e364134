"""In which mode do pods run on this machine?

Takes what was asked for (ns, plain or auto) and returns a runtime that is already started, with a sentence for
`sandbox status`. It finds out by trying: namespaces are used when a pod in them has run `true`. Asked for ns where that
fails, it raises RuntimeTrouble with the reason. Called by `sandbox/cluster.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from raytide.sandbox.node.engine import Engine
from raytide.sandbox.node.ns import NamespaceRuntime
from raytide.sandbox.node.plain import PlainRuntime
from raytide.sandbox.node.runtime import Runtime, RuntimeTrouble

REQUESTS = ("auto", "ns", "plain")


@dataclass(frozen=True, slots=True)
class Choice:
    """A started runtime and why it is this one."""

    runtime: Runtime
    reason: str


async def choose_runtime(
    requested: str,
    *,
    state_dir: Path,
    now: Callable[[], datetime],
    given_images: Mapping[str, Path] = MappingProxyType({}),
) -> Choice:
    """Start the runtime that was asked for, or the better one that works."""
    if requested not in REQUESTS:
        raise RuntimeTrouble(f"mode {requested!r} is none of {', '.join(REQUESTS)}")
    if requested == "plain":
        return Choice(await _started(PlainRuntime(state_dir, now=now, given_images=given_images)), "plain: asked for")
    try:
        runtime = await _started(NamespaceRuntime(state_dir, now=now, given_images=given_images))
    except (RuntimeTrouble, OSError) as trouble:
        if requested == "ns":
            raise RuntimeTrouble(f"mode ns does not work on this machine: {trouble}") from trouble
        return Choice(
            await _started(PlainRuntime(state_dir, now=now, given_images=given_images)),
            f"plain: unprivileged namespaces do not work on this machine ({trouble})",
        )
    return Choice(runtime, "ns: a trial pod in unprivileged namespaces worked")


async def _started(runtime: Engine) -> Engine:
    await runtime.start()
    return runtime
