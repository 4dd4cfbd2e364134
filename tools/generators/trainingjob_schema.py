"""Schema of a TrainingJob, paddlepaddle.org/v1.

It has the fields of all versions of Paddle's controllers in all spellings (TJ §2.1), and those of Raytide (TJ §8). Fields that
Paddle's Go clients write as `null` are nullable; no field has a default, so that objects are stored as written. Templates are not
validated: they are merged over the generated pods, which the API server validates. Used by crds.py.
"""

import trainingjob_rules as rules
from crd_parts import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    INT32,
    STRING,
    Schema,
    build_conditions,
    build_diagnoses,
    build_enum,
    build_list,
    build_map,
    build_object,
)
from kubernetes_types import KubernetesTypes
from raytide.api.limits import MAX_INSTANCES, MAX_PORTS, MAX_SIZES

RULES = "x-kubernetes-validations"
INSTANCES: Schema = {**COUNT, "maximum": MAX_INSTANCES}
PORTS: Schema = {**COUNT, "maximum": MAX_PORTS}
POSITIVE: Schema = {**COUNT, "minimum": 1}
PERCENT: Schema = {**COUNT, "maximum": 100}
PORT: Schema = {**COUNT, "maximum": rules.MAX_PORT}
UNTYPED: Schema = {"x-kubernetes-preserve-unknown-fields": True}
TIME: Schema = {**STRING, "format": "date-time", "nullable": True}


def nullable(schema: Schema) -> Schema:
    """The schema of a field that Go clients write as null if it is absent."""
    return {**schema, "nullable": True}


class TrainingJobSchema:
    """Builder of the schema."""

    def __init__(self, types: KubernetesTypes) -> None:
        self._types = types

    def v1(self) -> Schema:
        """The schema of paddlepaddle.org/v1."""
        name = {**STRING, RULES: rules.name_rules()}
        root = {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": build_object({"name": name}),
            "spec": self._spec(),
            "status": build_status(),
        }
        return build_object(root, **{RULES: rules.root_rules()})

    def _spec(self) -> Schema:
        properties = {
            **self._of_paddle(),
            **self._of_paddles_last_operator(),
            **self._ours(),
            "master": nullable(self._role({})),
            "pserver": nullable(self._pserver()),
            "trainer": self._trainer(),
        }
        return build_object(properties, required=("trainer",), **{RULES: rules.spec_rules()})

    def _of_paddle(self) -> Schema:
        """Fields of all versions of Paddle's controller."""
        mounts = nullable(self._core_field("Container", "volumeMounts"))
        return {
            "VolumeMounts": mounts,
            **dict.fromkeys(("fault_tolerant", "faultTolerant", "host_network", "hostNetwork"), BOOLEAN),
            "image": STRING,
            "imagePullSecrets": self._pull_secrets(),
            "passes": COUNT,
            "port": PORT,
            **dict.fromkeys(("ports_num", "ports_num_for_sparse", "portsNum", "portsNumForSparse"), PORTS),
            "volumeMounts": mounts,
            "volumes": nullable(self._core_field("PodSpec", "volumes")),
        }

    def _of_paddles_last_operator(self) -> Schema:
        """Fields of the fork for Baidu, and of later copies of the design."""
        annotations = {**dict.fromkeys(("priority", "scheduler", "usergroupid", "userid"), STRING), "walltime": COUNT}
        return {
            "annotations": build_object(annotations),
            "frame_work": nullable(build_object({"name": STRING, "type": STRING})),
            **dict.fromkeys(("is_nccl", "local_job", "matrix"), BOOLEAN),
            **dict.fromkeys(
                ("mountPath", "mountpath", "namespace", "nfsmount", "podGroupName", "schedulerName"), STRING
            ),
            **dict.fromkeys(("trainer_port", "trainer_ports_num"), PORT),
        }

    def _ours(self) -> Schema:
        """Fields of Raytide: TJ §8."""
        scaling = {
            "accounting": build_enum("Limits", "Requests"),
            "allowedSizes": build_list(POSITIVE, maxItems=MAX_SIZES),
            "enabled": BOOLEAN,
            "growCooldownSeconds": COUNT,
            "minRuntimeSeconds": COUNT,
            "rebalance": BOOLEAN,
            "shrinkCooldownSeconds": COUNT,
            "step": POSITIVE,
            "yieldToPods": BOOLEAN,
        }
        return {
            "activeDeadlineSeconds": POSITIVE,
            "backoffLimit": COUNT,
            "framework": build_enum("paddle", "torchrun", "generic"),
            "imagePullPolicy": build_enum("Always", "IfNotPresent", "Never"),
            "maxFailedPercent": PERCENT,
            "pendingTimeoutSeconds": POSITIVE,
            "priorityClassName": STRING,
            "restartPolicy": build_enum("Never", "OnFailure", "ExitCode"),
            "scaling": build_object(scaling),
            "startPolicy": build_enum("Gang", "Optimistic"),
            "successPolicy": build_enum("AllTrainers", "AnyTrainer", "RankZero"),
            "suspend": BOOLEAN,
            "ttlSecondsAfterFinished": COUNT,
        }

    def _role(self, own: Schema, **more: list[Schema]) -> Schema:
        """A role: fields of master, pserver and trainer, and `own`."""
        command = nullable(build_list(STRING))
        seconds = nullable({**COUNT, "format": "int64"})
        selector = nullable(build_map(STRING))
        probe = nullable(self._types.schema("Probe"))
        properties = {
            "entrypoint": STRING,
            "env": self._core_field("Container", "env"),
            "envs": nullable(build_map(STRING)),
            "etcd-endpoint": STRING,
            "gracePeriodSeconds": seconds,
            "grace_period_seconds": seconds,
            "imagePullSecrets": self._pull_secrets(),
            "index_succeed": BOOLEAN,
            "livenessProbe": probe,
            "liveness_probe": probe,
            "nodeSelector": selector,
            "node_selector": selector,
            "preStopCmd": UNTYPED,
            "pre_stop_cmd": command,
            "readinessProbe": probe,
            "readiness_probe": probe,
            "replicaSpec": nullable(ANYTHING),
            "resources": self._types.schema("ResourceRequirements"),
            "template": nullable(self._template()),
            "tolerations": nullable(self._core_field("PodSpec", "tolerations")),
            **own,
        }
        return build_object(properties, **more)

    def _instances(self, own: Schema, *, at_least: int) -> Schema:
        """A role with a minimum and a maximum of pods."""
        counts = dict.fromkeys(("max-instance", "maxInstance", "min-instance", "minInstance"), INSTANCES)
        return self._role({**counts, **own}, **{RULES: rules.instances_rules(at_least=at_least)})

    def _trainer(self) -> Schema:
        return self._instances({"passes": COUNT, "replicas": INSTANCES, "workspace": STRING}, at_least=1)

    def _pserver(self) -> Schema:
        # A string or an object, which a structural schema cannot express; the operator validates it.
        return self._instances({"scaling": UNTYPED}, at_least=0)

    def _template(self) -> Schema:
        metadata = build_object({"annotations": build_map(STRING), "labels": build_map(STRING)})
        return build_object({"metadata": metadata, "spec": ANYTHING})

    def _pull_secrets(self) -> Schema:
        return nullable(self._core_field("PodSpec", "imagePullSecrets"))

    def _core_field(self, name: str, field: str) -> Schema:
        schema: Schema = self._types.schema(name)["properties"][field]
        return schema


