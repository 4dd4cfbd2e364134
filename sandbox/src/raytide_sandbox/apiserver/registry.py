"""Registry of the kinds and versions served now.

Starts with the built-in kinds and follows the CustomResourceDefinitions in the store: each served version becomes a
`Served` with its compiled schema, printer columns and scale paths. Looks them up by group, version and plural; rejects
definitions that a real server rejects. Pure; owned by the Api, read on every request and by discovery.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver import event_conversion
from raytide_sandbox.apiserver.api_status import Cause, invalid, unknown_path
from raytide_sandbox.apiserver.builtin_resources import BUILT_IN, CRDS, Resource
from raytide_sandbox.apiserver.list_types import BuiltInFields, Fields, SchemaFields
from raytide_sandbox.apiserver.schema import SchemaError, Structural, compile_schema
from raytide_sandbox.apiserver.store import Change, Entry, Store

Json = dict[str, Any]
Rewrite = Callable[[Json], None]

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class Served:
    """One version of one kind as it is served to clients."""

    resource: Resource
    fields: Fields
    structural: Structural | None = None
    schema: Json | None = None
    """The openAPIV3Schema of a custom kind."""
    columns: tuple[Json, ...] = ()
    scale: Json | None = None
    selectable: frozenset[str] = frozenset()
    warning: str = ""
    to_view: Rewrite | None = None
    """Converts a stored object to this version; None when they are the same."""
    to_stored: Rewrite | None = None
    subresources: tuple[str, ...] = field(default=())


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> Structural:
    return compile_schema(msgspec.json.decode(schema))


@lru_cache(maxsize=8)
def _definition(raw: bytes) -> Json:
    """The stored CustomResourceDefinition; nothing may change it."""
    definition: Json = msgspec.json.decode(raw)
    return definition


@lru_cache(maxsize=8)
def _served_versions(raw: bytes) -> tuple[Served, ...]:
    definition = _definition(raw)
    return tuple(_custom(definition, version) for version in definition["spec"]["versions"] if version.get("served"))


def _built_in(resource: Resource) -> Served:
    is_new_event = resource.key == "events" and bool(resource.group)
    return Served(
        resource=resource,
        fields=BuiltInFields(resource.kind),
        to_view=event_conversion.to_new if is_new_event else None,
        to_stored=event_conversion.to_core if is_new_event else None,
        subresources=resource.subresources,
        scale={} if "scale" in resource.subresources else None,
    )


class Registry:
    """All served kinds; `generation` changes with them, and `on_gone` gets the key of each kind that is removed."""

    def __init__(self, store: Store, *, on_gone: Callable[[str], None]) -> None:
        self._store = store
        self._on_gone = on_gone
        self._served: dict[tuple[str, str, str], Served] = {}
        self.generation = 0
        for resource in BUILT_IN:
            self._served[resource.group, resource.version, resource.plural] = _built_in(resource)
        for _, entry in store.entries(CRDS):
            self._serve(entry)
        store.subscribe(self._see, CRDS)

    def find(self, group: str, version: str, plural: str) -> Served:
        """The served kind; 404 when it is not served."""
        found = self._served.get((group, version, plural))
        if found is None:
            raise unknown_path()
        return found

    def all(self) -> Iterator[Served]:
        """All served kinds, in order of their registration."""
        return iter(self._served.values())

    def _see(self, change: Change) -> None:
        definition = _definition(change.entry.raw)
        before = None if change.previous is None else _definition(change.previous.raw)
        if change.type != "DELETED" and before is not None and before["spec"] == definition["spec"]:
            return
        self._forget(before or definition)
        if change.type == "DELETED":
            self._on_gone(change.key.name)
            self._store.undefine(change.key.name)
        else:
            self._serve(change.entry)
        self.generation += 1

    def _forget(self, definition: Json) -> None:
        spec = definition["spec"]
        for version in spec["versions"]:
            self._served.pop((spec["group"], version["name"], spec["names"]["plural"]), None)

    def _serve(self, entry: Entry) -> None:
        definition = _definition(entry.raw)
        stored = next(version for version in definition["spec"]["versions"] if version.get("storage"))
        self._store.define(_resource(definition, stored))
        for served in _served_versions(entry.raw):
            resource = served.resource
            self._served[resource.group, resource.version, resource.plural] = served


def _resource(definition: Json, version: Json) -> Resource:
    spec = definition["spec"]
    names = spec["names"]
    subresources = version.get("subresources") or {}
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        is_namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        subresources=tuple(name for name in ("status", "scale") if name in subresources),
        categories=tuple(names.get("categories") or ()),
        singular=names.get("singular") or names["kind"].lower(),
        is_custom=True,
        list_kind=names.get("listKind") or "",
    )


def _custom(definition: Json, version: Json) -> Served:
    resource = _resource(definition, version)
    schema = version["schema"]["openAPIV3Schema"]
    api_version = resource.api_version

    def visit(obj: Json) -> None:
        obj["apiVersion"] = api_version

    warning = ""
    if version.get("deprecated"):
        warning = version.get("deprecationWarning") or f"{api_version} {resource.kind} is deprecated"
    has_versions = len(definition["spec"]["versions"]) > 1
    return Served(
        resource=resource,
        fields=SchemaFields(schema),
        structural=_compiled(msgspec.json.encode(schema)),
        schema=schema,
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        scale=(version.get("subresources") or {}).get("scale"),
        selectable=frozenset(item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()),
        warning=warning,
        to_view=visit if has_versions else None,
        subresources=resource.subresources,
    )


def complete_definition(definition: Json, moment: str) -> None:
    """Set the defaults and the status of a CustomResourceDefinition; 422 when it is invalid."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    faults = _definition_faults(definition, spec, names)
    if faults:
        raise invalid("CustomResourceDefinition", definition["metadata"]["name"], faults, group="apiextensions.k8s.io")
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    reasons = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    definition["status"] = {
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": moment}
            for kind, reason, message in reasons
        ],
        "acceptedNames": names,
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
    }
    finalizers = definition["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)


def _definition_faults(definition: Json, spec: Json, names: Json) -> list[Cause]:
    faults = []
    for field_name, value in (("spec.group", spec.get("group")), ("spec.scope", spec.get("scope"))):
        if not value:
            faults.append(Cause(field_name, "Required value", "FieldValueRequired"))
    faults += [
        Cause(f"spec.names.{field_name}", "Required value", "FieldValueRequired")
        for field_name in ("plural", "kind")
        if not names.get(field_name)
    ]
    name, wanted = definition["metadata"]["name"], f"{names.get('plural')}.{spec.get('group')}"
    if name != wanted:
        text = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        faults.append(Cause("metadata.name", text))
    versions = spec.get("versions") or []
    if sum(1 for version in versions if version.get("storage")) != 1:
        text = "Invalid value: must have exactly one version marked as storage version"
        faults.append(Cause("spec.versions", text))
    return faults + [fault for index, version in enumerate(versions) for fault in _version_faults(index, version)]


def _version_faults(index: int, version: Json) -> list[Cause]:
    place = f"spec.versions[{index}].schema.openAPIV3Schema"
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        return [Cause(place, "Required value: schemas are required", "FieldValueRequired")]
    try:
        _compiled(msgspec.json.encode(schema))
    except SchemaError as error:
        return [Cause(place, f"Invalid value: {error}")]
    return []
