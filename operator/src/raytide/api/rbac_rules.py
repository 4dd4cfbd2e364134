"""RBAC permissions of the operator.

One table, from which tools/generators/chart.py generates the chart's roles and which the start-up check verifies, so that missing
permissions are reported early. A row contains a resource, verbs, scope, purpose, and whether the operator works without
it. The table lists what the code uses and what the operator must have in order to grant it to autoscalers: no wildcard,
no exec, and no Secret unless it creates those of token authentication (SE:C6, SE:C7); a test checks that. Used by the chart generator and the start-up check.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from raytide.api.config import AutoscalerMode
from raytide.api.meta import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    RAYCLUSTERS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TRAININGJOBS,
    Resource,
)


class Scope(Enum):
    """Where a permission is needed, and so which kind of role grants it."""

    WATCHED = "watched"
    """In every watched namespace: a ClusterRole when all are watched, otherwise a Role in each of them."""
    OWN = "own"
    """In the operator's own namespace only: always a Role."""
    CLUSTER = "cluster"
    """On objects without a namespace: always a ClusterRole."""
    EVERYWHERE = "everywhere"
    """In all namespaces, watched or not, since pods of all namespaces occupy nodes: a ClusterRole, unless all are
    watched and a row of WATCHED grants the same."""


class Feature(Enum):
    """What can be switched off, and takes its permissions with it; the value is the chart's."""

    TENANTS = "sharing.tenants"
    """Tenants are configured."""
    AUTOSCALER_RBAC = "autoscaler.rbac"
    """The operator creates the RBAC objects of autoscalers."""
    REDIS_CLEANUP = "gcsFaultTolerance.redisCleanup"
    """The operator removes the state of the GCS from Redis before a RayCluster is deleted."""
    AUTH_SECRETS = "tokenAuth.createSecrets"
    """The operator creates the Secrets of RayClusters with token authentication."""
    EMBEDDED_STORAGE = "featureGates.GCSFaultToleranceEmbeddedStorage"
    """GCS fault tolerance may use RocksDB."""


class Triple(NamedTuple):
    """One permission as RBAC evaluates it: `resource` may have a subresource (`rayclusters/status`)."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


@dataclass(frozen=True, slots=True)
class Permission:
    """One row: some verbs on one resource, for one purpose."""

    on: Resource
    verbs: tuple[str, ...]
    purpose: str
    """What it is needed for: follows "needed to" in a message."""
    subresource: str = ""
    scope: Scope = Scope.WATCHED
    is_required: bool = True
    """False when the operator works without it, with reduced function."""
    mode: AutoscalerMode | None = None
    """Needed only where this autoscaler is the default (api/config); None: always."""
    feature: Feature | None = None
    """Needed only for this feature; None: always."""
    kind: Resource | None = None
    """Needed only where the API serves this kind and its controller is enabled; None: always."""

    @property
    def group(self) -> str:
        """The API group; empty for core."""
        return self.on.group

    @property
    def resource(self) -> str:
        """The resource as in a role's rule: `pods`, `rayclusters/status`."""
        return f"{self.on.plural}/{self.subresource}" if self.subresource else self.on.plural

    @property
    def triples(self) -> tuple[Triple, ...]:
        """One triple per verb."""
        return tuple(Triple(self.group, self.resource, verb) for verb in self.verbs)


DEFAULT_FEATURES: Final = frozenset(Feature) - {Feature.TENANTS, Feature.AUTH_SECRETS, Feature.EMBEDDED_STORAGE}
"""Those that are on unless they are switched off."""

_FOR_AUTOSCALER_RBAC: Final[dict[str, Any]] = {
    "is_required": False,
    "feature": Feature.AUTOSCALER_RBAC,
    "kind": RAYCLUSTERS,
}

