"""Requests through the API server to a kubelet: logs, WebSockets, rejections, and headers a client must not set."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.kubelet_proxy import Kubelets
from raytide_sandbox.apiserver.routes import Api
from support.deadlines import PATIENCE
from unit.sandbox.apiserver.embedded import MERGE, NODES, PODS, ask, build_api, pod


class FakeKubelet:
    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.is_left = asyncio.Event()

    async def log(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.query.get("previous"):
            return web.Response(status=400, text='previous terminated container "c" in pod "p" not found')
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"first\n")
        if request.query.get("follow"):
            try:
                while True:
                    await asyncio.sleep(0.01)
                    await response.write(b"more\n")
            except ConnectionError:
                self.is_left.set()
        return response

    async def run(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(b"\x01" + message.data[1:].upper())
        return socket

    async def echo(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        return web.Response(status=418, text=f"{request.method} {request.path_qs} {await request.text()}")

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/containerLogs/default/p/c", self.log)
        app.router.add_get("/exec/default/p/c", self.run)
        app.router.add_route("*", "/podProxy/{rest:.*}", self.echo)
        return app


async def serve(app: web.Application) -> tuple[web.AppRunner, int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


@pytest.fixture
async def kubelet() -> AsyncIterator[tuple[FakeKubelet, int]]:
    found = FakeKubelet()
    runner, port = await serve(found.application())
    yield found, port
    await runner.cleanup()


@pytest.fixture
async def session(kubelet: tuple[FakeKubelet, int]) -> AsyncIterator[aiohttp.ClientSession]:
    api = build_api()
    build_node(api, "n", kubelet[1])
    build_node(api, "silent", 1)
    ask(api, "POST", PODS, pod("p", nodeName="n"))
    ask(api, "POST", PODS, pod("q", nodeName="silent"))
    runner, port = await serve(application(api, kubelets=Kubelets(token="for-kubelets")))
    headers = {"Authorization": "Bearer for-the-api-server"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as found:
        yield found
    await runner.cleanup()


def build_node(api: Api, name: str, port: int) -> None:
    ask(api, "POST", NODES, {"metadata": {"name": name}})
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    ask(api, "PATCH", f"{NODES}/{name}/status", {"status": status}, MERGE)


async def test_a_log_comes_from_the_kubelet(session: Any, kubelet: Any) -> None:
    async with session.get(f"{PODS}/p/log") as response:
        assert (response.status, await response.text()) == (200, "first\n")
        assert response.headers["Content-Type"] == "text/plain"
    assert kubelet[0].seen[0].headers["Authorization"] == "Bearer for-kubelets", "the client's token stays here"


async def test_a_followed_log_ends_for_the_kubelet_when_the_client_leaves(session: Any, kubelet: Any) -> None:
    response = await session.get(f"{PODS}/p/log", params={"follow": "true"})
    assert await response.content.readline() == b"first\n"
    assert await response.content.readline() == b"more\n"
    response.close()
    async with asyncio.timeout(5 * PATIENCE):
        await kubelet[0].is_left.wait()


async def test_a_rejection_in_plain_text_becomes_a_status(session: Any) -> None:
    async with session.get(f"{PODS}/p/log", params={"previous": "true"}) as response:
        body = await response.json()
    assert (response.status, body["reason"]) == (400, "BadRequest")
    assert body["message"] == 'previous terminated container "c" in pod "p" not found'


async def test_exec_is_a_websocket_to_the_kubelet(session: Any, kubelet: Any) -> None:
    query = "command=tr&command=a%20b&stdin=true&stdout=true"
    async with session.ws_connect(f"{PODS}/p/exec?{query}", protocols=["v5.channel.k8s.io"]) as socket:
        assert socket.protocol == "v5.channel.k8s.io"
        large = b"\x00" + b"x" * 300_000
        for sent in (b"\x00hello", large):
            await socket.send_bytes(sent)
            async with asyncio.timeout(5 * PATIENCE):
                assert await socket.receive_bytes() == b"\x01" + sent[1:].upper()
    assert kubelet[0].seen[0].query.getall("command") == ["tr", "a b"]
    assert kubelet[0].seen[0].query["input"] == "1"


async def test_what_a_proxied_program_answers_is_passed_on_as_it_is(session: Any) -> None:
    async with session.post(f"{PODS}/p:80/proxy/some/path?x=1", data=b"body") as response:
        assert (response.status, await response.text()) == (418, "POST /podProxy/default/p/80/some/path?x=1 body")


async def test_a_kubelet_that_is_not_there_is_a_status(session: Any) -> None:
    async with session.get(f"{PODS}/q/log") as response:
        body = await response.json()
    assert (response.status, body["reason"]) == (500, "InternalError")
    assert body["message"].startswith("error dialing backend: node silent at 127.0.0.1:1: ")


async def test_a_body_that_is_too_large_is_rejected(session: Any) -> None:
    async with session.post(PODS, data=io.BytesIO(b" " * (4 * 1024 * 1024))) as response:
        assert (response.status, (await response.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_any_other_upgrade_is_plain_bytes() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Upgrade: SPDY/3.1\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\nhello ")
        writer.write(b"heard " + await reader.readexactly(4))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    api = build_api()
    build_node(api, "n", server.sockets[0].getsockname()[1])
    ask(api, "POST", PODS, pod("p", nodeName="n"))
    runner, port = await serve(application(api))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    upgrade = b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    writer.write(b"POST %s/p/portforward HTTP/1.1\r\nHost: x\r\n%s\r\n" % (PODS.encode(), upgrade))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    writer.write(b"\x80\x03\x00\x01")
    assert await reader.read() == b"hello heard \x80\x03\x00\x01", "the kubelet's end is the client's end"
    writer.close()
    await runner.cleanup()
    server.close()
