"""Endpoints at `:port` are reached by IPv4 and IPv6, whichever of them a cluster has."""

import errno
import socket
import subprocess
import sys

import aiohttp
import pytest
from aiohttp import web

from raytide.runtime.http_endpoints import Endpoints, page
from support.deadlines import PATIENCE
from support.ports import free_port

pytestmark = pytest.mark.rule("FD:RC3-1")

IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
IPV6_ONLY = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && ip -6 addr show dev lo | grep -q ::1"
ANSWERS_ON_IPV6 = """
import asyncio, urllib.request
from raytide.runtime.http_endpoints import Endpoints, page

async def main():
    endpoints = Endpoints()
    endpoints.add(":8082", "/healthz", page(lambda: (b"well", "text/plain")))
    await endpoints.start()
    print(await asyncio.to_thread(lambda: urllib.request.urlopen("http://[::1]:8082/healthz", timeout=10).read().decode()))
    await endpoints.stop()

asyncio.run(main())
"""


@pytest.fixture
async def serve():
    started = []

    async def start(address: str) -> None:
        endpoints = Endpoints()
        endpoints.add(address, "/healthz", page(lambda: (b"well", "text/plain")))
        started.append(endpoints)
        await endpoints.start()

    yield start
    for endpoints in started:
        await endpoints.stop()


async def is_answered(host: str, port: int) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as answer:
            return await answer.text() == "well"
    except aiohttp.ClientConnectionError:
        return False


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "answering"),
    [
        pytest.param("", {"127.0.0.1", "[::1]"}, id="no host"),
        pytest.param("[::]", {"127.0.0.1", "[::1]"}, id="all addresses of IPv6"),
        pytest.param("0.0.0.0", {"127.0.0.1"}, id="all addresses of IPv4"),
        pytest.param("127.0.0.1", {"127.0.0.1"}, id="an address of IPv4"),
        pytest.param("[::1]", {"[::1]"}, id="an address of IPv6"),
    ],
)
async def test_where_an_address_answers(serve, host, answering):
    port = free_port()
    await serve(f"{host}:{port}")
    assert {each for each in ("127.0.0.1", "[::1]") if await is_answered(each, port)} == answering


async def test_a_kernel_without_ipv6_listens_on_ipv4(serve, monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port = free_port()
    await serve(f":{port}")
    assert await is_answered("127.0.0.1", port)


async def test_a_network_that_refuses_ipv6_listens_on_ipv4(serve, monkeypatch):
    create = socket.create_server

    def refusing(address, *, family=socket.AF_INET, **more):
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create(address, family=family, **more)

    monkeypatch.setattr(socket, "create_server", refusing)
    port = free_port()
    await serve(f":{port}")
    assert await is_answered("127.0.0.1", port)


@pytest.mark.parametrize("host", ["", "[::]", "127.0.0.1"])
async def test_a_port_in_use_is_an_error(serve, host):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use") as caught:
        await serve(f"{host}:{taken.getsockname()[1]}")
    assert caught.value.errno == errno.EADDRINUSE


async def test_a_runner_that_serves_tells_its_port(serve):
    from raytide.runtime.http_endpoints import listen

    runner = web.AppRunner(web.Application())
    await runner.setup()
    await listen(runner, "", 0)
    assert runner.addresses[0][1] > 0
    await runner.cleanup()


def test_a_pod_that_has_only_ipv6_answers_its_probes():
    tried = subprocess.run([*IN_A_NAMESPACE, "sh", "-c", IPV6_ONLY], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine does not allow network namespaces with IPv6: {tried.stderr}")
    command = [*IN_A_NAMESPACE, "sh", "-c", f'{IPV6_ONLY} && exec "$@"', "sh", sys.executable, "-c", ANSWERS_ON_IPV6]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    assert (ended.stdout, ended.returncode) == ("well\n", 0), ended.stderr