PERMISSIONS: Final = (
    Permission(RAYCLUSTERS, ("get", "list", "watch"), "watch RayClusters", kind=RAYCLUSTERS),
    Permission(RAYCLUSTERS, ("patch",), "report status and conditions", subresource="status", kind=RAYCLUSTERS),
    Permission(
        RAYCLUSTERS,
        ("update",),
        "set owner references of pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)",
        subresource="finalizers",
        is_required=False,
        kind=RAYCLUSTERS,
    ),
    Permission(TRAININGJOBS, ("get", "list", "watch"), "watch TrainingJobs", kind=TRAININGJOBS),
    Permission(TRAININGJOBS, ("patch",), "report status and conditions", subresource="status", kind=TRAININGJOBS),
    Permission(
        TRAININGJOBS,
        ("patch",),
        "scale jobs: only spec.trainer.replicas and the annotation with the decision are changed",
        kind=TRAININGJOBS,
    ),
    Permission(
        TRAININGJOBS,
        ("delete",),
        "delete jobs whose ttlSecondsAfterFinished has passed",
        is_required=False,
        kind=TRAININGJOBS,
    ),
    Permission(
        TRAININGJOBS,
        ("update",),
        "set owner references of their pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)",
        subresource="finalizers",
        is_required=False,
        kind=TRAININGJOBS,
    ),
    Permission(
        CONFIG_MAPS,
        ("get", "list", "watch"),
        "watch the membership of jobs: only ConfigMaps with the operator's label are listed; and to see whether Cluster Autoscaler runs",
        kind=TRAININGJOBS,
    ),
    Permission(
        CONFIG_MAPS, ("create", "patch"), "publish the addresses of a job's pods to its pods", kind=TRAININGJOBS
    ),
    Permission(PODS, ("get", "list", "watch"), "watch the pods of RayClusters and TrainingJobs"),
    Permission(PODS, ("create", "delete"), "create and delete the pods of RayClusters and TrainingJobs"),
    Permission(
        PODS,
        ("patch",),
        "have kubelets update the membership files of a job's running pods at once: only an annotation is changed",
        is_required=False,
        kind=TRAININGJOBS,
    ),
    Permission(SERVICES, ("get", "list", "watch"), "watch the services of heads and jobs"),
    Permission(SERVICES, ("create",), "create the services of heads and jobs"),
    Permission(
        SERVICE_ACCOUNTS, ("get", "create"), "create the service accounts of autoscalers", **_FOR_AUTOSCALER_RBAC
    ),
    Permission(
        ROLES,
        ("get", "create"),
        "create the role of each autoscaler, limited to its own RayCluster",
        **_FOR_AUTOSCALER_RBAC,
    ),
    Permission(
        ROLE_BINDINGS,
        ("get", "create"),
        "bind the role of each autoscaler to its service account",
        **_FOR_AUTOSCALER_RBAC,
    ),
    Permission(
        RAYCLUSTERS,
        ("patch",),
        "set and remove the finalizer of RayClusters with GCS fault tolerance in Redis, and to grant it to autoscalers: a role may grant only what "
        "its creator is granted. The operator never writes a spec",
        is_required=False,
        kind=RAYCLUSTERS,
    ),
    Permission(
        JOBS,
        ("get", "create"),
        "remove the state of the GCS from Redis before a RayCluster with fault tolerance is deleted",
        is_required=False,
        feature=Feature.REDIS_CLEANUP,
        kind=RAYCLUSTERS,
    ),
    Permission(
        SECRETS,
        ("get", "create"),
        "create the Secrets with the tokens of RayClusters with token authentication",
        is_required=False,
        feature=Feature.AUTH_SECRETS,
        kind=RAYCLUSTERS,
    ),
    Permission(
        PERSISTENT_VOLUME_CLAIMS,
        ("get", "create", "patch"),
        "create the volume claims of GCS fault tolerance with RocksDB, and keep or remove their owner",
        is_required=False,
        feature=Feature.EMBEDDED_STORAGE,
        kind=RAYCLUSTERS,
    ),
    Permission(PODS, ("patch",), "grant it to Ray's autoscaler", mode="ray", **_FOR_AUTOSCALER_RBAC),
    Permission(
        PODS,
        ("patch",),
        "grant it to Ray's autoscaler, which resizes pods in place",
        subresource="resize",
        mode="ray",
        **_FOR_AUTOSCALER_RBAC,
    ),
    Permission(
        RESOURCE_QUOTAS,
        ("get",),
        "check when a quota has capacity for all hosts of a replica",
        is_required=False,
        kind=RAYCLUSTERS,
    ),
    Permission(
        RESOURCE_QUOTAS,
        ("list", "watch"),
        "keep jobs within the quotas of their namespaces",
        is_required=False,
        kind=TRAININGJOBS,
    ),
    Permission(
        EVENTS,
        ("list",),
        "grant it to autoscalers, which read whether a node is added for an unschedulable pod",
        mode="raytide",
        **_FOR_AUTOSCALER_RBAC,
    ),
    Permission(EVENTS, ("create", "patch"), "record events", is_required=False),
    Permission(
        NODES,
        ("list", "watch"),
        "replace terminating pods on dead nodes, and share the capacity of nodes among jobs",
        scope=Scope.CLUSTER,
        is_required=False,
    ),
    Permission(
        PRIORITY_CLASSES,
        ("list", "watch"),
        "order jobs by priority",
        scope=Scope.CLUSTER,
        is_required=False,
        kind=TRAININGJOBS,
    ),
    Permission(
        NAMESPACES,
        ("list", "watch"),
        "read the tenants of jobs, which are labels of namespaces",
        scope=Scope.CLUSTER,
        is_required=False,
        feature=Feature.TENANTS,
        kind=TRAININGJOBS,
    ),
    Permission(
        PODS,
        ("list", "watch"),
        "compute the free capacity of nodes",
        scope=Scope.EVERYWHERE,
        is_required=False,
        kind=TRAININGJOBS,
    ),
    Permission(
        LEASES, ("get", "create", "update"), "elect one leader among the replicas of the operator", scope=Scope.OWN
    ),
)


def permissions_for(
    mode: AutoscalerMode,
    *,
    kinds: Collection[Resource] = (RAYCLUSTERS, TRAININGJOBS),
    features: Collection[Feature] = DEFAULT_FEATURES,
) -> tuple[Permission, ...]:
    """The rows that apply where this autoscaler is the default, these kinds have a controller and these features are used."""
    return tuple(
        permission
        for permission in PERMISSIONS
        if permission.mode in (None, mode)
        and (permission.kind is None or permission.kind in kinds)
        and (permission.feature is None or permission.feature in features)
    )


def permissions_in(scope: Scope) -> tuple[Permission, ...]:
    """The rows of one scope, in the table's order."""
    return tuple(permission for permission in PERMISSIONS if permission.scope is scope)
