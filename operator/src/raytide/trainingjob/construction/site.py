"""Whose pod is built?

One frozen value with everything a construction step may look at: the job, the role and the index of the pod, the size of
the job at that moment, and the settings. What a construction step shares between pods nobody may change. Made by objects.py, read by every file beside this one.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.job_shape import Size, is_launched, role_spec
from raytide.api.meta import Manifest
from raytide.api.quantity import QuantityError, to_bytes
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.api.training_resources import gpus_per_trainer, role_resources
from raytide.api.trainingjob import RoleSpec, TrainingJob

CUDA_LIBRARIES: Final = "/usr/local/cuda/lib64"


@dataclass(frozen=True, eq=False)
class JobSite:
    """A job of that size; what is the same for all its pods is worked out once for hundreds of them."""

    job: TrainingJob
    size: Size
    config: JobConfig

    @cached_property
    def gpus(self) -> int:
        """How many GPUs a trainer asks for."""
        return gpus_per_trainer(self.job, self.config.gpus)

    @cached_property
    def threads_per_trainer(self) -> int:
        """GPUs asked for, else CPUs rounded up (TJ §2.2); at least one, since none would train nothing."""
        if self.gpus:
            return self.gpus
        try:
            return max(1, to_bytes(role_resources(self.job, TRAINER).requests.get("cpu", 1)))
        except QuantityError:
            return 1

    @cached_property
    def launcher_variables(self) -> tuple[Manifest, ...]:
        """Paddle's old names (TJ §2.2)."""
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

    @cached_property
    def job_ports(self) -> tuple[Manifest, ...]:
        """`jobport-…` from the base port on (TJ §2.2)."""
        spec = self.job.spec
        numbers = range(spec.port, spec.port + spec.ports_num + spec.ports_num_for_sparse)
        return tuple({"name": f"jobport-{number}", "containerPort": number} for number in numbers)


@dataclass(frozen=True, slots=True)
class Site:
    """The pod `role`-`index` of a job."""

    of: JobSite
    role: str
    index: int

    @property
    def job(self) -> TrainingJob:
        """The job."""
        return self.of.job

    @property
    def size(self) -> Size:
        """The size that the job has at this moment."""
        return self.of.size

    @property
    def config(self) -> JobConfig:
        """The settings."""
        return self.of.config

    @property
    def said(self) -> RoleSpec:
        """What the spec says about the role."""
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
    def is_launched(self) -> bool:
        """Whether Paddle's launcher starts it."""
        return is_launched(self.job)

    @property
    def is_tolerant_launch(self) -> bool:
        """Whether the launcher's fault-tolerant commands are used: they wait for a master, so there has to be one."""
        return self.job.is_fault_tolerant and self.job.has_master

    @property
    def entrypoint(self) -> str:
        """The role's own; parameter servers run the trainers' program where they have none."""
        said = self.said.entrypoint
        return said or (self.job.spec.trainer.entrypoint if self.is_pserver else "")
