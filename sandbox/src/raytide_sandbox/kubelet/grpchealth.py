"""gRPC health check of a pod.

Takes a way to connect to the pod's port, a service name and a timeout; returns whether the service is SERVING and the
message for a failure. Called by probes.py only.
"""

from typing import Final

import grpc.aio

from raytide_sandbox.streaming.network_relay import Connect, relay

_METHOD: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"


async def ask_health(connect: Connect, service: str, timeout_s: float) -> tuple[bool, str]:
    """Call Health/Check once; the timeout is in seconds."""
    name = service.encode()
    question = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with relay(connect) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = await channel.unary_unary(_METHOD)(question, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return False, f"gRPC probe failed: {error.code().name}: {error.details()}"
    return bytes(answer) == _SERVING, "gRPC probe failed: the service is not SERVING"
