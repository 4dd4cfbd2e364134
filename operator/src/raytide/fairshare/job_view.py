"""Job view: the fields of a TrainingJob that sharing reads.

Input: the custom resource as JSON, parsed once per version. Output: a frozen view with bounds, times, policies, and for
each role what decides where its pods may run. Environments, commands, volumes and the rest of the templates are
dropped, because the view of every job in the cluster is kept. A job that cannot be parsed, or whose scheduling
constraints are too large, has no view: it is not managed and affects no other job. `concern` shows which changes matter
for sharing, because the status is written often. Made by the informer, read by reconciler.py (FD:SEC-F6).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from pydantic import ValidationError

from raytide.api import trainingjob_constants
from raytide.api.limits import MAX_SCHEDULING_BYTES
from raytide.api.meta import Key, Manifest
from raytide.api.trainingjob import PserverSpec, RoleSpec, TrainerSpec, TrainingJob, TrainingJobSpec
from raytide.api.trainingjob_constants import ROLES
from raytide.api.trainingjob_pods import is_too_large, scheduling_bytes, scheduling_part
from raytide.fairshare.size_requests import writer_part

_OF_STATUS: Final = ("startTime", "admission")
_OF_TRAINERS: Final = ("succeeded", "failedIndexes")
_KEPT_OF_TRAINERS: Final = (*_OF_TRAINERS, "desired")
_OF_CONDITION: Final = ("type", "status", "reason", "lastTransitionTime")
_MAX_CONDITIONS: Final = 50
_LONGEST_NAME: Final = 253
_LONGEST_TEXT: Final = 64 * 1024
_READ: Final = frozenset({"annotations", "framework", "master", "priority_class_name", "pserver", "scaling", "trainer"})
"""Fields of the spec, besides numbers and switches, that sharing reads."""
_READ_OF_ROLES: Final = frozenset({"node_selector", "resources", "scaling", "template", "tolerations"})

R = TypeVar("R", RoleSpec, TrainerSpec, PserverSpec)


class SharedJob(msgspec.Struct, frozen=True):
    """One TrainingJob; `job` is None if it cannot be parsed or its constraints are too large."""

    key: Key
    version: str
    job: TrainingJob | None
    concern: tuple[Any, ...] = ()
    """Equal in two versions if and only if nothing that matters for sharing has changed."""


def decode_shared_job(document: bytes | msgspec.Raw) -> SharedJob:
    """The view of one TrainingJob's JSON; raises msgspec.MsgspecError if it is not an object."""
    return shared_job(msgspec.json.decode(document, type=dict[str, Any]))


def shared_job(obj: Manifest) -> SharedJob:
    """The view of a TrainingJob that is already decoded."""
    metadata = obj["metadata"]
    key, version = Key(metadata.get("namespace", ""), metadata["name"]), metadata.get("resourceVersion", "")
    try:
        job = TrainingJob.parse(obj)
    except ValidationError:
        return SharedJob(key, version, None)
    if any(scheduling_bytes(role) > MAX_SCHEDULING_BYTES for role in _roles(job)) or any(
        is_too_large(job, role) for role in ROLES if job.role(role) is not None
    ):
        return SharedJob(key, version, None)
    job = _projected(job)
    return SharedJob(key, version, job, _concern(job))


def _roles(job: TrainingJob) -> Iterator[RoleSpec]:
    return (role for role in (job.spec.master, job.spec.pserver, job.spec.trainer) if role is not None)


# --- what is kept ----------------------------------------------------------------------------------------------------


def _projected(job: TrainingJob) -> TrainingJob:
    spec, metadata = job.spec, job.metadata
    kept = {
        **_small(spec, _READ),
        "priority_class_name": spec.priority_class_name[: _LONGEST_NAME + 1],
        "master": None if spec.master is None else _role(spec.master),
        "pserver": None if spec.pserver is None else _role(spec.pserver),
        "trainer": _role(spec.trainer),
    }
    sharing = metadata.annotations.get(trainingjob_constants.SHARING_ANNOTATION)
    annotations = {} if sharing is None else {trainingjob_constants.SHARING_ANNOTATION: sharing[:_LONGEST_TEXT]}
    return TrainingJob.model_construct(
        metadata=metadata.model_copy(update={"annotations": annotations, "labels": {}, "finalizers": ()}),
        spec=TrainingJobSpec.model_construct(**kept),
        status=_status(job.status),
        raw=writer_part(job.raw),
    )


def _role(role: R) -> R:
    template = None if role.template is None else scheduling_part(role.template)
    return type(role).model_construct(**{**_small(role, _READ_OF_ROLES), "template": template})


def _small(value: TrainingJobSpec | RoleSpec, read: frozenset[str]) -> dict[str, Any]:
    """The fields in `read`; of the others only numbers, switches and short texts such as policies."""
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    return {
        name: found
        for name, found in fields.items()
        if name in read or found is None or isinstance(found, int) or (isinstance(found, str) and len(found) < 32)
    }


def _status(status: Mapping[str, Any]) -> Manifest:
    """The status without messages, which are most of it."""
    conditions, trainer, admission = (status.get(name) for name in ("conditions", "trainer", "admission"))
    kept: Manifest = {}
    if isinstance(status.get("startTime"), str):
        kept["startTime"] = status["startTime"][:_LONGEST_NAME]
    if isinstance(admission, Mapping):
        kept["admission"] = {name: admission.get(name) for name in ("timeouts", "forbidden", "repeatedlyForbidden")}
    if isinstance(trainer, Mapping):
        kept["trainer"] = {name: _cut(trainer[name]) for name in _KEPT_OF_TRAINERS if name in trainer}
    if isinstance(conditions, list):
        found = [each for each in conditions[:_MAX_CONDITIONS] if isinstance(each, Mapping)]
        kept["conditions"] = [{name: _cut(each[name]) for name in _OF_CONDITION if name in each} for each in found]
    return kept


def _cut(found: Any) -> Any:
    return found[:_LONGEST_TEXT] if isinstance(found, str) else found if isinstance(found, int) else None


def _concern(job: TrainingJob) -> tuple[Any, ...]:
    metadata, status = job.metadata, job.status
    conditions = status.get("conditions") or ()
    trainer = status.get("trainer")
    return (
        metadata.uid,
        metadata.generation,
        metadata.deletion_timestamp,
        metadata.annotations.get(trainingjob_constants.SHARING_ANNOTATION),
        tuple(status.get(name) for name in _OF_STATUS),
        [trainer.get(name) for name in _OF_TRAINERS] if isinstance(trainer, Mapping) else None,
        [(each.get("type"), each.get("status")) for each in conditions if isinstance(each, Mapping)],
    )
