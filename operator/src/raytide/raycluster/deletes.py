"""What does the delete of a pod look like, for each reason there is?

Takes a pod that should go and says why, and gives the delete with KubeRay's event reasons (RC §6.1). It chooses nobody.
Called by plan.py.
"""

from raytide.api import names
from raytide.api.actions import Delete
from raytide.api.meta import PODS
from raytide.raycluster.endings import is_out_of_memory
from raytide.raycluster.groups import Victim


def delete_worker(victim: Victim) -> Delete:
    """A worker goes."""
    return _delete(
        victim, _reason(victim, names.DELETED_WORKER_POD), names.FAILED_TO_DELETE_WORKER_POD, victim.pod.group
    )


def delete_head(victim: Victim) -> Delete:
    """A head pod goes."""
    return _delete(victim, _reason(victim, names.DELETED_HEAD_POD), names.FAILED_TO_DELETE_HEAD_POD, names.HEAD_GROUP)


def delete_suspended(victim: Victim) -> Delete:
    """A pod of a suspended cluster goes, whatever it is."""
    return _delete(victim, names.DELETED_POD, names.FAILED_TO_DELETE_POD_COLLECTION, victim.pod.group)


def _reason(victim: Victim, otherwise: str) -> str:
    return names.OOM_KILLED if is_out_of_memory(victim.pod) else otherwise


def _delete(victim: Victim, because: str, otherwise: str, group: str) -> Delete:
    pod = victim.pod
    return Delete(PODS, pod.namespace, pod.name, pod.uid, because, otherwise, group, victim.why)
