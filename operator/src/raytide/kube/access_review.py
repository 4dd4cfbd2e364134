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

ASK_EVERY_S: Final = 30.0
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Question:
    """One verb of one row in one namespace."""

    permission: Permission
    verb: str
    namespace: str
    """Empty: all namespaces, or a cluster-scoped kind."""

    def __str__(self) -> str:
        group = f".{self.permission.group}" if self.permission.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.permission.resource}{group}{where}"

    def review(self) -> Manifest:
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


def questions(permissions: Iterable[Permission], *, watched: tuple[str, ...], own: str | None) -> tuple[Question, ...]:
    """Every verb of every row in every namespace where it is needed; rows of our own namespace only if it is known.

    Rows of `Scope.EVERYWHERE` are included only if some namespaces are watched; otherwise the other rows cover them.
    """
    namespaces = {
        Scope.WATCHED: watched or ("",),
        Scope.OWN: () if own is None else (own,),
        Scope.CLUSTER: ("",),
        Scope.EVERYWHERE: ("",) if watched else (),
    }
    return tuple(
        Question(permission, verb, namespace)
        for permission in permissions
        for verb in permission.verbs
        for namespace in namespaces[permission.scope]
    )


class Rights:
    """Latest answers to the access reviews.

    - `ask` checks all permissions once and logs the missing ones if they changed.
    - `run` repeats that every 30 s while a required permission is missing or the API server did not answer.
    - `check` is for readiness: false while a required permission is missing; failed reviews count as allowed.
    - Permissions for a kind that is not served are ignored until it is served.
    """

    def __init__(
        self,
        client: Client,
        asked: tuple[Question, ...],
        *,
        is_served: Callable[[Resource], bool] = lambda _kind: True,
    ) -> None:
        """`is_served`: whether the API server serves the kind of a row."""
        self._client = client
        self._asked = asked
        self._is_served = is_served
        self._denied: tuple[Question, ...] = ()
        self._told: tuple[Question, ...] = ()
        self._trouble = ""

    async def run(self) -> None:
        """Repeat the checks while a permission is missing or the API server does not answer; until cancelled."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            if self._trouble or not self.check()[0]:
                await self.ask()

    async def ask(self) -> None:
        """Check all permissions once."""
        slots = asyncio.Semaphore(AT_ONCE)
        try:
            allowed = await asyncio.gather(*(self._is_allowed(question, slots) for question in self._asked))
        except (ApiStatusError, ApiUnavailableError) as trouble:
            self._tell_trouble(f"cannot review permissions: {trouble}")
            return
        self._trouble = ""
        self._denied = tuple(
            question for question, is_allowed in zip(self._asked, allowed, strict=True) if not is_allowed
        )
        if self._missing != self._told:
            self._tell(self._missing)
        self._told = self._missing

    def check(self) -> tuple[bool, str]:
        """Whether all required permissions are granted, and which are not."""
        required = [str(question) for question in self._missing if question.permission.is_required]
        if required:
            return False, f"missing permissions: {', '.join(required)}"
        return True, self._trouble or "all required permissions are granted"

    @property
    def _missing(self) -> tuple[Question, ...]:
        """Denied permissions of kinds that are served."""
        return tuple(
            question
            for question in self._denied
            if question.permission.kind is None or self._is_served(question.permission.kind)
        )

    async def _is_allowed(self, question: Question, slots: asyncio.Semaphore) -> bool:
        async with slots:
            answer = await self._client.create(ACCESS_REVIEWS, question.review())
        return bool((answer.get("status") or {}).get("allowed"))

    def _tell(self, missing: tuple[Question, ...]) -> None:
        for question in missing:
            permission = question.permission
            if permission.is_required:
                log.warning("missing permission: %s, needed to %s", question, permission.purpose)
            else:
                log.info("missing optional permission: %s, needed to %s", question, permission.purpose)
        if not any(question.permission.is_required for question in missing):
            log.info("all required permissions are granted")

    def _tell_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble
