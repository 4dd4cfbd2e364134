"""Questions about reads: lists at versions, selectors, watches and their ends, paths that are not served."""

from typing import Any

from integration.probe.client import Client, cluster, pod
from integration.probe.transcript import Transcript

Json = dict[str, Any]
WRONG_TOKEN = {"Authorization": "Bearer wrong"}


def _names(body: Json) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def _shape(body: Json) -> Json:
    """A list without its items; the objects in it have neither kind nor version."""
    first = body["items"][0]
    return {"kind": body["kind"], "apiVersion": body["apiVersion"], "typed": "kind" in first, **body["metadata"]}


def what_a_list_looks_like(ask: Transcript) -> None:
    client = ask.client
    client.new_pod("a")
    client.new_pod("b")
    client.new_cluster("a")
    ask.note("pods", client.get(client.pods), only=_shape)
    ask.note("clusters", client.get(client.clusters), only=_shape)
    ask.note("at version 0", client.get(client.pods, resourceVersion="0"), only=_names)
    ask.note("at a version to come", client.get(client.pods, resourceVersion="999999999"))
    ask.note("at no version", client.get(client.pods, resourceVersion="abc"))
    page = client.get(client.pods, limit=1)
    left = page.metadata.get("remainingItemCount")
    ask.note("the first page", page, only=lambda body: [_names(body), left])
    ask.note("the rest", client.get(client.pods, limit=1, **{"continue": page.metadata["continue"]}), only=_names)
    ask.note("after a token that is none", client.get(client.pods, limit=1, **{"continue": "x"}))


def what_selectors_are_rejected(ask: Transcript) -> None:
    client = ask.client
    ask.note("of labels", client.get(client.pods, labelSelector="a b c"))
    ask.note("of fields", client.get(client.pods, fieldSelector="a b c"))
    ask.note("of a field of no pod", client.get(client.pods, fieldSelector="spec.bogus=1"))
    ask.note("of a field of no cluster", client.get(client.clusters, fieldSelector="spec.bogus=1"))


def what_is_not_served(ask: Transcript) -> None:
    client = ask.client
    client.new_cluster("a")
    ask.note("no pod", client.get(f"{client.pods}/nobody"))
    ask.note("no cluster", client.get(f"{client.clusters}/nobody"))
    ask.note("no kind", client.get(f"{client.core}/bogus"))
    ask.note("no group", client.get("/apis/nobody.dev/v1/things"))
    ask.note("no subresource", client.get(f"{client.clusters}/a/bogus"))
    ask.note("no method", client.call("PUT", client.clusters, cluster("a")))
    ask.note("no JSON", client.call("POST", client.pods, "{"))
    ask.note("no content type", client.call("POST", client.pods, "x", "text/plain"))
    ask.note("another kind", client.post(client.pods, cluster("x")))
    ask.note("another version", client.post(client.clusters, {**cluster("x"), "apiVersion": "probe.raytide.io/v2"}))
    ask.note("another name", client.call("PUT", f"{client.pods}/a", pod("b")))


def responses_without_a_valid_token(ask: Transcript) -> None:
    anonymous = Client(ask.client.endpoint.without_credentials(), ask.client.namespace)
    ask.note("with a wrong token", anonymous.call("GET", anonymous.pods, headers=WRONG_TOKEN))
    anonymous.close()


def how_watches_begin(ask: Transcript) -> None:
    client = ask.client
    client.new_cluster("a")
    path = client.clusters
    for what, query in {
        "at no version": {"resourceVersion": "abc"},
        "with a first list but no match": {"sendInitialEvents": "true"},
        "with a match but no first list": {"resourceVersionMatch": "NotOlderThan"},
    }.items():
        ask.note(what, client.get(path, watch="true", timeoutSeconds=1, **query))
    watch = client.watch(path, resourceVersion="999999999", timeoutSeconds=1)
    ask.note_events("at a version to come", watch.rest())
    first = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watch = client.watch(path, timeoutSeconds=1, **first)
    events = watch.rest()
    ask.note_events("the end of a first list", [event for event in events if event["type"] == "BOOKMARK"][:1])


def what_reviews_answer(ask: Transcript) -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    wish = {"verb": "get", "resource": "pods", "namespace": ask.client.namespace}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = ask.client.post(path, {**review, "spec": {"resourceAttributes": wish}})
    ask.note("about oneself", answer, only=lambda body: [body["spec"], body["status"]["allowed"]])
