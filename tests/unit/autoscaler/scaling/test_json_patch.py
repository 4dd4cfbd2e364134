"""One JSON patch per decision: what it writes, what it tests first, and what makes it fail."""

from typing import Any

import pytest

from raytide.api import constants
from raytide.autoscaler.scaling.json_patch import GroupChange, build_patch, pointer
from raytide.autoscaler.state.worker_groups import spec_groups
from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.patching import json_patch
from support.builders import group, raycluster

RECORD = constants.AUTOSCALER_DECISION_ANNOTATION


def written(cluster: dict[str, Any], *changes: GroupChange, record: str | None = None, onto: Any = None) -> Any:
    """The object after the patch that was built for `cluster`, applied to it or to what became of it."""
    patch = build_patch(cluster, changes, record)
    return json_patch(onto or cluster, [dict(operation) for operation in patch])


def only(cluster: dict[str, Any], name: str = "cpu"):
    return next(found for found in spec_groups(cluster) if found.name == name)


def without(entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(group("cpu", replicas=1), id="replicas are there, no scaleStrategy"),
        pytest.param(without(group("cpu"), "replicas"), id="replicas are absent"),
        pytest.param(group("cpu", scaleStrategy={}), id="scaleStrategy is empty"),
        pytest.param(group("cpu", scaleStrategy={"workersToDelete": []}), id="the list is empty"),
        pytest.param(group("cpu", scaleStrategy={"workersToDelete": ["x", "y"]}), id="the list has names"),
    ],
)
@pytest.mark.rule("AS:B-9")
def test_numbers_and_names_are_written_whatever_was_there(entry: dict[str, Any]):
    cluster = raycluster(entry)
    after = written(cluster, GroupChange(only(cluster), 7, ("y", "z")), record="text")
    found = after["spec"]["workerGroupSpecs"][0]
    assert (found["replicas"], found["scaleStrategy"]["workersToDelete"]) == (7, ["y", "z"])
    assert after["metadata"]["annotations"] == {RECORD: "text"}


def test_other_annotations_stay():
    cluster = raycluster()
    cluster["metadata"]["annotations"] = {"a/b": "c"}
    after = written(cluster, record="text")
    assert after["metadata"]["annotations"] == {"a/b": "c", RECORD: "text"}


def test_nothing_to_change_is_no_patch():
    cluster = raycluster(group("cpu", replicas=2))
    assert build_patch(cluster, [GroupChange(only(cluster), 2, ())], None) == ()


def test_only_groups_that_change_are_touched():
    cluster = raycluster(group("a", replicas=1), group("b", replicas=1))
    patch = build_patch(cluster, [GroupChange(only(cluster, "a"), 1), GroupChange(only(cluster, "b"), 2)], None)
    assert {op["path"].split("/")[3] for op in patch if op["path"].startswith("/spec")} == {"1"}


def moved(cluster: dict[str, Any]) -> None:
    cluster["spec"]["workerGroupSpecs"].insert(0, group("new"))


def renamed(cluster: dict[str, Any]) -> None:
    cluster["spec"]["workerGroupSpecs"][0]["groupName"] = "other"


def scaled(cluster: dict[str, Any]) -> None:
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 9
    cluster["metadata"]["generation"] += 1


def recreated(cluster: dict[str, Any]) -> None:
    cluster["metadata"]["uid"] = "another"


def names_written(cluster: dict[str, Any]) -> None:
    cluster["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = {"workersToDelete": ["theirs"]}
    cluster["metadata"]["generation"] += 1


@pytest.mark.parametrize(
    ("edit", "replicas"),
    [
        pytest.param(moved, 2, id="another group was put in front"),
        pytest.param(renamed, 2, id="the group got another name"),
        pytest.param(scaled, 2, id="another client wrote other replicas"),
        pytest.param(scaled, None, id="another client added replicas"),
        pytest.param(names_written, 2, id="another client added names"),
        pytest.param(recreated, 2, id="the cluster was recreated with the same name"),
    ],
)
@pytest.mark.rule("RM:I24", "AS:B-25")
def test_the_whole_patch_fails_when(edit: Any, replicas: int | None):
    entry = group("cpu") if replicas is not None else without(group("cpu"), "replicas")
    cluster, meanwhile = raycluster(entry), raycluster(dict(entry))
    edit(meanwhile)
    with pytest.raises(ApiStatusError):
        written(cluster, GroupChange(only(cluster), 5, ("a",)), record="text", onto=meanwhile)


def test_a_change_of_status_alone_does_not_make_it_fail():
    cluster = raycluster(without(group("cpu"), "replicas"))
    meanwhile = {**cluster, "status": {"state": "ready"}, "metadata": {**cluster["metadata"], "resourceVersion": "9"}}
    assert (
        written(cluster, GroupChange(only(cluster), 5), onto=meanwhile)["spec"]["workerGroupSpecs"][0]["replicas"] == 5
    )


def test_pointers_escape_what_json_pointers_must():
    assert pointer("metadata", "annotations", "a/b~c") == "/metadata/annotations/a~1b~0c"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param({}, [], id="no name: left out"),
        pytest.param({"groupName": "g", "replicas": "many"}, [("g", None, 0)], id="a number that is none is absent"),
        pytest.param({"groupName": "g", "minReplicas": -3}, [("g", None, 0)], id="a negative minimum is 0"),
        pytest.param("nonsense", [], id="no object at all"),
    ],
)
@pytest.mark.rule("AS:B-10")
def test_groups_are_read_leniently(entry: Any, expected: list[tuple[str, int | None, int]]):
    found = spec_groups({"spec": {"workerGroupSpecs": [entry]}})
    assert [(one.name, one.replicas, one.min_replicas) for one in found] == expected


@pytest.mark.parametrize("spec", [{}, {"workerGroupSpecs": None}, {"workerGroupSpecs": "x"}])
def test_a_spec_without_valid_groups_has_no_spec_groups(spec: Any):
    assert spec_groups({"spec": spec}) == ()


def test_the_first_record_does_not_wipe_out_annotations_that_came_meanwhile():
    cluster = raycluster()
    cluster["metadata"] |= {"resourceVersion": "8"}
    meanwhile = {**cluster, "metadata": {**cluster["metadata"], "resourceVersion": "9", "annotations": {"a/b": "c"}}}
    with pytest.raises(ApiStatusError):
        written(cluster, record="text", onto=meanwhile)
