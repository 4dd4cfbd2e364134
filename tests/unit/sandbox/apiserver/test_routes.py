"""The server in process: versions of a kind, watches without sockets, forwarding, rejections."""

from typing import Any

import pytest

from raytide_sandbox.apiserver.routes import Api, Proxied, Response, WatchCursor
from raytide_sandbox.apiserver.tokens import Tokens
from unit.sandbox.apiserver.embedded import (
    CRDS,
    MERGE,
    NODES,
    PODS,
    ask,
    build_api,
    build_store,
    definition,
    pod,
    status_and_body,
)

TOYS = "/apis/example.com/{}/namespaces/default/toys"


@pytest.fixture
def api() -> Api:
    return build_api()


def toy(version: str, size: int = 1) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{version}", "kind": "Toy", "metadata": {"name": "t"}, "spec": {"size": size}}


def watched(api: Api, path: str, **query: str) -> WatchCursor:
    cursor = ask(api, "GET", path, watch="true", **query)
    assert isinstance(cursor, WatchCursor)
    return cursor


# --- rejections ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/apis/nobody.dev/v1", 404),
        ("GET", "/api/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", f"{PODS}/p/nothing", 404),
        ("POST", f"{PODS}/p", 405),
        ("PUT", PODS, 405),
        ("PATCH", f"{PODS}/p/ephemeralcontainers", 501),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", 501),
        ("GET", f"{PODS}?", 404),
    ],
)
def test_what_is_not_there_is_reported_with_the_right_code(api: Api, method: str, path: str, code: int) -> None:
    status, body = status_and_body(ask(api, method, path))
    assert (status, body["kind"], body["code"]) == (code, "Status", code)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"x"', b'{"metadata": 5}', b'{"metadata": {"name": "x"}, "spec": []}', b"k8s\x00\xff", b"\xff\xfe"],
)
def test_a_body_that_is_no_object_is_rejected(api: Api, body: bytes) -> None:
    status, _ = status_and_body(ask(api, "POST", PODS, body))
    assert 400 <= status < 500


def test_body_and_url_must_agree(api: Api) -> None:
    assert status_and_body(ask(api, "POST", PODS, {**pod("a"), "kind": "Service"}))[0] == 400
    assert status_and_body(ask(api, "POST", PODS, {**pod("a"), "apiVersion": "v2"}))[0] == 400
    assert status_and_body(ask(api, "POST", "/api/v1/pods", pod("a")))[0] == 400
    ask(api, "POST", PODS, pod("a"))
    assert status_and_body(ask(api, "PUT", f"{PODS}/a", pod("b")))[0] == 400
    assert status_and_body(ask(api, "PATCH", f"{PODS}/a", {"metadata": {"name": "b"}}, MERGE))[0] == 400


@pytest.mark.parametrize("query", [{"limit": "x"}, {"continue": "?"}, {"watch": "1", "resourceVersion": "x"}])
def test_queries_that_cannot_be_read_are_rejected(api: Api, query: dict[str, str]) -> None:
    assert status_and_body(ask(api, "GET", PODS, **query))[0] == 400


# --- definitions -------------------------------------------------------------------------------------------------------
def test_an_object_is_returned_in_the_requested_version(api: Api) -> None:
    assert status_and_body(ask(api, "POST", CRDS, definition("v1", "v1alpha1")))[0] == 201
    answer = ask(api, "POST", TOYS.format("v1alpha1"), toy("v1alpha1"))
    assert status_and_body(answer)[1]["apiVersion"] == "example.com/v1alpha1"
    assert isinstance(answer, Response)
    assert answer.headers["warning"] == '299 - "example.com/v1alpha1 Toy is deprecated"'
    assert status_and_body(ask(api, "GET", TOYS.format("v1") + "/t"))[1]["apiVersion"] == "example.com/v1"
    listed = status_and_body(ask(api, "GET", TOYS.format("v1alpha1")))[1]
    assert [item["apiVersion"] for item in listed["items"]] == ["example.com/v1alpha1"]
    (line,) = watched(api, TOYS.format("v1alpha1")).take()
    assert b'"apiVersion":"example.com/v1alpha1"' in line


