"""Which changes of a spec call for new pods, and which do not (RC:UP-1)."""

import copy
import string
from collections.abc import Callable
from typing import Any

import pytest

from raytide.api.raycluster import RayCluster
from raytide.raycluster.recreate_hash import recreate_hash

from builders import group, raycluster

Edit = Callable[[dict[str, Any]], object]


def hash_after(edit: Edit) -> str:
    manifest = raycluster(group(), group("gpu"))
    edit(manifest["spec"])
    return recreate_hash(RayCluster.parse(manifest))


UNCHANGED = hash_after(lambda spec: None)


def pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["headGroupSpec"]["template"]["spec"]


def worker(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["workerGroupSpecs"][0]


def test_it_is_32_characters_of_base32():
    assert len(UNCHANGED) == 32
    assert set(UNCHANGED) <= set(string.digits + string.ascii_uppercase[:22])


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
        pytest.param(
            lambda s: worker(s)["template"].update(metadata={"labels": {"a": "b"}}), id="a label of a template"
        ),
    ],
)
def test_pods_are_made_anew_after_a_change_of(edit):
    assert hash_after(edit) != UNCHANGED


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
