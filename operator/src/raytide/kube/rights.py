"""Which rights are missing?

Takes the rows of `api/permissions` that matter, and asks the API about each verb by SelfSubjectAccessReview, a few at a
time. What is missing is named, one line each, with what it is for; as long as something required is missing the answer
to "ready?" is no, and the question is repeated, because roles may be applied after the Deployment. It never ends the
process and changes nothing. Run by main.py before the work begins.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import ACCESS_REVIEWS, Manifest, Resource
from raytide.api.permissions import Permission, Scope
from raytide.kube.client import Client

log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 30.0
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Question:
    """One verb of one row, somewhere."""

    permission: Permission
    verb: str
    namespace: str
    """Empty: in all namespaces, or on what has none."""

    def __str__(self) -> str:
        group = f".{self.permission.group}" if self.permission.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.permission.resource}{group}{where}"

    def review(self) -> Manifest:
        """As the API wants to be asked."""
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
    """Every verb of every row, everywhere it is needed; rows of our own namespace only where there is one.

    What is needed everywhere is asked about where only some namespaces are watched; else the rows of those say it.
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
    """The answers to some questions, as they were given last.

    - `ask` asks all of them once and says what is missing, if that is news.
    - `run` repeats that every 30 s as long as something required is missing, or nobody answered.
    - `check` is for readiness: no as long as something required is missing; what could not be asked is believed.
    - Rows of a kind that is not served are not missed, and named as soon as it is.
    """

    def __init__(
        self,
        client: Client,
        asked: tuple[Question, ...],
        *,
        is_served: Callable[[Resource], bool] = lambda _kind: True,
    ) -> None:
        """`is_served`: whether the API serves the kind that a row is for."""
        self._client = client
        self._asked = asked
        self._is_served = is_served
        self._denied: tuple[Question, ...] = ()
        self._told: tuple[Question, ...] = ()
        self._trouble = ""

    async def run(self) -> None:
        """Ask as long as something is missing, or nobody answers; until cancelled."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            if self._trouble or not self.check()[0]:
                await self.ask()

    async def ask(self) -> None:
        """One round."""
        slots = asyncio.Semaphore(AT_ONCE)
        try:
            allowed = await asyncio.gather(*(self._is_allowed(question, slots) for question in self._asked))
        except (Refused, Unavailable) as trouble:
            self._tell_trouble(f"cannot ask which rights there are: {trouble}")
            return
        self._trouble = ""
        self._denied = tuple(
            question for question, is_allowed in zip(self._asked, allowed, strict=True) if not is_allowed
        )
        if self._missing != self._told:
            self._tell(self._missing)
        self._told = self._missing

    def check(self) -> tuple[bool, str]:
        """Whether everything required is there, and what is not."""
        required = [str(question) for question in self._missing if question.permission.is_required]
        if required:
            return False, f"missing: {', '.join(required)}"
        return True, self._trouble or "enough"

    @property
    def _missing(self) -> tuple[Question, ...]:
        """What was denied and matters."""
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
                log.warning("missing right: %s, needed to %s", question, permission.purpose)
            else:
                log.info("missing right, not required: %s, needed to %s", question, permission.purpose)
        if not any(question.permission.is_required for question in missing):
            log.info("every right that is required is there")

    def _tell_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble
