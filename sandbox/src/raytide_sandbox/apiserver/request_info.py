"""The target of a request: kind, object and subresource.

`parse_target` parses a path of the Kubernetes API; `Call` combines the request with its target and served kind, and
gives access to the decoded body, the field manager, dry run and query values. Pure values; made by `routes.py`, read by
`read_handlers.py`, `write_handlers.py` and `subresources.py`.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from raytide_sandbox.apiserver import protobuf
from raytide_sandbox.apiserver.api_status import ApiStatusError, bad_request, unknown_path
from raytide_sandbox.apiserver.printing.views import View, view_for
from raytide_sandbox.apiserver.registry import Served
from raytide_sandbox.apiserver.request_response import Request

Json = dict[str, Any]

_TRUE: Final = {"true", "1", "True"}
_APPLY: Final = "application/apply-patch+yaml"
_TAKEN: Final = (
    *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf"),
    "application/octet-stream",  # what the HTTP adapter reports when the client sends no Content-Type
)
_OF_NAMESPACES: Final = {"status", "finalize"}


@dataclass(frozen=True, slots=True)
class Target:
    """A path under /api or /apis; the parts that it does not name are empty."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """The path after the subresource (`proxy/…`)."""


def parse_target(path: str) -> Target:
    """Parse a resource path; 404 for any other path."""
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
        """True for a watch, in any spelling of the parameter."""
        return self.flag("watch")

    @property
    def manager(self) -> str:
        """The field manager: `fieldManager`, else the name in User-Agent, else `unknown`."""
        named = self.request.query.get("fieldManager")
        return named or self.request.headers.get("user-agent", "").partition("/")[0] or "unknown"

    def flag(self, name: str) -> bool:
        """A boolean query parameter."""
        return self.request.query.get(name) in _TRUE

    def integer(self, name: str) -> int | None:
        """An integer query parameter, None without one; 400 when it is not an integer."""
        text = self.request.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'invalid value for {name}: "{text}"') from None

    def view(self) -> View:
        """The form in which the client wants the answer."""
        return view_for(self.served, self.request.headers.get("accept", ""), self.request.query.get("includeObject"))

    def body(self) -> Json:
        """The body as an object; 400 when it is not one."""
        decoded = decode_body(self.request)
        if not isinstance(decoded, dict):
            raise bad_request("the body of the request is not an object")
        return decoded


def decode_body(request: Request) -> Any:
    """Decode JSON, YAML or protobuf, by the body's first bytes and its Content-Type."""
    body = request.body
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type and request.method == "POST" and content_type not in _TAKEN:
        accepted = ", ".join(_TAKEN[:3])
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiStatusError(415, "UnsupportedMediaType", text)
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
