"""The modes of the pod runtime, as parameters of tests: what this machine forbids is shown as skipped, with the reason."""

import asyncio
import functools
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from raytide_sandbox.container_runtime.detect import choose_runtime
from raytide_sandbox.container_runtime.interface import ContainerRuntimeError


def now() -> datetime:
    return datetime.now(UTC)


@functools.cache
def why_no_namespaces() -> str:
    """Why pods cannot run in namespaces here; empty when they can. Found out by trying."""

    async def attempt(state_dir: str) -> None:
        choice = await choose_runtime("ns", state_dir=Path(state_dir), now=now)
        await choice.runtime.stop()

    with tempfile.TemporaryDirectory(prefix="rt") as state_dir:
        try:
            asyncio.run(attempt(state_dir))
        except ContainerRuntimeError as error:
            return str(error)
    return ""


def needs_namespaces() -> list[pytest.MarkDecorator]:
    reason = why_no_namespaces()
    return [pytest.mark.node_mode("ns"), pytest.mark.skipif(bool(reason), reason=reason)]


BOTH_MODES = [
    pytest.param("ns", marks=needs_namespaces()),
    pytest.param("plain", marks=pytest.mark.node_mode("plain")),
]
