"""One server per session and kind, one namespace and one client per test."""

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from integration.probe.client import AGGREGATED_DISCOVERY, Answer, Client, definition, eventually
from integration.probe.servers import Endpoint, embedded, from_kubeconfig

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_numbers = itertools.count()
_run = secrets.token_hex(2)  # another run may have left its namespaces in the same cluster


def served(endpoint: Endpoint) -> None:
    """See to it that the probe's own kind is served."""
    client = Client(endpoint, "default")
    client.post(CRDS, definition())
    eventually(lambda: client.get(client.clusters).status == 200, "the custom kind is served", 30)
    # kube-apiserver writes both of these a second or more after it serves a new kind; kubectl reads them
    discovery = {"Accept": AGGREGATED_DISCOVERY}
    eventually(lambda: is_listed(client.call("GET", "/apis", headers=discovery)), "discovery lists it", 30)
    eventually(lambda: "apis/probe.raytide.io/v1" in client.openapi_paths(), "its OpenAPI document", 30)
    client.close()


def is_listed(discovery: Answer) -> bool:
    """Whether aggregated discovery lists the probe's own kind."""
    group = next((item for item in discovery.body["items"] if item["metadata"]["name"] == "probe.raytide.io"), None)
    return group is not None and any(version["resources"] for version in group["versions"])


@contextmanager
def new_client(endpoint: Endpoint) -> Iterator[Client]:
    """A client with a namespace of its own, which has its service account."""
    client = Client(endpoint, f"probe-{_run}-{next(_numbers)}")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": client.namespace}}
    assert client.post("/api/v1/namespaces", namespace).status == 201
    account = f"{client.core}/serviceaccounts/default"
    eventually(lambda: client.get(account).status == 200, "the namespace has its service account")
    try:
        yield client
    finally:
        client.delete(f"/api/v1/namespaces/{client.namespace}")
        client.close()


@pytest.fixture(scope="session")
def kube_endpoint(kube_plane) -> Endpoint:
    """The real control plane."""
    return from_kubeconfig(str(kube_plane.kubeconfig))


@pytest.fixture(scope="session", params=["embedded", pytest.param("kube", marks=pytest.mark.kube)])
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    if request.param == "embedded":
        with embedded() as found:
            served(found)
            yield found
    else:
        found = request.getfixturevalue("kube_endpoint")
        served(found)
        yield found


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[Client]:
    with new_client(endpoint) as found:
        yield found
