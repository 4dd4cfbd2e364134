"""Messages between the kubelet, the first process of a node and those of pods.

Runs over pairs of sequenced-packet sockets: one packet is one message, a JSON object, with file descriptors attached. A
message too long for a packet is sent as a memfd, so environments have no size limit. End of file means that the peer is
gone. Used by ipc_client.py, process_runtime.py, node_init_client.py, node_init.py and pod_init.py.
"""

import json
import os
import socket
from array import array
from collections.abc import Sequence
from typing import Any, Final

Message = dict[str, Any]

_LONGEST_PACKET_BYTES: Final = 32_768
_MAX_FDS: Final = 16
_FDS: Final = array("i")
_RIGHTS: Final = (socket.SOL_SOCKET, socket.SCM_RIGHTS)


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, closed on exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Message, fds: Sequence[int] = (), *, is_waiting: bool = True) -> None:
    """Send one message; raises BlockingIOError when the peer does not read and `is_waiting` is False."""
    packet = json.dumps(message).encode()
    flags = 0 if is_waiting else socket.MSG_DONTWAIT
    if len(packet) <= _LONGEST_PACKET_BYTES:
        _send_packet(end, packet, fds, flags)
        return
    memory_fd = os.memfd_create("message")
    try:
        with os.fdopen(os.dup(memory_fd), "wb") as file:
            file.write(packet)
        _send_packet(end, b"+", [*fds, memory_fd], flags)
    finally:
        os.close(memory_fd)


def _send_packet(end: socket.socket, packet: bytes, fds: Sequence[int], flags: int) -> None:
    # socket.send_fds and recv_fds of Python 3.11 ignore their flags
    end.sendmsg([packet], [(*_RIGHTS, array("i", fds))] if fds else [], flags)


def receive(end: socket.socket, *, is_waiting: bool = True) -> tuple[Message, list[int]] | None:
    """Receive the next message and its file descriptors; None when the peer is gone."""
    flags = socket.MSG_CMSG_CLOEXEC | (0 if is_waiting else socket.MSG_DONTWAIT)
    try:
        packet, ancillary, _, _ = end.recvmsg(_LONGEST_PACKET_BYTES, socket.CMSG_LEN(_MAX_FDS * _FDS.itemsize), flags)
    except ConnectionResetError:
        return None
    if not packet:
        return None
    fds = [fd for level, kind, body in ancillary if (level, kind) == _RIGHTS for fd in array("i", body)]
    if packet == b"+":
        with os.fdopen(fds.pop(), "rb") as file:
            file.seek(0)
            packet = file.read()
    message: Message = json.loads(packet)
    return message, fds
