"""What does one pod of a job's role ask for, as the planner sees it?

Takes a TrainingJob and a role, gives the `Shape` of the pod that the job's controller builds: both begin with the same
outline (api/job_shape.py). What cannot be read asks for nothing; validation says so elsewhere. Pure; called by
participants.py, rooms.py and `raytide plan` (TJ §2.2, §3 rows 5 and 18).
"""

from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from raytide.api.job_shape import pod_outline
from raytide.api.pod_shape import PODS, PodConstraints, PodShape, pod_shape
from raytide.api.quantity import QuantityError
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Constraints, Requirement, Shape, Toleration

_Pairs: TypeAlias = tuple[tuple[str, int], ...]

UNREADABLE: Final = PodShape({PODS: 1}, {})


def role_shape(job: TrainingJob, role: str) -> Shape:
    """The shape of one pod of that role."""
    try:
        asked = pod_shape(pod_outline(job, role)["spec"])
    except (msgspec.MsgspecError, QuantityError):
        asked = UNREADABLE
    return shape_from(asked)


def shape_from(asked: PodShape) -> Shape:
    """A pod's shape in the planner's words; equal shapes are mostly one object, so that a plan looks at each once."""
    return _shape(tuple(sorted(asked.requests.items())), tuple(sorted(asked.limits.items())), asked.constraints)


@lru_cache(maxsize=4096)
def _shape(requests: _Pairs, limits: _Pairs, constraints: PodConstraints) -> Shape:
    return Shape(dict(requests), dict(limits), _constraints(constraints))


@lru_cache(maxsize=1024)
def _constraints(given: PodConstraints) -> Constraints:
    return Constraints(
        node_selector=given.node_selector,
        terms=tuple(tuple(Requirement(*each) for each in term) for term in given.terms),
        tolerations=tuple(Toleration(*each) for each in given.tolerations),
    )
