"""One server per session and kind, one namespace and one client per test."""

import itertools
from collections.abc import Iterator

import pytest

from integration.probe.client import Client, definition, eventually
from integration.probe.servers import SERVERS, Endpoint, server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_numbers = itertools.count()


@pytest.fixture(scope="session", params=SERVERS)
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    with server(request.param) as found:
        client = Client(found, "default")
        client.post(CRDS, definition())
        eventually(lambda: client.get(client.clusters).status == 200, "the custom kind is served")
        client.close()
        yield found


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[Client]:
    found = Client(endpoint, f"probe-{next(_numbers)}")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace}}
    assert found.post("/api/v1/namespaces", namespace).status == 201
    account = f"{found.core}/serviceaccounts/default"
    eventually(lambda: found.get(account).status == 200, "the namespace has its service account")
    yield found
    found.delete(f"/api/v1/namespaces/{found.namespace}")
    found.close()
