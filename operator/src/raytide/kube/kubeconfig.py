"""Client configuration from a kubeconfig or the pod's service account.

Finds a kubeconfig or service account and returns a `ClientConfig` (credentials.py). Missing or broken input is one
`ClientConfigError` whose single line tells the user what to do. Used by the commands; the only module that imports
`kubernetes`, lazily, to read kubeconfigs: a pod does not need it, and the container image does not have it.
"""

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from raytide.kube.credentials import (
    SERVICE_ACCOUNT_DIR,
    ClientConfig,
    ClientConfigError,
    Credentials,
    build_tls,
    find_proxy,
    in_cluster_config,
    load_client_certificate,
)
from raytide.kube.http import HttpTransport
from raytide.kube.static_kubeconfig import read_static

log = logging.getLogger(__name__)

NO_CLUSTER: Final = (
    "no cluster to talk to: pass --kubeconfig FILE, set KUBECONFIG, "
    "or start a cluster on this machine with `raytide sandbox up`"
)


async def connect(
    kubeconfig: Path | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> HttpTransport:
    """Open a transport to the cluster that `load_client_config` finds."""
    return await (await load_client_config(kubeconfig, context=context, environ=environ)).open_transport()


async def load_client_config(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> ClientConfig:
    """Configuration from the given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises `ClientConfigError`.
    """
    if kubeconfig is not None:
        return await _from_kubeconfig(str(kubeconfig), context, environ)
    if environ.get("KUBECONFIG"):
        return await _from_kubeconfig(environ["KUBECONFIG"], context, environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
        return in_cluster_config(host, port, environ=environ, directory=service_account_dir)
    fallback = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if not fallback.is_file():
        raise ClientConfigError(NO_CLUSTER)
    return await _from_kubeconfig(str(fallback), context, environ)


# --- by kubeconfig ---------------------------------------------------------------------------------------------------


async def _from_kubeconfig(paths: str, context: str | None, environ: Mapping[str, str]) -> ClientConfig:
    if not _is_any_file(paths):
        raise ClientConfigError(f"kubeconfig {paths} does not exist; {NO_CLUSTER}")
    found = await _load(paths, context)
    if not found.verify_ssl:
        log.warning(
            "kubeconfig %s sets insecure-skip-tls-verify: an attacker between this machine and %s can read the token and "
            "impersonate the API server; set the cluster's certificate-authority instead",
            paths,
            found.host,
        )
    tls = anonymous_tls = None
    if found.host.startswith("https"):
        anonymous_tls = partial(
            build_tls,
            ca=found.ssl_ca_cert,
            is_verified=found.verify_ssl,
            server_name=found.tls_server_name,
        )
        tls = anonymous_tls(certificate=found.cert_file, private_key=found.key_file)
    first: list[Credentials] = [_credentials(found)]

    async def credential_source() -> Credentials:
        if first:
            return first.pop()
        again = await _load(paths, context)
        if tls is not None and again.cert_file:
            load_client_certificate(tls, again.cert_file, again.key_file)
        return _credentials(again)

    proxy = found.proxy or find_proxy(found.host, environ)
    return ClientConfig(
        found.host, credential_source, tls, proxy, namespace=found.namespace, anonymous_tls=anonymous_tls
    )


def _is_any_file(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


async def _load(paths: str, context: str | None) -> Any:
    """Host, proxy, files and token; the official client reads what has no static credentials, exec plugins included."""
    static = read_static(paths, context)
    if static is not None:
        return SimpleNamespace(
            host=static.server,
            ssl_ca_cert=static.ca or None,
            cert_file=static.certificate or None,
            key_file=static.private_key or None,
            verify_ssl=static.is_verified,
            tls_server_name=static.tls_server_name or None,
            proxy=static.proxy or None,
            api_key={"BearerToken": f"Bearer {static.token}"} if static.token else {},
            namespace=static.namespace or "default",
        )
    try:
        from kubernetes.aio.config import load_kube_config  # noqa: PLC0415 - a second of imports that pods do not need
    except ModuleNotFoundError as error:  # the image's lock leaves it out
        package = (error.name or "kubernetes").partition(".")[0]
        raise ClientConfigError(
            f"kubeconfig {paths} cannot be read: the Python package {package} is not installed, which Raytide's container "
            "image leaves out; without it, only a valid kubeconfig with a token or a client certificate can be read; run "
            "`pip install kubernetes`, or in a pod use its service account (no --kubeconfig, no KUBECONFIG)"
        ) from error

    found = SimpleNamespace(
        host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True, tls_server_name=None, proxy=None
    )
    found.api_key = {}
    try:
        loaded = await load_kube_config(  # type: ignore[no-untyped-call]
            paths, context=context, client_configuration=found, persist_config=False
        )
    except Exception as error:  # broken files raise various exceptions there
        if context and f"Expected object with name {context} in" in str(error):
            words = (
                f"kubeconfig {paths} has no context {context}; `kubectl config get-contexts` lists those that it has"
            )
            raise ClientConfigError(words) from error
        raise ClientConfigError(f"kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error
    if not found.host:
        raise ClientConfigError(f"kubeconfig {paths} has no server for its cluster")
    found.namespace = loaded.current_context["context"].get("namespace") or "default"
    return found


def _credentials(found: Any) -> Credentials:
    return Credentials(found.api_key.get("BearerToken"))
