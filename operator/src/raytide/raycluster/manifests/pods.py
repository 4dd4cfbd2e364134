"""Manifests of head and worker pods.

Takes a valid RayCluster and the settings and returns manifests ready to be created. The steps below extend the user's
template in KubeRay's order (RC §3.1, §3.2, §3.6); a step of KubeRay that is missing is not implemented yet. A group's
template is built once per pass and copied shallowly per pod (D13): callers must not modify the results. Called by
raycluster/plan.py.
"""

from typing import Final

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.meta import PODS, RAYCLUSTERS, Manifest, controller_reference
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.raycluster.manifests import (
    autoscaler,
    containers,
    environment,
    fault_tolerance,
    labels,
    probes,
    ray_start,
    token_auth,
)
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, Step, start_builder
from raytide.raycluster.plan_multihost_group import NewHost

BUILD_STEPS: Final[tuple[Step, ...]] = (
    containers.add_shared_memory,  # VOL-1
    autoscaler.add_shared_logs,  # VOL-2
    environment.add_head_addresses,
    ray_start.set_start_command,  # CMD-1 to CMD-4
    environment.add_environment,  # CMD-5
    probes.add_probes,  # PRB-1 to PRB-4
    labels.set_serve_label,
)
"""BuildPod of RC §3.6, the same for head and workers."""

HEAD_STEPS: Final[tuple[Step, ...]] = (
    ray_start.add_group_params,  # POD-2
    labels.set_ray_labels,  # POD-3
    ray_start.add_missing_params,  # POD-4
    labels.copy_overwrite_annotation,  # POD-5
    autoscaler.add_autoscaler,  # POD-6, AS-1 to AS-3
    autoscaler.set_restart_policy,  # POD-6
    fault_tolerance.add_head_fault_tolerance,  # POD-7, FT-2 to FT-4
    containers.add_metrics_port,  # POD-8
    token_auth.add_token_auth,  # POD-9, AU-3
    containers.add_configured_sidecars,  # POD-12
    labels.add_configured_metadata,  # POD-12
    *BUILD_STEPS,  # POD-13
    labels.set_version_annotations,  # POD-14
    autoscaler.make_restartable,  # D27
)

WORKER_STEPS: Final[tuple[Step, ...]] = (
    containers.add_wait_gcs_ready,  # POD-17
    ray_start.add_group_params,  # POD-18
    labels.set_ray_labels,  # POD-18
    ray_start.add_missing_params,  # POD-18
    labels.copy_overwrite_annotation,  # POD-19
    fault_tolerance.add_worker_fault_tolerance,  # POD-19, FT-1
    containers.add_metrics_port,  # POD-19
    token_auth.add_token_auth,  # POD-19, AU-3
    autoscaler.set_restart_policy,  # POD-19
    containers.add_configured_sidecars,  # POD-20
    labels.add_configured_metadata,  # POD-20
    *BUILD_STEPS,  # POD-20
)


def build_head_pod(cluster: RayCluster, config: PodConfig, name: str) -> Manifest:
    """The head pod (RC §3.1)."""
    template = _build(PodContext(cluster, cluster.spec.head_group_spec, config), HEAD_STEPS)
    return {**template, "metadata": {**template["metadata"], "name": name}}


def build_worker_template(cluster: RayCluster, group: WorkerGroupSpec, config: PodConfig) -> Manifest:
    """The common part of a group's workers: a pod without a name (RC §3.2)."""
    return _build(PodContext(cluster, group, config), WORKER_STEPS)


def worker_pod(template: Manifest, name: str, replica_index: int | None) -> Manifest:
    """One worker of the group, as a shallow copy; no index label without `has_multi_host_indexing` (RC §3.3)."""
    metadata = {**template["metadata"], "name": name}
    if replica_index is not None:
        metadata["labels"] = {**metadata["labels"], constants.REPLICA_INDEX_LABEL: str(replica_index)}
    return {**template, "metadata": metadata}


def host_pod(template: Manifest, name: str, host: NewHost, num_of_hosts: int) -> Manifest:
    """One host of a replica of a multi-host group, as a shallow copy (RC §3.3)."""
    pod = worker_pod(template, name, host.replica_index)
    metadata = pod["metadata"]
    labels = {constants.REPLICA_NAME_LABEL: host.replica_name, constants.HOST_INDEX_LABEL: str(host.host_index)}
    metadata["labels"] = {**metadata["labels"], **labels}
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        constants.NUM_OF_HOSTS_ANNOTATION: str(num_of_hosts),
    }
    return pod


def _build(context: PodContext, steps: tuple[Step, ...]) -> Manifest:
    builder = start_builder(context)
    for step in steps:
        builder = step(builder, context)
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": _metadata(builder, context.cluster),
        "spec": _pod_spec(builder),
    }


def _metadata(builder: PodBuilder, cluster: RayCluster) -> Manifest:
    metadata: Manifest = {
        "namespace": cluster.metadata.namespace,
        "labels": dict(builder.labels),
        "ownerReferences": [controller_reference(RAYCLUSTERS, cluster.metadata.name, cluster.metadata.uid)],
    }
    if builder.annotations:
        metadata["annotations"] = dict(builder.annotations)
    if builder.finalizers:
        metadata["finalizers"] = list(builder.finalizers)
    return metadata


def _pod_spec(builder: PodBuilder) -> Manifest:
    spec: Manifest = {**builder.other_fields, "containers": [builder.ray, *builder.sidecars]}
    if builder.init_containers:
        spec["initContainers"] = list(builder.init_containers)
    if builder.volumes:
        spec["volumes"] = list(builder.volumes)
    return spec
