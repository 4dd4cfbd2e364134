"""Violations of a TrainingJob with field and fix; warnings; fields without an effect (TJ §2.1, §3)."""

import pytest

from raytide.api.config import DEFAULT_GPUS
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import INVALID_SPEC
from raytide.trainingjob.validation import unsupported, violations, warnings
from support.training_builders import changed_seed

KEPT = {"cpu": "800m", "memory": "1Gi"}


def seed(name="job-1", **changes):
    return TrainingJob.parse(changed_seed(name, **changes))


def fields(found):
    return [each.field for each in found]


def template(**spec):
    return {"spec": spec}


def test_the_seeds_example_is_valid():
    job = seed()
    assert (violations(job), warnings(job), unsupported(job)) == ((), (), ())


# --- faults ------------------------------------------------------------------------------------------------------------------

FAULTS = {
    "min above max": ({"trainer__min-instance": 7}, "spec.trainer.min-instance", "above max-instance 6"),
    "min above max of parameter servers": (
        {"pserver__max-instance": 2},
        "spec.pserver.min-instance",
        "above max-instance 2",
    ),
    "no minimum": ({"trainer__min-instance": ...}, "spec.trainer.min-instance", "is missing"),
    "no minimum of parameter servers": ({"pserver__min-instance": ...}, "spec.pserver.min-instance", "is missing"),
    "no trainers": ({"trainer__min-instance": 0}, "spec.trainer.min-instance", "is 0; write 1 or more"),
    "a negative minimum": ({"pserver__min-instance": -1}, "spec.pserver.min-instance", "is -1; write 0 or more"),
    "a negative maximum": ({"trainer__max-instance": -2}, "spec.trainer.max-instance", "is -2; write 1 or more"),
    "a negative size": ({"trainer__replicas": -1}, "spec.trainer.replicas", "is -1"),
    "elastic, yet not fault tolerant": (
        {"fault_tolerant": False},
        "spec.fault_tolerant",
        "max-instance of trainer (6) must equal min-instance (3)",
    ),
    "a ratio of nothing": (
        {"pserver__scaling": {"mode": "Ratio", "trainersPerPserver": 0}},
        "spec.pserver.scaling.trainersPerPserver",
        "write 1 or more",
    ),
    "a step of nothing": ({"scaling__step": 0}, "spec.scaling.step", "write 1 or more"),
    "a size below the minimum": (
        {"scaling__allowedSizes": [2, 4]},
        "spec.scaling.allowedSizes",
        "contains 2, not between min-instance 3 and max-instance 6",
    ),
    "a size above the maximum": (
        {"scaling__allowedSizes": [4, 7]},
        "spec.scaling.allowedSizes",
        "contains 7, not between",
    ),
    "a negative cooldown": ({"scaling__growCooldownSeconds": -1}, "spec.scaling.growCooldownSeconds", "is -1"),
    "a negative run time": ({"scaling__minRuntimeSeconds": -1}, "spec.scaling.minRuntimeSeconds", "is -1"),
    "a negative cooldown of shrinking": (
        {"scaling__shrinkCooldownSeconds": -1},
        "spec.scaling.shrinkCooldownSeconds",
        "is -1",
    ),
    "no time to start": ({"pendingTimeoutSeconds": 0}, "spec.pendingTimeoutSeconds", "is 0"),
    "a negative back-off limit": ({"backoffLimit": -1}, "spec.backoffLimit", "is -1"),
    "more failures than trainers": ({"maxFailedPercent": 101}, "spec.maxFailedPercent", "write 100 or less"),
    "fewer failures than none": ({"maxFailedPercent": -1}, "spec.maxFailedPercent", "write 0 or more"),
    "a deadline of nothing": ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "is 0"),
    "a negative TTL": ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished", "is -1"),
    "a negative walltime": ({"annotations__walltime": -1}, "spec.annotations.walltime", "is -1"),
    "negative passes": ({"passes": -1}, "spec.passes", "is -1"),
    "negative passes of trainers": ({"trainer__passes": -1}, "spec.trainer.passes", "is -1"),
    "a negative port": ({"port": -1}, "spec.port", "is -1"),
    "negative ports": ({"ports_num": -1}, "spec.ports_num", "is -1"),
    "negative sparse ports": ({"ports_num_for_sparse": -1}, "spec.ports_num_for_sparse", "is -1"),
    "ports beyond all ports": ({"port": 65535}, "spec.port", "the last port would be 65536"),
    "a template's restart policy": (
        {"trainer__template": template(restartPolicy="Always")},
        "spec.trainer.template.spec.restartPolicy",
        "use spec.restartPolicy",
    ),
    "a template's host name": (
        {"pserver__template": template(hostname="me")},
        "spec.pserver.template.spec.hostname",
        "is set by the operator",
    ),
    "a template's subdomain": (
        {"master__template": template(subdomain="here")},
        "spec.master.template.spec.subdomain",
        "is set by the operator",
    ),
    "a template that is no pod": ({"trainer__template": {"spec": 3}}, "spec.trainer.template.spec", "an object"),
    "containers that are none": (
        {"trainer__template": template(containers="all")},
        "spec.trainer.template.spec.containers",
        "must be a list",
    ),
    "a container without a name": (
        {"trainer__template": template(containers=[{"name": "a"}, {"image": "x"}])},
        "spec.trainer.template.spec.containers[1].name",
        "is missing; containers are merged by name",
    ),
    "two containers of one name": (
        {"trainer__template": template(initContainers=[{"name": "a"}, {"name": "a"}])},
        "spec.trainer.template.spec.initContainers",
        "has several containers named a",
    ),
}


