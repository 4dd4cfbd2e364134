"""RBAC objects of an autoscaler, in virtual time on the in-process API: frequency of reads, and events."""

import asyncio
import itertools
import random
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.controller.reconcile_loop import Pace
from raytide.kube.client import Client
from raytide.kube.transport import Response
from raytide.raycluster.controller import RayClusterController, RayClusterControllerOptions
from raytide.raycluster.manifests.rbac import build_rights
from raytide.raycluster.manifests.services import build_head_service, build_headless_worker_service
from raytide.raycluster.object_lookup import THERE_FOR_S
from support.builders import group, raycluster, template
from unit.raycluster.test_controller import IdleWorld, VirtualClock, Wire

pytestmark = pytest.mark.looptime

KINDS = ("serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")
RESYNC_S = Pace().resync_s
PLURALS = [kind.partition(".")[0] for kind in KINDS]


class CountingWire(Wire):
    """Also notes which of the three kinds were read, and when, and which were listed."""

    def __init__(self, api):
        super().__init__(api)
        self.reads, self.lists = [], []

    async def request(self, method, path, **rest):
        plural = path.rsplit("/", 2)[-2]
        if method == "GET" and plural in PLURALS:
            self.reads.append((asyncio.get_running_loop().time(), plural))
        elif method == "GET" and path.rsplit("/", 1)[-1] in PLURALS:
            self.lists.append(path)
        return await super().request(method, path, **rest)


@asynccontextmanager
async def living():
    """A running controller. No fixture: what a fixture starts counts its time-outs in real time."""
    world = IdleWorld(random.Random(0))
    wire, clock, suffixes = CountingWire(world.api), VirtualClock(), itertools.count()
    options = RayClusterControllerOptions(namer=lambda prefix: f"{prefix}{next(suffixes):05d}")
    controller = RayClusterController(Client(wire, clock=clock), clock=clock, config=ClusterConfig(), options=options)
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(0.1)
    yield SimpleNamespace(world=world, wire=wire, controller=controller)
    await controller.stop()
    await running


def create(here, account="", name="demo"):
    extra = {"serviceAccountName": account} if account else {}
    head_group = {"rayStartParams": {}, "template": template("ray-head", **extra)}
    obj = raycluster(name=name, enableInTreeAutoscaling=True, headGroupSpec=head_group)
    here.world.create({**obj, "metadata": {"name": name, "namespace": "default"}})


def written(here):
    return [(method, what) for _, method, what in here.wire.writes if what not in {"events", "status"}]


def names_of(here, plural):
    found = sorted(obj["metadata"]["name"] for obj in here.world.store.list(plural))
    return [name for name in found if name != "default"]


def pods(here):
    return names_of(here, "pods")


def there(here):
    return [names_of(here, kind) for kind in KINDS]


def condition(here, kind):
    conditions = here.world.cluster("demo").get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {})


def notes(here):
    return [obj.get("note", obj.get("message", "")) for obj in here.world.store.list("events")]


@pytest.mark.rule("RC:RB-1")
async def test_rights_first_then_head_and_workers_within_a_tenth_of_a_second():
    async with living() as here:
        create(here)
        await asyncio.sleep(0.1)
        assert there(here) == [["demo"], ["demo"], ["demo"]]
        kinds = [what for method, what in written(here) if method == "POST"]
        assert set(kinds[:4]) == {"services", *PLURALS}
        assert kinds[4:] == ["pods", "pods", "pods"]


@pytest.mark.rule("RC:RB-1", "D3", "D8")
async def test_in_steady_state_rbac_objects_are_read_with_the_resync_only():
    async with living() as here:
        create(here)
        await asyncio.sleep(1700)
        assert sorted(plural for _, plural in here.wire.reads) == sorted(PLURALS)
        before = written(here)
        await asyncio.sleep(3000)
        assert 6 <= len(here.wire.reads) <= 9
        assert written(here) == before


@pytest.mark.rule("RC:RB-1")
async def test_one_that_is_deleted_comes_back_at_the_latest_with_the_first_resync_after_five_minutes():
    async with living() as here:
        create(here)
        await asyncio.sleep(1)
        here.world.store.delete("roles.rbac.authorization.k8s.io", "default", "demo")
        await asyncio.sleep(RESYNC_S + THERE_FOR_S)
        assert there(here) == [["demo"], ["demo"], ["demo"]]


async def pod_changes(here, every_s, times):
    """A pod of the cluster changes so many times, after so many seconds each."""
    for number in range(times):
        await asyncio.sleep(every_s)
        now = {"at": f"{number}"}
        here.world.edit("pods", pods(here)[0], None, lambda obj, now=now: obj["metadata"].update(annotations=now))
    await asyncio.sleep(1)


@pytest.mark.rule("RC:RB-1", "RM:F12", "D3")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_deleted_rbac_object_is_recreated_by_the_first_pass_after_five_minutes(kind):
    async with living() as here:
        create(here)
        await pod_changes(here, 30.0, 9)
        assert len(here.wire.reads) == 3, "passes happened for each pod event, without further requests"
        here.world.store.delete(kind, "default", "demo")
        await pod_changes(here, 30.0, 3)
        assert there(here) == [["demo"], ["demo"], ["demo"]]


@pytest.mark.rule("D3")
async def test_continuous_pod_events_cost_three_requests_per_five_minutes():
    async with living() as here:
        create(here)
        await pod_changes(here, 10.0, 360)
        assert 3 * 10 <= len(here.wire.reads) <= 3 * 12
        assert here.wire.lists == []


