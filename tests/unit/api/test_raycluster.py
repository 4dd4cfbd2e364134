"""RayCluster.parse: stored objects of KubeRay are read unchanged, and errors name the field (RC §1.2)."""

import pytest
from pydantic import ValidationError

from raytide.api.meta import Key
from raytide.api.raycluster import RayCluster
from support.builders import group, raycluster

NULLS = {
    "an absent map": {"rayStartParams": None, "labels": None, "resources": None},
    "an absent strategy": {"scaleStrategy": None},
    "absent counts": {"replicas": None, "idleTimeoutSeconds": None, "numOfHosts": None},
}


@pytest.mark.parametrize("fields", NULLS.values(), ids=NULLS)
def test_null_reads_as_absent(fields):
    (with_nulls,) = RayCluster.parse(raycluster(group(**fields))).spec.worker_group_specs
    (without,) = RayCluster.parse(
        raycluster({key: value for key, value in group(**fields).items() if value is not None})
    ).spec.worker_group_specs
    assert with_nulls == without


def test_no_status_and_no_groups():
    obj = {**raycluster(), "status": None}
    obj["spec"]["workerGroupSpecs"] = None
    cluster = RayCluster.parse(obj)
    assert (cluster.status, cluster.spec.worker_group_specs) == ({}, ())


def test_unknown_fields_are_ignored():
    cluster = RayCluster.parse(raycluster(group(newField=1), alsoNew={}))
    assert cluster.key == Key("default", "demo")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"replicas": "many"}, ("spec", "workerGroupSpecs", 0, "replicas")),
        ({"template": []}, ("spec", "workerGroupSpecs", 0, "template")),
        ({"groupName": None}, ("spec", "workerGroupSpecs", 0, "groupName")),
        (
            {"scaleStrategy": {"workersToDelete": [1]}},
            ("spec", "workerGroupSpecs", 0, "scaleStrategy", "workersToDelete", 0),
        ),
    ],
)
def test_what_cannot_be_read_names_its_field(fields, place):
    with pytest.raises(ValidationError) as unreadable:
        RayCluster.parse(raycluster(group(**fields)))
    assert [fault["loc"] for fault in unreadable.value.errors()] == [place]


def test_the_object_as_it_came_is_kept():
    obj = raycluster()
    assert RayCluster.parse(obj).raw == obj
