"""Deletion in all its forms: finalizers, grace periods, owners, namespaces, evictions."""

from collections.abc import Iterator
from typing import Any

import pytest

from integration.probe.client import Client, eventually, pod

KIND_IS_KNOWN_S = 60.0
"""A garbage collector looks for new kinds every 30 seconds."""


@pytest.fixture
def node(client: Client) -> Iterator[str]:
    name = f"node-{client.namespace}"
    made = client.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    assert made.status == 201
    yield name
    client.delete(f"/api/v1/nodes/{name}")


def owner(client: Client, name: str) -> dict[str, Any]:
    uid = client.new_cluster(name).metadata["uid"]
    reference = {"apiVersion": "probe.raytide.io/v1", "kind": "RayCluster", "name": name, "uid": uid}
    return {**reference, "controller": True, "blockOwnerDeletion": True}


def is_gone(client: Client, path: str) -> bool:
    return client.get(path).status == 404


def wait_for_the_garbage_collector(client: Client) -> None:
    """Wait until it knows every pod that exists now: it reads pods in order, and collects one whose owner does not exist.

    An owner is orphaned, or waits in the foreground, for the dependents in the collector's graph only: a pod that gets there later
    is collected as one whose owner does not exist.
    """
    missing_owner = {**owner(client, "owner-of-none"), "uid": "00000000-0000-0000-0000-000000000000"}
    client.new_pod("last", ownerReferences=[missing_owner])
    eventually(lambda: is_gone(client, f"{client.pods}/last"), "the last pod is collected", KIND_IS_KNOWN_S)


def test_a_deletion_may_name_the_object_it_means(client: Client) -> None:
    client.new_cluster("one")
    path = f"{client.clusters}/one"
    assert client.delete(path, {"preconditions": {"uid": "wrong"}}).status == 409
    assert client.delete(path).status == 200
    assert is_gone(client, path)
    assert client.delete(path).status == 404


def test_a_collection_is_deleted_by_selector(client: Client) -> None:
    for number in range(3):
        client.new_pod(f"dc-{number}", labels={"go": "yes" if number else "no"})
    assert client.delete(client.pods, labelSelector="go=yes").status == 200
    assert [item["metadata"]["name"] for item in client.get(client.pods).body["items"]] == ["dc-0"]


def test_an_object_with_a_finalizer_waits_for_it(client: Client) -> None:
    path = f"{client.clusters}/fin"
    version = client.new_cluster("fin", finalizers=["example.com/wait"]).metadata["resourceVersion"]
    watch = client.watch(client.clusters, resourceVersion=version)
    client.delete(path)
    found = client.get(path).metadata
    assert found["deletionTimestamp"].endswith("Z")
    assert found["deletionGracePeriodSeconds"] == 0
    assert found["generation"] == 2
    assert client.patch(path, {"metadata": {"finalizers": ["example.com/wait", "example.com/new"]}}).status == 422
    assert client.patch(path, {"metadata": {"finalizers": []}}).status == 200
    assert is_gone(client, path)
    assert watch.until("DELETED", "fin") == [("MODIFIED", "fin"), ("DELETED", "fin")]
    watch.close()


def test_background_deletion_collects_what_was_owned(client: Client) -> None:
    client.new_pod("owned", ownerReferences=[owner(client, "own")])
    client.delete(f"{client.clusters}/own")
    eventually(lambda: is_gone(client, f"{client.pods}/owned"), "the owned pod is collected", KIND_IS_KNOWN_S)


