"""Liveness and readiness probes of the Ray container.

A step of pods.py that adds each probe only where the user set none (RC §3.6, RC:PRB-1 to RC:PRB-4). Ray 2.53 and newer
serve one HTTP health endpoint; older versions are checked by `wget` inside the container: the raylet, and on the head
the GCS too.
"""

from dataclasses import replace
from typing import Final

from raytide.api import constants
from raytide.api.meta import Manifest
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, listed
from raytide.raycluster.manifests.ray_start import AGENT_PORT_PARAM, DASHBOARD_PORT_PARAM, port_param
from raytide.raycluster.spec_queries import is_at_least

_HEALTHZ_SINCE: Final = (2, 53, 0)
_LIVENESS: Final = {"initialDelaySeconds": 30, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 120}
_READINESS: Final = {"initialDelaySeconds": 10, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 10}
_RAYLET_TIMEOUT_S: Final = 2
_GCS_TIMEOUT_S: Final = 10


def add_probes(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add both probes, unless switched off or set by the user."""
    if not context.config.is_probe_injected:
        return builder
    timeout = {"timeoutSeconds": 5 if context.is_head else 2}
    check = _health_check(builder, context)
    probes: Manifest = {
        "livenessProbe": {**check, **timeout, **_LIVENESS},
        "readinessProbe": {**check, **timeout, **_READINESS},
    }
    if context.is_ray_service and not context.is_head:
        probes["readinessProbe"] = {**_serve_check(builder), **timeout, **_READINESS, "failureThreshold": 1}
    missing = {kind: probe for kind, probe in probes.items() if not builder.ray.get(kind)}
    return replace(builder, ray={**builder.ray, **missing})


def _health_check(builder: PodBuilder, context: PodContext) -> Manifest:
    if is_at_least(context.cluster.spec.ray_version, _HEALTHZ_SINCE):
        return {"httpGet": {"path": "/api/healthz", "port": _agent_port(builder)}}
    if not context.is_head:
        return _all_of(_raylet(builder))
    dashboard_port = port_param(builder.ray_start_params, DASHBOARD_PORT_PARAM, constants.DASHBOARD_PORT)
    return _all_of(_raylet(builder), _ask(dashboard_port, "api/gcs_healthz", _GCS_TIMEOUT_S))


def _serve_check(builder: PodBuilder) -> Manifest:
    """Readiness of a RayService worker: raylet and Serve proxy are healthy (RC:PRB-3)."""
    ports = {port.get("name"): port["containerPort"] for port in listed(builder.ray, "ports")}
    return _all_of(_raylet(builder), _ask(ports.get("serve", constants.SERVE_PORT), "-/healthz", _GCS_TIMEOUT_S))


def _raylet(builder: PodBuilder) -> str:
    return _ask(_agent_port(builder), "api/local_raylet_healthz", _RAYLET_TIMEOUT_S)


def _agent_port(builder: PodBuilder) -> int:
    return port_param(builder.ray_start_params, AGENT_PORT_PARAM, constants.DASHBOARD_AGENT_PORT)


def _ask(port: int, path: str, timeout_s: int) -> str:
    return f"wget --tries 1 -T {timeout_s} -q -O- http://localhost:{port}/{path} | grep success"


def _all_of(*checks: str) -> Manifest:
    return {"exec": {"command": ["bash", "-c", " && ".join(checks)]}}
