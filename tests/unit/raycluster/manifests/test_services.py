"""The head service: its name, labels, ports and type, with and without the user's own (RC §2.7)."""

from dataclasses import replace
from typing import Any

import pytest

from raytide.api.config import PodConfig
from raytide.raycluster.manifests.services import (
    build_head_service,
    build_headless_worker_service,
    head_service_name,
    service_fqdn,
)
from support.builders import parsed, template

CONFIG = PodConfig()
FIVE_LABELS = {
    "ray.io/cluster": "demo",
    "ray.io/node-type": "head",
    "ray.io/identifier": "demo-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
USUAL_PORTS = [("client", 10001), ("dashboard", 8265), ("gcs-server", 6379), ("metrics", 8080), ("serve", 8000)]


def service_of(config: PodConfig = CONFIG, *, ports: Any = None, labels: Any = None, **head: Any) -> dict[str, Any]:
    own = {**template("ray-head"), "metadata": {"labels": labels or {}}}
    if ports:
        own["spec"]["containers"][0]["ports"] = ports
    return build_head_service(parsed(headGroupSpec={"template": own, **head}), config)


def ports_of(service: dict[str, Any]) -> list[tuple[str, int]]:
    return [(port["name"], port["port"]) for port in service["spec"]["ports"]]


@pytest.mark.rule("RC:HS-2", "RM:I8")
def test_a_head_service_belongs_to_its_cluster():
    service = service_of()
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    metadata = service["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("demo-head-svc", "default")
    assert metadata["ownerReferences"][0]["uid"] == "uid-demo"
    assert metadata["ownerReferences"][0]["controller"] is True


@pytest.mark.rule("RC:HS-2")
def test_the_user_may_choose_its_name():
    cluster = parsed(headGroupSpec={"template": template(), "headService": {"metadata": {"name": "mine"}}})
    assert head_service_name(cluster) == build_head_service(cluster, CONFIG)["metadata"]["name"] == "mine"
    assert service_fqdn(cluster, PodConfig(cluster_domain="corp")) == "mine.default.svc.corp"


@pytest.mark.rule("RC:HS-3")
def test_its_five_labels_are_its_selector():
    service = service_of()
    assert service["metadata"]["labels"] == FIVE_LABELS
    assert service["spec"]["selector"] == FIVE_LABELS


@pytest.mark.rule("RC:HS-4")
def test_annotations_come_from_the_cluster():
    service = build_head_service(parsed(headServiceAnnotations={"a": "1"}), CONFIG)
    assert service["metadata"]["annotations"] == {"a": "1"}
    assert "annotations" not in service_of()["metadata"]


@pytest.mark.rule("RC:HS-5", "RC:HS-8")
@pytest.mark.parametrize(
    ("declared", "ports"),
    [
        pytest.param(None, USUAL_PORTS, id="Ray's usual five when the container declares none"),
        pytest.param(
            [{"name": "zz", "containerPort": 1}, {"name": "aa", "containerPort": 2}],
            [("aa", 2), ("metrics", 8080), ("zz", 1)],
            id="the declared ones and metrics, by name",
        ),
        pytest.param([{"containerPort": 6379}], [("6379-port", 6379), ("metrics", 8080)], id="an unnamed port"),
        pytest.param([{"name": "metrics", "containerPort": 9090}], [("metrics", 9090)], id="the user's own metrics"),
        pytest.param([{"name": "http", "containerPort": 8080}], [("http", 8080)], id="no port number twice"),
    ],
)
def test_ports_are_those_of_the_head_container(declared, ports):
    service = service_of(ports=declared)
    assert ports_of(service) == ports
    assert all(port["appProtocol"] == "tcp" and "protocol" not in port for port in service["spec"]["ports"])


@pytest.mark.rule("RC:HS-5")
def test_parameters_of_ray_do_not_move_the_ports():
    assert ports_of(service_of(rayStartParams={"port": "6380", "dashboard-port": "1"})) == USUAL_PORTS


@pytest.mark.rule("RC:HS-6")
@pytest.mark.parametrize(
    ("service_type", "is_switched_off", "is_headless"),
    [
        ("", False, True),
        ("ClusterIP", False, True),
        ("NodePort", False, False),
        ("LoadBalancer", False, False),
        ("", True, False),
        ("ClusterIP", True, False),
    ],
)
def test_the_head_service_is_headless_by_default(service_type, is_switched_off, is_headless):
    config = replace(CONFIG, is_head_service_cluster_ip=is_switched_off)
    spec = service_of(config, serviceType=service_type)["spec"]
    assert (spec.get("clusterIP"), spec.get("publishNotReadyAddresses")) == (
        ("None", True) if is_headless else (None, None)
    )
    assert spec.get("type", "") == service_type


# --- the user's own service ----------------------------------------------------------------------------------------------
def own_service(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "elsewhere",
            "labels": {"team": "x", "ray.io/cluster": "no"},
            "annotations": {"a": "service", "b": "service"},
        },
        "spec": spec,
    }


@pytest.mark.rule("RC:HS-7")
def test_the_users_service_keeps_its_fields_but_not_its_selector_or_namespace():
    own = own_service(sessionAffinity="ClientIP", selector={"mine": "1"})
    service = service_of(headService=own)
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert service["spec"]["selector"] == FIVE_LABELS
    assert service["metadata"]["namespace"] == "default"
    assert service["metadata"]["labels"] == {"team": "x", **FIVE_LABELS}
    assert service["metadata"]["name"] == "demo-head-svc"


@pytest.mark.rule("RC:HS-7", "RC:HS-4")
def test_annotations_of_the_cluster_win_over_those_of_the_service():
    head = {"template": template(), "headService": own_service()}
    service = build_head_service(parsed(headGroupSpec=head, headServiceAnnotations={"b": "cluster"}), CONFIG)
    assert service["metadata"]["annotations"] == {"a": "service", "b": "cluster"}


@pytest.mark.rule("RC:HS-7")
def test_generated_ports_follow_the_users():
    service = service_of(headService=own_service(ports=[{"name": "zz", "port": 1, "targetPort": 2}]))
    assert service["spec"]["ports"][0] == {"name": "zz", "port": 1, "targetPort": 2}
    assert ports_of(service) == [("zz", 1), *USUAL_PORTS]


@pytest.mark.rule("RC:HS-7")
@pytest.mark.parametrize(
    ("port", "left_out"),
    [
        pytest.param({"name": "dashboard", "port": 80}, "dashboard", id="the same name"),
        pytest.param({"name": "web", "port": 8265}, "dashboard", id="the same number"),
        pytest.param({"name": "udp", "port": 8265, "protocol": "UDP"}, None, id="the same number of another protocol"),
    ],
)
def test_a_port_the_user_gave_is_not_generated_again(port, left_out):
    ports = ports_of(service_of(headService=own_service(ports=[port])))
    assert ports == [(port["name"], port["port"]), *((name, n) for name, n in USUAL_PORTS if name != left_out)]


@pytest.mark.rule("RC:HS-7")
@pytest.mark.parametrize(
    ("own_type", "service_type", "result"),
    [("NodePort", "LoadBalancer", "NodePort"), (None, "LoadBalancer", "LoadBalancer"), (None, "", None)],
)
def test_the_users_service_type_takes_precedence_and_it_never_becomes_headless(own_type, service_type, result):
    own = own_service(**({"type": own_type} if own_type else {}))
    spec = service_of(headService=own, serviceType=service_type)["spec"]
    assert spec.get("type") == result
    assert "clusterIP" not in spec


@pytest.mark.rule("D5")
def test_building_leaves_the_users_service_alone():
    head = {"template": template(), "headService": own_service(ports=[{"port": 1}])}
    cluster = parsed(headGroupSpec=head)
    build_head_service(cluster, CONFIG)
    assert cluster.spec.head_group_spec.head_service == own_service(ports=[{"port": 1}])


@pytest.mark.rule("RC:HL-2")
def test_the_headless_worker_service_has_one_label_no_ports_and_shows_hosts_that_are_not_ready():
    service = build_headless_worker_service(parsed())
    assert service["metadata"]["name"] == "demo-headless"
    assert service["metadata"]["labels"] == {"ray.io/headless-worker-svc": "demo"}
    assert service["metadata"]["ownerReferences"][0]["controller"] is True
    assert service["spec"] == {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"ray.io/cluster": "demo", "ray.io/node-type": "worker"},
    }
