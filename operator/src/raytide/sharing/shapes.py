"""What does one pod of a job's role ask for, as the planner sees it?

Takes a TrainingJob and a role, gives the `Shape` of the pod that the job's controller builds: both begin with the same
outline (api/job_shape.py). What cannot be read asks for nothing; validation says so elsewhere. Pure; called by
participants.py and by `raytide plan` (TJ §2.2, §3 rows 5 and 18).
"""

from functools import lru_cache
from typing import Final

import msgspec

from raytide.api.job_shape import pod_outline
from raytide.api.pod_shape import PODS, PodConstraints, PodShape, pod_shape
from raytide.api.quantity import QuantityError
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Constraints, Requirement, Shape, Toleration

UNREADABLE: Final = PodShape({PODS: 1}, {})


def role_shape(job: TrainingJob, role: str) -> Shape:
    """The shape of one pod of that role."""
    try:
        asked = pod_shape(pod_outline(job, role)["spec"])
    except (msgspec.MsgspecError, QuantityError):
        asked = UNREADABLE
    return shape_from(asked)


def shape_from(asked: PodShape) -> Shape:
    """A pod's shape in the planner's words."""
    return Shape(asked.requests, asked.limits, _constraints(asked.constraints))


@lru_cache(maxsize=1024)
def _constraints(given: PodConstraints) -> Constraints:
    return Constraints(
        node_selector=given.node_selector,
        terms=tuple(tuple(Requirement(*each) for each in term) for term in given.terms),
        tolerations=tuple(Toleration(*each) for each in given.tolerations),
    )


class ShapeBook:
    """`role_shape` with a memory: a job's shapes are computed once per generation of its spec."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str], Shape] = {}
        self._asked: dict[tuple[str, int, str], Shape] = {}

    def __call__(self, job: TrainingJob, role: str) -> Shape:
        """The shape of one pod of that role."""
        key = job.metadata.uid, job.metadata.generation, role
        shape = self._known.get(key) or role_shape(job, role)
        if job.metadata.uid:
            self._asked[key] = shape
        return shape

    def forget_others(self) -> None:
        """Keep only what was asked for since the last time."""
        self._known, self._asked = self._asked, {}
