"""DNS server for the names of services and pods.

Answers from one table of full names: a known name with its A records, an unknown name with NXDOMAIN. The TTL is 2 s, so
that names follow pods. It forwards no query and serves no record type but A. kube_proxy.py replaces the table through
`Runtime.set_names`; namespaced.py opens the socket in the pods' network.
"""

import asyncio
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Final, cast

_TYPE_A: Final = 1
_CLASS_IN: Final = 1
_TTL_S: Final = 2
_POINTER_TO_QUESTION: Final = b"\xc0\x0c"
_HEADER_BYTES: Final = 12
_MAX_ANSWERS: Final = 25
"""As many A records as fit into the 512 bytes of a plain DNS answer."""

_AUTHORITATIVE: Final = 0x8400
_RECURSION_DESIRED: Final = 0x0100
_RECURSION_AVAILABLE: Final = 0x0080
_NO_SUCH_NAME: Final = 3


class Names:
    """The table; names are compared in lower case."""

    def __init__(self) -> None:
        self._addresses_by_name: dict[str, tuple[str, ...]] = {}

    def replace(self, addresses_by_name: Mapping[str, Sequence[str]]) -> None:
        """Replace all names; a name without addresses is left out."""
        self._addresses_by_name = {
            name.lower().rstrip("."): tuple(addresses) for name, addresses in addresses_by_name.items() if addresses
        }

    def lookup(self, name: str) -> tuple[str, ...]:
        """Addresses of a full name; empty when it is unknown."""
        return self._addresses_by_name.get(name.lower().rstrip("."), ())


def answer(query: bytes, names: Names) -> bytes | None:
    """The reply to one packet; None when it is not a single well-formed question."""
    question = _parse_question(query)
    if question is None:
        return None
    name, kind, end = question
    addresses = names.lookup(name)
    (asked,) = struct.unpack_from("!H", query, 2)
    flags = _AUTHORITATIVE | _RECURSION_AVAILABLE | (asked & _RECURSION_DESIRED)
    if not addresses:
        flags |= _NO_SUCH_NAME
    records = [
        _POINTER_TO_QUESTION + struct.pack("!HHIH", _TYPE_A, _CLASS_IN, _TTL_S, 4) + socket.inet_aton(address)
        for address in (addresses[:_MAX_ANSWERS] if kind == _TYPE_A else ())
    ]
    counts = struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return query[:2] + counts + query[_HEADER_BYTES:end] + b"".join(records)


def _parse_question(query: bytes) -> tuple[str, int, int] | None:
    """Name, type and end offset of the only question."""
    if len(query) <= _HEADER_BYTES or query[2] & 0x80 or query[4:6] != b"\0\1":
        return None
    labels, at = [], _HEADER_BYTES
    while at < len(query) and query[at]:
        length = query[at]
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", errors="replace"))
        at += 1 + length
    if at + 5 > len(query):
        return None
    (kind,) = struct.unpack_from("!H", query, at + 1)
    return ".".join(labels), kind, at + 5


class DnsServer(asyncio.DatagramProtocol):
    """`answer` over UDP."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport for replies."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Reply to one packet."""
        reply = answer(data, self._names)
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)
