"""The store: versions, history, ownership, and the rules of every write."""

from typing import Any

import pytest

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.builtin_resources import CRDS
from raytide_sandbox.apiserver.store import Change, ObjectKey, Store
from unit.sandbox.apiserver.embedded import build_store


@pytest.fixture
def store() -> Store:
    found = build_store()
    found.create("namespaces", {"metadata": {"name": "default"}})
    return found


def config(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **metadata}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {**config(name), "spec": spec}


def api_error(call: Any, *arguments: Any, **options: Any) -> ApiStatusError:
    with pytest.raises(ApiStatusError) as caught:
        call(*arguments, **options)
    return caught.value


def test_one_version_counts_all_writes(store: Store) -> None:
    first = store.create("configmaps", config("a"))
    second = store.create("secrets", config("a"))
    assert second.version == first.version + 1 == store.version
    assert store.get("secrets", "default", "a")["metadata"]["resourceVersion"] == str(second.version)


def test_changing_a_returned_object_does_not_change_the_store(store: Store) -> None:
    store.create("configmaps", config("a"))
    store.get("configmaps", "default", "a")["metadata"]["name"] = "changed"
    assert store.get("configmaps", "default", "a")["metadata"]["name"] == "a"


def test_readers_share_an_object_and_writers_get_their_own(store: Store) -> None:
    entry = store.create("configmaps", config("a"))
    assert entry.shared() is entry.shared()
    assert entry.obj() == entry.shared()
    assert entry.obj() is not entry.shared()


def test_an_object_that_a_store_in_the_same_state_created_is_stored_as_if_it_were_created_here(store: Store) -> None:
    other, seen = build_store(), list[Change]()
    other.create("namespaces", {"metadata": {"name": "default"}})
    store.subscribe(seen.append)
    entry = other.create("configmaps", config("a"))
    key = ObjectKey("configmaps", "default", "a")
    store.adopt(key, entry)
    assert store.entry("configmaps", "default", "a") is entry
    assert store.version == other.version
    assert [(change.type, change.key, change.entry) for change in seen] == [("ADDED", key, entry)]
    with pytest.raises(ValueError, match="another state"):
        store.adopt(ObjectKey("configmaps", "default", "b"), entry)


def test_lists_are_sorted_and_may_be_of_one_namespace(store: Store) -> None:
    store.create("namespaces", {"metadata": {"name": "a"}})
    for name in ("z", "b"):
        store.create("configmaps", config(name))
    store.create("configmaps", {"metadata": {"name": "y", "namespace": "a"}})
    assert [obj["metadata"]["name"] for obj in store.list("configmaps")] == ["y", "b", "z"]
    assert [obj["metadata"]["name"] for obj in store.list("configmaps", "default")] == ["b", "z"]


def test_changes_since_a_version_are_those_of_the_kind(store: Store) -> None:
    start = store.version
    store.create("configmaps", config("a"))
    store.create("secrets", config("noise"))
    store.update("configmaps", {**config("a"), "data": {"x": "1"}})
    store.delete("configmaps", "default", "a")
    found = list(store.changes_since("configmaps", start))
    assert [change.type for change in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert found[1].previous is found[0].entry


def test_a_version_older_than_the_event_buffer_is_expired() -> None:
    store = build_store(ring_size=3)
    store.create("namespaces", {"metadata": {"name": "default"}})
    start = store.version
    for number in range(4):
        store.create("configmaps", config(f"c{number}"))
    assert api_error(store.changes_since, "configmaps", start).code == 410
    assert len(list(store.changes_since("configmaps", start + 1))) == 3


def test_versions_before_the_first_and_after_the_last_are_expired(store: Store) -> None:
    assert api_error(lambda: list(store.changes_since("pods", 1))).reason == "Expired"
    assert api_error(lambda: list(store.changes_since("pods", store.version + 1))).code == 410


def test_subscribers_receive_changes_in_order_until_they_unsubscribe(store: Store) -> None:
    received: list[Change] = []
    everything: list[Change] = []
    leave = store.subscribe(received.append, "configmaps")
    store.subscribe(everything.append)
    store.create("configmaps", config("a"))
    store.create("secrets", config("a"))
    leave()
    store.delete("configmaps", "default", "a")
    assert [change.type for change in received] == ["ADDED"]
    assert [change.key.resource for change in everything] == ["configmaps", "secrets", "configmaps"]


def test_owners_find_their_dependents_even_when_they_do_not_exist(store: Store) -> None:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "ghost", "uid": "ghost"}
    store.create("configmaps", config("a", ownerReferences=[reference, reference]))
    assert {key.name for key in store.dependents("ghost")} == {"a"}
    assert store.locate("ghost") is None
    store.update("configmaps", config("a"))
    assert store.dependents("ghost") == set()
    uid = store.entry("configmaps", "default", "a").uid
    assert store.locate(uid) is not None
    store.delete("configmaps", "default", "a")
    assert store.locate(uid) is None


