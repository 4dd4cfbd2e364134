"""Upgrades: HTTP requests turned into WebSocket or SPDY streams.

Input: a request and the supported protocols. Answers 101 with the first protocol that both sides support, or rejects
the request with a Status that kubectl can print. Used by kubelet/server.py and the protocols behind it.
"""

import json
from collections.abc import Sequence
from typing import Final, NoReturn

from aiohttp import web

from raytide_sandbox.streaming.byte_channels import Hijacked, StreamChannel

_SPDY: Final = "SPDY/3.1"
_PROTOCOL_HEADER: Final = "X-Stream-Protocol-Version"
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    404: "NotFound",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_MAX_MESSAGE_BYTES: Final = 0
"""No limit, as aiohttp spells it."""


def reject(status: int, message: str) -> NoReturn:
    """Reject the request with a Status object; always raises."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(status, "InternalError"),
        "code": status,
    }
    raise _UpgradeError(status, json.dumps(body))


class _UpgradeError(web.HTTPException):
    def __init__(self, status: int, text: str) -> None:
        self.status_code = status
        super().__init__(text=text, content_type="application/json")


def is_websocket(request: web.Request) -> bool:
    """Whether the request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def open_websocket(request: web.Request, protocols: Sequence[str]) -> web.WebSocketResponse:
    """Accept a WebSocket; its `ws_protocol` is the negotiated protocol."""
    offered = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if not set(offered) & set(protocols):
        reject(400, f"unable to negotiate a protocol: client supports {offered}, server supports {list(protocols)}")
    response = web.WebSocketResponse(protocols=protocols, max_msg_size=_MAX_MESSAGE_BYTES, compress=False)
    await response.prepare(request)
    return response


async def open_spdy(request: web.Request, protocols: Sequence[str]) -> tuple[Hijacked, StreamChannel, str]:
    """Accept SPDY; returns the response for the HTTP server, the channel, and the protocol."""
    if request.headers.get("Upgrade", "").lower() != _SPDY.lower():
        reject(400, f"unable to upgrade: expected a WebSocket or {_SPDY}")
    lines = request.headers.getall(_PROTOCOL_HEADER, [])
    offered = [word.strip() for line in lines for word in line.split(",")]
    chosen = next((protocol for protocol in protocols if protocol in offered), None)
    if chosen is None:
        reject(400, f"unable to negotiate a protocol: client supports {offered}, server supports {list(protocols)}")
    head = (
        "HTTP/1.1 101 Switching Protocols\r\n"
        f"Connection: Upgrade\r\nUpgrade: {_SPDY}\r\n{_PROTOCOL_HEADER}: {chosen}\r\n\r\n"
    )
    response = Hijacked()
    return response, await response.take(request, head.encode()), chosen
