"""Credentials: TLS and a bearer token for an API server, and their renewal.

A `ClientConfig` is a server, TLS and credentials that are renewed when a token file rotates or the server answers 401;
`in_cluster_config` builds it from the pod's service account. Missing or broken input is one `ClientConfigError` whose
single line tells the user what to do. Used directly in pods, elsewhere through kubeconfig.py; does not import the kubeconfig
library, which keeps the autoscaler small.
"""

import asyncio
import logging
import ssl
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from raytide.api.host_port import join_host_port
from raytide.kube.http import HttpTransport

log = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S: Final = 60.0
"""The kubelet replaces a token long before it expires: reading the file once a minute suffices."""
KEEP_ALIVE_S: Final = 80.0
"""An API server closes idle connections after 90 s; closing earlier avoids a lost request."""


class ClientConfigError(Exception):
    """The configuration of a client is missing or broken; the message is one line with instructions."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The value of the Authorization header, if any."""

    authorization: str | None
    is_file: bool = False
    """It comes from a file that the kubelet or another process rotates."""


Pem: TypeAlias = str | Path | bytes
"""A certificate or key: the path of its file, or its content."""

CredentialSource: TypeAlias = Callable[[], Awaitable[Credentials]]
"""Reads the current credentials, from a file for example."""


class BearerAuth:
    """aiohttp client middleware that adds the Authorization header to every request of one session.

    - The credentials are read at the first request, and again after 60 s if they are in a rotating file.
    - They are read again after a 401; if they have changed, the request is sent once more.
    - If reading them again fails, the old credentials stay in use.
    """

    def __init__(self, credential_source: CredentialSource) -> None:
        self._credential_source = credential_source
        self._credentials: Credentials | None = None
        self._refreshed_at = 0.0
        self._refreshing = asyncio.Lock()

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send the request with the Authorization header."""
        credentials = await self._current()
        response = await send(_signed(request, credentials))
        if response.status != 401:
            return response
        fresh = await self._refresh(credentials)
        if fresh.authorization == credentials.authorization:
            return response
        response.release()
        return await send(_signed(request, fresh))

    async def _current(self) -> Credentials:
        credentials = self._credentials
        age_s = asyncio.get_running_loop().time() - self._refreshed_at
        if credentials is None or (credentials.is_file and age_s > TOKEN_AGE_S):
            return await self._refresh(credentials)
        return credentials

    async def _refresh(self, rejected: Credentials | None) -> Credentials:
        async with self._refreshing:
            if self._credentials is not None and self._credentials is not rejected:
                return self._credentials  # another request has read them again
            try:
                self._credentials = await self._credential_source()
            except (ClientConfigError, OSError) as error:
                if self._credentials is None:
                    raise aiohttp.ClientConnectionError(f"no credentials: {error}") from error
                log.warning("credentials could not be renewed: %s", error)
            self._refreshed_at = asyncio.get_running_loop().time()
            return self._credentials


def _signed(request: aiohttp.ClientRequest, credentials: Credentials) -> aiohttp.ClientRequest:
    if credentials.authorization is not None:
        request.headers["Authorization"] = credentials.authorization
    return request


class NamedContext(ssl.SSLContext):
    """TLS for a server whose certificate carries another name than its address (kubeconfig `tls-server-name`)."""

    server_name: str | None = None

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        """Like the base method, with that server name."""
        if self.server_name:
            options["server_hostname"] = self.server_name
        return super().wrap_bio(incoming, outgoing, *args, **options)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Configuration of clients: one API server and the credentials of one user.

    Its sessions may run in different event loops.
    """

    server: str
    credential_source: CredentialSource
    tls: NamedContext | None = None
    proxy: str | None = None
    namespace: str = "default"
    """The pod's namespace; with a kubeconfig that of its context."""
    is_in_cluster: bool = False
    anonymous_tls: Callable[[], NamedContext] | None = None
    """TLS for the same server without a client certificate, from the files as they are now; None for a server without TLS settings."""

    def of_caller(self, token: str) -> "ClientConfig":
        """The same API server with the bearer token of a caller in place of these credentials, a client certificate included."""

        async def credential_source() -> Credentials:
            return Credentials(f"Bearer {token}")

        tls = self.anonymous_tls() if self.anonymous_tls is not None else None
        return replace(self, credential_source=credential_source, tls=tls)

    async def open_session(
        self,
        *,
        trace_configs: list[aiohttp.TraceConfig] | None = None,
        response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
    ) -> aiohttp.ClientSession:
        """Open a session with these credentials and with a connection pool, bound to the running event loop."""
        tls = self.tls or True  # True: the default context of aiohttp, for a server without TLS settings
        no_limit = 0  # each watch keeps a connection busy; the callers bound the number of concurrent requests
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=no_limit, keepalive_timeout=KEEP_ALIVE_S),
            proxy=self.proxy,
            middlewares=(BearerAuth(self.credential_source),),
            trace_configs=trace_configs,
            response_class=response_class,
            headers={"Accept-Encoding": "identity"},  # inside a cluster bandwidth is cheaper than CPU
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def open_transport(self) -> HttpTransport:
        """Open a transport with its own connections."""
        return HttpTransport(await self.open_session(), self.server)


