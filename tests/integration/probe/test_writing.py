"""Create, replace, patch: codes, reasons and metadata of the results."""

import pytest

from integration.probe.client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Client, cluster, pod


def test_a_created_object_has_its_identity(client: Client) -> None:
    made = client.new_cluster("one")
    assert made.status == 201
    wanted = {"uid", "resourceVersion", "creationTimestamp", "generation", "namespace", "managedFields"}
    assert wanted <= set(made.metadata)
    assert {"uid", "resourceVersion", "creationTimestamp", "namespace"} <= set(client.new_pod("one").metadata)


def test_a_name_is_taken_once(client: Client) -> None:
    client.new_pod("twice")
    answer = client.new_pod("twice")
    assert (answer.status, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["details"] == {"name": "twice", "kind": "pods"}


def test_generated_names_differ(client: Client) -> None:
    wanted = pod("x")
    wanted["metadata"] = {"generateName": "gen-"}
    found = {client.post(client.pods, wanted).metadata["name"] for _ in range(3)}
    assert len(found) == 3
    assert all(name.startswith("gen-") and len(name) == 9 for name in found)


def test_a_dry_run_stores_nothing(client: Client) -> None:
    assert client.post(client.pods, pod("dry"), dryRun="All").status == 201
    assert client.get(f"{client.pods}/dry").status == 404
    client.new_pod("wet")
    assert client.delete(f"{client.pods}/wet", dryRun="All").status == 200
    client.patch(f"{client.pods}/wet", {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    assert "labels" not in client.get(f"{client.pods}/wet").metadata


def test_names_and_namespaces_are_checked(client: Client) -> None:
    answer = client.new_pod("Bad_Name!")
    assert answer.status == 422
    assert answer.body["message"].startswith('Pod "Bad_Name!" is invalid: metadata.name: Invalid value: "Bad_Name!"')
    assert client.post("/api/v1/namespaces/nonexistent/pods", pod("a")).status == 404
    assert client.new_pod("q", namespace="other").status == 400
    assert client.new_pod("long", labels={"a": "b" * 64}).status == 422


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.containers"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image"),
    ],
    ids=["no containers", "no image"],
)
def test_pods_are_checked(client: Client, spec: dict[str, object], field: str) -> None:
    answer = client.post(client.pods, {**pod("bad"), "spec": spec})
    assert answer.status == 422
    assert field in {cause["field"] for cause in answer.body["details"]["causes"]}


def test_an_invalid_quantity_is_rejected_as_a_bad_request_before_validation(client: Client) -> None:
    wanted = pod("bad")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "lots"}}
    answer = client.post(client.pods, wanted)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert "quantities must match" in answer.body["message"]


def test_pods_are_completed(client: Client) -> None:
    made = client.new_pod("full").body
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"


def test_a_replaced_object_has_a_new_version(client: Client) -> None:
    made = client.new_cluster("put").body
    made["spec"]["rayVersion"] = "3"
    answer = client.call("PUT", f"{client.clusters}/put", made)
    assert (answer.status, answer.body["spec"]["rayVersion"]) == (200, "3")
    assert int(answer.metadata["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_a_stale_put_or_patch_is_a_conflict(client: Client) -> None:
    made = client.new_cluster("stale").body
    client.patch(f"{client.clusters}/stale", {"spec": {"rayVersion": "x"}})
    answer = client.call("PUT", f"{client.clusters}/stale", made)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"rayVersion": "y"}}
    assert client.patch(f"{client.clusters}/stale", stale).status == 409


def test_merge_patch_deletes_by_null(client: Client) -> None:
    client.new_cluster("merge", {"rayVersion": "1", "suspend": True})
    answer = client.patch(f"{client.clusters}/merge", {"spec": {"suspend": None, "rayVersion": "2"}}, MERGE)
    assert answer.status == 200
    assert "suspend" not in answer.body["spec"]
    assert answer.body["spec"]["rayVersion"] == "2"


def test_json_patch_tests_before_it_writes(client: Client) -> None:
    client.new_cluster("json")
    test = {"op": "test", "path": "/spec/rayVersion", "value": "2.9"}
    change = {"op": "replace", "path": "/spec/rayVersion", "value": "7"}
    answer = client.patch(f"{client.clusters}/json", [test, change], JSON_PATCH)
    assert (answer.status, answer.body["spec"]["rayVersion"]) == (200, "7")
    assert client.patch(f"{client.clusters}/json", [test, change], JSON_PATCH).status == 422
    missing = [{"op": "remove", "path": "/spec/nothing/here"}]
    assert client.patch(f"{client.clusters}/json", missing, JSON_PATCH).status == 422


