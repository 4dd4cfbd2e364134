"""Under which names do the pods of a job find each other?

Names of children and the full DNS names that the headless service gives each pod (`J-trainer-0.J.<namespace>.svc…`),
which stay the same when a pod is replaced. An endpoint is such a name with the job's port. A pod writes its own address
instead of its name where it lists everybody: Paddle looks itself up in the list by address, and may listen before the
name is served. Called by objects.py and construction/; names of TJ §2.2.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.training_names import MASTER
from raytide.api.trainingjob import TrainingJob

MASTER_PORT: Final = 8080
ETCD_PORT: Final = 2379
OWN_ADDRESS: Final = "$(POD_IP)"
"""Kubernetes puts the pod's address in its place."""


def service_name(job: TrainingJob) -> str:
    """The headless service: the job's own name."""
    return job.metadata.name


def membership_name(job: TrainingJob) -> str:
    """The ConfigMap that lists the members."""
    return f"{job.metadata.name}-membership"


def pod_name(job: TrainingJob, role: str, index: int = 0) -> str:
    """`J-master`, `J-pserver-0`, `J-trainer-0`."""
    return f"{job.metadata.name}-{role}" if role == MASTER else f"{job.metadata.name}-{role}-{index}"


def host_name(job: TrainingJob, role: str, index: int, config: JobConfig) -> str:
    """The pod's full name in the cluster's DNS."""
    domain = f"{service_name(job)}.{job.metadata.namespace}.svc.{config.cluster_domain}"
    return f"{pod_name(job, role, index)}.{domain}"


def endpoint(job: TrainingJob, role: str, index: int, config: JobConfig) -> str:
    """Where the pod is reached: its name and the job's port; a master's own port."""
    port = MASTER_PORT if role == MASTER else job.spec.port
    return f"{host_name(job, role, index, config)}:{port}"


def endpoints(job: TrainingJob, role: str, indices: Iterable[int], config: JobConfig) -> tuple[str, ...]:
    """Those of these pods of a role, in that order; worked out once for all pods that list them."""
    site = (job.metadata.name, job.metadata.namespace, config.cluster_domain, job.spec.port)
    return _endpoints(*site, role, tuple(indices))


@lru_cache(maxsize=8)
def _endpoints(  # noqa: PLR0917 - what the addresses depend on, and nothing else of the job
    name: str, namespace: str, domain: str, port: int, role: str, indices: tuple[int, ...]
) -> tuple[str, ...]:
    return tuple(f"{name}-{role}-{index}.{name}.{namespace}.svc.{domain}:{port}" for index in indices)
