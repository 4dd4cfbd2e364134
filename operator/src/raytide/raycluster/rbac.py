"""What may a cluster's autoscaler do, and under which name?

Takes the cluster, gives its service account, role and role binding as KubeRay names and labels them (RC §2.4, RC:RB-1 to
RC:RB-5), with rights to its own RayCluster alone (SC:S10, RM:I12). They are created once and never changed (D8); a service
account that the head's template names is the user's affair and only has to exist. What was there before without an owner, as
after a restored backup, is used if it grants no more than ours would. Pure; called by plan.py, and asked for
names by pod construction.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from raytide.api import names
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

EVENT_REASONS: Final = {
    SERVICE_ACCOUNTS: (names.CREATED_SERVICE_ACCOUNT, names.FAILED_TO_CREATE_SERVICE_ACCOUNT),
    ROLES: (names.CREATED_ROLE, names.FAILED_TO_CREATE_ROLE),
    ROLE_BINDINGS: (names.CREATED_ROLE_BINDING, names.FAILED_TO_CREATE_ROLE_BINDING),
}
"""What is told when one was created, and when not (RC §6.1)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One object to look for by name, because nobody watches its kind (D3)."""

    resource: Resource
    name: str
    has_to_be_ours: bool = True
    """Whether one of that name that the cluster does not own is none, unless it has no owner and is as good as `ours`."""
    ours: Manifest | None = field(default=None, compare=False)
    """What would be created."""


def named_service_account(cluster: RayCluster) -> str:
    """The account that the head's template names; empty when it leaves that to us."""
    spec: Manifest = cluster.spec.head_group_spec.template.get("spec") or {}
    return spec.get("serviceAccountName") or ""


def service_account_name(cluster: RayCluster) -> str:
    """Under which account the head pod runs: the user's as it is written, else one of our own."""
    return named_service_account(cluster) or names.check_name(cluster.metadata.name)


def lookups(cluster: RayCluster, config: AutoscalerConfig) -> tuple[Lookup, ...]:
    """What has to be there for an autoscaler; nothing where none runs or the cluster is going."""
    if not cluster.is_autoscaled or cluster.metadata.deletion_timestamp:
        return ()
    name, ours = names.check_name(cluster.metadata.name), dict(build_rights(cluster, config))
    is_named = bool(named_service_account(cluster))
    account = Lookup(SERVICE_ACCOUNTS, service_account_name(cluster), not is_named, ours[SERVICE_ACCOUNTS])
    return account, *(Lookup(resource, name, ours=ours[resource]) for resource in (ROLES, ROLE_BINDINGS))


def grants_no_more(live: Manifest, ours: Manifest) -> bool:
    """Whether an object that was there before may stand for the one that we would make (FD:RC-B9).

    An account grants nothing by itself. A role must not allow what ours does not, a binding has to be of our role and to
    nobody but our account.
    """
    if ours["kind"] == ROLES.kind:
        allowed = set(_granted(ours))
        return all(right in allowed or (*right[:3], _ANY_NAME) in allowed for right in _granted(live))
    if ours["kind"] == ROLE_BINDINGS.kind:
        return all(live.get(field_name) == ours[field_name] for field_name in ("roleRef", "subjects"))
    return True


_ANY_NAME: Final = ""


def _granted(role: Manifest) -> Iterator[tuple[str, str, str, str]]:
    """Every right of a role: group, resource, verb, and the only name for which it holds."""
    for rule in role.get("rules") or ():
        yield from product(
            rule.get("apiGroups") or (),
            rule.get("resources") or (),
            rule.get("verbs") or (),
            rule.get("resourceNames") or (_ANY_NAME,),
        )


def build_rights(cluster: RayCluster, config: AutoscalerConfig) -> tuple[tuple[Resource, Manifest], ...]:
    """All three, in the order in which they have to come; KubeRay's full rights only where Ray's autoscaler is the rule."""
    return (
        (SERVICE_ACCOUNTS, build_service_account(cluster)),
        (ROLES, build_role(cluster, may_resize_pods=config.mode == "ray")),
        (ROLE_BINDINGS, build_role_binding(cluster)),
    )


def build_service_account(cluster: RayCluster) -> Manifest:
    """The autoscaler's account; whoever needs a token mounts it himself."""
    return _object(cluster, SERVICE_ACCOUNTS)


def build_role(cluster: RayCluster, *, may_resize_pods: bool) -> Manifest:
    """To read pods and what events say about them, and to follow and write this one RayCluster (RC:RB-4, FD:AS-A16).

    Pods have names nobody knows beforehand, so their rights cannot be narrowed: `may_resize_pods` is for Ray's own
    autoscaler, which resizes pods in place, and lets it write to every pod of the namespace. A name does narrow list and
    watch of RayClusters, as the API server lets only requests for that `metadata.name` pass; Ray's asks for neither.
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
    """The role for the account (RC:RB-5)."""
    account = {
        "kind": SERVICE_ACCOUNTS.kind,
        "name": service_account_name(cluster),
        "namespace": cluster.metadata.namespace,
    }
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": names.check_name(cluster.metadata.name)}
    return {**_object(cluster, ROLE_BINDINGS), "subjects": [account], "roleRef": role}


def _object(cluster: RayCluster, resource: Resource) -> Manifest:
    metadata = {
        "name": names.check_name(cluster.metadata.name),
        "namespace": cluster.metadata.namespace,
        "labels": {
            names.CLUSTER_LABEL: cluster.metadata.name,
            names.APP_NAME_LABEL: names.APP_NAME,
            names.CREATED_BY_LABEL: names.CREATED_BY,
        },
        "ownerReferences": [controller_reference(RAYCLUSTERS, cluster.metadata.name, cluster.metadata.uid)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
