"""Where is the API server, and who are we to it?

Looks for a kubeconfig or a service account and gives an `Access`: a server, TLS, and credentials that renew themselves
when a token rotates or the server answers 401. Whatever is missing or broken is one `NotConnected` whose one line says
what to do. Called by the commands; the only place that imports `kubernetes`, lazily, to read kubeconfigs.
"""

import asyncio
import logging
import os
import ssl
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from raytide.kube.http import HttpTransport, sending_trace

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S: Final = 60.0
"""Kubelets replace a token long before it expires; reading the file once a minute is soon enough."""
KEEP_ALIVE_S: Final = 80.0
"""An API server closes an idle connection after 90 s; being earlier saves a request that would be lost."""
NO_CLUSTER: Final = (
    "no cluster to talk to: pass --kubeconfig FILE, set KUBECONFIG, "
    "or start a cluster on this machine with `raytide sandbox up`"
)


class NotConnected(Exception):  # noqa: N818 - a sentence for the user
    """There is nobody to talk to; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What credentials are worth right now: the value of the Authorization header, if any."""

    authorization: str | None
    is_file: bool = False
    """It comes from a file that somebody else keeps fresh."""


Renew: TypeAlias = Callable[[], Awaitable[Identity]]


class Bearer:
    """Adds our identity to every request of one session (a client middleware of aiohttp).

    - The identity is found out at the first request, and again after 60 s where it is a file that rotates.
    - A 401 renews it and sends the request once more, once, if the identity has changed.
    - A renewal that fails keeps the old identity.
    """

    def __init__(self, renew: Renew) -> None:
        self._renew = renew
        self._identity: Identity | None = None
        self._renewed_at = 0.0
        self._renewing = asyncio.Lock()

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send it as ourselves."""
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
                return self._identity  # another request was faster
            try:
                self._identity = await self._renew()
            except (NotConnected, OSError) as error:
                if self._identity is None:
                    raise aiohttp.ClientConnectionError(f"no credentials: {error}") from error
                log.warning("credentials could not be renewed: %s", error)
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
        """As always, but with that name."""
        if self.server_name:
            options["server_hostname"] = self.server_name
        return super().wrap_bio(incoming, outgoing, *args, **options)


@dataclass(frozen=True, slots=True)
class Access:
    """One API server as one user; sessions made from it may live in different event loops."""

    server: str
    renew: Renew
    tls: NamedContext | None = None
    proxy: str | None = None
    namespace: str = "default"
    """Ours in a pod; with a kubeconfig that of its context."""
    is_in_cluster: bool = False

    async def open_session(
        self,
        *,
        trace_configs: list[aiohttp.TraceConfig] | None = None,
        response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
    ) -> aiohttp.ClientSession:
        """A session that is signed, keeps connections, and belongs to the running loop."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls or True, limit=0, keepalive_timeout=KEEP_ALIVE_S),
            proxy=self.proxy,
            middlewares=(Bearer(self.renew),),
            trace_configs=[sending_trace(), *(trace_configs or ())],
            response_class=response_class,
            headers={"Accept-Encoding": "identity"},  # inside a cluster bytes are cheaper than CPU
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def open_transport(self) -> HttpTransport:
        """A transport of its own connections."""
        return HttpTransport(await self.open_session(), self.server)


