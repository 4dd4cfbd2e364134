"""Pod requirements: what one pod of a job's role requests, as the planner's `Shape`.

The job's controller builds the pod from the same outline (api/trainingjob_pods.py). Requirements that cannot be parsed
count as nothing but one pod; validation reports them elsewhere. Pure; called by participants.py, node_usage.py and
`raytide plan` (TJ §2.2, §3 rows 5 and 18).
"""

from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from raytide.api.pod_requirements import PODS, PodConstraints, PodShape, pod_shape
from raytide.api.quantity import QuantityError
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pods import pod_outline
from raytide.fairshare.algorithm.model import Shape

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
    """A pod's shape in the planner's types; equal shapes are mostly one object, so that a plan looks at each once."""
    return _shape(tuple(sorted(asked.requests.items())), tuple(sorted(asked.limits.items())), asked.constraints)


@lru_cache(maxsize=4096)
def _shape(requests: _Pairs, limits: _Pairs, constraints: PodConstraints) -> Shape:
    return Shape(dict(requests), dict(limits), constraints)