def test_a_namespace_must_exist_and_live(store: Store) -> None:
    missing = api_error(store.create, "configmaps", {"metadata": {"name": "a", "namespace": "nowhere"}})
    assert (missing.code, missing.message) == (404, 'namespaces "nowhere" not found')
    assert not store.delete("namespaces", "", "default").is_gone
    assert store.get("namespaces", "", "default")["status"]["phase"] == "Terminating"
    assert api_error(store.create, "configmaps", config("a")).code == 403
    empty = store.get("namespaces", "", "default")
    empty["spec"]["finalizers"] = []
    store.update("namespaces", empty, subresource="finalize")
    assert store.find("namespaces", "", "default") is None


def test_a_rejected_write_changes_nothing(store: Store) -> None:
    store.create("configmaps", config("a"))
    before = store.version
    assert api_error(store.create, "configmaps", config("a")).reason == "AlreadyExists"
    assert api_error(store.update, "configmaps", config("a", resourceVersion="1")).reason == "Conflict"
    assert api_error(store.update, "configmaps", config("a", uid="other")).code == 422
    assert api_error(store.delete, "configmaps", "default", "a", resource_version="1").code == 409
    assert api_error(store.delete, "configmaps", "default", "a", propagation="Sideways").code == 422
    assert store.version == before


def test_an_update_that_changes_nothing_notifies_no_watcher(store: Store) -> None:
    entry = store.create("configmaps", config("a"))
    assert store.update("configmaps", config("a")) is entry
    assert store.version == entry.version


def test_a_dry_run_is_answered_but_not_stored(store: Store) -> None:
    before = store.version
    assert store.create("configmaps", config("a"), is_dry_run=True).obj()["metadata"]["uid"]
    assert store.find("configmaps", "default", "a") is None
    assert store.version == before


@pytest.mark.parametrize(
    ("spec", "status", "grace_s", "is_gone"),
    [
        ({}, {}, None, True),
        ({"nodeName": "n"}, {"phase": "Running"}, None, False),
        ({"nodeName": "n"}, {"phase": "Running"}, 5, False),
        ({"nodeName": "n"}, {"phase": "Running"}, 0, True),
        ({"nodeName": "n"}, {"phase": "Succeeded"}, None, True),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 0}, {}, None, True),
    ],
    ids=[
        "an unbound pod goes at once",
        "a running pod waits for its kubelet",
        "a running pod waits for its kubelet with a shorter time",
        "a forced deletion does not wait",
        "an ended pod goes at once",
        "a pod without grace goes at once",
    ],
)
def test_deleting_a_pod(store: Store, spec: Any, status: Any, grace_s: int | None, *, is_gone: bool) -> None:
    store.create("pods", {**pod("p", **spec), "status": status})
    start = store.version
    assert store.delete("pods", "default", "p", grace_s=grace_s).is_gone is is_gone
    types = [change.type for change in store.changes_since("pods", start)]
    marks = ["MODIFIED"] if spec else []
    assert types == marks + (["DELETED"] if is_gone else [])


def test_a_grace_period_only_gets_shorter(store: Store) -> None:
    store.create("pods", pod("p", nodeName="n"))
    store.delete("pods", "default", "p")
    assert store.get("pods", "default", "p")["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:30Z"
    store.delete("pods", "default", "p", grace_s=60)
    assert store.get("pods", "default", "p")["metadata"]["deletionGracePeriodSeconds"] == 30
    store.delete("pods", "default", "p", grace_s=10)
    assert store.get("pods", "default", "p")["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:10Z"


def test_the_event_of_the_last_finalizer_shows_the_object_as_it_was(store: Store) -> None:
    store.create("configmaps", config("a", finalizers=["x/y"]))
    store.delete("configmaps", "default", "a")
    start = store.version
    store.update("configmaps", config("a"))
    (change,) = store.changes_since("configmaps", start)
    assert change.type == "DELETED"
    assert change.entry.obj()["metadata"]["finalizers"] == ["x/y"]


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
def test_the_policy_becomes_a_finalizer_for_the_collector(store: Store, policy: str, finalizer: str) -> None:
    store.create("configmaps", config("a"))
    assert not store.delete("configmaps", "default", "a", propagation=policy).is_gone
    assert store.get("configmaps", "default", "a")["metadata"]["finalizers"] == [finalizer]


def test_unknown_kinds_are_not_there(store: Store) -> None:
    assert api_error(store.list, "toys.example.com").code == 404
    assert store.count(CRDS) == 0
