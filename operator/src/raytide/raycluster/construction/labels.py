"""Which labels and annotations does a Ray pod carry?

Steps that set them (RC §3.3, RC:POD-3, RC:POD-5, RC:POD-12, RC:POD-14). The template's come first, the group's
win over them, and both win over the defaults; the cluster, the node type and the group are ours alone, because services,
Ray and this operator find pods by them.
"""

from dataclasses import replace

from raytide.api import names
from raytide.raycluster.construction.draft import Draft, Site
from raytide.raycluster.construction.ray_start import is_true
from raytide.raycluster.recreate_hash import recreate_hash


def set_ray_labels(draft: Draft, site: Site) -> Draft:
    """The labels by which everybody finds Ray pods (RC:POD-3)."""
    cluster = site.cluster.metadata.name
    defaults = {
        names.IS_RAY_NODE_LABEL: "yes",
        names.IDENTIFIER_LABEL: names.head_identifier(cluster) if site.is_head else names.worker_identifier(cluster),
        names.APP_NAME_LABEL: names.APP_NAME,
        names.CREATED_BY_LABEL: names.CREATED_BY,
    }
    fixed = {
        names.CLUSTER_LABEL: cluster,
        names.NODE_TYPE_LABEL: site.node_type,
        names.GROUP_LABEL: site.group_name,
    }
    return replace(draft, labels={**defaults, **draft.labels, **site.group.labels, **fixed})


def set_serve_label(draft: Draft, site: Site) -> Draft:
    """Whether a RayService may send traffic here: workers at once, the head when it says so (RC §3.3)."""
    if not site.is_ray_service:
        return draft
    return replace(draft, labels={**draft.labels, names.SERVE_LABEL: "false" if site.is_head else "true"})


def copy_overwrite_annotation(draft: Draft, site: Site) -> Draft:
    """The cluster's wish that container commands stay as they are (RC:POD-5, RC:POD-19)."""
    if not is_true(site.cluster.metadata.annotations.get(names.OVERWRITE_CONTAINER_CMD_ANNOTATION)):
        return draft
    return replace(draft, annotations={**draft.annotations, names.OVERWRITE_CONTAINER_CMD_ANNOTATION: "true"})


def add_configured_metadata(draft: Draft, site: Site) -> Draft:
    """Labels and annotations from the operator's settings, where nobody set them before (RC:POD-12)."""
    return replace(
        draft,
        labels={**site.config.default_pod_labels, **draft.labels},
        annotations={**site.config.default_pod_annotations, **draft.annotations},
    )


def set_version_annotations(draft: Draft, site: Site) -> Draft:
    """From which spec and by which operator this head was made (RC:POD-14, RC:UP-2)."""
    stamps = {
        names.RECREATE_HASH_ANNOTATION: recreate_hash(site.cluster),
        names.KUBERAY_VERSION_ANNOTATION: site.config.operator_version,
    }
    return replace(draft, annotations={**draft.annotations, **stamps})
