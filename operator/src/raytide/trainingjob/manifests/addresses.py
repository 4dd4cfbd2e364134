"""Names and addresses of a job's pods.

Names of children, and the DNS names that the headless service gives each pod (`J-trainer-0.J.<namespace>.svc…`), which
stay the same when a pod is replaced. An endpoint is such a name with the job's port. In its own list of peers a pod has
its IP instead of its name: Paddle looks itself up by IP, and may listen before DNS resolves the name. Called by
objects.py and pod_spec.py; names of TJ §2.2.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import MASTER, MASTER_PORT

OWN_ADDRESS: Final = "$(POD_IP)"
"""The kubelet replaces it by the pod's IP; Paddle compares it with its own."""


def own_host(config: JobConfig) -> str:
    """The pod's IP as it stands before a port."""
    return f"[{OWN_ADDRESS}]" if config.is_ipv6 else OWN_ADDRESS


def service_name(job: TrainingJob) -> str:
    """The headless service's name: that of the job."""
    return job.metadata.name


def membership_name(job: TrainingJob) -> str:
    """The name of the ConfigMap that lists the job's pods."""
    return f"{job.metadata.name}-membership"


def pod_name(job: TrainingJob, role: str, index: int = 0) -> str:
    """The pod's name: `J-master`, `J-pserver-0`, `J-trainer-0`."""
    return f"{job.metadata.name}-{role}" if role == MASTER else f"{job.metadata.name}-{role}-{index}"


def host_name(job: TrainingJob, role: str, index: int, config: JobConfig) -> str:
    """The pod's full DNS name."""
    domain = f"{service_name(job)}.{job.metadata.namespace}.svc.{config.cluster_domain}"
    return f"{pod_name(job, role, index)}.{domain}"


def endpoint(job: TrainingJob, role: str, index: int, config: JobConfig) -> str:
    """The pod's DNS name with the job's port; `MASTER_PORT` for a master."""
    port = MASTER_PORT if role == MASTER else job.spec.port
    return f"{host_name(job, role, index, config)}:{port}"


def endpoints(job: TrainingJob, role: str, indices: Iterable[int], config: JobConfig) -> tuple[str, ...]:
    """The endpoints of these pods of a role, in that order; cached, because many pods contain the same list."""
    context = (job.metadata.name, job.metadata.namespace, config.cluster_domain, job.spec.port)
    return _endpoints(*context, role, tuple(indices))


@lru_cache(maxsize=8)
def _endpoints(  # noqa: PLR0917 - only what the addresses depend on, as cache key
    name: str, namespace: str, domain: str, port: int, role: str, indices: tuple[int, ...]
) -> tuple[str, ...]:
    return tuple(f"{name}-{role}-{index}.{name}.{namespace}.svc.{domain}:{port}" for index in indices)
