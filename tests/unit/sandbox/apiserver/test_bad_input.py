"""Every input gets a response, never an exception, and the store still works."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raytide_sandbox.apiserver.routes import Api
from unit.sandbox.apiserver.embedded import CRDS, MERGE, PODS, ask, build_api, definition, pod, status_and_body

SCALARS = st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=6)
WORDS = st.sampled_from(
    [
        "metadata", "name", "labels", "annotations", "finalizers", "ownerReferences", "uid", "spec", "status", "containers",
        "image", "ports", "port", "env", "resources", "limits", "cpu", "volumes", "emptyDir", "type", "data", "stringData",
        "versions", "names", "group", "template", "initContainers", "conditions", "$patch", "serviceAccountName", "nodeName",
    ]
)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
COLLECTIONS = st.sampled_from(
    [
        PODS,
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/example.com/v1/namespaces/default/toys",
        CRDS,
    ]
)
PATCHES = st.sampled_from([MERGE, "application/strategic-merge-patch+json", "application/apply-patch+yaml"])


@pytest.fixture(scope="module")
def api() -> Api:
    found = build_api()
    ask(found, "POST", CRDS, definition("v1"))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=COLLECTIONS, body=TREES, metadata=TREES)
def test_any_body_gets_an_answer(api: Api, path: str, body: Any, metadata: Any) -> None:
    for sent in (body, {**(body if isinstance(body, dict) else {}), "metadata": {"generateName": "x-"}}):
        status, _ = status_and_body(ask(api, "POST", path, sent))
        assert status < 500
    named = {"name": "x", **(metadata if isinstance(metadata, dict) else {})}
    status, _ = status_and_body(ask(api, "POST", path, {"metadata": named, "spec": body}))
    assert status < 500
    assert status_and_body(ask(api, "GET", path))[0] == 200


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(patch=TREES, content_type=PATCHES, below=st.sampled_from(["", "/status"]))
def test_any_patch_gets_an_answer(api: Api, patch: Any, content_type: str, below: str) -> None:
    ask(api, "POST", PODS, pod("victim"))
    for sent in (patch, {"spec": patch}, {"apiVersion": "v1", "kind": "Pod", "metadata": patch}):
        status, _ = status_and_body(
            ask(api, "PATCH", f"{PODS}/victim{below}", sent, content_type, fieldManager="x", force="1")
        )
        assert status < 500
    assert status_and_body(ask(api, "GET", f"{PODS}/victim"))[0] == 200
    ask(api, "PATCH", f"{PODS}/victim", {"metadata": {"finalizers": None}}, MERGE)
    ask(api, "DELETE", f"{PODS}/victim")
    assert status_and_body(ask(api, "GET", f"{PODS}/victim"))[0] == 404