def test_strategic_merge_finds_containers_by_name_and_conditions_by_type(client: Client) -> None:
    client.new_pod("smp")
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "img2"}]}}
    answer = client.patch(f"{client.pods}/smp", change, STRATEGIC)
    assert [(c["name"], c["image"]) for c in answer.body["spec"]["containers"]] == [("c", "img2")]
    for kind in ("A", "B"):
        body = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        answer = client.patch(f"{client.pods}/smp/status", body, STRATEGIC)
    found = [c["type"] for c in answer.body["status"]["conditions"] if c["type"] != "PodScheduled"]
    assert found == ["B", "A"], "new items go to the front"


def test_strategic_merge_is_not_for_custom_kinds(client: Client) -> None:
    client.new_cluster("no")
    assert client.patch(f"{client.clusters}/no", {"spec": {}}, STRATEGIC).status == 415
    assert client.patch(f"{client.clusters}/no", {"spec": {}}, "application/json").status == 415


def test_server_side_apply_owns_what_it_applied(client: Client) -> None:
    wanted = cluster("ssa", {"rayVersion": "1", "suspend": True})
    path = f"{client.clusters}/ssa"
    assert client.patch(path, wanted, APPLY, fieldManager="one").status == 201
    del wanted["spec"]["suspend"]
    answer = client.patch(path, wanted, APPLY, fieldManager="one")
    assert answer.status == 200
    assert "suspend" not in answer.body["spec"]
    wanted["spec"]["rayVersion"] = "2"
    answer = client.patch(path, wanted, APPLY, fieldManager="two")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["details"]["causes"][0]["field"] == ".spec.rayVersion"
    assert 'conflict with "one"' in answer.body["message"]
    answer = client.patch(path, wanted, APPLY, fieldManager="two", force="true")
    assert (answer.status, answer.body["spec"]["rayVersion"]) == (200, "2")
    owners = {e["manager"]: e["fieldsV1"].get("f:spec") or {} for e in answer.metadata["managedFields"]}
    assert "f:rayVersion" in owners["two"]
    assert "f:rayVersion" not in owners.get("one", {})


def test_server_side_apply_takes_yaml(client: Client) -> None:
    body = "apiVersion: probe.raytide.io/v1\nkind: RayCluster\nmetadata: {name: yaml}\nspec: {rayVersion: '1'}\n"
    answer = client.patch(f"{client.clusters}/yaml", body, APPLY, fieldManager="one", force="true")
    assert (answer.status, answer.body["spec"]["rayVersion"]) == (201, "1")
    again = client.patch(f"{client.clusters}/yaml", body, APPLY, fieldManager="one", force="true")
    assert again.metadata["resourceVersion"] == answer.metadata["resourceVersion"], "applying twice changes nothing"


def test_server_side_apply_merges_lists_by_the_schemas_keys(client: Client) -> None:
    path = f"{client.clusters}/lists"
    for manager, name in (("one", "a"), ("two", "b")):
        wanted = cluster("lists", {"rayVersion": "1", "groups": [{"name": name, "count": 1}]})
        answer = client.patch(path, wanted, APPLY, fieldManager=manager)
    assert [group["name"] for group in answer.body["spec"]["groups"]] == ["a", "b"]
    wanted = cluster("lists", {"rayVersion": "1"})
    answer = client.patch(path, wanted, APPLY, fieldManager="one")
    assert [group["name"] for group in answer.body["spec"]["groups"]] == ["b"]


def test_server_side_apply_of_a_status(client: Client) -> None:
    client.new_cluster("status")
    path = f"{client.clusters}/status"
    body = {"apiVersion": "probe.raytide.io/v1", "kind": "RayCluster", "metadata": {"name": "status"}}
    client.patch(f"{path}/status", {**body, "status": {"a": 1, "b": 1}}, APPLY, fieldManager="reporter")
    answer = client.patch(f"{path}/status", {**body, "status": {"a": 2}}, APPLY, fieldManager="reporter")
    assert answer.body["status"] == {"a": 2}
    assert answer.body["spec"]["rayVersion"] == "2.9"
    found = [e for e in answer.metadata["managedFields"] if e["manager"] == "reporter"]
    assert [(e["operation"], e["subresource"], e["fieldsV1"]) for e in found] == [
        ("Apply", "status", {"f:status": {"f:a": {}}})
    ]


def test_every_write_notes_its_manager(client: Client) -> None:
    client.new_cluster("owned")
    client.patch(f"{client.clusters}/owned", {"spec": {"suspend": True}}, fieldManager="switch")
    answer = client.patch(f"{client.clusters}/owned/status", {"status": {"x": 1}}, fieldManager="reporter")
    found = {(e["manager"], e.get("subresource", "")): e["fieldsV1"] for e in answer.metadata["managedFields"]}
    assert found["switch", ""] == {"f:spec": {"f:suspend": {}}}
    assert "f:x" in found["reporter", "status"]["f:status"]
    assert "f:rayVersion" in found["probe", ""]["f:spec"]


