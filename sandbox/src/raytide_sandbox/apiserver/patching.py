"""JSON merge patch, JSON patch and strategic merge patch.

Implements RFC 7386, RFC 6902 (with `test`) and strategic merge as functions of values; server-side apply is in
`managed_fields.py`. The given object may be changed in place; use the returned one. A patch that cannot be applied
raises `ApiStatusError` in a real server's words. Pure; called by `write_handlers.py`.
"""

from collections.abc import Callable
from typing import Any, Final, Never

from raytide_sandbox.apiserver.api_status import ApiStatusError, bad_request
from raytide_sandbox.apiserver.list_types import Fields, key_values

Json = dict[str, Any]

_DELETE_FROM_LIST: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, maps merge, other values replace."""
    if not isinstance(patch, dict):
        return patch
    merged: Json = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# --- JSON patch ------------------------------------------------------------------------------------------------------
def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902; a failed `test` or a missing path is 422, as in a real server."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    root = {"": target}
    for operation in operations:
        name = operation.get("op")
        run = _OPERATIONS.get(name) if isinstance(name, str) else None
        if run is None or not isinstance(operation.get("path"), str):
            raise bad_request(f"error decoding patch: unexpected kind: {name}")
        run(root, operation)
    return root[""]


def _reject(message: str) -> Never:
    text = "the server rejected our request due to an error in our request"
    causes = [{"reason": "UnexpectedServerResponse", "message": message}]
    raise ApiStatusError(422, "Invalid", text, causes=causes)


def _parts(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        _reject(f"invalid path: {pointer}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]


def _parent(root: Json, pointer: str) -> tuple[Any, str]:
    """The container and the last part; the document itself is the field "" of `root`."""
    *way, last = _parts(pointer)
    place: Any = root
    for part in way:
        place = _child(place, part, pointer)
    return place, last


def _child(place: Any, part: str, pointer: str) -> Any:
    if isinstance(place, dict) and part in place:
        return place[part]
    if isinstance(place, list):
        return place[_index(place, part, pointer)]
    _reject(f"doc is missing path: {pointer}: missing value")


def _index(place: list[Any], part: str, pointer: str, *, is_new: bool = False) -> int:
    if is_new and part == "-":
        return len(place)
    if not part.isascii() or not part.isdigit() or (part != "0" and part.startswith("0")):
        _reject(f"invalid index in path: {pointer}")
    index = int(part)
    if index >= len(place) + is_new:
        _reject(f"index out of bounds in path: {pointer}: missing value")
    return index


def _put(root: Json, pointer: str, value: Any) -> None:
    place, last = _parent(root, pointer)
    if isinstance(place, dict):
        place[last] = value
    elif isinstance(place, list):
        place.insert(_index(place, last, pointer, is_new=True), value)
    else:
        _reject(f"doc is missing path: {pointer}: missing value")


def _take(root: Json, pointer: str) -> Any:
    place, last = _parent(root, pointer)
    found = _child(place, last, pointer)
    if isinstance(place, dict):
        del place[last]
    else:
        del place[_index(place, last, pointer)]
    return found


def _value(operation: Json) -> Any:
    if "value" not in operation:
        _reject(f"missing value in operation on {operation['path']}")
    return operation["value"]


def _add(root: Json, operation: Json) -> None:
    _put(root, operation["path"], _value(operation))


def _remove(root: Json, operation: Json) -> None:
    _take(root, operation["path"])


def _replace(root: Json, operation: Json) -> None:
    place, last = _parent(root, operation["path"])
    _child(place, last, operation["path"])
    if isinstance(place, dict):
        place[last] = _value(operation)
    else:
        place[_index(place, last, operation["path"])] = _value(operation)


def _move(root: Json, operation: Json) -> None:
    _put(root, operation["path"], _take(root, str(operation.get("from"))))


def _copy(root: Json, operation: Json) -> None:
    place, last = _parent(root, str(operation.get("from")))
    _put(root, operation["path"], _duplicate(_child(place, last, operation["path"])))


def _duplicate(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _duplicate(item) for key, item in value.items()}
    return [_duplicate(item) for item in value] if isinstance(value, list) else value


def _test(root: Json, operation: Json) -> None:
    pointer = operation["path"]
    place, last = _parent(root, pointer)
    found = place.get(last) if isinstance(place, dict) else _child(place, last, pointer)
    wanted = operation.get("value")
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        _reject(f"testing value {pointer} failed: test failed")


_OPERATIONS: Final[dict[str, Callable[[Json, Json], None]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


# --- strategic merge -------------------------------------------------------------------------------------------------
def strategic_merge(target: Any, patch: Any, fields: Fields) -> Any:
    """Merge maps and keyed lists; supports $patch, $setElementOrder, $deleteFromPrimitiveList and $retainKeys."""
    if isinstance(patch, dict):
        return _merge_map(target if isinstance(target, dict) else {}, patch, fields)
    if isinstance(patch, list):
        if fields.is_set:
            return _interleaved(list(dict.fromkeys([*(target or []), *patch])), patch, target or [], ())
        if fields.keys and all(isinstance(item, dict) for item in patch):
            return _merge_list(target if isinstance(target, list) else [], patch, fields)
    return patch


def _merge_map(target: Json, patch: Json, fields: Fields) -> Json:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    before = {key.removeprefix(_ORDER): _list_at(target, key.removeprefix(_ORDER)) for key in patch if _ORDER in key}
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        target = {key: value for key, value in target.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM_LIST):
            name = key.removeprefix(_DELETE_FROM_LIST)
            target[name] = [item for item in target.get(name) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = strategic_merge(target.get(key), value, fields.child(key))
    for name, old in before.items():
        if isinstance(target.get(name), list):
            order = patch[_ORDER + name]
            target[name] = _interleaved(target[name], order, old, fields.child(name).keys[:1])
    return target


def _list_at(target: Json, name: str) -> list[Any]:
    found = target.get(name)
    return list(found) if isinstance(found, list) else []


def _merge_list(target: list[Any], patch: list[Json], fields: Fields) -> list[Any]:
    """Merge a keyed list by its first key; see `_interleaved` for the order."""
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    keys = fields.keys[:1]
    merged = list(target)
    for item in patch:
        wanted = key_values(keys, item)
        if wanted is None:
            raise bad_request(f"map: {item} does not contain declared merge key: {keys[0]}")
        index = next((at for at, old in enumerate(merged) if key_values(keys, old) == wanted), None)
        if item.get("$patch") == "delete":
            if index is not None:
                del merged[index]
        elif index is None:
            merged.append(strategic_merge({}, item, fields.item()))
        else:
            merged[index] = strategic_merge(merged[index], item, fields.item())
    return _interleaved(merged, patch, target, keys)


def _interleaved(items: list[Any], order: list[Any], before: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Order the items as a real server does: those in `order` as there, the others as in `before`, interleaved.

    The next item of `order` goes first unless the next other item was earlier in `before`; new items count as earliest.
    """

    def identity(item: Any) -> Any:
        return _hashable(key_values(keys, item) if keys and isinstance(item, dict) else item)

    ranks = {identity(item): rank for rank, item in reversed(list(enumerate(order)))}
    turns = {identity(item): turn for turn, item in reversed(list(enumerate(before)))}
    named = sorted((item for item in items if identity(item) in ranks), key=lambda item: ranks[identity(item)])
    others = [item for item in items if identity(item) not in ranks]
    found: list[Any] = []
    while named and others:
        is_others_turn = turns.get(identity(others[0]), -1) < turns.get(identity(named[0]), -1)
        found.append((others if is_others_turn else named).pop(0))
    return [*found, *named, *others]


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | tuple | None) else str(value)


def unsupported_patch(*, is_custom: bool) -> ApiStatusError:
    """415 with the list of accepted types."""
    accepted = ["application/json-patch+json", "application/merge-patch+json"]
    if not is_custom:
        accepted.append("application/strategic-merge-patch+json")
    accepted.append("application/apply-patch+yaml")
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatusError(415, "UnsupportedMediaType", message)