# --- in a pod ---------------------------------------------------------------------------------------------------------


def in_cluster_config(
    host: str,
    port: str,
    *,
    environ: Mapping[str, str],
    directory: Path = SERVICE_ACCOUNT_DIR,
    ca_file: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
) -> ClientConfig:
    """Configuration from the files of the pod's service account, which are in `directory`.

    `ca_file` replaces the CA certificate among them. A client certificate with its private key makes the token optional.
    Raises `ClientConfigError` if a file is missing or unreadable.
    """
    server = f"https://{join_host_port(host, port)}"
    ca_file, token = ca_file or directory / "ca.crt", directory / "token"
    if not ca_file.is_file() or not (token.is_file() or certificate):
        raise ClientConfigError(
            f"this pod has no service account under {directory}: mount its token (automountServiceAccountToken: true)"
        )
    tls = build_tls(ca=ca_file, certificate=certificate, private_key=private_key)

    async def credential_source() -> Credentials:
        tls.load_verify_locations(ca_file)  # rotated files apply from the next connection on
        if certificate is not None:
            load_client_certificate(tls, certificate, private_key)
        has_token = certificate is None or token.is_file()
        return Credentials(f"Bearer {_read_token(token)}" if has_token else None, is_file=True)

    namespace_file = directory / "namespace"
    namespace = namespace_file.read_text().strip() if namespace_file.is_file() else ""
    proxy = find_proxy(server, environ)
    return ClientConfig(
        server,
        credential_source,
        tls,
        proxy,
        namespace=namespace or "default",
        is_in_cluster=True,
        anonymous_tls=partial(build_tls, ca=ca_file),
    )


def _read_token(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise ClientConfigError(f"{path} is empty")
    return token


# --- TLS and proxy ----------------------------------------------------------------------------------------------------


def build_tls(
    *,
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
    is_verified: bool = True,
    server_name: str | None = None,
) -> NamedContext:
    """TLS as a kubeconfig describes it, from paths or contents; without `ca` the system's CAs are trusted."""
    tls = NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.server_name = server_name
    try:
        if not is_verified:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        elif ca:
            with _file(ca) as path:
                tls.load_verify_locations(path)
        else:
            tls.load_default_certs()
        if certificate:
            load_client_certificate(tls, certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise ClientConfigError(f"the certificates for the API server cannot be read: {error}") from error
    return tls


def load_client_certificate(tls: ssl.SSLContext, certificate: Pem, private_key: Pem | None) -> None:
    """Use this client certificate from the next connection on. Raises `OSError`, of which `ssl.SSLError` is one."""
    with _file(certificate) as certificate_path, _file(private_key or certificate) as key_path:
        tls.load_cert_chain(certificate_path, key_path)


@contextmanager
def _file(source: Pem) -> Iterator[str | Path]:
    """A file with that content, which only this user may read: OpenSSL reads files. It is gone before anything is sent."""
    if not isinstance(source, bytes):
        yield source
        return
    with tempfile.NamedTemporaryFile(prefix="raytide-") as opened:
        opened.write(source)
        opened.flush()
        yield opened.name


def find_proxy(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy from HTTPS_PROXY and NO_PROXY, with their usual meaning."""
    parts = urlsplit(server)
    proxy = environ.get(f"{parts.scheme}_proxy") or environ.get(f"{parts.scheme}_proxy".upper())
    hosts = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if not proxy or urllib.request.proxy_bypass_environment(parts.hostname or "", {"no": hosts}):  # type: ignore[attr-defined]
        return None
    return proxy
