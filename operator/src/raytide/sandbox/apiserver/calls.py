"""Which object, kind and subresource is this request about?

`parse_target` takes the path apart the way the Kubernetes API lays it out; `Call` is the request together with what was
found, and knows the small things every answer needs: the body as a dict, the field manager, dry run. Pure values; made
by `routes.py`, read by `reading.py`, `writing.py` and `subresources.py`.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from raytide.sandbox.apiserver import protobuf
from raytide.sandbox.apiserver.messages import Request
from raytide.sandbox.apiserver.printing.views import View, view_for
from raytide.sandbox.apiserver.registry import Served
from raytide.sandbox.apiserver.status import ApiStatus, bad_request, unknown_path

Json = dict[str, Any]

_TRUE: Final = {"true", "1", "True"}
_APPLY: Final = "application/apply-patch+yaml"
_TAKEN: Final = (
    *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf"),
    "application/octet-stream",  # what our own HTTP front says when the client says nothing
)
_OF_NAMESPACES: Final = {"status", "finalize"}


@dataclass(frozen=True, slots=True)
class Target:
    """A path under /api or /apis; empty strings for what it does not name."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """What follows the subresource (`proxy/…`)."""


def parse_target(path: str) -> Target:
    """Take a resource path apart; 404 for anything else."""
    parts = path.strip("/").split("/")
    start = 2 if parts[0] == "api" else 3
    if len(parts) <= start or parts[0] not in {"api", "apis"}:
        raise unknown_path()
    group, version = ("", parts[1]) if start == 2 else (parts[1], parts[2])
    rest = parts[start:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (not group and rest[2] in _OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *further = [*rest, "", "", ""][: max(3, len(rest))]
    return Target(group, version, plural, namespace, name, subresource, "/".join(further).rstrip("/"))


@dataclass(frozen=True, slots=True)
class Call:
    """One request about one kind."""

    request: Request
    target: Target
    served: Served

    @property
    def key(self) -> str:
        """The kind's table in the store."""
        return self.served.resource.key

    @property
    def is_dry_run(self) -> bool:
        """True when nothing may be stored."""
        return self.request.query.get("dryRun") == "All"

    @property
    def is_watch(self) -> bool:
        """True for a watch in any of its spellings."""
        return self.flag("watch")

    @property
    def manager(self) -> str:
        """Who writes, for managedFields."""
        named = self.request.query.get("fieldManager")
        return named or self.request.headers.get("user-agent", "").partition("/")[0] or "unknown"

    def flag(self, name: str) -> bool:
        """A boolean of the query."""
        return self.request.query.get(name) in _TRUE

    def integer(self, name: str) -> int | None:
        """A number of the query; 400 when it is none."""
        text = self.request.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'invalid value for {name}: "{text}"') from None

    def view(self) -> View:
        """The form the client wants answers in."""
        return view_for(self.served, self.request.headers.get("accept", ""), self.request.query.get("includeObject"))

    def body(self) -> Json:
        """The body as an object; 400 when it is none."""
        decoded = decode_body(self.request)
        if not isinstance(decoded, dict):
            raise bad_request("the body of the request is not an object")
        return decoded


def decode_body(request: Request) -> Any:
    """JSON, YAML or protobuf, as the body itself and its Content-Type tell."""
    body = request.body
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type and request.method == "POST" and content_type not in _TAKEN:
        accepted = ", ".join(_TAKEN[:3])
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiStatus(415, "UnsupportedMediaType", text)
    try:
        if body[:4] == protobuf.MAGIC:
            return protobuf.decode(body)
        if content_type.endswith("yaml") and body[:1] not in {b"{", b"["}:
            return yaml.safe_load(body)
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def is_apply(content_type: str) -> bool:
    """True for a server-side apply."""
    return content_type == _APPLY
