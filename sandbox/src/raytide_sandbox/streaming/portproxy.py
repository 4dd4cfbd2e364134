"""Port proxy: plain HTTP through the API server (pods/proxy, services/proxy) to a port of a pod.

Input: a request and a pod's sandbox. Sends the same request to the pod and streams the response back. Upgrades are not
passed on. It exists beside the kubelet's own paths because the sandbox's API server cannot reach pod networks. Called
by kubelet/server.py.
"""

from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from raytide_sandbox.container_runtime.interface import Runtime, Sandbox
from raytide_sandbox.streaming.network_relay import relay
from raytide_sandbox.streaming.upgrades import reject

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
)
_NOT_FOR_PODS: Final = _HOP_BY_HOP | {"authorization"}
"""The API server's credentials for the kubelet must not reach pods."""
_CONNECT_S: Final = 10.0


async def relay_http(
    request: web.Request, runtime: Runtime, sandbox: Sandbox, port: int, path: str
) -> web.StreamResponse:
    """Send the request to the pod and its response to the client; answers 503 if the pod cannot be reached."""
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_FOR_PODS}
    headers["Host"] = f"{sandbox.ip}:{port}"
    body = await request.read()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    async with (
        relay(lambda: runtime.connect(sandbox, port, _CONNECT_S)) as local_port,
        aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session,
    ):
        url = URL.build(scheme="http", host="127.0.0.1", port=local_port, path=path, query_string=request.query_string)
        try:
            async with session.request(
                request.method, url, headers=headers, data=body or None, allow_redirects=False
            ) as answer:
                return await _stream_response(request, answer)
        except aiohttp.ClientError as error:
            reject(503, f"error trying to reach port {port} of the pod: {error}")


async def _stream_response(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        if name.lower() not in _HOP_BY_HOP:
            response.headers.add(name, value)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    return response
