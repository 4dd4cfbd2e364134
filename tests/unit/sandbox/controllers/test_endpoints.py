"""Endpoints of services."""

from typing import Any

import pytest

SLICES = "endpointslices.discovery.k8s.io"
POD_SPEC = {"containers": [{"name": "main", "image": "busybox"}]}


def service(cluster, name: str = "svc", **spec: Any):
    spec = {"selector": {"app": "ray"}, "ports": [{"name": "gcs", "port": 6379, "protocol": "TCP"}], **spec}
    return cluster.create("services", name, spec=spec, metadata={"labels": {"team": "a"}})


def subsets(cluster, name: str = "svc"):
    return [
        {
            field: [address["ip"] for address in subset.get(field, [])]
            for field in ("addresses", "notReadyAddresses")
            if field in subset
        }
        for subset in cluster.get("endpoints", name).get("subsets", [])
    ]


def the_slice(cluster, name: str = "svc"):
    (found,) = [s for s in cluster.store.list(SLICES) if s["metadata"]["labels"]["kubernetes.io/service-name"] == name]
    return found


def test_ready_and_not_ready_pods_are_distinguished(cluster):
    service(cluster)
    for number in (1, 2, 3):
        cluster.pod(f"p{number}", labels={"app": "ray"})
    cluster.pod("other", labels={"app": "other"})
    cluster.ready("p1", "10.0.0.1")
    cluster.ready("p2", "10.0.0.2", is_ready=False)
    cluster.ready("other", "10.0.0.9")

    assert subsets(cluster) == [{"addresses": ["10.0.0.1"], "notReadyAddresses": ["10.0.0.2"]}]
    conditions = {e["addresses"][0]: e["conditions"]["ready"] for e in the_slice(cluster)["endpoints"]}
    assert conditions == {"10.0.0.1": True, "10.0.0.2": False}


