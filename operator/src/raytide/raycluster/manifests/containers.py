"""Ports, shared memory, configured sidecars and the GCS wait container of Ray pods.

Steps of RC §3.1, §3.2 and §3.6, called by pods.py. `wait-gcs-ready` delays a worker until the GCS responds; it runs in
the Ray image and never gives up, because restarts by the kubelet would only lengthen the wait. Shared memory holds
Ray's object store, which otherwise falls back to disk.
"""

from dataclasses import replace
from typing import Final

from raytide.api import constants
from raytide.api.meta import Manifest
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, has_named, listed
from raytide.raycluster.manifests.ray_start import METRICS_PORT_PARAM, port_param

WAIT_GCS_READY: Final = "wait-gcs-ready"
SHARED_MEMORY: Final = "shared-mem"
SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - a mount point inside the pod
METRICS: Final = "metrics"

_WAIT_RESOURCES: Final = {"cpu": "200m", "memory": "256Mi"}
_QUIET_S: Final = 120
_PAUSE_S: Final = 5
_TROUBLESHOOTING: Final = "https://docs.ray.io/en/latest/cluster/kubernetes/troubleshooting/troubleshooting.html"


def add_wait_gcs_ready(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Wait for the GCS after the user's init containers, with env and mounts of the Ray container (RC:POD-17).

    An init container of that name in the template takes its place, with a command and resources of the user (FD:RC3-7).
    """
    if not context.config.is_init_container_injected or has_named(list(builder.init_containers), WAIT_GCS_READY):
        return builder
    waiting: Manifest = {
        "name": WAIT_GCS_READY,
        "command": context.shell,
        "args": [wait_script(context.gcs_address)],
        "env": listed(builder.ray, "env"),
        "volumeMounts": listed(builder.ray, "volumeMounts"),
        "resources": {"limits": dict(_WAIT_RESOURCES), "requests": dict(_WAIT_RESOURCES)},
    }
    inherited = {
        key: builder.ray[key] for key in ("image", "imagePullPolicy", "securityContext") if builder.ray.get(key)
    }
    return replace(builder, init_containers=(*builder.init_containers, {**waiting, **inherited}))


def wait_script(address: str) -> str:
    """Shell script that checks the GCS every five seconds; after two minutes it shows errors and a link to the docs."""
    return f"""\
ask_gcs() {{
  ray health-check --address {address}
}}
while true; do
  if [ "$SECONDS" -lt {_QUIET_S} ]; then
    ask_gcs >/dev/null 2>&1 && break
    echo "Waiting for the GCS at {address} (${{SECONDS}} s so far)."
  else
    ask_gcs && break
    echo "The GCS at {address} is not reachable after ${{SECONDS}} s. For possible causes see {_TROUBLESHOOTING}"
  fi
  sleep {_PAUSE_S}
done
echo "The GCS at {address} is ready."
"""


def add_metrics_port(builder: PodBuilder, _site: PodContext) -> PodBuilder:
    """Add a port named `metrics`, for monitoring that scrapes by port name (RC:POD-8)."""
    ports: list[Manifest] = listed(builder.ray, "ports")
    if has_named(ports, METRICS):
        return builder
    metrics = {"name": METRICS, "containerPort": _metrics_port(builder)}
    return replace(builder, ray={**builder.ray, "ports": [*ports, metrics]})


def _metrics_port(builder: PodBuilder) -> int:
    """KubeRay's; on the host network that of the parameter, because no two pods of a node may declare one port (FD:RC3-5)."""
    if not builder.other_fields.get("hostNetwork"):
        return constants.METRICS_PORT
    number = port_param(builder.ray_start_params, METRICS_PORT_PARAM, constants.METRICS_PORT)
    return number if 1 <= number <= 65535 else constants.METRICS_PORT


def add_configured_sidecars(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add the sidecars of the operator's settings, after all others (RC:POD-12, RC:POD-20)."""
    config = context.config
    added = config.head_sidecar_containers if context.is_head else config.worker_sidecar_containers
    return replace(builder, sidecars=(*builder.sidecars, *added))


def add_shared_memory(builder: PodBuilder, _site: PodContext) -> PodBuilder:
    """Mount a memory-backed `/dev/shm` as large as the container's memory, unless the user set one up (RC:VOL-1)."""
    mounts: list[Manifest] = listed(builder.ray, "volumeMounts")
    is_mounted = any(mount.get("mountPath", "").rstrip("/") == SHARED_MEMORY_PATH for mount in mounts)
    if is_mounted or "plasma-directory" in builder.ray_start_params:
        return builder
    mount = {"name": SHARED_MEMORY, "mountPath": SHARED_MEMORY_PATH}
    has_volume = has_named(list(builder.volumes), SHARED_MEMORY)
    volume = {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", **_size_limit(builder.ray)}}
    return replace(
        builder,
        ray={**builder.ray, "volumeMounts": [*mounts, mount]},
        volumes=builder.volumes if has_volume else (*builder.volumes, volume),
    )


def _size_limit(ray: Manifest) -> Manifest:
    resources = ray.get("resources") or {}
    for kind in ("limits", "requests"):
        memory = (resources.get(kind) or {}).get("memory")
        if memory is not None:
            return {"sizeLimit": memory}
    return {}
