"""HTTP client of the probe of API servers.

A small synchronous client on the standard library: requests with JSON in and out, watches read by a thread, and
`eventually` for what a controller has to do first. Every wait has a deadline.
"""

import contextlib
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from integration.probe.servers import Endpoint
from support.deadlines import PATIENCE

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ANY = "application/json, */*"
AGGREGATED_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
DEADLINE_S = 10.0


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def metadata(self) -> dict[str, Any]:
        return self.body["metadata"]


def eventually(check: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline_s *= PATIENCE
    end = time.monotonic() + deadline_s
    while not check():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


class Client:
    """One connection to one server, and the paths of one namespace."""

    def __init__(self, endpoint: Endpoint, namespace: str) -> None:
        self.endpoint = endpoint
        self.namespace = namespace
        self.core = f"/api/v1/namespaces/{namespace}"
        self.pods = f"{self.core}/pods"
        self.clusters = f"/apis/probe.raytide.io/v1/namespaces/{namespace}/rayclusters"
        self._connection = self._connect(DEADLINE_S)

    def close(self) -> None:
        self._connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self.endpoint.host, self.endpoint.port
        if self.endpoint.tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.endpoint.tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        sent = body if isinstance(body, bytes | None) else body.encode() if isinstance(body, str) else json.dumps(body)
        given = {"User-Agent": "probe/1", "Accept": ANY, **self.endpoint.credentials, **(headers or {})}
        if sent is not None:
            given["Content-Type"] = content_type
        self._connection.request(method, path + (f"?{urlencode(query)}" if query else ""), sent, given)
        response = self._connection.getresponse()
        raw = response.read()
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return Answer(
            response.status,
            json.loads(raw) if is_json and raw else raw,
            {name.lower(): value for name, value in response.headers.items()},
        )

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, **query)

    def openapi_paths(self) -> dict[str, Any]:
        """The index of the OpenAPI documents by path, e.g. `apis/ray.io/v1`."""
        index = self.get("/openapi/v3").body
        return (json.loads(index) if isinstance(index, bytes) else index)["paths"]  # a real server calls it text/plain

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        return self.call("POST", path, body, **query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return self.call("PATCH", path, body, content_type, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return self.call("DELETE", path, body, **query)

    def new_pod(self, name: str, **metadata: Any) -> Answer:
        return self.post(self.pods, pod(name, **metadata))

    def new_cluster(self, name: str, spec: Any = None, **metadata: Any) -> Answer:
        return self.post(self.clusters, cluster(name, spec, **metadata))

    def version(self, path: str) -> str:
        return self.get(path, limit=1).metadata["resourceVersion"]

    def watch(self, path: str, **query: Any) -> "Watch":
        return Watch(self._connect(DEADLINE_S * 2), self.endpoint, path, query)


class Watch:
    """A watch that is established when the constructor returns."""

    def __init__(
        self, connection: http.client.HTTPConnection, endpoint: Endpoint, path: str, query: dict[str, Any]
    ) -> None:
        self._connection = connection
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        query.setdefault("watch", "true")
        headers = {"Accept": ANY, **endpoint.credentials}
        connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
        self._socket = connection.sock
        self._response = connection.getresponse()
        self.status = self._response.status
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            while line := self._response.readline():
                self._events.put(json.loads(line))
        except (OSError, ValueError, AttributeError):
            pass
        self._events.put(None)

    def next(self, deadline_s: float = DEADLINE_S) -> dict[str, Any] | None:
        """The next event; None when the stream has ended."""
        return self._events.get(timeout=deadline_s * PATIENCE)

    def take(self, count: int) -> list[dict[str, Any]]:
        return [event for event in (self.next() for _ in range(count)) if event is not None]

    def until(self, event_type: str, name: str) -> list[tuple[str, str]]:
        """(type, name) of all events up to and with the one named."""
        seen: list[tuple[str, str]] = []
        while (event_type, name) not in seen:
            event = self.next()
            assert event is not None, f"the stream ended after {seen}"
            seen.append((event["type"], event["object"]["metadata"].get("name", "")))
        return seen

    def rest(self) -> list[dict[str, Any]]:
        """Everything until the stream ends."""
        found = []
        while (event := self.next()) is not None:
            found.append(event)
        self.close()
        return found

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_S)
        self._response.close()
        self._connection.close()


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that no scheduler handles, so that only the caller writes to it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "img"}], "schedulerName": "nobody"},
    }


def cluster(name: str, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "probe.raytide.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, **metadata},
        "spec": {"rayVersion": "2.9", "replicas": 1} if spec is None else spec,
    }


def definition(
    plural: str = "rayclusters", kind: str = "RayCluster", group: str = "probe.raytide.io"
) -> dict[str, Any]:
    group_item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 3}},
    }
    spec = {
        "type": "object",
        "required": ["rayVersion"],
        "x-kubernetes-validations": [{"rule": "self.rayVersion != 'never'", "message": "rayVersion may not be never"}],
        "properties": {
            "rayVersion": {"type": "string"},
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
            "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
            "suspend": {"type": "boolean"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "quantity": {"x-kubernetes-int-or-string": True},
            "groups": {
                "type": "array",
                "items": group_item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
    }
    schema = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
