"""What do the children of a TrainingJob look like?

Takes a valid job, its size and the settings, gives manifests ready to be created: pods of three roles as Paddle's own
controllers made them (TJ §2.2), the headless service that names them and the ConfigMap that lists them. Pods are built in
the steps below and the user's template is laid over the result; labels and owner are ours whatever it says. Nobody may
change what these functions return. Called by plan.py.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.job_shape import Size, templated
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS, Manifest, controller_reference
from raytide.api.training_names import INDEX_LABEL, JOB_LABEL, MASTER, ROLE_JOB_LABELS, ROLE_LABEL
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.construction import pod_spec
from raytide.trainingjob.construction.addresses import membership_name, pod_name, service_name
from raytide.trainingjob.construction.members import membership_files
from raytide.trainingjob.construction.site import JobSite, Site

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
"""Whose labels no template sets: a pod of one job must not be taken for another's, or for a Ray head."""


def build_pods(
    job: TrainingJob, role: str, indices: Iterable[int], size: Size, config: JobConfig
) -> Iterator[Manifest]:
    """Pods of one role, one after the other."""
    shared = JobSite(job, size, config)
    return (_build(Site(shared, role, index)) for index in indices)


def build_pod(job: TrainingJob, role: str, index: int, size: Size, config: JobConfig) -> Manifest:
    """One pod. Counts in its environment are those of `size`, at its creation; the mounted files follow the job."""
    return _build(Site(JobSite(job, size, config), role, index))


def _build(site: Site) -> Manifest:
    job, role, index = site.job, site.role, site.index
    drafted = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "annotations": {GROUP_NAME_ANNOTATION: job.spec.pod_group_name} if job.spec.pod_group_name else {}
        },
        "spec": pod_spec.build_pod_spec(site),
    }
    merged = templated(job, role, drafted)
    annotations: Manifest = merged["metadata"].get("annotations") or {}
    labels = {**_free_labels(merged["metadata"].get("labels") or {}), **pod_labels(job, role, index)}
    metadata = {**_metadata(job, pod_name(job, role, index)), "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {**merged, "metadata": metadata}


def pod_labels(job: TrainingJob, role: str, index: int) -> dict[str, str]:
    """Ours and Paddle's, by which containers list their peers (TJ §2.2)."""
    name = job.metadata.name
    numbered = {} if role == MASTER else {INDEX_LABEL: str(index)}
    return {JOB_LABEL: name, ROLE_LABEL: role, **numbered, ROLE_JOB_LABELS[role]: name}


def _free_labels(labels: Manifest) -> Manifest:
    """A template's labels without those by which jobs and RayClusters, and their services, find their pods."""
    reserved = frozenset(ROLE_JOB_LABELS.values())
    return {
        key: value
        for key, value in labels.items()
        if key not in reserved and key.partition("/")[0] not in RESERVED_LABEL_DOMAINS
    }


def build_service(job: TrainingJob) -> Manifest:
    """The headless service that gives each pod its name, before it is ready too."""
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
    """The ConfigMap whose files pods see: who belongs to the job now. Depends on nothing but the spec and the size."""
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": _metadata(job, membership_name(job)),
        "data": membership_files(job, size, config),
    }


def _metadata(job: TrainingJob, name: str) -> Manifest:
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {JOB_LABEL: job.metadata.name},
        "ownerReferences": [controller_reference(TRAININGJOBS, job.metadata.name, job.metadata.uid)],
    }