def test_the_objects_are_labelled_and_owned_like_real_ones(cluster):
    svc = service(cluster, clusterIP="None")
    endpoints, piece = cluster.get("endpoints", "svc"), the_slice(cluster)
    assert endpoints["metadata"]["labels"] == {
        "team": "a",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
        "service.kubernetes.io/headless": "",
    }
    (owner,) = piece["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (svc["metadata"]["uid"], True)
    assert piece["metadata"]["name"].startswith("svc-")
    assert len(piece["metadata"]["name"]) == len("svc-") + 5


def test_a_pod_becomes_ready_then_leaves(cluster):
    service(cluster)
    cluster.node("n1")
    cluster.pod("p", labels={"app": "ray"})
    assert subsets(cluster) == []
    cluster.ready("p", "10.0.0.1")
    assert subsets(cluster) == [{"addresses": ["10.0.0.1"]}]
    cluster.delete("pods", "p")
    assert subsets(cluster) == []
    assert the_slice(cluster)["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}
    cluster.delete("pods", "p", grace_s=0)
    assert the_slice(cluster)["endpoints"] == []


def test_publish_not_ready_addresses_counts_all_pods_as_ready(cluster):
    service(cluster, publishNotReadyAddresses=True)
    cluster.pod("p", labels={"app": "ray"})
    cluster.ready("p", "10.0.0.1", is_ready=False)
    assert subsets(cluster) == [{"addresses": ["10.0.0.1"]}]
    assert the_slice(cluster)["endpoints"][0]["conditions"]["ready"] is True


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_are_left_out(cluster, phase):
    service(cluster)
    cluster.pod("p", labels={"app": "ray"})
    cluster.ready("p", "10.0.0.1")
    cluster.report("p", phase=phase)
    assert subsets(cluster) == []


def test_changing_a_label_or_a_selector_moves_the_pod(cluster):
    service(cluster)
    cluster.pod("p", labels={"app": "other"})
    cluster.ready("p", "10.0.0.1")
    assert subsets(cluster) == []
    pod = cluster.get("pods", "p")
    pod["metadata"]["labels"] = {"app": "ray"}
    cluster.store.update("pods", pod)
    cluster.settle()
    assert subsets(cluster) == [{"addresses": ["10.0.0.1"]}]
    svc = cluster.get("services", "svc")
    svc["spec"]["selector"] = {"app": "third"}
    cluster.store.update("services", svc)
    cluster.settle()
    assert subsets(cluster) == []


def test_named_target_ports_follow_each_pods_own_numbers(cluster):
    service(cluster, ports=[{"name": "web", "port": 80, "targetPort": "http"}])
    for name, ip, number in (("p1", "10.0.0.1", 8080), ("p2", "10.0.0.2", 9090)):
        containers = [{"name": "main", "image": "x", "ports": [{"name": "http", "containerPort": number}]}]
        cluster.pod(name, labels={"app": "ray"}, containers=containers)
        cluster.ready(name, ip)
    found = cluster.get("endpoints", "svc")["subsets"]
    assert [(s["ports"][0]["port"], s["addresses"][0]["ip"]) for s in found] == [(8080, "10.0.0.1"), (9090, "10.0.0.2")]


def test_hosts_of_a_headless_service_keep_their_names(cluster):
    service(cluster, clusterIP="None")
    cluster.pod("p", labels={"app": "ray"}, hostname="host-0", subdomain="svc")
    cluster.ready("p", "10.0.0.1")
    assert cluster.get("endpoints", "svc")["subsets"][0]["addresses"][0]["hostname"] == "host-0"
    assert the_slice(cluster)["endpoints"][0]["hostname"] == "host-0"


def test_a_service_without_selector_is_another_owners(cluster):
    cluster.create("services", "external", spec={"ports": [{"port": 80}]})
    assert "external" not in cluster.names("endpoints")


def test_deleting_the_service_deletes_its_endpoints(cluster):
    service(cluster)
    cluster.delete("services", "svc")
    assert cluster.names("endpoints", "default") == []
    assert cluster.names(SLICES) == []


def test_endpoints_that_were_deleted_come_back(cluster):
    service(cluster)
    cluster.delete("endpoints", "svc")
    assert cluster.names("endpoints", "default") == ["svc"]


def test_more_than_a_hundred_pods_need_a_second_slice(cluster):
    service(cluster)
    for number in range(101):
        cluster.pod(f"p{number}", labels={"app": "ray"}, settle=False)
        cluster.report(f"p{number}", podIP=f"10.0.0.{number}", settle=False)
    cluster.settle()
    assert sorted(len(piece["endpoints"]) for piece in cluster.store.list(SLICES)) == [1, 100]
    for number in range(5):
        cluster.delete("pods", f"p{number}")
    assert [len(piece["endpoints"]) for piece in cluster.store.list(SLICES)] == [96]


def test_a_pod_of_one_cluster_does_not_touch_the_services_of_others(cluster):
    for number in range(50):
        service(cluster, f"svc{number}", selector={"ray.io/cluster": f"c{number}"})
    before = cluster.store.version
    cluster.pod("p", labels={"ray.io/cluster": "c7"}, nodeName="elsewhere")
    cluster.ready("p", "10.0.0.1")
    # the pod twice, and the Endpoints and slice of its own service: nothing for forty-nine others
    assert cluster.store.version - before <= 6
    assert subsets(cluster, "svc7") == [{"addresses": ["10.0.0.1"]}]


def test_a_pod_that_the_garbage_collector_takes_in_the_same_step_is_left_out(cluster):
    """Its deletion is not noted yet when the endpoints are written."""
    owner = cluster.create("configmaps", "owner")["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    cluster.create("pods", "p1", metadata={"labels": {"app": "ray"}, "ownerReferences": [reference]}, spec=POD_SPEC)
    cluster.store.delete("configmaps", "default", "owner")
    service(cluster)
    assert cluster.get("endpoints", "svc").get("subsets", []) == []
