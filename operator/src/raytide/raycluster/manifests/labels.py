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
from raytide.raycluster.spec_queries import ray_labels


def set_ray_labels(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Set the labels by which Ray pods are selected, beside those of the template and the group (RC:POD-3)."""
    return replace(builder, labels=ray_labels(context.cluster, context.group))


def set_serve_label(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Set whether a RayService may send traffic to the pod: `true` on workers, `false` on a new head (RC §3.3)."""
    if not context.is_ray_service:
        return builder
    return replace(builder, labels={**builder.labels, constants.SERVE_LABEL: "false" if context.is_head else "true"})


def copy_overwrite_annotation(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Copy the cluster's annotation that keeps container commands unchanged (RC:POD-5, RC:POD-19)."""
    if not is_true(context.cluster.metadata.annotations.get(constants.OVERWRITE_CONTAINER_CMD_ANNOTATION)):
        return builder
    return replace(builder, annotations={**builder.annotations, constants.OVERWRITE_CONTAINER_CMD_ANNOTATION: "true"})


def add_configured_metadata(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add labels and annotations of the operator's settings where they are not set yet (RC:POD-12)."""
    return replace(
        builder,
        labels={**context.config.default_pod_labels, **builder.labels},
        annotations={**context.config.default_pod_annotations, **builder.annotations},
    )


def set_version_annotations(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Annotate the head with the hash of its spec and the operator's version (RC:POD-14, RC:UP-2)."""
    stamps = {
        constants.RECREATE_HASH_ANNOTATION: recreate_hash(context.cluster),
        constants.KUBERAY_VERSION_ANNOTATION: context.config.operator_version,
    }
    return replace(builder, annotations={**builder.annotations, **stamps})
