"""HTTP API of `raytide ui`: the page, lanes, events, explanations and the effect of a YAML.

Takes the feeds and what is needed to read the cluster, returns an aiohttp application. Each request sees what its caller may see
(guard.py). Explanations and plans are read when they are asked for, with the rights of the caller, a bounded number at a time.
Called by serve.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web

from raytide.api.config import SharingConfig
from raytide.cli.plan.from_files import InputError, has_clusters
from raytide.cli.ui.access import Access, AccessError, View
from raytide.cli.ui.feed import TooManyReadersError, event
from raytide.cli.ui.feeds import Feeds
from raytide.cli.ui.guard import Guard, add_headers, problem, token_of
from raytide.cli.ui.what_if import effect_of, parse
from raytide.client.cluster_reader import ClusterReader, SnapshotError
from raytide.client.explained import explained
from raytide.client.workload_reader import RESOURCES, ReadError, WorkloadReader, is_name
from raytide.explain.encode import as_json
from raytide.explain.history import WINDOW_S, Key
from raytide.runtime.clock import Clock

MAX_YAML: Final = 256 * 1024
MAX_WHY: Final = 4
"""Explanations that are read at once."""
TOO_MANY: Final = "too many pages are open: close one"
PLAN_TYPES: Final = frozenset({"application/yaml", "application/json"})
PAGES: Final = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


@dataclass(frozen=True)
class Source:
    """How explanations and plans are read."""

    access: Access
    namespace: str
    """Of jobs in a YAML that name none, if the caller sees all namespaces."""
    clock: Clock
    sharing: SharingConfig
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WHY))
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)


def make_app(feeds: Feeds, source: Source) -> web.Application:
    """The application; the feeds' streams end when it shuts down."""
    guard = Guard(source.access)
    app = web.Application(middlewares=[guard], client_max_size=MAX_YAML)
    app.on_response_prepare.append(add_headers)
    for path, (name, content_type) in PAGES.items():
        app.router.add_get(path, page(name, content_type, is_local=source.access.is_local))
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz(feeds))
    app.router.add_get("/api/lanes", lanes(feeds, guard))
    app.router.add_get("/api/events", events(feeds, guard))
    app.router.add_get("/api/groups/{kind}/{namespace}/{name}", groups(feeds, guard))
    app.router.add_get("/api/why/{kind}/{namespace}/{name}", why(source))
    app.router.add_post("/api/plan", plan(source, guard))

    async def end_streams(_app: web.Application) -> None:
        feeds.close()

    app.on_shutdown.append(end_streams)
    return app


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page(name: str, content_type: str, *, is_local: bool) -> Handler:
    """Handler of a file of the page, which begins with a form for the token where each caller has one."""
    body = files("raytide.cli.ui").joinpath("static", name).read_bytes()
    if not is_local:
        body = body.replace(b'data-sign-in="printed"', b'data-sign-in="form"')

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": f"{content_type}; charset=utf-8"})

    return answer


async def healthz(_request: web.Request) -> web.StreamResponse:
    """That the server answers; for a kubelet, and without a token."""
    return web.Response(text="ok")


def readyz(feeds: Feeds) -> Handler:
    """Handler that says whether there is something to show; for a kubelet, and without a token."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        if feeds.is_listed:
            return web.Response(text="ok")
        return web.Response(status=503, text="reading the cluster")

    return answer


def lanes(feeds: Feeds, guard: Guard) -> Handler:
    """Handler of all lanes with their steps in a window."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            feed = feeds.of(await guard.view(request))
        except TooManyReadersError:
            return problem(503, TOO_MANY)
        return _json(await feed.snapshot(_window(request)))

    return answer


def events(feeds: Feeds, guard: Guard) -> Handler:
    """Handler of a stream: the same as `/api/lanes`, then what changes, as long as the caller may see it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        window_s, view = _window(request), await guard.view(request)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        try:
            feed = feeds.of(view)
            reader = feed.subscribe(transport.abort)
        except TooManyReadersError:
            return problem(503, TOO_MANY)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            await response.write(event("lanes", await feed.snapshot(window_s)))
            while (message := await reader.queue.get()) is not None and await _still_sees(view, request, guard):
                await response.write(message)
        finally:
            feed.unsubscribe(reader)
        return response

    return answer


async def _still_sees(view: View, request: web.Request, guard: Guard) -> bool:
    """Whether the caller may see the same as before; the page asks again when the stream ends, and is told why."""
    try:
        return await guard.view(request) == view
    except AccessError as error:
        return error.status == 503  # that the API server is away is no reason to show less


def groups(feeds: Feeds, guard: Guard) -> Handler:
    """Handler of the worker groups or roles of one lane, with their steps in a window."""

    async def answer(request: web.Request) -> web.StreamResponse:
        key = Key(*(request.match_info[part] for part in ("kind", "namespace", "name")))
        try:
            found = feeds.of(await guard.view(request)).groups(key, _window(request))
        except TooManyReadersError:
            return problem(503, TOO_MANY)
        return problem(404, "there is no such workload") if found is None else _json({"groups": found})

    return answer


def why(source: Source) -> Handler:
    """Handler of one explanation, as `raytide why -o json` prints it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        kind, namespace, name = (request.match_info[part] for part in ("kind", "namespace", "name"))
        if kind not in RESOURCES or not is_name(namespace) or not is_name(name):
            return problem(404, "there is no such workload")
        try:
            async with source.reading, source.access.client(token_of(request)) as client:
                reader = WorkloadReader(client, namespace)
                found = await explained(reader, await reader.read(kind, name), source.clock, source.sharing)
        except ReadError as error:
            return problem(404, str(error))
        return _json(as_json(found))

    return answer


def plan(source: Source, guard: Guard) -> Handler:
    """Handler of the effect of a YAML on the next sharing passes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.content_type not in PLAN_TYPES:
            return problem(415, f"the content type must be {' or '.join(sorted(PLAN_TYPES))}")
        try:
            text = (await request.read()).decode()
        except UnicodeDecodeError:
            return problem(400, "the YAML is not valid UTF-8 text")
        namespace = (await guard.view(request)).namespace or source.namespace
        try:
            async with source.planning, source.access.client(token_of(request)) as client:
                now, sharing = source.clock.now(), source.sharing
                new = await asyncio.to_thread(parse, text)
                reader = ClusterReader(client, has_tenants=bool(sharing.tenants), has_clusters=has_clusters(new))
                snapshot = await reader.snapshot()
                found = await asyncio.to_thread(effect_of, new, snapshot, namespace, config=sharing, now=now)
        except InputError as error:
            return problem(400, str(error))
        except SnapshotError as error:
            return problem(403, f"the effect cannot be computed: {error}")
        return _json(found)

    return answer


def _json(found: dict[str, Any]) -> web.Response:
    return web.Response(body=msgspec.json.encode(found), content_type="application/json")


def _window(request: web.Request) -> int:
    text = request.query.get("window", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else WINDOW_S
