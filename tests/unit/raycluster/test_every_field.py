"""Every field of the CRD's spec is acted on, by operator or autoscaler, or named in the condition `Unsupported` or, where it asks for
protection, `Invalid`.

Nothing is ignored in silence. The fields come from the CRD itself, so a new one fails here until it is classified. Both claims are
tried out: a field that is acted on changes what the operator writes or says, the others are really named.
"""

from pathlib import Path

import pytest
import yaml

from raytide.api.config import DEFAULT_FEATURE_GATES, OTHER_FEATURE_GATES, ClusterConfig, PodConfig
from raytide.api.meta import PERSISTENT_VOLUME_CLAIMS
from raytide.api.raycluster import RayCluster
from raytide.autoscaler.state.node_types import node_types
from raytide.autoscaler.state.worker_groups import spec_groups
from raytide.raycluster.manifests.recreate_hash import recreate_hash
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from raytide.raycluster.protection import missing_protection
from raytide.raycluster.unsupported import unsupported
from support.builders import group, raycluster, template

CRD = Path(__file__).parents[3] / "crds" / "ray.io_rayclusters.yaml"
CORE_TYPES = {
    *("template", "headService", "env", "envFrom", "volumeMounts", "resources", "securityContext", "valueFrom"),
    *("ingressRules", "egressRules"),
}
"""Fields whose values are Kubernetes' own types: passed on as they are, or not at all."""

HEAD = raycluster()["spec"]["headGroupSpec"]

ACTED_ON = {
    "headGroupSpec.labels": {"headGroupSpec": {**HEAD, "labels": {"zone": "a"}}},
    "headGroupSpec.rayStartParams": {"headGroupSpec": {**HEAD, "rayStartParams": {"num-cpus": "7"}}},
    "headGroupSpec.resources": {"headGroupSpec": {**HEAD, "resources": {"CPU": "7"}}},
    "headGroupSpec.template": {"headGroupSpec": {**HEAD, "template": template(cpu="7")}},
    "headGroupSpec.headService": {"headGroupSpec": {**HEAD, "headService": {"metadata": {"name": "mine"}}}},
    "headGroupSpec.serviceType": {"headGroupSpec": {**HEAD, "serviceType": "NodePort"}},
    "headServiceAnnotations": {"headServiceAnnotations": {"a": "b"}},
    "managedBy": {"managedBy": "kueue.x-k8s.io/multikueue"},
    "rayVersion": {"rayVersion": "2.60.0"},
    "suspend": {"suspend": True},
    "workerGroupSpecs[].groupName": {"workerGroupSpecs": [group("other")]},
    "workerGroupSpecs[].labels": {"workerGroupSpecs": [group(labels={"zone": "a"})]},
    "workerGroupSpecs[].maxReplicas": {"workerGroupSpecs": [group(high=1)]},
    "workerGroupSpecs[].minReplicas": {"workerGroupSpecs": [group(low=3)]},
    "workerGroupSpecs[].numOfHosts": {"workerGroupSpecs": [group(numOfHosts=2)]},
    "workerGroupSpecs[].rayStartParams": {"workerGroupSpecs": [group(rayStartParams={"num-cpus": "7"})]},
    "workerGroupSpecs[].replicas": {"workerGroupSpecs": [group(replicas=3)]},
    "workerGroupSpecs[].resources": {"workerGroupSpecs": [group(resources={"CPU": "7"})]},
    "workerGroupSpecs[].scaleStrategy.workersToDelete": {
        "workerGroupSpecs": [group(scaleStrategy={"workersToDelete": ["nobody"]})]
    },
    "workerGroupSpecs[].suspend": {"workerGroupSpecs": [group(suspend=True)]},
    "workerGroupSpecs[].template": {"workerGroupSpecs": [group(template=template(cpu="7"))]},
}
"""Field by field a spec in which only that field differs from the plain one."""