def test_a_changed_definition_validates_the_next_write(api: Api) -> None:
    ask(api, "POST", CRDS, definition("v1"))
    assert status_and_body(ask(api, "POST", TOYS.format("v1"), toy("v1", size=7)))[0] == 201
    changed = status_and_body(ask(api, "GET", f"{CRDS}/toys.example.com"))[1]
    size = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
    size["maximum"] = 8
    assert status_and_body(ask(api, "PUT", f"{CRDS}/toys.example.com", changed))[0] == 200
    assert status_and_body(ask(api, "PATCH", TOYS.format("v1") + "/t", {"spec": {"size": 9}}, MERGE))[0] == 422
    assert status_and_body(ask(api, "PATCH", TOYS.format("v1") + "/t", {"spec": {"size": 8}}, MERGE))[0] == 200


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d["metadata"].update(name="other.example.com"),
        lambda d: d["spec"].update(versions=[]),
        lambda d: d["spec"].pop("group"),
        lambda d: d["spec"]["names"].pop("kind"),
        lambda d: d["spec"]["versions"][0].pop("schema"),
        lambda d: d["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(type="thing"),
    ],
    ids=["wrong name", "no versions", "no group", "no kind", "no schema", "a schema that is none"],
)
def test_an_invalid_crd_is_rejected(api: Api, spoil: Any) -> None:
    body = definition("v1")
    spoil(body)
    status, answer = status_and_body(ask(api, "POST", CRDS, body))
    assert (status, answer["reason"]) == (422, "Invalid")


def test_the_end_of_a_definition_ends_its_objects_and_watches(api: Api) -> None:
    ask(api, "POST", CRDS, definition("v1"))
    held = toy("v1")
    held["metadata"]["finalizers"] = ["example.com/wait"]
    ask(api, "POST", TOYS.format("v1"), held)
    cursor = watched(api, TOYS.format("v1"))
    ask(api, "DELETE", f"{CRDS}/toys.example.com")
    assert status_and_body(ask(api, "GET", f"{CRDS}/toys.example.com"))[1]["metadata"]["deletionTimestamp"]
    assert not cursor.is_closed
    ask(api, "PATCH", TOYS.format("v1") + "/t", {"metadata": {"finalizers": None}}, MERGE)
    assert status_and_body(ask(api, "GET", f"{CRDS}/toys.example.com"))[0] == 404
    assert status_and_body(ask(api, "GET", TOYS.format("v1")))[0] == 404
    assert cursor.is_closed
    assert [line[:15] for line in cursor.take()] == [b'{"type":"ADDED"', b'{"type":"MODIFI', b'{"type":"DELETE']


# --- watches without sockets -------------------------------------------------------------------------------------------
def test_a_cursor_calls_back_when_events_are_available(api: Api) -> None:
    cursor = watched(api, PODS)
    calls: list[int] = []
    cursor.on_ready(lambda: calls.append(1))
    assert calls == []
    ask(api, "POST", PODS, pod("a"))
    ask(api, "POST", PODS, pod("b"))
    assert calls == [1], "once for all pending events"
    assert len(cursor.take()) == 2
    assert cursor.take() == []
    cursor.close()
    assert calls == [1, 1]
    ask(api, "POST", PODS, pod("c"))
    assert cursor.take() == []


def test_a_cursor_with_lines_is_ready_at_once(api: Api) -> None:
    ask(api, "POST", PODS, pod("a"))
    calls: list[int] = []
    watched(api, PODS).on_ready(lambda: calls.append(1))
    assert calls == [1]


def test_bookmarks_are_sent_only_on_request(api: Api) -> None:
    plain, marked = watched(api, PODS), watched(api, PODS, allowWatchBookmarks="true", timeoutSeconds="9")
    for cursor in (plain, marked):
        cursor.add_bookmark()
    assert plain.take() == []
    assert b'"type":"BOOKMARK"' in marked.take()[0]
    assert marked.options.timeout_s == 9.0


# --- pods --------------------------------------------------------------------------------------------------------------
def test_a_pod_gets_its_account_its_token_and_its_tolerations(api: Api) -> None:
    made = status_and_body(ask(api, "POST", PODS, pod("a")))[1]["spec"]
    assert made["serviceAccountName"] == "default"
    mount = made["containers"][0]["volumeMounts"][0]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert made["volumes"][0]["name"] == mount["name"]
    assert {item["key"] for item in made["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    bare = status_and_body(ask(api, "POST", PODS, pod("b", automountServiceAccountToken=False)))[1]["spec"]
    assert "volumes" not in bare
    assert status_and_body(ask(api, "POST", PODS, pod("c", serviceAccountName="nobody")))[0] == 403


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_quality_of_service(api: Api, resources: dict[str, Any], quality: str) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = resources
    assert status_and_body(ask(api, "POST", PODS, body))[1]["status"]["qosClass"] == quality


def test_binding_is_one_event(api: Api) -> None:
    made = status_and_body(ask(api, "POST", PODS, pod("a")))[1]
    ask(api, "POST", f"{PODS}/a/binding", {"target": {"name": "n"}})
    (change,) = api.store.changes_since("pods", int(made["metadata"]["resourceVersion"]))
    found = change.entry.obj()
    assert found["spec"]["nodeName"] == "n"
    assert [item["type"] for item in found["status"]["conditions"]] == ["PodScheduled"]
    assert status_and_body(ask(api, "POST", f"{PODS}/a/binding", {"target": {}}))[0] == 422


def build_node(api: Api) -> None:
    ask(api, "POST", NODES, {"metadata": {"name": "n"}})
    addresses = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.1.2.3"}]
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 4321}}}
    ask(api, "PATCH", f"{NODES}/n/status", {"status": status}, MERGE)


