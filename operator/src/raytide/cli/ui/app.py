"""HTTP API of `raytide ui`: the page, lanes, events, explanations and the effect of a YAML.

Takes the feed and what is needed to read the cluster, returns an aiohttp application. Explanations and plans are read when they are
asked for, with the rights of the kubeconfig's user, a bounded number at a time. Called by serve.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web

from raytide.api.config import SharingConfig
from raytide.cli.plan.from_cluster import ClusterReader, SnapshotError
from raytide.cli.plan.from_files import InputError
from raytide.cli.ui.feed import Feed, TooManyReadersError, event
from raytide.cli.ui.guard import Guard, add_headers, problem
from raytide.cli.ui.what_if import effect_of
from raytide.client.workload_reader import RESOURCES, ReadError, WorkloadReader, is_name
from raytide.explain.encode import as_json
from raytide.explain.explain import explain
from raytide.explain.history import WINDOW_S, Key
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

MAX_YAML: Final = 256 * 1024
MAX_WHY: Final = 4
"""Explanations that are read at once."""
PLAN_TYPES: Final = frozenset({"application/yaml", "application/json"})
PAGES: Final = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


@dataclass(frozen=True)
class Source:
    """Where explanations and plans are read."""

    client: Client
    namespace: str
    """Of jobs in a YAML that name none."""
    clock: Clock
    sharing: SharingConfig
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WHY))
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)


def make_app(feed: Feed, source: Source, token: str) -> web.Application:
    """The application; the feed's streams end when it shuts down."""
    app = web.Application(middlewares=[Guard(token)], client_max_size=MAX_YAML)
    app.on_response_prepare.append(add_headers)
    for path, (name, content_type) in PAGES.items():
        app.router.add_get(path, page(name, content_type))
    app.router.add_get("/api/lanes", lanes(feed))
    app.router.add_get("/api/events", events(feed))
    app.router.add_get("/api/groups/{kind}/{namespace}/{name}", groups(feed))
    app.router.add_get("/api/why/{kind}/{namespace}/{name}", why(source))
    app.router.add_post("/api/plan", plan(source))

    async def end_streams(_app: web.Application) -> None:
        feed.close()

    app.on_shutdown.append(end_streams)
    return app


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page(name: str, content_type: str) -> Handler:
    """Handler of a file of the page."""
    body = files("raytide.cli.ui").joinpath("static", name).read_bytes()

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": f"{content_type}; charset=utf-8"})

    return answer


def lanes(feed: Feed) -> Handler:
    """Handler of all lanes with their steps in a window."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return _json(await feed.snapshot(_window(request)))

    return answer


def events(feed: Feed) -> Handler:
    """Handler of a stream: the same as `/api/lanes`, then what changes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        window_s = _window(request)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        try:
            reader = feed.subscribe(transport.abort)
        except TooManyReadersError:
            return problem(503, "too many pages are open: close one")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            await response.write(event("lanes", await feed.snapshot(window_s)))
            while (message := await reader.queue.get()) is not None:
                await response.write(message)
        finally:
            feed.unsubscribe(reader)
        return response

    return answer


def groups(feed: Feed) -> Handler:
    """Handler of the worker groups or roles of one lane, with their steps in a window."""

    async def answer(request: web.Request) -> web.StreamResponse:
        key = Key(*(request.match_info[part] for part in ("kind", "namespace", "name")))
        found = feed.groups(key, _window(request))
        return problem(404, "there is no such workload") if found is None else _json({"groups": found})

    return answer


def why(source: Source) -> Handler:
    """Handler of one explanation, as `raytide why -o json` prints it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        kind, namespace, name = (request.match_info[part] for part in ("kind", "namespace", "name"))
        if kind not in RESOURCES or not is_name(namespace) or not is_name(name):
            return problem(404, "there is no such workload")
        try:
            async with source.reading:
                objects = await WorkloadReader(source.client, namespace).read(kind, name)
        except ReadError as error:
            return problem(404, str(error))
        return _json(as_json(explain(objects, source.clock.now())))

    return answer


def plan(source: Source) -> Handler:
    """Handler of the effect of a YAML on the next sharing passes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.content_type not in PLAN_TYPES:
            return problem(415, f"the content type must be {' or '.join(sorted(PLAN_TYPES))}")
        try:
            text = (await request.read()).decode()
        except UnicodeDecodeError:
            return problem(400, "the YAML is not valid UTF-8 text")
        try:
            async with source.planning:
                now = source.clock.now()
                snapshot = await ClusterReader(source.client, has_tenants=bool(source.sharing.tenants)).snapshot()
                found = await asyncio.to_thread(
                    effect_of, text, snapshot, source.namespace, config=source.sharing, now=now
                )
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