OPTIONS = {
    "args": ["exec autoscaler"],
    "command": ["autoscaler"],
    "env": [{"name": "A", "value": "1"}],
    "envFrom": [{"configMapRef": {"name": "c"}}],
    "image": "example.org/autoscaler:1",
    "imagePullPolicy": "Always",
    "resources": {"limits": {"cpu": "2"}},
    "securityContext": {"runAsUser": 1000},
    "version": "v2",
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
}
AUTOSCALED = {"enableInTreeAutoscaling": True}
WITH_AUTOSCALER = {
    "enableInTreeAutoscaling": AUTOSCALED,
    **{f"autoscalerOptions.{key}": {**AUTOSCALED, "autoscalerOptions": {key: value}} for key, value in OPTIONS.items()},
}
"""The same where only an autoscaled cluster shows a difference."""

IN_REDIS = {"gcsFaultToleranceOptions": {}, "rayVersion": "2.60.0"}
REDIS = {
    "externalStorageNamespace": "mine",
    "redisAddress": "redis:6379",
    "redisPassword.value": {"value": "a"},
    "redisPassword.valueFrom": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    "redisUsername.value": {"value": "a"},
    "redisUsername.valueFrom": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
}
WITH_REDIS = {
    f"gcsFaultToleranceOptions.{path}": {**IN_REDIS, "gcsFaultToleranceOptions": {path.partition(".")[0]: value}}
    for path, value in REDIS.items()
}
"""The same where only a cluster with its state in Redis shows a difference."""

IN_ROCKSDB = {"gcsFaultToleranceOptions": {"backend": "rocksdb"}}
STORAGE = {
    "accessModes": ["ReadWriteMany"],
    "claimName": "mine",
    "deletionPolicy": "Retain",
    "size": "2Gi",
    "storageClassName": "fast",
    "subPath": "ray",
}
WITH_ROCKSDB = {
    f"gcsFaultToleranceOptions.storage.{name}": {
        "gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": {name: value}}
    }
    for name, value in STORAGE.items()
} | {"gcsFaultToleranceOptions.backend": {"gcsFaultToleranceOptions": {"backend": "redis"}}}
"""The same where it has it in RocksDB."""

WITH_TOKEN = {"rayVersion": "2.60.0", "authOptions": {"mode": "token"}}
OF_AUTH = {
    "authOptions.enableK8sTokenAuth": {"mode": "token", "enableK8sTokenAuth": True},
    "authOptions.mode": {"mode": "disabled"},
    "authOptions.secretName": {"mode": "token", "secretName": "mine"},
}
"""The same where Ray uses token authentication."""

READ_BY_AUTOSCALER = {
    "autoscalerOptions.idleTimeoutSeconds": {"autoscalerOptions": {"idleTimeoutSeconds": 7}},
    "autoscalerOptions.upscalingMode": {"autoscalerOptions": {"upscalingMode": "Conservative"}},
    "workerGroupSpecs[].idleTimeoutSeconds": {"workerGroupSpecs": [group(idleTimeoutSeconds=7)]},
    "workerGroupSpecs[].priority": {"workerGroupSpecs": [group(priority=7)]},
    "workerGroupSpecs[].scaleStrategy.scaleGate[].type": {
        "workerGroupSpecs": [group(scaleStrategy={"scaleGate": [{"type": "example.com/gate"}]})]
    },
}
"""What no operator reads: the sidecar gets it from the RayCluster itself."""

SAMPLES = {"string": "x", "integer": 2, "boolean": True, "number": 1.5, "object": {"name": "x"}}


def leaves(schema, path=""):
    """Every field of the schema that is no further taken apart, with its schema."""
    for name, field in schema["properties"].items():
        place = f"{path}.{name}" if path else name
        inner = field["items"] if field.get("type") == "array" else field
        if name in CORE_TYPES or "properties" not in inner:
            yield place, field
        else:
            yield from leaves(inner, f"{place}[]" if inner is not field else place)


def spec_schema():
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    (v1,) = (version for version in versions if version["name"] == "v1")
    return v1["schema"]["openAPIV3Schema"]["properties"]["spec"]


FIELDS = dict(leaves(spec_schema()))
CLAIMED = {*ACTED_ON, *WITH_AUTOSCALER, *WITH_REDIS, *WITH_ROCKSDB, *OF_AUTH, *READ_BY_AUTOSCALER}
NAMED = sorted(FIELDS.keys() - CLAIMED)


