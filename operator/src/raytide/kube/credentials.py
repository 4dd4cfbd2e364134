"""Credentials: TLS and a bearer token for an API server, and their renewal.

An `Access` is a server, TLS and credentials that are renewed when a token file rotates or the server answers 401; it is
built from a pod's service account or a client certificate. Missing or broken input is one `NotConnectedError` whose single
line tells the user what to do. Used directly in pods, elsewhere through kubeconfig.py; does not import the kubeconfig
library, which keeps the autoscaler small.
"""

import asyncio
import logging
import ssl
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from raytide.kube import messages
from raytide.kube.http import HttpTransport

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S: Final = 60.0
"""The kubelet replaces a token long before it expires: reading the file once a minute suffices."""
KEEP_ALIVE_S: Final = 80.0
"""An API server closes idle connections after 90 s; closing earlier avoids a lost request."""


class NotConnectedError(Exception):
    """No API server can be reached; the message is one line with instructions."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Current credentials: the value of the Authorization header, if any."""

    authorization: str | None
    is_file: bool = False
    """It comes from a file that the kubelet or another process rotates."""


Renew: TypeAlias = Callable[[], Awaitable[Identity]]


class Bearer:
    """aiohttp client middleware that adds the Authorization header to every request of one session.

    - The identity is read at the first request, and again after 60 s if it is a rotating file.
    - A 401 renews it; if it has changed, the request is sent once more.
    - A failed renewal keeps the old identity.
    """

    def __init__(self, renew: Renew) -> None:
        self._renew = renew
        self._identity: Identity | None = None
        self._renewed_at = 0.0
        self._renewing = asyncio.Lock()

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send the request with the Authorization header."""
        identity = await self._current()
        response = await send(_signed(request, identity))
        if response.status != 401:
            return response
        fresh = await self._renewed(identity)
        if fresh.authorization == identity.authorization:
            return response
        response.release()
        return await send(_signed(request, fresh))

    async def _current(self) -> Identity:
        identity = self._identity
        age_s = asyncio.get_running_loop().time() - self._renewed_at
        if identity is None or (identity.is_file and age_s > TOKEN_AGE_S):
            return await self._renewed(identity)
        return identity

    async def _renewed(self, known: Identity | None) -> Identity:
        async with self._renewing:
            if self._identity is not None and self._identity is not known:
                return self._identity  # already renewed by another request
            try:
                self._identity = await self._renew()
            except (NotConnectedError, OSError) as error:
                if self._identity is None:
                    raise aiohttp.ClientConnectionError(messages.no_credentials(error)) from error
                log.warning(messages.CREDENTIALS_NOT_RENEWED, error)
            self._renewed_at = asyncio.get_running_loop().time()
            return self._identity


def _signed(request: aiohttp.ClientRequest, identity: Identity) -> aiohttp.ClientRequest:
    if identity.authorization is not None:
        request.headers["Authorization"] = identity.authorization
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
class Access:
    """One API server as one user; its sessions may run in different event loops."""

    server: str
    renew: Renew
    tls: NamedContext | None = None
    proxy: str | None = None
    namespace: str = "default"
    """The pod's namespace; with a kubeconfig that of its context."""
    is_in_cluster: bool = False

    async def open_session(
        self,
        *,
        trace_configs: list[aiohttp.TraceConfig] | None = None,
        response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
    ) -> aiohttp.ClientSession:
        """Open a session with credentials and connection pool, bound to the running event loop."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls or True, limit=0, keepalive_timeout=KEEP_ALIVE_S),
            proxy=self.proxy,
            middlewares=(Bearer(self.renew),),
            trace_configs=trace_configs,
            response_class=response_class,
            headers={"Accept-Encoding": "identity"},  # inside a cluster bandwidth is cheaper than CPU
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def open_transport(self) -> HttpTransport:
        """Open a transport with its own connections."""
        return HttpTransport(await self.open_session(), self.server)


# --- in a pod ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Certificate files used instead of a token or in addition to it."""

    certificate: Path
    private_key: Path


def service_account_access(
    host: str,
    port: str,
    *,
    environ: Mapping[str, str],
    folder: Path = SERVICE_ACCOUNT,
    authority: Path | None = None,
    client_certificate: ClientCertificate | None = None,
) -> Access:
    """Access by the pod's service account; `authority` replaces its CA, a client certificate makes its token optional.

    Raises `NotConnectedError`.
    """
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority, token = authority or folder / "ca.crt", folder / "token"
    if not authority.is_file() or not (token.is_file() or client_certificate):
        raise NotConnectedError(messages.no_service_account(folder))
    pair = client_certificate
    tls = build_tls(
        authority=authority,
        certificate=pair.certificate if pair else None,
        private_key=pair.private_key if pair else None,
    )

    async def renew() -> Identity:
        tls.load_verify_locations(authority)  # rotated files apply from the next connection on
        if pair is not None:
            tls.load_cert_chain(pair.certificate, pair.private_key)
        is_known = pair is None or token.is_file()
        return Identity(f"Bearer {_read_token(token)}" if is_known else None, is_file=True)

    own = folder / "namespace"
    namespace = own.read_text().strip() if own.is_file() else ""
    proxy = find_proxy(server, environ)
    return Access(server, renew, tls, proxy, namespace=namespace or "default", is_in_cluster=True)


def _read_token(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise NotConnectedError(messages.token_empty(path))
    return token


# --- TLS and proxy ----------------------------------------------------------------------------------------------------


def build_tls(
    *,
    authority: str | Path | None = None,
    certificate: str | Path | None = None,
    private_key: str | Path | None = None,
    is_verified: bool = True,
    server_name: str | None = None,
) -> NamedContext:
    """TLS as a kubeconfig describes it; without `authority` the system's CAs are trusted."""
    tls = NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.server_name = server_name
    try:
        if not is_verified:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        elif authority:
            tls.load_verify_locations(authority)
        else:
            tls.load_default_certs()
        if certificate:
            tls.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise NotConnectedError(messages.certificates_unreadable(error)) from error
    return tls


def find_proxy(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy from HTTPS_PROXY and NO_PROXY, with their usual meaning."""
    parts = urlsplit(server)
    proxy = environ.get(f"{parts.scheme}_proxy") or environ.get(f"{parts.scheme}_proxy".upper())
    hosts = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if not proxy or urllib.request.proxy_bypass_environment(parts.hostname or "", {"no": hosts}):  # type: ignore[attr-defined]
        return None
    return proxy
