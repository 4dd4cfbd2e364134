"""Netlink client for the bridge and the veth pairs of the pods' network, without the program `ip`.

A netlink socket of the network namespace it was opened in, and the five requests a pod network needs: bridge, veth
pair, address, link up, default route. Every request waits for the kernel's acknowledgement and raises OSError with its
reason. A library for all of netlink is avoided because the first process of every pod would load it. Called by
node_init.py (bridge) and pod_init.py (veth pair).
"""

import fcntl
import os
import socket
import struct
from typing import Final, Self

_NLM_F_REQUEST: Final = 0x1
_NLM_F_ACK: Final = 0x4
_NLM_F_CREATE_EXCL: Final = 0x600
_NLMSG_ERROR: Final = 2
_RTM_NEWLINK: Final = 16
_RTM_NEWADDR: Final = 20
_RTM_NEWROUTE: Final = 24

_IFLA_ADDRESS: Final = 1
_IFLA_IFNAME: Final = 3
_IFLA_MASTER: Final = 10
_IFLA_LINKINFO: Final = 18
_IFLA_NET_NS_FD: Final = 28
_IFLA_INFO_KIND: Final = 1
_IFLA_INFO_DATA: Final = 2
_VETH_INFO_PEER: Final = 1
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_RTA_GATEWAY: Final = 5
_IFF_UP: Final = 1

_BRIDGE_ADDRESS: Final = bytes.fromhex("020000000001")
"""Locally administered MAC address; a namespace has one bridge, which is invisible outside."""
_RT_TABLE_MAIN: Final = 254
_RTPROT_BOOT: Final = 3
_RTN_UNICAST: Final = 1


def _attribute(kind: int, body: bytes) -> bytes:
    length = 4 + len(body)
    return struct.pack("=HH", length, kind) + body + b"\0" * (-length % 4)


def _name(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _link_header(index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


class Netlink:
    """Links of the network namespace in which this object was made, also after its process has left that namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _request(self, kind: int, body: bytes, flags: int = 0) -> None:
        self._sequence += 1
        flags |= _NLM_F_REQUEST | _NLM_F_ACK
        self._socket.send(struct.pack("=IHHII", 16 + len(body), kind, flags, self._sequence, 0) + body)
        answer = self._socket.recv(65536)
        answer_kind, _, sequence = struct.unpack_from("=HHI", answer, 4)
        (number,) = struct.unpack_from("=i", answer, 16)
        if answer_kind != _NLMSG_ERROR or sequence != self._sequence:
            raise OSError(0, f"netlink answered request {self._sequence} with message {answer_kind}")
        if number:
            raise OSError(-number, f"netlink request {kind}: {os.strerror(-number)}")

    def _index(self, name: str) -> int:
        """Index of a link in this socket's namespace."""
        request = struct.pack("16si4x8x", name.encode(), 0)

        (index,) = struct.unpack_from("i", fcntl.ioctl(self._socket, 0x8933, request), 16)  # SIOCGIFINDEX
        return int(index)

    def add_bridge(self, name: str) -> None:
        """Add a bridge with a fixed MAC address.

        By default a bridge takes the lowest MAC address of its ports; after a change, stale ARP entries last 30 s.
        """
        kind = _attribute(_IFLA_LINKINFO, _name(_IFLA_INFO_KIND, "bridge"))
        body = _link_header() + _name(_IFLA_IFNAME, name) + _attribute(_IFLA_ADDRESS, _BRIDGE_ADDRESS) + kind
        self._request(_RTM_NEWLINK, body, _NLM_F_CREATE_EXCL)

    def add_cable(self, name: str, bridge: str, far_name: str, far_namespace_fd: int) -> None:
        """Add a veth pair from `bridge` into another network namespace, where its end is named `far_name`."""
        far_end = (
            _link_header()
            + _name(_IFLA_IFNAME, far_name)
            + _attribute(_IFLA_NET_NS_FD, struct.pack("=I", far_namespace_fd))
        )
        kind = _attribute(
            _IFLA_LINKINFO,
            _name(_IFLA_INFO_KIND, "veth") + _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, far_end)),
        )
        master = _attribute(_IFLA_MASTER, struct.pack("=I", self._index(bridge)))
        body = _link_header(flags=_IFF_UP) + _name(_IFLA_IFNAME, name) + master + kind
        self._request(_RTM_NEWLINK, body, _NLM_F_CREATE_EXCL)

    def set_up(self, name: str) -> None:
        """Set a link up."""
        self._request(_RTM_NEWLINK, _link_header(self._index(name), _IFF_UP))

    def add_address(self, name: str, address: str, prefix_length: int) -> None:
        """Add an IPv4 address to a link."""
        packed = socket.inet_aton(address)
        header = struct.pack("=BBBBI", socket.AF_INET, prefix_length, 0, 0, self._index(name))
        body = header + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        self._request(_RTM_NEWADDR, body, _NLM_F_CREATE_EXCL)

    def add_default_route(self, gateway: str) -> None:
        """Add a default route through `gateway`."""
        header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _RT_TABLE_MAIN, _RTPROT_BOOT, 0, _RTN_UNICAST, 0)
        self._request(_RTM_NEWROUTE, header + _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)), _NLM_F_CREATE_EXCL)
