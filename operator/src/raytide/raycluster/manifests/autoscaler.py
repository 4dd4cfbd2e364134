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
from raytide.raycluster.manifests.token_auth import with_token
from raytide.raycluster.spec_queries import AUTOSCALER_V2_ENV, has_env, needs_rays_autoscaler, ray_container

LOGS: Final = "ray-logs"
LOGS_PATH: Final = "/tmp/ray"  # noqa: S108 - a mount point inside the pod
TOKEN: Final = "autoscaler-token"  # noqa: S105 - a volume's name
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where clients look for one
TOKEN_LIFE_S: Final = 3600
IMAGE_USER: Final = {"runAsUser": 1000, "runAsGroup": 100}
"""User and group of the operator's image, which are those of Ray's images."""

HEALTH_PORT_VARIABLE: Final = "RAYTIDE_AUTOSCALER_HEALTH_PORT"
"""Read by the sidecar (autoscaler/sidecar/settings.py)."""

_OPTIONS: Final = "--cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
_RAYS_COMMAND: Final = f"ray kuberay-autoscaler {_OPTIONS}"
_OUR_COMMAND: Final = f"raytide autoscaler {_OPTIONS}"
_RESOURCES: Final = {"cpu": "500m", "memory": "512Mi"}


def chosen_autoscaler(cluster: RayCluster, config: AutoscalerConfig) -> AutoscalerMode:
    """The sidecar of this head: Raytide's, unless operator or cluster ask for Ray's, or its Ray version is too old."""
    return "ray" if needs_rays_autoscaler(cluster) else config.mode


# --- steps -----------------------------------------------------------------------------------------------------------


