"""Ports of the tests' servers."""

import socket

from support import ports

FIRST_GIVEN_BY_LINUX = 32768


def test_each_is_another_one_below_those_that_the_kernel_gives():
    given = [ports.free_port() for _ in range(20)]
    assert len(set(given)) == 20
    assert ports.LOWEST <= min(given) <= max(given) < ports.LIMIT < FIRST_GIVEN_BY_LINUX


def test_a_port_in_use_at_one_address_is_not_free(monkeypatch):
    free, taken = ports.free_port(), ports.free_port()
    monkeypatch.setattr(ports, "_PORTS", iter([taken, free]))
    with socket.create_server(("127.0.0.1", taken)):
        assert ports.free_port() == free


def test_processes_with_adjacent_pids_start_at_distant_ports():
    begins = [next(ports._ports(pid)) for pid in range(1000, 1064)]
    assert min(abs(one - other) for one in begins for other in begins if one != other) >= ports.APART
    assert len(set(begins)) == len(begins)
