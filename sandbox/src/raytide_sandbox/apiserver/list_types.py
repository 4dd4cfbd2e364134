"""List and map types of fields: keyed lists, sets and atomic values.

`child(name)` and `item()` walk to one place in an object; `keys`, `is_set` and `is_atomic` describe it. Built-in kinds
use a table of field names, custom kinds their schema (x-kubernetes-list-type, x-kubernetes-list-map-keys,
x-kubernetes-map-type). Values only; used by strategic merge, server-side apply and managed fields.
"""

from typing import Any, Final, Protocol

Json = dict[str, Any]


class Fields(Protocol):
    """The merge type of the value at one place."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that identify the items of this list; () when it is not keyed."""
        ...

    @property
    def is_set(self) -> bool:
        """True for a list of distinct scalars."""
        ...

    @property
    def is_atomic(self) -> bool:
        """True for a map that is replaced as a whole."""
        ...

    def child(self, name: str) -> "Fields":
        """The place of a field of this map."""
        ...

    def item(self) -> "Fields":
        """The place of the items of this list."""
        ...


_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "webhooks": ("name",),
}
_CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
_ATOMIC_MAPS: Final = {
    "selector",
    "nodeSelector",
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "claimRef",
    "involvedObject",
    "regarding",
    "related",
}
_ATOMIC_WITHIN: Final = {"subsets", "endpoints", "nodeAffinity", "podAffinity", "podAntiAffinity"}

# The server's default for a key field that was left out.
KEY_DEFAULTS: Final = {"protocol": "TCP"}


# Places are looked up on every write and therefore cached, up to a limit for maps with arbitrary keys.
_PLACES_KEPT: Final = 64


class BuiltInFields:
    """Places of a built-in object, identified by their field names."""

    __slots__ = ("_children", "_kind", "_path", "is_atomic", "is_set", "keys")

    def __init__(self, kind: str, path: tuple[str, ...] = ()) -> None:
        self._kind = kind
        self._path = path
        self._children: dict[str, BuiltInFields] = {}
        self.keys: Final = _built_in_keys(kind, path)
        self.is_set: Final = path == ("metadata", "finalizers")
        self.is_atomic: Final = bool(path) and path[-1] in _ATOMIC_MAPS

    def child(self, name: str) -> Fields:
        """See `Fields.child`."""
        found = self._children.get(name)
        if found is None:
            found = BuiltInFields(self._kind, (*self._path, name))
            if len(self._children) < _PLACES_KEPT:
                self._children[name] = found
        return found

    def item(self) -> Fields:
        """See `Fields.item`."""
        return self


def _built_in_keys(kind: str, path: tuple[str, ...]) -> tuple[str, ...]:
    if not path or not _ATOMIC_WITHIN.isdisjoint(path):
        return ()
    name = path[-1]
    if name == "ports":
        if len(path) > 1 and path[-2] in _CONTAINER_LISTS:
            return ("containerPort", "protocol")
        return ("port", "protocol") if kind == "Service" else ()
    if name == "addresses":
        return ("type",) if kind == "Node" else ()
    return _KEYS.get(name, ())


class SchemaFields:
    """Places of a custom object, identified by its OpenAPI schema."""

    __slots__ = ("_children", "_is_root", "_item", "_schema", "is_atomic", "is_set", "keys")

    def __init__(self, schema: Json | None, *, is_root: bool = True) -> None:
        self._schema = schema or {}
        self._is_root = is_root
        self._children: dict[str, Fields] = {}
        self._item: SchemaFields | None = None
        list_type = self._schema.get("x-kubernetes-list-type")
        keys = self._schema.get("x-kubernetes-list-map-keys") or ()
        self.keys: Final = tuple(keys) if list_type == "map" else ()
        self.is_set: Final = list_type == "set"
        self.is_atomic: Final = self._schema.get("x-kubernetes-map-type") == "atomic"

    def child(self, name: str) -> Fields:
        """See `Fields.child`."""
        found = self._children.get(name)
        if found is None:
            found = self._child(name)
            if len(self._children) < _PLACES_KEPT:
                self._children[name] = found
        return found

    def _child(self, name: str) -> Fields:
        if name == "metadata" and (self._is_root or self._schema.get("x-kubernetes-embedded-resource")):
            return BuiltInFields("", ("metadata",))
        properties = self._schema.get("properties") or {}
        further = self._schema.get("additionalProperties")
        return SchemaFields(properties.get(name) or (further if isinstance(further, dict) else None), is_root=False)

    def item(self) -> Fields:
        """See `Fields.item`."""
        if self._item is None:
            self._item = SchemaFields(self._schema.get("items"), is_root=False)
        return self._item


def key_values(keys: tuple[str, ...], item: Json) -> tuple[Any, ...] | None:
    """The values that identify an item, or None when one is missing."""
    if len(keys) == 1:
        value = item.get(keys[0], KEY_DEFAULTS.get(keys[0]))
        return None if value is None else (value,)
    values = tuple(item.get(key, KEY_DEFAULTS.get(key)) for key in keys)
    return None if None in values else values


def keys_of(keys: tuple[str, ...], items: list[Any]) -> list[tuple[Any, ...]] | None:
    """The key values of each item, or None when an item lacks one."""
    found: list[tuple[Any, ...]] = []
    for item in items:
        values = key_values(keys, item) if isinstance(item, dict) else None
        if values is None:
            return None
        found.append(values)
    return found


def is_keyed(fields: Fields, value: Any) -> bool:
    """True when `value` is a list whose items are all identified by key."""
    keys = fields.keys
    return bool(keys) and isinstance(value, list) and keys_of(keys, value) is not None
