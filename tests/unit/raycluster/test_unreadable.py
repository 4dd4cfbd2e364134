"""A RayCluster that cannot be read gets a condition that names each field."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from raytide.api import constants
from raytide.api.base_model import faults_of
from raytide.api.raycluster import RayCluster
from raytide.raycluster.unreadable import is_ours_to_judge, unreadable_patch
from support.builders import raycluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def broken(**spec):
    obj = raycluster(**spec)
    with pytest.raises(ValidationError) as caught:
        RayCluster.parse(obj)
    return obj, faults_of(caught.value)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"workerGroupSpecs": [{"groupName": "a", "replicas": "many"}]}, "spec.workerGroupSpecs[0].replicas"),
        ({"workerGroupSpecs": [{"replicas": 1}]}, "spec.workerGroupSpecs[0].groupName"),
        ({"headGroupSpec": None}, "spec.headGroupSpec"),
        ({"headGroupSpec": {"rayStartParams": {"port": 6379}}}, "spec.headGroupSpec.rayStartParams.port"),
    ],
)
def test_the_field_is_named_as_kubectl_spells_it(spec, field):
    _, faults = broken(**spec)
    assert [fault.field for fault in faults] == [field]


def test_messages_use_the_type_names_of_yaml():
    _, faults = broken(workerGroupSpecs="none")
    assert [str(fault) for fault in faults] == ["spec.workerGroupSpecs must be a list"]


def test_the_patch_adds_the_invalid_condition_and_changes_nothing_else():
    obj, faults = broken(headGroupSpec=None)
    obj["status"] = {"state": "ready", "conditions": [{"type": "HeadPodReady", "status": "True"}]}
    obj["metadata"]["resourceVersion"] = "7"
    body = unreadable_patch(obj, faults, NOW)
    assert body["metadata"] == {"resourceVersion": "7"}
    assert set(body["status"]) == {"conditions", "lastUpdateTime"}
    head, invalid = body["status"]["conditions"]
    assert head["type"] == "HeadPodReady"
    assert (invalid["type"], invalid["status"], invalid["reason"]) == (
        constants.INVALID,
        "True",
        constants.INVALID_SPEC,
    )
    assert "spec.headGroupSpec" in invalid["message"]


def test_it_is_reported_once():
    obj, faults = broken(headGroupSpec=None)
    obj["status"] = unreadable_patch(obj, faults, NOW)["status"]
    assert unreadable_patch(obj, faults, datetime(2027, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("change", "is_ours"),
    [
        ({}, True),
        ({"spec": {"managedBy": "somebody/else"}}, False),
        ({"spec": None}, True),
    ],
)
def test_which_unreadable_clusters_get_a_status(change, is_ours):
    assert is_ours_to_judge({**raycluster(), **change}) is is_ours