def test_an_object_whose_owner_never_existed_is_collected(client: Client) -> None:
    missing_owner = {**owner(client, "real"), "name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}
    client.new_pod("lost", ownerReferences=[missing_owner])
    eventually(lambda: is_gone(client, f"{client.pods}/lost"), "the ownerless pod is collected", KIND_IS_KNOWN_S)


def test_orphans_lose_their_owner_and_live(client: Client) -> None:
    client.new_pod("orphan", ownerReferences=[owner(client, "parent")])
    wait_for_the_garbage_collector(client)
    client.delete(f"{client.clusters}/parent", {"propagationPolicy": "Orphan"})
    eventually(lambda: is_gone(client, f"{client.clusters}/parent"), "the owner is gone", KIND_IS_KNOWN_S)
    found = client.get(f"{client.pods}/orphan")
    assert found.status == 200
    assert "ownerReferences" not in found.metadata


def test_foreground_deletion_removes_the_owner_last(client: Client) -> None:
    client.new_pod("child", ownerReferences=[owner(client, "parent")], finalizers=["example.com/wait"])
    wait_for_the_garbage_collector(client)
    answer = client.delete(f"{client.clusters}/parent", {"propagationPolicy": "Foreground"})
    assert answer.metadata["finalizers"] == ["foregroundDeletion"]
    eventually(
        lambda: "deletionTimestamp" in client.get(f"{client.pods}/child").metadata,
        "the child is going",
        KIND_IS_KNOWN_S,
    )
    assert client.get(f"{client.clusters}/parent").status == 200
    client.patch(f"{client.pods}/child", {"metadata": {"finalizers": None}})
    eventually(lambda: is_gone(client, f"{client.clusters}/parent"), "the owner is gone last", KIND_IS_KNOWN_S)
    assert is_gone(client, f"{client.pods}/child")


def test_a_bound_pod_exists_until_its_kubelet_deletes_it(client: Client, node: str) -> None:
    bound = pod("bound")
    bound["spec"]["nodeName"] = node
    version = client.post(client.pods, bound).metadata["resourceVersion"]
    watch = client.watch(client.pods, resourceVersion=version)
    path = f"{client.pods}/bound"
    client.delete(path)
    found = client.get(path).metadata
    assert found["deletionGracePeriodSeconds"] == 30
    assert client.delete(path, {"gracePeriodSeconds": 60}).metadata["deletionGracePeriodSeconds"] == 30
    client.delete(path, {"gracePeriodSeconds": 0})
    assert is_gone(client, path)
    events = watch.take(3)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert [e["object"]["metadata"]["deletionGracePeriodSeconds"] for e in events] == [30, 0, 0]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(set(versions))
    watch.close()


def test_a_namespace_is_deleted_with_its_content(client: Client) -> None:
    name = f"{client.namespace}-inner"
    path = f"/api/v1/namespaces/{name}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert client.post("/api/v1/namespaces", body).body["status"]["phase"] == "Active"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["example.com/wait"]}}
    assert client.post(f"{path}/configmaps", config).status == 201
    assert client.delete(path).status == 200
    eventually(lambda: client.get(path).body["status"]["phase"] == "Terminating", "the namespace is going")
    config["metadata"] = {"name": "late"}
    answer = client.post(f"{path}/configmaps", config)
    assert (answer.status, answer.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    eventually(
        lambda: "deletionTimestamp" in client.get(f"{path}/configmaps/a").metadata, "the content is being deleted"
    )
    client.patch(f"{path}/configmaps/a", {"metadata": {"finalizers": None}})
    eventually(lambda: is_gone(client, path), "the namespace is gone", KIND_IS_KNOWN_S)


def test_binding_puts_a_pod_on_a_node_once(client: Client, node: str) -> None:
    client.new_pod("pb")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pb"}, "target": {"kind": "Node"}}
    binding["target"]["name"] = node
    assert client.post(f"{client.pods}/pb/binding", binding).status == 201
    found = client.get(f"{client.pods}/pb").body
    assert found["spec"]["nodeName"] == node
    assert {c["type"]: c["status"] for c in found["status"]["conditions"]}["PodScheduled"] == "True"
    assert client.post(f"{client.pods}/pb/binding", binding).status == 409


def test_eviction_deletes(client: Client) -> None:
    client.new_pod("pe")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "pe"}}
    assert client.post(f"{client.pods}/pe/eviction", eviction).status == 201
    eventually(lambda: is_gone(client, f"{client.pods}/pe"), "the evicted pod is gone")


def test_a_pod_without_a_node_has_no_log_yet(client: Client) -> None:
    client.new_pod("quiet")
    answer = client.get(f"{client.pods}/quiet/log")
    assert (answer.status, answer.body) == (204, b"")


def test_nodes_belong_to_no_namespace(client: Client, node: str) -> None:
    assert client.get(f"/api/v1/nodes/{node}").status == 200
    body = {"status": {"capacity": {"cpu": "4"}}}
    assert client.patch(f"/api/v1/nodes/{node}/status", body).body["status"]["capacity"] == {"cpu": "4"}
    assert "namespace" not in client.get(f"/api/v1/nodes/{node}").metadata
