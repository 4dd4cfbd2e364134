"""Discovery, GET, LIST and selectors, as a real API server implements them."""

import pytest

from integration.probe.client import AGGREGATED_DISCOVERY, Client, definition, eventually, pod

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


def names(client: Client, **query: str) -> list[str]:
    return [item["metadata"]["name"] for item in client.get(client.pods, **query).body["items"]]


def test_the_classic_discovery_documents(client: Client) -> None:
    version = client.get("/version").body
    assert version["major"] == "1"
    assert int(version["minor"].rstrip("+")) >= 30
    assert client.get("/api").body["versions"] == ["v1"]
    assert "apps" in {group["name"] for group in client.get("/apis").body["groups"]}
    found = client.get("/api/v1").body
    resources = {item["name"]: item for item in found["resources"]}
    assert found["groupVersion"] == "v1"
    assert sorted(resources["pods/status"]["verbs"]) == ["get", "patch", "update"]
    assert "shortNames" not in resources["pods/status"]
    assert resources["pods"]["shortNames"] == ["po"]


def test_aggregated_discovery(client: Client) -> None:
    answer = client.call("GET", "/apis", headers={"Accept": AGGREGATED_DISCOVERY})
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    groups = {item["metadata"]["name"]: item for item in answer.body["items"]}
    resource = groups["probe.raytide.io"]["versions"][0]["resources"][0]
    assert resource["responseKind"] == {"group": "probe.raytide.io", "version": "v1", "kind": "RayCluster"}
    assert {item["subresource"] for item in resource["subresources"]} == {"status", "scale"}


def test_a_definition_serves_its_kind_until_it_is_deleted(client: Client) -> None:
    group = f"{client.namespace}.dev"
    wanted = definition("widgets", "Widget", group)
    path = f"/apis/{group}/v1/namespaces/{client.namespace}/widgets"
    assert client.post(CRDS, wanted).status == 201
    eventually(lambda: client.get(path).status == 200, "widgets are served")
    conditions = client.get(f"{CRDS}/widgets.{group}").body["status"]["conditions"]
    assert {item["type"]: item["status"] for item in conditions}["Established"] == "True"
    eventually(lambda: client.get(f"/apis/{group}/v1").status == 200, "widgets are discovered")
    body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"rayVersion": "1"}}
    assert client.post(path, body).status == 201
    client.delete(f"{CRDS}/widgets.{group}")
    eventually(lambda: client.get(path).status == 404, "the kind is gone with its objects")


def test_openapi_documents_describe_custom_kinds(client: Client) -> None:
    assert client.get("/openapi/v2").status == 200
    index = client.openapi_paths()
    url = index["apis/probe.raytide.io/v1"]["serverRelativeURL"]
    schemas = client.get(url).body["components"]["schemas"]
    described = next(schema for name, schema in schemas.items() if name.endswith(".v1.RayCluster"))
    assert described["properties"]["spec"]["properties"]["mode"]["enum"] == ["A", "B"]


def test_tables_for_kubectl(client: Client) -> None:
    client.new_pod("tab")
    table = client.call("GET", client.pods, headers={"Accept": TABLE}).body
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert table["kind"] == "Table"
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert [str(cell) for cell in table["rows"][0]["cells"][:4]] == ["tab", "0/1", "Pending", "0"]
    client.new_cluster("tab", {"rayVersion": "1", "replicas": 4})
    table = client.call("GET", client.clusters, headers={"Accept": TABLE}).body
    assert table["rows"][0]["cells"] == ["tab", 4]


def test_metadata_only_answers(client: Client) -> None:
    uid = client.new_pod("meta").metadata["uid"]
    one = client.call("GET", f"{client.pods}/meta", headers={"Accept": METADATA.format("")}).body
    assert (one["kind"], one["metadata"]["uid"]) == ("PartialObjectMetadata", uid)
    assert "spec" not in one
    many = client.call("GET", client.pods, headers={"Accept": METADATA.format("List")}).body
    assert many["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in many["items"]] == ["meta"]


def test_a_missing_object_is_a_status(client: Client) -> None:
    answer = client.get(f"{client.pods}/nope")
    assert (answer.status, answer.body["reason"], answer.body["kind"]) == (404, "NotFound", "Status")
    assert answer.body["message"] == 'pods "nope" not found'
    assert client.get("/apis/nobody.dev/v1/things").status == 404


def test_a_list_has_a_kind_and_a_numeric_version(client: Client) -> None:
    client.new_pod("one")
    found = client.get(client.pods).body
    assert found["kind"] == "PodList"
    assert found["metadata"]["resourceVersion"].isdigit()
    assert len(found["items"]) == 1
    assert "one" in {item["metadata"]["name"] for item in client.get("/api/v1/pods").body["items"]}


def test_paging_gives_every_object_once_under_one_version(client: Client) -> None:
    for number in range(5):
        client.new_pod(f"page-{number}")
    seen, versions, token = [], set(), ""
    while True:
        page = client.get(client.pods, limit=2, **({"continue": token} if token else {})).body
        seen += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue")
        if not token:
            break
        client.new_pod(f"aaa-{len(seen)}")
    assert seen == [f"page-{number}" for number in range(5)]
    assert len(versions) == 1


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("app=x", ["one", "two"]),
        ("app==x,tier!=a", ["two"]),
        ("tier in (a,b)", ["one", "two"]),
        ("app in (x, y),!tier", ["three"]),
        ("app notin (x),app", ["three"]),
        ("tier", ["one", "two"]),
    ],
)
def test_label_selectors(client: Client, selector: str, wanted: list[str]) -> None:
    client.new_pod("one", labels={"app": "x", "tier": "a"})
    client.new_pod("two", labels={"app": "x", "tier": "b"})
    client.new_pod("three", labels={"app": "y"})
    client.new_pod("none")
    assert sorted(names(client, labelSelector=selector)) == sorted(wanted)


def test_a_selector_that_cannot_be_read_is_rejected(client: Client) -> None:
    assert client.get(client.pods, labelSelector="a b c").status == 400


def test_field_selectors(client: Client) -> None:
    client.new_pod("one")
    bound = pod("two")
    bound["spec"]["nodeName"] = "nowhere"
    client.post(client.pods, bound)
    assert names(client, fieldSelector="metadata.name=one") == ["one"]
    assert names(client, fieldSelector="spec.nodeName=nowhere") == ["two"]
    assert names(client, fieldSelector="spec.nodeName=nowhere,metadata.name=one") == []
    assert "one" in names(client, fieldSelector="status.phase=Pending")
    assert client.get(client.pods, fieldSelector="spec.bogus=1").status == 400
