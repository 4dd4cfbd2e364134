"""What has to be told about a RayCluster as events, although it may be made as it is written?

Takes the cluster and the settings, gives remarks in the order of the spec: what is odd (RC:V-61), what has no effect yet, what
is done otherwise than the spec may let expect. Nothing of it stops anything; how often it is told is the shell's business. Pure;
called by the plan for a valid cluster.
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import names
from raytide.api.actions import Remark
from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.protection import PROTECTIONS, waived_fields
from raytide.raycluster.scaling import clamp_replicas
from raytide.raycluster.validation import unsupported, warnings
from raytide.raycluster.validation_facts import is_before_oldest_tested_ray, is_rays_autoscaler_chosen

MOST_SHOWN: Final = 63
"""Characters of what a user wrote that an event repeats."""


def remarks_on(cluster: RayCluster, config: ClusterConfig) -> tuple[Remark, ...]:
    """Everything worth an event."""
    return (
        *(Remark(fault.event_reason, str(fault)) for fault in warnings(cluster)),
        *(Remark(names.UNSUPPORTED_FIELD, str(field)) for field in unsupported(cluster)),
        *_on_insecurity(cluster),
        *_on_autoscaler(cluster, config),
        *_on_counts(cluster),
    )


def _on_insecurity(cluster: RayCluster) -> Iterator[Remark]:
    """A word in the annotation that waives nothing."""
    unknown = next((word for word in waived_fields(cluster) if word not in PROTECTIONS), None)
    if unknown is not None:
        known = ", ".join(PROTECTIONS)
        note = f"annotation {names.ALLOW_INSECURE_ANNOTATION} names {unknown[:MOST_SHOWN]!r}, it knows {known}; nothing is waived by it"
        yield Remark(names.INVALID_SPEC, note)


def _on_counts(cluster: RayCluster) -> Iterator[Remark]:
    """Numbers of replicas that are not what there will be; 0 may be the CRD's default and asks for nothing."""
    clamped = [
        (i, group, replicas, used)
        for i, group in enumerate(cluster.spec.worker_group_specs)
        if 0 < (replicas := group.replicas or 0) != (used := clamp_replicas(group))
    ]
    if clamped:
        i, group, replicas, used = clamped[0]
        bound = "above maxReplicas" if replicas > used else "below minReplicas"
        more = f"; so it is with {len(clamped) - 1} more groups" if len(clamped) > 1 else ""
        note = f"spec.workerGroupSpecs[{i}].replicas is {replicas}, {bound}: group {group.group_name[:MOST_SHOWN]} gets {used}{more}"
        yield Remark(names.REPLICAS_CLAMPED, note)


def _on_autoscaler(cluster: RayCluster, config: ClusterConfig) -> Iterator[Remark]:
    """Whose autoscaler runs, where neither the install nor the cluster says so."""
    is_old = cluster.is_autoscaled and is_before_oldest_tested_ray(cluster)
    if is_old and config.autoscaler.mode == "raytide" and not is_rays_autoscaler_chosen(cluster):
        note = (
            f"spec.rayVersion is {cluster.spec.ray_version}, older than any with which Raytide's autoscaler is tested; the "
            "one in the head's image runs instead, as under KubeRay"
        )
        yield Remark(names.RAYS_AUTOSCALER_USED, note, event_type="Normal")