def test_a_patch_that_changes_nothing_is_no_write(client: Client) -> None:
    client.new_cluster("noop")
    change = {"metadata": {"labels": {"z": "1"}}}
    before = client.patch(f"{client.clusters}/noop", change).metadata["resourceVersion"]
    watch = client.watch(client.clusters, resourceVersion=before)
    assert client.patch(f"{client.clusters}/noop", change).metadata["resourceVersion"] == before
    client.new_cluster("after")
    assert watch.until("ADDED", "after") == [("ADDED", "after")]
    watch.close()


def test_generation_counts_changes_of_the_spec(client: Client) -> None:
    path = f"{client.clusters}/gen"
    answers = [
        client.new_cluster("gen"),
        client.patch(path, {"metadata": {"labels": {"a": "1"}}}),
        client.patch(path, {"spec": {"rayVersion": "9"}}),
        client.patch(f"{path}/status", {"status": {"x": 1}}),
    ]
    assert [answer.metadata["generation"] for answer in answers] == [1, 1, 2, 2]


def test_identity_does_not_change(client: Client) -> None:
    made = client.new_cluster("same").metadata
    answer = client.patch(f"{client.clusters}/same", {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z"}})
    assert answer.metadata["creationTimestamp"] == made["creationTimestamp"]
    assert client.patch(f"{client.clusters}/same", {"metadata": {"uid": "other"}}).status == 422
    client.new_pod("same")
    assert client.patch(f"{client.pods}/same", {"metadata": {"uid": "other"}}).status == 422


def test_a_pods_spec_is_fixed_but_for_its_images(client: Client) -> None:
    client.new_pod("fixed")
    change = {"spec": {"containers": [{"name": "c", "image": "img", "command": ["other"]}]}}
    answer = client.patch(f"{client.pods}/fixed", change, STRATEGIC)
    assert answer.status == 422
    assert "pod updates may not change fields other than" in answer.body["message"]


def test_secrets_and_services_are_completed(client: Client) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    made = client.post(f"{client.core}/secrets", secret).body
    assert (made["data"], made["type"], "stringData" in made) == ({"a": "Yg=="}, "Opaque", False)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}}
    spec = client.post(f"{client.core}/services", service).body["spec"]
    assert spec["clusterIP"].count(".") == 3
    assert (spec["type"], spec["ports"][0]["targetPort"], spec["ports"][0]["protocol"]) == ("ClusterIP", 80, "TCP")
    service["metadata"]["name"] = "headless"
    service["spec"]["clusterIP"] = "None"
    assert client.post(f"{client.core}/services", service).body["spec"]["clusterIP"] == "None"


def test_an_event_is_seen_through_both_groups(client: Client) -> None:
    about = {"kind": "Pod", "name": "p1", "namespace": client.namespace}
    core = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": about}
    core.update(reason="Old", message="core", type="Normal")
    assert client.post(f"{client.core}/events", core).status == 201
    new_path = f"/apis/events.k8s.io/v1/namespaces/{client.namespace}/events"
    seen = client.get(f"{new_path}/a").body
    assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "core", "p1")
    new = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "b"}, "regarding": about}
    new.update(reason="New", note="modern", type="Normal", action="Acting", eventTime="2026-01-01T00:00:00.000000Z")
    new.update(reportingController="raytide.io/test", reportingInstance="test-1")
    assert client.post(new_path, new).status == 201
    found = client.get(f"{client.core}/events", fieldSelector="involvedObject.name=p1,reason=New").body["items"]
    assert [(item["message"], item["reportingComponent"]) for item in found] == [("modern", "raytide.io/test")]
    old = {**new, "metadata": {"name": "c"}, "deprecatedLastTimestamp": "2026-01-01T00:00:00Z", "deprecatedCount": 1}
    rejected = client.post(new_path, old)
    assert rejected.status == 422
    causes = [(cause["field"], cause["message"]) for cause in rejected.body["details"]["causes"]]
    unset = 'Invalid value: "": needs to be unset'
    assert causes == [("lastTimestamp", unset), ("count", unset)]
    assert client.patch(f"{client.core}/events/b", {"count": 2, "lastTimestamp": "2026-01-01T00:00:01Z"}).status == 200


def test_leases_are_renewed_one_at_a_time(client: Client) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{client.namespace}/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    made = client.post(path, {**lease, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}).body
    made["spec"]["holderIdentity"] = "b"
    assert client.call("PUT", f"{path}/l", made).status == 200
    assert client.call("PUT", f"{path}/l", made).status == 409


def test_access_reviews_are_answered(client: Client) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    }
    answer = client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)


def test_a_wrong_token_is_unauthorized(client: Client) -> None:
    anonymous = Client(client.endpoint.without_credentials(), client.namespace)
    answer = anonymous.call("GET", client.pods, headers={"Authorization": "Bearer wrong"})
    anonymous.close()
    assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")
