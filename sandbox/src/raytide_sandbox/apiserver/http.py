"""HTTP adapter of the API server.

`application(api)` is an aiohttp application: it converts each HTTP request to a `Request`, sends responses unchanged,
writes watches to the connection with all waiting lines in one chunk, and tunnels what a kubelet has to answer. It adds
no decisions to those of the routes. Served by the sandbox's cluster behind its access control, which sets
`request["user"]`, or alone with `authenticate`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.kubelet_proxy import Kubelets, forward
from raytide_sandbox.apiserver.request_response import Proxied, Request, Response
from raytide_sandbox.apiserver.routes import Api
from raytide_sandbox.apiserver.watch_cursor import WatchCursor

Authenticate = Callable[[str], str | None]
"""A bearer token -> the user's name; None for an unknown token."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY_LIMIT_BYTES: Final = 3 * 1024 * 1024
WATCH_LIMIT_S: Final = 1800.0
_BOOKMARK_S: Final = 60.0
_POLL_S: Final = 5.0
_BACKLOG_BYTES: Final = 64 * 1024 * 1024
_OPEN_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version")

_log = logging.getLogger("raytide_sandbox.api")


def application(
    api: Api, *, authenticate: Authenticate | None = None, kubelets: Kubelets | None = None
) -> web.Application:
    """The aiohttp application of `api`; with `authenticate`, requests without a valid bearer token get 401."""
    watches: set[WatchCursor] = set()

    async def close_watches(_: web.Application) -> None:
        for cursor in list(watches):
            cursor.close()

    app = web.Application(client_max_size=BODY_LIMIT_BYTES)
    app.router.add_route("*", "/{path:.*}", _handler(api, authenticate, kubelets or Kubelets(), watches))
    app.on_shutdown.append(close_watches)
    return app


def _handler(api: Api, authenticate: Authenticate | None, kubelets: Kubelets, watches: set[WatchCursor]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        user: str | None = request.get("user", "system:admin")
        if authenticate is not None and not request.path.startswith(_OPEN_PATHS):
            user = authenticate(_bearer(request))
            if user is None:
                return _status_response(ApiStatusError(401, "Unauthorized", "Unauthorized"))
        try:
            body = await request.read() if request.can_read_body else b""
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {BODY_LIMIT_BYTES}"
            return _status_response(ApiStatusError(413, "RequestEntityTooLarge", message))
        try:
            found = api.handle(_request(request, body, user or "system:anonymous"))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the connection without a word
            _log.exception("%s %s", request.method, request.path_qs)
            return _status_response(ApiStatusError(500, "InternalError", f"Internal error occurred: {error!r}"))
        if isinstance(found, Response):
            return web.Response(body=found.body, status=found.status, headers=found.headers)
        if isinstance(found, WatchCursor):
            watches.add(found)
            try:
                return await _serve_watch(request, found)
            finally:
                watches.discard(found)
        return await _forwarded(request, body, found, kubelets)

    return answer


def _bearer(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _request(request: web.Request, body: bytes, user: str) -> Request:
    return Request(
        method=request.method,
        path=request.path,
        query=request.query,
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
        user=user,
        raw_query=request.rel_url.raw_query_string,
    )


def _status_response(status: ApiStatusError) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(status.body()), status=status.code, headers={"Content-Type": "application/json"}
    )


async def _forwarded(request: web.Request, body: bytes, to: Proxied, kubelets: Kubelets) -> web.StreamResponse:
    try:
        return await forward(request, body, to, kubelets)
    except ApiStatusError as status:
        return _status_response(status)


# --- watches -----------------------------------------------------------------------------------------------------------
class _WatchWriter:
    """Moves lines from a cursor to a connection, one HTTP chunk for all waiting lines."""

    def __init__(self, cursor: WatchCursor, transport: asyncio.Transport) -> None:
        self._cursor = cursor
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self.ended = asyncio.Event()

    def ready(self) -> None:
        """Schedule a write after the request that caused the lines has been answered."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        lines = self._cursor.take()
        if self.is_gone:
            self.ended.set()
            return
        if lines:
            chunk = b"".join(lines)
            self._transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        # A watcher that does not read must not exhaust memory; it is disconnected and may resume.
        if self._cursor.is_closed or self._transport.get_write_buffer_size() > _BACKLOG_BYTES:
            self.ended.set()

    @property
    def is_gone(self) -> bool:
        """True when the client has disconnected."""
        return self._transport.is_closing()


async def _serve_watch(request: web.Request, cursor: WatchCursor) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": cursor.options.content_type})
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return response
        writer = _WatchWriter(cursor, transport)
        cursor.on_ready(writer.ready)
        await _until_end(cursor, writer)
    finally:
        cursor.close()
    if writer.is_gone:  # do not wait on a closed transport: with TLS, it never answers
        response.force_close()
    elif transport.get_write_buffer_size() > _BACKLOG_BYTES:
        transport.abort()
        response.force_close()
    else:
        await response.write_eof()
    return response


async def _until_end(cursor: WatchCursor, writer: _WatchWriter) -> None:
    """Wait for the end of a watch; adds bookmarks periodically and shortly before the timeout."""
    loop = asyncio.get_running_loop()
    life_s = cursor.options.timeout_s or WATCH_LIMIT_S
    end = loop.time() + life_s
    bookmark_at = loop.time() + min(_BOOKMARK_S, max(life_s - 2.0, life_s / 2))
    while not writer.is_gone:
        now = loop.time()
        if now >= end:
            return
        if now >= bookmark_at:
            cursor.add_bookmark()
            bookmark_at = now + _BOOKMARK_S
        try:
            async with asyncio.timeout(min(end, bookmark_at, now + _POLL_S) - now):
                await writer.ended.wait()
        except TimeoutError:
            continue
        return
