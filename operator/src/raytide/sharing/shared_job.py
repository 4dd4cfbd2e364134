"""What is kept of a TrainingJob for sharing?

Takes the custom resource as JSON, gives a frozen view with the whole job, parsed once per version; a job that cannot be
parsed has none, takes no part and stops nobody. It also says what of a job matters for sharing, because its status is
written often. Made by the informer, read by controller.py.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from raytide.api import training_names
from raytide.api.meta import Key, Manifest
from raytide.api.trainingjob import TrainingJob

_OF_STATUS: Final = ("startTime", "admission")
_OF_TRAINERS: Final = ("succeeded", "failedIndexes")


class SharedJob(msgspec.Struct, frozen=True):
    """One TrainingJob; `job` is None where it makes no sense."""

    key: Key
    version: str
    job: TrainingJob | None
    concern: tuple[Any, ...] = ()
    """Equal in two versions exactly if nothing has changed that matters for sharing."""


def decode_shared_job(document: bytes | msgspec.Raw) -> SharedJob:
    """The view of one TrainingJob's JSON; raises msgspec.MsgspecError when it is no object."""
    return shared_job(msgspec.json.decode(document, type=dict[str, Any]))


def shared_job(obj: Manifest) -> SharedJob:
    """The view of a TrainingJob we have as an object."""
    metadata = obj["metadata"]
    key, version = Key(metadata.get("namespace", ""), metadata["name"]), metadata.get("resourceVersion", "")
    try:
        job = TrainingJob.parse(obj)
    except ValidationError:
        return SharedJob(key, version, None)
    return SharedJob(key, version, job, _concern(job))


def _concern(job: TrainingJob) -> tuple[Any, ...]:
    metadata, status = job.metadata, job.status
    conditions = status.get("conditions") or ()
    trainer = status.get("trainer")
    return (
        metadata.uid,
        metadata.generation,
        metadata.deletion_timestamp,
        metadata.annotations.get(training_names.SHARING_ANNOTATION),
        tuple(status.get(name) for name in _OF_STATUS),
        [trainer.get(name) for name in _OF_TRAINERS] if isinstance(trainer, Mapping) else None,
        [(each.get("type"), each.get("status")) for each in conditions if isinstance(each, Mapping)],
    )
