"""An API server in memory that knows its callers by their tokens, and the page of `raytide ui --auth kubernetes` on it."""

from typing import Any

import msgspec

from raytide.api.config import SharingConfig
from raytide.api.errors import ApiUnavailableError
from raytide.cli.ui import app as ui_app
from raytide.cli.ui.access import CallerTokens, View
from raytide.cli.ui.feeds import Feeds
from raytide.cli.ui.serve import CALLER_PAGES, CALLER_VIEWS
from raytide.kube.transport import Response
from raytide.runtime.clock import Clock
from support.faults.types import Answer
from support.stored_workloads import api_with
from support.ui_site import Served

from simulation.in_process_transport import InProcessTransport

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EVERYTHING = ("*", "")
"""May list each kind in each namespace."""


class CallerTransport(InProcessTransport):
    """Requests of one token, with the rights of a table: token -> pairs of a plural and a namespace (empty: all)."""

    def __init__(self, server: "RightsServer", token: str) -> None:
        super().__init__(server.api)
        self._server, self._token = server, token
        self.admission = self._judge

    async def request(self, method: str, path: str, **more: Any) -> Response:
        """The API server's answer to that token."""
        if self._server.is_away:
            raise ApiUnavailableError("connection refused")
        if path == REVIEWS and self._token in self._server.rights:
            self._server.reviews += 1
            asked = msgspec.json.decode(more["body"])["spec"]["resourceAttributes"]
            assert asked["verb"] == "list"
            is_allowed = self._may_list(asked["resource"], asked.get("namespace", ""))
            return Response(201, msgspec.json.encode({"status": {"allowed": is_allowed}}))
        return await super().request(method, path, **more)

    def _may_list(self, plural: str, namespace: str) -> bool:
        rights = self._server.rights[self._token]
        return EVERYTHING in rights or (plural, "") in rights or (plural, namespace) in rights

    def _judge(self, request: Any) -> Answer | None:
        if self._token not in self._server.rights:
            return Answer(401, reason="Unauthorized", message="Unauthorized")
        _, _, namespaced = request.path.partition("/namespaces/")
        namespace, _, rest = namespaced.partition("/")
        plural = (rest or request.path.rpartition("/")[2]).partition("/")[0]
        allowed = self._may_list(plural, namespace)
        return None if allowed else Answer(403, reason="Forbidden", message=f"cannot list {plural}")


class RightsServer:
    """The API server and its callers."""

    def __init__(self, *objects: dict, **rights: set[tuple[str, str]]) -> None:
        self.api = api_with(*objects)
        self.rights = rights
        self.reviews = 0
        self.is_away = False
        self.opened: list[str] = []
        """Tokens for which connections were opened."""

    async def open_transport(self, token: str) -> CallerTransport:
        """A transport with that token."""
        self.opened.append(token)
        return CallerTransport(self, token)


class CallersSite(Served):
    """The server of the page; `feeds` have the lanes that the test gives them."""

    def __init__(self, server: RightsServer, *watched: str) -> None:
        self.server = server
        self.access = CallerTokens(server.open_transport, watched)
        self.feeds = Feeds(View(""), views=CALLER_VIEWS, readers=CALLER_PAGES)
        self.source = ui_app.Source(self.access, "default", Clock(), SharingConfig())

    async def get(self, path: str, token: str, method: str = "GET", **more: Any) -> tuple[int, dict]:
        """Status and JSON of a request with that token."""
        headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
        async with self.session.request(method, path, headers=headers, **more) as answer:
            return answer.status, await answer.json(content_type=None)
