"""Type checks of the opaque parts of a RayCluster.

Raises pydantic's ValidationError where a value inside a pod template, the head service or a feature's options has the
wrong type, such as a string instead of a list; the error's location is the field's path. The models are used only for
the check, the manifests stay unchanged (D13). The operator's CRD enforces the same types; the check is for objects
stored under an older CRD. Used by api/raycluster.py.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from raytide.api.meta import Manifest

Texts: TypeAlias = Mapping[str, str]
Amounts: TypeAlias = Mapping[str, str | int | float]


class Shape(BaseModel):
    """Base of all schema models; null counts as absent, without the Python validator that `Value` would run."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class MetadataShape(Shape):
    """Metadata of a template."""

    name: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    finalizers: tuple[str, ...] | None = None


class EnvShape(Shape):
    """One environment variable."""

    name: str
    value: str | None = None


class ContainerPortShape(Shape):
    """One port of a container."""

    name: str | None = None
    container_port: int


class MountShape(Shape):
    """One volume mount."""

    name: str
    mount_path: str


class ResourcesShape(Shape):
    """Limits and requests of a container."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class ContainerShape(Shape):
    """One container, reduced to the fields that the operator reads."""

    image: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvShape, ...] | None = None
    ports: tuple[ContainerPortShape, ...] | None = None
    volume_mounts: tuple[MountShape, ...] | None = None
    resources: ResourcesShape | None = None
    liveness_probe: Manifest | None = None
    readiness_probe: Manifest | None = None


class PodSpecShape(Shape):
    """A pod's spec."""

    containers: tuple[ContainerShape, ...] | None = None
    init_containers: tuple[ContainerShape, ...] | None = None
    volumes: tuple[Manifest, ...] | None = None
    restart_policy: str | None = None


class TemplateShape(Shape):
    """A pod template."""

    metadata: MetadataShape | None = None
    spec: PodSpecShape | None = None


class ServicePortShape(Shape):
    """One port of a service."""

    name: str | None = None
    port: int


class ServiceSpecShape(Shape):
    """A service's spec."""

    type: str | None = None
    ports: tuple[ServicePortShape, ...] | None = None


class ServiceShape(Shape):
    """`headService`."""

    metadata: MetadataShape | None = None
    spec: ServiceSpecShape | None = None


class GroupShape(Shape):
    """Head or worker group."""

    template: TemplateShape | None = None
    head_service: ServiceShape | None = None


class EnvListShape(Shape):
    """Options with an `env` list."""

    env: tuple[EnvShape, ...] | None = None


class FaultToleranceShape(Shape):
    """`gcsFaultToleranceOptions`."""

    storage: Manifest | None = None


class HistoryShape(Shape):
    """`historyServerOptions`."""

    collector_options: EnvListShape | None = None


class NetworkPolicyShape(Shape):
    """`networkPolicy`."""

    head: Manifest | None = None
    worker: Manifest | None = None
    worker_groups: tuple[Manifest, ...] | None = None


class SpecShape(Shape):
    """`spec`."""

    head_group_spec: GroupShape | None = None
    worker_group_specs: tuple[GroupShape, ...] | None = None
    autoscaler_options: EnvListShape | None = None
    gcs_fault_tolerance_options: FaultToleranceShape | None = None
    history_server_options: HistoryShape | None = None
    network_policy: NetworkPolicyShape | None = None


class RayClusterShape(Shape):
    """The whole object."""

    spec: SpecShape


def readable_status(status: Any) -> dict[str, Any]:
    """The status without values of a wrong type; the operator writes none, and its next status patch replaces them."""
    if not isinstance(status, Mapping):
        return {}
    found: dict[str, Any] = {
        key: value for key, value in status.items() if isinstance(value, _STATUS_TYPES.get(key, object))
    }
    conditions: list[Any] = found.get("conditions", [])
    if conditions:
        found["conditions"] = [entry for entry in conditions if _is_condition(entry)]
    return found


_STATUS_TYPES: Mapping[str, type] = {
    "conditions": list,
    "observedGeneration": int,
    "endpoints": Mapping,
    "stateTransitionTimes": Mapping,
    "head": Mapping,
    "state": str,
}


def _is_condition(entry: Any) -> bool:
    texts = ("type", "status", "lastTransitionTime")
    return isinstance(entry, Mapping) and "type" in entry and all(isinstance(entry.get(key, ""), str) for key in texts)