@pytest.mark.rule("TJ:2.1", "TJ:3-2", "TJ:3-4", "TJ:8-template", "TJ:8-scaling")
@pytest.mark.parametrize(("change", "field", "message"), FAULTS.values(), ids=FAULTS)
def test_one_violation_is_reported_once_with_its_field_and_the_remedy(change, field, message):
    (fault,) = violations(seed(**change))
    assert (fault.field, fault.event_reason) == (field, INVALID_SPEC)
    assert message in str(fault)


def test_all_faults_are_reported_at_once():
    job = seed(**{"trainer__min-instance": 7, "fault_tolerant": True, "port": -1, "scaling__step": 0})
    assert fields(violations(job)) == ["spec.trainer.min-instance", "spec.scaling.step", "spec.port"]


@pytest.mark.rule("TJ:3-2")
@pytest.mark.parametrize(
    "change", [{"fault_tolerant": True}, {}, {"fault_tolerant": False, "trainer__max-instance": 3}]
)
def test_fault_tolerance_may_be_off_for_a_single_size(change):
    assert violations(seed(**change)) == ()


# --- names ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:8-name")
@pytest.mark.parametrize("name", ["1job", "Job", "a.b", "a-", "a_b"])
def test_a_name_has_to_be_that_of_a_service(name):
    (fault,) = violations(seed(name))
    assert (fault.field, "DNS-1035" in fault.message) == ("metadata.name", True)


@pytest.mark.rule("TJ:8-name")
@pytest.mark.parametrize(
    ("length", "trainers", "is_sound"),
    [
        pytest.param(53, 9, True, id="j-trainer-9 has 63 characters"),
        pytest.param(54, 9, False, id="j-trainer-9 has 64 characters"),
        pytest.param(52, 10, True, id="j-trainer-10 has 63 characters"),
        pytest.param(53, 10, False, id="j-trainer-10 has 64 characters"),
    ],
)
def test_the_longest_name_of_a_pod_is_a_host_name(length, trainers, is_sound):
    faults = violations(seed("j" * length, **{"trainer__max-instance": trainers}))
    assert fields(faults) == ([] if is_sound else ["metadata.name"])


def test_many_parameter_servers_make_long_names_too():
    change = {"pserver__min-instance": 100, "pserver__max-instance": 100}
    (fault,) = violations(seed("j" * 52, **change))
    assert "with the suffix -pserver-100," in fault.message
    assert "use at most 51" in fault.message


# --- spellings -------------------------------------------------------------------------------------------------------------------

