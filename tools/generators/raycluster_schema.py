"""Schema of a RayCluster, v1 and v1alpha1.

Types, defaults and enums are those of KubeRay's CRD (RC §1.1, §1.2, §1.5), with full core types in v1 and rules in CEL. Stricter
than KubeRay only where the operator rejects the object anyway; stored objects can always be read and edited. Used by crds.py.
"""

import raycluster_rules as rules
from crd_parts import (
    ANYTHING,
    BOOLEAN,
    CONDITION_TYPE,
    COUNT,
    INT32,
    MAX_INT32,
    STRING,
    Schema,
    build_conditions,
    build_diagnoses,
    build_enum,
    build_list,
    build_list_map,
    build_map,
    build_object,
)
from kubernetes_types import KubernetesTypes
from raytide.api.limits import MAX_GATE_TYPE, MAX_GATES, MAX_GROUPS, MAX_HOSTS, MAX_NAMES, MAX_REPLICAS

LABEL_VALUE: Schema = {**STRING, "maxLength": 63, "pattern": rules.LABEL_VALUE_PATTERN}
# The API server requires bounds where rules loop. These exceed all real values; unchanged larger values are accepted.
MAX_LABELS = 100
MAX_VARIABLES = 10_000
MAX_VERSION_LENGTH = 1000


