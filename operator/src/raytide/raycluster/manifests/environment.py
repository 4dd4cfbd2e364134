"""Environment variables of a Ray pod's containers.

Steps that append to `env` in KubeRay's order (RC §3.6), called by pods.py. Variables appended after the user's override
them; defaults are left out where the user has set the name. All init containers get the head's address.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from raytide.api import constants
from raytide.api.meta import Manifest
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, has_named, listed
from raytide.raycluster.manifests.ray_start import start_variables

_ORIGINS: Final = frozenset({"RayCluster", "RayJob", "RayService"})
_RAY_SERVICE_TIMEOUTS: Final = {
    "RAY_timeout_ms_task_wait_for_death_info": "0",
    "RAY_gcs_server_request_timeout_seconds": "5",
    "RAY_SERVE_KV_TIMEOUT_S": "5",
}


def add_environment(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add the Ray container's variables, in the order of RC §3.6."""
    ray = add_missing_env(builder.ray, context.config.default_container_envs)
    ray = add_env(ray, () if context.is_head else head_addresses(context))
    ray = add_env(ray, (*_identity_variables(), *_literals(start_variables(builder, is_head=context.is_head))))
    ray = add_missing_env(ray, _literals({"RAY_PORT": context.gcs_port}))
    ray = add_missing_env(ray, _literals(_RAY_SERVICE_TIMEOUTS if context.is_ray_service else {}))
    address = f"127.0.0.1:{context.gcs_port}" if context.is_head else context.gcs_address
    ray = add_missing_env(ray, _literals({"RAY_ADDRESS": address, "RAY_USAGE_STATS_KUBERAY_IN_USE": "1"}))
    ray = add_env(ray, (build_literal("RAY_USAGE_STATS_EXTRA_TAGS", _usage_tags(context)),) if context.is_head else ())
    ray = add_missing_env(ray, _literals({"RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1"}))
    return replace(builder, ray=ray)


def add_head_addresses(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add the head's address to every init container (RC §3.6)."""
    return replace(builder, init_containers=tuple(add_env(c, head_addresses(context)) for c in builder.init_containers))


def head_addresses(context: PodContext) -> tuple[Manifest, ...]:
    """`FQ_RAY_IP` and `RAY_IP`: the head service's full and short DNS name."""
    return _literals({"FQ_RAY_IP": context.head_fqdn, "RAY_IP": context.head_service})


def add_env(container: Manifest, variables: Iterable[Manifest]) -> Manifest:
    """The container with these variables appended; of two with the same name the later takes effect."""
    added = list(variables)
    return {**container, "env": listed(container, "env") + added} if added else container


def add_missing_env(container: Manifest, variables: Iterable[Manifest]) -> Manifest:
    """The container with those of the variables appended that it does not set yet."""
    present: list[Manifest] = listed(container, "env")
    return add_env(container, (variable for variable in variables if not has_named(present, variable["name"])))


def _identity_variables() -> tuple[Manifest, ...]:
    return (
        build_field("RAY_CLUSTER_NAME", f"metadata.labels['{constants.CLUSTER_LABEL}']"),
        build_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        build_field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        build_field("RAY_NODE_TYPE_NAME", f"metadata.labels['{constants.GROUP_LABEL}']"),
    )


def _usage_tags(context: PodContext) -> str:
    origin = context.cluster.metadata.labels.get(constants.ORIGINATED_FROM_CRD_LABEL, "")
    kind = origin if origin in _ORIGINS else "RayCluster"
    return f"kuberay_version={context.config.operator_version};kuberay_crd={kind}"


def _literals(values: Mapping[str, str]) -> tuple[Manifest, ...]:
    return tuple(build_literal(name, value) for name, value in values.items())


def build_literal(name: str, value: str) -> Manifest:
    """A variable with a literal value."""
    return {"name": name, "value": value}


def build_field(name: str, path: str) -> Manifest:
    """A variable with the value of the pod's field at `path`."""
    source: dict[str, Any] = {"fieldRef": {"fieldPath": path}}
    return {"name": name, "valueFrom": source}
