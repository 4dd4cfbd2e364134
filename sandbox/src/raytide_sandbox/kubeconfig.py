"""The sandbox's kubeconfig.

Takes the server's URL, the CA certificate and a token or a client certificate; returns a kubeconfig with one cluster,
one user and one context. `write_private` writes a text atomically to a file that only its owner can read. Called when
the sandbox starts; read by kubectl, helm, kopf and the operator.
"""

import base64
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from raytide_sandbox.certificates import Identity

CONTEXT: Final = "raytide-sandbox"


def build_kubeconfig(*, server: str, authority: bytes, token: str = "", identity: Identity | None = None) -> str:
    """Build the kubeconfig YAML; the user authenticates with `identity`, or with `token` if there is none."""
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": _encoded(authority),
                },
            }
        ],
        "users": [{"name": CONTEXT, "user": _build_user(token, identity)}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
        "current-context": CONTEXT,
        "preferences": {},
    }
    return yaml.safe_dump(config, sort_keys=False)


def _build_user(token: str, identity: Identity | None) -> dict[str, str]:
    if identity is None:
        return {"token": token}
    return {
        "client-certificate-data": _encoded(identity.certificate),
        "client-key-data": _encoded(identity.key),
    }


def _encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def write_private(path: Path, text: str) -> None:
    """Replace `path` by a file of mode 0600 with this text; a reader sees the old file or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
