"""Bodies that kubectl and helm send as protobuf."""

from typing import Any

import pytest

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.protobuf import MAGIC, decode


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, message)


META = field(1, "x") + field(3, "ns") + field(11, field(1, "a") + field(2, "b"))


def test_a_secret() -> None:
    message = field(1, META) + field(2, field(1, "key") + field(2, b"\x00\x01")) + field(3, "Opaque")
    assert decode(envelope("v1", "Secret", message)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "x", "namespace": "ns", "labels": {"a": "b"}},
        "data": {"key": "AAE="},
        "type": "Opaque",
    }


def test_a_lease_with_its_times() -> None:
    moment = field(1, 1_767_225_600) + field(2, 5_000_000)
    found = decode(
        envelope("coordination.k8s.io/v1", "Lease", field(1, META) + field(2, field(1, "me") + field(4, moment)))
    )
    assert found["spec"] == {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.005000Z"}


def test_delete_options() -> None:
    message = field(1, 0) + field(2, field(1, "uid")) + field(4, "Foreground") + field(5, "All")
    found = decode(envelope("v1", "DeleteOptions", message))
    assert found["gracePeriodSeconds"] == 0
    assert found["preconditions"] == {"uid": "uid"}
    assert (found["propagationPolicy"], found["dryRun"]) == ("Foreground", ["All"])


def test_fields_that_are_not_read_are_skipped() -> None:
    fixed = varint(20 << 3 | 1) + b"12345678" + varint(21 << 3 | 5) + b"1234"
    found = decode(envelope("v1", "Namespace", field(1, META) + field(9, "new") + fixed))
    assert found["metadata"]["name"] == "x"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (envelope("v1", "Pod", b""), 415),
        (envelope("events.k8s.io/v1", "Event", b""), 415),
        (MAGIC + b"\x0a\xff", 400),
        (MAGIC + b"\x0a", 400),
        (MAGIC + b"\x0b", 400),
        (envelope("v1", "Namespace", b"\x0a\x05a"), 400),
        (envelope("v1", "Namespace", b"\x08\x01"), 400),
    ],
)
def test_what_cannot_be_decoded_is_rejected(body: bytes, code: int) -> None:
    with pytest.raises(ApiStatusError) as caught:
        decode(body)
    assert caught.value.code == code


def test_negative_numbers(capsys: Any) -> None:
    found = decode(envelope("v1", "DeleteOptions", field(1, -1)))
    assert found["gracePeriodSeconds"] == -1
