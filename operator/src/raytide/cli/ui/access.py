"""Who may see what of the page: one user with the token that was printed, or every caller with a token of the API server.

`PrintedToken` is for `raytide ui` on a user's machine: a caller with that token reads with the user's rights. `CallerTokens` is for a
server that many use: each request has its caller's own bearer token, the API server says with a SelfSubjectAccessReview which kinds
that token may list, and what is read for one caller is read with that token. Nothing is granted here that the API server does not
grant, and an answer is kept for `KEPT_S`. Tokens are neither logged nor stored, except as a hash (D30). Called by guard.py and app.py.
"""

import asyncio
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from raytide.api.errors import ApiStatusError, ApiUnavailableError, UnauthorizedError
from raytide.api.rbac_rules import Permission
from raytide.client.workload_reader import RESOURCES, TIMEOUT_S, is_name
from raytide.kube.access_review import AccessReview, is_allowed
from raytide.kube.client import Client
from raytide.kube.transport import Transport
from raytide.runtime.clock import Clock

KEPT_S: Final = 30.0
"""How long an answer of the API server about a token holds."""
MAX_KEPT: Final = 1_000
"""Answers that are kept; the oldest are dropped."""
MAX_REVIEWS: Final = 8
"""Callers whose rights are reviewed at once."""
NOT_ACCEPTED: Final = "the API server does not accept the token: it is wrong or has expired; sign in with another one"
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,8000}=*\Z")
"""A bearer token as RFC 6750 has it."""


@dataclass(frozen=True, slots=True)
class View:
    """Workloads that a caller may see: these kinds in a namespace (empty: in all)."""

    namespace: str
    kinds: frozenset[str] = frozenset(RESOURCES)


class AccessError(Exception):
    """The request is not answered: an HTTP status, and one sentence for the caller."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Access(Protocol):
    """How requests are authenticated, and which rights they have."""

    is_local: bool
    """Whether only this machine may ask."""

    async def view(self, token: str, namespace: str | None) -> View:
        """What that bearer token may see in the namespace that the request names; raises AccessError."""
        ...

    def client(self, token: str) -> AbstractAsyncContextManager[Client]:
        """A client of the API server with the rights of that token, which `view` has accepted."""
        ...


class PrintedToken:
    """One token for one namespace, with the rights of a client that exists."""

    is_local = True

    def __init__(self, token: str, namespace: str, client: Client) -> None:
        self._token, self._client = token, client
        self._view = View(namespace)

    async def view(self, token: str, _namespace: str | None) -> View:
        """The view of the command, if the token is the printed one."""
        if not hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
            raise AccessError(401, "the token is missing or wrong: open the address that `raytide ui` printed")
        return self._view

    @asynccontextmanager
    async def client(self, _token: str) -> AsyncIterator[Client]:
        """The client of the command."""
        yield self._client


class CallerTokens:
    """Each request has a token of the API server; `watched` are the namespaces that the server follows (empty: all)."""

    is_local = False

    def __init__(self, open_transport: Callable[[str], Awaitable[Transport]], watched: Collection[str] = ()) -> None:
        """`open_transport` opens a transport to the API server with the token that it is given."""
        self._open_transport, self._watched = open_transport, frozenset(watched)
        self._answers: OrderedDict[tuple[bytes, str], tuple[float, View | AccessError]] = OrderedDict()
        self._reviewing = asyncio.Semaphore(MAX_REVIEWS)

    async def view(self, token: str, namespace: str | None) -> View:
        """The kinds that the token may list there, as the API server says, not longer than `KEPT_S` ago."""
        namespace = namespace or ""
        if not _TOKEN.match(token):
            raise AccessError(401, "sign in with a token of the Kubernetes API server")
        if namespace and not is_name(namespace):
            raise AccessError(400, "the namespace is not a valid name")
        if self._watched and namespace and namespace not in self._watched:
            raise AccessError(
                403,
                "this server does not follow that namespace: choose another one, or ask the administrator to add it to --watch-namespace",
            )
        key = hashlib.sha256(token.encode()).digest(), namespace
        now = asyncio.get_running_loop().time()
        ends_at, answer = self._answers.get(key, (now, None))
        if answer is None or ends_at <= now:
            async with self._reviewing:
                answer = await self._reviewed(token, namespace)
            self._keep(key, now + KEPT_S, answer)
        if isinstance(answer, AccessError):
            raise AccessError(answer.status, str(answer))
        return answer

    @asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[Client]:
        """A client with connections of its own: no two callers share one."""
        transport = await self._open_transport(token)
        try:
            yield Client(transport, clock=Clock(), timeout_s=TIMEOUT_S)
        finally:
            await transport.close()

    async def _reviewed(self, token: str, namespace: str) -> View | AccessError:
        """What the API server says; raises AccessError if it does not answer, which is not kept."""
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        try:
            async with self.client(token) as client:
                allowed = [await may_list(client, kind, namespace) for kind in RESOURCES]
        except UnauthorizedError:
            return AccessError(401, NOT_ACCEPTED)
        except ApiStatusError as error:
            return AccessError(403, f"the API server rejected the review of what the token may list: {error}")
        except ApiUnavailableError as error:
            raise AccessError(503, f"the API server cannot be reached: {error}") from error
        kinds = frozenset(kind for kind, is_listed in zip(RESOURCES, allowed, strict=True) if is_listed)
        if not kinds:
            choose = "ask for the right, or choose another namespace" if namespace else "choose a namespace"
            return AccessError(
                403, f"the token may not list {' or '.join(f'{each}s' for each in RESOURCES)} {where}: {choose}"
            )
        return View(namespace, kinds)

    def _keep(self, key: tuple[bytes, str], ends_at: float, answer: View | AccessError) -> None:
        self._answers.pop(key, None)
        self._answers[key] = ends_at, answer
        while len(self._answers) > MAX_KEPT:
            self._answers.popitem(last=False)


async def may_list(client: Client, kind: str, namespace: str) -> bool:
    """Whether the client's user may list that kind in the namespace (empty: in all); raises ApiStatusError, ApiUnavailableError."""
    return await is_allowed(
        client, AccessReview(Permission(RESOURCES[kind], ("list",), "show them"), "list", namespace)
    )
