"""Validation of the options of a RayCluster's features.

Takes the cluster and the settings, and returns the violations of fault tolerance, history server, authentication,
network policy and TLS: rules RC:V-16..V-32 and V-41..V-60. A feature whose gate is off is one violation. Pure. Called
only by `validation.py`, which sets the order of the rules.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.meta import Manifest
from raytide.api.raycluster import RayCluster
from raytide.api.violations import Violation
from raytide.raycluster.manifests import gcs_storage
from raytide.raycluster.spec_queries import (
    by_name,
    has_env,
    has_rocksdb_fault_tolerance,
    is_ft_enabled,
    mounts,
    parse_ray_version,
    pod_spec,
    ray_container,
)

_FT: Final = "spec.gcsFaultToleranceOptions"
_HEAD: Final = "spec.headGroupSpec"
_HEAD_ENV: Final = f"{_HEAD}.template.spec.containers[0].env"
_AUTH: Final = "spec.authOptions"
_COLLECTOR: Final = "spec.historyServerOptions.collectorOptions"
_COLLECTOR_CONTAINER: Final = "ray-history-collector"
_COLLECTOR_OWN_ENV: Final = frozenset(
    {
        "POD_IP",
        "FQ_RAY_IP",
        "RAY_CLUSTER_NAME",
        "RAY_CLUSTER_NAMESPACE",
        "RAY_ROLE",
        "OWNER_KIND",
        "OWNER_NAME",
        "EVENTS_PORT",
    }
)
_BACKEND_NEEDS: Final = {
    "GCS": ("GCS_BUCKET",),
    "S3": ("S3_REGION",),
    "ALIYUNOSS": ("OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"),
}
_TLS_ENV: Final = ("RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_TLS_VOLUME, _TLS_PATH = "ray-tls", "/etc/ray/tls"
_DNS_1123: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def option_violations(cluster: RayCluster, config: ClusterConfig) -> Iterator[Violation]:
    """The violations of every feature's options."""
    yield from _fault_tolerance(cluster, config)
    yield from _history(cluster, config)
    yield from _auth(cluster)
    yield from _network_policy(cluster, config)
    yield from _tls(cluster, config)


def _gate_off(rule: str, field: str, gate: str) -> Violation:
    return Violation(rule, field, f"needs feature gate {gate}, which is disabled; enable the gate, or remove the field")


# --- GCS fault tolerance -------------------------------------------------------------------------------------------
def _fault_tolerance(cluster: RayCluster, config: ClusterConfig) -> Iterator[Violation]:
    options, head = cluster.spec.gcs_fault_tolerance_options, cluster.spec.head_group_spec
    if options is not None:
        yield from _conflicting_ft_settings(cluster)
        if has_rocksdb_fault_tolerance(cluster):
            yield from _rocksdb(cluster, options, config)
        elif options.get("storage") is not None:
            yield Violation("V-31", f"{_FT}.storage", "is for backend rocksdb; set backend to rocksdb, or remove it")
    elif not is_ft_enabled(cluster) and has_env(head.template, "RAY_REDIS_ADDRESS"):
        message = f"sets RAY_REDIS_ADDRESS without fault tolerance; set {_FT}.redisAddress instead"
        yield Violation("V-17", _HEAD_ENV, message)
    if head.ray_start_params.get("redis-username"):
        message = f"is ignored; set {_FT}.redisUsername instead"
        yield Violation("V-32", f"{_HEAD}.rayStartParams.redis-username", message)
    if has_env(head.template, "REDIS_USERNAME"):
        message = f"sets REDIS_USERNAME; set {_FT}.redisUsername instead"
        yield Violation("V-32", _HEAD_ENV, message)


def _conflicting_ft_settings(cluster: RayCluster) -> Iterator[Violation]:
    """Annotations, start parameters and variables that conflict with the options of fault tolerance."""
    head, annotations = cluster.spec.head_group_spec, cluster.metadata.annotations
    if annotations.get(constants.FT_ENABLED_ANNOTATION):
        field = f"metadata.annotations[{constants.FT_ENABLED_ANNOTATION}]"
        yield Violation("V-16", field, f"must not be combined with {_FT}; remove the annotation")
    if head.ray_start_params.get("redis-password"):
        field = f"{_HEAD}.rayStartParams.redis-password"
        yield Violation("V-18", field, f"must not be combined with {_FT}; set {_FT}.redisPassword instead")
    for rule, variable, option in (
        ("V-19", "REDIS_PASSWORD", "redisPassword"),
        ("V-20", "RAY_REDIS_ADDRESS", "redisAddress"),
    ):
        if has_env(head.template, variable):
            yield Violation(rule, _HEAD_ENV, f"sets {variable} in addition to {_FT}; set {_FT}.{option} instead")
    if annotations.get(constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION):
        field = f"metadata.annotations[{constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION}]"
        yield Violation("V-21", field, f"must not be combined with {_FT}; set {_FT}.externalStorageNamespace instead")