def add_autoscaler(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add the sidecar, its service account, and a Ray without its own monitor (RC:POD-6, RC:RSP-8)."""
    if not context.cluster.is_autoscaled:
        return builder
    is_ours = chosen_autoscaler(context.cluster, context.config.autoscaler) == "raytide"
    builder = replace(
        builder,
        ray_start_params={**builder.ray_start_params, "no-monitor": "true"},
        ray=add_env(builder.ray, _version_env(context, is_ours=is_ours)),
        sidecars=(*builder.sidecars, build_autoscaler(context, is_ours=is_ours)),
        other_fields={**builder.other_fields, "serviceAccountName": service_account_name(context.cluster)},
    )
    return _with_token(builder, context) if context.config.autoscaler.mode == "raytide" else builder


def set_restart_policy(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """With an explicit v2, forbid container restarts: they would create a new Ray node (RC:POD-6, RC:POD-19)."""
    options = context.cluster.spec.autoscaler_options
    if not context.cluster.is_autoscaled or options is None or options.version != "v2":
        return builder
    return replace(builder, other_fields={**builder.other_fields, "restartPolicy": "Never"})


def make_restartable(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """With restartPolicy Never, run Raytide's autoscaler as a native sidecar, which the kubelet restarts all the same (D27)."""
    config = context.config.autoscaler
    is_ours = context.cluster.is_autoscaled and chosen_autoscaler(context.cluster, config) == "raytide"
    if not (is_ours and config.has_native_sidecars and builder.other_fields.get("restartPolicy") == "Never"):
        return builder
    index = _position(builder)
    before, autoscaler, after = builder.sidecars[:index], builder.sidecars[index], builder.sidecars[index + 1 :]
    return replace(
        builder,
        sidecars=(*before, *after),
        init_containers=(*builder.init_containers, {**autoscaler, "restartPolicy": "Always"}),
    )


def add_shared_logs(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Share `/tmp/ray` between both containers, except where the user mounted a volume there (RC:VOL-2)."""
    if not context.is_head or not context.cluster.is_autoscaled:
        return builder
    index = _position(builder)
    before, autoscaler, after = builder.sidecars[:index], builder.sidecars[index], builder.sidecars[index + 1 :]
    ray, autoscaler = _with_logs(builder.ray), _with_logs(autoscaler)
    is_used = any(mount.get("name") == LOGS for each in (ray, autoscaler) for mount in listed(each, "volumeMounts"))
    volume: Manifest = {"name": LOGS, "emptyDir": {}}
    has_volume = not is_used or has_named(list(builder.volumes), LOGS)
    return replace(
        builder,
        ray=ray,
        sidecars=(*before, autoscaler, *after),
        volumes=builder.volumes if has_volume else (*builder.volumes, volume),
    )


def _position(builder: PodBuilder) -> int:
    """The autoscaler among the sidecars: the last of that name, because the API server will reject a user's."""
    return max(
        i for i, container in enumerate(builder.sidecars) if container.get("name") == constants.AUTOSCALER_CONTAINER
    )


def _with_logs(container: Manifest) -> Manifest:
    mounts: list[Manifest] = listed(container, "volumeMounts")
    if any(mount.get("mountPath", "").rstrip("/") == LOGS_PATH for mount in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, {"name": LOGS, "mountPath": LOGS_PATH}]}


# --- the Ray container -----------------------------------------------------------------------------------------------


def _version_env(context: PodContext, *, is_ours: bool) -> tuple[Manifest, ...]:
    """The variable that tells the GCS and `ray status` which autoscaler to expect: that of `autoscalerOptions.version`.

    Without a version Ray uses its default, V2 since 2.47. Raytide's autoscaler supports only V2 and therefore sets the
    variable unless the template does, because the image's Ray version may differ from that of the spec.
    """
    options = context.cluster.spec.autoscaler_options
    version = options.version if options is not None else ""
    if version in ("v1", "v2"):
        return (build_literal(AUTOSCALER_V2_ENV, "true" if version == "v2" else "false"),)
    is_set_by_user = has_env(context.cluster.spec.head_group_spec.template, AUTOSCALER_V2_ENV)
    return (build_literal(AUTOSCALER_V2_ENV, "true"),) if is_ours and not is_set_by_user else ()


# --- the sidecar -----------------------------------------------------------------------------------------------------


def build_autoscaler(context: PodContext, *, is_ours: bool) -> Manifest:
    """The sidecar container, with `autoscalerOptions` applied over it (RC §3.7, RC:AS-1)."""
    options = context.cluster.spec.autoscaler_options or AutoscalerOptions()
    container = with_token(_ours(context, options) if is_ours else _rays(context), context.cluster, context.config)
    container["env"] += [dict(variable) for variable in options.env]
    chosen: Manifest = {
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy,
        "command": list(options.command),
        "args": list(options.args),
        "envFrom": list(options.env_from),
        "volumeMounts": [*listed(container, "volumeMounts"), *options.volume_mounts],
    }
    given: Manifest = {"resources": options.resources, "securityContext": options.security_context}
    return {
        **container,
        **{key: value for key, value in chosen.items() if value},
        **{key: value for key, value in given.items() if value is not None},
    }


def _rays(context: PodContext) -> Manifest:
    """Ray's autoscaler, as KubeRay runs it."""
    return {
        "name": constants.AUTOSCALER_CONTAINER,
        "image": context.group.template["spec"]["containers"][0].get("image", ""),
        "imagePullPolicy": "IfNotPresent",
        "command": context.shell,
        "args": [_RAYS_COMMAND],
        "env": _env(_RAYS_COMMAND),
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
    }


def _ours(context: PodContext, options: AutoscalerOptions) -> Manifest:
    """Raytide's autoscaler as the container's first process, which supervises itself."""
    is_port_elsewhere = bool(options.env_from) and not has_named(list(options.env), HEALTH_PORT_VARIABLE)
    default_port = build_literal(HEALTH_PORT_VARIABLE, str(constants.AUTOSCALER_HEALTH_PORT))
    return {
        "name": constants.AUTOSCALER_CONTAINER,
        "image": context.config.autoscaler.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["raytide", "autoscaler"],
        "args": _OPTIONS.split(),
        "env": [
            *_env(_OUR_COMMAND),
            build_literal("RAYTIDE_OPERATOR_VERSION", context.config.operator_version),
            build_literal("RAYTIDE_GCS_ADDRESS", f"127.0.0.1:{context.gcs_port}"),
            *([default_port] if is_port_elsewhere else []),  # takes effect over envFrom, which the probe cannot follow
        ],
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
        **_liveness_probe(options),
        "securityContext": _unprivileged(context),
    }


def _liveness_probe(options: AutoscalerOptions) -> Manifest:
    """The probe at the port that the sidecar listens on (FD:RC3-5); none if it is disabled or only the kubelet can read it.

    It is lenient: with restartPolicy Never a killed container stays down, unless it is a native sidecar (`make_restartable`).
    """
    port = _health_port(options)
    if port is None:
        return {}
    times = {"initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 12}
    return {"livenessProbe": {"httpGet": {"path": "/healthz", "port": port}, **times}}


def _health_port(options: AutoscalerOptions) -> int | None:
    """The port of the variable, of which the last takes effect; None for 0 and for a value that is not written out."""
    given = [variable for variable in options.env if variable.get("name") == HEALTH_PORT_VARIABLE]
    if given and given[-1].get("valueFrom"):
        return None
    text = str(given[-1].get("value") or "").strip() if given else ""
    if not text:
        return constants.AUTOSCALER_HEALTH_PORT
    is_port = text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535
    return int(text) if is_port else None


def _env(command: str) -> list[Manifest]:
    """The cluster's identity, in KubeRay's order; variables of the user come after it."""
    return [
        build_field("RAY_CLUSTER_NAME", f"metadata.labels['{constants.CLUSTER_LABEL}']"),
        build_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        build_field("RAY_HEAD_POD_NAME", "metadata.name"),
        build_literal("KUBERAY_CRD_VER", "v1"),
        build_literal("KUBERAY_GEN_AUTOSCALER_START_CMD", command),
    ]


def _unprivileged(context: PodContext) -> Manifest:
    """Security context of a non-root container without privileges.

    The user is that of the Ray container where the template sets one there: only Ray's user may write to the folder from
    which drivers get the autoscaler's messages. Otherwise it stays unset, because the images have the same user and
    OpenShift assigns its own; root at pod level is overridden. A user without a group gets that of the images: container
    runtimes take the group from the image's /etc/passwd, and run a user that is not in it with group 0.
    """
    template: Manifest = context.group.template["spec"]
    given: Manifest = ray_container(context.group.template).get("securityContext") or {}
    user: Manifest = {key: given[key] for key in IMAGE_USER if given.get("runAsUser") and given.get(key) is not None}
    pod: Manifest = template.get("securityContext") or {}
    if not user and pod.get("runAsUser") == 0:
        user = IMAGE_USER
    elif (user or pod.get("runAsUser")) and user.get("runAsGroup", pod.get("runAsGroup")) is None:
        user = {**user, "runAsGroup": IMAGE_USER["runAsGroup"]}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **user,
    }


def _with_token(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Mount the API token in the sidecar only: Ray runs user code, which must not scale anything (SE:C22).

    If the template names a service account or sets `automountServiceAccountToken`, default mounts are left as they are.
    """
    *others, autoscaler = builder.sidecars
    mounts: list[Manifest] = listed(autoscaler, "volumeMounts")
    if any(mount.get("mountPath", "").rstrip("/") == TOKEN_PATH for mount in mounts):
        return builder
    mount = {"name": TOKEN, "mountPath": TOKEN_PATH, "readOnly": True}
    given: Manifest = context.group.template["spec"]
    is_left_alone = bool(given.get("serviceAccountName")) or given.get("automountServiceAccountToken") is not None
    other_fields = (
        builder.other_fields if is_left_alone else {**builder.other_fields, "automountServiceAccountToken": False}
    )
    return replace(
        builder,
        sidecars=(*others, {**autoscaler, "volumeMounts": [mount, *mounts]}),
        volumes=(*builder.volumes, _token_volume()),
        other_fields=other_fields,
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
