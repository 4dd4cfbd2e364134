"""Pod requirements: what one pod of a job's role requests, as the planner's `Shape`.

The job's controller builds the pod from the same outline (api/trainingjob_pods.py). Requirements that cannot be parsed
count as nothing but one pod; validation reports them elsewhere. Pure; called by participants.py, node_usage.py and
`raytide plan` (TJ §2.2, §3 rows 5 and 18).
"""

from collections.abc import Iterable
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from raytide.api.capacity import CapacityPod
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


def observed_shape(planned: Shape, pods: Iterable[CapacityPod]) -> Shape:
    """The same with what the newest of these pods requests more: a LimitRange, a webhook or a RuntimeClass may have added it."""
    newest = max(pods, key=lambda pod: (pod.created_at, pod.name), default=None)
    if newest is None or (newest.requests == planned.requests and newest.limits == planned.limits):
        return planned
    requests, limits = (
        {name: max(here.get(name, 0), there.get(name, 0)) for name in {**here, **there}}
        for here, there in ((planned.requests, newest.requests), (planned.limits, newest.limits))
    )
    return shape_from(PodShape(requests, limits, planned.constraints))


_Key: TypeAlias = tuple[_Pairs, _Pairs, PodConstraints]
_shapes: Final[WeakValueDictionary[_Key, Shape]] = WeakValueDictionary()


def shape_from(asked: PodShape) -> Shape:
    """A pod's shape in the planner's types; equal shapes are mostly one object, so that a plan looks at each once."""
    key = tuple(sorted(asked.requests.items())), tuple(sorted(asked.limits.items())), asked.constraints
    found = _shapes.get(key)
    if found is None:
        found = _shapes[key] = Shape(dict(asked.requests), dict(asked.limits), asked.constraints)
    return found
