"""Event texts about pods that ended and heads that are lost.

Takes the view of a pod, or a cluster whose head is to be replaced, and returns texts: which container ended with which
exit code and reason, where its log is, and whether the state of the GCS survives. It decides nothing about pods. Called
by plan.py, plan_worker_group.py and plan_multihost_group.py; FD:RC-B15, FD:RC-B16, FD:RC3-3.
"""

from typing import Final

from raytide.api import constants
from raytide.api.actions import EventSpec
from raytide.api.conditions import find_condition
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster
from raytide.raycluster import messages
from raytide.raycluster.observed import Observed
from raytide.raycluster.spec_queries import has_redis_fault_tolerance, has_rocksdb_fault_tolerance

POD_LOGS: Final = "/var/log/pods"
"""Where the kubelet writes container logs, and log collectors read them (Kubernetes' logging architecture)."""


def how_it_ended(pod: PodView) -> str:
    """How a finished pod ended, and where its log is."""
    if pod.is_running:
        words = "its Ray container has ended and its restartPolicy is Never"
    else:
        words = f"its phase is {pod.phase}" + (f" ({pod.reason})" if pod.reason else "")
    container = pod.ended_container
    if container is None:
        return words
    reason = f" ({container.reason})" if container.reason else ""
    words += f": container {container.name} ended with exit code {container.exit_code}{reason}"
    if not pod.node_name:
        return words
    file = f"{POD_LOGS}/{pod.namespace}_{pod.name}_{pod.uid}/{container.name}/{container.restart_count}.log"
    return f"{words}; its log ends in {file} on node {pod.node_name}"


def is_out_of_memory(pod: PodView) -> bool:
    """Whether the pod ended because a container was OOM-killed."""
    container = pod.ended_container if pod.is_finished else None
    return container is not None and container.reason == constants.OOM_KILLED


def head_loss(cluster: RayCluster, observed: Observed) -> tuple[EventSpec, ...]:
    """Event for a cluster that has lost its head, or whose head never was ready; none for a cluster that had no head.

    The status names the last head until the next status patch, which is after the new head is created.
    """
    name = (cluster.status.get("head") or {}).get("podName")
    if not name:
        return ()
    if observed.failed_starts.get(constants.HEAD_GROUP):
        return (messages.head_pod_never_ready(name, *_last_reason(cluster)),)
    away = next((head.node_name for head in observed.heads if observed.is_lost(head)), "")
    why = messages.head_node_lost(away) if away else _last_known(cluster)
    in_redis, on_volume = has_redis_fault_tolerance(cluster), has_rocksdb_fault_tolerance(cluster)
    kept = "in Redis" if in_redis else "on its volume" if on_volume else ""
    return (messages.head_pod_lost(name, why, kept=kept),)


def kept_failures(observed: Observed) -> tuple[EventSpec, ...]:
    """Events about failed workers that are kept: how each ended, and until when it is kept."""
    return tuple(messages.kept_failed_pod(pod.name, pod.group, how_it_ended(pod)) for pod in observed.kept)


def _last_known(cluster: RayCluster) -> str:
    condition = find_condition(cluster.status.get("conditions") or (), constants.HEAD_POD_READY) or {}
    if condition.get("status") != "False":
        return messages.READY_HEAD_DELETED
    return messages.head_gone(*_last_reason(cluster))


def _last_reason(cluster: RayCluster) -> tuple[object, object]:
    """Reason and message of the stored condition HeadPodReady."""
    condition = find_condition(cluster.status.get("conditions") or (), constants.HEAD_POD_READY) or {}
    return condition.get("reason"), condition.get("message")
