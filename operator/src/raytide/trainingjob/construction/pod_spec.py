"""What stands in the spec of a job's pod, before the user's template?

Begins with the part that schedulers read (api/job_shape.py) and adds what runs: image, command, environment, ports,
mounts, probes, hooks. Volumes and mounts go to all three roles, where upstream forgot some (TJ §2.2); pods never restart
their containers, because the job decides what a failure means. Called by objects.py.
"""

from typing import Any, Final

from raytide.api.job_shape import scheduling_spec
from raytide.api.meta import Manifest
from raytide.api.template_merge import merged_entries
from raytide.trainingjob.construction.addresses import ETCD_PORT, MASTER_PORT, membership_name, pod_name, service_name
from raytide.trainingjob.construction.commands import shell, start_command
from raytide.trainingjob.construction.environment import MEMBERSHIP_PATH, environment
from raytide.trainingjob.construction.etcd import build_etcd, etcd_volumes
from raytide.trainingjob.construction.site import Site

MEMBERSHIP_VOLUME: Final = "raytide-membership"


def build_pod_spec(site: Site) -> Manifest:
    """The spec; a template is laid over it afterwards."""
    spec = site.job.spec
    outline = scheduling_spec(site.job, site.role)
    main, *beside = outline["containers"]
    built: Manifest = {
        **outline,
        "restartPolicy": "Never",
        "hostname": pod_name(site.job, site.role, site.index),
        "subdomain": service_name(site.job),
        "containers": [_main_container(site, main), *(build_etcd(site, etcd) for etcd in beside)],
    }
    if volumes := [*spec.volumes, *_membership_volumes(site), *etcd_volumes(site)]:
        built["volumes"] = volumes
    if spec.host_network:
        # Without it a pod on the host's network asks the host's name server, which knows no pods.
        built["dnsPolicy"] = "ClusterFirstWithHostNet"
    if secrets := merged_entries(spec.image_pull_secrets, site.said.image_pull_secrets, "name"):
        built["imagePullSecrets"] = secrets
    if site.said.grace_period_seconds is not None:
        built["terminationGracePeriodSeconds"] = site.said.grace_period_seconds
    return built


def _main_container(site: Site, outlined: Manifest) -> Manifest:
    spec, said = site.job.spec, site.said
    container: Manifest = {
        **outlined,
        "image": spec.image,
        **_pull_policy(site),
        **start_command(site),
        "ports": ports(site),
        "env": environment(site),
    }
    if mounts := [*spec.volume_mounts, *_membership_mounts(site)]:
        container["volumeMounts"] = mounts
    if said.liveness_probe:
        container["livenessProbe"] = said.liveness_probe
    if said.readiness_probe:
        container["readinessProbe"] = said.readiness_probe
    if said.pre_stop_cmd:
        container["lifecycle"] = {"preStop": {"exec": {"command": _hook(said.pre_stop_cmd)}}}
    return container


def ports(site: Site) -> list[Manifest]:
    """The master's two, or those of the job (TJ §2.2)."""
    if not site.is_master:
        return list(site.of.job_ports)
    etcd = [{"name": "etcd-port", "containerPort": ETCD_PORT}] if site.is_launched else []
    return [{"name": "master-port", "containerPort": MASTER_PORT}, *etcd]


def _pull_policy(site: Site) -> Manifest:
    """As the job says; else upstream's: trainers always pull, others leave it to Kubernetes."""
    policy = site.job.spec.image_pull_policy or ("Always" if site.is_trainer else "")
    return {"imagePullPolicy": policy} if policy else {}


def _membership_volumes(site: Site) -> list[Manifest]:
    source: dict[str, Any] = {"name": membership_name(site.job)}
    return [] if site.is_master else [{"name": MEMBERSHIP_VOLUME, "configMap": source}]


def _membership_mounts(site: Site) -> list[Manifest]:
    mount = {"name": MEMBERSHIP_VOLUME, "mountPath": MEMBERSHIP_PATH, "readOnly": True}
    return [] if site.is_master else [mount]


def _hook(written: tuple[str, ...] | str) -> list[str]:
    return shell(written) if isinstance(written, str) else list(written)
