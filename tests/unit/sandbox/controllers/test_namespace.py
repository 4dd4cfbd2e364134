"""Default objects of new namespaces, and deletion of namespaces."""

import pytest

from raytide_sandbox.apiserver.api_status import ApiStatusError


def test_the_four_namespaces_of_every_cluster_exist_from_the_start(cluster):
    assert cluster.names("namespaces") == ["default", "kube-node-lease", "kube-public", "kube-system"]


def test_a_new_namespace_gets_a_service_account_and_the_authority(cluster):
    cluster.create("namespaces", "team")
    assert cluster.names("serviceaccounts", "team") == ["default"]
    assert cluster.get("configmaps", "kube-root-ca.crt", "team")["data"] == {"ca.crt": "PEM"}


@pytest.mark.parametrize(("resource", "name"), [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")])
def test_deleted_objects_that_pods_need_are_recreated(cluster, resource, name):
    old = cluster.get(resource, name)["metadata"]["uid"]
    cluster.delete(resource, name)
    assert cluster.get(resource, name)["metadata"]["uid"] != old


def test_deleting_a_namespace_deletes_its_content_and_nothing_else(cluster):
    cluster.create("namespaces", "team")
    cluster.create("secrets", "mine", namespace="team")
    cluster.create("secrets", "yours")

    cluster.delete("namespaces", "team", namespace="")

    assert "team" not in cluster.names("namespaces")
    assert cluster.names("secrets") == ["yours"]
    assert cluster.names("serviceaccounts", "team") == []


def test_a_namespace_with_finalized_content_stays_terminating_with_a_condition(cluster):
    cluster.create("namespaces", "team")
    cluster.create("secrets", "held", namespace="team", metadata={"finalizers": ["example.com/hold"]})

    cluster.delete("namespaces", "team", namespace="")

    status = cluster.get("namespaces", "team", "")["status"]
    assert status["phase"] == "Terminating"
    assert status["conditions"][0]["message"] == "Some resources are remaining: secrets has 1 resource instances"
    held = cluster.get("secrets", "held", "team")
    held["metadata"]["finalizers"] = []
    cluster.store.update("secrets", held)
    cluster.settle()
    assert "team" not in cluster.names("namespaces")


def test_nothing_new_enters_a_namespace_that_is_going(cluster):
    cluster.create("namespaces", "team")
    cluster.create("secrets", "held", namespace="team", metadata={"finalizers": ["example.com/hold"]})
    cluster.delete("namespaces", "team", namespace="")
    with pytest.raises(ApiStatusError, match="because it is being terminated"):
        cluster.create("secrets", "late", namespace="team")


def test_a_namespace_can_be_recreated_with_the_same_name(cluster):
    for _ in range(2):
        cluster.create("namespaces", "team")
        assert cluster.names("serviceaccounts", "team") == ["default"]
        cluster.delete("namespaces", "team", namespace="")
        assert "team" not in cluster.names("namespaces")


def test_events_are_deleted_an_hour_after_they_were_written(cluster):
    cluster.create("events", "news", reason="Old", message="old news")
    wakeup = cluster.pass_time(minutes=30)
    assert wakeup is not None
    assert (wakeup - cluster.now).total_seconds() == 1800
    assert cluster.names("events") == ["news"]
    cluster.pass_time(minutes=31)
    assert cluster.names("events") == []


def test_an_updated_event_is_deleted_an_hour_after_the_update(cluster):
    cluster.create("events", "news", reason="Old", message="old news")
    cluster.pass_time(minutes=30)
    event = cluster.get("events", "news")
    cluster.store.update("events", {**event, "count": 2})
    cluster.settle()
    cluster.pass_time(minutes=40)
    assert cluster.names("events") == ["news"]
