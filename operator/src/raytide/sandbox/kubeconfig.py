"""What does kubectl need to know to reach the sandbox?

Takes the server's URL, the authority's certificate and the admin token, gives the text of a kubeconfig with one
cluster, one user and one context. `write_private` puts a text where only its owner can read it, whole or not at all.
Called by the sandbox's start; read by kubectl, helm, kopf and the operator.
"""

import base64
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

CONTEXT: Final = "raytide-sandbox"


def build_kubeconfig(*, server: str, authority: bytes, token: str) -> str:
    """The YAML of a kubeconfig whose current context is the sandbox."""
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
        "current-context": CONTEXT,
        "preferences": {},
    }
    return yaml.safe_dump(config, sort_keys=False)


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