TWICE = {
    "min-instance": {"trainer__minInstance": 4},
    "max-instance": {"pserver__maxInstance": 4},
    "ports_num": {"ports_num": 1, "portsNum": 2},
    "ports_num_for_sparse": {"ports_num_for_sparse": 1, "portsNumForSparse": 2},
    "fault_tolerant": {"fault_tolerant": True, "faultTolerant": False},
    "VolumeMounts": {"VolumeMounts": [], "volumeMounts": [{"name": "a"}]},
    "host_network": {"host_network": True, "hostNetwork": False},
    "node_selector": {"trainer__nodeSelector": {"a": "b"}, "trainer__node_selector": {"a": "c"}},
    "grace_period_seconds": {"master__gracePeriodSeconds": 1, "master__grace_period_seconds": 2},
    "pre_stop_cmd": {"master__preStopCmd": ["a"], "master__pre_stop_cmd": ["b"]},
    "liveness_probe": {"master__livenessProbe": {"a": 1}, "master__liveness_probe": {}},
    "readiness_probe": {"master__readinessProbe": {"a": 1}, "master__readiness_probe": {}},
    "the GPU": {"trainer__resources__limits": {"alpha.kubernetes.io/nvidia-gpu": 1, "nvidia.com/gpu": 2}},
}


@pytest.mark.rule("TJ:3-20")
@pytest.mark.parametrize("change", TWICE.values(), ids=TWICE)
def test_two_spellings_that_differ_are_a_fault(change):
    (fault,) = violations(seed(**change))
    assert "another spelling of" in fault.message


@pytest.mark.rule("TJ:3-20")
def test_two_spellings_of_a_field_with_equal_values_are_valid():
    both = {"alpha.kubernetes.io/nvidia-gpu": 1, "nvidia.com/gpu": "1"}
    job = seed(trainer__minInstance=3, ports_num=2, portsNum=2, trainer__resources={"limits": both})
    assert violations(job) == ()


# --- odd -------------------------------------------------------------------------------------------------------------------------

ODD = {
    "parameter servers that will not follow": (
        {"pserver__max-instance": 5},
        "spec.pserver.max-instance",
        "set spec.pserver.scaling to Ratio",
    ),
    "passes in two places": ({"passes": 2, "trainer__passes": 3}, "spec.trainer.passes", "spec.passes (2) is used"),
    "a step as wide as all": ({"scaling__step": 4}, "spec.scaling.step", "3 is the only size"),
    "a step that does not meet the maximum": ({"scaling__step": 2}, "spec.scaling.step", "the largest is 5, not 6"),
    "sizes without the minimum": ({"scaling__allowedSizes": [4, 6]}, "spec.scaling.allowedSizes", "always allowed"),
    "nothing to run": ({"trainer__entrypoint": ""}, "spec.trainer.entrypoint", "nothing to run"),
    "parameter servers without requests": (
        {"pserver__resources": {}},
        "spec.pserver.resources",
        "no capacity is reserved",
    ),
    "fixed trainers without requests": (
        {"trainer__resources": {}, "trainer__max-instance": 3},
        "spec.trainer.resources",
        "no capacity is reserved",
    ),
    "a GPU resource that is not configured": (
        {"trainer__resources__limits": {**KEPT, "example.com/gpu": 1}},
        "spec.trainer.resources",
        "not a GPU resource of the operator (amd.com/gpu, nvidia.com/gpu)",
    ),
    "a slice of a GPU resource that is not configured": (
        {"trainer__resources__limits": {**KEPT, "nvidia.com/mig-1g.5gb": 1}},
        "spec.trainer.resources",
        "spec.startPolicy",
    ),
    "a node by its name": (
        {"trainer__template": template(nodeName="node-7")},
        "spec.trainer.template.spec.nodeName",
        "is node-7: these pods bypass the scheduler",
    ),
}


@pytest.mark.rule("TJ:8-scaling")
@pytest.mark.parametrize(("change", "field", "message"), ODD.values(), ids=ODD)
def test_suspicious_values_are_warnings_and_not_violations(change, field, message):
    job = seed(**change)
    assert violations(job) == ()
    (warning,) = warnings(job)
    assert warning.field == field
    assert message in str(warning)


@pytest.mark.rule("TJ:3-18")
def test_a_configured_gpu_resource_is_no_warning():
    job = seed(trainer__resources__limits={**KEPT, "example.com/gpu": 1})
    assert warnings(job, DEFAULT_GPUS | {"example.com/gpu"}) == ()


def test_parameter_servers_with_ratio_scaling_are_no_warning():
    assert warnings(seed(**{"pserver__max-instance": 5, "pserver__scaling": "Ratio"})) == ()


def test_a_framework_that_runs_its_images_command_needs_no_entrypoint():
    assert warnings(seed(trainer__entrypoint="", framework="generic")) == ()
