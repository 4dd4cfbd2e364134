"""Labels and annotations of a Ray pod.

Steps of pods.py (RC §3.3, RC:POD-3, RC:POD-5, RC:POD-12, RC:POD-14). The group's labels override the template's, and
both override the defaults; users cannot override cluster, node type and group, because services, Ray and the operator
select pods by them.
"""

from dataclasses import replace

from raytide.api import constants
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext
from raytide.raycluster.manifests.ray_start import is_true
from raytide.raycluster.manifests.recreate_hash import recreate_hash


def set_ray_labels(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Set the labels by which Ray pods are selected (RC:POD-3)."""
    cluster = site.cluster.metadata.name
    defaults = {
        constants.IS_RAY_NODE_LABEL: "yes",
        constants.IDENTIFIER_LABEL: constants.head_identifier(cluster)
        if site.is_head
        else constants.worker_identifier(cluster),
        constants.APP_NAME_LABEL: constants.APP_NAME,
        constants.CREATED_BY_LABEL: constants.CREATED_BY,
    }
    fixed = {
        constants.CLUSTER_LABEL: cluster,
        constants.NODE_TYPE_LABEL: site.node_type,
        constants.GROUP_LABEL: site.group_name,
    }
    return replace(draft, labels={**defaults, **draft.labels, **site.group.labels, **fixed})


def set_serve_label(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Set whether a RayService may send traffic to the pod: `true` on workers, `false` on a new head (RC §3.3)."""
    if not site.is_ray_service:
        return draft
    return replace(draft, labels={**draft.labels, constants.SERVE_LABEL: "false" if site.is_head else "true"})


def copy_overwrite_annotation(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Copy the cluster's annotation that keeps container commands unchanged (RC:POD-5, RC:POD-19)."""
    if not is_true(site.cluster.metadata.annotations.get(constants.OVERWRITE_CONTAINER_CMD_ANNOTATION)):
        return draft
    return replace(draft, annotations={**draft.annotations, constants.OVERWRITE_CONTAINER_CMD_ANNOTATION: "true"})


def add_configured_metadata(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Add labels and annotations of the operator's settings where they are not set yet (RC:POD-12)."""
    return replace(
        draft,
        labels={**site.config.default_pod_labels, **draft.labels},
        annotations={**site.config.default_pod_annotations, **draft.annotations},
    )


def set_version_annotations(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Annotate the head with the hash of its spec and the operator's version (RC:POD-14, RC:UP-2)."""
    stamps = {
        constants.RECREATE_HASH_ANNOTATION: recreate_hash(site.cluster),
        constants.KUBERAY_VERSION_ANNOTATION: site.config.operator_version,
    }
    return replace(draft, annotations={**draft.annotations, **stamps})
