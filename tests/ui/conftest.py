"""A page of `raytide ui` in Chromium, whose server and cluster belong to the test."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

import browser
from support.caller_rights import EVERYTHING, CallersSite, RightsServer
from support.stored_workloads import cluster_object
from support.ui_site import TOKEN, Site, node

DEADLINE_MS = 15_000


class Watched:
    """A page, and what must not happen on it."""

    def __init__(self, page: Page, site: Site | CallersSite) -> None:
        self.page, self.site = page, site
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of messages of the console that the test causes on purpose."""
        page.set_default_timeout(DEADLINE_MS)
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: self._note("error", f"dialog {dialog.message}"))
        page.on("request", lambda request: self._note_request(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.complaints.append(text)

    def _note_request(self, address: str) -> None:
        if not address.startswith((f"http://127.0.0.1:{self.site.port}/", "data:")):
            self.complaints.append(f"a request to {address}")

    async def open(self, token: str = TOKEN) -> Page:
        """The page, as the address that `raytide ui` prints opens it."""
        await self.page.goto(f"http://127.0.0.1:{self.site.port}/#token={token}")
        return self.page


@pytest_asyncio.fixture
async def chromium() -> AsyncIterator[Browser]:
    found = browser.provide()
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=found.program, env={**os.environ, **found.environ}, args=["--no-sandbox"]
        )
        yield launched
        await launched.close()


@pytest_asyncio.fixture
async def site() -> Site:
    """A cluster with a node and RayCluster demo; tests give its lanes to the feed."""
    return Site(cluster_object(), node())


@pytest_asyncio.fixture
async def callers() -> CallersSite:
    """A server for many, with RayCluster demo; `dev` may list namespace default, `admin` everything, `none` nothing."""
    dev = {(plural, "default") for plural in ("rayclusters", "trainingjobs", "pods", "events")}
    return CallersSite(RightsServer(cluster_object(), node(), dev=dev, admin={EVERYTHING}, none=set()))


@pytest_asyncio.fixture
async def signing_in(chromium: Browser, callers: CallersSite, request) -> AsyncIterator[Watched]:
    """The page of a server for many, not opened yet; as `watched`."""
    async with watched_page(chromium, callers, request) as found:
        yield found


@pytest_asyncio.fixture
async def watched(chromium: Browser, site: Site, request) -> AsyncIterator[Watched]:
    """Fails the test for errors on the console and for requests to anywhere else."""
    async with watched_page(chromium, site, request) as found:
        yield found


@asynccontextmanager
async def watched_page(chromium: Browser, site: Site | CallersSite, request) -> AsyncIterator[Watched]:
    """A page of that server."""
    scheme = request.param if hasattr(request, "param") else "light"
    context = await chromium.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 720})
    async with site.served():
        found = Watched(await context.new_page(), site)
        yield found
        if folder := os.environ.get("RAYTIDE_UI_PICTURES"):
            await found.page.screenshot(path=Path(folder) / f"{request.node.name.replace('/', '-')}.png")
        await context.close()
    assert found.complaints == []
