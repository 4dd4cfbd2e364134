"""`raytide plan` on clusters where the user may not read every kind."""

import itertools
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from raytide.api.capacity import tenants_of
from raytide.api.config import SharingConfig
from raytide.cli.plan.render import as_json
from raytide.client.cluster_reader import ClusterReader, SnapshotError
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from raytide.simulator.simulate import plan_next_pass
from raytide_sandbox.apiserver.routes import Api, Request
from raytide_sandbox.apiserver.store import Store
from support.faults.types import Answer
from support.plan_snapshots import job, namespace, node, pod, priority_class, quota

from simulation.in_process_transport import InProcessTransport

pytestmark = [pytest.mark.looptime, pytest.mark.rule("TJ:7.15")]

JOB_CRD = Path(__file__).parents[3] / "crds" / "paddlepaddle.org_trainingjobs.yaml"
NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "ResourceQuota": "/api/v1/namespaces/default/resourcequotas",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "TrainingJob": "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


def api_with(*objects: dict) -> Api:
    """An API server that holds these."""
    uids = itertools.count(1)
    store = Store(now=lambda: NOW, new_uid=lambda: f"uid-{next(uids)}")
    store.create("namespaces", {"metadata": {"name": "default"}})
    api = Api(store, new_suffix=lambda: "00000")
    for obj in objects:
        answered = api.handle(Request("POST", PLURALS[obj["kind"]], {}, {}, msgspec.json.encode(obj)))
        assert answered.status == 201, answered.body
        if obj["kind"] == "Node":
            path = f"{PLURALS['Node']}/{obj['metadata']['name']}/status"
            body = msgspec.json.encode({"status": obj["status"]})
            merge = {"content-type": "application/merge-patch+json"}
            assert api.handle(Request("PATCH", path, {}, merge, body)).status == 200
    return api


def crd() -> dict:
    return yaml.load(JOB_CRD.read_text(), Loader=yaml.CSafeLoader)


async def snapshot_of(api: Api, *, forbidden: str = "", status: int = 403, has_tenants: bool = False):
    """Read by a user without permission to list that kind."""
    wire = InProcessTransport(api)

    def admission(request):
        if forbidden and request.path.endswith(f"/{forbidden}"):
            return Answer(status, "Forbidden")
        return None

    wire.admission = admission
    return await ClusterReader(Client(wire, clock=Clock()), has_tenants=has_tenants).snapshot()


def unlabelled(obj: dict) -> dict:
    obj["metadata"].pop("uid", None)
    return obj


@pytest.mark.rule("TJ:7.13", "D25")
async def test_namespaces_are_read_if_there_are_tenants():
    api = api_with(crd(), node(), namespace("team", "a"))
    assert (await snapshot_of(api)).namespaces == ()
    snapshot = await snapshot_of(api, has_tenants=True)
    assert tenants_of(snapshot.namespaces) == {"team": "a"}
    with pytest.raises(SnapshotError, match="namespaces cannot be listed"):
        await snapshot_of(api, forbidden="namespaces", has_tenants=True)


async def test_everything_is_read_once():
    asked = []
    api = api_with(
        crd(),
        node(cpu=4),
        pod("web", on="node-1"),
        quota(pods="9"),
        priority_class("vip", 7),
        unlabelled(job("a", 1, 2)),
    )
    wire = InProcessTransport(api)
    wire.on_request = lambda request: asked.append((request.method, request.path.rpartition("/")[2]))
    found = await ClusterReader(Client(wire, clock=Clock())).snapshot()
    assert asked == [("GET", each) for each in ("trainingjobs", "pods", "nodes", "resourcequotas", "priorityclasses")]
    counts = [len(each) for each in (found.jobs, found.pods, found.nodes, found.quotas, found.priority_classes)]
    assert counts == [1, 1, 1, 1, 1]
    assert (found.is_live, found.notes) == (True, ())


async def test_a_cluster_without_the_kind_has_no_jobs():
    found = await snapshot_of(api_with(node(cpu=4)))
    assert found.jobs == ()
    assert found.notes == ("the CRD of TrainingJobs is not installed, so the plan has no jobs",)


@pytest.mark.parametrize("plural", ["resourcequotas", "priorityclasses"])
async def test_what_is_not_needed_is_left_out_with_a_note(plural):
    found = await snapshot_of(api_with(crd(), node(cpu=4)), forbidden=plural)
    assert found.notes == (f"the plan ignores {plural}, because they cannot be listed: on purpose",)


@pytest.mark.parametrize("plural", ["nodes", "pods", "trainingjobs"])
async def test_without_what_is_needed_there_is_no_plan(plural):
    with pytest.raises(SnapshotError, match=f"^{plural} cannot be listed: on purpose$"):
        await snapshot_of(api_with(crd(), node(cpu=4)), forbidden=plural)


async def test_a_server_that_does_not_answer_is_named_as_such():
    with pytest.raises(SnapshotError, match=r"^trainingjobs cannot be listed: 503"):
        await snapshot_of(api_with(crd(), node(cpu=4)), forbidden="trainingjobs", status=503)


async def test_a_job_that_cannot_be_read_is_reported_and_the_others_are_planned():
    """As an older CRD let it in."""
    loose = crd()
    loose["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    odd = unlabelled(job("odd", 1, 2))
    odd["spec"]["trainer"]["min-instance"] = "two"
    found = await snapshot_of(api_with(loose, node(cpu=4), odd, unlabelled(job("b", 2, 2, gpu=1))))
    output = as_json(plan_next_pass(found, config=SharingConfig(), now=NOW))
    assert [(each["name"], each["reason"]) for each in output["waiting"]] == [
        ("b", "Unsatisfiable"),
        ("odd", "InvalidSpec"),
    ]
    assert output["waiting"][1]["message"].startswith("spec.trainer.min-instance input should be a valid integer")
