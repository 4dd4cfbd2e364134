"""Amounts that no pod can have, or that cannot be computed (TJ §3 rows 5 and 18)."""

import pytest

from raytide.api.training_resources import role_resources
from raytide.api.trainingjob import Resources, TrainingJob
from raytide.trainingjob.validation import violations, warnings


def job(limits=None, requests=None, *, high=3, role="trainer", template=None):
    roles = {
        "trainer": {"min-instance": 1, "max-instance": high, "entrypoint": "x", "resources": {"limits": {"cpu": 1}}}
    }
    roles["pserver"] = {"min-instance": 1, "resources": {"limits": {"cpu": 1}}}
    roles["master"] = {}
    roles[role]["resources"] = {"limits": limits or {}, "requests": requests or {}}
    roles[role]["template"] = template
    return TrainingJob.parse({"metadata": {"name": "job"}, "spec": roles})


FAULTS = {
    "a limit that is no amount": ({"cpu": "lots"}, {}, "limits.cpu", "'lots' is not a quantity"),
    "a request that is no amount": ({}, {"memory": "1Gb"}, "requests.memory", "'1Gb' is not a quantity"),
    "an empty amount": ({"cpu": ""}, {}, "limits.cpu", "is not a quantity"),
    "a negative limit": ({"cpu": "-1"}, {}, "limits.cpu", "is -1; write 0 or more"),
    "a request above the limit": ({"cpu": "1"}, {"cpu": "1100m"}, "requests.cpu", "above its limit 1"),
    "a request above the limit, in other units": ({"memory": "1Gi"}, {"memory": "2G"}, "requests.memory", "above"),
    "half a GPU": ({"nvidia.com/gpu": "500m"}, {}, "limits.nvidia.com/gpu", "write a whole number"),
    "more GPUs than requested": (
        {"nvidia.com/gpu": 2},
        {"nvidia.com/gpu": 1},
        "requests.nvidia.com/gpu",
        "write the same in both",
    ),
    "a GPU without a domain": ({"gpu": 1}, {}, "limits.gpu", "such as nvidia.com/gpu"),
    "a misspelt resource": ({"mem": "1Gi"}, {}, "limits.mem", "use cpu, memory"),
}


@pytest.mark.rule("TJ:3-18")
@pytest.mark.parametrize("role", ["trainer", "pserver", "master"])
@pytest.mark.parametrize(("limits", "requests", "field", "message"), FAULTS.values(), ids=FAULTS)
def test_an_amount_that_no_pod_can_have(role, limits, requests, field, message):
    (fault,) = violations(job(limits, requests, role=role))
    assert fault.field == f"spec.{role}.resources.{field}"
    assert message in fault.message


SOUND = {
    "numbers": ({"cpu": 1, "memory": 1000000}, {"cpu": 0.5}),
    "equal in other units": ({"memory": "1Gi"}, {"memory": "1024Mi"}),
    "huge pages and disk": ({"cpu": 1, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}, {}),
    "the old GPU in limits only": ({"alpha.kubernetes.io/nvidia-gpu": 1}, {}),
    "a GPU in requests only": ({}, {"nvidia.com/gpu": 1}),
    "the old GPU in one, today's in the other": ({"alpha.kubernetes.io/nvidia-gpu": 1}, {"nvidia.com/gpu": 1}),
    "a device of ours": ({"example.com/fpga": 1}, {}),
    "a limit of zero and another one": ({"cpu": 1, "nvidia.com/gpu": 0}, {}),
}


@pytest.mark.parametrize(("limits", "requests"), SOUND.values(), ids=SOUND)
def test_valid_amounts(limits, requests):
    assert violations(job(limits, requests)) == ()


# --- nothing ---------------------------------------------------------------------------------------------------------------------

NOTHING = {"missing": ({}, {}), "zero": ({"cpu": 0, "memory": "0"}, {}), "zero requests": ({}, {"cpu": "0m"})}


@pytest.mark.rule("TJ:3-5")
@pytest.mark.parametrize(("limits", "requests"), NOTHING.values(), ids=NOTHING)
def test_an_elastic_job_without_resource_requests_is_invalid(limits, requests):
    (fault,) = violations(job(limits, requests))
    assert fault.field == "spec.trainer.resources"
    assert "write requests, or make max-instance equal to min-instance" in fault.message


@pytest.mark.rule("TJ:3-5")
@pytest.mark.parametrize(("limits", "requests"), NOTHING.values(), ids=NOTHING)
def test_a_job_of_fixed_size_without_requests_is_valid_with_a_warning(limits, requests):
    fixed = job(limits, requests, high=1)
    assert violations(fixed) == ()
    assert [warning.field for warning in warnings(fixed)] == ["spec.trainer.resources"]


def test_resource_requests_of_the_template_count():
    container = {"name": "trainer", "resources": {"requests": {"cpu": "1"}}}
    assert violations(job({}, {}, template={"spec": {"containers": [container]}})) == ()


def test_requests_of_the_template_may_not_exceed_the_limit():
    container = {"name": "trainer", "resources": {"requests": {"cpu": "2"}}}
    (fault,) = violations(job({"cpu": 1}, {}, template={"spec": {"containers": [container]}}))
    assert fault.field == "spec.trainer.resources.requests.cpu"


OF_A_TEMPLATE = {
    "an object as an amount": ({"requests": {"cpu": {"min": 1}}}, ".requests.cpu", "{'min': 1} is not a quantity"),
    "false as an amount": ({"requests": {"cpu": False}}, ".requests.cpu", "False is not a quantity"),
    "a list as an amount": ({"limits": {"memory": ["1Gi"]}}, ".limits.memory", "['1Gi'] is not a quantity"),
    "a list of limits": ({"limits": ["cpu"]}, ".limits", "must be an object"),
    "requests that are text": ({"requests": "cpu=1"}, ".requests", "must be an object"),
    "resources that are text": ("cpu=1", "", "must be an object"),
    "resources that are a list": ([], "", "must be an object"),
}


@pytest.mark.rule("TJ:8-template")
@pytest.mark.parametrize("role", ["trainer", "pserver", "master"])
@pytest.mark.parametrize(("resources", "field", "message"), OF_A_TEMPLATE.values(), ids=OF_A_TEMPLATE)
def test_amounts_of_a_template_that_no_pod_can_have_are_reported(role, resources, field, message):
    containers = [{"name": "beside"}, {"name": role, "resources": resources}]
    sound = {"cpu": "1"}
    (fault,) = violations(job(sound, sound, role=role, template={"spec": {"containers": containers}}))
    assert fault.field == f"spec.{role}.template.spec.containers[1].resources{field}"
    assert message in fault.message


@pytest.mark.rule("TJ:8-template")
@pytest.mark.parametrize("resources", [None, {"requests": None, "limits": None}, {"limits": {"cpu": None}}])
def test_null_in_a_template_removes_amounts(resources):
    fixed = job({"cpu": "1"}, high=1, template={"spec": {"containers": [{"name": "trainer", "resources": resources}]}})
    assert violations(fixed) == ()
    assert role_resources(fixed, "trainer") == Resources()
    assert [warning.field for warning in warnings(fixed)] == ["spec.trainer.resources"]


def test_amounts_that_cannot_be_read_are_not_called_missing():
    assert [fault.field for fault in violations(job({"cpu": "lots"}))] == ["spec.trainer.resources.limits.cpu"]
