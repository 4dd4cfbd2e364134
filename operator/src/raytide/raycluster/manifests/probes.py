"""Liveness and readiness probes of the Ray container.

A step of pods.py that adds each probe only where the user set none (RC §3.6, RC:PRB-1 to RC:PRB-4). Ray 2.53 and newer
serve one HTTP health endpoint; older versions are checked inside the container, by `wget` or Python: the raylet, and on
the head the GCS too.
"""

import shlex
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
_GET: Final = (
    "from sys import argv; from urllib.request import ProxyHandler, build_opener; "
    "print(build_opener(ProxyHandler({})).open(argv[1], timeout=int(argv[2])).read().decode())"
)
_NOT_FOUND: Final = 127
"""Exit code of a shell for a program that does not exist."""


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
        probes["readinessProbe"] = {**_serve_check(builder, context), **timeout, **_READINESS, "failureThreshold": 1}
    missing = {kind: probe for kind, probe in probes.items() if not builder.ray.get(kind)}
    return replace(builder, ray={**builder.ray, **missing})


def _health_check(builder: PodBuilder, context: PodContext) -> Manifest:
    if _has_healthz(context):
        return _http_get(_agent_port(builder), "/api/healthz")
    if not context.is_head:
        return _all_of(_raylet(builder))
    dashboard_port = port_param(builder.ray_start_params, DASHBOARD_PORT_PARAM, constants.DASHBOARD_PORT)
    return _all_of(_raylet(builder), _ask(dashboard_port, "api/gcs_healthz", _GCS_TIMEOUT_S))


def _serve_check(builder: PodBuilder, context: PodContext) -> Manifest:
    """Readiness of a RayService worker: raylet and Serve proxy are healthy (RC:PRB-3).

    From Ray 2.53 on only the proxy is checked, by the kubelet, because images may have no `wget` (FD:RC3-8): the proxy ends
    with its raylet, which the liveness probe checks.
    """
    ports = {port.get("name"): port["containerPort"] for port in listed(builder.ray, "ports")}
    port, path = ports.get("serve", constants.SERVE_PORT), "-/healthz"
    if _has_healthz(context):
        return _http_get(port, f"/{path}")
    return _all_of(_raylet(builder), _ask(port, path, _GCS_TIMEOUT_S))


def _has_healthz(context: PodContext) -> bool:
    return is_at_least(context.cluster.spec.ray_version, _HEALTHZ_SINCE)


def _http_get(port: int, path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": port}}


def _raylet(builder: PodBuilder) -> str:
    return _ask(_agent_port(builder), "api/local_raylet_healthz", _RAYLET_TIMEOUT_S)


def _agent_port(builder: PodBuilder) -> int:
    return port_param(builder.ray_start_params, AGENT_PORT_PARAM, constants.DASHBOARD_AGENT_PORT)


def _ask(port: int, path: str, timeout_s: int) -> str:
    """A shell command that succeeds if the answer contains `success`; Python asks where the image has no `wget`."""
    url = f"http://localhost:{port}/{path}"
    by_wget = f"wget --tries 1 -T {timeout_s} -q -O- {url}"
    by_python = f"python3 -c {shlex.quote(_GET)} {url} {timeout_s}"
    return f"({by_wget} || [ $? -ne {_NOT_FOUND} ] || {by_python}) | grep success"


def _all_of(*checks: str) -> Manifest:
    return {"exec": {"command": ["bash", "-c", " && ".join(checks)]}}
