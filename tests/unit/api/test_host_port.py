"""Addresses of IPv6 have brackets before a port, as in Go's net.JoinHostPort."""

import pytest

from raytide.api.host_port import join_host_port, split_host_port

pytestmark = pytest.mark.rule("FD:RC3-1")


@pytest.mark.parametrize(
    ("host", "text"),
    [("10.0.0.1", "10.0.0.1:6379"), ("fd00::5", "[fd00::5]:6379"), ("head.ns.svc", "head.ns.svc:6379"), ("", ":6379")],
)
def test_join_and_split(host, text):
    assert join_host_port(host, 6379) == text
    assert split_host_port(text) == (host, 6379)


@pytest.mark.parametrize(
    "text", ["", "6379", "host", "host:", "host:x", "host:70000", "fd00::5:6379", "[fd00::5]", "host:²"]
)
def test_what_is_no_address_is_an_error(text):
    with pytest.raises(ValueError, match="is not an address"):
        split_host_port(text)
