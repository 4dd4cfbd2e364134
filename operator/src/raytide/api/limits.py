"""How large may the numbers and lists of one custom resource be?

Bounds that no honest user meets, so that one small object cannot fill the memory or hold up the loop of an operator that
serves everybody. The CRDs say the same (tools/crds.py reads this file); `limited` cuts the numbers of an object that was
stored before they did, and names each cut. Lists that are too long are faults: acting on a part of them would delete what
the rest asks for. Pure; used by api/raycluster.py and api/trainingjob.py (FD:SEC-F1).
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel

from raytide.api.faults import Violation

MOST_GROUPS: Final = 300
"""Worker groups of a RayCluster. Each costs a template in a plan, 0.2 ms, and a plan has a create for each of them
(`actions.MOST_WRITES`), so that none waits for another."""
MOST_REPLICAS: Final = 1_000_000
"""Replicas of one worker group; `maxReplicas` may be any int32, because KubeRay's default is the largest."""
MOST_HOSTS: Final = 10_000
"""Hosts of one replica (`numOfHosts`)."""
MOST_NAMES: Final = 10_000
"""Names in one `workersToDelete`."""
MOST_INSTANCES: Final = 3_000
"""Trainers or parameter servers of a TrainingJob; the ConfigMap that lists more would not fit into 1 MiB."""
MOST_PORTS: Final = 100
"""`ports_num` and `ports_num_for_sparse`, each."""
MOST_SIZES: Final = 1_000
"""Entries of `scaling.allowedSizes`."""
MOST_BUILT_BYTES: Final = 2_000_000
"""What users wrote about the pods that one plan builds, as JSON: a pod of 600 KB takes 10 ms, so a plan has three of them."""
MOST_SCHEDULING_BYTES: Final = 64 * 1024
"""What the scheduler reads of one role's pod, as JSON: containers' resources, selectors, affinity, tolerations."""

M = TypeVar("M", bound=BaseModel)


def limited(value: M, most_by_field: Mapping[str, tuple[str, int]], path: str) -> tuple[M, tuple[Violation, ...]]:
    """The value with its numbers cut, and one sentence for each cut.

    `most_by_field` maps attributes to the field as users spell it and the most that counts; `path` is where the value
    stands in the object. An attribute that is None is not there.
    """
    over = {
        name: (spelled, most) for name, (spelled, most) in most_by_field.items() if (getattr(value, name) or 0) > most
    }
    if not over:
        return value, ()
    cuts = tuple(
        Violation(
            "FD:SEC-F1",
            f"{path}.{spelled}",
            f"is {getattr(value, name)}, above the limit of {most}, and counts as {most}; write {most} or less",
        )
        for name, (spelled, most) in over.items()
    )
    return value.model_copy(update={name: most for name, (_, most) in over.items()}), cuts
