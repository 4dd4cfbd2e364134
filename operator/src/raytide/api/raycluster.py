"""Model of the RayCluster resource.

Parses the custom resource from JSON into a frozen model of the fields that the operator reads; pod templates and the
head service stay opaque dicts (D13). Defaults are those of the CRD (RC §1.2), so that objects stored by KubeRay have
the same values. A value of the wrong type raises pydantic's ValidationError, whose location is the field's path. Used
throughout raycluster/.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import Field

from raytide.api.autoscaler_decision import clamp_between
from raytide.api.base_model import ObjectMeta, Value
from raytide.api.clamp_numbers import clamp_numbers
from raytide.api.limits import MAX_GROUPS, MAX_HOSTS, MAX_NAMES, MAX_REPLICAS
from raytide.api.meta import Key, Manifest
from raytide.api.quantity import MAX_INT32
from raytide.api.raycluster_schema import RayClusterShape, readable_status
from raytide.api.violations import Violation


class ScaleStrategy(Value):
    """`scaleStrategy`: names of pods to delete first, written by the autoscaler or by a user."""

    workers_to_delete: tuple[str, ...] = Field(default=(), max_length=MAX_NAMES)


class GroupSpec(Value):
    """Fields common to head and worker groups; `template` is an opaque PodTemplateSpec."""

    template: Manifest = Field(default_factory=dict)
    ray_start_params: Mapping[str, str] = Field(default_factory=dict)
    resources: Mapping[str, str] = Field(default_factory=dict)
    labels: Mapping[str, str] = Field(default_factory=dict)


class HeadGroupSpec(GroupSpec):
    """`headGroupSpec`."""

    service_type: str = ""
    head_service: Manifest | None = None
    enable_ingress: bool | None = None
    ingress_options: Manifest | None = None


class WorkerGroupSpec(GroupSpec):
    """One entry of `workerGroupSpecs`; counts are not clamped to minimum and maximum."""

    group_name: str
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    idle_timeout_seconds: int | None = None
    priority: int | None = None
    suspend: bool | None = None
    scale_strategy: ScaleStrategy = ScaleStrategy()

    def clamp(self, replicas: int) -> int:
        """The number limited to minimum and maximum; absent bounds are 0 and the largest int32 (RC:WG-2)."""
        most = MAX_INT32 if self.max_replicas is None else self.max_replicas
        return clamp_between(replicas, self.min_replicas or 0, most)


class AutoscalerOptions(Value):
    """`autoscalerOptions`; core types stay opaque."""

    version: str = ""
    idle_timeout_seconds: int | None = None
    upscaling_mode: str = ""
    image: str = ""
    image_pull_policy: str = ""
    resources: Manifest | None = None
    security_context: Manifest | None = None
    env: tuple[Manifest, ...] = ()
    env_from: tuple[Manifest, ...] = ()
    volume_mounts: tuple[Manifest, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class RayClusterSpec(Value):
    """`spec`. Options of features not implemented yet are kept raw, so that `Unsupported` can report them."""

    head_group_spec: HeadGroupSpec
    worker_group_specs: tuple[WorkerGroupSpec, ...] = Field(default=(), max_length=MAX_GROUPS)
    ray_version: str = ""
    suspend: bool | None = None
    managed_by: str | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: AutoscalerOptions | None = None
    head_service_annotations: Mapping[str, str] = Field(default_factory=dict)
    upgrade_strategy: Manifest | None = None
    auth_options: Manifest | None = None
    gcs_fault_tolerance_options: Manifest | None = None
    history_server_options: Manifest | None = None
    network_policy: Manifest | None = None
    tls_options: Manifest | None = None


class RayCluster(Value):
    """A RayCluster as read from the API; `status` stays raw because it is only compared and patched (D8)."""

    metadata: ObjectMeta
    spec: RayClusterSpec
    status: Mapping[str, Any] = Field(default_factory=dict)
    raw: Manifest = Field(default_factory=dict, repr=False, exclude=True)
    """The object as received, for the recreate hash (RC:UP-1)."""
    clamped: tuple[Violation, ...] = Field(default=(), repr=False, exclude=True)
    """One violation per number that exceeded its limit and was clamped to it."""

    @classmethod
    def parse(cls, obj: Manifest) -> "RayCluster":
        """Read one API object; raises pydantic.ValidationError naming the field."""
        cluster = cls.model_validate({**obj, "status": readable_status(obj.get("status")), "raw": obj})
        RayClusterShape.model_validate(obj)
        groups, clamped = _clamp_groups(cluster.spec.worker_group_specs)
        if not clamped:
            return cluster
        spec = cluster.spec.model_copy(update={"worker_group_specs": groups})
        return cluster.model_copy(update={"spec": spec, "clamped": clamped})

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @property
    def is_autoscaled(self) -> bool:
        """Whether `enableInTreeAutoscaling` is on."""
        return bool(self.spec.enable_in_tree_autoscaling)


_COUNTS: Final = {
    "replicas": ("replicas", MAX_REPLICAS),
    "min_replicas": ("minReplicas", MAX_REPLICAS),
    "num_of_hosts": ("numOfHosts", MAX_HOSTS),
}


def _clamp_groups(groups: Iterable[WorkerGroupSpec]) -> tuple[tuple[WorkerGroupSpec, ...], tuple[Violation, ...]]:
    """The groups with their numbers clamped, and one violation per clamped number (api/limits.py)."""
    found = [clamp_numbers(group, _COUNTS, f"spec.workerGroupSpecs[{i}]") for i, group in enumerate(groups)]
    return tuple(group for group, _ in found), tuple(violation for _, clamped in found for violation in clamped)
