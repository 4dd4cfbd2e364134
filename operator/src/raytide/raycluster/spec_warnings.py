"""Events about a valid RayCluster's spec.

Takes the cluster and the settings, and returns remarks in the order of the spec: unusual settings (RC:V-61), fields
without effect yet, and deviations from what the spec suggests. None of them blocks a write; the event correlator limits
how often they are emitted. Pure; called by the plan for a valid cluster.
"""

from collections.abc import Iterator

from raytide.api import constants
from raytide.api.actions import EventSpec
from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster import messages
from raytide.raycluster.desired_replicas import clamp_replicas
from raytide.raycluster.protection import PROTECTIONS, waived_fields
from raytide.raycluster.spec_queries import is_before_oldest_tested_ray, is_rays_autoscaler_chosen
from raytide.raycluster.validation import unsupported, warnings


def warning_events(cluster: RayCluster, config: ClusterConfig) -> tuple[EventSpec, ...]:
    """All remarks about the spec."""
    return (
        *(EventSpec(violation.event_reason, str(violation)) for violation in warnings(cluster)),
        *(EventSpec(constants.UNSUPPORTED_FIELD, str(field)) for field in unsupported(cluster, config.pods)),
        *_unknown_waivers(cluster),
        *_no_authentication(cluster),
        *_rays_autoscaler_used(cluster, config),
        *_clamped_replicas(cluster),
    )


def _unknown_waivers(cluster: RayCluster) -> Iterator[EventSpec]:
    """A word in the annotation that waives nothing."""
    unknown = next((word for word in waived_fields(cluster) if word not in PROTECTIONS), None)
    if unknown is not None:
        yield messages.unknown_waiver(unknown, PROTECTIONS)


def _no_authentication(cluster: RayCluster) -> Iterator[EventSpec]:
    """Ray runs without authentication although the cluster has options for it, because they have no mode."""
    options = cluster.spec.auth_options
    if options is not None and not options.get("mode"):
        yield messages.no_auth_mode()


def _clamped_replicas(cluster: RayCluster) -> Iterator[EventSpec]:
    """Replica counts that are clamped; 0 may be the CRD's default and is not reported."""
    clamped = [
        (i, group, replicas, used)
        for i, group in enumerate(cluster.spec.worker_group_specs)
        if 0 < (replicas := group.replicas or 0) != (used := clamp_replicas(group))
    ]
    if clamped:
        i, group, replicas, used = clamped[0]
        yield messages.replicas_clamped(i, group.group_name, replicas, used, more_groups=len(clamped) - 1)


def _rays_autoscaler_used(cluster: RayCluster, config: ClusterConfig) -> Iterator[EventSpec]:
    """Ray's own autoscaler runs although neither the installation nor the cluster chose it."""
    is_old = cluster.is_autoscaled and is_before_oldest_tested_ray(cluster)
    if is_old and config.autoscaler.mode == "raytide" and not is_rays_autoscaler_chosen(cluster):
        yield messages.rays_autoscaler_used(cluster.spec.ray_version)
