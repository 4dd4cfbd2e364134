"""Connections of an API server into the pods' network: CONNECT over a unix socket only."""

import asyncio
import socket

import pytest

from raytide_sandbox.streaming.egress_proxy import build_egress_configuration, egress_proxy


async def exchange(path, request, more=b""):
    """Everything the proxy answers."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request + b"\r\n\r\n" + more)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def echo(reader, writer):
    writer.write(b"pod says " + await reader.read())
    writer.close()


class Network:
    """One pod, by whatever address; remembers what was dialled."""

    def __init__(self, port):
        self.port, self.dialled = port, []

    async def dial(self, host, port, _timeout_s):
        self.dialled.append((host, port))
        if port != 8000:
            raise ConnectionRefusedError("connection refused")
        opened = socket.create_connection(("127.0.0.1", self.port))
        opened.setblocking(False)
        return opened


@pytest.fixture
async def network(tmp_path):
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    found = Network(server.sockets[0].getsockname()[1])
    async with server, egress_proxy(tmp_path / "e", found.dial):
        yield found


async def test_a_pod_is_dialled_in_its_network(network, tmp_path):
    answer = await exchange(tmp_path / "e", b"CONNECT 10.88.0.7:8000 HTTP/1.1\r\nHost: x", b"hello")
    assert answer == b"HTTP/1.1 200 OK\r\n\r\npod says hello"
    assert network.dialled == [("10.88.0.7", 8000)]


async def test_a_kubelet_is_dialled_on_this_machine(network, tmp_path):
    answer = await exchange(tmp_path / "e", b"CONNECT 127.0.0.1:%d HTTP/1.1" % network.port, b"hello")
    assert answer.endswith(b"pod says hello")
    assert network.dialled == []


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        pytest.param(b"CONNECT 10.88.0.7:9 HTTP/1.1", b"502 Bad Gateway", id="the port is closed"),
        pytest.param(b"CONNECT example.com:443 HTTP/1.1", b"400 Bad Request", id="names are not resolved"),
        pytest.param(b"CONNECT 10.88.0.7 HTTP/1.1", b"400 Bad Request", id="no port"),
        pytest.param(b"GET / HTTP/1.1", b"400 Bad Request", id="it is no web server"),
        pytest.param(b"", b"400 Bad Request", id="an empty head"),
    ],
)
async def test_what_cannot_be_dialled_is_rejected(network, tmp_path, request_line, status):
    assert (await exchange(tmp_path / "e", request_line)).split(b"\r\n")[0] == b"HTTP/1.1 " + status


def test_the_configuration_names_the_socket(tmp_path):
    (selection,) = build_egress_configuration(tmp_path / "e")["egressSelections"]
    assert selection["name"] == "cluster"
    assert selection["connection"]["transport"] == {"uds": {"udsName": str(tmp_path / "e")}}
