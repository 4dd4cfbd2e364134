"""What does a head pod need so that an autoscaler runs beside Ray?

Steps of RC §3.1 (POD-6, POD-19), §3.6 (VOL-2) and §3.7 that change nothing in a cluster without `enableInTreeAutoscaling`.
Two programs can run there: our own, from the operator's image (D12), or Ray's, from the head's image and exactly as KubeRay
runs it; `chosen_autoscaler` says which. Either alone holds the API token, unless the install says that Ray's is the rule;
ours runs without any privilege and writes nowhere but to `/tmp/ray`. Steps of pods.py; rbac.py asks whose program it is.
"""

from dataclasses import replace
from typing import Final

from raytide.api import names
from raytide.api.config import AutoscalerConfig, AutoscalerMode
from raytide.api.meta import Manifest
from raytide.api.raycluster import AutoscalerOptions, RayCluster
from raytide.raycluster.construction.draft import Draft, Site, has_named, listed
from raytide.raycluster.construction.environment import add_env, build_field, build_literal
from raytide.raycluster.rbac import service_account_name
from raytide.raycluster.validation_facts import AUTOSCALER_V2_ENV, has_env, needs_rays_autoscaler

LOGS: Final = "ray-logs"
LOGS_PATH: Final = "/tmp/ray"  # noqa: S108 - a mount point inside the pod
TOKEN: Final = "autoscaler-token"  # noqa: S105 - a volume's name
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where clients look for one
TOKEN_LIFE_S: Final = 3600
OUR_USER: Final = 65532
"""Who runs in our image."""

_OPTIONS: Final = "--cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
_RAYS_COMMAND: Final = f"ray kuberay-autoscaler {_OPTIONS}"
_OUR_COMMAND: Final = f"raytide autoscaler {_OPTIONS}"
_RESOURCES: Final = {"cpu": "500m", "memory": "512Mi"}


def chosen_autoscaler(cluster: RayCluster, config: AutoscalerConfig) -> AutoscalerMode:
    """Whose program runs beside this head: ours, unless the install or the cluster asks for Ray's, or its Ray is too old."""
    return "ray" if needs_rays_autoscaler(cluster) else config.mode


# --- steps -----------------------------------------------------------------------------------------------------------


def add_autoscaler(draft: Draft, site: Site) -> Draft:
    """The sidecar, the account it acts under, and a Ray that leaves scaling to it (RC:POD-6, RC:RSP-8)."""
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


def set_restart_policy(draft: Draft, site: Site) -> Draft:
    """Under an explicit v2 no container of a Ray pod starts twice: a node that ended is another node (RC:POD-6, RC:POD-19)."""
    options = site.cluster.spec.autoscaler_options
    if not site.cluster.is_autoscaled or options is None or options.version != "v2":
        return draft
    return replace(draft, rest={**draft.rest, "restartPolicy": "Never"})


def add_shared_logs(draft: Draft, site: Site) -> Draft:
    """`/tmp/ray` in both containers, each unless the user mounted something there (RC:VOL-2)."""
    if not site.is_head or not site.cluster.is_autoscaled:
        return draft
    # From the end: the user's template may have a container of that name too, which the API server will refuse.
    index = max(i for i, container in enumerate(draft.sidecars) if container.get("name") == names.AUTOSCALER_CONTAINER)
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


def _version_env(site: Site, *, is_ours: bool) -> tuple[Manifest, ...]:
    """Which autoscaler the GCS and `ray status` expect: as the version says.

    Without a version it is what Ray takes for itself, V2 from 2.47 on. Our own speaks V2 only and so Ray is told, because
    the version in the spec need not be that of the image.
    """
    options = site.cluster.spec.autoscaler_options
    version = options.version if options is not None else ""
    if version in ("v1", "v2"):
        return (build_literal(AUTOSCALER_V2_ENV, "true" if version == "v2" else "false"),)
    is_told = has_env(site.cluster.spec.head_group_spec.template, AUTOSCALER_V2_ENV)
    return (build_literal(AUTOSCALER_V2_ENV, "true"),) if is_ours and not is_told else ()


# --- the sidecar -----------------------------------------------------------------------------------------------------


def build_autoscaler(site: Site, *, is_ours: bool) -> Manifest:
    """The container, with the user's wishes on top (RC §3.7, RC:AS-1)."""
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


def _rays(site: Site) -> Manifest:
    """As KubeRay runs it."""
    return {
        "name": names.AUTOSCALER_CONTAINER,
        "image": site.group.template["spec"]["containers"][0].get("image", ""),
        "imagePullPolicy": "IfNotPresent",
        "command": site.shell,
        "args": [_RAYS_COMMAND],
        "env": _env(_RAYS_COMMAND),
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
    }


def _ours(site: Site) -> Manifest:
    """Our own program as the container's first process: it supervises itself, so the kubelet ends it only in despair.

    That matters because a container that was ended is not started again where restartPolicy is Never.
    """
    return {
        "name": names.AUTOSCALER_CONTAINER,
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
            "httpGet": {"path": "/healthz", "port": names.AUTOSCALER_HEALTH_PORT},
            "initialDelaySeconds": 30,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 12,
        },
        "securityContext": _unprivileged(site),
    }


def _env(command: str) -> list[Manifest]:
    """Who the cluster is, in KubeRay's order; authentication and TLS will follow here, the user's come last."""
    return [
        build_field("RAY_CLUSTER_NAME", f"metadata.labels['{names.CLUSTER_LABEL}']"),
        build_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        build_field("RAY_HEAD_POD_NAME", "metadata.name"),
        build_literal("KUBERAY_CRD_VER", "v1"),
        build_literal("KUBERAY_GEN_AUTOSCALER_START_CMD", command),
    ]


def _unprivileged(site: Site) -> Manifest:
    """Not root, and nothing that root could do.

    The image names its user, and where users are drawn (OpenShift) it must stay drawn; only a template whose containers
    all run as root has to be contradicted.
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


def _with_token(draft: Draft, site: Site) -> Draft:
    """The API token for the sidecar alone: Ray runs its users' code, which must not scale anything (SE:C22).

    Where the service account is the user's, or the template says what to mount, that stays; the sidecar has its token.
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
    """What Kubernetes mounts by itself, with a token of an hour; it is bound to the pod and renewed by the kubelet."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[Manifest] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_LIFE_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": TOKEN, "projected": {"sources": sources}}
