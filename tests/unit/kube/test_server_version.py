"""Minor version of the API server."""

import pytest

from raytide.kube.server_version import minor_version

pytestmark = pytest.mark.rule("D27")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b'{"major": "1", "minor": "35", "gitVersion": "v1.35.4"}', 35, id="kubeadm, kind"),
        pytest.param(b'{"major": "1", "minor": "33+"}', 33, id="EKS, GKE"),
        pytest.param(b'{"major": "2", "minor": "0"}', 0, id="another major version"),
        pytest.param(b'{"major": "1", "minor": "v33"}', 0, id="no number"),
        pytest.param(b'{"major": "1", "minor": 35}', 0, id="a number instead of a string"),
        pytest.param(b'{"kind": "Status", "code": 403}', 0, id="forbidden by a gateway"),
        pytest.param(b"<html>", 0, id="no JSON"),
        pytest.param(b"\xff", 0, id="no text"),
    ],
)
def test_minor_version(body, expected):
    assert minor_version(body) == expected
