"""Kubeconfig with static credentials: a token, a client certificate, or none.

Takes the text of one kubeconfig file and returns its settings, or None where the official client has to read it: exec plugins,
auth providers, passwords, token files, fields that are not listed here, and everything that is wrong, so that its errors stay the
same (D29). Importing the official client takes a second. Called by kubeconfig.py.
"""

import os
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from raytide.kube.credentials import Pem

_CLUSTER_FIELDS: Final = frozenset(
    {
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
        "proxy-url",
        "extensions",
    }
)
_USER_FIELDS: Final = frozenset(
    {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data", "extensions"}
)
_CONTEXT_FIELDS: Final = frozenset({"cluster", "user", "namespace", "extensions"})
_FLAG: Final = "insecure-skip-tls-verify"


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """The settings of one context; empty ones stand for those that it does not have."""

    server: str
    namespace: str = ""
    token: str = field(default="", repr=False)
    ca: Pem = ""
    certificate: Pem = ""
    private_key: Pem = field(default="", repr=False)
    is_verified: bool = True
    tls_server_name: str = ""
    proxy: str = ""


def read_static(paths: str, context: str | None) -> StaticConfig | None:
    """The settings of that context, or of the current one; None if the official client has to read the file or files."""
    files = [path for path in paths.split(os.pathsep) if path]
    if len(files) != 1:
        return None
    path = Path(files[0]).expanduser()
    try:
        document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        return _parsed(document, context, path.parent)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


def _parsed(document: Any, context: str | None, folder: Path) -> StaticConfig | None:
    if not isinstance(document, dict):
        return None
    chosen = _named(document, "context", context or document.get("current-context"), _CONTEXT_FIELDS)
    if chosen is None:
        return None
    cluster = _named(document, "cluster", chosen.get("cluster"), _CLUSTER_FIELDS)
    user = _named(document, "user", chosen.get("user"), _USER_FIELDS)
    if cluster is None or user is None or not cluster.get("server"):
        return None
    return StaticConfig(
        server=cluster["server"].rstrip("/"),
        namespace=chosen.get("namespace") or "",
        token=user.get("token") or "",
        ca=_pem(cluster, "certificate-authority", folder),
        certificate=_pem(user, "client-certificate", folder),
        private_key=_pem(user, "client-key", folder),
        is_verified=not cluster.get(_FLAG),
        tls_server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
    )


def _named(document: Mapping[str, Any], kind: str, name: object, fields: frozenset[str]) -> Mapping[str, Any] | None:
    """The entry of that name in `clusters`, `users` or `contexts` if it is the only one, and has these fields only."""
    entries = document.get(f"{kind}s")
    if not isinstance(name, str) or not name or not isinstance(entries, list):
        return None
    found = [entry.get(kind) for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
    entry = found[0] if len(found) == 1 else None
    if not isinstance(entry, dict) or not entry.keys() <= fields:
        return None
    texts = {field: value for field, value in entry.items() if field not in (_FLAG, "extensions")}
    are_texts = all(isinstance(value, str) for value in texts.values())
    return entry if are_texts and isinstance(entry.get(_FLAG, False), bool) else None


def _pem(entry: Mapping[str, Any], field: str, folder: Path) -> Pem:
    """What the kubeconfig contains itself comes before the path."""
    if data := entry.get(f"{field}-data"):
        return b64decode(data, validate=True)
    path = entry.get(field)
    return str(folder / path) if path else ""
