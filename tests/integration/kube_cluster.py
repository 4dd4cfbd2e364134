"""A real control plane for integration tests, and the proxy between it and the operator.

The operator talks to a proxy that counts its writes; tests talk to the API server itself, as its administrator. A node of
ours sends heartbeats and takes no pods but those a test binds to it; dying pods of the test's namespaces end at once unless
they are held. Nothing here needs a kubelet: tests act as one.
"""

import asyncio
import http.client
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import pytest

from integration.cluster_under_test import (
    CRD,
    DEFINITION,
    DEFINITIONS,
    MERGE,
    ClusterUnderTest,
    Json,
    path_of,
)
from raytide_sandbox.connections import ClosingConnector
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private
from support.faults.proxy import FaultProxy
from support.faults.script import Script
from support.faults.types import CallFault
from support.faults.upstream import Upstream
from support.kube_plane import KubePlane, eventually
from support.manifest_files import body_of

HEARTBEAT_S = 8.0
DEADLINE_S = 60.0
"""For controllers of a machine that has much else to do."""
STORAGE_NOT_READY, STORAGE_ATTEMPTS = "storage is (re)initializing", 30
NOT_COUNTED = ("leases",)
"""A lease is renewed whether there is work or not."""


class CountingScript(Script):
    """No faults; counts reads by path, and writes into some namespaces by method and kind, when they come by.

    Not when they are answered: by then a test may have seen what they wrote, and restarted its count.
    """

    def __init__(self, namespaces: set[str]) -> None:
        super().__init__(now_s=time.monotonic)
        self.writes: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self._namespaces = namespaces

    def call(self, method: str, path: str, *rest: Any, **more: Any) -> CallFault | None:
        if (kind := _written(method, path, self._namespaces)) is not None:
            self.writes[kind] += 1
        elif method == "GET":
            self.reads[path.partition("?")[0]] += 1
        return super().call(method, path, *rest, **more)


def _written(method: str, path: str, namespaces: set[str]) -> str | None:
    words = path.strip("/").split("/")
    if method == "GET" or not namespaces & set(words):
        return None
    last = words[-1] if words[-1] in ("status", "pods", "services", "events") else words[-2]
    return None if {last, words[-1]} & set(NOT_COUNTED) else f"{method} {last}"


