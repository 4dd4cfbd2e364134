"""Do the opaque parts of a RayCluster have the shape in which they are read?

Takes the custom resource as JSON and raises pydantic's ValidationError where a value inside a pod template, the head
service or the options of a feature is a text instead of a list, a number instead of a text and so on; its location is
the field's path. Nothing is kept: these models only ask, the manifests stay as they are (D13). The API server asks the
same of what it stores under our CRD; what an older CRD let in meets these questions first. Asked by api/raycluster.py.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from raytide.api.meta import Manifest

Texts: TypeAlias = Mapping[str, str]
Amounts: TypeAlias = Mapping[str, str | int | float]


class Shape(BaseModel):
    """Base of all of them; a null is as good as nothing, and costs nothing here (`Value` would ask in Python)."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class MetadataShape(Shape):
    """Metadata of a template."""

    name: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    finalizers: tuple[str, ...] | None = None


class EnvShape(Shape):
    """One variable."""

    name: str
    value: str | None = None


class ContainerPortShape(Shape):
    """One port of a container."""

    name: str | None = None
    container_port: int


class MountShape(Shape):
    """One mount."""

    name: str
    mount_path: str


class ResourcesShape(Shape):
    """What a container may and wants to use."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class ContainerShape(Shape):
    """One container, as far as we read it."""

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
    """The user's own head service."""

    metadata: MetadataShape | None = None
    spec: ServiceSpecShape | None = None


class GroupShape(Shape):
    """Head or worker group."""

    template: TemplateShape | None = None
    head_service: ServiceShape | None = None


class EnvListShape(Shape):
    """Options with an environment of their own."""

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
    """The status without what cannot be one: we wrote none of that, and the next write of ours replaces it."""
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
