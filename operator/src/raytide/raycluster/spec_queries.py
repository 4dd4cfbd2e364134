"""Queries on a RayCluster's spec for validation and autoscaler selection.

Takes a cluster or one of its opaque pod templates: which environment variables the Ray container has, whether fault
tolerance is on, which autoscaler runs, which Ray version is set. Pure, and tolerant of templates that lack fields required by the CRD. Called by
`validation.py`, `validation_options.py`, and the modules that need to know the cluster's autoscaler.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from raytide.api import constants
from raytide.api.conditions import is_condition_true
from raytide.api.meta import Manifest
from raytide.api.raycluster import AutoscalerOptions, GroupSpec, RayCluster, WorkerGroupSpec

RayVersion: TypeAlias = tuple[int, int, int]

_GENERIC: Final = re.compile(r"\s*v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?(?![0-9])")
ROCKSDB: Final = "rocksdb"
"""The value of `gcsFaultToleranceOptions.backend`."""
AUTOSCALER_V2_ENV: Final = "RAY_enable_autoscaler_v2"
OLDEST_TESTED_RAY: Final = (2, 47, 0)
"""The oldest Ray with which our autoscaler is tested (`make test-ray`), and whose default autoscaler is V2."""


def is_managed_by_us(managed_by: Any) -> bool:
    """Whether a `managedBy` names no other controller; one that is absent, empty or no string does not (RC:REC-2)."""
    return not isinstance(managed_by, str) or managed_by in ("", constants.MANAGED_BY_US)


def pod_spec(template: Manifest) -> Manifest:
    """The template's `spec`, empty if there is none."""
    return template.get("spec") or {}


def ray_labels(cluster: RayCluster, group: GroupSpec) -> dict[str, str]:
    """Labels of a group's Ray pods (RC:POD-3): defaults, the template's and the group's, and those that users cannot override."""
    template: Manifest = group.template.get("metadata") or {}
    own = {**(template.get("labels") or {}), **group.labels}
    defaults = {constants.IS_RAY_NODE_LABEL: "yes", **default_labels(cluster, group)}
    return {**defaults, **own, **fixed_labels(cluster, group)}


def default_labels(cluster: RayCluster, group: GroupSpec) -> dict[str, str]:
    """Labels that template and group may override, and by which the head service selects the others (RC:HS-3)."""
    name = cluster.metadata.name
    is_worker = isinstance(group, WorkerGroupSpec)
    return {
        constants.IDENTIFIER_LABEL: constants.worker_identifier(name) if is_worker else constants.head_identifier(name),
        constants.APP_NAME_LABEL: constants.APP_NAME,
        constants.CREATED_BY_LABEL: constants.CREATED_BY,
    }


def fixed_labels(cluster: RayCluster, group: GroupSpec) -> dict[str, str]:
    """Labels that users cannot override, because services, Ray and the operator select pods by them."""
    is_worker = isinstance(group, WorkerGroupSpec)
    return {
        constants.CLUSTER_LABEL: cluster.metadata.name,
        constants.NODE_TYPE_LABEL: constants.WORKER if is_worker else constants.HEAD,
        constants.GROUP_LABEL: group.group_name if isinstance(group, WorkerGroupSpec) else constants.HEAD_GROUP,
    }


def ray_container(template: Manifest) -> Manifest:
    """The container that runs Ray: the first one, always."""
    containers = pod_spec(template).get("containers") or ()
    return containers[0] if containers else {}


def env_of(template: Manifest) -> dict[str, Manifest]:
    """The Ray container's environment variables by name."""
    return by_name(ray_container(template).get("env") or ())


def by_name(entries: Iterable[Manifest]) -> dict[str, Manifest]:
    """Named entries of a list; of two with the same name the last, as in a container."""
    return {entry.get("name", ""): entry for entry in entries}


def has_env(template: Manifest, name: str) -> bool:
    """Whether the Ray container has the variable, with any value."""
    return name in env_of(template)


