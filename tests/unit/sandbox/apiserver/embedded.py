"""An API server without sockets, with a fixed clock and consecutive uids."""

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from raytide_sandbox.apiserver.routes import Answer, Api, Request, Response
from raytide_sandbox.apiserver.store import Store

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


def build_store(ring_size: int = 1000) -> Store:
    uids = itertools.count()
    return Store(now=lambda: NOW, new_uid=lambda: f"uid-{next(uids)}", ring_size=ring_size)


def build_api(store: Store | None = None, **options: Any) -> Api:
    suffixes = itertools.count(10000)
    return Api(store or build_store(), new_suffix=lambda: str(next(suffixes)), **options)


def ask(
    api: Api, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
) -> Answer:
    headers = {"content-type": content_type, "user-agent": "test/1"}
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return api.handle(Request(method, path, query, headers, raw))


def status_and_body(answer: Answer) -> tuple[int, Any]:
    """(status, body) of a complete answer."""
    assert isinstance(answer, Response), answer
    return answer.status, json.loads(answer.body)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def definition(*versions: str, group: str = "example.com") -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    return {
        "metadata": {"name": f"toys.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "toys", "kind": "Toy"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "deprecated": version != versions[0],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }
