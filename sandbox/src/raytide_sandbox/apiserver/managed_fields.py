"""Field ownership (metadata.managedFields) and server-side apply.

`record_update` records the fields that an ordinary write changed; `apply` merges an applied configuration, rejects
conflicts (409) unless forced, and removes fields that its manager no longer applies. Objects and field sets are plain
values; field sets are FieldsV1 maps. Pure; called by `write_handlers.py` for every write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.list_types import Fields, is_keyed, key_values, keys_of

Json = dict[str, Any]
FieldSet = dict[str, Any]
"""FieldsV1: `f:name`, `k:{…}`, `v:…` and `.` lead to further maps; an empty map is a leaf."""

_UNOWNED_ROOT: Final = {"apiVersion", "kind"}
_UNOWNED_METADATA: Final = {
    "name",
    "namespace",
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
}


@dataclass(frozen=True, slots=True)
class Author:
    """The field manager of a write, with its endpoint, version and time."""

    manager: str
    api_version: str
    subresource: str
    time: str

    def entry(self, operation: str, fields: FieldSet) -> Json:
        """Build the managedFields entry of this manager."""
        entry: Json = {
            "manager": self.manager,
            "operation": operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    def is_of(self, entry: Json, operation: str) -> bool:
        """True when `entry` belongs to this manager and operation."""
        return (
            entry.get("manager") == self.manager
            and entry.get("operation") == operation
            and entry.get("subresource", "") == self.subresource
            and (operation == "Apply" or entry.get("apiVersion") == self.api_version)
        )


# --- field sets --------------------------------------------------------------------------------------------------------
def fields_of(obj: Json, fields: Fields) -> FieldSet:
    """Every field of an object that can be owned."""
    return _set_of(_ownable(obj), fields)


def _ownable(obj: Json) -> Json:
    owned = {key: value for key, value in obj.items() if key not in _UNOWNED_ROOT}
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _UNOWNED_METADATA}
    if metadata:
        owned["metadata"] = metadata
    else:
        owned.pop("metadata", None)
    return owned


def _key(keys: tuple[str, ...], item: Json) -> str:
    return _spelled(keys, key_values(keys, item) or ())


def _spelled(keys: tuple[str, ...], values: tuple[Any, ...]) -> str:
    if len(keys) == 1:
        return f'k:{{"{keys[0]}":{msgspec.json.encode(values[0]).decode()}}}'
    return "k:" + msgspec.json.encode(dict(sorted(zip(keys, values, strict=True)))).decode()


def _set_of(value: Any, fields: Fields) -> FieldSet:
    if isinstance(value, dict):
        if fields.is_atomic:
            return {}
        # Most fields are leaves; looking up their place would cost more than the rest of a create.
        return {
            f"f:{name}": _set_of(child, fields.child(name)) if isinstance(child, (dict, list)) else {}
            for name, child in value.items()
        }
    if isinstance(value, list) and value:
        keys = fields.keys
        if keys and (found := keys_of(keys, value)) is not None:
            place = fields.item()
            return {
                _spelled(keys, values): {".": {}, **_set_of(item, place)}
                for values, item in zip(found, value, strict=True)
            }
        if fields.is_set:
            return {"v:" + msgspec.json.encode(item).decode(): {} for item in value}
    return {}


def _difference(old: Any, new: Any, fields: Fields) -> tuple[FieldSet, FieldSet]:
    """(changed or added, removed) between two different values."""
    if isinstance(old, dict) and isinstance(new, dict) and not fields.is_atomic:
        return _difference_of(
            {f"f:{name}": value for name, value in old.items()},
            {f"f:{name}": value for name, value in new.items()},
            fields,
        )
    if is_keyed(fields, old) and is_keyed(fields, new):
        keys = fields.keys
        return _difference_of(
            {_key(keys, item): item for item in old}, {_key(keys, item): item for item in new}, fields
        )
    if fields.is_set and isinstance(old, list) and isinstance(new, list):
        before, after = _set_of(old, fields), _set_of(new, fields)
        return {k: {} for k in after if k not in before}, {k: {} for k in before if k not in after}
    return _set_of(new, fields), {}


def _difference_of(old: Json, new: Json, fields: Fields) -> tuple[FieldSet, FieldSet]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for step, value in new.items():
        place = fields.child(step[2:]) if step.startswith("f:") else fields.item()
        if step not in old:
            changed[step] = _item_set(step, value, place)
        elif old[step] != value:
            inner_changed, inner_removed = _difference(old[step], value, place)
            if inner_changed or not inner_removed:
                changed[step] = inner_changed
            if inner_removed:
                removed[step] = inner_removed
    for step, value in old.items():
        if step not in new:
            place = fields.child(step[2:]) if step.startswith("f:") else fields.item()
            removed[step] = _item_set(step, value, place)
    return changed, removed


def _item_set(step: str, value: Any, place: Fields) -> FieldSet:
    inner = _set_of(value, place)
    return {".": {}, **inner} if step.startswith("k:") else inner


def _add(target: FieldSet, further: FieldSet) -> None:
    for step, inner in further.items():
        _add(target.setdefault(step, {}), inner)


def _subtract(target: FieldSet, gone: FieldSet) -> None:
    for step, inner in gone.items():
        if step not in target:
            continue
        if inner:
            _subtract(target[step], inner)
        if not inner or not target[step]:
            del target[step]


def _common(left: FieldSet, right: FieldSet, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the fields that both sets own."""
    for step, inner in left.items():
        if step not in right or step == ".":
            continue
        if inner and right[step]:
            yield from _common(inner, right[step], (*path, step))
        elif not inner or not right[step]:
            yield (*path, step)


# --- ordinary writes -----------------------------------------------------------------------------------------------
def record_update(old: Json | None, new: Json, author: Author, fields: Fields) -> None:
    """Record in `new` the fields that this create or update set, and remove them from their previous managers."""
    metadata = new["metadata"]
    managed = metadata.get("managedFields") or (old or {}).get("metadata", {}).get("managedFields") or []
    if old is None:
        # Status fields that the server itself set in a new object have no manager.
        own = {key: value for key, value in new.items() if key != "status"}
        metadata["managedFields"] = [author.entry("Update", fields_of(own, fields))]
        return
    changed, removed = _difference(_ownable(old), _ownable(new), fields)
    if not changed and not removed:
        if managed:
            metadata["managedFields"] = managed
        return
    mine: FieldSet = {}
    kept: list[Json] = []
    for entry in managed:
        owned = entry.get("fieldsV1") or {}
        _subtract(owned, removed)
        if author.is_of(entry, "Update"):
            mine = owned
            continue
        _subtract(owned, changed)
        if owned:
            kept.append(entry)
    _add(mine, changed)
    if mine:
        kept.append(author.entry("Update", mine))
    metadata["managedFields"] = kept


# --- server-side apply -----------------------------------------------------------------------------------------------
def apply(old: Json | None, applied: Json, author: Author, fields: Fields, *, is_forced: bool) -> Json:
    """The object after `author` applied `applied`; 409 with every conflicting field unless forced."""
    applied.setdefault("metadata", {}).pop("managedFields", None)
    mine = fields_of(applied, fields)
    current = old or {"metadata": {}}
    previous: FieldSet = {}
    others: list[Json] = []
    for entry in current["metadata"].get("managedFields") or []:
        if author.is_of(entry, "Apply"):
            previous = entry.get("fieldsV1") or {}
        else:
            others.append(entry)
    conflicts = [
        (entry, path)
        for entry in others
        for path in _common(mine, entry.get("fieldsV1") or {})
        if _clashes(_at(current, path), _at(applied, path))
    ]
    if conflicts and not is_forced:
        raise _conflict_status(conflicts)
    for entry, path in conflicts:
        _subtract(entry["fieldsV1"], _path_set(path))
    shared: FieldSet = {}
    for entry in others:
        _add(shared, entry.get("fieldsV1") or {})
    merged: Json = _merged(current, applied, fields)
    _drop(merged, previous, mine, shared)
    metadata = merged["metadata"]
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if name in metadata and not metadata[name]:
            del metadata[name]
    kept = [entry for entry in others if entry.get("fieldsV1")]
    metadata["managedFields"] = [*kept, author.entry("Apply", mine)]
    return merged


