"""Manifests of a TrainingJob's children: pods, headless service and membership ConfigMap.

Takes a valid job, its size and the settings and returns manifests ready to be created: pods of three roles as Paddle's
controllers built them (TJ §2.2), the headless service that gives them DNS names and the ConfigMap that lists them. The
user's template is merged over a built pod, but cannot change name, owner and selecting labels. Callers must not modify
the results. Called by trainingjob/plan.py.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS, Manifest, controller_reference
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import (
    INDEX_LABEL,
    JOB_LABEL,
    MASTER,
    MEMBERSHIP_ANNOTATION,
    ROLE_JOB_LABELS,
    ROLE_LABEL,
)
from raytide.api.trainingjob_pods import Size, templated
from raytide.trainingjob.manifests import pod_spec
from raytide.trainingjob.manifests.addresses import membership_name, pod_name, service_name
from raytide.trainingjob.manifests.membership import membership_files, membership_revision
from raytide.trainingjob.manifests.pod_context import JobPodContext, PodContext

__all__ = [
    "build_membership",
    "build_pod",
    "build_pods",
    "build_service",
    "membership_name",
    "pod_name",
    "service_name",
]

GROUP_NAME_ANNOTATION: Final = "scheduling.k8s.io/group-name"
RESERVED_LABEL_DOMAINS: Final = frozenset({"raytide.io", "ray.io"})
"""Domains whose labels a template cannot set: a pod must not be selected as another job's, or as a Ray head."""


def build_pods(
    job: TrainingJob, role: str, nodes: Mapping[int, str], size: Size, config: JobConfig
) -> Iterator[Manifest]:
    """Pods of one role, built one at a time; `nodes` has for each index the node on which it is planned, or ""."""
    shared = JobPodContext(job, size, config)
    return (_build(PodContext(shared, role, index, node)) for index, node in nodes.items())


def build_pod(job: TrainingJob, role: str, index: int, size: Size, config: JobConfig) -> Manifest:
    """One pod. Counts in its environment are those of `size`, fixed at creation; the mounted files are updated."""
    return _build(PodContext(JobPodContext(job, size, config), role, index))


def _build(context: PodContext) -> Manifest:
    job, role, index = context.job, context.role, context.index
    drafted = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "annotations": {GROUP_NAME_ANNOTATION: job.spec.pod_group_name} if job.spec.pod_group_name else {}
        },
        "spec": pod_spec.build_pod_spec(context),
    }
    merged = templated(job, role, drafted)
    annotations: Manifest = merged["metadata"].get("annotations") or {}
    if not context.is_master:  # it mounts no membership
        annotations = {**annotations, MEMBERSHIP_ANNOTATION: context.job_context.membership_revision}
    labels = {**_free_labels(merged["metadata"].get("labels") or {}), **pod_labels(job, role, index)}
    metadata = {**_metadata(job, pod_name(job, role, index)), "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {**merged, "metadata": metadata}


def pod_labels(job: TrainingJob, role: str, index: int) -> dict[str, str]:
    """Raytide's labels, and Paddle's, by which containers list their peers (TJ §2.2)."""
    name = job.metadata.name
    numbered = {} if role == MASTER else {INDEX_LABEL: str(index)}
    return {JOB_LABEL: name, ROLE_LABEL: role, **numbered, ROLE_JOB_LABELS[role]: name}


def _free_labels(labels: Manifest) -> Manifest:
    """A template's labels without those by which jobs, RayClusters and their services select pods."""
    reserved = frozenset(ROLE_JOB_LABELS.values())
    return {
        key: value
        for key, value in labels.items()
        if key not in reserved and key.partition("/")[0] not in RESERVED_LABEL_DOMAINS
    }


def build_service(job: TrainingJob) -> Manifest:
    """The headless service that gives each pod a DNS name, even before it is ready."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": _metadata(job, service_name(job)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_LABEL: job.metadata.name},
        },
    }


def build_membership(job: TrainingJob, size: Size, config: JobConfig) -> Manifest:
    """The membership ConfigMap, mounted by the job's pods. It depends only on the spec, the size and the settings."""
    files = membership_files(job, size, config)
    annotations = {MEMBERSHIP_ANNOTATION: membership_revision(files)}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {**_metadata(job, membership_name(job)), "annotations": annotations},
        "data": files,
    }


def _metadata(job: TrainingJob, name: str) -> Manifest:
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {JOB_LABEL: job.metadata.name},
        "ownerReferences": [controller_reference(TRAININGJOBS, job.metadata.name, job.metadata.uid)],
    }
