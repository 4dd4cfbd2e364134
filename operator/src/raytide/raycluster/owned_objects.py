"""Table of the objects besides pods that a RayCluster owns.

A row names the kind, when the object is missing, how it is built, the create backoff's slot and the event reasons.
Every object is created once and never changed (RC:HS-1, RC:HL-1, RC:RB-1, RC:RB-2, RC:PVC-2, D8), but for the owner of the
volume's claim (plan.py). A new object is a new row; if no informer watches its kind, it also needs a `Lookup`. Pure; read by plan.py and conditions.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from raytide.api import constants
from raytide.api.actions import Create
from raytide.api.config import ClusterConfig
from raytide.api.meta import (
    PERSISTENT_VOLUME_CLAIMS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Manifest,
    Resource,
)
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.gcs_storage import build_claim, claim_name, users_claim
from raytide.raycluster.manifests.rbac import EVENT_REASONS, build_rights, named_service_account
from raytide.raycluster.manifests.services import build_head_service, build_headless_worker_service
from raytide.raycluster.manifests.token_auth import build_secret, secret_name
from raytide.raycluster.observed import Observed
from raytide.raycluster.spec_queries import has_rocksdb_fault_tolerance

SERVICE_SLOT: Final = ""
"""The `group` under which a rejected head service is stored; the head and the worker groups have their own."""
HEADLESS_SLOT: Final = "(headless service)"
RIGHTS_SLOT: Final = "(autoscaler)"
"""The same for the autoscaler's RBAC objects; no worker group can have that name."""
STORAGE_SLOT: Final = "(storage)"
AUTH_SLOT: Final = "(authentication)"

DrawToken: TypeAlias = Callable[[], str]
"""Draws a new secret token."""


@dataclass(frozen=True, slots=True)
class OwnedObject:
    """One object that is created once when it is wanted and missing."""

    resource: Resource
    slot: str
    """The `group` of its create: while the backoff of a slot lasts, none of its objects is created."""
    success_reason: str
    failure_reason: str
    is_missing: Callable[[RayCluster, Observed], bool]
    """Whether it is wanted and does not exist."""
    build: Callable[[RayCluster, ClusterConfig, DrawToken], Manifest]
    waits_for: Resource | None = None
    """A kind whose missing object is created first: the API server rejects references to missing objects."""
    is_before_head: bool = False
    """Whether a first head pod waits for it; if a head exists, later steps do not wait."""

    def create(self, cluster: RayCluster, config: ClusterConfig, draw_token: DrawToken) -> Create:
        """The create of this object."""
        manifest = self.build(cluster, config, draw_token)
        return Create(self.resource, manifest, self.success_reason, self.failure_reason, self.slot)


def missing_named_account(cluster: RayCluster, observed: Observed) -> str:
    """The user's service account if it is missing, else empty; without it no RBAC object is created."""
    account = named_service_account(cluster)
    return account if (SERVICE_ACCOUNTS, account) in observed.missing else ""


def _lacks_head_service(_cluster: RayCluster, observed: Observed) -> bool:
    return observed.head_service is None


def _lacks_headless_service(cluster: RayCluster, observed: Observed) -> bool:
    has_hosts = any(group.num_of_hosts > 1 for group in cluster.spec.worker_group_specs)
    return has_hosts and not observed.has_headless_worker_service


def _lacks_auth_secret(cluster: RayCluster, observed: Observed) -> bool:
    return (SECRETS, secret_name(cluster)) in observed.missing


def _lacks_gcs_claim(cluster: RayCluster, observed: Observed) -> bool:
    is_ours = has_rocksdb_fault_tolerance(cluster) and not users_claim(cluster)
    return is_ours and (PERSISTENT_VOLUME_CLAIMS, claim_name(cluster)) in observed.missing


def _right(resource: Resource, *, waits_for: Resource | None = None) -> OwnedObject:
    """An RBAC object of the autoscaler; it is looked up only while it is wanted."""

    def is_missing(cluster: RayCluster, observed: Observed) -> bool:
        is_absent = (resource, constants.check_name(cluster.metadata.name)) in observed.missing
        return is_absent and not missing_named_account(cluster, observed)

    return OwnedObject(
        resource,
        RIGHTS_SLOT,
        *EVENT_REASONS[resource],
        is_missing=is_missing,
        build=lambda cluster, config, _: dict(build_rights(cluster, config.autoscaler))[resource],
        waits_for=waits_for,
        is_before_head=True,
    )


OWNED_OBJECTS: Final = (
    OwnedObject(
        SERVICES,
        SERVICE_SLOT,
        constants.CREATED_SERVICE,
        constants.FAILED_TO_CREATE_SERVICE,
        is_missing=_lacks_head_service,
        build=lambda cluster, config, _: build_head_service(cluster, config.pods),
    ),
    OwnedObject(  # one for the hosts of all multi-host groups
        SERVICES,
        HEADLESS_SLOT,
        constants.CREATED_SERVICE,
        constants.FAILED_TO_CREATE_SERVICE,
        is_missing=_lacks_headless_service,
        build=lambda cluster, _config, _: build_headless_worker_service(cluster),
    ),
    _right(SERVICE_ACCOUNTS),
    _right(ROLES),
    _right(ROLE_BINDINGS, waits_for=ROLES),
    OwnedObject(
        SECRETS,
        AUTH_SLOT,
        "",  # no event in KubeRay either
        constants.FAILED_TO_CREATE_AUTH_SECRET,
        is_missing=_lacks_auth_secret,
        build=lambda cluster, _config, draw_token: build_secret(cluster, draw_token()),
        is_before_head=True,
    ),
    OwnedObject(
        PERSISTENT_VOLUME_CLAIMS,
        STORAGE_SLOT,
        constants.CREATED_PVC,
        constants.FAILED_TO_CREATE_PVC,
        is_missing=_lacks_gcs_claim,
        build=lambda cluster, _config, _: build_claim(cluster),
        is_before_head=True,
    ),
)
"""In the order of their creation; rows of one slot are consecutive."""

NAMELESS_SLOTS: Final = frozenset(row.slot for row in OWNED_OBJECTS)
"""Slots that conditions do not name, because the API server's message names the object."""
