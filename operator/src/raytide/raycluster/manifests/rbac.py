"""Service account, role and role binding of a cluster's autoscaler.

Builds the three objects as KubeRay names and labels them (RC §2.4, RC:RB-1 to RC:RB-5), with access to the cluster's
own RayCluster only (SC:S10, RM:I12). They are created once and never updated (D8); a service account named in the
head's template belongs to the user and only has to exist. An existing object without an owner, as after a restored
backup, is used if it grants no more than the operator's would. Pure; called by raycluster/plan.py, and by pod
construction for names.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product, starmap
from typing import Any, Final, NamedTuple

from raytide.api import constants
from raytide.api.config import AutoscalerConfig
from raytide.api.meta import (
    RAYCLUSTERS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Manifest,
    Resource,
    controller_reference,
)
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.lookup import Lookup

EVENT_REASONS: Final = {
    SERVICE_ACCOUNTS: (constants.CREATED_SERVICE_ACCOUNT, constants.FAILED_TO_CREATE_SERVICE_ACCOUNT),
    ROLES: (constants.CREATED_ROLE, constants.FAILED_TO_CREATE_ROLE),
    ROLE_BINDINGS: (constants.CREATED_ROLE_BINDING, constants.FAILED_TO_CREATE_ROLE_BINDING),
}
"""Event reasons of a create that succeeded and of one that failed (RC §6.1)."""


def named_service_account(cluster: RayCluster) -> str:
    """The service account named in the head's template; empty when it names none."""
    spec: Manifest = cluster.spec.head_group_spec.template.get("spec") or {}
    return spec.get("serviceAccountName") or ""


def service_account_name(cluster: RayCluster) -> str:
    """The head pod's service account: the user's as written, else the operator's."""
    return named_service_account(cluster) or constants.check_name(cluster.metadata.name)


def lookups(cluster: RayCluster, config: AutoscalerConfig) -> tuple[Lookup, ...]:
    """The objects that an autoscaler needs; none without an autoscaler, when the cluster is terminating, or if users create them."""
    if not cluster.is_autoscaled or cluster.metadata.deletion_timestamp or not config.creates_rbac:
        return ()
    name, ours = constants.check_name(cluster.metadata.name), dict(build_rights(cluster, config))
    is_named = bool(named_service_account(cluster))
    names = {SERVICE_ACCOUNTS: service_account_name(cluster), ROLES: name, ROLE_BINDINGS: name}
    return tuple(
        Lookup(
            resource,
            names[resource],
            has_to_be_ours=not (is_named and resource == SERVICE_ACCOUNTS),
            may_use=partial(grants_no_more, ours=manifest),
        )
        for resource, manifest in ours.items()
    )


def grants_no_more(live: Manifest, ours: Manifest) -> bool:
    """Whether an existing object can be used instead of the operator's (FD:RC-B9).

    A service account grants nothing by itself. A role must not allow more than `ours`, and a binding must have the same
    role and subjects.
    """
    if ours["kind"] == ROLES.kind:
        allowed = set(_permissions(ours))
        return all(each in allowed or each._replace(resource_name=_ANY_NAME) in allowed for each in _permissions(live))
    if ours["kind"] == ROLE_BINDINGS.kind:
        return all(live.get(field_name) == ours[field_name] for field_name in ("roleRef", "subjects"))
    return True


_ANY_NAME: Final = ""


class _Permission(NamedTuple):
    """One verb on one resource; `resource_name` is the only object that it is for, or _ANY_NAME."""

    api_group: str
    resource: str
    verb: str
    resource_name: str


def _permissions(role: Manifest) -> Iterator[_Permission]:
    for rule in role.get("rules") or ():
        yield from starmap(
            _Permission,
            product(
                rule.get("apiGroups") or (),
                rule.get("resources") or (),
                rule.get("verbs") or (),
                rule.get("resourceNames") or (_ANY_NAME,),
            ),
        )


def build_rights(cluster: RayCluster, config: AutoscalerConfig) -> tuple[tuple[Resource, Manifest], ...]:
    """All three in creation order; KubeRay's full permissions only where Ray's autoscaler is the default."""
    return (
        (SERVICE_ACCOUNTS, build_service_account(cluster)),
        (ROLES, build_role(cluster, may_resize_pods=config.mode == "ray")),
        (ROLE_BINDINGS, build_role_binding(cluster)),
    )


def build_service_account(cluster: RayCluster) -> Manifest:
    """The autoscaler's service account; the pod, not the account, decides which container mounts a token."""
    return _object(cluster, SERVICE_ACCOUNTS)


def build_role(cluster: RayCluster, *, may_resize_pods: bool) -> Manifest:
    """The role: read pods and their events, watch and patch this one RayCluster (RC:RB-4, FD:AS-A16).

    Pod names are not known in advance, so permissions on pods cannot be limited by name: `may_resize_pods`, for Ray's
    autoscaler, which resizes pods in place, allows patches of all pods in the namespace. List and watch of RayClusters
    are limited by name, since the API server then requires that `metadata.name` in the request; Ray's needs neither.
    """
    pods = ["get", "list", "watch", *(["patch"] if may_resize_pods else [])]
    resizing = [{"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]}] if may_resize_pods else []
    following = [] if may_resize_pods else ["list", "watch"]
    own = {"apiGroups": [RAYCLUSTERS.group], "resources": [RAYCLUSTERS.plural], "verbs": ["get", *following, "patch"]}
    events = [] if may_resize_pods else [{"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}]
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": pods},
        *events,
        *resizing,
        {**own, "resourceNames": [cluster.metadata.name]},
    ]
    return {**_object(cluster, ROLES), "rules": rules}


def build_role_binding(cluster: RayCluster) -> Manifest:
    """The binding of the role to the service account (RC:RB-5)."""
    account = {
        "kind": SERVICE_ACCOUNTS.kind,
        "name": service_account_name(cluster),
        "namespace": cluster.metadata.namespace,
    }
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": constants.check_name(cluster.metadata.name)}
    return {**_object(cluster, ROLE_BINDINGS), "subjects": [account], "roleRef": role}


def _object(cluster: RayCluster, resource: Resource) -> Manifest:
    metadata = {
        "name": constants.check_name(cluster.metadata.name),
        "namespace": cluster.metadata.namespace,
        "labels": {
            constants.CLUSTER_LABEL: cluster.metadata.name,
            constants.APP_NAME_LABEL: constants.APP_NAME,
            constants.CREATED_BY_LABEL: constants.CREATED_BY,
        },
        "ownerReferences": [controller_reference(RAYCLUSTERS, cluster.metadata.name, cluster.metadata.uid)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
