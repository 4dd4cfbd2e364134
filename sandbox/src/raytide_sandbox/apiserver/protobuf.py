"""Decoder for protobuf request bodies.

kubectl and helm send some built-in objects as application/vnd.kubernetes.protobuf; this decodes those kinds into the
dicts that JSON would give. Unlisted fields are skipped, unlisted kinds are a 415. It only decodes; answers are always
JSON. Called by `request_info.py` when a body starts with the magic bytes.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from raytide_sandbox.apiserver.api_status import ApiStatusError, bad_request

Json = dict[str, Any]
Wire = int | bytes
Read = Callable[[Any], Any]

MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(body: bytes) -> Iterator[tuple[int, Wire]]:
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(body, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(body, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise bad_request(f"protobuf: wire type {kind} is not used by Kubernetes")
        if at + size > len(body):
            raise bad_request("protobuf: the message ends too early")
        yield number, body[at : at + size]
        at += size


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    read: Read
    shape: str = "one"


def _singular(name: str, read: Read) -> _Field:
    return _Field(name, read)


def _many(name: str, read: Read) -> _Field:
    return _Field(name, read, "list")


def _map(name: str, read: Read) -> _Field:
    return _Field(name, read, "map")


def _message(fields: Mapping[int, _Field]) -> Read:
    def read(body: bytes) -> Json:
        found: Json = {}
        for number, value in _fields(body):
            field = fields.get(number)
            if field is None:
                continue
            if field.shape == "list":
                found.setdefault(field.name, []).append(field.read(value))
            elif field.shape == "map":
                pair = dict(_fields(value)) if isinstance(value, bytes) else {}
                found.setdefault(field.name, {})[_text(pair.get(1, b""))] = field.read(pair.get(2, b""))
            elif (decoded := field.read(value)) not in (None, "", {}):
                found[field.name] = decoded
        return found

    return read


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else ""


def _integer(value: Any) -> int:
    number = value if isinstance(value, int) else 0
    return number - (1 << 64) if number >= 1 << 63 else number


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _moment(value: bytes, *, has_micros: bool) -> str | None:
    parts = dict(_fields(value))
    if not parts.get(1):
        return None
    moment = datetime.fromtimestamp(_integer(parts[1]), UTC)
    if has_micros:
        return moment.replace(microsecond=_integer(parts.get(2)) // 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(value: bytes) -> str | None:
    return _moment(value, has_micros=False)


def _micro_time(value: bytes) -> str | None:
    return _moment(value, has_micros=True)


_OWNER: Final = _message(
    {
        1: _singular("kind", _text),
        3: _singular("name", _text),
        4: _singular("uid", _text),
        5: _singular("apiVersion", _text),
        6: _singular("controller", bool),
        7: _singular("blockOwnerDeletion", bool),
    }
)
_META: Final = _message(
    {
        1: _singular("name", _text),
        2: _singular("generateName", _text),
        3: _singular("namespace", _text),
        5: _singular("uid", _text),
        6: _singular("resourceVersion", _text),
        11: _map("labels", _text),
        12: _map("annotations", _text),
        13: _many("ownerReferences", _OWNER),
        14: _many("finalizers", _text),
    }
)
_REFERENCE: Final = _message(
    {
        1: _singular("kind", _text),
        2: _singular("namespace", _text),
        3: _singular("name", _text),
        4: _singular("uid", _text),
        5: _singular("apiVersion", _text),
        6: _singular("resourceVersion", _text),
        7: _singular("fieldPath", _text),
    }
)
_ATTRIBUTES: Final = _message(
    {
        1: _singular("namespace", _text),
        2: _singular("verb", _text),
        3: _singular("group", _text),
        4: _singular("version", _text),
        5: _singular("resource", _text),
        6: _singular("subresource", _text),
        7: _singular("name", _text),
    }
)
_ACCESS: Final = _message(
    {
        1: _singular("resourceAttributes", _ATTRIBUTES),
        2: _singular("nonResourceAttributes", _message({1: _singular("path", _text)})),
    }
)
_LEASE: Final = _message(
    {
        1: _singular("holderIdentity", _text),
        2: _singular("leaseDurationSeconds", _integer),
        3: _singular("acquireTime", _micro_time),
        4: _singular("renewTime", _micro_time),
        5: _singular("leaseTransitions", _integer),
    }
)
_SOURCE: Final = _message({1: _singular("component", _text), 2: _singular("host", _text)})
_SERIES: Final = _message({1: _singular("count", _integer), 2: _singular("lastObservedTime", _micro_time)})
_DELETE: Final = _message(
    {
        1: _singular("gracePeriodSeconds", _integer),
        2: _singular("preconditions", _message({1: _singular("uid", _text), 2: _singular("resourceVersion", _text)})),
        4: _singular("propagationPolicy", _text),
        5: _many("dryRun", _text),
    }
)


def _with_meta(**numbered: _Field) -> Read:
    return _message({1: _singular("metadata", _META), **{int(key[1:]): value for key, value in numbered.items()}})


_TOKEN_SPEC: Final = _message({1: _many("audiences", _text), 4: _singular("expirationSeconds", _integer)})
_KINDS: Final[dict[str, Read]] = {
    "Namespace": _with_meta(),
    "ServiceAccount": _with_meta(f4=_singular("automountServiceAccountToken", bool)),
    "ConfigMap": _with_meta(f2=_map("data", _text), f3=_map("binaryData", _base64), f4=_singular("immutable", bool)),
    "Secret": _with_meta(
        f2=_map("data", _base64),
        f3=_singular("type", _text),
        f4=_map("stringData", _text),
        f5=_singular("immutable", bool),
    ),
    "Lease": _with_meta(f2=_singular("spec", _LEASE)),
    "Event": _with_meta(
        f2=_singular("involvedObject", _REFERENCE),
        f3=_singular("reason", _text),
        f4=_singular("message", _text),
        f5=_singular("source", _SOURCE),
        f6=_singular("firstTimestamp", _time),
        f7=_singular("lastTimestamp", _time),
        f8=_singular("count", _integer),
        f9=_singular("type", _text),
        f10=_singular("eventTime", _micro_time),
        f11=_singular("series", _SERIES),
        f12=_singular("action", _text),
        f13=_singular("related", _REFERENCE),
        f14=_singular("reportingComponent", _text),
        f15=_singular("reportingInstance", _text),
    ),
    "SelfSubjectAccessReview": _with_meta(f2=_singular("spec", _ACCESS)),
    "SelfSubjectReview": _with_meta(),
    "Binding": _with_meta(f2=_singular("target", _REFERENCE)),
    "Eviction": _with_meta(f2=_singular("deleteOptions", _DELETE)),
    "TokenRequest": _with_meta(f2=_singular("spec", _TOKEN_SPEC)),
    "DeleteOptions": _DELETE,
}


def decode(body: bytes) -> Json:
    """Decode a protobuf body; 400 when it is malformed, 415 for a kind that is not in the table."""
    try:
        unknown = dict(_fields(body[len(MAGIC) :]))
        meta = dict(_fields(_bytes(unknown.get(1))))
        api_version, kind = _text(meta.get(1)), _text(meta.get(2))
        read = _KINDS.get(kind)
        if read is None or (kind == "Event" and api_version != "v1"):
            raise ApiStatusError(
                415, "UnsupportedMediaType", f"{api_version} {kind} as protobuf is not understood; send JSON"
            )
        obj: Json = read(_bytes(unknown.get(2)))
    except (IndexError, UnicodeDecodeError, TypeError) as error:
        raise bad_request(f"protobuf: the body is broken: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **obj}


def _bytes(value: Wire | None) -> bytes:
    return value if isinstance(value, bytes) else b""


# helm 3 asks for the old OpenAPI document as protobuf: swagger "2.0", a title and no paths.
OPENAPI_V2: Final = b"\x0a\x032.0" + b"\x12\x12\x0a\x07sandbox\x12\x07v1.35.0" + b"\x42\x00"
