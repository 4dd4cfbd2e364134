"""How do several Rays share one network without a changed `ray start` command?

`ray start` calls RAY_START_HOOK with its parsed parameters before it uses them: here every fixed port moves by the number of
the pod, the node gets a temporary directory of its own and an object store in proportion to the pod's memory. The node's
address is 127.0.0.1 exactly: for any other, also for other loopback addresses, Ray's programs listen on all addresses of
the machine (FD:SEC-F2). Runs inside pods of plain mode only, named by plain.py; imports nothing of ours but the port table.
"""

import os
from typing import Any, Final

from raytide.sandbox.node.plain_text import RAY_ADDRESS, moved_port

_OBJECT_STORE_SHARE: Final = 0.3
_SMALLEST_OBJECT_STORE_BYTES: Final = 80_000_000


def on_start(params: Any, head: bool) -> None:  # noqa: FBT001 - Ray's signature
    """Move what would clash, and listen on loopback alone."""
    from ray._private import ray_constants, services  # noqa: PLC0415 - Ray is there when its hook runs

    index = int(os.environ["RAYTIDE_POD_INDEX"])
    params.node_ip_address = RAY_ADDRESS
    params.node_name = os.environ["RAYTIDE_POD_IP"]
    # Ray replaces 127.0.0.1 by the machine's address where it takes part in a cluster; here the cluster is this machine.
    services.get_node_ip_address = lambda *_: RAY_ADDRESS
    ray_constants.ENABLE_RAY_CLUSTER = True  # plain.py switches it off for other programs; `ray start` insists on it
    params.temp_dir = os.environ["RAY_TMPDIR"] + "/ray"  # exactly what Ray itself derives; it writes there in any case
    params.metrics_export_port = None  # a fixed one: the second node's agent, and with it its raylet, would end
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