def sample(path, schema):
    if schema.get("type") == "array":
        return [sample(path, schema["items"])]
    if "enum" in schema:
        return schema["enum"][0]
    return SAMPLES[schema.get("type", "string")]


def with_field(path):
    """A cluster with the required fields and this field only."""
    obj = raycluster()
    *parents, last = path.split(".")
    at = obj["spec"]
    for parent in parents:
        name = parent.removesuffix("[]")
        child = at.setdefault(name, [{}] if parent != name else {})
        at = child[0] if parent != name else child
    at[last] = sample(path, FIELDS[path])
    return RayCluster.parse(obj)


def effect(cluster):
    """Actions, events and status, except the hash, which every field of the spec changes."""
    worlds = Observed(), Observed(missing=frozenset({(PERSISTENT_VOLUME_CLAIMS, "demo-gcs-pvc")}))
    config = ClusterConfig(
        pods=PodConfig(creates_auth_secrets=True),
        cleans_up_redis=False,
        feature_gates=DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES,
    )
    todo = [plan(cluster, observed, config, lambda prefix: prefix) for observed in worlds]
    return repr(todo).replace(recreate_hash(cluster), "HASH")


def test_a_field_without_a_reader_is_detected():
    obj = raycluster(somethingNew={"a": "b"})
    assert effect(RayCluster.parse(obj)) == effect(RayCluster.parse(raycluster()))
    assert unsupported(RayCluster.parse(obj)) == ()


def test_the_walk_meets_the_fields():
    assert {"rayVersion", "workerGroupSpecs[].replicas", "networkPolicy.workerGroups[].groupName"} <= FIELDS.keys()
    assert FIELDS.keys() >= CLAIMED, "a field is acted on that the CRD does not have"
    assert len(FIELDS) > 60


@pytest.mark.parametrize("path", ACTED_ON)
def test_acted_on(path):
    obj = raycluster(**ACTED_ON[path])
    assert effect(RayCluster.parse(obj)) != effect(RayCluster.parse(raycluster()))


@pytest.mark.parametrize("path", WITH_AUTOSCALER)
def test_acted_on_where_an_autoscaler_runs(path):
    obj = raycluster(**WITH_AUTOSCALER[path])
    plain = raycluster() if path == "enableInTreeAutoscaling" else raycluster(**AUTOSCALED)
    assert effect(RayCluster.parse(obj)) != effect(RayCluster.parse(plain))


@pytest.mark.parametrize("path", WITH_REDIS)
def test_acted_on_where_the_gcs_has_its_state_in_redis(path):
    changed, plain = raycluster(**WITH_REDIS[path]), raycluster(**IN_REDIS)
    assert effect(RayCluster.parse(changed)) != effect(RayCluster.parse(plain))


@pytest.mark.parametrize("path", WITH_ROCKSDB)
def test_acted_on_where_the_gcs_has_its_state_in_rocksdb(path):
    changed, plain = raycluster(**WITH_ROCKSDB[path]), raycluster(**IN_ROCKSDB)
    assert effect(RayCluster.parse(changed)) != effect(RayCluster.parse(plain))


@pytest.mark.parametrize("path", OF_AUTH)
def test_acted_on_where_ray_uses_token_authentication(path):
    changed, plain = raycluster(**{**WITH_TOKEN, "authOptions": OF_AUTH[path]}), raycluster(**WITH_TOKEN)
    assert effect(RayCluster.parse(changed)) != effect(RayCluster.parse(plain))


@pytest.mark.parametrize("path", READ_BY_AUTOSCALER)
def test_read_by_the_autoscaler(path):
    changed, plain = raycluster(**READ_BY_AUTOSCALER[path]), raycluster()
    assert (node_types(changed["spec"]), spec_groups(changed)) != (node_types(plain["spec"]), spec_groups(plain))


@pytest.mark.parametrize("path", NAMED)
def test_named_as_unsupported(path):
    written = path.replace("[]", "[0]")
    cluster = with_field(path)
    entries = (*unsupported(cluster), *missing_protection(cluster, PodConfig()))
    fields = [entry.field.removeprefix("spec.") for entry in entries]
    assert any(written == field or written.startswith((f"{field}.", f"{field}[")) for field in fields), fields
