"""Failed workers that are kept for inspection.

Takes a cluster, or its pods, and returns the last failed worker of each group of a cluster with the annotation
`raytide.io/keep-failed-pods: "true"`, at most one per group. A pod in phase Failed runs no containers and uses no node
resources. Called when a cluster is observed; FD:RC-B15.
"""

from collections.abc import Collection, Iterable

from raytide.api import constants
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster
from raytide.raycluster.suspension import Suspension, suspension_of

FAILED = "Failed"


def kept_groups(cluster: RayCluster) -> frozenset[str]:
    """Groups whose last failed worker is kept.

    Not multi-host groups, where a replica is replaced as a whole; not with autoscaling, because the autoscaler counts
    an existing pod as a worker that is stopping; not in a suspended cluster, which has no pods.
    """
    is_asked_for = cluster.metadata.annotations.get(constants.KEEP_FAILED_PODS_ANNOTATION, "").lower() == "true"
    if not is_asked_for or cluster.is_autoscaled or suspension_of(cluster) is not Suspension.NONE:
        return frozenset()
    return frozenset(group.group_name for group in cluster.spec.worker_group_specs if group.num_of_hosts == 1)


def names_to_delete(cluster: RayCluster) -> frozenset[str]:
    """Names in `workersToDelete` of all groups; failed workers with these names are not kept."""
    return frozenset(
        name for group in cluster.spec.worker_group_specs for name in group.scale_strategy.workers_to_delete
    )


def last_failures(
    pods: Iterable[PodView], groups: Collection[str], names_to_delete: Collection[str]
) -> tuple[PodView, ...]:
    """For each of these groups, the last failed worker that is neither terminating nor in `names_to_delete`."""
    last: dict[str, PodView] = {}
    for pod in pods:
        is_failed_worker = pod.is_worker and pod.group in groups and pod.phase == FAILED
        if is_failed_worker and pod.uid and not pod.is_terminating and pod.name not in names_to_delete:
            previous = last.get(pod.group)
            if previous is None or _ended_at(pod) > _ended_at(previous):
                last[pod.group] = pod
    return tuple(last.values())


def _ended_at(pod: PodView) -> tuple[str, str]:
    """When it ended, or else when it was created; ties are broken by name."""
    return pod.ended_at or pod.creation_timestamp, pod.name