class RayClusterSchema:
    """Builder of the schema."""

    def __init__(self, types: KubernetesTypes) -> None:
        self._types = types

    def v1(self) -> Schema:
        """The schema of ray.io/v1."""
        name = {**STRING, "x-kubernetes-validations": rules.name_rules()}
        root = _build_root(self._spec(), build_object({"name": name}))
        return {**root, "x-kubernetes-validations": rules.root_rules()}

    def v1alpha1(self) -> Schema:
        """The schema of ray.io/v1alpha1: old fields only, without schemas of core types."""
        group = {"rayStartParams": build_map(STRING), "template": ANYTHING}
        head = {**group, "enableIngress": BOOLEAN, "headService": ANYTHING, "serviceType": STRING}
        worker = {
            **group,
            "groupName": STRING,
            "maxReplicas": {**INT32, "default": MAX_INT32},
            "minReplicas": {**INT32, "maximum": MAX_REPLICAS, "default": 0},
            "replicas": {**INT32, "maximum": MAX_REPLICAS, "default": 0},
            "scaleStrategy": build_object({"workersToDelete": build_list(STRING, maxItems=MAX_NAMES)}),
        }
        autoscaler = {
            "resources": ANYTHING,
            "securityContext": ANYTHING,
            **{key: build_list(ANYTHING) for key in ("env", "envFrom", "volumeMounts")},
            "idleTimeoutSeconds": INT32,
            "image": STRING,
            "imagePullPolicy": STRING,
            "upscalingMode": build_enum("Default", "Aggressive", "Conservative"),
        }
        needed = ("groupName", "maxReplicas", "minReplicas", "rayStartParams", "template")
        spec = {
            "autoscalerOptions": build_object(autoscaler),
            "enableInTreeAutoscaling": BOOLEAN,
            "headGroupSpec": build_object(head, required=("rayStartParams", "template")),
            "headServiceAnnotations": build_map(STRING),
            "rayVersion": STRING,
            "suspend": BOOLEAN,
            "workerGroupSpecs": build_list(build_object(worker, required=needed), maxItems=MAX_GROUPS),
        }
        return _build_root(build_object(spec, required=("headGroupSpec",)), {"type": "object"})

    def _spec(self) -> Schema:
        properties = {
            "authOptions": self._auth_options(),
            "autoscalerOptions": self._autoscaler_options(),
            "enableInTreeAutoscaling": BOOLEAN,
            "gcsFaultToleranceOptions": self._fault_tolerance_options(),
            "headGroupSpec": self._head_group(),
            "headServiceAnnotations": build_map(STRING),
            "historyServerOptions": self._history_server_options(),
            "managedBy": {**STRING, "x-kubernetes-validations": rules.managed_by_rules()},
            "networkPolicy": self._network_policy(),
            "rayVersion": {**STRING, "maxLength": MAX_VERSION_LENGTH},
            "suspend": BOOLEAN,
            "tlsOptions": build_object({"enabled": BOOLEAN}),
            "upgradeStrategy": build_object({"type": build_enum("Recreate", "None")}),
            "workerGroupSpecs": build_list_map(self._worker_group(), "groupName", maxItems=MAX_GROUPS),
        }
        return build_object(properties, required=("headGroupSpec",), **{"x-kubernetes-validations": rules.spec_rules()})

    def _core(self, name: str) -> Schema:
        return self._types.schema(name)

    def _list_field(self, name: str, field: str) -> Schema:
        """A list of a core type outside of a pod template, atomic as in KubeRay's CRD, which accepts duplicate names."""
        schema = self._core_field(name, field)
        return {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-list-")}

    def _core_field(self, name: str, field: str) -> Schema:
        schema: Schema = self._core(name)["properties"][field]
        return schema

    def _template(self) -> Schema:
        template = self._core("PodTemplateSpec")
        template["required"] = ["spec"]
        containers = template["properties"]["spec"]["properties"]["containers"]
        containers["minItems"] = 1
        containers["items"]["properties"]["env"]["maxItems"] = MAX_VARIABLES
        return template

    def _group(self) -> Schema:
        """Fields of head and worker groups."""
        return {
            "labels": build_map(
                LABEL_VALUE, maxProperties=MAX_LABELS, **{"x-kubernetes-validations": rules.label_key_rules()}
            ),
            "rayStartParams": build_map(STRING, **{"x-kubernetes-validations": rules.param_rules()}),
            "resources": build_map(STRING),
            "template": self._template(),
        }

    def _head_group(self) -> Schema:
        ingress = {
            "host": STRING,
            "path": STRING,
            "pathType": build_enum("Exact", "Prefix", "ImplementationSpecific"),
            "tls": build_list(self._core("IngressTLS")),
        }
        properties = {
            **self._group(),
            "enableIngress": BOOLEAN,
            "headService": self._core("Service"),
            "ingressOptions": build_object(ingress),
            "serviceType": STRING,
        }
        ray_rules = {"x-kubernetes-validations": rules.ray_group_rules()}
        return build_object(properties, required=("template",), **ray_rules)

    def _worker_group(self) -> Schema:
        properties = {
            **self._group(),
            "groupName": {**LABEL_VALUE, "minLength": 1},
            "idleTimeoutSeconds": COUNT,
            "maxReplicas": {**COUNT, "default": MAX_INT32},
            "minReplicas": {**COUNT, "maximum": MAX_REPLICAS, "default": 0},
            "numOfHosts": {**COUNT, "maximum": MAX_HOSTS, "default": 1},
            "priority": {**INT32, "default": 0},
            "replicas": {**COUNT, "maximum": MAX_REPLICAS, "default": 0},
            "scaleStrategy": build_object(
                {
                    "scaleGate": build_list_map(
                        build_object({"type": {**CONDITION_TYPE, "maxLength": MAX_GATE_TYPE}}, required=("type",)),
                        "type",
                        maxItems=MAX_GATES,
                    ),
                    "workersToDelete": build_list(STRING, maxItems=MAX_NAMES),
                }
            ),
            "suspend": BOOLEAN,
        }
        needed = ("groupName", "maxReplicas", "minReplicas", "template")
        return build_object(properties, required=needed, **{"x-kubernetes-validations": rules.worker_group_rules()})

    def _autoscaler_options(self) -> Schema:
        properties = {
            "args": build_list(STRING),
            "command": build_list(STRING),
            "env": self._list_field("Container", "env"),
            "envFrom": self._core_field("Container", "envFrom"),
            "idleTimeoutSeconds": COUNT,
            "image": STRING,
            "imagePullPolicy": STRING,
            "resources": self._core("ResourceRequirements"),
            "securityContext": self._core("SecurityContext"),
            "upscalingMode": build_enum("Default", "Aggressive", "Conservative"),
            "version": build_enum("v1", "v2"),
            "volumeMounts": self._list_field("Container", "volumeMounts"),
        }
        return build_object(properties, **{"x-kubernetes-validations": rules.autoscaler_rules()})

    def _auth_options(self) -> Schema:
        properties = {"enableK8sTokenAuth": BOOLEAN, "mode": build_enum("disabled", "token"), "secretName": STRING}
        return build_object(properties, **{"x-kubernetes-validations": rules.auth_rules()})

    def _fault_tolerance_options(self) -> Schema:
        credential = build_object({"value": STRING, "valueFrom": self._core("EnvVarSource")})
        storage = {
            "accessModes": build_list(STRING),
            "claimName": STRING,
            "deletionPolicy": build_enum("DeleteWithCluster", "Retain"),
            "size": self._core("Quantity"),
            "storageClassName": STRING,
            "subPath": STRING,
        }
        properties = {
            "backend": {**build_enum("redis", "rocksdb"), "x-kubernetes-validations": rules.backend_rules()},
            "externalStorageNamespace": STRING,
            "redisAddress": STRING,
            "redisPassword": credential,
            "redisUsername": credential,
            "storage": build_object(storage),
        }
        return build_object(properties, **{"x-kubernetes-validations": rules.fault_tolerance_rules()})

    def _history_server_options(self) -> Schema:
        collector = {
            "env": self._list_field("Container", "env"),
            "image": STRING,
            "imagePullPolicy": STRING,
            "resources": self._core("ResourceRequirements"),
        }
        return build_object({"collectorOptions": build_object(collector)})

    def _network_policy(self) -> Schema:
        traffic = {
            "egressRules": build_list(self._core("NetworkPolicyEgressRule")),
            "ingressRules": build_list(self._core("NetworkPolicyIngressRule")),
        }
        by_group = build_list_map(build_object({**traffic, "groupName": STRING}, required=("groupName",)), "groupName")
        mode = {**build_enum("DenyAll", "DenyAllIngress", "DenyAllEgress"), "default": "DenyAll"}
        return build_object(
            {"head": build_object(traffic), "mode": mode, "worker": build_object(traffic), "workerGroups": by_group}
        )


def _build_root(spec: Schema, metadata: Schema) -> Schema:
    status = _build_status()
    return build_object({"apiVersion": STRING, "kind": STRING, "metadata": metadata, "spec": spec, "status": status})


def _build_status() -> Schema:
    quantity = KubernetesTypes().schema("Quantity")
    counts = ("available", "desired", "max", "min", "ready")
    return build_object(
        {
            **{f"{which}WorkerReplicas": INT32 for which in counts},
            **{f"desired{resource}": quantity for resource in ("CPU", "GPU", "Memory", "TPU")},
            "conditions": build_conditions(),
            "diagnoses": build_diagnoses(),
            "endpoints": build_map(STRING),
            "head": build_object(dict.fromkeys(("podIP", "podName", "serviceIP", "serviceName"), STRING)),
            "lastUpdateTime": {**STRING, "format": "date-time", "nullable": True},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "reason": STRING,
            "state": STRING,
            "stateTransitionTimes": build_map({**STRING, "format": "date-time"}, nullable=True),
        }
    )
