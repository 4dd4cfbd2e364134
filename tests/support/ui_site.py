"""The server of `raytide ui` on an API server in memory, with lanes that the test gives it."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import ClientSession, web

from raytide.api.config import SharingConfig
from raytide.cli.ui import app as ui_app
from raytide.cli.ui.access import PrintedToken, View
from raytide.cli.ui.feeds import Feeds
from raytide.cli.ui.serve import make_runner, port_of
from raytide.explain.model import Verdict
from raytide.explain.overview import Lane
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from support.faults.types import Answer
from support.stored_workloads import api_with

from simulation.in_process_transport import InProcessTransport

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = int(NOON.timestamp())
TOKEN = "a-token"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
YAML = {**AUTHORIZED, "Content-Type": "application/yaml"}
NEW = """\
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: new}
spec:
  trainer: {entrypoint: "true", min-instance: 2, max-instance: 4, resources: {requests: {cpu: "1"}}}
"""
NEW_CLUSTER = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: new}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: ray-head, image: "ray:2.60.0", resources: {requests: {cpu: "1"}}}]}}}
  workerGroupSpecs:
  - groupName: cpu
    minReplicas: 1
    replicas: 3
    maxReplicas: 4
    template: {spec: {containers: [{name: ray-worker, image: "ray:2.60.0", resources: {requests: {cpu: "4"}}}]}}
"""


def lane(
    name: str = "demo",
    wanted: int = 2,
    ready: int = 1,
    reason: str = "",
    message: str = "",
    *,
    kind: str = "RayCluster",
    verdict: Verdict = Verdict.WAITS,
    **more: Any,
) -> Lane:
    return Lane(kind, "default", name, wanted, ready, verdict, reason, message, **{"uid": f"uid-{name}", **more})


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def node(name: str = "n0") -> dict:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


class Served:
    """The server of the page; the sites have its feeds and where it reads."""

    feeds: Feeds
    source: ui_app.Source
    port: int
    session: ClientSession

    @asynccontextmanager
    async def served(self):
        """Run the server on a free port of loopback."""
        runner = make_runner(ui_app.make_app(self.feeds, self.source))
        try:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = port_of(runner)
            async with ClientSession(f"http://127.0.0.1:{self.port}") as self.session:
                yield self
        finally:
            await runner.cleanup()


class Site(Served):
    """The server of the page on an API server in memory."""

    def __init__(self, *objects: dict, forbidden: tuple[str, ...] = ()) -> None:
        self.api = api_with(*objects)
        wire = InProcessTransport(self.api)
        wire.admission = lambda request: (
            Answer(403, "Forbidden") if request.path.rpartition("/")[2] in forbidden else None
        )
        access = PrintedToken(TOKEN, "default", Client(wire, clock=Clock()))
        self.feeds = Feeds(View("default"))
        self.feed = self.feeds.of(View("default"))
        self.source = ui_app.Source(access, "default", Clock(), SharingConfig())

    async def get(self, path: str, headers: dict | None = None, method: str = "GET", **more) -> tuple[int, dict]:
        """Status and JSON."""
        async with self.session.request(
            method, path, headers=AUTHORIZED if headers is None else headers, **more
        ) as answer:
            return answer.status, await answer.json(
                content_type=None
            ) if answer.content_type == "application/json" else {}

    async def plan(self, body: bytes | str, headers: dict | None = None) -> tuple[int, dict]:
        """Status and JSON of a YAML."""
        return await self.get("/api/plan", headers or YAML, "POST", data=body)
