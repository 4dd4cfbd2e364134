"""Every way to configure access to an API server, against a TLS server on loopback; errors are one line."""

import contextlib
import ssl
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from raytide.api.errors import ApiUnavailableError
from raytide.kube import credentials as accessing
from raytide.kube.credentials import ClientConfig, ClientConfigError, find_proxy, in_cluster_config
from raytide.kube.kubeconfig import connect, load_client_config
from raytide_sandbox.certificates import Certificates, make_certificates

pytestmark = pytest.mark.rule("RM:F14")
PEM = serialization.Encoding.PEM


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return make_certificates(datetime.now(UTC), ["127.0.0.1", "the-name.example"])


class TlsServer:
    """A server that lets in who has the token, or a client certificate."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder = folder
        self.certificates = certificates
        self.accepted = "Bearer secret"
        self.seen: list[str | None] = []
        self.peers: list[object] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers.get("Authorization"))
        self.peers.append(request.transport.get_extra_info("peercert"))
        is_welcome = self.seen[-1] == self.accepted or bool(self.peers[-1])
        return web.Response(status=200 if is_welcome else 401)

    @contextlib.asynccontextmanager
    async def open(self, *, client_authority: Path | None = None) -> AsyncIterator["TlsServer"]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(
            self.file("server.crt", self.certificates.server), self.file("server.key", self.certificates.server_key)
        )
        if client_authority:
            tls.verify_mode = ssl.CERT_REQUIRED
            tls.load_verify_locations(client_authority)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def file(self, name: str, content: bytes | str) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def kubeconfig(self, *, user: dict, cluster: dict | None = None) -> Path:
        ours = {"server": self.url, "certificate-authority-data": b64encode(self.certificates.authority).decode()}
        return self.file(
            "kubeconfig",
            yaml.safe_dump(
                {
                    "clusters": [{"name": "c", "cluster": cluster or ours}],
                    "users": [{"name": "u", "user": user}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            ),
        )


@pytest.fixture
def tls_server(tmp_path, certificates) -> TlsServer:
    return TlsServer(tmp_path, certificates)


async def statuses_of_calls(config: ClientConfig, times: int = 1) -> list[int]:
    transport = await config.open_transport()
    try:
        return [(await transport.request("GET", "/x", timeout_s=5)).status for _ in range(times)]
    finally:
        await transport.close()


async def test_a_token_in_a_kubeconfig(tls_server):
    async with tls_server.open():
        config = await load_client_config(tls_server.kubeconfig(user={"token": "secret"}))
        assert await statuses_of_calls(config) == [200]
        assert config.server == tls_server.url


async def test_connect_opens_a_transport(tls_server):
    async with tls_server.open():
        transport = await connect(tls_server.kubeconfig(user={"token": "secret"}))
        assert (await transport.request("POST", "/x", body=b"{}", timeout_s=5)).status == 200
        await transport.close()


async def test_name_and_password(tls_server):
    tls_server.accepted = "Basic " + b64encode(b"me:pw").decode()
    async with tls_server.open():
        assert await statuses_of_calls(
            await load_client_config(tls_server.kubeconfig(user={"username": "me", "password": "pw"}))
        ) == [200]


async def test_a_token_file_is_read_again_after_401(tls_server):
    token = tls_server.file("token", "secret")
    async with tls_server.open():
        config = await load_client_config(tls_server.kubeconfig(user={"tokenFile": str(token)}))
        transport = await config.open_transport()
        assert (await transport.request("GET", "/x", timeout_s=5)).status == 200
        token.write_text("fresh")
        tls_server.accepted = "Bearer fresh"
        assert (await transport.request("POST", "/x", body=b"{}", timeout_s=5)).status == 200
        await transport.close()
    assert tls_server.seen == ["Bearer secret", "Bearer secret", "Bearer fresh"]


async def test_an_exec_plugin_is_called_again_after_401(tls_server):
    counter = tls_server.file("counter", "0")
    plugin = tls_server.file(
        "plugin.py",
        "import json, pathlib\n"
        f"path = pathlib.Path({str(counter)!r})\n"
        "count = int(path.read_text()) + 1\n"
        "path.write_text(str(count))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f'token-{count}'}}))\n",
    )
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(plugin)]}
    tls_server.accepted = "Bearer token-2"
    async with tls_server.open():
        config = await load_client_config(tls_server.kubeconfig(user={"exec": {**run, "interactiveMode": "Never"}}))
        assert await statuses_of_calls(config, times=2) == [200, 200]
    assert tls_server.seen == ["Bearer token-1", "Bearer token-2", "Bearer token-2"]


async def test_a_wrong_token_is_sent_once_and_stays_a_401(tls_server):
    async with tls_server.open():
        assert await statuses_of_calls(await load_client_config(tls_server.kubeconfig(user={"token": "wrong"}))) == [
            401
        ]
    assert tls_server.seen == ["Bearer wrong"]


def client_certificate() -> tuple[bytes, bytes]:
    """A self-signed certificate, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now.replace(year=now.year - 1, day=1))
        .not_valid_after(now.replace(year=now.year + 1, day=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(PEM), private


async def test_a_client_certificate(tls_server):
    certificate, key = client_certificate()
    user = {"client-certificate-data": b64encode(certificate).decode(), "client-key-data": b64encode(key).decode()}
    async with tls_server.open(client_authority=tls_server.file("client.crt", certificate)):
        assert await statuses_of_calls(await load_client_config(tls_server.kubeconfig(user=user))) == [200]
    assert tls_server.peers[0]["subject"] == ((("commonName", "me"),),)


@pytest.mark.rule("D29")
async def test_a_private_key_of_a_kubeconfig_is_in_no_file_once_it_is_loaded(tls_server, tmp_path, monkeypatch):
    """A process that is killed removes nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = []
    load = ssl.SSLContext.load_cert_chain

    def load_and_look(tls, certificate, key):
        modes.extend(Path(path).stat().st_mode & 0o777 for path in (certificate, key))
        load(tls, certificate, key)

    certificate, key = client_certificate()
    user = {"client-certificate-data": b64encode(certificate).decode(), "client-key-data": b64encode(key).decode()}
    async with tls_server.open():
        before = set(tmp_path.rglob("*"))
        kubeconfig = tls_server.kubeconfig(user=user)
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_look)
        await load_client_config(kubeconfig)
    assert modes == [0o600, 0o600]
    assert set(tmp_path.rglob("*")) - before <= {kubeconfig}


async def test_a_certificate_of_an_unknown_authority_is_rejected(tls_server):
    async with tls_server.open():
        other_authority = make_certificates(datetime.now(UTC), ["127.0.0.1"]).authority
        cluster = {"server": tls_server.url, "certificate-authority-data": b64encode(other_authority).decode()}
        config = await load_client_config(tls_server.kubeconfig(user={"token": "secret"}, cluster=cluster))
        with pytest.raises(ApiUnavailableError, match="certificate"):
            await statuses_of_calls(config)
    assert tls_server.seen == []


async def test_verification_can_be_switched_off(tls_server):
    async with tls_server.open():
        cluster = {"server": tls_server.url, "insecure-skip-tls-verify": True}
        assert await statuses_of_calls(
            await load_client_config(tls_server.kubeconfig(user={"token": "secret"}, cluster=cluster))
        ) == [200]


@pytest.mark.parametrize(("name", "is_trusted"), [("the-name.example", True), ("another.example", False)])
async def test_the_certificate_may_carry_another_name(tls_server, name, is_trusted):
    async with tls_server.open():
        authority = b64encode(tls_server.certificates.authority).decode()
        cluster = {"server": tls_server.url, "certificate-authority-data": authority, "tls-server-name": name}
        config = await load_client_config(tls_server.kubeconfig(user={"token": "secret"}, cluster=cluster))
        if is_trusted:
            assert await statuses_of_calls(config) == [200]
        else:
            with pytest.raises(ApiUnavailableError, match="certificate"):
                await statuses_of_calls(config)


def in_pod(tls_server: TlsServer) -> dict:
    tls_server.file("ca.crt", tls_server.certificates.authority)
    host, port = tls_server.url.removeprefix("https://").split(":")
    return {
        "environ": {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
        "service_account_dir": tls_server.folder,
    }


async def test_a_service_account_is_read_again_after_401(tls_server):
    token = tls_server.file("token", "secret\n")
    async with tls_server.open():
        config = await load_client_config(**in_pod(tls_server))
        transport = await config.open_transport()
        assert (await transport.request("GET", "/x", timeout_s=5)).status == 200
        token.write_text("rotated")
        tls_server.accepted = "Bearer rotated"
        assert (await transport.request("GET", "/x", timeout_s=5)).status == 200
        token.write_text("")
        tls_server.accepted = "Bearer unknown"
        assert (await transport.request("GET", "/x", timeout_s=5)).status == 401
        await transport.close()
    assert tls_server.seen == ["Bearer secret", "Bearer secret", "Bearer rotated", "Bearer rotated"]


async def test_a_rotated_service_account_is_read_again_by_age(tls_server, monkeypatch):
    monkeypatch.setattr(accessing, "TOKEN_AGE_S", 0.0)
    token = tls_server.file("token", "old")
    tls_server.accepted = "Bearer secret"
    async with tls_server.open():
        config = await load_client_config(**in_pod(tls_server))
        transport = await config.open_transport()
        assert (await transport.request("GET", "/x", timeout_s=5)).status == 401
        token.write_text("secret")
        assert (await transport.request("GET", "/x", timeout_s=5)).status == 200
        await transport.close()
    assert tls_server.seen == ["Bearer old", "Bearer secret"]


async def test_a_rotated_authority_is_loaded(tls_server, certificates):
    tls_server.file("token", "secret")
    async with tls_server.open():
        options = in_pod(tls_server)
        tls_server.file("ca.crt", make_certificates(datetime.now(UTC), ["127.0.0.1"]).authority)
        config = await load_client_config(**options)
        tls_server.file("ca.crt", certificates.authority)
        assert await statuses_of_calls(config) == [200]


async def test_another_session_of_the_same_access_is_signed_too(tls_server):
    async with tls_server.open():
        config = await load_client_config(tls_server.kubeconfig(user={"token": "secret"}))
        assert await statuses_of_calls(config) + await statuses_of_calls(config) == [200, 200]


# --- which one -----------------------------------------------------------------------------------------------------------


async def test_the_order_is_argument_environment_pod_and_home_folder(tls_server, tmp_path):
    tls_server.url = "https://argument"
    argument = tls_server.kubeconfig(user={"token": "t"}).rename(tmp_path / "argument")
    tls_server.url = "https://environment"
    environment = tls_server.kubeconfig(user={"token": "t"}).rename(tmp_path / "environment")
    tls_server.url = "https://home"
    (tmp_path / ".kube").mkdir()
    tls_server.kubeconfig(user={"token": "t"}).rename(tmp_path / ".kube" / "config")
    tls_server.file("token", "t")
    tls_server.file("ca.crt", tls_server.certificates.authority)
    environ = {
        "KUBECONFIG": str(environment),
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOME": str(tmp_path),
    }
    servers = [(await load_client_config(argument, environ=environ, service_account_dir=tmp_path)).server]
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        servers.append((await load_client_config(environ=environ, service_account_dir=tmp_path)).server)
        del environ[name]
    servers.append((await load_client_config(environ=environ)).server)
    assert servers == ["https://argument", "https://environment", "https://[fd00::1]:443", "https://home"]


async def one_line(*args, **options) -> str:
    with pytest.raises(ClientConfigError) as caught:
        await load_client_config(*args, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


async def test_the_error_without_a_cluster_names_the_remedies(tmp_path):
    message = await one_line(environ={"HOME": str(tmp_path)})
    assert "KUBECONFIG" in message
    assert "raytide sandbox up" in message


async def test_a_kubeconfig_that_is_not_there(tmp_path):
    assert "does not exist" in await one_line(tmp_path / "nowhere", environ={})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{{{", id="not YAML"),
        pytest.param("", id="empty"),
        pytest.param("current-context: x\ncontexts: []\nclusters: []\nusers: []\n", id="unknown context"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used(tmp_path, content):
    (tmp_path / "kubeconfig").write_text(content)
    assert "cannot be used" in await one_line(tmp_path / "kubeconfig", environ={})


async def test_a_kubeconfig_without_the_package_that_reads_it(tls_server, monkeypatch):
    """As in the container image."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    tls_server.url = "https://127.0.0.1:1"
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}
    message = await one_line(tls_server.kubeconfig(user={"exec": run}), environ={})
    assert "the Python package kubernetes is not installed" in message
    assert "pip install kubernetes" in message


async def test_a_token_needs_no_such_package(tls_server, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    async with tls_server.open():
        assert await statuses_of_calls(await load_client_config(tls_server.kubeconfig(user={"token": "secret"}))) == [
            200
        ]


async def test_certificates_that_cannot_be_read(tls_server):
    tls_server.url = "https://127.0.0.1:1"
    cluster = {"server": tls_server.url, "certificate-authority-data": b64encode(b"nonsense").decode()}
    assert "certificates" in await one_line(tls_server.kubeconfig(user={"token": "t"}, cluster=cluster))


async def test_a_pod_without_a_service_account(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert "automountServiceAccountToken" in await one_line(environ=environ, service_account_dir=tmp_path)


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"HTTPS_PROXY": "http://p:1"}, "http://p:1", id="upper case"),
        pytest.param({"https_proxy": "http://p:1"}, "http://p:1", id="lower case"),
        pytest.param({"HTTP_PROXY": "http://p:1"}, None, id="of another scheme"),
        pytest.param({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.org"}, None, id="not for this domain"),
    ],
)
def test_the_proxy_of_the_environment(environ, proxy):
    assert find_proxy("https://api.example.org:6443", environ) == proxy


async def test_the_proxy_of_the_kubeconfig_comes_first(tls_server):
    cluster = {"server": "http://api.example.org", "proxy-url": "http://q:2"}
    config = await load_client_config(
        tls_server.kubeconfig(user={"token": "t"}, cluster=cluster), environ={"http_proxy": "http://p:1"}
    )
    assert config.proxy == "http://q:2"


def certified(tls_server: TlsServer, folder: Path, authority: Path | None = None) -> ClientConfig:
    certificate, key = client_certificate()
    files = {"certificate": tls_server.file("me.crt", certificate), "private_key": tls_server.file("me.key", key)}
    host, port = tls_server.url.removeprefix("https://").split(":")
    return in_cluster_config(host, port, environ={}, directory=folder, ca_file=authority, **files)


async def test_in_a_pod_a_client_certificate_needs_no_token(tls_server, tmp_path):
    tls_server.file("ca.crt", tls_server.certificates.authority)
    async with tls_server.open():
        tls_server.accepted = None  # clients without a token
        assert await statuses_of_calls(certified(tls_server, tmp_path)) == [200]
    assert tls_server.seen == [None]


async def test_in_a_pod_another_authority_may_be_named(tls_server, tmp_path):
    authority = tls_server.file("another.crt", tls_server.certificates.authority)
    async with tls_server.open():
        assert await statuses_of_calls(certified(tls_server, tmp_path / "nothing", authority)) == [401]


async def test_in_a_pod_a_certificate_without_its_authority_is_one_line(tls_server, tmp_path):
    async with tls_server.open():
        with pytest.raises(ClientConfigError, match="no service account"):
            certified(tls_server, tmp_path / "nothing")


@pytest.mark.rule("FD:SEC-F12")
async def test_insecure_skip_tls_verify_is_a_warning(tls_server, caplog):
    async with tls_server.open():
        cluster = {"server": tls_server.url, "insecure-skip-tls-verify": True}
        await load_client_config(tls_server.kubeconfig(user={"token": "secret"}, cluster=cluster))
    assert "insecure-skip-tls-verify" in caplog.text
    assert "secret" not in caplog.text
