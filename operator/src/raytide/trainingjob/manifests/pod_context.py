"""Input of a job's pod construction.

One frozen value with the input of every construction step: the job, its current size, the settings, and the pod's role
and index. Parts shared between pods must not be modified. Created by objects.py, read by the other modules of this
package.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.meta import Manifest
from raytide.api.quantity import QuantityError, to_bytes
from raytide.api.training_resources import gpus_per_trainer, role_resources
from raytide.api.trainingjob import RoleSpec, TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob_pods import Size, role_spec, uses_launcher
from raytide.trainingjob.manifests.membership import membership_files, membership_revision

CUDA_LIBRARIES: Final = "/usr/local/cuda/lib64"


@dataclass(frozen=True, eq=False)
class JobPodContext:
    """A job at one size; caches what is the same for all its pods."""

    job: TrainingJob
    size: Size
    config: JobConfig

    @cached_property
    def membership_revision(self) -> str:
        """Of the files that a new pod mounts."""
        return membership_revision(membership_files(self.job, self.size, self.config))

    @cached_property
    def gpus(self) -> int:
        """Number of GPUs per trainer."""
        return gpus_per_trainer(self.job, self.config.gpus)

    @cached_property
    def threads_per_trainer(self) -> int:
        """GPUs per trainer, else requested CPUs rounded up (TJ §2.2); at least one."""
        if self.gpus:
            return self.gpus
        try:
            return max(1, to_bytes(role_resources(self.job, TRAINER).requests.get("cpu", 1)))
        except QuantityError:
            return 1

    @cached_property
    def launcher_variables(self) -> tuple[Manifest, ...]:
        """Variables of Paddle's launcher (TJ §2.2)."""
        spec, size = self.job.spec, self.size
        variables = {
            "PADDLE_JOB_NAME": self.job.metadata.name,
            "TRAINERS": str(size.trainers),
            "PSERVERS": str(size.pservers),
            "ENTRY": spec.trainer.entrypoint,
            "TOPOLOGY": spec.trainer.entrypoint,
            "TRAINER_PACKAGE": spec.trainer.workspace,
            "PADDLE_INIT_PORT": str(spec.port),
            "PADDLE_INIT_TRAINER_COUNT": str(self.threads_per_trainer),
            "PADDLE_INIT_PORTS_NUM": str(spec.ports_num),
            "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(spec.ports_num_for_sparse),
            "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(size.trainers),
            "PADDLE_INIT_NUM_PASSES": str(self.job.passes),
            "PADDLE_INIT_USE_GPU": "1" if self.gpus else "0",
            "LD_LIBRARY_PATH": CUDA_LIBRARIES,
        }
        return tuple({"name": name, "value": value} for name, value in variables.items())


@dataclass(frozen=True, slots=True)
class PodContext:
    """The pod `role`-`index` of a job."""

    job_context: JobPodContext
    role: str
    index: int
    planned_node: str = ""
    """The node on which fair sharing planned it; empty if it has none."""

    @property
    def job(self) -> TrainingJob:
        """The job."""
        return self.job_context.job

    @property
    def size(self) -> Size:
        """The job's current size."""
        return self.job_context.size

    @property
    def config(self) -> JobConfig:
        """The settings."""
        return self.job_context.config

    @property
    def role_spec(self) -> RoleSpec:
        """The spec of the role."""
        return role_spec(self.job, self.role)

    @property
    def is_master(self) -> bool:
        """Whether it is the master."""
        return self.role == MASTER

    @property
    def is_pserver(self) -> bool:
        """Whether it is a parameter server."""
        return self.role == PSERVER

    @property
    def is_trainer(self) -> bool:
        """Whether it is a trainer."""
        return self.role == TRAINER

    @property
    def uses_launcher(self) -> bool:
        """Whether Paddle's launcher starts its containers."""
        return uses_launcher(self.job)

    @property
    def is_tolerant_launch(self) -> bool:
        """Whether the launcher's fault-tolerant commands are used; they wait for a master, so the job must have one."""
        return self.job.is_fault_tolerant and self.job.has_master

    @property
    def entrypoint(self) -> str:
        """The role's entrypoint; parameter servers without one run the trainers'."""
        entrypoint = self.role_spec.entrypoint
        return entrypoint or (self.job.spec.trainer.entrypoint if self.is_pserver else "")
