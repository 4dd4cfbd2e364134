"""A kubelet accepts requests with its token, or with one client certificate."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime

import pytest

from raytide_sandbox.certificates import Authority
from raytide_sandbox.kubelet.server import KubeletServer, RequestAuthenticator
from support.deadlines import PATIENCE

NOW = datetime.now(UTC)
OURS, THEIRS = Authority.create(NOW, "ours"), Authority.create(NOW, "theirs")


def listening_tls():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=OURS.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    OURS.issue_server(NOW, "node", ["127.0.0.1"]).load_into(context)
    return context


def ask(port, *, identity=None, has_tls=True, header=""):
    """The first line of the answer; empty when there is none."""
    context = ssl.create_default_context(cadata=OURS.certificate.decode())
    if identity:
        identity.load_into(context)
    request = f"GET /healthz HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=5 * PATIENCE) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") if has_tls else plain as connection:
                connection.sendall(request)
                return connection.recv(4096).split(b"\r\n")[0].decode()
        except (ssl.SSLError, ConnectionResetError):
            return ""


async def answer(authenticator, **asking):
    server = KubeletServer(None, lambda *_: None, None, authenticator)
    await server.start("127.0.0.1", 0)
    try:
        return await asyncio.to_thread(ask, server.port, **asking)
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        pytest.param(OURS.issue_client(NOW, "the-api-server"), "HTTP/1.1 200 OK", id="the API server comes in"),
        pytest.param(OURS.issue_client(NOW, "another"), "HTTP/1.1 401 Unauthorized", id="another name does not"),
        pytest.param(THEIRS.issue_client(NOW, "the-api-server"), "", id="another authority counts for nothing"),
        pytest.param(None, "", id="nor does no certificate"),
    ],
)
async def test_a_certificate_opens_a_kubelet(identity, expected):
    authenticator = RequestAuthenticator(tls=listening_tls(), client_name="the-api-server")
    assert await answer(authenticator, identity=identity) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("Authorization: Bearer right\r\n", "HTTP/1.1 200 OK", id="the token"),
        pytest.param("Authorization: Bearer wrong\r\n", "HTTP/1.1 401 Unauthorized", id="another token"),
        pytest.param("", "HTTP/1.1 401 Unauthorized", id="none"),
    ],
)
async def test_a_token_opens_a_kubelet(header, expected):
    assert await answer(RequestAuthenticator(token="right"), has_tls=False, header=header) == expected
