"""Token authentication of Ray: the Secret with the cluster's token, and what containers need to use it.

Rules RC §2.6 and §3.9. With `authOptions.mode: token` each Ray process and the autoscaler send a token: that of a Secret, which the
operator creates once or the user names, or with `enableK8sTokenAuth` a token of the pod's service account, which Ray has the API
server review. Containers of the user get none. Pure; called by pods.py, autoscaler.py, owned_objects.py and protection.py.
"""

from dataclasses import replace
from typing import Final

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.meta import RAYCLUSTERS, SECRETS, Manifest, controller_reference
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.containers import WAIT_GCS_READY
from raytide.raycluster.manifests.environment import add_missing_env, build_literal
from raytide.raycluster.manifests.lookup import Lookup, labelled_with
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, has_named, listed

KEY: Final = "auth_token"
VOLUME: Final = "ray-token"
PATH: Final = "/var/run/secrets/ray.io/serviceaccount"
_VARIABLES: Final = frozenset({"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_K8S_TOKEN_AUTH"})


def is_asked_for(cluster: RayCluster) -> bool:
    """Whether the cluster asks for token authentication; without a mode it does not, as in KubeRay."""
    return (cluster.spec.auth_options or {}).get("mode") == "token"


def is_available(cluster: RayCluster, config: PodConfig) -> bool:
    """Whether its pods have a token: Kubernetes', the user's Secret, or one that the operator may create."""
    return _is_kubernetes(cluster) or bool(_users_secret(cluster)) or config.creates_auth_secrets


def secret_lookups(cluster: RayCluster, config: PodConfig) -> tuple[Lookup, ...]:
    """The Secret that the operator creates; none of the user's, which the kubelet waits for."""
    is_ours = is_asked_for(cluster) and not _is_kubernetes(cluster) and not _users_secret(cluster)
    if not (is_ours and config.creates_auth_secrets):
        return ()
    return (Lookup(SECRETS, secret_name(cluster), may_use=labelled_with(cluster.metadata.name)),)


def secret_name(cluster: RayCluster) -> str:
    """The Secret with the token: the user's, else the operator's (RC:AU-1)."""
    return _users_secret(cluster) or constants.check_name(cluster.metadata.name)


def build_secret(cluster: RayCluster, token: str) -> Manifest:
    """The Secret, which is created once and never changed (RC:AU-2)."""
    metadata = cluster.metadata
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {
            "name": secret_name(cluster),
            "namespace": metadata.namespace,
            "labels": {constants.CLUSTER_LABEL: metadata.name},
            "ownerReferences": [controller_reference(RAYCLUSTERS, metadata.name, metadata.uid)],
        },
        "stringData": {KEY: token},
    }


def add_token_auth(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Let the Ray container and `wait-gcs-ready` send the token (RC:POD-9, RC:AU-3)."""
    cluster = context.cluster
    if not _is_wired(cluster, context.config):
        return builder
    init_containers = tuple(
        with_token(each, cluster, context.config) if each.get("name") == WAIT_GCS_READY else each
        for each in builder.init_containers
    )
    needs_volume = _is_kubernetes(cluster) and not has_named(list(builder.volumes), VOLUME)
    token = {"name": VOLUME, "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    return replace(
        builder,
        ray=with_token(builder.ray, cluster, context.config),
        init_containers=init_containers,
        volumes=(*builder.volumes, token) if needs_volume else builder.volumes,
    )


def with_token(container: Manifest, cluster: RayCluster, config: PodConfig) -> Manifest:
    """The container with the variables, and the mount of a Kubernetes token; unchanged without token authentication."""
    if not _is_wired(cluster, config):
        return container
    mode = build_literal("RAY_AUTH_MODE", "token")
    if not _is_kubernetes(cluster):
        reference = {"secretKeyRef": {"name": secret_name(cluster), "key": KEY}}
        return add_missing_env(container, (mode, {"name": "RAY_AUTH_TOKEN", "valueFrom": reference}))
    container = add_missing_env(container, (mode, build_literal("RAY_ENABLE_K8S_TOKEN_AUTH", "true")))
    mounts: list[Manifest] = listed(container, "volumeMounts")
    if has_named(mounts, VOLUME):
        return container
    return {**container, "volumeMounts": [*mounts, {"name": VOLUME, "mountPath": PATH, "readOnly": True}]}


def without_token(container: Manifest) -> Manifest:
    """The container without variables of token authentication."""
    kept = [each for each in listed(container, "env") if each.get("name") not in _VARIABLES]
    return {**container, "env": kept}


def _is_wired(cluster: RayCluster, config: PodConfig) -> bool:
    return is_asked_for(cluster) and is_available(cluster, config)


def _is_kubernetes(cluster: RayCluster) -> bool:
    return bool((cluster.spec.auth_options or {}).get("enableK8sTokenAuth"))


def _users_secret(cluster: RayCluster) -> str:
    return (cluster.spec.auth_options or {}).get("secretName") or ""
