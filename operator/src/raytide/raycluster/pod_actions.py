"""Create and delete actions for pods of a RayCluster.

Takes what the plan decided - a head, replica indices or hosts to create, a pod to delete and the reason - and returns
the actions with KubeRay's event reasons (RC §6.1). It decides nothing. Called by plan.py.
"""

from collections.abc import Iterable, Iterator

from raytide.api import constants
from raytide.api.actions import Create, Delete
from raytide.api.config import PodConfig
from raytide.api.meta import PODS, Manifest
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.raycluster.endings import is_out_of_memory
from raytide.raycluster.manifests.names import Namer, head_pod_name, worker_pod_name
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template, host_pod, worker_pod
from raytide.raycluster.plan_multihost_group import NewHost
from raytide.raycluster.plan_worker_group import Victim


def failed_starts_value(count: int, spec_hash: str) -> str:
    """Value of `raytide.io/failed-starts`: that many pods in a row ended without having been ready, under the spec with this hash."""
    return f"{count} {spec_hash}"


def create_head(cluster: RayCluster, config: PodConfig, namer: Namer, failed_starts: str = "") -> Create:
    """Create of a head pod; `failed_starts` is its annotation of that name, empty for none."""
    return Create(
        PODS,
        _with_failed_starts(build_head_pod(cluster, config, head_pod_name(cluster, config, namer)), failed_starts),
        success_reason=constants.CREATED_HEAD_POD,
        failure_reason=constants.FAILED_TO_CREATE_HEAD_POD,
        group=constants.HEAD_GROUP,
    )


def create_workers(
    cluster: RayCluster,
    group: WorkerGroupSpec,
    indices: Iterable[int],
    config: PodConfig,
    namer: Namer,
    *,
    failed_starts: Iterator[str],
) -> Iterator[Create]:
    """Creates of one worker pod per replica index; `failed_starts` has the annotation of each."""
    template = build_worker_template(cluster, group, config)
    for index in indices:
        name = worker_pod_name(cluster, group, namer)
        pod = worker_pod(template, name, index if config.has_multi_host_indexing else None)
        yield _create_worker(group, _with_failed_starts(pod, next(failed_starts)))


def create_hosts(
    cluster: RayCluster,
    group: WorkerGroupSpec,
    hosts: Iterable[NewHost],
    config: PodConfig,
    namer: Namer,
    *,
    failed_starts: Iterator[str],
) -> Iterator[Create]:
    """Creates of hosts of a multi-host group; `failed_starts` has the annotation of each replica's hosts."""
    template = build_worker_template(cluster, group, config)
    by_replica: dict[str, str] = {}
    for host in hosts:
        name = worker_pod_name(cluster, group, namer)
        if host.replica_name not in by_replica:
            by_replica[host.replica_name] = next(failed_starts)
        pod = host_pod(template, name, host, group.num_of_hosts)
        yield _create_worker(group, _with_failed_starts(pod, by_replica[host.replica_name]))


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


def delete_pod(victim: Victim) -> Delete:
    """Delete of any pod of a cluster that is suspended or deleted."""
    return _delete(victim, constants.DELETED_POD, constants.FAILED_TO_DELETE_POD_COLLECTION, victim.pod.group)


def _with_failed_starts(manifest: Manifest, failed_starts: str) -> Manifest:
    if not failed_starts:
        return manifest
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), constants.FAILED_STARTS_ANNOTATION: failed_starts}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _create_worker(group: WorkerGroupSpec, manifest: Manifest) -> Create:
    return Create(
        PODS,
        manifest,
        success_reason=constants.CREATED_WORKER_POD,
        failure_reason=constants.FAILED_TO_CREATE_WORKER_POD,
        group=group.group_name,
    )


def _reason(victim: Victim, otherwise: str) -> str:
    return constants.OOM_KILLED if is_out_of_memory(victim.pod) else otherwise


def _delete(victim: Victim, because: str, otherwise: str, group: str) -> Delete:
    pod = victim.pod
    return Delete(PODS, pod.namespace, pod.name, pod.uid, because, otherwise, group, victim.reason)
