"""What does every Kubernetes object have, and where does its kind live in the API?

Takes raw objects and kinds, gives metadata as a frozen value, URL paths and owner references. It never talks to the
API. Used by the wires (paths) and by every room (metadata, keys, owners).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON; opaque on purpose (D13)."""


class Key(NamedTuple):
    """Which object: what a work queue holds and every log line carries."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API serves it: `group` is empty for core, `plural` is the URL's word."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as manifests spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of its subresource."""
        parts = ["/apis/" + self.group if self.group else "/api", self.version]
        if namespace and self.is_namespaced:
            parts += ["namespaces", namespace]
        parts += [self.plural, *(p for p in (name, subresource) if p)]
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
SERVICES: Final = Resource("", "v1", "services", "Service")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
NODES: Final = Resource("", "v1", "nodes", "Node", is_namespaced=False)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", is_namespaced=False
)
RAYCLUSTERS: Final = Resource("ray.io", "v1", "rayclusters", "RayCluster")


class Value(BaseModel):
    """Base of all models of what users write: frozen, extra keys and nulls ignored, JSON names in camelCase (D13)."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class ObjectMeta(Value):
    """The part of `metadata` that we read."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)


def controller_reference(resource: Resource, name: str, uid: str) -> Manifest:
    """The owner reference every child of ours carries (RC §2.2; RM:I8)."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def micro_time(moment: datetime) -> str:
    """A moment in UTC as Kubernetes' MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
