"""Replies of the pods' name server."""

import socket
import struct

import pytest

from raytide_sandbox.container_runtime.dns import Names, answer

A, AAAA = 1, 28


def question(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 0xBEEF, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def names(**addresses_by_name: list[str]) -> Names:
    table = Names()
    table.replace({name.replace("_", "."): addresses for name, addresses in addresses_by_name.items()})
    return table


def ask(query: bytes, table: Names) -> tuple[int, list[str]]:
    """(response code, addresses)."""
    reply = answer(query, table)
    assert reply is not None
    number, flags, questions, count, _, _ = struct.unpack_from("!HHHHHH", reply)
    assert (number, questions) == (0xBEEF, 1)
    assert flags & 0x8000, "an answer"
    assert reply[12 : len(query)] == query[12:], "the question comes back"
    records = reply[len(query) :]
    assert len(records) == 16 * count
    return flags & 0xF, [socket.inet_ntoa(records[16 * i + 12 : 16 * i + 16]) for i in range(count)]


def test_a_known_name_is_answered_with_all_its_addresses() -> None:
    assert ask(question("svc.local"), names(svc_local=["10.0.0.1", "10.0.0.2"])) == (0, ["10.0.0.1", "10.0.0.2"])


def test_upper_case_and_a_final_dot_make_no_difference() -> None:
    table = Names()
    table.replace({"Svc.Local.": ["10.0.0.1"]})
    assert ask(question("sVC.lOCAL"), table) == (0, ["10.0.0.1"])


def test_an_unknown_name_does_not_exist() -> None:
    assert ask(question("other.local"), names(svc_local=["10.0.0.1"])) == (3, [])


def test_a_service_without_ready_pods_does_not_exist() -> None:
    assert ask(question("svc.local"), names(svc_local=[])) == (3, [])


def test_a_known_name_has_no_ipv6_address_but_exists() -> None:
    assert ask(question("svc.local", AAAA), names(svc_local=["10.0.0.1"])) == (0, [])


def test_an_answer_fits_a_plain_packet() -> None:
    table = names(svc_local=[f"10.0.0.{i}" for i in range(200)])
    reply = answer(question("svc.local"), table)
    assert reply is not None
    assert len(reply) <= 512


def test_replace_removes_earlier_names() -> None:
    table = names(svc_local=["10.0.0.1"])
    table.replace({})
    assert ask(question("svc.local"), table) == (3, [])


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(question("svc.local")[:15], id="a question cut short"),
        pytest.param(b"\0\1\x80\0" + question("svc.local")[4:], id="an answer"),
        pytest.param(question("svc.local")[:4] + b"\0\2" + question("svc.local")[6:], id="two questions"),
        pytest.param(question("svc.local")[:12] + b"\xff" * 30, id="labels that never end"),
    ],
)
def test_a_packet_that_is_no_query_gets_no_reply(packet: bytes) -> None:
    assert answer(packet, names(svc_local=["10.0.0.1"])) is None