@pytest.mark.rule("RC:RB-2")
async def test_the_users_account_is_waited_for_and_never_created():
    async with living() as here:
        create(here, account="mine")
        await asyncio.sleep(20)
        assert there(here) == [[], [], []]
        assert pods(here) == []
        assert [note for note in notes(here) if "service account mine" in note]
        assert len(here.wire.reads) <= 3 * 5
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": "default"}}
        here.world.store.create("serviceaccounts", account)
        await asyncio.sleep(6)
        assert there(here) == [["mine"], ["demo"], ["demo"]]
        assert len(pods(here)) == 3


async def test_a_role_of_another_owner_is_not_changed_and_its_owner_is_reported():
    async with living() as here:
        theirs = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "demo", "namespace": "default"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
        }
        here.world.store.create("roles.rbac.authorization.k8s.io", theirs)
        create(here)
        await asyncio.sleep(20)
        message = condition(here, "ReplicaFailure")["message"]
        assert condition(here, "ReplicaFailure")["reason"] == "FailedCreateRole"
        assert message.endswith("with another owner or group: it has no controller")
        assert [
            note
            for note in notes(here)
            if note.startswith("Failed to create role demo") and "with another owner" in note
        ]
        assert pods(here) == []
        attempts = [at for at, method, what in here.wire.writes if (method, what) == ("POST", "roles")]
        assert 4 <= len(attempts) <= 7, "after 1, 2, 4 and 8 seconds"
        here.world.store.delete("roles.rbac.authorization.k8s.io", "default", "demo")
        await asyncio.sleep(31)
        assert len(pods(here)) == 3
        assert condition(here, "ReplicaFailure") == {}


@pytest.mark.rule("FD:RC-B9")
async def test_objects_of_a_restored_backup_without_owner_references_are_used():
    """Velero drops owner references: all objects have the expected names and no owner."""
    async with living() as here:
        obj = raycluster(group("slice", replicas=1, numOfHosts=2), enableInTreeAutoscaling=True)
        cluster = RayCluster.parse(obj)
        config = ClusterConfig()
        manifests = [manifest for _, manifest in build_rights(cluster, config.autoscaler)]
        services = [build_head_service(cluster, config.pods), build_headless_worker_service(cluster)]
        kinds = [*KINDS, "services", "services"]
        for kind, manifest in zip(kinds, [*manifests, *services], strict=True):
            metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
            here.world.store.create(kind, {**manifest, "metadata": metadata})
        here.world.create({**obj, "metadata": {"name": "demo", "namespace": "default"}})
        await asyncio.sleep(20)
        assert len(pods(here)) == 3
        assert condition(here, "ReplicaFailure") == {}
        assert {what for method, what in written(here) if method == "POST"} == {"pods"}
        assert here.world.cluster("demo")["status"]["head"]["serviceName"] == "demo-head-svc"


async def test_an_answer_that_was_lost_is_settled_by_looking():
    async with living() as here:
        lost = iter(["lost"])
        here.wire.instead = lambda method, path: (
            next(lost, None) if path.endswith("/roles") and method == "POST" else None
        )
        create(here)
        await asyncio.sleep(5)
        assert there(here) == [["demo"], ["demo"], ["demo"]]
        assert written(here).count(("POST", "roles")) == 1
        assert len(pods(here)) == 3


async def test_a_role_that_is_not_known_everywhere_yet_is_no_rejection():
    async with living() as here:
        body = b'{"kind":"Status","reason":"NotFound","message":"roles.rbac.authorization.k8s.io \\"demo\\" not found"}'
        answers = iter([Response(404, body, {})] * 2)
        here.wire.instead = lambda _method, path: next(answers, None) if path.endswith("/rolebindings") else None
        create(here)
        await asyncio.sleep(2)
        assert there(here) == [["demo"], ["demo"], ["demo"]]
        assert len(pods(here)) == 3
        assert [note for note in notes(here) if "Failed" in note] == []


async def test_missing_leave_to_read_roles_is_reported_by_the_create():
    async with living() as here:
        body = b'{"kind":"Status","reason":"Forbidden","message":"roles is forbidden"}'
        forbidden = Response(403, body, {})
        here.wire.read_instead = lambda path: forbidden if "/roles/" in path else None
        here.wire.instead = lambda _method, path: forbidden if path.endswith("/roles") else None
        create(here)
        await asyncio.sleep(5)
        assert condition(here, "ReplicaFailure")["message"] == "roles is forbidden"


async def test_a_rejected_head_makes_old_answers_worthless():
    async with living() as here:
        create(here)
        await asyncio.sleep(1)
        here.world.store.delete("serviceaccounts", "default", "demo")
        body = b'{"kind":"Status","reason":"Forbidden","message":"service account default/demo not found"}'
        here.wire.instead = lambda method, path: (
            Response(403, body, {}) if path.endswith("/pods") and not names_of(here, "serviceaccounts") else None
        )
        for pod in pods(here):
            if "head" in pod:
                here.world.store.delete("pods", "default", pod)
        await asyncio.sleep(10)
        assert there(here) == [["demo"], ["demo"], ["demo"]]
        assert len(pods(here)) == 3


async def test_rbac_objects_are_created_again_for_a_new_cluster_of_the_same_name():
    async with living() as here:
        create(here)
        await asyncio.sleep(1)
        here.world.store.delete("rayclusters.ray.io", "default", "demo")
        for kind in KINDS:
            here.world.store.delete(kind, "default", "demo")
        await asyncio.sleep(1)
        create(here)
        await asyncio.sleep(5)
        assert there(here) == [["demo"], ["demo"], ["demo"]]
