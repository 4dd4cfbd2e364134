"""Small TrainingJobs for tests: as a user writes them, and as decisions see them."""

import copy
from typing import Any

from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob_pods import Size

JOB_UID = "uid-job"
SEED_ROLE = {
    "resources": {"limits": {"cpu": "800m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "600Mi"}},
}
SEED: dict[str, Any] = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "job-1"},
    "spec": {
        "trainer": {
            "entrypoint": "python train.py",
            "workspace": "/home/job-1/",
            "min-instance": 3,
            "max-instance": 6,
            "resources": {
                "limits": {"alpha.kubernetes.io/nvidia-gpu": 1, "cpu": "800m", "memory": "1Gi"},
                "requests": {"cpu": "500m", "memory": "600Mi"},
            },
        },
        "pserver": {"min-instance": 3, "max-instance": 3, **SEED_ROLE},
        "master": SEED_ROLE,
    },
}
"""The example of the design document TrainingJobs come from."""


def trainingjob(
    *, name: str = "demo", namespace: str = "default", uid: str = JOB_UID, low: int = 2, high: int = 4, **spec: Any
) -> dict[str, Any]:
    """A TrainingJob of CPU trainers only; `trainer` among the fields of the spec is added to the bounds."""
    trainer = {"min-instance": low, "max-instance": high, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "generation": 1},
        "spec": {**spec, "trainer": {**trainer, **spec.get("trainer", {})}},
    }


def parsed_job(status: dict[str, Any] | None = None, **extra: Any) -> TrainingJob:
    """The same, as decisions see it."""
    return TrainingJob.parse({**trainingjob(**extra), "status": status or {}})


def seed_job(**spec: Any) -> TrainingJob:
    """The design document's example, with these fields of the spec besides."""
    metadata = {**SEED["metadata"], "namespace": "default", "uid": JOB_UID, "generation": 1}
    return TrainingJob.parse({**SEED, "metadata": metadata, "spec": {**SEED["spec"], **spec}})


def changed_seed(name: str = "job-1", **changes: Any) -> dict[str, Any]:
    """The example with other values at paths of its spec, such as `trainer__min-instance`; `...` takes one away."""
    obj: dict[str, Any] = copy.deepcopy({**SEED, "metadata": {"name": name, "namespace": "default"}})
    for path, value in changes.items():
        *way, last = path.split("__")
        place = obj["spec"]
        for step in way:
            place = place.setdefault(step, {})
        if value is ...:
            place.pop(last)
        else:
            place[last] = value
    return obj


def size_for(job: TrainingJob, trainers: int) -> Size:
    """The size with this many trainers and the matching number of parameter servers."""
    return Size(trainers, 0 if job.spec.pserver is None else job.spec.pserver.count_for(trainers))


def roles_of(job: TrainingJob, size: Size) -> dict[str, int]:
    """Number of pods per role, in start order; roles without pods are left out."""
    counts = {MASTER: int(job.has_master), PSERVER: size.pservers, TRAINER: size.trainers}
    return {role: count for role, count in counts.items() if count}
