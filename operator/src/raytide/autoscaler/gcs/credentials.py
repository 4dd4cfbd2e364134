"""Credentials for the GCS: authentication token and mutual TLS files.

`gcs_access` reads Ray's environment variables once and returns frozen values: whether a token is required and where it
is, and the TLS files. `Token` and `Certificates` read these files again whenever they change, because Kubernetes
rotates both. Secrets never appear in messages, log lines or reprs. Used by channel.py; rules AS §1.6, with Ray's order
of sources.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from raytide.api.errors import ApiStatusError, ApiUnavailableError

SERVICE_ACCOUNT_TOKENS: Final = (
    Path("/var/run/secrets/ray.io/serviceaccount/token"),
    Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
)
"""That of Ray's volume, where the pod has it (RC:AU-3), else the one that Kubernetes mounts."""
TRUE: Final = frozenset({"1", "true"})


@dataclass(frozen=True, slots=True)
class GcsAccess:
    """Credential sources from Ray's environment variables."""

    is_token_wanted: bool = False
    token: str = field(default="", repr=False)
    """RAY_AUTH_TOKEN; takes precedence over every file."""
    token_files: tuple[Path, ...] = ()
    """The first non-empty file is used."""
    is_tls_wanted: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    ca_file: Path | None = None


def gcs_access(environ: Mapping[str, str]) -> GcsAccess:
    """Read the environment; a missing file is an error only when it is needed."""

    def path(name: str) -> Path | None:
        return Path(environ[name]) if environ.get(name) else None

    return GcsAccess(
        is_token_wanted=environ.get("RAY_AUTH_MODE", "").strip().lower() == "token",
        token=environ.get("RAY_AUTH_TOKEN", "").strip(),
        token_files=_token_files(environ),
        is_tls_wanted=environ.get("RAY_USE_TLS", "").strip().lower() in TRUE,
        certificate=path("RAY_TLS_SERVER_CERT"),
        private_key=path("RAY_TLS_SERVER_KEY"),
        ca_file=path("RAY_TLS_CA_CERT"),
    )


def _token_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """A named file is the only one; else the service account's where Kubernetes checks tokens, then the user's."""
    if named := environ.get("RAY_AUTH_TOKEN_PATH"):
        return (Path(named),)
    users = Path(environ.get("HOME") or "/", ".ray", "auth_token")
    is_kubernetes = environ.get("RAY_ENABLE_K8S_TOKEN_AUTH", "").strip().lower() in TRUE
    return (*SERVICE_ACCOUNT_TOKENS, users) if is_kubernetes else (users,)


class Token:
    """The current token."""

    def __init__(self, access: GcsAccess) -> None:
        self._access = access
        self._files = _Files()

    @property
    def source(self) -> str:
        """Source of the token, for messages."""
        if not self._access.is_token_wanted:
            return ""
        if self._access.token:
            return "RAY_AUTH_TOKEN"
        return " or ".join(map(str, self._access.token_files))

    def read(self) -> str:
        """The token, or empty if none is required; raises `ApiStatusError` if a required token is missing."""
        if not self._access.is_token_wanted:
            return ""
        found = self._access.token or next(filter(None, map(self._first_line, self._access.token_files)), "")
        if found and found.isascii() and found.isprintable():
            return found
        what = "has characters that are not printable ASCII" if found else "is missing"
        raise ApiStatusError(401, "Unauthenticated", f"RAY_AUTH_MODE is token, but the token {what}: {self.source}")

    def _first_line(self, path: Path) -> str:
        lines = self._files.read(path).splitlines()
        return lines[0].decode(errors="replace").strip() if lines else ""


class Certificates:
    """The files of mutual TLS."""

    def __init__(self, access: GcsAccess) -> None:
        self._named = {
            "RAY_TLS_CA_CERT": access.ca_file,
            "RAY_TLS_SERVER_KEY": access.private_key,
            "RAY_TLS_SERVER_CERT": access.certificate,
        }
        self._files = _Files()
        self.is_wanted = access.is_tls_wanted

    def read(self) -> tuple[bytes, ...]:
        """Authority, key and certificate, or nothing without TLS; raises `ApiUnavailableError` if a file cannot be read."""
        return tuple(self._content(name, path) for name, path in self._named.items()) if self.is_wanted else ()

    def _content(self, name: str, path: Path | None) -> bytes:
        if path is None:
            raise ApiStatusError(401, "Unauthenticated", f"RAY_USE_TLS is set, but {name} is not: set it to a file")
        if content := self._files.read(path):
            return content
        raise ApiUnavailableError(f"RAY_USE_TLS is set, but the file in {name} is empty or cannot be read: {path}")


class _Files:
    """Contents of small files, read again when they change."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[int, ...], bytes]] = {}

    def read(self, path: Path) -> bytes:
        """The content; empty for a missing or unreadable file."""
        try:
            found = path.stat()
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            if path not in self._seen or self._seen[path][0] != state:
                self._seen[path] = (state, path.read_bytes())
        except OSError:
            self._seen.pop(path, None)
            return b""
        return self._seen[path][1]