def _rocksdb(cluster: RayCluster, options: Manifest, config: ClusterConfig) -> Iterator[Violation]:
    if constants.EMBEDDED_STORAGE_GATE not in config.feature_gates:
        yield _gate_off("V-22", f"{_FT}.backend", constants.EMBEDDED_STORAGE_GATE)
    redis_only = ("redisAddress", "redisUsername", "redisPassword", "externalStorageNamespace")
    for number, option in enumerate(redis_only, start=23):
        if options.get(option):
            yield Violation(f"V-{number}", f"{_FT}.{option}", "is for backend redis; remove it")
    storage = options.get("storage") or {}
    made = [key for key in ("size", "storageClassName", "accessModes") if storage.get(key)]
    if storage.get("claimName") and made:
        message = f"names an existing claim, which excludes {', '.join(made)}; remove one or the other"
        yield Violation("V-27", f"{_FT}.storage.claimName", message)
    template = cluster.spec.head_group_spec.template
    for variable in ("RAY_gcs_storage", "RAY_gcs_storage_path"):
        if has_env(template, variable):
            yield Violation("V-28", _HEAD_ENV, f"sets {variable}, which backend rocksdb sets itself; remove it")
    if _has_mount(mounts(ray_container(template)), gcs_storage.VOLUME, gcs_storage.PATH):
        field = f"{_HEAD}.template.spec.containers[0].volumeMounts"
        yield Violation(
            "V-29", field, f"uses {gcs_storage.PATH} or {gcs_storage.VOLUME}, which backend rocksdb mounts; rename it"
        )
    if gcs_storage.VOLUME in by_name(pod_spec(template).get("volumes") or ()):
        field = f"{_HEAD}.template.spec.volumes"
        yield Violation("V-30", field, f"has {gcs_storage.VOLUME}, which backend rocksdb adds; rename it")


def _has_mount(volume_mounts: list[dict[str, Any]], volume: str, path: str) -> bool:
    return any(mount.get("name") == volume or mount.get("mountPath") == path for mount in volume_mounts)


# --- history server ------------------------------------------------------------------------------------------------
def _history(cluster: RayCluster, config: ClusterConfig) -> Iterator[Violation]:
    options = cluster.spec.history_server_options
    if options is None:
        return
    if "RayClusterHistoryServer" not in config.feature_gates:
        yield _gate_off("V-41", "spec.historyServerOptions", "RayClusterHistoryServer")
        return
    collector = options.get("collectorOptions")
    if collector is None:
        yield Violation("V-42", _COLLECTOR, "is missing; set at least image and env")
        return
    if not collector.get("image"):
        yield Violation("V-43", f"{_COLLECTOR}.image", "is missing; set it, there is no default image")
    yield from _collector_env(by_name(collector.get("env") or ()))
    for field, template in _templates(cluster):
        if _COLLECTOR_CONTAINER in by_name(pod_spec(template).get("containers") or ()):
            message = f"has a container {_COLLECTOR_CONTAINER}, a name that the operator uses; rename it"
            yield Violation("V-47", f"{field}.spec.containers", message)


def _collector_env(env: Mapping[str, Manifest]) -> Iterator[Violation]:
    field = f"{_COLLECTOR}.env"
    own = sorted(_COLLECTOR_OWN_ENV & env.keys())
    if own:
        yield Violation("V-44", field, f"sets {', '.join(own)}, which the operator sets itself; remove it")
    backend = env.get("STORAGE_BACKEND", {}).get("value")
    if not backend:
        yield Violation("V-45", field, "lacks STORAGE_BACKEND; set it to a literal value")
        return
    has = {name for name, entry in env.items() if entry.get("value") or entry.get("valueFrom")}
    missing = [name for name in _BACKEND_NEEDS.get(backend.upper(), ()) if name not in has]
    if backend.upper() == "AZUREBLOB":
        missing = _missing_for_azure(env, has)
    if missing:
        yield Violation("V-46", field, f"lacks {', '.join(missing)}, which backend {backend} needs; add them")


def _missing_for_azure(env: Mapping[str, Manifest], has: set[str]) -> list[str]:
    connection, account = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_URL"
    mode = env.get("AZURE_STORAGE_AUTH_MODE", {}).get("value")
    if mode == "connection_string":
        return [] if connection in has else [connection]
    if mode in ("workload_identity", "default"):
        return [] if account in has else [account]
    return [] if has & {connection, account} else [f"{connection} or {account}"]


