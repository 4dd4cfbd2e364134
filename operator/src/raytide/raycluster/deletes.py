"""Delete actions for pods of a RayCluster.

Takes a pod to delete and the reason, and returns the delete with KubeRay's event reasons (RC §6.1). It chooses no
victims. Called by plan.py.
"""

from raytide.api import constants
from raytide.api.actions import Delete
from raytide.api.meta import PODS
from raytide.raycluster.endings import is_out_of_memory
from raytide.raycluster.plan_worker_group import Victim


def delete_worker(victim: Victim) -> Delete:
    """Delete of a worker pod."""
    return _delete(
        victim, _reason(victim, constants.DELETED_WORKER_POD), constants.FAILED_TO_DELETE_WORKER_POD, victim.pod.group
    )


def delete_head(victim: Victim) -> Delete:
    """Delete of a head pod."""
    return _delete(
        victim, _reason(victim, constants.DELETED_HEAD_POD), constants.FAILED_TO_DELETE_HEAD_POD, constants.HEAD_GROUP
    )


def delete_suspended(victim: Victim) -> Delete:
    """Delete of any pod of a suspended cluster."""
    return _delete(victim, constants.DELETED_POD, constants.FAILED_TO_DELETE_POD_COLLECTION, victim.pod.group)


def _reason(victim: Victim, otherwise: str) -> str:
    return constants.OOM_KILLED if is_out_of_memory(victim.pod) else otherwise


def _delete(victim: Victim, because: str, otherwise: str, group: str) -> Delete:
    pod = victim.pod
    return Delete(PODS, pod.namespace, pod.name, pod.uid, because, otherwise, group, victim.reason)
