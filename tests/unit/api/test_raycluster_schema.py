"""Fields of templates that Raytide reads must have the expected types; other fields are not checked."""

import pytest
from pydantic import ValidationError

from raytide.api.raycluster_schema import RayClusterShape, readable_status
from support.golden_records import read_spec, spec_files

CONTAINER = {"name": "ray", "image": "x"}


def with_container(**change):
    return {"spec": {"headGroupSpec": {"template": {"spec": {"containers": [{**CONTAINER, **change}]}}}}}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"env": None, "command": None, "resources": {"limits": None}}, id="nulls are nothing"),
        pytest.param({"resources": {"limits": {"cpu": 1, "memory": "2Gi"}}}, id="amounts may be numbers"),
        pytest.param({"lifecycle": "anything", "securityContext": 5}, id="what is not read may be anything"),
        pytest.param({"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}, id="a variable may lack a value"),
    ],
)
def test_good(change):
    RayClusterShape.model_validate(with_container(**change))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"env": "x"}, ("env",)),
        ({"env": [{"value": "1"}]}, ("env", 0, "name")),
        ({"ports": [{"name": "a"}]}, ("ports", 0, "containerPort")),
        ({"volumeMounts": [{"name": "a", "mountPath": 5}]}, ("volumeMounts", 0, "mountPath")),
        ({"args": [1]}, ("args", 0)),
        ({"livenessProbe": "x"}, ("livenessProbe",)),
    ],
)
def test_bad(change, place):
    with pytest.raises(ValidationError) as caught:
        RayClusterShape.model_validate(with_container(**change))
    (error,) = caught.value.errors()
    assert error["loc"] == ("spec", "headGroupSpec", "template", "spec", "containers", 0, *place)


@pytest.mark.parametrize("file", spec_files())
def test_every_golden_spec_has_the_shape(file):
    RayClusterShape.model_validate(read_spec(file))


def test_of_a_status_stays_what_can_be_one():
    good = {"type": "A", "status": "True"}
    written = {"conditions": [good, None, {"status": "True"}], "observedGeneration": "x", "state": "ready", "more": 1}
    assert readable_status(written) == {"conditions": [good], "state": "ready", "more": 1}
    assert readable_status("x") == {}
