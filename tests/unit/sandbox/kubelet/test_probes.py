"""Messages of failed probes in the events of a pod."""

from types import SimpleNamespace

import pytest

from raytide_sandbox.kubelet.podspec import read_pod
from raytide_sandbox.kubelet.probes import Checker
from support.kubelet_fakes import build_pod


class ConnectionRefusedRuntime:
    async def connect(self, _sandbox, port, _timeout_s):
        raise ConnectionRefusedError(111, f"Connect call failed ('10.88.0.3', {port})")


@pytest.mark.parametrize(
    "action",
    [{"httpGet": {"path": "/", "port": 8000}}, {"tcpSocket": {"port": 8000}}],
    ids=["over HTTP", "over TCP"],
)
async def test_a_refused_connection_has_the_message_of_a_kubelet(action):
    spec = read_pod(build_pod({"name": "c", "readinessProbe": action})).containers[0]
    checker = Checker(ConnectionRefusedRuntime(), SimpleNamespace(ip="10.88.0.3"), spec, None)
    result = await checker.check(spec.readiness)
    assert not result.is_success
    assert result.message == "dial tcp 10.88.0.3:8000: connect: connection refused"
