"""Custom resources: schema, status, scale; and what happens to undeclared fields."""

import pytest

from integration.probe.client import Client, cluster


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"rayVersion": 5}, "spec.rayVersion: Invalid value: "),
        ({"rayVersion": "a", "mode": "Z"}, 'spec.mode: Unsupported value: "Z"'),
        ({"rayVersion": "a", "replicas": -1}, "spec.replicas: Invalid value: -1"),
        ({"replicas": 1}, "spec.rayVersion: Required value"),
        ({"rayVersion": "never"}, "rayVersion may not be never"),
    ],
    ids=["wrong type", "not in the enum", "below the minimum", "required and missing", "rejected by a CEL rule"],
)
def test_what_the_schema_forbids_is_rejected(client: Client, spec: dict[str, object], message: str) -> None:
    answer = client.new_cluster("bad", spec)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"].startswith('RayCluster.probe.raytide.io "bad" is invalid: ')
    assert message in answer.body["message"]
    assert answer.body["details"]["causes"][0]["field"].startswith("spec")


def test_defaults_reach_nested_items(client: Client) -> None:
    made = client.new_cluster("default", {"rayVersion": "1", "groups": [{"name": "g"}]}).body["spec"]
    assert made == {"rayVersion": "1", "replicas": 1, "mode": "A", "groups": [{"name": "g", "count": 3}]}


def test_unknown_fields_are_pruned_but_where_they_may_stay(client: Client) -> None:
    labels = {"kept": "yes"}
    answer = client.new_cluster("pruned", {"rayVersion": "1", "bogus": 1, "free": {"any": 1}}, labels=labels)
    assert "bogus" not in answer.body["spec"]
    assert answer.body["spec"]["free"] == {"any": 1}
    assert answer.metadata["labels"] == labels, "a schema's `metadata: {type: object}` does not prune metadata"


def test_unknown_fields_are_an_error_when_the_client_is_strict(client: Client) -> None:
    wanted = cluster("strict", {"rayVersion": "1", "bogus": 1})
    answer = client.post(client.clusters, wanted, fieldValidation="Strict")
    assert answer.status == 400
    assert 'strict decoding error: unknown field "spec.bogus"' in answer.body["message"]
    assert client.get(f"{client.clusters}/strict").status == 404
    answer = client.post(client.clusters, wanted, fieldValidation="Warn")
    assert answer.status == 201
    assert 'unknown field \\"spec.bogus\\"' in answer.headers["warning"]
    wanted["metadata"]["name"] = "ignored"
    assert "warning" not in client.post(client.clusters, wanted, fieldValidation="Ignore").headers


def test_status_is_written_through_its_own_endpoint_only(client: Client) -> None:
    path = f"{client.clusters}/status"
    created = client.post(client.clusters, {**cluster("status"), "status": {"early": 1}})
    assert "status" not in created.body
    client.patch(path, {"status": {"leak": 1}})
    client.patch(f"{path}/status", {"status": {"ok": 1}, "spec": {"rayVersion": "leak"}})
    found = client.get(f"{path}/status").body
    assert found["status"] == {"ok": 1}
    assert found["spec"]["rayVersion"] == "2.9"
    found["status"] = {"put": 1}
    assert client.call("PUT", f"{path}/status", found).body["status"] == {"put": 1}


def test_pod_status_too(client: Client) -> None:
    client.new_pod("status")
    client.patch(f"{client.pods}/status/status", {"status": {"phase": "Running"}})
    client.patch(f"{client.pods}/status", {"status": {"phase": "Failed"}})
    assert client.get(f"{client.pods}/status").body["status"]["phase"] == "Running"


def test_scale(client: Client) -> None:
    client.new_cluster("scale")
    path = f"{client.clusters}/scale"
    found = client.get(f"{path}/scale").body
    assert (found["kind"], found["spec"]["replicas"]) == ("Scale", 1)
    answer = client.patch(f"{path}/scale", {"spec": {"replicas": 5}})
    assert (answer.status, answer.body["spec"]["replicas"]) == (200, 5)
    assert client.get(path).body["spec"]["replicas"] == 5
    assert client.get(path).metadata["generation"] == 2
    assert client.patch(f"{path}/scale", {"spec": {"replicas": -1}}).status == 422
