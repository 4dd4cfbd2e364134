"""A start of the sandbox waits while nodes register, and says what it waited for."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from raytide_sandbox.cluster import Cluster, NodesNotReadyError
from raytide_sandbox.controlplane.interface import STALLED_S
from raytide_sandbox.daemonize import Settings

pytestmark = pytest.mark.looptime
NAMES = ["sandbox-1", "sandbox-2"]


async def start(registered_after_s, *, settles_after_s=0.0, timeout_s=600.0):
    """Wait for nodes that register one after the other, and for controllers; returns when the wait has ended, in seconds."""
    loop = asyncio.get_running_loop()
    plane = SimpleNamespace(settle=lambda _: asyncio.sleep(settles_after_s))
    cluster = Cluster(Settings(timeout_s=timeout_s), None, plane, directory=Path("/"), now=None)
    registered = {name: asyncio.Event() for name in NAMES}
    for event, after_s in zip(registered.values(), registered_after_s, strict=True):
        if after_s is not None:
            loop.call_later(after_s, event.set)
    began = loop.time()
    await cluster._nodes_ready(NAMES, registered, began + timeout_s)
    return loop.time() - began


async def test_a_start_goes_on_while_nodes_register_and_controllers_settle():
    assert await start([50, 100], settles_after_s=300) == 400


async def test_a_node_that_does_not_register_is_named():
    with pytest.raises(NodesNotReadyError, match=rf"no node has registered for {STALLED_S:g} s; missing: sandbox-2"):
        await start([50, None])


async def test_controllers_that_do_not_settle_are_named_at_the_time_out():
    expected = r"was not ready within 200 s \(--timeout\); waiting for the controllers, which take the initial taints"
    with pytest.raises(NodesNotReadyError, match=expected):
        await start([1, 2], settles_after_s=900, timeout_s=200)
