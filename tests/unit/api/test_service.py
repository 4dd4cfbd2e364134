"""The fields of a ServiceView, decoded from a service's JSON."""

import json

import pytest

from raytide.api.service import MAX_SELECTOR, decode_service, service_from_manifest


def service(**spec):
    labels = {"ray.io/cluster": "demo", "ray.io/node-type": "head", "ray.io/identifier": "demo-head"}
    metadata = {"name": "s", "namespace": "d", "labels": labels, "ownerReferences": [{"uid": "o", "controller": True}]}
    return {"metadata": metadata, "spec": spec}


def test_everything_that_is_kept():
    view = decode_service(json.dumps(service(clusterIP="10.0.0.1", ports=[{"name": "a", "port": 1}])).encode())
    assert (view.owner_uid, view.cluster_key, view.cluster_ip, view.is_head_service) == (
        "o",
        ("d", "demo"),
        "10.0.0.1",
        True,
    )


@pytest.mark.rule("RC §1.5")
@pytest.mark.parametrize(
    ("port", "endpoint"),
    [
        pytest.param({"name": "a", "port": 1, "nodePort": 30001, "targetPort": 2}, "30001", id="the node port first"),
        pytest.param({"name": "a", "port": 1, "nodePort": 0, "targetPort": 2}, "2", id="then a numeric target port"),
        pytest.param({"name": "a", "port": 1, "targetPort": "web"}, "web", id="then a named target port"),
        pytest.param({"name": "a", "port": 1}, "1", id="else what the API server will default to"),
    ],
)
def test_endpoints(port, endpoint):
    assert [p.endpoint for p in service_from_manifest(service(ports=[port])).ports] == [endpoint]


def test_unnamed_ports_are_left_out():
    assert service_from_manifest(service(ports=[{"port": 1}])).ports == ()


@pytest.mark.rule("RC:HL-1")
@pytest.mark.parametrize(
    ("labels", "cluster", "is_headless"),
    [
        pytest.param(
            {"ray.io/headless-worker-svc": "demo"}, "demo", True, id="one label has the cluster and the kind of service"
        ),
        pytest.param({"ray.io/cluster": "demo"}, "demo", False, id="a service without it is another"),
        pytest.param(
            {"ray.io/cluster": "demo", "ray.io/headless-worker-svc": "other"},
            "demo",
            False,
            id="another cluster's name in it does not count",
        ),
    ],
)
def test_the_headless_worker_service_is_known_by_its_label(labels, cluster, is_headless):
    view = service_from_manifest({"metadata": {"name": "s", "labels": labels}})
    assert (view.cluster, view.is_headless_worker_service) == (cluster, is_headless)


def test_a_service_of_other_labels_is_not_the_head_service():
    other = service()
    other["metadata"]["labels"]["ray.io/identifier"] = "x"
    assert not service_from_manifest(other).is_head_service


@pytest.mark.rule("RC:HS-3")
def test_the_selector_of_a_head_service_is_kept_up_to_a_limit():
    assert service_from_manifest(service(selector={"b": "2", "a": "1"})).selector == (("a", "1"), ("b", "2"))
    assert service_from_manifest(service()).selector == ()
    many = {f"{number:04}": "" for number in range(1000)}
    assert len(service_from_manifest(service(selector=many)).selector) == MAX_SELECTOR
    headless = {"metadata": {"name": "s", "labels": {"ray.io/headless-worker-svc": "demo"}}}
    assert service_from_manifest({**headless, "spec": {"selector": {"a": "1"}}}).selector == ()
