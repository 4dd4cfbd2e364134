"""What must the operator be allowed to do?

One table, from which the chart's roles are written (tools/chart.py) and which the start-up check asks the API about, so
that a missing right is named before it hurts. Rows are values: a resource, its verbs, where they are needed, whether the
operator works without them, and what for in words for people. It holds what the code really does, and what it has to
hold in order to pass it on to autoscalers: no wildcard, no Secret, no exec (SE:C6, SE:C7); a test counts. Read by the
chart generator and by main's start-up check.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from raytide.api.config import AutoscalerMode
from raytide.api.meta import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RAYCLUSTERS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    TRAININGJOBS,
    Resource,
)


class Scope(Enum):
    """Where a right is needed, and so which kind of role can give it."""

    WATCHED = "watched"
    """In every watched namespace: a ClusterRole when all are watched, otherwise a Role in each of them."""
    OWN = "own"
    """In the operator's own namespace only: always a Role."""
    CLUSTER = "cluster"
    """On objects without a namespace: always a ClusterRole."""
    EVERYWHERE = "everywhere"
    """In all namespaces, whichever are watched, since nodes are full of everybody's pods: a ClusterRole, unless all are
    watched and the same right stands in a row of WATCHED."""


class Triple(NamedTuple):
    """One right, as Kubernetes counts: `resource` may have a subresource (`rayclusters/status`)."""

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
    """What cannot be done without it: follows "needed to" in a message."""
    subresource: str = ""
    scope: Scope = Scope.WATCHED
    is_required: bool = True
    """False when the operator works without it, if less well."""
    mode: AutoscalerMode | None = None
    """Needed only where this autoscaler is the rule (api/config); None: always."""
    kind: Resource | None = None
    """Needed only where the API serves this kind; None: always."""

    @property
    def group(self) -> str:
        """The API group; empty for core."""
        return self.on.group

    @property
    def resource(self) -> str:
        """As a role's rule spells it: `pods`, `rayclusters/status`."""
        return f"{self.on.plural}/{self.subresource}" if self.subresource else self.on.plural

    @property
    def triples(self) -> tuple[Triple, ...]:
        """Each verb by itself."""
        return tuple(Triple(self.group, self.resource, verb) for verb in self.verbs)


PERMISSIONS: Final = (
    Permission(RAYCLUSTERS, ("get", "list", "watch"), "know which RayClusters should exist", kind=RAYCLUSTERS),
    Permission(RAYCLUSTERS, ("patch",), "report status and conditions", subresource="status", kind=RAYCLUSTERS),
    Permission(
        RAYCLUSTERS,
        ("update",),
        "own pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)",
        subresource="finalizers",
        is_required=False,
    ),
    Permission(TRAININGJOBS, ("get", "list", "watch"), "know which TrainingJobs should exist", kind=TRAININGJOBS),
    Permission(TRAININGJOBS, ("patch",), "report status and conditions", subresource="status", kind=TRAININGJOBS),
    Permission(
        TRAININGJOBS,
        ("patch",),
        "share the cluster: spec.trainer.replicas and the record of why, nothing else",
        kind=TRAININGJOBS,
    ),
    Permission(TRAININGJOBS, ("delete",), "remove jobs whose ttlSecondsAfterFinished is over", is_required=False),
    Permission(
        TRAININGJOBS,
        ("update",),
        "own their pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)",
        subresource="finalizers",
        is_required=False,
    ),
    Permission(
        CONFIG_MAPS,
        ("get", "list", "watch"),
        "see the membership of jobs: only those with our label are asked for",
        kind=TRAININGJOBS,
    ),
    Permission(CONFIG_MAPS, ("create", "patch"), "tell the pods of a job who the others are", kind=TRAININGJOBS),
    Permission(PODS, ("get", "list", "watch"), "see the pods of RayClusters and TrainingJobs"),
    Permission(PODS, ("create", "delete"), "make and remove the pods of RayClusters and TrainingJobs"),
    Permission(SERVICES, ("get", "list", "watch"), "see the services of heads and jobs"),
    Permission(SERVICES, ("create",), "make the services of heads and jobs"),
    Permission(SERVICE_ACCOUNTS, ("get", "create"), "make the accounts under which autoscalers act", is_required=False),
    Permission(ROLES, ("get", "create"), "give each autoscaler rights to its own RayCluster", is_required=False),
    Permission(ROLE_BINDINGS, ("get", "create"), "give each autoscaler its role", is_required=False),
    Permission(
        RAYCLUSTERS,
        ("patch",),
        "let go of deleted RayClusters that KubeRay's finalizer holds, and to pass it on to autoscalers: a role may grant "
        "only what its author has. The operator never writes a spec",
        is_required=False,
    ),
    Permission(PODS, ("patch",), "pass it on to Ray's autoscaler", is_required=False, mode="ray"),
    Permission(
        PODS,
        ("patch",),
        "pass it on to Ray's autoscaler, which resizes pods in place",
        subresource="resize",
        is_required=False,
        mode="ray",
    ),
    Permission(
        RESOURCE_QUOTAS,
        ("get",),
        "see when a quota has room again for all hosts of a replica",
        is_required=False,
    ),
    Permission(
        RESOURCE_QUOTAS,
        ("list", "watch"),
        "share no more with jobs than the quotas of their namespaces allow",
        is_required=False,
    ),
    Permission(
        EVENTS,
        ("list",),
        "pass it on to autoscalers, which read whether a node comes for a pod that none can take",
        is_required=False,
        mode="raytide",
    ),
    Permission(EVENTS, ("create", "patch"), "say what happened in `kubectl describe`", is_required=False),
    Permission(
        NODES,
        ("list", "watch"),
        "replace dying pods whose node is away, and share the room on nodes among jobs",
        scope=Scope.CLUSTER,
        is_required=False,
    ),
    Permission(
        PRIORITY_CLASSES,
        ("list", "watch"),
        "know which job comes before another",
        scope=Scope.CLUSTER,
        is_required=False,
    ),
    Permission(
        PODS,
        ("list", "watch"),
        "know how much room is left on nodes",
        scope=Scope.EVERYWHERE,
        is_required=False,
    ),
    Permission(LEASES, ("get", "create", "update"), "make sure that only one operator acts", scope=Scope.OWN),
)


def triples_of(permissions: Iterable[Permission]) -> frozenset[Triple]:
    """All single rights of these rows."""
    return frozenset(triple for permission in permissions for triple in permission.triples)


def permissions_for(mode: AutoscalerMode) -> tuple[Permission, ...]:
    """The rows that count where this autoscaler is the rule."""
    return tuple(permission for permission in PERMISSIONS if permission.mode in (None, mode))


def permissions_in(scope: Scope) -> tuple[Permission, ...]:
    """The rows of one scope, in the table's order."""
    return tuple(permission for permission in PERMISSIONS if permission.scope is scope)