def build_status() -> Schema:
    """The status: TJ §8."""
    counts = dict.fromkeys(
        ("desired", "failed", "max", "min", "pending", "ready", "replicas", "running", "succeeded"), INT32
    )
    resize = {"forJob": STRING, "from": INT32, "message": STRING, "reason": STRING, "time": TIME, "to": INT32}
    scaling = {"history": build_list(build_object(resize)), "lastReason": STRING, "lastScaleTime": TIME}
    failures = {
        "counted": {"type": "array", "items": STRING},
        "inARow": INT32,
        "lastTime": TIME,
        "incidents": {"type": "object", "additionalProperties": INT32},
        "incidentTime": TIME,
        "disruptionTime": TIME,
        "resizeIncidentTimes": {"type": "array", "items": {**STRING, "format": "date-time"}},
    }
    trainer = {**counts, "completedIndexes": STRING, "failedIndexes": STRING, "fulfillment": {"type": "number"}}
    properties = {
        "admission": build_object(
            {"timeouts": INT32, "forbidden": {"type": "boolean"}, "repeatedlyForbidden": {"type": "boolean"}}
        ),
        "completionTime": TIME,
        "conditions": build_conditions(),
        "diagnoses": build_diagnoses(),
        "failures": build_object(failures),
        "lastUpdateTime": TIME,
        "master": build_object(counts),
        "message": STRING,
        "observedGeneration": {"type": "integer", "format": "int64"},
        "phase": STRING,
        "pserver": build_object(counts),
        "reason": STRING,
        "restarts": INT32,
        "scaling": build_object(scaling),
        "selector": STRING,
        "startTime": TIME,
        "trainer": build_object(trainer),
        "waiting": STRING,
    }
    return build_object(properties)