def _templates(cluster: RayCluster) -> Iterator[tuple[str, Manifest]]:
    yield f"{_HEAD}.template", cluster.spec.head_group_spec.template
    for i, group in enumerate(cluster.spec.worker_group_specs):
        yield f"spec.workerGroupSpecs[{i}].template", group.template


# --- authentication ------------------------------------------------------------------------------------------------
def _auth(cluster: RayCluster) -> Iterator[Violation]:
    options = cluster.spec.auth_options
    if not options:
        return
    is_delegated = bool(options.get("enableK8sTokenAuth"))
    if options.get("mode") != "token":
        if is_delegated:
            yield Violation("V-53", f"{_AUTH}.enableK8sTokenAuth", f"needs {_AUTH}.mode token")
        return
    written = cluster.spec.ray_version
    version = parse_ray_version(written)
    if version is None:
        rule = "V-49" if written else "V-48"
        message = f"is {written!r}, which is not a version" if written else "is missing"
        yield Violation(rule, "spec.rayVersion", f"{message}; token authentication needs 2.52.0 or newer")
    elif version < (2, 52, 0):
        yield Violation("V-50", "spec.rayVersion", f"is {written}; token authentication needs 2.52.0 or newer")
    elif is_delegated and version < (2, 55, 0):
        yield Violation("V-51", "spec.rayVersion", f"is {written}; enableK8sTokenAuth needs 2.55.0 or newer")
    if is_delegated and options.get("secretName"):
        message = "is not used with enableK8sTokenAuth; remove one of the two"
        yield Violation("V-52", f"{_AUTH}.secretName", message)


# --- network policy ------------------------------------------------------------------------------------------------
_FORBIDDEN_RULES: Final = {"DenyAllEgress": "ingressRules", "DenyAllIngress": "egressRules"}


def _network_policy(cluster: RayCluster, config: ClusterConfig) -> Iterator[Violation]:
    policy = cluster.spec.network_policy
    if policy is None:
        return
    field = "spec.networkPolicy"
    if "RayClusterNetworkPolicy" not in config.feature_gates:
        yield _gate_off("V-54", field, "RayClusterNetworkPolicy")
        return
    mode = policy.get("mode") or "DenyAll"
    for part in ("head", "worker"):
        yield from _contradicting("V-55", mode, policy.get(part) or {}, f"{field}.{part}")
    group_names = [group.group_name for group in cluster.spec.worker_group_specs]
    for i, name in enumerate(group_names):
        if len(name) > 63 or not _DNS_1123.match(name):
            message = f"{name!r} becomes part of a NetworkPolicy's name; use lower-case letters, digits and '-'"
            yield Violation("V-56", f"spec.workerGroupSpecs[{i}].groupName", message)
    for i, entry in enumerate(policy.get("workerGroups") or ()):
        place = f"{field}.workerGroups[{i}]"
        yield from _contradicting("V-57", mode, entry, place)
        if entry.get("groupName") not in group_names:
            yield Violation(
                "V-57", f"{place}.groupName", f"{entry.get('groupName')!r} is not a worker group of this RayCluster"
            )


def _contradicting(rule: str, mode: str, rules: Manifest, field: str) -> Iterator[Violation]:
    forbidden = _FORBIDDEN_RULES.get(mode)
    if forbidden and rules.get(forbidden):
        yield Violation(rule, f"{field}.{forbidden}", f"has no effect in mode {mode}; remove it, or change the mode")


# --- TLS -----------------------------------------------------------------------------------------------------------
def _tls(cluster: RayCluster, config: ClusterConfig) -> Iterator[Violation]:
    options = cluster.spec.tls_options
    if options is None:
        return
    if "RayClusterMTLS" not in config.feature_gates:
        yield _gate_off("V-58", "spec.tlsOptions", "RayClusterMTLS")
        return
    if not options.get("enabled"):
        return
    for field, template in _templates(cluster):
        container = ray_container(template)
        yield from _own_tls("V-59", container.get("env") or (), mounts(container), f"{field}.spec.containers[0]")
    autoscaler = cluster.spec.autoscaler_options
    if autoscaler is not None:
        yield from _own_tls("V-60", autoscaler.env, list(autoscaler.volume_mounts), "spec.autoscalerOptions")


def _own_tls(rule: str, env: Any, volume_mounts: list[dict[str, Any]], field: str) -> Iterator[Violation]:
    for variable in _TLS_ENV:
        if variable in by_name(env):
            yield Violation(rule, f"{field}.env", f"sets {variable}, which spec.tlsOptions sets itself; remove it")
    if _has_mount(volume_mounts, _TLS_VOLUME, _TLS_PATH):
        message = f"uses {_TLS_VOLUME} or {_TLS_PATH}, which spec.tlsOptions mounts; rename it"
        yield Violation(rule, f"{field}.volumeMounts", message)
