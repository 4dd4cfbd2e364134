"""Which changes of a spec recreate the pods, and which do not (RC:UP-1)."""

import copy
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.recreate_hash import VERSION, recreate_hash
from support.builders import group, raycluster

Edit = Callable[[dict[str, Any]], object]


def hash_after(edit: Edit) -> str:
    manifest = raycluster(group(), group("gpu"))
    edit(manifest["spec"])
    return recreate_hash(RayCluster.parse(manifest))


UNCHANGED = hash_after(lambda spec: None)

CRD = Path(__file__).parents[4] / "crds" / "ray.io_rayclusters.yaml"
ABSENT = object()


def defaults_in(schema: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Every default of the schema with the path of its field."""
    if "default" in schema:
        yield path, schema["default"]
    for name, inner in (schema.get("properties") or {}).items():
        yield from defaults_in(inner, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from defaults_in(schema["items"], f"{path}[]")


def defaults_of_the_crd() -> dict[str, Any]:
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    (v1,) = (version for version in versions if version["name"] == "v1")
    return dict(defaults_in(v1["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec"))


DEFAULTED = defaults_of_the_crd()


def put(at: Any, path: list[str], value: Any) -> None:
    """Set the field, with as much around it as it takes; ABSENT leaves the field out."""
    for key in path[:-1]:
        name = key.removesuffix("[]")
        child = at.get(name) or ([{"name": "x", "containerPort": 1, "port": 1}] if name != key else {})
        at[name] = child
        at = child[0] if name != key else child
    if value is not ABSENT:
        at[path[-1]] = value
    else:
        at.pop(path[-1], None)


def pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["headGroupSpec"]["template"]["spec"]


def worker(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["workerGroupSpecs"][0]


@pytest.mark.rule("FD:RC-B8", "RC:UP-4")
def test_it_is_a_version_and_32_characters_of_base32():
    version, _, digest = UNCHANGED.partition(":")
    assert version == VERSION
    assert len(digest) == 32
    assert set(digest) <= set(string.digits + string.ascii_uppercase[:22])


@pytest.mark.rule("FD:RC-B8")
def test_a_change_of_the_hash_needs_a_new_version():
    """If this fails: increment VERSION, then write the new value here. Otherwise an upgrade of the operator recreates clusters."""
    assert UNCHANGED == "v2:L4A6DC0L8P8P9H63EJEEQPV6588C8ASA"


@pytest.mark.rule("RC:UP-1")
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda s: worker(s).update(replicas=7), id="replicas"),
        pytest.param(lambda s: worker(s).pop("replicas"), id="replicas removed"),
        pytest.param(lambda s: worker(s).update(minReplicas=1), id="minReplicas"),
        pytest.param(lambda s: worker(s).update(maxReplicas=1), id="maxReplicas"),
        pytest.param(lambda s: worker(s).update(scaleStrategy={"workersToDelete": ["a"]}), id="workersToDelete"),
        pytest.param(lambda s: pod_spec(s).update(tolerations=[{"operator": "Exists"}]), id="tolerations of the head"),
        pytest.param(lambda s: pod_spec(s).update(schedulingGates=[{"name": "g"}]), id="scheduling gates of the head"),
        pytest.param(
            lambda s: worker(s)["template"]["spec"].update(tolerations=[], schedulingGates=[{"name": "g"}]),
            id="tolerations and gates of a group",
        ),
        pytest.param(lambda s: s.update(upgradeStrategy={"type": "Recreate"}), id="the upgrade strategy"),
        pytest.param(lambda s: worker(s).pop("rayStartParams"), id="empty rayStartParams left out"),
        pytest.param(lambda s: s.update(suspend=None), id="a null"),
        pytest.param(
            lambda s: pod_spec(s)["containers"][0]["resources"]["limits"].update(cpu=1, memory="2048Mi"),
            id="another spelling of the same amount",
        ),
        pytest.param(lambda s: s["workerGroupSpecs"].reverse(), id="the order of groups"),
        pytest.param(lambda s: worker(s).update(numOfHosts=1, priority=0), id="a group's defaults"),
        pytest.param(lambda s: pod_spec(s)["containers"][0].update(env=[], command=[]), id="empty lists"),
        pytest.param(
            lambda s: pod_spec(s).update(restartPolicy="Always", dnsPolicy="ClusterFirst", securityContext={}),
            id="Kubernetes' defaults of a pod",
        ),
        pytest.param(
            lambda s: pod_spec(s)["containers"][0].update(
                imagePullPolicy="IfNotPresent", terminationMessagePolicy="File"
            ),
            id="Kubernetes' defaults of a container",
        ),
        pytest.param(
            lambda s: pod_spec(s)["containers"][0]["resources"].pop("requests"), id="requests that are the limits"
        ),
        pytest.param(lambda s: s.update(enableInTreeAutoscaling=False), id="autoscaling that is off"),
    ],
)
def test_pods_stay_after_a_change_of(edit):
    assert hash_after(edit) == UNCHANGED


@pytest.mark.rule("RC:UP-1")
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda s: s.update(rayVersion="2.53.0"), id="the Ray version"),
        pytest.param(lambda s: s.update(suspend=False), id="suspend"),
        pytest.param(lambda s: s.update(autoscalerOptions={"idleTimeoutSeconds": 1}), id="autoscaler options"),
        pytest.param(lambda s: s["headGroupSpec"].update(headService={"spec": {}}), id="the head service"),
        pytest.param(lambda s: s["headGroupSpec"]["rayStartParams"].update(port="1"), id="a parameter of the head"),
        pytest.param(lambda s: pod_spec(s).update(nodeSelector={"a": "b"}), id="the head's node selector"),
        pytest.param(lambda s: pod_spec(s)["containers"][0].update(image="other"), id="an image"),
        pytest.param(lambda s: pod_spec(s)["containers"][0]["resources"]["limits"].update(cpu="2"), id="an amount"),
        pytest.param(lambda s: worker(s).update(numOfHosts=2), id="hosts per replica"),
        pytest.param(lambda s: worker(s).update(groupName="other"), id="a group's name"),
        pytest.param(lambda s: s["workerGroupSpecs"].pop(), id="a group removed"),
        pytest.param(lambda s: worker(s).update(priority=1), id="a group's priority"),
        pytest.param(lambda s: pod_spec(s)["containers"][0].update(imagePullPolicy="Always"), id="another pull policy"),
        pytest.param(lambda s: pod_spec(s).update(volumes=[{"name": "v", "emptyDir": {}}]), id="an empty volume"),
        pytest.param(lambda s: pod_spec(s).update(securityContext={"runAsUser": 0}), id="root as user"),
        pytest.param(lambda s: pod_spec(s).update(automountServiceAccountToken=False), id="no token"),
        pytest.param(lambda s: pod_spec(s).update(nodeSelector={"a": ""}), id="a selector for an empty label"),
        pytest.param(lambda s: s.update(gcsFaultToleranceOptions={}), id="options whose presence is a wish"),
        pytest.param(
            lambda s: worker(s)["template"].update(metadata={"labels": {"a": "b"}}), id="a label of a template"
        ),
    ],
)
def test_pods_are_recreated_after_a_change_of(edit):
    assert hash_after(edit) != UNCHANGED


@pytest.mark.rule("FD:RC-B8")
@pytest.mark.parametrize("path", DEFAULTED, ids=DEFAULTED)
def test_pods_stay_when_the_api_server_adds_a_default_of_the_crd(path):
    """CRD defaults apply on reading too: a newer CRD must not look like another spec."""

    def hash_with(default):
        manifest = raycluster(group(), group("gpu"))
        put(manifest["spec"], path.removeprefix("spec.").split("."), default)
        return recreate_hash(RayCluster.parse(manifest))

    assert hash_with(DEFAULTED[path]) == hash_with(ABSENT)


@pytest.mark.rule("FD:RC-B8")
def test_the_crd_has_these_defaults():
    assert {"spec.workerGroupSpecs[].numOfHosts", "spec.networkPolicy.mode"} <= DEFAULTED.keys()
    assert "spec.headGroupSpec.template.spec.containers[].ports[].protocol" in DEFAULTED
    assert len(DEFAULTED) > 100


@pytest.mark.rule("RC:UP-1")
def test_the_order_of_keys_means_nothing():
    manifest = raycluster(group(), group("gpu"))
    manifest["spec"] = dict(reversed(manifest["spec"].items()))
    assert recreate_hash(RayCluster.parse(manifest)) == UNCHANGED


@pytest.mark.rule("D5")
def test_hashing_leaves_the_object_alone():
    cluster = RayCluster.parse(raycluster())
    before = copy.deepcopy(cluster.raw)
    recreate_hash(cluster)
    assert cluster.raw == before
