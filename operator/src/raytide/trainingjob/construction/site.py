"""Whose pod is built?

One frozen value with everything a construction step may look at: the job, the role and the index of the pod, the size of
the job at that moment, and the settings. Made by objects.py, read by every file beside this one.
"""

from dataclasses import dataclass

from raytide.api.config import JobConfig
from raytide.api.job_shape import Size, is_launched, role_spec
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob import RoleSpec, TrainingJob


@dataclass(frozen=True, slots=True)
class Site:
    """The pod `role`-`index` of a job of that size."""

    job: TrainingJob
    role: str
    index: int
    size: Size
    config: JobConfig

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
