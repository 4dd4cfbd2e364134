"""Manifests that the Python client builds, and what it writes over stored objects."""

import copy

import pytest

from raytide.api.raycluster import RayCluster
from raytide.api.trainingjob import TrainingJob
from raytide.client import manifests


def groups_of(obj):
    return {group["groupName"]: group for group in obj["spec"]["workerGroupSpecs"]}


def stored(*groups, version="7"):
    return {
        "metadata": {"name": "demo", "resourceVersion": version},
        "spec": {"workerGroupSpecs": [dict(group) for group in groups]},
    }


# --- building ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "groups"),
    [
        pytest.param({"workers": 2}, {"workers": (2, 0, None)}, id="a number"),
        pytest.param(
            {"workers": {"cpu": 2, "gpu": 1}}, {"cpu": (2, 0, None), "gpu": (1, 0, None)}, id="numbers by group"
        ),
        pytest.param({"workers": 1, "max_workers": 5}, {"workers": (None, 1, 5)}, id="the autoscaler chooses the size"),
        pytest.param({}, {"workers": (0, 0, None)}, id="no workers"),
    ],
)
def test_a_cluster_has_its_groups(described, groups):
    obj = manifests.raycluster("demo", **described)
    found = {
        name: (group.get("replicas"), group.get("minReplicas", 0), group.get("maxReplicas"))
        for name, group in groups_of(obj).items()
    }
    assert found == groups
    assert obj["spec"].get("enableInTreeAutoscaling", False) is ("max_workers" in described)
    RayCluster.parse({**obj, "metadata": {"name": "demo", "namespace": "ns", "uid": "u"}})


def test_workers_have_their_resources_and_the_version_is_that_of_the_image():
    obj = manifests.raycluster(
        "demo", workers=1, image="registry/ray:2.52.1-gpu", cpus=0.5, memory="1Gi", gpus=2, env={"A": "b"}
    )
    assert obj["spec"]["rayVersion"] == "2.52.1"
    (worker,) = groups_of(obj)["workers"]["template"]["spec"]["containers"]
    assert worker["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert worker["env"] == [{"name": "A", "value": "b"}]
    (head,) = obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in head["resources"]["limits"]


def test_a_version_that_is_not_in_the_tag_is_left_out():
    assert "rayVersion" not in manifests.raycluster("demo", image="registry/ray:nightly")["spec"]


@pytest.mark.parametrize(
    ("described", "words"),
    [
        pytest.param({"workers": -1}, "group workers must be between 0, not -1", id="a negative number"),
        pytest.param(
            {"workers": {"a": 9}, "max_workers": 5},
            r"group a must be between 0 and max_workers \(5\), not 9",
            id="above max_workers",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused(described, words):
    with pytest.raises(ValueError, match=words):
        manifests.raycluster("demo", **described)


def test_a_job_has_its_bounds_and_roles():
    obj = manifests.trainingjob(
        "demo", image="i", entrypoint="python t.py", trainers=(2, 8), pservers=1, gpus=1, env={"A": "b"}
    )
    job = TrainingJob.parse({**obj, "metadata": {"name": "demo", "namespace": "ns", "uid": "u"}})
    assert (job.spec.trainer.min_instance, job.spec.trainer.ceiling) == (2, 8)
    assert obj["spec"]["trainer"]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in obj["spec"]["pserver"]["resources"]["limits"]


@pytest.mark.parametrize(
    ("described", "words"),
    [
        pytest.param({"image": "i", "entrypoint": "e", "trainers": 0}, "at least 1", id="no trainer"),
        pytest.param(
            {"image": "i", "entrypoint": "e", "trainers": (3, 2)},
            "at most the maximum",
            id="a minimum above the maximum",
        ),
        pytest.param({"image": "i", "trainers": 1}, "give image and entrypoint", id="nothing to run"),
    ],
)
def test_a_job_that_cannot_be_is_refused(described, words):
    with pytest.raises(ValueError, match=words):
        manifests.trainingjob("demo", **described)


# --- over a stored object ----------------------------------------------------------------------------------------------------


def test_sizes_that_are_not_set_stay_as_an_autoscaler_wrote_them():
    desired = manifests.raycluster("demo", workers={"a": 1, "new": 0}, max_workers=9)
    there = stored(
        {"groupName": "a", "replicas": 7, "scaleStrategy": {"workersToDelete": ["x"]}},
        {"groupName": "old", "replicas": 3},
    )
    before = copy.deepcopy(desired)
    applied = manifests.to_apply(desired, there)
    assert desired == before
    assert applied["metadata"]["resourceVersion"] == "7"
    groups = groups_of(applied)
    assert (groups["a"]["replicas"], groups["a"]["scaleStrategy"]) == (7, {"workersToDelete": ["x"]})
    assert "replicas" not in groups["new"]
    assert set(groups) == {"a", "new"}


def test_sizes_that_are_set_are_applied():
    applied = manifests.to_apply(
        manifests.raycluster("demo", workers=2), stored({"groupName": "workers", "replicas": 7})
    )
    assert groups_of(applied)["workers"]["replicas"] == 2


def test_what_does_not_exist_is_applied_as_it_is():
    desired = manifests.raycluster("demo", workers=2)
    assert manifests.to_apply(desired, None) == desired


@pytest.mark.parametrize("spec", [None, {}, {"workerGroupSpecs": None}, {"workerGroupSpecs": [None, 3]}], ids=str)
def test_a_stored_object_without_groups_is_no_error(spec):
    there = {"metadata": {"resourceVersion": "1"}, "spec": spec}
    assert manifests.to_apply(manifests.raycluster("demo", workers=2), there)["metadata"]["resourceVersion"] == "1"


TWO = stored({"groupName": "a", "replicas": 1}, {"groupName": "b"})


@pytest.mark.parametrize(
    ("there", "sizes", "expected"),
    [
        pytest.param(stored({"groupName": "a"}), 3, {0: ("a", 3)}, id="the only group"),
        pytest.param(TWO, {"b": 4}, {1: ("b", 4)}, id="a group by name"),
        pytest.param(TWO, {"b": 4, "a": 0}, {0: ("a", 0), 1: ("b", 4)}, id="two groups"),
    ],
)
def test_a_group_is_tested_by_its_name_where_its_size_is_set(there, sizes, expected):
    patch = manifests.group_sizes_patch(there, sizes)
    found = {}
    for test, change in zip(patch[::2], patch[1::2], strict=True):
        position = int(test["path"].split("/")[3])
        assert (test["op"], test["path"]) == ("test", f"/spec/workerGroupSpecs/{position}/groupName")
        assert (change["op"], change["path"]) == ("add", f"/spec/workerGroupSpecs/{position}/replicas")
        found[position] = (test["value"], change["value"])
    assert found == expected


@pytest.mark.parametrize(
    ("there", "sizes", "words"),
    [
        pytest.param(
            TWO, 3, r"it has 2 worker groups: give sizes by group, such as a=3 b=3$", id="one number for two groups"
        ),
        pytest.param(stored(), 3, r"it has 0 worker groups: give sizes by group$", id="no group"),
        pytest.param(TWO, {"c": 1}, "it has no worker group c; its groups are a, b", id="an unknown group"),
        pytest.param(TWO, {"a": -1}, "must not be negative", id="a negative size"),
    ],
)
def test_a_size_of_a_group_that_cannot_be_is_refused(there, sizes, words):
    with pytest.raises(ValueError, match=words):
        manifests.group_sizes_patch(there, sizes)
