"""How do several Rays share one network without a changed `ray start` command?

`ray start` calls RAY_START_HOOK with its parsed parameters before it uses them: here every port that binds all addresses
moves by the number of the pod, the node gets the pod's address, a temporary directory of its own and an object store in
proportion to the pod's memory. Runs inside pods of plain mode only, named by plain.py; imports nothing of ours but the
port table.
"""

import os
from typing import Any, Final

from raytide.sandbox.node.plain_text import moved_port

_OBJECT_STORE_SHARE: Final = 0.3
_SMALLEST_OBJECT_STORE_BYTES: Final = 80_000_000


def on_start(params: Any, head: bool) -> None:  # noqa: FBT001 - Ray's signature
    """Move what would clash."""
    index = int(os.environ["RAYTIDE_POD_INDEX"])
    params.node_ip_address = os.environ["RAYTIDE_POD_IP"]
    params.node_name = params.node_ip_address
    params.temp_dir = os.environ["RAY_TMPDIR"] + "/ray"  # exactly what Ray itself derives; it writes there in any case
    params.metrics_export_port = None  # binds every address: the second node's agent, and with it its raylet, would end
    params.dashboard_agent_listen_port = moved_port(52365, index)  # binds 127.0.0.1 too; who comes second takes no jobs
    if head:
        from ray._private import ray_constants  # noqa: PLC0415 - Ray is there when its hook runs

        ray_constants.DEFAULT_PORT = moved_port(6379, index)
        params.dashboard_port = moved_port(8265, index)
        params.ray_client_server_port = moved_port(10001, index)
    memory_bytes = os.environ.get("RAYTIDE_MEMORY_BYTES")
    if memory_bytes and not params.object_store_memory:
        share = int(int(memory_bytes) * _OBJECT_STORE_SHARE)
        params.object_store_memory = max(_SMALLEST_OBJECT_STORE_BYTES, share)
