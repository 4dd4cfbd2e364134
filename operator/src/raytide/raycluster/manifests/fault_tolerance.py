"""GCS fault tolerance.

Steps of RC:POD-7 and RC:POD-19 (RC §3.8), called by pods.py; without fault tolerance they only annotate the head. The
storage namespace separates clusters that share one Redis, and a replaced head finds its state by it, even after a
switch of operators, since KubeRay uses the same (FD:RC-B2). What a head with RocksDB needs is in gcs_storage.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from raytide.api import constants
from raytide.api.meta import Manifest
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.environment import add_env, add_missing_env, build_literal
from raytide.raycluster.manifests.gcs_storage import add_head_storage
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext
from raytide.raycluster.spec_queries import has_redis_fault_tolerance, has_rocksdb_fault_tolerance, is_ft_enabled

STORAGE_NAMESPACE: Final = "RAY_external_storage_namespace"
RECONNECT_TIMEOUT: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
RECONNECT_TIMEOUT_S: Final = 600
"""Seconds a worker waits for a replaced head."""


def add_head_fault_tolerance(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Annotate whether GCS fault tolerance is on; if so, set where the GCS keeps its state (RC:FT-2 to RC:FT-5)."""
    cluster = context.cluster
    stamps = {constants.FT_ENABLED_ANNOTATION: "true" if is_ft_enabled(cluster) else "false"}
    if not has_redis_fault_tolerance(cluster):
        builder = replace(builder, annotations={**builder.annotations, **stamps})
        return add_head_storage(builder, cluster) if has_rocksdb_fault_tolerance(cluster) else builder
    namespace = storage_namespace(cluster)
    stamps[constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION] = namespace
    ray = add_missing_env(builder.ray, (build_literal(STORAGE_NAMESPACE, namespace),))
    builder = replace(builder, annotations={**builder.annotations, **stamps}, ray=ray)
    options = cluster.spec.gcs_fault_tolerance_options
    return _with_options(builder, options) if options is not None else _with_password_param(builder)


def add_worker_fault_tolerance(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Make workers wait for a replaced head (RC:FT-1)."""
    if not is_ft_enabled(context.cluster):
        return builder
    patience = build_literal(RECONNECT_TIMEOUT, str(RECONNECT_TIMEOUT_S))
    return replace(builder, ray=add_missing_env(builder.ray, (patience,)))


def storage_namespace(cluster: RayCluster) -> str:
    """The namespace of the cluster's state in Redis: the user's, else the cluster's uid (RC:FT-2)."""
    options = cluster.spec.gcs_fault_tolerance_options or {}
    annotation = cluster.metadata.annotations.get(constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION)
    return options.get("externalStorageNamespace") or annotation or cluster.metadata.uid


def _with_options(builder: PodBuilder, options: Mapping[str, Any]) -> PodBuilder:
    """Set address and credentials; `ray start` reads the latter from the environment (RC:FT-3, RC:RSP-9)."""
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
    return replace(builder, ray=add_env(builder.ray, env), ray_start_params={**builder.ray_start_params, **params})


def _with_password_param(builder: PodBuilder) -> PodBuilder:
    """Copy the `redis-password` parameter to the environment, for other Redis clients in the container (RC:FT-4)."""
    password = builder.ray_start_params.get("redis-password")
    return replace(
        builder, ray=add_missing_env(builder.ray, [build_literal("REDIS_PASSWORD", password)] if password else [])
    )
