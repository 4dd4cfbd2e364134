"""Access review: which permissions the operator lacks.

Takes rows of `api/rbac_rules` and checks each verb with a SelfSubjectAccessReview, a few at a time. Each missing
permission is logged with its purpose; while a required one is missing readiness fails and the check is repeated,
because RBAC may be applied after the Deployment. It never ends the process and changes nothing. Run by manager/main.py
alongside the controllers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import ACCESS_REVIEWS, Manifest, Resource
from raytide.api.rbac_rules import Permission, Scope
from raytide.kube.client import Client

log = logging.getLogger(__name__)

ALL_GRANTED: Final = "all required permissions are granted"

REVIEW_EVERY_S: Final = 30.0
MAX_IN_FLIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class AccessReview:
    """One verb of one row in one namespace."""

    permission: Permission
    verb: str
    namespace: str
    """Empty: all namespaces, or a cluster-scoped kind."""

    def __str__(self) -> str:
        group = f".{self.permission.group}" if self.permission.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.permission.resource}{group}{where}"

    def manifest(self) -> Manifest:
        """Build the SelfSubjectAccessReview."""
        attributes = {
            "verb": self.verb,
            "group": self.permission.group,
            "resource": self.permission.on.plural,
            "subresource": self.permission.subresource,
            "namespace": self.namespace,
        }
        spec = {"resourceAttributes": {name: value for name, value in attributes.items() if value}}
        return {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": spec,
        }


def access_reviews(
    permissions: Iterable[Permission], *, watched: tuple[str, ...], own: str | None
) -> tuple[AccessReview, ...]:
    """Each verb of each row in each namespace where it is needed; rows of our own namespace only if it is known.

    Rows of `Scope.EVERYWHERE` are included only if some namespaces are watched; otherwise the other rows cover them.
    """
    namespaces = {
        Scope.WATCHED: watched or ("",),
        Scope.OWN: () if own is None else (own,),
        Scope.CLUSTER: ("",),
        Scope.EVERYWHERE: ("",) if watched else (),
    }
    return tuple(
        AccessReview(permission, verb, namespace)
        for permission in permissions
        for verb in permission.verbs
        for namespace in namespaces[permission.scope]
    )


async def is_allowed(client: Client, review: AccessReview) -> bool:
    """Whether the client's user may do that; raises ApiStatusError and ApiUnavailableError."""
    answer = await client.create(ACCESS_REVIEWS, review.manifest())
    return bool((answer.get("status") or {}).get("allowed"))


class AccessReviewer:
    """Latest answers to the access reviews.

    - `ask` checks all permissions once and logs the missing ones if they changed.
    - `run` repeats that every 30 s while a required permission is missing or the API server did not answer.
    - `check` is for readiness: false while a required permission is missing; failed reviews count as allowed.
    - Permissions for a kind that is not served are ignored until it is served.
    """

    def __init__(
        self,
        client: Client,
        reviews: tuple[AccessReview, ...],
        *,
        is_served: Callable[[Resource], bool] = lambda _resource: True,
    ) -> None:
        """`is_served`: whether the API server serves a resource; permissions on those it does not serve are not missed."""
        self._client = client
        self._reviews = reviews
        self._is_served = is_served
        self._denied: tuple[AccessReview, ...] = ()
        self._logged: tuple[AccessReview, ...] = ()
        self._last_error = ""

    async def run(self) -> None:
        """Repeat the checks while a permission is missing or the API server does not answer; until cancelled."""
        while True:
            await asyncio.sleep(REVIEW_EVERY_S)
            if self._last_error or not self.check()[0]:
                await self.ask()

    async def ask(self) -> None:
        """Check all permissions once."""
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        try:
            allowed = await asyncio.gather(*(self._is_allowed(review, slots) for review in self._reviews))
        except (ApiStatusError, ApiUnavailableError) as error:
            self._log_error(f"cannot review permissions: {error}")
            return
        self._last_error = ""
        self._denied = tuple(
            review for review, is_allowed in zip(self._reviews, allowed, strict=True) if not is_allowed
        )
        if self._missing != self._logged:
            self._log_missing(self._missing)
        self._logged = self._missing

    def check(self) -> tuple[bool, str]:
        """Whether all required permissions are granted, and which are not."""
        required = [str(review) for review in self._missing if review.permission.is_required]
        if required:
            return False, f"missing permissions: {', '.join(required)}"
        return True, self._last_error or ALL_GRANTED

    @property
    def _missing(self) -> tuple[AccessReview, ...]:
        """Denied permissions of kinds that are served."""
        return tuple(
            review
            for review in self._denied
            if review.permission.kind is None or self._is_served(review.permission.kind)
        )

    async def _is_allowed(self, review: AccessReview, slots: asyncio.Semaphore) -> bool:
        async with slots:
            return await is_allowed(self._client, review)

    def _log_missing(self, missing: tuple[AccessReview, ...]) -> None:
        for review in missing:
            permission = review.permission
            if permission.is_required:
                log.warning("missing permission: %s, needed to %s", review, permission.purpose)
            else:
                log.info("missing optional permission: %s, needed to %s", review, permission.purpose)
        if not any(review.permission.is_required for review in missing):
            log.info(ALL_GRANTED)

    def _log_error(self, error: str) -> None:
        if error != self._last_error:
            log.warning("%s", error)
        self._last_error = error
