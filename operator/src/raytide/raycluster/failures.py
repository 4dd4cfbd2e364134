"""Which failed workers stay for inspection?

Takes a cluster, or its pods, and gives the last failed worker of each group whose user asked for it by the annotation
`raytide.io/keep-failed-pods: "true"`, never more than one per group. A pod whose phase is Failed runs nothing and holds no
node's resources. Called while a cluster is observed; FD:RC-B15.
"""

from collections.abc import Collection, Iterable

from raytide.api import names
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster
from raytide.raycluster.suspension import Suspension, suspension_of

FAILED = "Failed"


def kept_groups(cluster: RayCluster) -> frozenset[str]:
    """Groups whose last failed worker stays.

    Not those of several hosts, where a replica is replaced as a whole; not beside an autoscaler, to which a pod that is
    there is a worker on its way out; none of a suspended cluster, which has no pods.
    """
    is_asked_for = cluster.metadata.annotations.get(names.KEEP_FAILED_PODS_ANNOTATION, "").lower() == "true"
    if not is_asked_for or cluster.is_autoscaled or suspension_of(cluster) is not Suspension.NONE:
        return frozenset()
    return frozenset(group.group_name for group in cluster.spec.worker_group_specs if group.num_of_hosts == 1)


def names_to_delete(cluster: RayCluster) -> frozenset[str]:
    """What the `workersToDelete` of all groups name; no failed worker of that name stays."""
    return frozenset(
        name for group in cluster.spec.worker_group_specs for name in group.scale_strategy.workers_to_delete
    )


def last_failures(pods: Iterable[PodView], groups: Collection[str], named: Collection[str]) -> tuple[PodView, ...]:
    """Of each of these groups the worker that failed last, is not being deleted and is not `named` to be."""
    last: dict[str, PodView] = {}
    for pod in pods:
        is_failed_worker = pod.is_worker and pod.group in groups and pod.phase == FAILED
        if is_failed_worker and pod.uid and not pod.is_terminating and pod.name not in named:
            known = last.get(pod.group)
            if known is None or _ended_at(pod) > _ended_at(known):
                last[pod.group] = pod
    return tuple(last.values())


def _ended_at(pod: PodView) -> tuple[str, str]:
    """When it ended, else when it was made; by name when that is the same."""
    return pod.ended_at or pod.creation_timestamp, pod.name