class KubeCluster(ClusterUnderTest):
    """Part of a real cluster: a few namespaces, a node, an operator's way in."""

    def __init__(self, plane: KubePlane, run: str) -> None:
        """`run` is in the name of everything that is in no namespace."""
        super().__init__()
        self.plane = plane
        self._namespaces: set[str] = set()
        script = CountingScript(self._namespaces)
        self.proxy = FaultProxy(Upstream.of_kubeconfig(plane.kubeconfig), script)
        self.writes, self.reads = script.writes, script.reads
        self.node = f"n0-{run}"
        self._nodes = [self.node]
        self._run = run
        self.port = 0
        self._connection: http.client.HTTPSConnection | None = None
        self._work: list[asyncio.Task[None]] = []

    async def start(self, *, port: int = 0, has_crd: bool = True) -> None:
        """Serve the CRD, a node and the proxy."""
        await self.proxy.start(port)
        self.port = int(self.proxy.server.rpartition(":")[2])
        try:
            self._prepare(has_crd=has_crd)
        except BaseException:
            await self.stop()
            raise
        self._work = [asyncio.create_task(self._send_heartbeats()), asyncio.create_task(self._end_the_dying())]

    def _prepare(self, *, has_crd: bool) -> None:
        if not has_crd:
            self.remove_crd()
        elif self.request("GET", "/apis/ray.io/v1/rayclusters", limit="1")[0] != 200:
            self.install_crd()
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}, "spec": {"unschedulable": True}}
        self.create("nodes", node)
        self._beat()

    async def stop(self) -> None:
        """Hang up and leave nothing that others could notice."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        for namespace in self._namespaces:
            self.plane.leave(namespace)
        for node in self._nodes:
            self.request("DELETE", path_of("nodes", "", node))
        await self.proxy.stop()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection that requests go over."""
        if self._connection is not None:
            self._connection.close()

    def install_crd(self, crd: Path = CRD) -> None:
        """As `kubectl apply --server-side -f`."""
        query = {"fieldManager": "integration-tests", "force": "true"}
        body, path = _read(crd), _collection(crd)
        definition = f"{DEFINITIONS}/{body['metadata']['name']}"
        status, answer = self.request("PATCH", definition, body, "application/apply-patch+yaml", **query)
        assert status in (200, 201), answer
        eventually(lambda: self.request("GET", path)[0] == 200, "the kind is served", DEADLINE_S)

    def remove_crd(self, crd: Path = CRD) -> None:
        """With all objects there are: only where the cluster is ours."""
        if self.plane.control is None:
            pytest.skip("deletes the CRD, which is not acceptable on a cluster that the tests do not own")
        self.request("DELETE", f"{DEFINITIONS}/{_read(crd)['metadata']['name']}")
        eventually(lambda: self.request("GET", _collection(crd))[0] == 404, "the kind is gone", DEADLINE_S)

    def add_node(self, name: str, **allocatable: str) -> str:
        """With heartbeats, so that it stays Ready; only the test sets the status of its pods."""
        name = f"{name}-{self._run}"
        capacity = {"pods": "110", **allocatable}
        self.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        body = {"status": {"capacity": capacity, "allocatable": capacity}}
        self.done("PATCH", path_of("nodes", "", name, "status"), body, content_type=MERGE)
        self._nodes.append(name)
        self._beat()
        return name

    def write_kubeconfig(self, path: Path) -> Path:
        """Through the proxy; `port` may be set before it listens."""
        server = f"http://127.0.0.1:{self.port}"
        write_private(path, build_kubeconfig(server=server, authority=b"", token=self.plane.admin_token))
        return path

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> tuple[int, Json]:
        """Straight to the API server, over one connection.

        Repeated, as every client of Kubernetes does, while the server sets up the storage of a CRD that has just been changed.
        """
        for _ in range(STORAGE_ATTEMPTS):
            status, answer = self._request(method, path, body, content_type, query)
            if status != 429 or STORAGE_NOT_READY not in answer.get("message", ""):
                break
            time.sleep(1.0)  # what its Retry-After says
        return status, answer

    def _request(
        self, method: str, path: str, body: Any, content_type: str, query: Mapping[str, str]
    ) -> tuple[int, Json]:
        if self._connection is None:
            address = urlsplit(self.plane.server)
            context = ssl.create_default_context(cadata=self.plane.authority.decode())
            if self.plane.identity is not None:
                self.plane.identity.load_into(context)
            self._connection = http.client.HTTPSConnection(
                address.hostname or "", address.port, timeout=30.0, context=context
            )
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        if self.plane.admin_token:
            headers["Authorization"] = f"Bearer {self.plane.admin_token}"
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path + (f"?{urlencode(query)}" if query else ""), sent, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return answer.status, json.loads(content) if is_json and content else {"message": content.decode()}

    def ensure_namespace(self, namespace: str) -> None:
        """With its service account, without which no pod is admitted."""
        if namespace in self._namespaces:
            return
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        status, answer = self.request("POST", "/api/v1/namespaces", obj)
        assert status == 201, answer
        self._namespaces.add(namespace)
        account = path_of("serviceaccounts", namespace, "default")
        eventually(lambda: self.request("GET", account)[0] == 200, f"{namespace} has its service account", DEADLINE_S)

    def make_ready(self, namespace: str, node: str = "") -> None:
        """On our node, unless a test has its own."""
        super().make_ready(namespace, node or self.node)

    def without_quota(self, namespace: str) -> str:
        """A real quota, which holds once its controller has counted."""
        self.ensure_namespace(namespace)
        low_priority = self.add_priority_class(namespace)
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": [low_priority]}
        spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
        self.create("resourcequotas", {"metadata": {"name": "none", "namespace": namespace}, "spec": spec})
        eventually(
            lambda: self.get("resourcequotas", namespace, "none")["status"].get("hard"),
            "the quota is counted",
            DEADLINE_S,
        )
        return low_priority

    def give_quota(self, namespace: str) -> None:
        """Without a quota there is no limit."""
        self.delete(namespace, "none", "resourcequotas")

    # --- an older CRD ------------------------------------------------------------------------------------------------------
    def past_admission(self, write: Callable[[], Any]) -> None:
        """Under a CRD that lets everything in; ours is back when this returns."""
        self.set_schema(has_schema=False)
        try:
            write()
        finally:
            self.set_schema(has_schema=True)

    def set_schema(self, *, has_schema: bool) -> None:
        """Raytide's CRD, or one without a schema; returns when it is in effect."""
        crd = _read(CRD)
        if not has_schema:
            anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            for version in crd["spec"]["versions"]:
                version["schema"] = {"openAPIV3Schema": anything}
        found = self.done("GET", DEFINITION)
        self.done("PUT", DEFINITION, {**found, "spec": crd["spec"]})
        wrong = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "wrong"}, "spec": "wrong"}
        wanted = 422 if has_schema else 201

        def is_validated() -> bool:
            return self.request("POST", path_of("rayclusters.ray.io", "default"), wrong, dryRun="All")[0] == wanted

        eventually(is_validated, "the changed CRD judges", DEADLINE_S)

    # --- inside ------------------------------------------------------------------------------------------------------------
    def _beat(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now}
        body = {"status": {"conditions": [ready]}}
        for node in self._nodes:
            self.done("PATCH", path_of("nodes", "", node, "status"), body, content_type=MERGE)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._beat()

    async def _end_the_dying(self) -> None:
        """What kubelets do with terminating pods."""
        tls = ssl.create_default_context(cadata=self.plane.authority.decode())
        if self.plane.identity is not None:
            self.plane.identity.load_into(tls)
        headers = {"Authorization": f"Bearer {self.plane.admin_token}"} if self.plane.admin_token else {}
        timeout = aiohttp.ClientTimeout(total=None)
        connector = ClosingConnector(ssl=tls)
        async with aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=timeout, read_bufsize=2**22
        ) as session:
            while True:
                url = f"{self.plane.server}/api/v1/pods?watch=true"
                with suppress(aiohttp.ClientError):
                    async with session.get(url) as stream:
                        async for line in stream.content:
                            self._see(json.loads(line))

    def _see(self, event: Json) -> None:
        metadata = event["object"].get("metadata", {})
        name, namespace = metadata.get("name"), metadata.get("namespace")
        is_dying = event["type"] in ("ADDED", "MODIFIED") and "deletionTimestamp" in metadata
        if is_dying and namespace in self._namespaces and name not in self.holds:
            asyncio.get_running_loop().call_later(0.02, self.end, namespace, name)


def _read(crd: Path) -> Json:
    read: Json = msgspec.json.decode(body_of(crd))
    return read


def _collection(crd: Path) -> str:
    """Where the API serves the kind."""
    spec = _read(crd)["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
