"""Access from a kubeconfig or the pod's service account.

Finds a kubeconfig or service account and returns an `Access` (credentials.py). Missing or broken input is one
`NotConnectedError` whose single line tells the user what to do. Used by the commands; the only module that imports
`kubernetes`, lazily, to read kubeconfigs.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from raytide.kube import messages
from raytide.kube.credentials import (
    SERVICE_ACCOUNT,
    Access,
    Identity,
    NotConnectedError,
    build_tls,
    find_proxy,
    service_account_access,
)
from raytide.kube.http import HttpTransport

log = logging.getLogger(__name__)


async def connect(
    kubeconfig: Path | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> HttpTransport:
    """Open a transport to the cluster that `find_access` finds."""
    return await (await find_access(kubeconfig, context=context, environ=environ)).open_transport()


async def find_access(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Access by the given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises `NotConnectedError`.
    """
    if kubeconfig is not None:
        return await _by_kubeconfig(str(kubeconfig), context, environ)
    if environ.get("KUBECONFIG"):
        return await _by_kubeconfig(environ["KUBECONFIG"], context, environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
        return service_account_access(host, port, environ=environ, folder=service_account)
    fallback = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if not fallback.is_file():
        raise NotConnectedError(messages.NO_CLUSTER)
    return await _by_kubeconfig(str(fallback), context, environ)


# --- by kubeconfig ---------------------------------------------------------------------------------------------------


async def _by_kubeconfig(paths: str, context: str | None, environ: Mapping[str, str]) -> Access:
    if not _is_any_file(paths):
        raise NotConnectedError(messages.kubeconfig_missing(paths))
    found = await _load(paths, context)
    if not found.verify_ssl:
        log.warning(
            messages.INSECURE_TLS,
            paths,
            found.host,
        )
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
            tls.load_cert_chain(again.cert_file, again.key_file)  # applies from the next connection on
        return _identity(again)

    proxy = found.proxy or find_proxy(found.host, environ)
    return Access(found.host, renew, tls, proxy, namespace=found.namespace)


def _is_any_file(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


async def _load(paths: str, context: str | None) -> Any:
    """Load the kubeconfig with the official client: host, proxy, files and token, exec plugins included."""
    from kubernetes.aio.config import load_kube_config  # noqa: PLC0415 - a second of imports that pods do not need

    found = SimpleNamespace(
        host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True, tls_server_name=None, proxy=None
    )
    found.api_key = {}
    try:
        loaded = await load_kube_config(  # type: ignore[no-untyped-call]
            paths, context=context, client_configuration=found, persist_config=False
        )
    except Exception as error:  # broken files raise various exceptions there
        raise NotConnectedError(messages.kubeconfig_unusable(paths, error)) from error
    if not found.host:
        raise NotConnectedError(messages.kubeconfig_without_server(paths))
    found.namespace = loaded.current_context["context"].get("namespace") or "default"
    return found


def _identity(found: Any) -> Identity:
    return Identity(found.api_key.get("BearerToken"))
