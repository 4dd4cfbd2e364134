"""Owner references: which dependents are deleted with an owner, in which order, and which stay."""

from typing import Any

import pytest

Json = dict[str, Any]


def owned_by(*owners: Json, blocks: bool = False) -> Json:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
    return {"ownerReferences": references}


def test_background_deletion_removes_the_owner_and_then_all_descendants(cluster):
    grand = cluster.create("configmaps", "grand")
    parent = cluster.create("configmaps", "parent", metadata=owned_by(grand))
    cluster.create("secrets", "child", metadata=owned_by(parent))

    cluster.delete("configmaps", "grand")

    assert cluster.names("configmaps", "default") == ["kube-root-ca.crt"]
    assert cluster.names("secrets") == []


def test_an_object_whose_owner_never_existed_is_collected(cluster):
    missing_owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    cluster.create("secrets", "orphan", metadata=owned_by(missing_owner))
    assert cluster.names("secrets") == []


def test_an_object_of_an_owner_whose_kind_is_not_served_stays(cluster):
    alien = {"apiVersion": "mars.example/v1", "kind": "Rover", "metadata": {"name": "r", "uid": "no-such-uid"}}
    cluster.create("secrets", "kept", metadata=owned_by(alien))
    assert cluster.names("secrets") == ["kept"]


def test_an_owner_in_another_namespace_does_not_own(cluster):
    cluster.create("namespaces", "other")
    owner = cluster.create("configmaps", "owner", namespace="other")
    cluster.create("secrets", "unowned", metadata=owned_by(owner))
    assert cluster.names("secrets") == []


def test_a_cluster_scoped_owner_owns_in_every_namespace(cluster):
    node = cluster.node("n1")
    cluster.create("secrets", "kept", metadata=owned_by(node | {"apiVersion": "v1", "kind": "Node"}))
    assert cluster.names("secrets") == ["kept"]
    cluster.delete("nodes", "n1")
    assert cluster.names("secrets") == []


def test_an_object_with_one_existing_owner_stays_and_the_dangling_reference_is_removed(cluster):
    first, second = cluster.create("configmaps", "first"), cluster.create("configmaps", "second")
    cluster.create("secrets", "shared", metadata=owned_by(first, second))

    cluster.delete("configmaps", "first")

    references = cluster.get("secrets", "shared")["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in references] == ["second"]
    cluster.delete("configmaps", "second")
    assert cluster.names("secrets") == []


def test_orphan_dependents_stay_without_the_reference(cluster):
    owner = cluster.create("configmaps", "owner")
    cluster.create("secrets", "kept", metadata=owned_by(owner, blocks=True))

    cluster.delete("configmaps", "owner", propagation="Orphan")

    assert "owner" not in cluster.names("configmaps")
    assert "ownerReferences" not in cluster.get("secrets", "kept")["metadata"]


def test_foreground_the_owner_waits_for_dependents_that_block(cluster):
    cluster.node("n1")
    owner = cluster.create("configmaps", "owner")
    cluster.pod("slow", settle=False)
    pod = cluster.get("pods", "slow")
    pod["metadata"] |= owned_by(owner, blocks=True)
    cluster.store.update("pods", pod)
    cluster.settle()

    cluster.delete("configmaps", "owner", propagation="Foreground")

    assert cluster.get("configmaps", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert cluster.get("pods", "slow")["metadata"]["deletionGracePeriodSeconds"] == 30
    cluster.delete("pods", "slow", grace_s=0)
    assert "owner" not in cluster.names("configmaps")


def test_dependents_without_block_owner_deletion_do_not_delay_foreground_deletion(cluster):
    cluster.node("n1")
    owner = cluster.create("configmaps", "owner")
    cluster.pod("slow", settle=False)
    pod = cluster.get("pods", "slow")
    pod["metadata"] |= owned_by(owner)
    cluster.store.update("pods", pod)
    cluster.settle()

    cluster.delete("configmaps", "owner", propagation="Foreground")

    assert "owner" not in cluster.names("configmaps")
    assert "deletionTimestamp" in cluster.get("pods", "slow")["metadata"]


def test_foreground_reaches_grandchildren_before_their_parents(cluster):
    seen: list[str] = []
    grand = cluster.create("configmaps", "grand")
    parent = cluster.create("configmaps", "parent", metadata=owned_by(grand, blocks=True))
    cluster.create("secrets", "child", metadata=owned_by(parent, blocks=True))
    cluster.store.subscribe(lambda change: seen.append(change.key.name) if change.type == "DELETED" else None)

    cluster.delete("configmaps", "grand", propagation="Foreground")

    assert seen == ["child", "parent", "grand"]


def test_foreign_finalizers_of_dependents_are_respected(cluster):
    owner = cluster.create("configmaps", "owner")
    cluster.create("secrets", "held", metadata={**owned_by(owner), "finalizers": ["example.com/hold"]})

    cluster.delete("configmaps", "owner")

    held = cluster.get("secrets", "held")
    assert "deletionTimestamp" in held["metadata"]
    held["metadata"]["finalizers"] = []
    cluster.store.update("secrets", held)
    assert cluster.names("secrets") == []


def test_pods_of_a_deleted_node_are_deleted_at_once(cluster):
    cluster.node("n1")
    cluster.pod("here")
    assert cluster.node_of("here") == "n1"

    cluster.delete("nodes", "n1")

    assert cluster.names("pods") == []


def test_a_thousand_dependents_cost_one_check_each(cluster):
    owner = cluster.create("configmaps", "owner")
    for number in range(1000):
        cluster.create("secrets", f"s{number}", metadata=owned_by(owner), settle=False)
    unrelated = [cluster.create("configmaps", f"b{number}", settle=False) for number in range(50)]
    cluster.settle()
    before = cluster.store.version

    cluster.delete("configmaps", "owner")

    assert cluster.store.version - before == 1001
    assert len(cluster.names("configmaps", "default")) == len(unrelated) + 1


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_whatever_the_policy_a_second_step_does_nothing(cluster, policy):
    owner = cluster.create("configmaps", "owner")
    cluster.create("secrets", "dependent", metadata=owned_by(owner, blocks=True))
    cluster.delete("configmaps", "owner", propagation=policy)
    before = cluster.store.version
    cluster.settle()
    assert cluster.store.version == before
