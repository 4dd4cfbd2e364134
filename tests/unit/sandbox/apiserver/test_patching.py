"""Patches as functions of values."""

from typing import Any

import pytest

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.list_types import BuiltInFields
from raytide_sandbox.apiserver.patching import json_patch, merge_patch, strategic_merge

POD = BuiltInFields("Pod")


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "c"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        (["a"], {"x": 1}, {"x": 1}),
    ],
)
def test_merge_patch_as_in_rfc_7386(before: Any, patch: Any, after: Any) -> None:
    assert merge_patch(before, patch) == after


@pytest.mark.parametrize(
    ("before", "operations", "after"),
    [
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
        ({"a/b": 1, "m~n": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}], {}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3, 2]}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a": [1]}, [{"op": "test", "path": "/a/0", "value": 1}], {"a": [1]}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_json_patch_as_in_rfc_6902(before: Any, operations: Any, after: Any) -> None:
    assert json_patch(before, operations) == after


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "test", "path": "/a", "value": True}], 422),
        ([{"op": "remove", "path": "/b"}], 422),
        ([{"op": "replace", "path": "/b", "value": 1}], 422),
        ([{"op": "add", "path": "/b/c", "value": 1}], 422),
        ([{"op": "add", "path": "/l/7", "value": 1}], 422),
        ([{"op": "add", "path": "/l/01", "value": 1}], 422),
        ([{"op": "add", "path": "/b"}], 422),
        ([{"op": "add", "path": "b", "value": 1}], 422),
        ([{"op": "copy", "path": "/b"}], 422),
        ([{"op": "jump", "path": "/a"}], 400),
        ({"op": "remove"}, 400),
    ],
)
def test_json_patches_that_cannot_be(operations: Any, code: int) -> None:
    with pytest.raises(ApiStatusError) as caught:
        json_patch({"a": 1, "l": []}, operations)
    assert caught.value.code == code


def containers(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "image": "i"} for name in names]


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (containers("a", "b"), [{"name": "b", "image": "j"}], [*containers("a"), {"name": "b", "image": "j"}]),
        (containers("a"), containers("b"), containers("b", "a")),
        (containers("a", "b"), [{"name": "a", "$patch": "delete"}], containers("b")),
        (containers("a", "b"), [{"$patch": "replace"}, *containers("z")], containers("z")),
    ],
    ids=[
        "items are found by key",
        "new items go in front of what is not named",
        "items can be deleted",
        "lists can be replaced",
    ],
)
def test_strategic_merge_of_lists(before: Any, patch: Any, after: Any) -> None:
    merged = strategic_merge({"spec": {"containers": before}}, {"spec": {"containers": patch}}, POD)
    assert merged["spec"]["containers"] == after


def test_strategic_merge_orders_by_set_element_order_and_keeps_other_items() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": containers("c")}}
    merged = strategic_merge({"spec": {"containers": containers("a", "x")}}, patch, POD)
    assert [item["name"] for item in merged["spec"]["containers"]] == ["c", "a", "x"]


@pytest.mark.parametrize(
    ("before", "named", "after"),
    [("012", "23", "0123"), ("0123", "4", "40123"), ("40123", "150", "415023"), ("415023", "627", "64150273")],
)
def test_strategic_merge_runs_the_named_into_the_others_as_a_real_server_does(
    before: str, named: str, after: str
) -> None:
    patch = {"spec": {"containers": containers(*named)}}
    merged = strategic_merge({"spec": {"containers": containers(*before)}}, patch, POD)
    assert "".join(item["name"] for item in merged["spec"]["containers"]) == after


def test_strategic_merge_of_plain_lists_and_maps() -> None:
    before = {"metadata": {"finalizers": ["a"], "labels": {"x": "1"}}, "spec": {"tolerations": [{"key": "a"}]}}
    patch = {
        "metadata": {"finalizers": ["b"], "labels": {"$patch": "replace", "y": "2"}},
        "spec": {"tolerations": [{"key": "b"}]},
    }
    merged = strategic_merge(before, patch, POD)
    assert merged == {
        "metadata": {"finalizers": ["b", "a"], "labels": {"y": "2"}},
        "spec": {"tolerations": [{"key": "b"}]},
    }
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge(merged, patch, POD)["metadata"]["finalizers"] == ["b"]


def test_strategic_merge_needs_the_key_of_an_item() -> None:
    with pytest.raises(ApiStatusError, match="does not contain declared merge key: name"):
        strategic_merge({}, {"spec": {"containers": [{"image": "i"}]}}, POD)
