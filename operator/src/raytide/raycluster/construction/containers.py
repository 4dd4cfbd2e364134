"""What else do a Ray pod's containers need: ports, shared memory, sidecars and somebody who waits for the head?

Steps of RC §3.1, §3.2 and §3.6. `wait-gcs-ready` keeps a worker from starting before the GCS answers; it runs in the Ray
image and gives up never, because the kubelet's restarts would only make the wait longer. Shared memory is Ray's object
store: without it Ray falls back to the disk.
"""

from dataclasses import replace
from typing import Final

from raytide.api import names
from raytide.api.meta import Manifest
from raytide.raycluster.construction.draft import Draft, Site, has_named, listed

WAIT_GCS_READY: Final = "wait-gcs-ready"
SHARED_MEMORY: Final = "shared-mem"
SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - a mount point inside the pod
METRICS: Final = "metrics"

_WAIT_RESOURCES: Final = {"cpu": "200m", "memory": "256Mi"}
_QUIET_S: Final = 120
_PAUSE_S: Final = 5
_TROUBLESHOOTING: Final = "https://docs.ray.io/en/latest/cluster/kubernetes/troubleshooting/troubleshooting.html"


def add_wait_gcs_ready(draft: Draft, site: Site) -> Draft:
    """Wait for the GCS after the user's init containers, with the user's own env and mounts (RC:POD-17)."""
    if not site.config.is_init_container_injected:
        return draft
    waiting: Manifest = {
        "name": WAIT_GCS_READY,
        "command": site.shell,
        "args": [wait_script(site.gcs_address)],
        "env": listed(draft.ray, "env"),
        "volumeMounts": listed(draft.ray, "volumeMounts"),
        "resources": {"limits": dict(_WAIT_RESOURCES), "requests": dict(_WAIT_RESOURCES)},
    }
    inherited = {key: draft.ray[key] for key in ("image", "imagePullPolicy", "securityContext") if draft.ray.get(key)}
    return replace(draft, init_containers=(*draft.init_containers, {**waiting, **inherited}))


def wait_script(address: str) -> str:
    """Ask the GCS every five seconds; keep quiet at first, then show its answers and where to read on."""
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
    echo "No GCS at {address} after ${{SECONDS}} s. What may be wrong: {_TROUBLESHOOTING}"
  fi
  sleep {_PAUSE_S}
done
echo "The GCS at {address} is ready."
"""


def add_metrics_port(draft: Draft, _site: Site) -> Draft:
    """A port named `metrics`, for whoever scrapes by name (RC:POD-8)."""
    ports: list[Manifest] = listed(draft.ray, "ports")
    if has_named(ports, METRICS):
        return draft
    metrics = {"name": METRICS, "containerPort": names.METRICS_PORT}
    return replace(draft, ray={**draft.ray, "ports": [*ports, metrics]})


def add_configured_sidecars(draft: Draft, site: Site) -> Draft:
    """Containers from the operator's settings, after all others (RC:POD-12, RC:POD-20)."""
    config = site.config
    added = config.head_sidecar_containers if site.is_head else config.worker_sidecar_containers
    return replace(draft, sidecars=(*draft.sidecars, *added))


def add_shared_memory(draft: Draft, _site: Site) -> Draft:
    """Memory-backed `/dev/shm` as large as the container may be, unless the user arranged one (RC:VOL-1)."""
    mounts: list[Manifest] = listed(draft.ray, "volumeMounts")
    is_mounted = any(mount.get("mountPath", "").rstrip("/") == SHARED_MEMORY_PATH for mount in mounts)
    if is_mounted or "plasma-directory" in draft.ray_start_params:
        return draft
    mount = {"name": SHARED_MEMORY, "mountPath": SHARED_MEMORY_PATH}
    has_volume = has_named(list(draft.volumes), SHARED_MEMORY)
    volume = {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", **_size_limit(draft.ray)}}
    return replace(
        draft,
        ray={**draft.ray, "volumeMounts": [*mounts, mount]},
        volumes=draft.volumes if has_volume else (*draft.volumes, volume),
    )


def _size_limit(ray: Manifest) -> Manifest:
    resources = ray.get("resources") or {}
    for kind in ("limits", "requests"):
        memory = (resources.get(kind) or {}).get("memory")
        if memory is not None:
            return {"sizeLimit": memory}
    return {}
