"""How did a pod end, and what is lost with a head?

Takes the view of a pod, or a cluster whose head is to be replaced, and gives the words of events: which container ended
with which exit code and reason, where its log is, and whether the state of the GCS survives. It decides nothing about
pods. Called by plan.py, groups.py and replicas.py; FD:RC-B15, FD:RC-B16.
"""

from typing import Final

from raytide.api import names
from raytide.api.actions import Remark
from raytide.api.conditions import find_condition
from raytide.api.pod import ContainerView, PodView
from raytide.api.raycluster import RayCluster
from raytide.raycluster.observed import Observed
from raytide.raycluster.validation_facts import has_redis_fault_tolerance

POD_LOGS: Final = "/var/log/pods"
"""Where kubelets write what containers say, and log collectors read it (Kubernetes' logging architecture)."""
LONGEST_MESSAGE: Final = 200
"""Of a condition, in characters: an event has 1,024 bytes for everything."""


def how_it_ended(pod: PodView) -> str:
    """In which way a finished pod has ended, and where its log is."""
    if pod.is_running:
        words = "its Ray container has ended and its restartPolicy is Never"
    else:
        words = f"its phase is {pod.phase}" + (f" ({pod.reason})" if pod.reason else "")
    container = _ended_container(pod)
    if container is None:
        return words
    reason = f" ({container.reason})" if container.reason else ""
    words += f": container {container.name} ended with exit code {container.exit_code}{reason}"
    if not pod.node_name:
        return words
    file = f"{POD_LOGS}/{pod.namespace}_{pod.name}_{pod.uid}/{container.name}/{container.restart_count}.log"
    return f"{words}; its log ends in {file} on node {pod.node_name}"


def is_out_of_memory(pod: PodView) -> bool:
    """Whether it has ended because a container had used up its memory."""
    container = _ended_container(pod) if pod.is_finished else None
    return container is not None and container.reason == names.OOM_KILLED


def head_loss(cluster: RayCluster, observed: Observed) -> tuple[Remark, ...]:
    """What to tell when no head is left; nothing for a cluster that had none.

    The status names the last head until it is written next, and that is when the new head is asked for.
    """
    name = (cluster.status.get("head") or {}).get("podName")
    if not name:
        return ()
    away = next((head.node_name for head in observed.heads if observed.is_lost(head)), "")
    why = f"node {away} is not Ready or is gone" if away else _last_known(cluster)
    if has_redis_fault_tolerance(cluster):
        state = "the state of its GCS is kept in Redis, the next head takes it up and workers connect again"
    else:
        state = (
            "the state of its GCS is lost, and jobs, actors and objects with it: submit jobs again, or keep the state in "
            "Redis (gcsFaultToleranceOptions)"
        )
    return (
        Remark(names.HEAD_POD_LOST, f"Head pod {name} is lost: {why}; {state}", names.HEAD_GROUP, action="Replace"),
    )


def kept_failures(observed: Observed) -> tuple[Remark, ...]:
    """What to tell of failed workers that stay: how they ended, and for how long they are there."""
    return tuple(
        Remark(
            names.KEPT_FAILED_POD,
            f"Pod {pod.name} is kept until another of group {pod.group} fails: {how_it_ended(pod)}",
            pod.group,
            action="Keep",
        )
        for pod in observed.kept
    )


def _last_known(cluster: RayCluster) -> str:
    condition = find_condition(cluster.status.get("conditions") or (), names.HEAD_POD_READY) or {}
    if condition.get("status") != "False":
        return "it was deleted while it was ready"
    told = ": ".join(str(part) for part in (condition.get("reason"), condition.get("message")) if part)
    return f"it was not ready ({told[:LONGEST_MESSAGE]}) and is gone"


def _ended_container(pod: PodView) -> ContainerView | None:
    """The container to name: Ray's before others, and one that failed before one that ended well."""
    ended = [each for each in (*pod.containers, *pod.init_containers) if each.state == "terminated"]
    failed = [each for each in ended if each.exit_code]
    candidates = failed or [each for each in ended if each.name == pod.ray_container]
    return min(candidates, key=lambda each: each.name != pod.ray_container, default=None)
