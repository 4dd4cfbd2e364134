"""The files of a bundle, and the bytes of its archive.

Collects texts and JSON within a limit of bytes, and what could not be read, and writes a README.txt that lists both. The archive has
no name and id of the user who made it. No I/O. Called by collect.py.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide.api.conditions import timestamp
from raytide.cli.columns import printable

MAX_BYTES: Final = 32 << 20
"""Of all files, before compression."""
MAX_FILE_BYTES: Final = 4 << 20


_REMAINS: Final = """\
Look at the files before you send them. Names of objects, namespaces, nodes and images, labels, and IP addresses in messages and logs
are not redacted. Logs of the operator name workloads of all namespaces. A secret that looks like an ordinary word and does not follow
a word such as "password" cannot be recognized in messages and logs. Secrets were not read, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A request without an answer: the verb and the resource that a Role has to have for it."""

    verb: str
    resource: str
    """As in a Role: `pods`, `pods/log`, `roles.rbac.authorization.k8s.io`."""
    namespace: str
    """Empty: all namespaces, or a cluster-scoped kind."""
    error: str
    is_forbidden: bool = False

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else " cluster-wide"
        return f"{'may not ' if self.is_forbidden else ''}{self.verb} {self.resource}{where}: {self.error}"


class Bundle:
    """Files by their path, in the order in which they were added."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.files: dict[str, bytes] = {}
        self.unread: dict[tuple[str, str, str], Unread] = {}
        self.notes: list[str] = []
        """What was not found."""
        self.omitted: list[str] = []
        """What was left out because of a limit."""

    def add_json(self, path: str, value: Any) -> None:
        """A JSON file; of a list that is too long, as many of its first items as fit."""
        text = json.dumps(value, indent=1)
        if len(text) > MAX_FILE_BYTES and isinstance(value, list):
            size, kept = 0, []
            for each in value:
                size += len(json.dumps(each, indent=1)) + 2 * (json.dumps(each, indent=1).count("\n") + 2)
                if size > MAX_FILE_BYTES:
                    break
                kept.append(each)
            self.omitted.append(
                f"{path}: {len(value) - len(kept)} of {len(value)} entries, above {MAX_FILE_BYTES} bytes"
            )
            text = json.dumps(kept, indent=1)
        self._add(path, text.encode() + b"\n")

    def add_text(self, path: str, text: str) -> None:
        """A text file."""
        self._add(path, text.encode(errors="backslashreplace"))

    def add_unread(self, unread: Unread) -> None:
        """The first error for each verb, resource and namespace."""
        self.unread.setdefault((unread.verb, unread.resource, unread.namespace), unread)

    def _add(self, path: str, content: bytes) -> None:
        if len(content) > MAX_FILE_BYTES or sum(map(len, self.files.values())) + len(content) > MAX_BYTES:
            self.omitted.append(f"{path}: {len(content)} bytes")
        else:
            self.files[path] = content

    def finish(self, subject: str, redactions: Mapping[str, int]) -> None:
        """Add README.txt as the first file: what is in the bundle, what is missing and why, and what was redacted."""
        parts = [
            f"Bundle of `raytide diagnose` for {subject}, {timestamp(self.at)}",
            _REMAINS,
            _section("Collected (bytes):", [f"{len(content):>9}  {path}" for path, content in self.files.items()]),
            _section("Not found:", self.notes),
            _section("Not read:", [str(each) for each in self.unread.values()] or ["nothing"]),
            _section("Left out by a limit:", self.omitted),
            _section(
                "Redacted:",
                [f"{count} {what}" for what, count in sorted(redactions.items()) if count] or ["nothing"],
            ),
        ]
        text = "\n\n".join(filter(None, parts)) + "\n"
        self.files = {"README.txt": text.encode(errors="backslashreplace"), **self.files}

    def archive(self, folder: str) -> bytes:
        """The files in that folder, as a tar.gz."""
        buffer = io.BytesIO()
        seconds = int(self.at.timestamp())
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=seconds) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path, content in self.files.items():
                entry = tarfile.TarInfo(f"{folder}/{path}")
                entry.size, entry.mtime, entry.mode = len(content), seconds, 0o600
                tar.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()


def _section(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {printable(line)}" for line in lines)]) if lines else ""