def restart_policy(template: Manifest) -> str:
    """`restartPolicy` as written, empty if absent."""
    policy: str = pod_spec(template).get("restartPolicy") or ""
    return policy


def is_head_restart_disabled(cluster: RayCluster) -> bool:
    """Whether a lost head is not replaced: the annotation is set, and the cluster was provisioned once (RC:HP-3)."""
    is_disabled = cluster.metadata.annotations.get(constants.DISABLE_PROVISIONED_HEAD_RESTART_ANNOTATION) == "true"
    return is_disabled and is_condition_true(cluster.status.get("conditions") or (), constants.PROVISIONED)


def is_autoscaler_v2_env_on(template: Manifest) -> bool:
    """Whether the Ray container switches autoscaler v2 on with a literal value."""
    return env_of(template).get(AUTOSCALER_V2_ENV, {}).get("value") in ("1", "true")


def is_autoscaler_v2_chosen(cluster: RayCluster) -> bool:
    """Whether v2 is chosen by the field or by the head's environment (RC:V-14)."""
    options = cluster.spec.autoscaler_options
    is_by_field = options is not None and options.version == "v2"
    return is_by_field or is_autoscaler_v2_env_on(cluster.spec.head_group_spec.template)


def is_ft_enabled(cluster: RayCluster) -> bool:
    """Whether GCS fault tolerance is on, by its options or by the annotation (RC §1.3)."""
    annotation = cluster.metadata.annotations.get(constants.FT_ENABLED_ANNOTATION, "")
    return annotation.lower() == "true" or cluster.spec.gcs_fault_tolerance_options is not None


def mounts(container: Manifest) -> list[dict[str, Any]]:
    """The container's volume mounts."""
    return list(container.get("volumeMounts") or ())


def needs_rays_autoscaler(cluster: RayCluster) -> bool:
    """Whether Ray's own autoscaler has to run: the cluster chose it, or its Ray is older than ours is tested with."""
    return is_rays_autoscaler_chosen(cluster) or is_before_oldest_tested_ray(cluster)


def is_before_oldest_tested_ray(cluster: RayCluster) -> bool:
    """Whether `rayVersion` is older than our autoscaler is tested with (FD:RC-B6); False for an unreadable version."""
    version = parse_ray_version(cluster.spec.ray_version)
    return version is not None and version < OLDEST_TESTED_RAY


def is_rays_autoscaler_chosen(cluster: RayCluster) -> bool:
    """Whether the cluster asks for Ray's own autoscaler instead of ours.

    It does so by an image, command or args of its own, which are for Ray's program, or by choosing V1, which only Ray's
    program implements.
    """
    options = cluster.spec.autoscaler_options or AutoscalerOptions()
    by_env = env_of(cluster.spec.head_group_spec.template).get(AUTOSCALER_V2_ENV, {}).get("value")
    is_v1 = options.version == "v1" or by_env in ("0", "false")
    return is_v1 or bool(options.image or options.command or options.args)


def has_redis_fault_tolerance(cluster: RayCluster) -> bool:
    """Whether the GCS stores its state in Redis: the default backend of fault tolerance."""
    return is_ft_enabled(cluster) and not has_rocksdb_fault_tolerance(cluster)


def has_rocksdb_fault_tolerance(cluster: RayCluster) -> bool:
    """Whether the GCS stores its state in RocksDB, on a volume of the head."""
    return (cluster.spec.gcs_fault_tolerance_options or {}).get("backend") == ROCKSDB


# --- spec.rayVersion -------------------------------------------------------------------------------------------------


def parse_ray_version(text: str) -> RayVersion | None:
    """Major, minor and patch of `spec.rayVersion`; None when the text is not a version.

    As in KubeRay (RC §1.3): an optional `v`, at least two numbers, the rest ignored, so `v2.53.0rc1` is 2.53.0 and
    `nightly` is None.
    """
    match = _GENERIC.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def is_at_least(text: str, version: RayVersion) -> bool:
    """Whether `text` is this version or a later one; False for a text that is not a version."""
    parsed = parse_ray_version(text)
    return parsed is not None and parsed >= version
