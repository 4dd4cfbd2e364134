"""The autoscaler sidecar of a head pod.

Steps of RC §3.1 (POD-6, POD-19), §3.6 (VOL-2) and §3.7, called by pods.py; they change nothing without
`enableInTreeAutoscaling`. The sidecar is either Raytide's, from the operator's image (D12), or Ray's, from the head's
image and exactly as KubeRay runs it; `chosen_autoscaler` selects it. Only the sidecar's container gets the API token,
unless the operator is configured for Ray's autoscaler. Raytide's runs unprivileged and writes only to `/tmp/ray`.
"""

from dataclasses import replace
from typing import Final

from raytide.api import constants
from raytide.api.config import AutoscalerConfig, AutoscalerMode
from raytide.api.meta import Manifest
from raytide.api.raycluster import AutoscalerOptions, RayCluster
from raytide.raycluster.manifests.environment import add_env, build_field, build_literal
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, has_named, listed
from raytide.raycluster.manifests.rbac import service_account_name
from raytide.raycluster.spec_queries import AUTOSCALER_V2_ENV, has_env, needs_rays_autoscaler

LOGS: Final = "ray-logs"
LOGS_PATH: Final = "/tmp/ray"  # noqa: S108 - a mount point inside the pod
TOKEN: Final = "autoscaler-token"  # noqa: S105 - a volume's name
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where clients look for one
TOKEN_LIFE_S: Final = 3600
OUR_USER: Final = 65532
"""User id in the operator's image."""

_OPTIONS: Final = "--cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
_RAYS_COMMAND: Final = f"ray kuberay-autoscaler {_OPTIONS}"
_OUR_COMMAND: Final = f"raytide autoscaler {_OPTIONS}"
_RESOURCES: Final = {"cpu": "500m", "memory": "512Mi"}


def chosen_autoscaler(cluster: RayCluster, config: AutoscalerConfig) -> AutoscalerMode:
    """The sidecar of this head: Raytide's, unless operator or cluster ask for Ray's, or its Ray version is too old."""
    return "ray" if needs_rays_autoscaler(cluster) else config.mode


# --- steps -----------------------------------------------------------------------------------------------------------


def add_autoscaler(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Add the sidecar, its service account, and a Ray without its own monitor (RC:POD-6, RC:RSP-8)."""
    if not site.cluster.is_autoscaled:
        return draft
    is_ours = chosen_autoscaler(site.cluster, site.config.autoscaler) == "raytide"
    draft = replace(
        draft,
        ray_start_params={**draft.ray_start_params, "no-monitor": "true"},
        ray=add_env(draft.ray, _version_env(site, is_ours=is_ours)),
        sidecars=(*draft.sidecars, build_autoscaler(site, is_ours=is_ours)),
        rest={**draft.rest, "serviceAccountName": service_account_name(site.cluster)},
    )
    return _with_token(draft, site) if site.config.autoscaler.mode == "raytide" else draft


def set_restart_policy(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """With an explicit v2, forbid container restarts: they would create a new Ray node (RC:POD-6, RC:POD-19)."""
    options = site.cluster.spec.autoscaler_options
    if not site.cluster.is_autoscaled or options is None or options.version != "v2":
        return draft
    return replace(draft, rest={**draft.rest, "restartPolicy": "Never"})


def add_shared_logs(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Share `/tmp/ray` between both containers, except where the user mounted a volume there (RC:VOL-2)."""
    if not site.is_head or not site.cluster.is_autoscaled:
        return draft
    # The last one: the user's template may have a container of that name too, which the API server will reject.
    index = max(
        i for i, container in enumerate(draft.sidecars) if container.get("name") == constants.AUTOSCALER_CONTAINER
    )
    before, autoscaler, after = draft.sidecars[:index], draft.sidecars[index], draft.sidecars[index + 1 :]
    ray, autoscaler = _with_logs(draft.ray), _with_logs(autoscaler)
    is_used = any(mount.get("name") == LOGS for each in (ray, autoscaler) for mount in listed(each, "volumeMounts"))
    volume: Manifest = {"name": LOGS, "emptyDir": {}}
    has_volume = not is_used or has_named(list(draft.volumes), LOGS)
    return replace(
        draft,
        ray=ray,
        sidecars=(*before, autoscaler, *after),
        volumes=draft.volumes if has_volume else (*draft.volumes, volume),
    )


def _with_logs(container: Manifest) -> Manifest:
    mounts: list[Manifest] = listed(container, "volumeMounts")
    if any(mount.get("mountPath", "").rstrip("/") == LOGS_PATH for mount in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, {"name": LOGS, "mountPath": LOGS_PATH}]}


# --- the Ray container -----------------------------------------------------------------------------------------------


