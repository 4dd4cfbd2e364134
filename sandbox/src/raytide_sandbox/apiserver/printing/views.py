"""Response forms: whole objects, PartialObjectMetadata or Table.

Parses the Accept header and renders stored entries in the form it asks for: one object, a list, or the lines of a
watch. Whole objects of the stored version are sent as their stored bytes. Pure; used by the routes for every GET and
for the answer of every write.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver.printing.tables import table
from raytide_sandbox.apiserver.registry import Served
from raytide_sandbox.apiserver.store import Entry, ObjectKey

Json = dict[str, Any]
encode = msgspec.json.encode

_JSON: Final = "application/json"
_FORMS: Final = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


class _Slim(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_TYPE = ("kind", "apiVersion")
_slim = msgspec.json.Decoder(_Slim)


@dataclass(frozen=True, slots=True)
class View:
    """The form in which one client gets one kind; `form` is "" (whole objects), Table or PartialObjectMetadata."""

    served: Served
    form: str = ""
    include: str = "Metadata"
    """The content of a Table's rows: None, Metadata or Object."""

    @property
    def is_raw(self) -> bool:
        """True when stored bytes can be sent as they are."""
        return not self.form and self.served.to_view is None

    @property
    def content_type(self) -> str:
        """The Content-Type of this view."""
        return f"{_JSON};as={self.form};g=meta.k8s.io;v=v1" if self.form else _JSON

    def body(self, entry: Entry, now: datetime) -> bytes:
        """Render one object."""
        if self.is_raw:
            return entry.raw
        if self.form == "PartialObjectMetadata":
            metadata = bytes(_slim.decode(entry.raw).metadata)
            return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}' % metadata
        obj = self.obj(entry)
        if self.form == "Table":
            version = obj["metadata"].get("resourceVersion", "")
            return encode(table(self.served, [obj], now=now, version=version, include=self.include))
        return encode(obj)

    def _item(self, entry: Entry, now: datetime) -> bytes:
        """Render one object of a list; items of built-in kinds have no kind and apiVersion."""
        resource = self.served.resource
        if self.form or resource.is_custom:
            return self.body(entry, now)
        if self.served.to_view is not None:
            return encode({key: value for key, value in self.obj(entry).items() if key not in _TYPE})
        typed = b'{"kind":"%s","apiVersion":"%s",' % (resource.kind.encode(), resource.api_version.encode())
        return b"{" + entry.raw.removeprefix(typed) if entry.raw.startswith(typed) else entry.raw

    def obj(self, entry: Entry) -> Json:
        """The object in this view's version, as a dict."""
        obj = entry.obj()
        if self.served.to_view is not None:
            self.served.to_view(obj)
        return obj

    def line(self, event_type: str, entry: Entry, now: datetime) -> bytes:
        """Render one line of a watch."""
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), self.body(entry, now))

    def list_body(self, entries: Sequence[tuple[ObjectKey, Entry]], metadata: Json, now: datetime) -> bytes:
        """Render a list; `metadata` is the list's own (resourceVersion, continue)."""
        if self.form == "Table":
            objs = [self.obj(entry) for _, entry in entries]
            rendered = table(self.served, objs, now=now, version=metadata["resourceVersion"], include=self.include)
            rendered["metadata"] = metadata
            return encode(rendered)
        resource = self.served.resource
        kind, api_version = resource.list_name, resource.api_version
        if self.form:
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        if resource.is_custom and not self.form:
            metadata = {"continue": "", **metadata}
        head = encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
        if self.form and not entries:  # Kubernetes encodes this empty list as a nil slice
            return head[:-1] + b',"items":null}'
        items = b",".join([self._item(entry, now) for _, entry in entries])
        return head[:-1] + b',"items":[' + items + b"]}"


def view_for(served: Served, accept: str, include: str | None) -> View:
    """The view for an Accept header; whole objects as JSON when no known form is asked for."""
    if "as=" not in accept:
        return View(served)
    for choice in accept.split(","):
        media, *rest = (part.strip() for part in choice.split(";"))
        if media not in {_JSON, "*/*"}:
            continue
        parameters = dict(part.partition("=")[::2] for part in rest)
        form = parameters.get("as", "")
        if not form:
            return View(served)
        if form in _FORMS and parameters.get("v", "v1") == "v1":
            return View(served, form.removesuffix("List"), include or "Metadata")
    return View(served)
