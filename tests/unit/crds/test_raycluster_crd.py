"""The RayCluster CRD: names, fields, and that it is the generator's output (RC §1.1, §1.2, §1.5)."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

import crds
from raytide.api.raycluster import RayCluster
from raytide_sandbox.apiserver.schema import compile_schema

ROOT = Path(__file__).parents[3]
NAME = "ray.io_rayclusters.yaml"
CRD = yaml.load((ROOT / "crds" / NAME).read_text(), Loader=yaml.CSafeLoader)
V1, V1ALPHA1 = CRD["spec"]["versions"]


def at(version, path):
    """The schema at a path such as `spec.workerGroupSpecs[].replicas`."""
    node = version["schema"]["openAPIV3Schema"]
    for step in path.replace("[]", ".[]").split("."):
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


def test_the_files_are_what_the_generator_makes():
    assert crds.main(["--check"]) == 0


def test_a_stale_file_is_detected(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(crds, "ROOT", tmp_path)
    monkeypatch.setattr(crds, "FOLDER", tmp_path / "crds")
    assert crds.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err
    assert crds.main([]) == 0
    assert crds.main(["--check"]) == 0


def test_plain_kubectl_apply_can_store_it():
    as_json = len(json.dumps(CRD, separators=(",", ":")).encode())
    assert as_json < 256 * 1024
    assert crds.faults_of_size(NAME, CRD) == []


def test_a_crd_that_is_too_large_is_detected():
    assert crds.faults_of_size(NAME, {**CRD, "metadata": {"name": "x" * 300_000}}) != []


def test_names_versions_and_subresources():
    spec = CRD["spec"]
    assert CRD["metadata"]["name"] == "rayclusters.ray.io"
    assert (spec["group"], spec["scope"]) == ("ray.io", "Namespaced")
    assert spec["names"] == {
        "kind": "RayCluster",
        "listKind": "RayClusterList",
        "plural": "rayclusters",
        "singular": "raycluster",
        "categories": ["all"],
    }
    assert [(v["name"], v["served"], v["storage"], v.get("deprecated", False)) for v in (V1, V1ALPHA1)] == [
        ("v1", True, True, False),
        ("v1alpha1", True, False, True),
    ]
    assert "use ray.io/v1" in V1ALPHA1["deprecationWarning"]
    assert [v["subresources"] for v in (V1, V1ALPHA1)] == [{"status": {}}] * 2


def test_printer_columns():
    columns = [(c["name"], c["type"], c["jsonPath"], c.get("priority", 0)) for c in V1["additionalPrinterColumns"]]
    assert columns == list(crds.RAYCLUSTER_COLUMNS)
    assert V1ALPHA1["additionalPrinterColumns"] == V1["additionalPrinterColumns"]
    assert [name for name, *_, priority in columns if not priority] == [
        "desired workers",
        "available workers",
        "cpus",
        "memory",
        "gpus",
        "status",
        "age",
        "ready workers",
        "reason",
    ]


FIELDS = {
    "spec": "authOptions autoscalerOptions enableInTreeAutoscaling gcsFaultToleranceOptions headGroupSpec "
    "headServiceAnnotations historyServerOptions managedBy networkPolicy rayVersion suspend tlsOptions upgradeStrategy "
    "workerGroupSpecs",
    "spec.headGroupSpec": "enableIngress headService ingressOptions labels rayStartParams resources serviceType template",
    "spec.workerGroupSpecs[]": "groupName idleTimeoutSeconds labels maxReplicas minReplicas numOfHosts priority "
    "rayStartParams replicas resources scaleStrategy suspend template",
    "spec.autoscalerOptions": "args command env envFrom idleTimeoutSeconds image imagePullPolicy resources "
    "securityContext upscalingMode version volumeMounts",
    "spec.gcsFaultToleranceOptions": "backend externalStorageNamespace redisAddress redisPassword redisUsername storage",
    "spec.gcsFaultToleranceOptions.storage": "accessModes claimName deletionPolicy size storageClassName subPath",
    "spec.gcsFaultToleranceOptions.redisPassword": "value valueFrom",
    "spec.authOptions": "enableK8sTokenAuth mode secretName",
    "spec.historyServerOptions.collectorOptions": "env image imagePullPolicy resources",
    "spec.networkPolicy": "head mode worker workerGroups",
    "spec.networkPolicy.workerGroups[]": "egressRules groupName ingressRules",
    "spec.headGroupSpec.ingressOptions": "host path pathType tls",
    "spec.headGroupSpec.template.metadata": "annotations finalizers labels name namespace",
    "spec.headGroupSpec.headService.metadata": "annotations finalizers labels name namespace",
    "status": "availableWorkerReplicas conditions desiredCPU desiredGPU desiredMemory desiredTPU desiredWorkerReplicas "
    "diagnoses endpoints head lastUpdateTime maxWorkerReplicas minWorkerReplicas observedGeneration readyWorkerReplicas reason "
    "state stateTransitionTimes",
    "status.head": "podIP podName serviceIP serviceName",
}


@pytest.mark.parametrize("path", FIELDS)
def test_fields_of(path):
    assert sorted(at(V1, path)["properties"]) == FIELDS[path].split()


def test_defaults_are_kuberays_and_no_others():
    group = at(V1, "spec.workerGroupSpecs[]")["properties"]
    defaults = {name: field["default"] for name, field in group.items() if "default" in field}
    assert defaults == {"maxReplicas": 2147483647, "minReplicas": 0, "numOfHosts": 1, "priority": 0, "replicas": 0}
    assert at(V1, "spec.networkPolicy.mode")["default"] == "DenyAll"
    assert [n for n, f in at(V1, "spec")["properties"].items() if "default" in f] == []


def test_the_template_is_a_full_pod_template():
    pod = at(V1, "spec.workerGroupSpecs[].template.spec")["properties"]
    assert {
        "affinity",
        "containers",
        "initContainers",
        "schedulingGates",
        "topologySpreadConstraints",
        "volumes",
    } <= set(pod)
    container = pod["containers"]["items"]["properties"]
    assert container["ports"]["items"]["properties"]["protocol"]["default"] == "TCP"
    assert container["resources"]["properties"]["limits"]["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_nothing_in_the_schema_was_left_unresolved():
    text = json.dumps(CRD)
    assert "$ref" not in text
    assert "x-kubernetes-patch" not in text


def test_fields_of_the_crd_have_descriptions_and_core_types_have_none():
    assert at(V1, "spec.workerGroupSpecs[].replicas")["description"].startswith("Desired number of replicas")
    unexplained = [
        name for name, field in at(V1, "spec.workerGroupSpecs[]")["properties"].items() if "description" not in field
    ]
    assert unexplained == []
    assert "description" not in json.dumps(at(V1, "spec.headGroupSpec.template.spec"))


def test_v1alpha1_has_the_old_fields_only():
    assert sorted(at(V1ALPHA1, "spec")["properties"]) == [
        "autoscalerOptions",
        "enableInTreeAutoscaling",
        "headGroupSpec",
        "headServiceAnnotations",
        "rayVersion",
        "suspend",
        "workerGroupSpecs",
    ]
    for group in ("spec.headGroupSpec", "spec.workerGroupSpecs[]"):
        assert {"rayStartParams", "template"} <= set(at(V1ALPHA1, group)["required"])
    group = at(V1ALPHA1, "spec.workerGroupSpecs[]")["properties"]
    assert [group[name]["default"] for name in ("replicas", "minReplicas", "maxReplicas")] == [0, 0, 2147483647]


def test_v1alpha1_drops_what_came_later():
    structural = compile_schema(V1ALPHA1["schema"]["openAPIV3Schema"])
    group = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "a"}], "any": 1}}}
    obj = {"spec": {"headGroupSpec": {**group, "labels": {"a": "b"}}, "managedBy": "x"}}
    assert structural.prune(obj) == ["spec.headGroupSpec.labels", "spec.managedBy"]
    assert obj["spec"]["headGroupSpec"]["template"]["spec"]["any"] == 1


@pytest.mark.rule("FD:AS3-8")
def test_a_scale_gate_is_kept_and_belongs_to_its_writer():
    structural = compile_schema(V1["schema"]["openAPIV3Schema"])
    strategy = {"scaleGate": [{"type": "kueue.k8s.io/quota-exceeded"}], "workersToDelete": ["a"]}
    obj = {"spec": {"workerGroupSpecs": [{"groupName": "a", "scaleStrategy": copy.deepcopy(strategy)}]}}
    assert structural.prune(obj) == []
    assert obj["spec"]["workerGroupSpecs"][0]["scaleStrategy"] == strategy
    gates = at(V1, "spec.workerGroupSpecs[].scaleStrategy")["properties"]["scaleGate"]
    assert (gates["x-kubernetes-list-type"], gates["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    pattern = re.compile(gates["items"]["properties"]["type"]["pattern"])
    assert [bool(pattern.search(found)) for found in ("a.b/c-d", "Quota", "", "a/", "a b", "a/b/c")] == [True] * 2 + [
        False
    ] * 4


def test_the_defaults_of_the_model_are_those_of_the_crd():
    structural = compile_schema(V1["schema"]["openAPIV3Schema"])
    template = {"spec": {"containers": [{"name": "ray"}]}}
    groups = [{"groupName": "a", "template": template}]
    obj = {"metadata": {"name": "a"}, "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}}
    defaulted = copy.deepcopy(obj)
    structural.default(defaulted)
    group = RayCluster.parse(defaulted).spec.worker_group_specs[0]
    bare = RayCluster.parse(obj).spec.worker_group_specs[0]
    assert (group.replicas, group.min_replicas, group.max_replicas, group.num_of_hosts, group.priority) == (
        0,
        0,
        2147483647,
        1,
        0,
    )
    assert bare.num_of_hosts == group.num_of_hosts


@pytest.mark.rule("FD:RC-B13")
@pytest.mark.parametrize(
    "path",
    [
        "spec.autoscalerOptions.env",
        "spec.autoscalerOptions.envFrom",
        "spec.autoscalerOptions.volumeMounts",
        "spec.historyServerOptions.collectorOptions.env",
    ],
)
def test_a_name_twice_in_the_options_is_as_good_as_in_kuberays_crd(path):
    assert at(V1, path).get("x-kubernetes-list-type", "atomic") == "atomic"
