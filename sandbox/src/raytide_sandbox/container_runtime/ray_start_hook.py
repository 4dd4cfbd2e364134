"""Hook of `ray start` that lets several Ray nodes share one network.

`ray start` calls RAY_START_HOOK with its parsed parameters before it uses them. The hook shifts every fixed port by the
pod's index and sets a temporary directory per node and an object store in proportion to the pod's memory limit. The
node's address is exactly 127.0.0.1: with any other, even on loopback, Ray listens on all addresses of the machine
(FD:SEC-F2). Runs in pods of plain mode only, set by host_network.py; imports only the port table of Raytide.
"""

import os
from typing import Any, Final

from raytide_sandbox.container_runtime.host_network_rewrite import RAY_ADDRESS, moved_port

_OBJECT_STORE_SHARE: Final = 0.3
_SMALLEST_OBJECT_STORE_BYTES: Final = 80_000_000


def on_start(params: Any, head: bool) -> None:  # noqa: FBT001 - Ray's signature
    """Shift the ports that would collide, and listen on loopback only."""
    from ray._private import ray_constants, services  # noqa: PLC0415 - Ray is there when its hook runs

    index = int(os.environ["RAYTIDE_POD_INDEX"])
    params.node_ip_address = RAY_ADDRESS
    params.node_name = os.environ["RAYTIDE_POD_IP"]
    # Ray replaces 127.0.0.1 by the machine's address when it joins a cluster; here the cluster is on this machine.
    services.get_node_ip_address = lambda *_: RAY_ADDRESS
    ray_constants.ENABLE_RAY_CLUSTER = (
        True  # host_network.py switches it off for other programs; `ray start` requires it
    )
    params.temp_dir = os.environ["RAY_TMPDIR"] + "/ray"  # exactly what Ray itself derives; it writes there in any case
    params.metrics_export_port = None  # a fixed port would end the second node's agent and its raylet
    params.dashboard_agent_listen_port = moved_port(52365, index)
    if head:
        params.dashboard_host = RAY_ADDRESS
        ray_constants.DEFAULT_PORT = moved_port(6379, index)
        params.dashboard_port = moved_port(8265, index)
        params.ray_client_server_port = moved_port(10001, index)
    memory_bytes = os.environ.get("RAYTIDE_MEMORY_BYTES")
    if memory_bytes and not params.object_store_memory:
        share = int(int(memory_bytes) * _OBJECT_STORE_SHARE)
        params.object_store_memory = max(_SMALLEST_OBJECT_STORE_BYTES, share)
