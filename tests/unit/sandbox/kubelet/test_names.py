"""The addresses of the cluster's DNS names."""

import pytest

from raytide_sandbox.kubelet.names import build_names


def endpoints(*addresses, **subset):
    return {"metadata": {"name": "head", "namespace": "ray"}, "subsets": [{"addresses": list(addresses), **subset}]}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(
            endpoints({"ip": "10.88.0.2"}, {"ip": "10.88.0.3"}),
            {"head.ray.svc.cluster.local": ("10.88.0.2", "10.88.0.3")},
            id="a service is its pods",
        ),
        pytest.param(
            endpoints({"ip": "10.88.0.2", "hostname": "zero"}),
            {"head.ray.svc.cluster.local": ("10.88.0.2",), "zero.head.ray.svc.cluster.local": ("10.88.0.2",)},
            id="a pod with a hostname has a name of its own",
        ),
        pytest.param(endpoints(notReadyAddresses=[{"ip": "10.88.0.2"}]), {}, id="no pod is ready"),
        pytest.param({"metadata": {"name": "head", "namespace": "ray"}}, {}, id="no subsets at all"),
    ],
)
def test_names(subject, expected):
    assert build_names([subject]) == expected


def test_an_address_behind_two_ports_is_named_once():
    twice = endpoints({"ip": "10.88.0.2"})
    twice["subsets"] *= 2
    assert build_names([twice]) == {"head.ray.svc.cluster.local": ("10.88.0.2",)}
