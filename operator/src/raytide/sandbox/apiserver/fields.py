"""Which lists of an object are merged by key, which are sets, and which are one value?

Answers for one place in an object at a time: `child(name)` and `item()` walk, `keys`, `is_set` and `is_atomic` tell.
Built-in kinds are answered from a table of field names, custom kinds from their schema (x-kubernetes-list-type,
x-kubernetes-list-map-keys, x-kubernetes-map-type). Values only; used by strategic merge, server-side apply and the
ownership of fields.
"""

from typing import Any, Final, Protocol

Json = dict[str, Any]


class Fields(Protocol):
    """What is known about the value at one place."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that tell items of this list apart; () when it is no such list."""
        ...

    @property
    def is_set(self) -> bool:
        """True for a list of distinct plain values."""
        ...

    @property
    def is_atomic(self) -> bool:
        """True for a map that is replaced as a whole."""
        ...

    def child(self, name: str) -> "Fields":
        """The place of a field of this map."""
        ...

    def item(self) -> "Fields":
        """The place of any item of this list."""
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

# What a key that was left out means: the server's default for it.
KEY_DEFAULTS: Final = {"protocol": "TCP"}


class BuiltInFields:
    """Places of a built-in object, told by the names of the fields on the way."""

    __slots__ = ("_kind", "_path")

    def __init__(self, kind: str, path: tuple[str, ...] = ()) -> None:
        self._kind = kind
        self._path = path

    @property
    def keys(self) -> tuple[str, ...]:
        """See Fields."""
        if not self._path or not _ATOMIC_WITHIN.isdisjoint(self._path):
            return ()
        name = self._path[-1]
        if name == "ports":
            if len(self._path) > 1 and self._path[-2] in _CONTAINER_LISTS:
                return ("containerPort", "protocol")
            return ("port", "protocol") if self._kind == "Service" else ()
        if name == "addresses":
            return ("type",) if self._kind == "Node" else ()
        return _KEYS.get(name, ())

    @property
    def is_set(self) -> bool:
        """See Fields."""
        return self._path == ("metadata", "finalizers")

    @property
    def is_atomic(self) -> bool:
        """See Fields."""
        return bool(self._path) and self._path[-1] in _ATOMIC_MAPS

    def child(self, name: str) -> "Fields":
        """See Fields."""
        return BuiltInFields(self._kind, (*self._path, name))

    def item(self) -> "Fields":
        """See Fields."""
        return self


class SchemaFields:
    """Places of a custom object, told by its OpenAPI schema."""

    __slots__ = ("_is_root", "_schema")

    def __init__(self, schema: Json | None, *, is_root: bool = True) -> None:
        self._schema = schema or {}
        self._is_root = is_root

    @property
    def keys(self) -> tuple[str, ...]:
        """See Fields."""
        if self._schema.get("x-kubernetes-list-type") != "map":
            return ()
        return tuple(self._schema.get("x-kubernetes-list-map-keys") or ())

    @property
    def is_set(self) -> bool:
        """See Fields."""
        return self._schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic(self) -> bool:
        """See Fields."""
        return self._schema.get("x-kubernetes-map-type") == "atomic"

    def child(self, name: str) -> Fields:
        """See Fields."""
        if name == "metadata" and (self._is_root or self._schema.get("x-kubernetes-embedded-resource")):
            return BuiltInFields("", ("metadata",))
        properties = self._schema.get("properties") or {}
        further = self._schema.get("additionalProperties")
        return SchemaFields(properties.get(name) or (further if isinstance(further, dict) else None), is_root=False)

    def item(self) -> Fields:
        """See Fields."""
        return SchemaFields(self._schema.get("items"), is_root=False)


def key_values(keys: tuple[str, ...], item: Json) -> tuple[Any, ...] | None:
    """The values that identify an item, or None when it does not have them all."""
    values = tuple(item.get(key, KEY_DEFAULTS.get(key)) for key in keys)
    return None if None in values else values


def is_keyed(fields: Fields, value: Any) -> bool:
    """True when `value` is a list whose items can all be told apart by key."""
    keys = fields.keys
    if not keys or not isinstance(value, list):
        return False
    return all(isinstance(item, dict) and key_values(keys, item) is not None for item in value)
