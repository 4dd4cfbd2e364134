"""What has to be told about a RayCluster as events, although it may be made as it is written?

Takes the cluster and the settings, gives remarks in the order of the spec: what is odd (RC:V-61), what has no effect yet, what
is done otherwise than the spec may let expect. Nothing of it stops anything; how often it is told is the shell's business. Pure;
called by the plan for a valid cluster.
"""

from collections.abc import Iterator

from raytide.api import names
from raytide.api.actions import Remark
from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import unsupported, warnings
from raytide.raycluster.validation_facts import is_before_oldest_tested_ray, is_rays_autoscaler_chosen


def remarks_on(cluster: RayCluster, config: ClusterConfig) -> tuple[Remark, ...]:
    """Everything worth an event."""
    return (
        *(Remark(fault.event_reason, str(fault)) for fault in warnings(cluster)),
        *(Remark(names.UNSUPPORTED_FIELD, str(field)) for field in unsupported(cluster)),
        *_on_autoscaler(cluster, config),
    )


def _on_autoscaler(cluster: RayCluster, config: ClusterConfig) -> Iterator[Remark]:
    """Whose autoscaler runs, where neither the install nor the cluster says so."""
    is_old = cluster.is_autoscaled and is_before_oldest_tested_ray(cluster)
    if is_old and config.autoscaler.mode == "raytide" and not is_rays_autoscaler_chosen(cluster):
        note = (
            f"spec.rayVersion is {cluster.spec.ray_version}, older than any with which Raytide's autoscaler is tested; the "
            "one in the head's image runs instead, as under KubeRay"
        )
        yield Remark(names.RAYS_AUTOSCALER_USED, note, event_type="Normal")
