"""Fields of a TrainingJob that have no effect.

Takes the job as written, and returns each field of Paddle's controllers that asks for something Raytide does not do,
with one sentence on what happens instead, in the order of the spec; empty when there is none. Values without meaning
(empty, zero, false, null, which Go writes into every object) are not listed. No field is ignored silently: the status
lists them in a condition `Unsupported` (TJ §2.1). Called by status and, through validation.py, by the plan.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import ROLES
from raytide.api.violations import Unsupported

_VOLUMES: Final = "nothing is mounted; use spec.volumes and spec.VolumeMounts"
_OF_SPEC: Final = {
    "trainer_port": "trainers use spec.port",
    "trainer_ports_num": "trainers use spec.ports_num",
    "local_job": "the job's pods run in the cluster",
    "mountpath": _VOLUMES,
    "mountPath": _VOLUMES,
    "nfsmount": _VOLUMES,
    "namespace": "the job runs in the namespace of its metadata",
    "is_nccl": "the launch command depends on spec.framework",
    "frame_work": "the launch command depends on spec.framework",
    "matrix": "pods run without a Matrix runtime",
}
_OF_ANNOTATIONS: Final = {
    "usergroupid": "it is not passed to pods",
    "userid": "it is not passed to pods",
    "priority": "the priority is that of spec.priorityClassName",
    "scheduler": "the scheduler is that of spec.schedulerName",
}
_OF_ROLES: Final = {
    "etcd-endpoint": "the master pod runs its own etcd",
    "replicaSpec": "pods are built from the other fields of the role",
    "index_succeed": "indices are in the labels of the pods",
}
_FRAMEWORKS_THAT_MEAN_OURS: Final = ({"name": "paddle"}, {"name": "paddle", "type": "multi"})


def unsupported(job: TrainingJob) -> tuple[Unsupported, ...]:
    """Every field without effect that asks for something."""
    return tuple(_fields(job))


def _fields(job: TrainingJob) -> Iterator[Unsupported]:
    spec = _mapping(job.raw.get("spec"))
    asked = {
        name: message for name, message in _OF_SPEC.items() if name in spec and not _is_nothing(name, job, spec[name])
    }
    for name, message in asked.items():
        yield Unsupported(f"spec.{name}", message)
    yield from _of(_mapping(spec.get("annotations")), "spec.annotations", _OF_ANNOTATIONS)
    for role in ROLES:
        yield from _of(_mapping(spec.get(role)), f"spec.{role}", _OF_ROLES)


def _of(written: Mapping[str, Any], field: str, settings_without_effect: Mapping[str, str]) -> Iterator[Unsupported]:
    for name, message in settings_without_effect.items():
        if written.get(name):
            yield Unsupported(f"{field}.{name}", message)


def _is_nothing(name: str, job: TrainingJob, value: Any) -> bool:
    """Whether it asks for nothing, or for what is done anyway."""
    if name == "frame_work":
        fields = {key: text for key, text in _mapping(value).items() if text}
        return not fields or (fields in _FRAMEWORKS_THAT_MEAN_OURS and job.spec.framework == "paddle")
    return not value or (name == "namespace" and value == job.metadata.namespace)


def _mapping(written: Any) -> Mapping[str, Any]:
    return written if isinstance(written, Mapping) else {}
