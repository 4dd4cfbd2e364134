"""Name, owner, labels and annotations of a pod, and unchanged fields of its template (RC §3.1 to §3.3)."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template, host_pod, worker_pod
from raytide.raycluster.manifests.recreate_hash import recreate_hash
from raytide.raycluster.plan_multihost_group import NewHost
from support.builders import group, parsed, raycluster, template

CONFIG = PodConfig(operator_version="1.2.3")
HEAD_LABELS = {
    "ray.io/is-ray-node": "yes",
    "ray.io/cluster": "demo",
    "ray.io/node-type": "head",
    "ray.io/group": "headgroup",
    "ray.io/identifier": "demo-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
WORKER_LABELS = HEAD_LABELS | {
    "ray.io/node-type": "worker",
    "ray.io/group": "cpu",
    "ray.io/identifier": "demo-worker",
    "ray.io/worker-group-replica-index": "3",
}


def with_metadata(pod_template: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**pod_template, "metadata": metadata}


def head_of(cluster: RayCluster, config: PodConfig = CONFIG) -> dict[str, Any]:
    return build_head_pod(cluster, config, "demo-head-aaaaa")


def worker_of(cluster: RayCluster, config: PodConfig = CONFIG) -> dict[str, Any]:
    worker_template = build_worker_template(cluster, cluster.spec.worker_group_specs[0], config)
    return worker_pod(worker_template, "demo-cpu-worker-aaaaa", 3)


def with_cluster_metadata(**metadata: Any) -> RayCluster:
    manifest = raycluster()
    manifest["metadata"] |= metadata
    return RayCluster.parse(manifest)


# --- identity --------------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-1", "RC:POD-13", "RM:I8")
def test_a_head_belongs_to_its_cluster_and_carries_the_name_given():
    pod = head_of(parsed(namespace="team", uid="u-1"))
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert pod["metadata"]["name"] == "demo-head-aaaaa"
    assert pod["metadata"]["namespace"] == "team"
    assert "generateName" not in pod["metadata"]
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": "demo",
            "uid": "u-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@pytest.mark.rule("RC:POD-16", "RC:POD-20")
def test_a_worker_never_takes_name_or_namespace_from_the_template():
    own = with_metadata(template(), name="mine", namespace="elsewhere", generateName="mine-")
    metadata = worker_of(parsed(group(template=own), namespace="team"))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("demo-cpu-worker-aaaaa", "team")
    assert "generateName" not in metadata
    assert metadata["ownerReferences"][0]["controller"] is True


@pytest.mark.rule("D13")
def test_workers_of_a_group_share_everything_but_their_identity():
    cluster = parsed()
    shared = build_worker_template(cluster, cluster.spec.worker_group_specs[0], CONFIG)
    before = copy.deepcopy(shared)
    first, second = worker_pod(shared, "w-aaaaa", 0), worker_pod(shared, "w-bbbbb", 1)
    assert shared == before
    assert first["spec"] is second["spec"]
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("w-aaaaa", "w-bbbbb")
    assert second["metadata"]["labels"]["ray.io/worker-group-replica-index"] == "1"


@pytest.mark.rule("RC §3.3", "D13")
def test_a_host_has_labels_with_replica_and_index_and_an_annotation_with_the_number_of_hosts():
    cluster = parsed()
    shared = build_worker_template(cluster, cluster.spec.worker_group_specs[0], CONFIG)
    before = copy.deepcopy(shared)
    pod = host_pod(shared, "w-aaaaa", NewHost("cpu-x2b4c", 2, 3), 4)
    assert shared == before
    assert pod["spec"] is shared["spec"]
    assert pod["metadata"]["labels"].items() >= {
        ("ray.io/worker-group-replica-name", "cpu-x2b4c"),
        ("ray.io/worker-group-replica-index", "2"),
        ("ray.io/replica-host-index", "3"),
    }
    assert pod["metadata"]["annotations"]["raytide.io/num-of-hosts"] == "4"


@pytest.mark.rule("RC:POD-18")
def test_without_multi_host_indexing_there_is_no_index_label():
    cluster = parsed()
    shared = build_worker_template(cluster, cluster.spec.worker_group_specs[0], CONFIG)
    assert "ray.io/worker-group-replica-index" not in worker_pod(shared, "w-aaaaa", None)["metadata"]["labels"]


@pytest.mark.rule("D5", "D13")
def test_building_changes_nothing_the_user_wrote():
    sidecar = {"name": "side", "image": "busybox"}
    own = template(initContainers=[{"name": "prepare", "image": "busybox"}], volumes=[{"name": "v", "emptyDir": {}}])
    own["spec"]["containers"].append(sidecar)
    cluster = parsed(group(template=own), headGroupSpec={"template": copy.deepcopy(own)})
    before = copy.deepcopy(cluster.raw)
    head_of(cluster)
    worker_of(cluster)
    assert cluster.raw == before
    assert cluster == RayCluster.parse(before)


# --- labels ------------------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-3", "RC:POD-18")
def test_pods_carry_the_labels_by_which_they_are_found():
    cluster = parsed()
    assert head_of(cluster)["metadata"]["labels"] == HEAD_LABELS
    assert worker_of(cluster)["metadata"]["labels"] == WORKER_LABELS


@pytest.mark.rule("RC:POD-3")
@pytest.mark.parametrize(
    ("label", "is_overridable"),
    [
        ("ray.io/is-ray-node", True),
        ("ray.io/cluster", False),
        ("ray.io/node-type", False),
        ("ray.io/group", False),
        ("ray.io/identifier", True),
        ("app.kubernetes.io/name", True),
        ("app.kubernetes.io/created-by", True),
        ("ray.io/worker-group-replica-index", False),
        ("team", True),
    ],
)
def test_a_template_may_change_some_labels_and_not_others(label, is_overridable):
    cluster = parsed(group(template=with_metadata(template(), labels={label: "own"})))
    assert (worker_of(cluster)["metadata"]["labels"][label] == "own") is is_overridable


@pytest.mark.rule("RC:POD-3")
def test_group_labels_win_over_those_of_the_template():
    own = with_metadata(template(), labels={"a": "template", "b": "template", "ray.io/identifier": "template"})
    labels = worker_of(parsed(group(template=own, labels={"b": "group", "ray.io/group": "no"})))["metadata"]["labels"]
    assert {key: labels[key] for key in ("a", "b", "ray.io/identifier", "ray.io/group")} == {
        "a": "template",
        "b": "group",
        "ray.io/identifier": "template",
        "ray.io/group": "cpu",
    }


@pytest.mark.rule("RC:POD-3")
def test_long_cluster_names_are_cut_in_the_identifier():
    cluster = parsed(name="c" * 70)
    assert head_of(cluster)["metadata"]["labels"]["ray.io/identifier"] == "c" * 58 + "-head"
    assert worker_of(cluster)["metadata"]["labels"]["ray.io/identifier"] == "c" * 56 + "-worker"


@pytest.mark.rule("RC:POD-3")
@pytest.mark.parametrize(
    ("origin", "head", "worker"),
    [("RayService", "false", "true"), ("RayJob", None, None), ("RayCluster", None, None)],
)
def test_only_pods_of_a_ray_service_have_the_serve_label(origin, head, worker):
    cluster = with_cluster_metadata(labels={"ray.io/originated-from-crd": origin})
    assert head_of(cluster)["metadata"]["labels"].get("ray.io/serve") == head
    assert worker_of(cluster)["metadata"]["labels"].get("ray.io/serve") == worker


# --- annotations -------------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-14", "RC:POD-7")
def test_a_head_has_annotations_with_spec_hash_and_operator_version():
    annotations = head_of(parsed())["metadata"]["annotations"]
    assert annotations.pop("ray.io/upgrade-strategy-recreate-hash") == recreate_hash(parsed())
    assert annotations == {"ray.io/ft-enabled": "false", "ray.io/kuberay-version": "1.2.3"}


@pytest.mark.rule("RC:POD-14")
def test_a_worker_has_no_generated_annotations():
    assert "annotations" not in worker_of(parsed())["metadata"]


@pytest.mark.rule("RC:POD-7")
@pytest.mark.parametrize(("options", "is_enabled"), [(None, "false"), ({}, "true"), ({"redisAddress": "r:1"}, "true")])
def test_a_head_always_has_the_fault_tolerance_annotation(options, is_enabled):
    cluster = parsed(gcsFaultToleranceOptions=options)
    assert head_of(cluster)["metadata"]["annotations"]["ray.io/ft-enabled"] == is_enabled


@pytest.mark.rule("RC:POD-7")
@pytest.mark.parametrize(
    ("text", "is_enabled"), [("true", "true"), ("True", "true"), ("false", "false"), ("1", "false")]
)
def test_the_old_annotation_switches_fault_tolerance_on(text, is_enabled):
    cluster = with_cluster_metadata(annotations={"ray.io/ft-enabled": text})
    assert head_of(cluster)["metadata"]["annotations"]["ray.io/ft-enabled"] == is_enabled


@pytest.mark.rule("RC:POD-5", "RC:POD-19", "RC:CMD-3")
@pytest.mark.parametrize(("text", "is_copied"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)])
def test_the_annotation_that_keeps_user_commands_is_copied_to_every_pod(text, is_copied):
    cluster = with_cluster_metadata(annotations={"ray.io/overwrite-container-cmd": text})
    for pod in (head_of(cluster), worker_of(cluster)):
        annotation = pod["metadata"].get("annotations", {}).get("ray.io/overwrite-container-cmd")
        assert annotation == ("true" if is_copied else None)
        assert ("args" not in pod["spec"]["containers"][0]) is is_copied


@pytest.mark.rule("RC:POD-1")
def test_annotations_and_finalizers_of_the_template_stay():
    own = with_metadata(template(), annotations={"note": "x"}, finalizers=["a.b/c"])
    metadata = worker_of(parsed(group(template=own)))["metadata"]
    assert (metadata["annotations"], metadata["finalizers"]) == ({"note": "x"}, ["a.b/c"])


# --- what the operator's settings add ------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-12", "RC:POD-20")
def test_configured_metadata_fills_gaps_only():
    config = replace(
        CONFIG,
        default_pod_labels={"team": "default", "zone": "default", "ray.io/group": "default"},
        default_pod_annotations={"note": "default", "audit": "default"},
    )
    own = with_metadata(template(), labels={"team": "own"}, annotations={"note": "own"})
    cluster = parsed(group(template=own), headGroupSpec={"template": own})
    for pod in (head_of(cluster, config), worker_of(cluster, config)):
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        assert (labels["team"], labels["zone"]) == ("own", "default")
        assert labels["ray.io/group"] in {"headgroup", "cpu"}
        assert (annotations["note"], annotations["audit"]) == ("own", "default")


@pytest.mark.rule("RC:POD-12", "RC:POD-20")
def test_configured_sidecars_come_after_the_users_containers():
    config = replace(
        CONFIG,
        head_sidecar_containers=({"name": "for-heads", "image": "a"},),
        worker_sidecar_containers=({"name": "for-workers", "image": "b"},),
    )
    own = template()
    own["spec"]["containers"].append({"name": "own", "image": "c"})
    cluster = parsed(group(template=own), headGroupSpec={"template": own})
    assert [c["name"] for c in head_of(cluster, config)["spec"]["containers"]] == ["ray", "own", "for-heads"]
    assert [c["name"] for c in worker_of(cluster, config)["spec"]["containers"]] == ["ray", "own", "for-workers"]


# --- what is left alone --------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-13", "RC:POD-20")
def test_everything_else_in_the_template_stays_as_it_is():
    own = {
        "restartPolicy": "Never",
        "serviceAccountName": "mine",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "anythingNew": {"in": ["Kubernetes"]},
    }
    cluster = parsed(group(template=template(**own)), headGroupSpec={"template": template(**own)})
    for pod in (head_of(cluster), worker_of(cluster)):
        assert {key: pod["spec"][key] for key in own} == own
        assert pod["spec"].keys() - own.keys() <= {"containers", "initContainers", "volumes"}


@pytest.mark.rule("RC:POD-13")
def test_other_containers_stay_as_they_are():
    side = {"name": "side", "image": "busybox", "command": ["sleep", "1d"]}
    own = template()
    own["spec"]["containers"].append(side)
    assert head_of(parsed(headGroupSpec={"template": own}))["spec"]["containers"][1] == side
