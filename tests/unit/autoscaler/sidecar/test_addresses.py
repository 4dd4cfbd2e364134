"""Addresses of the sidecar: where it listens, and which one is its own."""

import socket

import pytest

from raytide.autoscaler.sidecar import main
from raytide.autoscaler.sidecar.main import listening_host, own_address

pytestmark = pytest.mark.rule("FD:RC3-1")


@pytest.mark.parametrize(
    ("gcs_address", "host"),
    [
        pytest.param("127.0.0.1:6379", "", id="loopback"),
        pytest.param("localhost:6379", "", id="localhost"),
        pytest.param("[::1]:6379", "", id="loopback of IPv6"),
        pytest.param("[fd00::5]:6379", "", id="a pod's address of IPv6"),
        pytest.param("10.0.0.1:6379", "", id="a pod's address of IPv4"),
        pytest.param("127.70.0.2:6379", "127.70.0.2", id="a sandbox's loopback address of its own"),
    ],
)
def test_it_listens_on_all_addresses_of_both_families(gcs_address, host):
    assert listening_host(gcs_address) == host


def test_the_pods_address_is_its_own():
    assert own_address("kubernetes.default", "443", "fd00::5") == "fd00::5"


def answers(*hosts):
    families = {False: socket.AF_INET, True: socket.AF_INET6}
    return lambda *_, **__: [(families[":" in host], socket.SOCK_DGRAM, 0, "", (host, 443)) for host in hosts]


@pytest.mark.parametrize(
    ("resolved", "own"),
    [
        pytest.param(("127.0.0.1",), "127.0.0.1", id="IPv4"),
        pytest.param(("::1",), "::1", id="IPv6"),
        pytest.param(("203.0.113.300", "::1"), "::1", id="the family that the pod has, whichever the name has first"),
        pytest.param((), "localhost", id="none: both families' name for loopback"),
    ],
)
def test_without_the_variable_it_is_the_one_towards_the_api_server(monkeypatch, resolved, own):
    monkeypatch.setattr(main.socket, "getaddrinfo", answers(*resolved))
    assert own_address("kubernetes.default", "443", "") == own
