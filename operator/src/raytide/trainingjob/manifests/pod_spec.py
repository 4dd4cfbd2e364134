"""Spec of a job's pod, before the user's template is merged.

Starts from the scheduling part (api/trainingjob_pods.py) and adds image, command, environment, ports, mounts, probes
and hooks. Volumes and mounts apply to all three roles, unlike upstream, which omits some (TJ §2.2); containers never
restart, because the TrainingJob controller handles failures. Called by objects.py.
"""

from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.api.pod_template_merge import merged_entries
from raytide.api.trainingjob_pods import scheduling_spec
from raytide.trainingjob.manifests.addresses import membership_name, pod_name, service_name
from raytide.trainingjob.manifests.commands import shell, start_command
from raytide.trainingjob.manifests.environment import MEMBERSHIP_PATH, environment
from raytide.trainingjob.manifests.etcd import build_etcd, etcd_volumes
from raytide.trainingjob.manifests.pod_context import PodContext

MEMBERSHIP_VOLUME: Final = "raytide-membership"


def build_pod_spec(context: PodContext) -> Manifest:
    """The pod spec; the caller merges the template over it."""
    spec = context.job.spec
    outline = scheduling_spec(context.job, context.role)
    main, *sidecars = outline["containers"]
    built: Manifest = {
        **outline,
        "restartPolicy": "Never",
        "hostname": pod_name(context.job, context.role, context.index),
        "subdomain": service_name(context.job),
        "containers": [_main_container(context, main), *(build_etcd(context, etcd) for etcd in sidecars)],
    }
    if context.planned_node and not _has_inter_pod_constraints(context):
        built["affinity"] = _prefer_node(context.planned_node)
    if volumes := [*spec.volumes, *_membership_volumes(context), *etcd_volumes(context)]:
        built["volumes"] = volumes
    if spec.host_network:
        # Otherwise a pod on the host network uses the node's name server, which does not resolve pod names.
        built["dnsPolicy"] = "ClusterFirstWithHostNet"
    if secrets := merged_entries(spec.image_pull_secrets, context.role_spec.image_pull_secrets, "name"):
        built["imagePullSecrets"] = secrets
    if context.role_spec.grace_period_seconds is not None:
        built["terminationGracePeriodSeconds"] = context.role_spec.grace_period_seconds
    return built


def _prefer_node(node: str) -> Manifest:
    """Prefer a node by its name: its label `kubernetes.io/hostname` may differ. A template's preferences replace it."""
    # Validation allows one value per field requirement, and a weight of at most 100.
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": named}]}}


def _has_inter_pod_constraints(context: PodContext) -> bool:
    """Whether the pod template places pods relative to other pods, which fair sharing does not take into account."""
    spec = (context.role_spec.template or {}).get("spec")
    if not isinstance(spec, dict):
        return False
    affinity = spec.get("affinity")
    kinds = affinity.keys() if isinstance(affinity, dict) else ()
    return "topologySpreadConstraints" in spec or "podAffinity" in kinds or "podAntiAffinity" in kinds


def _main_container(context: PodContext, outlined: Manifest) -> Manifest:
    spec, own = context.job.spec, context.role_spec
    container: Manifest = {
        **outlined,
        "image": spec.image,
        **_pull_policy(context),
        **start_command(context),
        "env": environment(context),
    }
    if mounts := [*spec.volume_mounts, *_membership_mounts(context)]:
        container["volumeMounts"] = mounts
    if own.liveness_probe:
        container["livenessProbe"] = own.liveness_probe
    if own.readiness_probe:
        container["readinessProbe"] = own.readiness_probe
    if own.pre_stop_cmd:
        container["lifecycle"] = {"preStop": {"exec": {"command": _hook(own.pre_stop_cmd)}}}
    return container


def _pull_policy(context: PodContext) -> Manifest:
    """The job's pull policy, else upstream's: `Always` for trainers, Kubernetes' default for other roles."""
    policy = context.job.spec.image_pull_policy or ("Always" if context.is_trainer else "")
    return {"imagePullPolicy": policy} if policy else {}


def _membership_volumes(context: PodContext) -> list[Manifest]:
    source: dict[str, Any] = {"name": membership_name(context.job)}
    return [] if context.is_master else [{"name": MEMBERSHIP_VOLUME, "configMap": source}]


def _membership_mounts(context: PodContext) -> list[Manifest]:
    mount = {"name": MEMBERSHIP_VOLUME, "mountPath": MEMBERSHIP_PATH, "readOnly": True}
    return [] if context.is_master else [mount]


def _hook(written: tuple[str, ...] | str) -> list[str]:
    return shell(written) if isinstance(written, str) else list(written)