def _version_env(site: PodContext, *, is_ours: bool) -> tuple[Manifest, ...]:
    """The variable that tells the GCS and `ray status` which autoscaler to expect: that of `autoscalerOptions.version`.

    Without a version Ray uses its default, V2 since 2.47. Raytide's autoscaler supports only V2 and therefore sets the
    variable unless the template does, because the image's Ray version may differ from that of the spec.
    """
    options = site.cluster.spec.autoscaler_options
    version = options.version if options is not None else ""
    if version in ("v1", "v2"):
        return (build_literal(AUTOSCALER_V2_ENV, "true" if version == "v2" else "false"),)
    is_told = has_env(site.cluster.spec.head_group_spec.template, AUTOSCALER_V2_ENV)
    return (build_literal(AUTOSCALER_V2_ENV, "true"),) if is_ours and not is_told else ()


# --- the sidecar -----------------------------------------------------------------------------------------------------


def build_autoscaler(site: PodContext, *, is_ours: bool) -> Manifest:
    """The sidecar container, with `autoscalerOptions` applied over it (RC §3.7, RC:AS-1)."""
    options = site.cluster.spec.autoscaler_options or AutoscalerOptions()
    container = _ours(site) if is_ours else _rays(site)
    container["env"] += [dict(variable) for variable in options.env]
    chosen: Manifest = {
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy,
        "command": list(options.command),
        "args": list(options.args),
        "envFrom": list(options.env_from),
        "volumeMounts": list(options.volume_mounts),
    }
    given: Manifest = {"resources": options.resources, "securityContext": options.security_context}
    return {
        **container,
        **{key: value for key, value in chosen.items() if value},
        **{key: value for key, value in given.items() if value is not None},
    }


def _rays(site: PodContext) -> Manifest:
    """Ray's autoscaler, as KubeRay runs it."""
    return {
        "name": constants.AUTOSCALER_CONTAINER,
        "image": site.group.template["spec"]["containers"][0].get("image", ""),
        "imagePullPolicy": "IfNotPresent",
        "command": site.shell,
        "args": [_RAYS_COMMAND],
        "env": _env(_RAYS_COMMAND),
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
    }


def _ours(site: PodContext) -> Manifest:
    """Raytide's autoscaler as the container's first process.

    It supervises itself, and the liveness probe is lenient: with restartPolicy Never a killed container stays down.
    """
    return {
        "name": constants.AUTOSCALER_CONTAINER,
        "image": site.config.autoscaler.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["raytide", "autoscaler"],
        "args": _OPTIONS.split(),
        "env": [
            *_env(_OUR_COMMAND),
            build_literal("RAYTIDE_OPERATOR_VERSION", site.config.operator_version),
            build_literal("RAYTIDE_GCS_ADDRESS", f"127.0.0.1:{site.gcs_port}"),
        ],
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": constants.AUTOSCALER_HEALTH_PORT},
            "initialDelaySeconds": 30,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 12,
        },
        "securityContext": _unprivileged(site),
    }


def _env(command: str) -> list[Manifest]:
    """The cluster's identity, in KubeRay's order; variables of the user come after it."""
    return [
        build_field("RAY_CLUSTER_NAME", f"metadata.labels['{constants.CLUSTER_LABEL}']"),
        build_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        build_field("RAY_HEAD_POD_NAME", "metadata.name"),
        build_literal("KUBERAY_CRD_VER", "v1"),
        build_literal("KUBERAY_GEN_AUTOSCALER_START_CMD", command),
    ]


def _unprivileged(site: PodContext) -> Manifest:
    """Security context of a non-root container without privileges.

    `runAsUser` stays unset, because the image sets it and OpenShift assigns its own; only a pod-level `runAsUser: 0` is
    overridden.
    """
    pod_context: Manifest = site.group.template["spec"].get("securityContext") or {}
    user: Manifest = {"runAsUser": OUR_USER, "runAsGroup": OUR_USER} if pod_context.get("runAsUser") == 0 else {}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **user,
    }


def _with_token(draft: PodBuilder, site: PodContext) -> PodBuilder:
    """Mount the API token in the sidecar only: Ray runs user code, which must not scale anything (SE:C22).

    If the template names a service account or sets `automountServiceAccountToken`, default mounts are left as they are.
    """
    *others, autoscaler = draft.sidecars
    mounts: list[Manifest] = listed(autoscaler, "volumeMounts")
    if any(mount.get("mountPath", "").rstrip("/") == TOKEN_PATH for mount in mounts):
        return draft
    mount = {"name": TOKEN, "mountPath": TOKEN_PATH, "readOnly": True}
    given: Manifest = site.group.template["spec"]
    is_left_alone = bool(given.get("serviceAccountName")) or given.get("automountServiceAccountToken") is not None
    rest = draft.rest if is_left_alone else {**draft.rest, "automountServiceAccountToken": False}
    return replace(
        draft,
        sidecars=(*others, {**autoscaler, "volumeMounts": [mount, *mounts]}),
        volumes=(*draft.volumes, _token_volume()),
        rest=rest,
    )


def _token_volume() -> Manifest:
    """The volume that Kubernetes mounts by default: a one-hour token bound to the pod and renewed by the kubelet."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[Manifest] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_LIFE_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": TOKEN, "projected": {"sources": sources}}
