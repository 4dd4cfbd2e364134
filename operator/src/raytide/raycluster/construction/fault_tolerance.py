"""What do Ray pods need so that the GCS keeps its state in Redis?

Steps of RC:POD-7 and RC:POD-19 (RC §3.8) that change nothing without fault tolerance. The storage namespace is the important
one: it keeps apart clusters that share one Redis, and a head that is made anew finds its own state by it, also after a switch
of operators, since KubeRay chooses the same (FD:RC-B2). Backend rocksdb needs a volume and is not built. Steps of pods.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from raytide.api import names
from raytide.api.meta import Manifest
from raytide.api.raycluster import RayCluster
from raytide.raycluster.construction.draft import Draft, Site
from raytide.raycluster.construction.environment import add_env, add_missing_env, build_literal
from raytide.raycluster.validation_facts import has_redis_fault_tolerance, is_ft_enabled

STORAGE_NAMESPACE: Final = "RAY_external_storage_namespace"
RECONNECT_TIMEOUT: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
RECONNECT_TIMEOUT_S: Final = 600
"""How long a worker waits for a head that is made anew."""


def add_head_fault_tolerance(draft: Draft, site: Site) -> Draft:
    """Whether this head survives the loss of its GCS, which is always written, and where its state is (RC:FT-2 to RC:FT-4)."""
    cluster = site.cluster
    stamps = {names.FT_ENABLED_ANNOTATION: "true" if is_ft_enabled(cluster) else "false"}
    if not has_redis_fault_tolerance(cluster):
        return replace(draft, annotations={**draft.annotations, **stamps})
    namespace = storage_namespace(cluster)
    stamps[names.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION] = namespace
    ray = add_missing_env(draft.ray, (build_literal(STORAGE_NAMESPACE, namespace),))
    draft = replace(draft, annotations={**draft.annotations, **stamps}, ray=ray)
    options = cluster.spec.gcs_fault_tolerance_options
    return _with_options(draft, options) if options is not None else _with_password_param(draft)


def add_worker_fault_tolerance(draft: Draft, site: Site) -> Draft:
    """Workers outlive a head that is made anew (RC:FT-1)."""
    if not has_redis_fault_tolerance(site.cluster):
        return draft
    patience = build_literal(RECONNECT_TIMEOUT, str(RECONNECT_TIMEOUT_S))
    return replace(draft, ray=add_missing_env(draft.ray, (patience,)))


def storage_namespace(cluster: RayCluster) -> str:
    """Under which name the cluster's state is kept in Redis: the user's, else the uid (RC:FT-2)."""
    options = cluster.spec.gcs_fault_tolerance_options or {}
    annotation = cluster.metadata.annotations.get(names.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION)
    return options.get("externalStorageNamespace") or annotation or cluster.metadata.uid


def _with_options(draft: Draft, options: Mapping[str, Any]) -> Draft:
    """Address and credentials; `ray start` takes the latter from the environment (RC:FT-3, RC:RSP-9)."""
    env: list[Manifest] = [build_literal("RAY_REDIS_ADDRESS", options.get("redisAddress") or "")]
    params: dict[str, str] = {}
    for option, variable, param in (
        ("redisUsername", "REDIS_USERNAME", "redis-username"),
        ("redisPassword", "REDIS_PASSWORD", "redis-password"),
    ):
        given = options.get(option)
        if given is not None:
            env.append({"name": variable, **{key: given[key] for key in ("value", "valueFrom") if given.get(key)}})
            params[param] = f"${variable}"
    return replace(draft, ray=add_env(draft.ray, env), ray_start_params={**draft.ray_start_params, **params})


def _with_password_param(draft: Draft) -> Draft:
    """The password that is given to `ray start`, for whoever else has to reach Redis (RC:FT-4)."""
    password = draft.ray_start_params.get("redis-password")
    return replace(
        draft, ray=add_missing_env(draft.ray, [build_literal("REDIS_PASSWORD", password)] if password else [])
    )