def forwarded(api: Api, path: str, raw_query: str = "", **query: str) -> Proxied:
    from raytide_sandbox.apiserver.routes import Request

    found = api.handle(Request("GET", path, query, {}, raw_query=raw_query))
    assert isinstance(found, Proxied), found
    return found


def test_what_a_kubelet_answers_is_forwarded_to_the_node_of_the_pod(api: Api) -> None:
    build_node(api)
    ask(api, "POST", PODS, pod("p", nodeName="n"))
    log = forwarded(api, f"{PODS}/p/log", follow="true", tailLines="5", pretty="x")
    assert (log.host, log.port, log.path) == (
        "10.1.2.3",
        4321,
        "/containerLogs/default/p/c?follow=true&tailLines=5",
    )
    run = forwarded(api, f"{PODS}/p/exec", "command=sh&command=-c%20x&stdin=true&stdout=true&tty=false&container=c")
    assert run.path == "/exec/default/p/c?command=sh&command=-c%20x&input=1&output=1"
    assert forwarded(api, f"{PODS}/p/attach", "stdout=1").path == "/attach/default/p/c?output=1"
    assert forwarded(api, f"{PODS}/p/portforward", "ports=80").path == "/portForward/default/p?ports=80"
    proxied = forwarded(api, f"{PODS}/p:8080/proxy/a b/c", "x=1")
    assert (proxied.path, proxied.is_transparent) == ("/podProxy/default/p/8080/a%20b/c?x=1", True)


def test_a_service_is_proxied_to_a_ready_endpoint(api: Api) -> None:
    build_node(api)
    ask(api, "POST", PODS, pod("p", nodeName="n"))
    services = "/api/v1/namespaces/default/services"
    ports = [{"name": "http", "port": 80, "targetPort": 8000}]
    ask(api, "POST", services, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    assert status_and_body(ask(api, "GET", f"{services}/s:http/proxy/"))[0] == 503
    address = {"ip": "10.0.0.1", "targetRef": {"kind": "Pod", "name": "p"}}
    subsets = [{"addresses": [address], "ports": [{"name": "http", "port": 8000}]}]
    ask(api, "POST", "/api/v1/namespaces/default/endpoints", {"metadata": {"name": "s"}, "subsets": subsets})
    assert forwarded(api, f"{services}/s:80/proxy/x").path == "/podProxy/default/p/8000/x"
    assert status_and_body(ask(api, "GET", f"{services}/s:81/proxy/"))[0] == 503


def test_requests_that_cannot_be_forwarded_have_an_error_message(api: Api) -> None:
    ask(api, "POST", PODS, pod("free"))
    assert (
        status_and_body(ask(api, "GET", f"{PODS}/free/exec"))[1]["message"] == "pod free does not have a host assigned"
    )
    ask(api, "POST", PODS, pod("lost", nodeName="gone"))
    assert status_and_body(ask(api, "GET", f"{PODS}/lost/log"))[0] == 404
    both = pod("both")
    both["spec"]["containers"].append({"name": "d", "image": "i"})
    ask(api, "POST", PODS, both)
    message = status_and_body(ask(api, "GET", f"{PODS}/both/log"))[1]["message"]
    assert message == "a container name must be specified for pod both, choose one of: [c d]"
    assert status_and_body(ask(api, "GET", f"{PODS}/both/log", container="x"))[0] == 400


# --- tokens ------------------------------------------------------------------------------------------------------------
def test_a_token_of_a_service_account_is_accepted_only_by_its_server() -> None:
    store = build_store()
    tokens = Tokens(b"secret", now=store.now)
    api = build_api(store, mint_token=tokens.mint, authenticate=tokens.user)
    store.create("serviceaccounts", {"metadata": {"name": "bot", "namespace": "default"}})
    path = "/api/v1/namespaces/default/serviceaccounts/{}/token"
    status, body = status_and_body(ask(api, "POST", path.format("bot"), {"spec": {"expirationSeconds": 60}}))
    assert (status, body["status"]["expirationTimestamp"]) == (201, "2026-11-21T12:01:00Z")
    token = body["status"]["token"]
    assert tokens.user(token) == "system:serviceaccount:default:bot"
    assert Tokens(b"other", now=store.now).user(token) is None
    assert tokens.user(token[:-2]) is None
    assert tokens.user("") is None
    assert tokens.user(tokens.mint_for("late", life_s=-1)) is None
    assert status_and_body(ask(api, "POST", path.format("nobody"), {}))[0] == 404
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    known = status_and_body(ask(api, "POST", reviews, {"spec": {"token": token}}))[1]["status"]
    assert known["user"]["groups"][-1] == "system:serviceaccounts:default"
    assert status_and_body(ask(api, "POST", reviews, {"spec": {"token": "x"}}))[1]["status"] == {"authenticated": False}
