"""Messages and open files between processes."""

import os
import socket

import pytest

from raytide_sandbox.container_runtime import ipc_protocol


@pytest.mark.parametrize("length", [10, 32_000, 5_000_000])
def test_a_message_of_any_length_arrives_with_its_files(length: int) -> None:
    ours, theirs = ipc_protocol.pair()
    read_fd, write_fd = os.pipe()
    with ours, theirs:
        ipc_protocol.send(ours, {"text": "x" * length}, [write_fd])
        received = ipc_protocol.receive(theirs)
        assert received is not None
        message, fds = received
        assert message == {"text": "x" * length}
        assert len(fds) == 1
        os.write(fds[0], b"through")
        assert os.read(read_fd, 10) == b"through"
        assert not os.get_inheritable(fds[0])
    for fd in (*fds, read_fd, write_fd):
        os.close(fd)


def test_messages_keep_their_bounds_and_order() -> None:
    ours, theirs = ipc_protocol.pair()
    with ours, theirs:
        for number in range(5):
            ipc_protocol.send(ours, {"number": number})
        assert [ipc_protocol.receive(theirs) for _ in range(5)] == [({"number": number}, []) for number in range(5)]


def test_receive_returns_none_after_the_peer_closed() -> None:
    ours, theirs = ipc_protocol.pair()
    with theirs:
        ours.close()
        assert ipc_protocol.receive(theirs) is None


def test_nothing_to_read_or_no_space_blocks_no_caller_that_does_not_wait() -> None:
    ours, theirs = ipc_protocol.pair()
    with ours, theirs:
        with pytest.raises(BlockingIOError):
            ipc_protocol.receive(theirs, is_waiting=False)
        with pytest.raises(BlockingIOError):
            fill(ours)


def fill(end: socket.socket) -> None:
    for _ in range(10_000):
        ipc_protocol.send(end, {"text": "x" * 10_000}, is_waiting=False)
