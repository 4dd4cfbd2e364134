"""managedFields: owners of fields after updates and applies."""

import copy
from typing import Any

import pytest

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.list_types import BuiltInFields, SchemaFields
from raytide_sandbox.apiserver.managed_fields import Author, apply, record_update

POD = BuiltInFields("Pod")
FREE = SchemaFields({})


def by(manager: str, subresource: str = "") -> Author:
    return Author(manager, "v1", subresource, "2026-01-01T00:00:00Z")


def obj(spec: Any, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **metadata}, "spec": spec}


def owned(found: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in found["metadata"].get("managedFields", [])}


def applied(old: Any, spec: Any, manager: str, fields: Any = FREE, *, is_forced: bool = False) -> dict[str, Any]:
    return apply(copy.deepcopy(old), obj(copy.deepcopy(spec)), by(manager), fields, is_forced=is_forced)


def updated(old: dict[str, Any], new: dict[str, Any], manager: str, fields: Any = FREE) -> dict[str, Any]:
    new = copy.deepcopy(new)
    record_update(copy.deepcopy(old), new, by(manager), fields)
    return new


def created(new: dict[str, Any], manager: str, fields: Any = FREE) -> dict[str, Any]:
    record_update(None, new, by(manager), fields)
    return new


def test_a_creator_owns_everything_but_identity_and_status() -> None:
    new = created({**obj({"a": 1, "l": [1]}, labels={"k": "v"}), "status": {"phase": "Pending"}}, "me")
    assert owned(new) == {"me": {"f:metadata": {"f:labels": {"f:k": {}}}, "f:spec": {"f:a": {}, "f:l": {}}}}


def test_items_of_keyed_lists_are_owned_one_by_one() -> None:
    new = created(obj({"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}), "me", POD)
    item = owned(new)["me"]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert item["."] == {}
    assert list(item["f:ports"]) == ['k:{"containerPort":1,"protocol":"TCP"}']


def test_an_update_owns_only_the_fields_that_it_changes() -> None:
    old = created(obj({"a": 1, "b": {"x": 1, "y": 1}}), "one")
    new = updated(old, {**obj({"a": 1, "b": {"x": 2, "y": 1, "z": 1}}), "metadata": old["metadata"]}, "two")
    assert owned(new) == {
        "one": {"f:spec": {"f:a": {}, "f:b": {"f:y": {}}}},
        "two": {"f:spec": {"f:b": {"f:x": {}, "f:z": {}}}},
    }


def test_a_removed_field_has_no_owner() -> None:
    old = created(obj({"a": 1, "b": 1}), "one")
    new = updated(old, {**obj({"b": 1}), "metadata": old["metadata"]}, "two")
    assert owned(new) == {"one": {"f:spec": {"f:b": {}}}}


def test_an_update_of_nothing_keeps_the_owners_as_they_are() -> None:
    old = created(obj({"a": 1}), "one")
    new = updated(old, {**obj({"a": 1})}, "two")
    assert new["metadata"]["managedFields"] == old["metadata"]["managedFields"]


def test_the_same_value_may_have_several_owners() -> None:
    one = applied(None, {"a": 1}, "one")
    both = applied(one, {"a": 1}, "two")
    assert set(owned(both)) == {"one", "two"}
    alone = applied(both, {}, "one")
    assert alone["spec"] == {"a": 1}, "the other one still wants it"


def test_a_field_that_is_no_longer_applied_is_removed_unless_another_manager_owns_it() -> None:
    one = applied(None, {"a": 1, "m": {"x": 1, "y": 1}}, "one")
    other = updated(one, {**one, "spec": {**one["spec"], "m": {"x": 1, "y": 1, "z": 1}}}, "two")
    assert applied(other, {"a": 1}, "one")["spec"] == {"a": 1, "m": {"z": 1}}


def test_conflicts_name_every_field_and_its_owner() -> None:
    one = applied(None, {"a": 1, "b": {"c": 1}}, "one")
    two = updated(one, {**one, "spec": {"a": 1, "b": {"c": 1}, "d": 1}}, "two")
    with pytest.raises(ApiStatusError) as caught:
        applied(two, {"a": 2, "b": {"c": 2}, "d": 2}, "three")
    causes = {(cause["field"], cause["message"]) for cause in caught.value.details["causes"]}
    assert causes == {
        (".spec.a", 'conflict with "one"'),
        (".spec.b.c", 'conflict with "one"'),
        (".spec.d", 'conflict with "two" using v1'),
    }
    assert caught.value.message.startswith("Apply failed with 3 conflicts: ")


def test_force_takes_the_field_over() -> None:
    one = applied(None, {"a": 1, "b": 1}, "one")
    two = applied(one, {"a": 2}, "two", is_forced=True)
    assert two["spec"] == {"a": 2, "b": 1}
    assert owned(two) == {"one": {"f:spec": {"f:b": {}}}, "two": {"f:spec": {"f:a": {}}}}


def test_a_changed_kind_of_value_changes_the_owner() -> None:
    old = created(obj({"a": {"deep": 1}}), "one")
    new = updated(old, {**obj({"a": 5}), "metadata": old["metadata"]}, "two")
    assert owned(new) == {"two": {"f:spec": {"f:a": {}}}}


def test_list_items_are_merged_by_key_and_removed_by_their_last_owner() -> None:
    one = applied(None, {"containers": [{"name": "a", "image": "i"}]}, "one", POD)
    two = applied(one, {"containers": [{"name": "b", "image": "i"}]}, "two", POD)
    assert [item["name"] for item in two["spec"]["containers"]] == ["a", "b"]
    both = applied(two, {"containers": [{"name": "a", "tty": True}]}, "three", POD)
    left = applied(both, {"containers": []}, "one", POD)
    assert left["spec"]["containers"] == [{"name": "a", "tty": True}, {"name": "b", "image": "i"}]
    assert [i["name"] for i in applied(left, {"containers": []}, "three", POD)["spec"]["containers"]] == ["b"]


def test_finalizers_are_a_set() -> None:
    one = apply(None, obj({}, finalizers=["a"]), by("one"), FREE, is_forced=False)
    two = apply(copy.deepcopy(one), obj({}, finalizers=["b"]), by("two"), FREE, is_forced=False)
    assert two["metadata"]["finalizers"] == ["a", "b"]
    assert apply(two, obj({}), by("one"), FREE, is_forced=False)["metadata"]["finalizers"] == ["b"]
