"""Membership files of a job: its current trainers and parameter servers.

Takes the job and its size and returns the files of the membership volume: `trainers` and `pservers` (one endpoint per
line, in rank order), `world_size`, and all of it as `membership.json`. A pod that is being replaced stays listed, since
its name and rank stay; files change with the size and the bounds, not with every edit of the spec. Unlike environment
variables, which are fixed at a pod's creation (TJ §6), the files are updated in running pods.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

from raytide.api.config import JobConfig
from raytide.api.meta import Manifest
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.manifests.addresses import endpoint, endpoints, pod_name


def membership_files(job: TrainingJob, size: Size, config: JobConfig) -> dict[str, str]:
    """File name -> content."""
    return {
        "world_size": f"{size.trainers}\n",
        "trainers": _lines(endpoints(job, TRAINER, size.ranks, config)),
        "pservers": _lines(endpoints(job, PSERVER, range(size.pservers), config)),
        "membership.json": json.dumps(_membership(job, size, config), separators=(",", ":")) + "\n",
    }


def membership_revision(files: Mapping[str, str]) -> str:
    """A hash of the files: 16 hexadecimal digits."""
    content = json.dumps(files, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _membership(job: TrainingJob, size: Size, config: JobConfig) -> Manifest:
    trainer, pserver = job.spec.trainer, job.spec.pserver
    membership: Manifest = {
        "job": job.metadata.name,
        "namespace": job.metadata.namespace,
        "worldSize": size.trainers,
        "trainer": {
            "min": trainer.min_instance,
            "max": trainer.ceiling,
            "members": _members(job, TRAINER, size.ranks, config),
        },
    }
    if pserver is not None:
        membership["pserver"] = {
            "min": pserver.min_instance,
            "max": pserver.ceiling,
            "members": _members(job, PSERVER, range(size.pservers), config),
        }
    if job.has_master:
        membership["master"] = {"name": pod_name(job, MASTER), "endpoint": endpoint(job, MASTER, 0, config)}
    return membership


def _members(job: TrainingJob, role: str, indices: Sequence[int], config: JobConfig) -> list[Manifest]:
    reached = endpoints(job, role, indices, config)
    return [
        {"rank": rank, "name": pod_name(job, role, index), "endpoint": address}
        for rank, (index, address) in enumerate(zip(indices, reached, strict=True))
    ]


def _lines(texts: tuple[str, ...]) -> str:
    return "".join(f"{text}\n" for text in texts)
