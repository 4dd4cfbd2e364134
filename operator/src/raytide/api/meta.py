"""Object keys, API resources, URL paths and owner references.

Maps a kind and a name to a key, a URL path or an owner reference. It makes no API calls and imports only the standard
library, because every process imports it, the small autoscaler sidecar too. Used by the API clients and all
controllers.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON; opaque on purpose (D13)."""


class Key(NamedTuple):
    """Namespace and name of an object: the item of a work queue, and part of every log line."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API serves it: `group` is empty for core, `plural` is the name in URLs."""

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
        # Names may come from specs, and not all of those are validated: none may lead to another path.
        parts += [self.plural, *([quote(name, safe="")] if name else []), *([subresource] if subresource else [])]
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", is_namespaced=False)
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False)
EVENTS: Final = Resource("", "v1", "events", "Event")
"""core/v1: its field selectors cover the source; `events.k8s.io` rejects the timestamps that clients sort by."""
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
PERSISTENT_VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", is_namespaced=False
)
RAYCLUSTERS: Final = Resource("ray.io", "v1", "rayclusters", "RayCluster")
TRAININGJOBS: Final = Resource("paddlepaddle.org", "v1", "trainingjobs", "TrainingJob")


def controller_reference(resource: Resource, name: str, uid: str) -> Manifest:
    """The controller owner reference that every child object carries (RC §2.2; RM:I8)."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def micro_time(moment: datetime) -> str:
    """A UTC time in the format of Kubernetes' MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
