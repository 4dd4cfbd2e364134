"""violations() and warnings(): names, groups, autoscaling, suspend, upgrade (RC:V-1..V-15, V-33..V-40, V-61..V-64)."""

import pytest

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import Violation, violations, warnings
from support.builders import group, raycluster, template

CONFIG = ClusterConfig()
V2 = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}}
V2_ENV = "RAY_enable_autoscaler_v2"


def head(**fields):
    return {"headGroupSpec": {"template": template("ray-head"), **fields}}


def head_env(**variables):
    with_env = template("ray-head")
    with_env["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return head(template=with_env)


def found(*groups, labels=None, annotations=None, config=CONFIG, **spec):
    obj = raycluster(*groups, **spec)
    obj["metadata"] |= {"labels": labels or {}, "annotations": annotations or {}}
    return [(fault.rule, fault.field) for fault in violations(RayCluster.parse(obj), config)]


GROUP = "spec.workerGroupSpecs[0]"
HEAD_ENV = "spec.headGroupSpec.template.spec.containers[0].env"

BROKEN = {
    "a name of 54 characters": ({"name": "a" * 54}, [], "V-1", "metadata.name"),
    "a name that starts with a digit": ({"name": "1a"}, [], "V-2", "metadata.name"),
    "a name with a capital": ({"name": "aB"}, [], "V-2", "metadata.name"),
    "a name that ends with a dash": ({"name": "a-"}, [], "V-2", "metadata.name"),
    "a name with a line break at its end": ({"name": "a\n"}, [], "V-2", "metadata.name"),
    "a head without containers": (
        head(template={"spec": {"containers": []}}),
        [],
        "V-3",
        "spec.headGroupSpec.template.spec.containers",
    ),
    "a head without a pod spec": (head(template={}), [], "V-3", "spec.headGroupSpec.template.spec.containers"),
    "head resources in two places": (
        head(resources={"CPU": "1"}, rayStartParams={"memory": "1"}),
        [],
        "V-4",
        "spec.headGroupSpec.resources",
    ),
    "head labels as a parameter, even empty": (
        head(rayStartParams={"labels": ""}),
        [],
        "V-5",
        "spec.headGroupSpec.rayStartParams.labels",
    ),
    "a head label with a bad key": (head(labels={"a b": "c"}), [], "V-6", "spec.headGroupSpec.labels[a b]"),
    "a head label with a long key": (
        head(labels={"a" * 64: "c"}),
        [],
        "V-6",
        f"spec.headGroupSpec.labels[{'a' * 64}]",
    ),
    "a head label with a bad prefix": (head(labels={"A/b": "c"}), [], "V-6", "spec.headGroupSpec.labels[A/b]"),
    "a head label with an empty prefix": (head(labels={"/b": "c"}), [], "V-6", "spec.headGroupSpec.labels[/b]"),
    "a head label with a bad value": (head(labels={"a": "b c"}), [], "V-6", "spec.headGroupSpec.labels[a]"),
    "a head label with a long value": (head(labels={"a": "b" * 64}), [], "V-6", "spec.headGroupSpec.labels[a]"),
    "a group without containers": ({}, [{"template": {}}], "V-7", f"{GROUP}.template.spec.containers"),
    "no minimum": ({}, [{"minReplicas": None}], "V-8", f"{GROUP}.minReplicas"),
    "no maximum": ({}, [{"maxReplicas": None}], "V-8", f"{GROUP}.maxReplicas"),
    "a minimum below zero": ({}, [{"minReplicas": -1}], "V-9", f"{GROUP}.minReplicas"),
    "a minimum above the maximum": ({}, [{"minReplicas": 11}], "V-11", f"{GROUP}.minReplicas"),
    "group resources in two places": (
        {},
        [{"resources": {"CPU": "1"}, "rayStartParams": {"num-cpus": "1"}}],
        "V-12",
        f"{GROUP}.resources",
    ),
    "group labels as a parameter": (
        {},
        [{"rayStartParams": {"labels": "a=b"}}],
        "V-13",
        f"{GROUP}.rayStartParams.labels",
    ),
    "a group label with a bad value": ({}, [{"labels": {"a": "-"}}], "V-13", f"{GROUP}.labels[a]"),
    "an idle timeout below zero": (V2, [{"idleTimeoutSeconds": -1}], "V-14", f"{GROUP}.idleTimeoutSeconds"),
    "an idle timeout without v2": ({}, [{"idleTimeoutSeconds": 1}], "V-14", f"{GROUP}.idleTimeoutSeconds"),
    "a priority without a version": (V2 | {"rayVersion": ""}, [{"priority": 1}], "V-15", f"{GROUP}.priority"),
    "a priority with an unreadable version": (
        V2 | {"rayVersion": "nightly"},
        [{"priority": 1}],
        "V-15",
        f"{GROUP}.priority",
    ),
    "a priority with an old Ray": (V2 | {"rayVersion": "2.55.9"}, [{"priority": 1}], "V-15", f"{GROUP}.priority"),
    "a priority without v2": ({"rayVersion": "2.56.0"}, [{"priority": 1}], "V-15", f"{GROUP}.priority"),
    "v2 by environment without autoscaling": (head_env(**{V2_ENV: "1"}), [], "V-34", HEAD_ENV),
    "a suspended group under autoscaling": (
        {"enableInTreeAutoscaling": True},
        [{"suspend": True}],
        "V-35",
        f"{GROUP}.suspend",
    ),
    "v2 by environment and by field": (V2 | head_env(**{V2_ENV: "0"}), [], "V-36", HEAD_ENV),
    "v2 with a head that restarts": (
        V2 | head(template=template("ray-head", restartPolicy="Always")),
        [],
        "V-37",
        "spec.headGroupSpec.template.spec.restartPolicy",
    ),
    "v2 with a group that restarts": (
        V2,
        [{"template": template(restartPolicy="OnFailure")}],
        "V-38",
        f"{GROUP}.template.spec.restartPolicy",
    ),
    "a negative idle timeout, autoscaling on or off": (
        {"autoscalerOptions": {"idleTimeoutSeconds": -1}},
        [],
        "V-39",
        "spec.autoscalerOptions.idleTimeoutSeconds",
    ),
    "the autoscaler's start command": (
        {"autoscalerOptions": {"env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "x"}]}},
        [],
        "V-40",
        "spec.autoscalerOptions.env",
    ),
    "an unknown upgrade strategy": ({"upgradeStrategy": {"type": "Rolling"}}, [], "V-63", "spec.upgradeStrategy.type"),
}


@pytest.mark.rule(*sorted({f"RC:{rule}" for *_, rule, _ in BROKEN.values()}))
@pytest.mark.parametrize(("spec", "groups", "rule", "field"), BROKEN.values(), ids=BROKEN)
def test_rejected(spec, groups, rule, field):
    assert found(*(group(**fields) for fields in groups), **spec) == [(rule, field)]


SOUND = {
    "the plain cluster": ({}, []),
    "a name of 53 characters": ({"name": "a" * 53}, []),
    "resources and an empty parameter": (head(resources={"CPU": "1"}, rayStartParams={"memory": ""}), []),
    "labels with prefixes and empty values": (head(labels={"ray.io/accelerator": "A100", "empty": ""}), []),
    "minimum equals maximum": ({}, [{"minReplicas": 10}]),
    "no bounds under autoscaling": ({"enableInTreeAutoscaling": True}, [{"minReplicas": None, "maxReplicas": None}]),
    "an idle timeout with v2": (V2, [{"idleTimeoutSeconds": 0}]),
    "an idle timeout with v2 by environment": (
        {"enableInTreeAutoscaling": True, **head_env(**{V2_ENV: "true"})},
        [{"idleTimeoutSeconds": 60}],
    ),
    "priority zero with any Ray": ({"rayVersion": "1.0"}, [{"priority": 0}]),
    "a priority with Ray 2.56": (V2 | {"rayVersion": "v2.56.0rc1"}, [{"priority": 3}]),
    "v2 switched off by environment": (head_env(**{V2_ENV: "0"}), []),
    "a suspended group": ({}, [{"suspend": True}]),
    "v2 with Never": (V2, [{"template": template(restartPolicy="Never")}]),
    "a known upgrade strategy": ({"upgradeStrategy": {"type": "None"}}, []),
    "an empty upgrade strategy": ({"upgradeStrategy": {}}, []),
}


@pytest.mark.parametrize(("spec", "groups"), SOUND.values(), ids=SOUND)
def test_accepted(spec, groups):
    assert found(*(group(**fields) for fields in groups), **spec) == []


@pytest.mark.rule("RC:V-10", "RC:V-11")
def test_a_maximum_below_zero_is_below_the_minimum_too():
    assert found(group(maxReplicas=-1)) == [("V-10", f"{GROUP}.maxReplicas"), ("V-11", f"{GROUP}.minReplicas")]


@pytest.mark.rule("RC:1.4")
def test_two_groups_of_one_name():
    assert found(group("a"), group("b"), group("a")) == [("1.4", "spec.workerGroupSpecs[2].groupName")]


@pytest.mark.rule("RC:V-33")
def test_a_suspended_group_needs_its_gate():
    config = ClusterConfig(feature_gates=frozenset())
    assert found(group(suspend=True), config=config) == [("V-33", f"{GROUP}.suspend")]


@pytest.mark.rule("RC:V-64")
@pytest.mark.parametrize("owner", ["RayJob", "RayService"])
def test_an_upgrade_strategy_is_rejected_in_clusters_of_other_ray_kinds(owner):
    strategy = {"type": "Recreate"}
    labels = {constants.ORIGINATED_FROM_CRD_LABEL: owner}
    assert found(labels=labels, upgradeStrategy=strategy) == [("V-64", "spec.upgradeStrategy.type")]


def test_every_fault_is_reported_not_only_the_first():
    rules = [rule for rule, _ in found(group(minReplicas=-1), group("b", minReplicas=11), name="1" * 54)]
    assert rules == ["V-1", "V-2", "V-9", "V-11"]


def test_the_message_names_the_group_the_numbers_and_the_fix():
    cluster = RayCluster.parse(raycluster(group("gpu", minReplicas=4, maxReplicas=2)))
    (fault,) = violations(cluster, CONFIG)
    assert str(fault) == f"{GROUP}.minReplicas is 4, above maxReplicas 2; lower it or raise maxReplicas"


@pytest.mark.parametrize(("name", "reason"), [("1a", constants.INVALID_METADATA), ("a", constants.INVALID_SPEC)])
def test_the_event_reason_distinguishes_metadata_and_spec(name, reason):
    cluster = RayCluster.parse(raycluster(group(minReplicas=-1 if name == "a" else 0), name=name))
    assert [fault.event_reason for fault in violations(cluster, CONFIG)] == [reason]


@pytest.mark.rule("RC:V-61")
def test_v1_with_groups_that_restart_is_a_warning_and_no_violation():
    groups = [group("a", template=template(restartPolicy="Always")), group("b"), group("c")]
    groups[2]["template"] = template(restartPolicy="OnFailure")
    options = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v1"}}
    cluster = RayCluster.parse(raycluster(*groups, **options))
    assert violations(cluster, CONFIG) == ()
    (warning,) = warnings(cluster)
    assert isinstance(warning, Violation)
    assert (warning.rule, warning.event_reason) == ("V-61", constants.INVALID_SPEC)
    assert "a, c" in warning.message


@pytest.mark.parametrize("version", ["v2", ""])
def test_no_warning_for_other_autoscalers(version):
    groups = [group(template=template(restartPolicy="Always"))]
    options = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": version}}
    assert warnings(RayCluster.parse(raycluster(*groups, **options))) == ()