async def connect(
    kubeconfig: Path | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> HttpTransport:
    """A transport to the cluster that `find_access` finds."""
    return await (await find_access(kubeconfig, context=context, environ=environ)).open_transport()


async def find_access(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """The given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises `NotConnected`.
    """
    if kubeconfig is not None:
        return await _by_kubeconfig(str(kubeconfig), context, environ)
    if environ.get("KUBECONFIG"):
        return await _by_kubeconfig(environ["KUBECONFIG"], context, environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _by_service_account(environ, service_account)
    fallback = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if not fallback.is_file():
        raise NotConnected(NO_CLUSTER)
    return await _by_kubeconfig(str(fallback), context, environ)


# --- in a pod ----------------------------------------------------------------------------------------------------------


def _by_service_account(environ: Mapping[str, str], folder: Path) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority, token = folder / "ca.crt", folder / "token"
    if not token.is_file() or not authority.is_file():
        raise NotConnected(
            f"this pod has no service account under {folder}: "
            "set automountServiceAccountToken: true, or pass --kubeconfig FILE"
        )
    tls = build_tls(authority=authority)

    async def renew() -> Identity:
        tls.load_verify_locations(authority)  # a rotated authority counts from the next connection on
        return Identity(f"Bearer {_read_token(token)}", is_file=True)

    own = folder / "namespace"
    namespace = own.read_text().strip() if own.is_file() else ""
    proxy = find_proxy(server, environ)
    return Access(server, renew, tls, proxy, namespace=namespace or "default", is_in_cluster=True)


def _read_token(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise NotConnected(f"{path} is empty")
    return token


# --- by kubeconfig -----------------------------------------------------------------------------------------------------


async def _by_kubeconfig(paths: str, context: str | None, environ: Mapping[str, str]) -> Access:
    if not _is_any_file(paths):
        raise NotConnected(f"kubeconfig {paths} does not exist; {NO_CLUSTER}")
    found = await _load(paths, context)
    tls = None
    if found.host.startswith("https"):
        tls = build_tls(
            authority=found.ssl_ca_cert,
            certificate=found.cert_file,
            private_key=found.key_file,
            is_verified=found.verify_ssl,
            server_name=found.tls_server_name,
        )
    first: list[Identity] = [_identity(found)]

    async def renew() -> Identity:
        if first:
            return first.pop()
        again = await _load(paths, context)
        if tls is not None and again.cert_file:
            tls.load_cert_chain(again.cert_file, again.key_file)  # counts from the next connection on
        return _identity(again)

    proxy = found.proxy or find_proxy(found.host, environ)
    return Access(found.host, renew, tls, proxy, namespace=found.namespace)


def _is_any_file(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


async def _load(paths: str, context: str | None) -> Any:
    """What the official client makes of it: host, proxy, files and token, exec plugins included."""
    from kubernetes.aio.config import load_kube_config  # noqa: PLC0415 - a second of imports that a pod never needs

    found = SimpleNamespace(
        host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True, tls_server_name=None, proxy=None
    )
    found.api_key = {}
    try:
        loaded = await load_kube_config(  # type: ignore[no-untyped-call]
            paths, context=context, client_configuration=found, persist_config=False
        )
    except Exception as error:  # every kind of broken file ends in another exception there
        raise NotConnected(f"kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error
    if not found.host:
        raise NotConnected(f"kubeconfig {paths} names no server")
    found.namespace = loaded.current_context["context"].get("namespace") or "default"
    return found


def _identity(found: Any) -> Identity:
    return Identity(found.api_key.get("BearerToken"))


# --- the way there -----------------------------------------------------------------------------------------------------


def build_tls(
    *,
    authority: str | Path | None = None,
    certificate: str | Path | None = None,
    private_key: str | Path | None = None,
    is_verified: bool = True,
    server_name: str | None = None,
) -> NamedContext:
    """TLS as a kubeconfig describes it; without an authority the system's own are trusted."""
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
        raise NotConnected(f"the certificates for the API server cannot be read: {error}") from error
    return tls


def find_proxy(server: str, environ: Mapping[str, str]) -> str | None:
    """HTTPS_PROXY and NO_PROXY as everybody understands them."""
    parts = urlsplit(server)
    proxy = environ.get(f"{parts.scheme}_proxy") or environ.get(f"{parts.scheme}_proxy".upper())
    hosts = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if not proxy or urllib.request.proxy_bypass_environment(parts.hostname or "", {"no": hosts}):  # type: ignore[attr-defined]
        return None
    return proxy