def _clashes(current: Any, applied: Any) -> bool:
    """True when merging `applied` into `current` would change it; an empty map over a map changes nothing."""
    return applied != current and not (applied in ({}, []) and isinstance(current, type(applied)))


def _path_set(path: tuple[str, ...]) -> FieldSet:
    inner: FieldSet = {}
    for step in reversed(path):
        inner = {step: inner}
    return inner


def _conflict_status(conflicts: list[tuple[Json, tuple[str, ...]]]) -> ApiStatusError:
    causes: list[Json] = []
    texts: list[str] = []
    for entry, path in conflicts:
        who = f'conflict with "{entry["manager"]}"'
        if entry.get("subresource"):
            who += f' with subresource "{entry["subresource"]}"'
        if entry.get("operation") != "Apply":
            who += f" using {entry.get('apiVersion')}"
        field = _readable(path)
        causes.append({"reason": "FieldManagerConflict", "message": who, "field": field})
        texts.append(f"{who}: {field}")
    count = f"{len(texts)} conflict" + ("s" if len(texts) > 1 else "")
    return ApiStatusError(409, "Conflict", f"Apply failed with {count}: " + ", ".join(texts), causes=causes)


def _readable(path: tuple[str, ...]) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text


def _step(value: Any, step: str) -> Any:
    if isinstance(value, dict) and step.startswith("f:"):
        return value.get(step[2:])
    if isinstance(value, list) and step.startswith("k:"):
        return next((item for item in value if _is_item(item, step)), None)
    if isinstance(value, list) and step.startswith("v:"):
        wanted = msgspec.json.decode(step[2:])
        return wanted if wanted in value else None
    return None


def _is_item(item: Any, step: str) -> bool:
    keys = msgspec.json.decode(step[2:])
    return isinstance(item, dict) and key_values(tuple(keys), item) == tuple(keys.values())


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = _step(value, step)
    return value


def _merged(current: Any, applied: Any, fields: Fields) -> Any:
    """`current` with all fields of `applied` merged in."""
    if isinstance(applied, dict) and isinstance(current, dict) and not fields.is_atomic:
        merged = dict(current)
        for name, value in applied.items():
            merged[name] = _merged(current.get(name), value, fields.child(name))
        return merged
    if isinstance(current, list) and is_keyed(fields, applied) and is_keyed(fields, current):
        return _merged_list(current, applied, fields)
    if fields.is_set and isinstance(current, list) and isinstance(applied, list):
        return [*current, *(item for item in applied if item not in current)]
    return applied


def _merged_list(current: list[Json], applied: list[Json], fields: Fields) -> list[Json]:
    keys, item_fields = fields.keys, fields.item()
    merged = list(current)
    places = {key_values(keys, item): at for at, item in enumerate(current)}
    for item in applied:
        at = places.get(key_values(keys, item))
        if at is None:
            merged.append(item)
        else:
            merged[at] = _merged(merged[at], item, item_fields)
    return merged


def _drop(value: Any, previous: FieldSet, mine: FieldSet, shared: FieldSet) -> None:
    """Remove what this manager applied before, does not apply now, and no other manager owns."""
    for step, inner in previous.items():
        if step == ".":
            continue
        wanted, foreign = mine.get(step), shared.get(step)
        if wanted is None and foreign is None:
            _remove(value, step)
        elif inner and (child := _step(value, step)) is not None:
            # A list item kept for another manager keeps its key fields, which identify it.
            keys = {f"f:{key}" for key in msgspec.json.decode(step[2:])} if step.startswith("k:") else set()
            rest = {name: further for name, further in inner.items() if name not in keys}
            _drop(child, rest, wanted or {}, foreign or {})


def _remove(value: Any, step: str) -> None:
    if isinstance(value, dict):
        value.pop(step[2:], None)
    elif isinstance(value, list):
        found = _step(value, step)
        if found is not None:
            value.remove(found)
