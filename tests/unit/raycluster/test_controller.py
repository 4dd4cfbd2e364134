"""A pass besides its plan, in virtual time on the in-process API: when it writes, retries, waits and drops state."""

import asyncio
import itertools
import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from raytide.api import constants
from raytide.api.actions import EventSpec
from raytide.api.conditions import find_condition
from raytide.api.config import ClusterConfig
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key
from raytide.controller.status_writer import FIELDS_DROPPED
from raytide.kube.client import Client
from raytide.kube.transport import Response
from raytide.metrics import REGISTRY
from raytide.raycluster.controller import RayClusterController, RayClusterControllerOptions
from raytide.runtime.clock import Clock
from support import virtual_time
from support.builders import group, raycluster

from simulation.in_process_transport import InProcessTransport, wait_until_at_work
from simulation.simulated_kube import SimulatedKube

pytestmark = pytest.mark.looptime

CLUSTERS = "rayclusters.ray.io"
KEY = Key("default", "demo")


class VirtualClock(Clock):
    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=virtual_time.elapsed_s())


class Wire(InProcessTransport):
    """Notes every write with its moment; the test may answer instead."""

    def __init__(self, api):
        super().__init__(api, latency_s=0.001)
        self.writes = []
        self.instead = lambda _method, _path: None
        self.read_instead = lambda _path: None

    async def request(self, method, path, **rest):
        if method == "GET" and (answer := self.read_instead(path)):
            return answer
        if method != "GET":
            self.writes.append((virtual_time.elapsed_s(), method, path.rsplit("/", 1)[1]))
            answer = self.instead(method, path)
            if isinstance(answer, Exception):
                raise answer
            if answer == "lost":
                await super().request(method, path, **rest)
                raise ApiUnavailableError("no answer", is_outcome_unknown=True)
            if answer is not None:
                return answer
        return await super().request(method, path, **rest)

    def times(self, method, last):
        return [at for at, m, what in self.writes if (m, what) == (method, last)]


class IdleWorld(SimulatedKube):
    """Pods do nothing by themselves."""

    def _on_pod(self, change):
        pass


@pytest.fixture
async def here():

    world = IdleWorld(random.Random(0))
    wire, clock, suffixes = Wire(world.api), VirtualClock(), itertools.count()
    options = RayClusterControllerOptions(namer=lambda prefix: f"{prefix}{next(suffixes):05d}")
    controller = RayClusterController(Client(wire, clock=clock), clock=clock, config=ClusterConfig(), options=options)
    running = asyncio.create_task(controller.run())
    await wait_until_at_work(controller.reconcile_loop)
    yield SimpleNamespace(world=world, wire=wire, controller=controller)
    await controller.stop()
    await running


def create(here, *groups):
    obj = raycluster(*groups)
    here.world.create({**obj, "metadata": {"name": "demo", "namespace": "default"}})
    return virtual_time.elapsed_s()


def status(here):
    return here.world.cluster("demo").get("status", {})


def pods(here):
    return here.world.pods(here.world.cluster("demo")["metadata"]["uid"])


def make_ready(here):
    for pod in pods(here):
        conditions = [{"type": "Ready", "status": "True"}]
        pod["status"] = {**pod.get("status", {}), "phase": "Running", "conditions": conditions}
        here.world.store.update("pods", pod, subresource="status")


@pytest.mark.rule("D8", "PF:P8", "RC:ST-3")
async def test_the_status_is_written_once_half_a_second_after_the_actions(here):
    created_at = create(here)
    await asyncio.sleep(0.1)
    make_ready(here)
    await asyncio.sleep(5)
    (written_at,) = here.wire.times("PATCH", "status")
    assert 0.5 <= written_at - created_at < 0.6
    assert status(here)["state"] == "ready"


@pytest.mark.rule("D8", "RC:ST-3")
async def test_status_writes_are_half_a_second_apart(here):
    create(here)
    await asyncio.sleep(2)
    for turn in range(20):
        make_ready(here)
        if turn % 2:
            victim = next(p["metadata"]["name"] for p in pods(here) if "worker" in p["metadata"]["name"])
            here.world.edit("pods", victim, None, lambda p: p["status"].update(phase="Pending"), subresource="status")
        await asyncio.sleep(0.3)
    times = here.wire.times("PATCH", "status")
    assert len(times) > 2
    assert all(later - earlier >= 0.5 for earlier, later in itertools.pairwise(times))


def without_diagnoses(request):
    """As KubeRay's CRD stores a status."""
    if not request.path.endswith("/status") or request.method != "PATCH":
        return request
    body = json.loads(request.body)
    body["status"].pop("diagnoses", None)
    return replace(request, body=json.dumps(body).encode())


@pytest.mark.rule("D8", "PF:P8")
async def test_a_field_that_the_crd_drops_is_written_once_and_logged(here, caplog):
    here.wire.mutate = without_diagnoses
    create(here)
    await asyncio.sleep(5)
    writes = here.wire.times("PATCH", "status")
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["metadata"].update(labels={"a": "b"}))
    await asyncio.sleep(3600)
    assert here.wire.times("PATCH", "status") == writes
    assert find_condition(status(here)["conditions"], constants.WORKERS_MISSING)["status"] == "True"
    lines = [record.getMessage() for record in caplog.records if "the CRD of" in record.msg]
    assert lines == [FIELDS_DROPPED % ("RayCluster", "diagnoses")]


@pytest.mark.rule("RM:I19", "PF:P8")
async def test_once_steady_nothing_is_written_for_an_hour(here):
    create(here)
    await asyncio.sleep(0.1)
    make_ready(here)
    await asyncio.sleep(10)
    here.wire.writes.clear()
    await asyncio.sleep(3600)
    assert here.wire.writes == []


def autoscaled_with_restarts(obj):
    """Is warned of, and runs."""
    obj["spec"].update(enableInTreeAutoscaling=True, autoscalerOptions={"version": "v1"})
    obj["spec"]["workerGroupSpecs"][0]["template"]["spec"]["restartPolicy"] = "Always"


def with_rocksdb(obj):
    """Is invalid: a feature gate of the operator is off."""
    obj["spec"]["gcsFaultToleranceOptions"] = {"backend": "rocksdb", "storage": {"size": "2Gi"}}


@pytest.mark.rule("FD:RC-B18", "RM:I19")
@pytest.mark.parametrize("change", [autoscaled_with_restarts, with_rocksdb])
async def test_a_persistent_warning_is_one_event_and_no_further_write_in_two_days(here, change):
    obj = raycluster(group())
    change(obj)
    here.world.create({**obj, "metadata": {"name": "demo", "namespace": "default"}})
    await asyncio.sleep(1)
    make_ready(here)
    await asyncio.sleep(120)
    events = here.world.store.list("events")
    assert [event["reason"] for event in events if event["type"] == "Warning"] == [constants.INVALID_SPEC]
    here.wire.writes.clear()
    await asyncio.sleep(2 * 86_400)
    assert here.wire.writes == []


def mark_unschedulable(pod):
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    pod["status"].update(phase="Pending", conditions=[scheduled])


@pytest.mark.rule("SC:S21")
async def test_many_remarks_about_the_spec_do_not_hide_why_workers_are_missing(here, monkeypatch):
    remarks = [EventSpec(constants.UNSUPPORTED_FIELD, f"field {number}") for number in range(30)]
    monkeypatch.setattr("raytide.raycluster.plan.warning_events", lambda _cluster, _config: remarks)
    create(here, group())
    await asyncio.sleep(1)
    for pod in pods(here):
        here.world.edit("pods", pod["metadata"]["name"], None, mark_unschedulable, subresource="status")
    await asyncio.sleep(5)
    assert constants.WORKERS_MISSING in {event["reason"] for event in here.world.store.list("events")}


@pytest.mark.rule("SC:S21")
async def test_workers_without_a_node_are_one_warning_however_many_there_are(here):
    create(here, group(replicas=3))
    await asyncio.sleep(1)
    make_ready(here)
    await asyncio.sleep(2)
    workers = [pod["metadata"]["name"] for pod in pods(here) if "worker" in pod["metadata"]["name"]]
    for worker in workers:  # one after the other: the condition's message changes three times
        here.world.edit("pods", worker, None, mark_unschedulable, subresource="status")
        await asyncio.sleep(2)
    (event,) = [event for event in here.world.store.list("events") if event["type"] == "Warning"]
    expected = (
        "group cpu: 1 of 3 workers not ready (Unschedulable: 0/1 nodes are available); held by: kube-scheduler, which finds no "
        f"node; fix: kubectl describe pod {workers[0]} -n default"
    )
    assert (event["reason"], event["message"]) == (constants.WORKERS_MISSING, expected)
    assert find_condition(status(here)["conditions"], constants.WORKERS_MISSING)["message"].startswith(
        "group cpu: 3 of 3"
    )


@pytest.mark.rule("D6", "D15")
async def test_a_create_with_an_unknown_outcome_is_repeated_and_makes_no_second_pod(here):
    lost = iter(["lost"])
    here.wire.instead = lambda method, path: next(lost, None) if (method, path[-4:]) == ("POST", "pods") else None
    create(here, group(replicas=1))
    await asyncio.sleep(60)
    assert len(pods(here)) == 2
    assert here.wire.times("POST", "pods")


@pytest.mark.rule("D6", "FD:RC-B3", "PF:P8")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"authOptions": {"mode": "token"}}, id="requests a protection"),
        pytest.param({"workerGroupSpecs": [group(low=5, high=1)]}, id="is invalid"),
    ],
)
@pytest.mark.parametrize(
    "answer", ["lost", ApiUnavailableError("no answer", is_outcome_unknown=True)], ids=["made", "not made"]
)
async def test_a_create_of_unknown_outcome_is_read_when_creates_are_no_longer_allowed(here, change, answer):
    here.wire.instead = lambda method, path: answer if (method, path[-4:]) == ("POST", "pods") else None
    create(here, group(replicas=1))
    await asyncio.sleep(0.2)
    made, reads = len(pods(here)), []
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["spec"].update(change))
    await asyncio.sleep(0.2)
    here.wire.writes.clear()
    here.wire.read_instead = reads.append
    await asyncio.sleep(60)
    assert here.wire.times("POST", "pods") == []
    assert len(pods(here)) == made
    assert len(reads) <= 12  # three looks for each of two pods within a minute, and what a pass reads


@pytest.mark.rule("D6", "D15")
async def test_a_create_that_was_not_seen_is_not_repeated_after_its_pod_was_deleted(here):
    created = []
    here.world.store.subscribe(
        lambda change: created.append(change.key.name) if change.type == "ADDED" else None, "pods"
    )
    here.wire._lag_s = lambda: 40.0
    create(here, group(replicas=2))
    here.controller.reconcile_loop.enqueue(KEY)
    await asyncio.sleep(29.5)
    assert len(pods(here)) == 3
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["spec"]["workerGroupSpecs"][0].update(replicas=0))
    await asyncio.sleep(2)  # thirty seconds are over: every create is due again, and two pods have to go
    assert [pod["metadata"]["labels"]["ray.io/node-type"] for pod in pods(here)] == ["head"]
    assert len(created) == len(set(created)) == 3
    await asyncio.sleep(60)  # no write is in flight any more when the controller ends


def retry(message):
    body = f'{{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"{message}"}}'
    return Response(403, body.encode(), {})


@pytest.mark.rule("FD:RC-B19", "SC:S3", "RM:I18")
async def test_a_rejected_group_is_retried_soon_then_every_thirty_seconds_with_one_pod(here):
    create(here, group(replicas=0))
    await asyncio.sleep(1)
    here.wire.instead = lambda method, path: retry("exceeded quota") if path.endswith("/pods") else None
    here.wire.writes.clear()
    here.world.edit(CLUSTERS, "demo", None, lambda o: o["spec"]["workerGroupSpecs"][0].update(replicas=5))
    await asyncio.sleep(95)
    asked = here.wire.times("POST", "pods")
    assert [round(later - earlier) for earlier, later in itertools.pairwise(asked)] == [1, 2, 4, 8, 16, 30, 30]
    assert len(here.wire.times("PATCH", "status")) <= 2, "a retry that fails the same way changes nothing"
    here.wire.instead = lambda *_: None
    await asyncio.sleep(31)
    assert len(pods(here)) == 6
    conditions = [c["type"] for c in status(here)["conditions"]]
    assert constants.REPLICA_FAILURE not in conditions


@pytest.mark.rule("RC:TR-5", "D2")
async def test_pods_of_a_deleted_cluster_are_not_recreated(here):
    create(here)
    await asyncio.sleep(1)
    here.world.store.delete(CLUSTERS, "default", "demo")
    await asyncio.sleep(1)
    here.wire.writes.clear()
    for pod in list(here.controller.pods.by_index(KEY)):
        here.world.force_delete_pod(pod.name)
    await asyncio.sleep(10)
    assert here.wire.writes == []


def names_kept(root, key):
    """Attribute paths below `root` of objects of this product that have an entry for the key, except informers' stores."""
    found, seen, stack = [], set(), [("", root)]
    while stack:
        path, at = stack.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, dict | set | frozenset) and key in at and "._store." not in path:
            found.append(path)
        if type(at).__module__.startswith("raytide."):
            slots = {name for each in type(at).__mro__ for name in getattr(each, "__slots__", ())}
            fields = {name: getattr(at, name) for name in slots if hasattr(at, name)} | getattr(at, "__dict__", {})
            stack += [(f"{path}.{name}", value) for name, value in fields.items()]
    return found


def worker_series(metric="raycluster_workers"):
    """The series of the RayCluster by group and state, or by reason."""
    return {
        "/".join(value for label, value in sample.labels.items() if label not in ("namespace", "name")): sample.value
        for family in REGISTRY.collect()
        if family.name == metric
        for sample in family.samples
        if (sample.labels["namespace"], sample.labels["name"]) == KEY
    }


def edit_spec(here, **fields):
    obj = here.world.cluster("demo")
    here.world.store.update(CLUSTERS, {**obj, "spec": {**obj["spec"], **fields}})


@pytest.mark.rule("RC §6.2", "RC:TR-5")
async def test_metrics_of_workers_follow_the_groups_and_end_with_the_cluster(here):
    create(here, group(), group("gpu", 1))
    await asyncio.sleep(1)
    assert worker_series() == {"cpu/desired": 2, "cpu/ready": 0, "gpu/desired": 1, "gpu/ready": 0}
    assert worker_series("raycluster_missing_workers") == {
        f"cpu/{constants.WAITING_FOR_PODS}": 2,
        f"gpu/{constants.WAITING_FOR_PODS}": 1,
    }
    make_ready(here)
    await asyncio.sleep(2)
    assert worker_series() == {"cpu/desired": 2, "cpu/ready": 2, "gpu/desired": 1, "gpu/ready": 1}
    assert worker_series("raycluster_missing_workers") == {}
    edit_spec(here, workerGroupSpecs=[group()])
    await asyncio.sleep(2)
    assert worker_series() == {"cpu/desired": 2, "cpu/ready": 2}
    here.world.store.delete(CLUSTERS, "default", "demo")
    await asyncio.sleep(10)
    assert worker_series() == {}


@pytest.mark.rule("RC §6.2")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"workerGroupSpecs": [group(low=5, high=1)]}, id="an invalid spec"),
        pytest.param(
            {"headGroupSpec": {**raycluster()["spec"]["headGroupSpec"], "rayStartParams": {"port": 6379}}},
            id="a spec that cannot be read",
        ),
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, id="another controller's"),
    ],
)
async def test_a_cluster_that_is_not_acted_on_has_no_metrics_of_workers(here, spec):
    create(here, group())
    await asyncio.sleep(1)
    assert worker_series() != {}
    edit_spec(here, **spec)
    await asyncio.sleep(5)
    assert worker_series() == worker_series("raycluster_missing_workers") == {}


@pytest.mark.rule("RC §6.2")
async def test_a_cluster_that_waits_for_a_finalizer_has_no_metrics_of_workers(here):
    held(here, OTHER_FINALIZER)
    await asyncio.sleep(1)
    assert worker_series() != {}
    here.world.delete_cluster("demo")
    await asyncio.sleep(5)
    assert here.world.cluster("demo") is not None
    assert worker_series() == worker_series("raycluster_missing_workers") == {}


@pytest.mark.rule("RC §6.2")
async def test_a_replica_that_stops_leading_has_no_metrics_of_workers(here):
    create(here, group())
    await asyncio.sleep(1)
    assert worker_series() != {}
    await here.controller.stop()
    await asyncio.sleep(1)
    assert worker_series() == {}


@pytest.mark.rule("FD:REL-11", "RC:TR-5", "SC:S4")
async def test_no_state_of_a_deleted_cluster_is_kept(here):
    """Neither the backoff of a quota: the next cluster of this name would have to wait for its end."""
    quota = retry("pods 'x' is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2")
    admitted = iter(range(2))  # the head and one of two hosts

    def instead(_method, path):
        return quota if path.endswith("/pods") and next(admitted, None) is None else None

    here.wire.instead = instead
    create(here, group(replicas=1, numOfHosts=2))
    await asyncio.sleep(50)
    assert any("quotas" in path for path in names_kept(here.controller.reconciler, KEY))
    here.world.store.delete(CLUSTERS, "default", "demo")
    await asyncio.sleep(10)
    assert names_kept(here.controller.reconciler, KEY) == []


@pytest.mark.rule("D2", "RM:I3")
async def test_a_read_that_is_older_than_what_the_informer_shows_is_not_used(here):
    create(here, group(replicas=1))
    await asyncio.sleep(5)
    old = here.world.store.entry(CLUSTERS, "default", "demo").raw
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["spec"]["workerGroupSpecs"][0].update(replicas=3))
    await asyncio.sleep(5)
    here.wire.writes.clear()
    here.wire.read_instead = lambda path: Response(200, old, {}) if path.endswith("/rayclusters/demo") else None
    here.controller.reconcile_loop.enqueue(KEY)
    await asyncio.sleep(5)
    assert here.wire.writes == []
    here.wire.read_instead = lambda _path: None
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["spec"]["workerGroupSpecs"][0].update(replicas=4))
    await asyncio.sleep(5)
    assert len(pods(here)) == 5


@pytest.mark.rule("D2")
async def test_a_cluster_in_the_informer_that_a_get_does_not_find_is_read_again(here):
    gone = Response(404, b'{"kind":"Status","reason":"NotFound","code":404}', {})
    here.wire.read_instead = lambda path: gone if path.endswith("/rayclusters/demo") else None
    create(here)
    await asyncio.sleep(5)
    assert pods(here) == []
    here.wire.read_instead = lambda _path: None
    await asyncio.sleep(10)
    assert pods(here) != []


@pytest.mark.rule("RC:ST-2")
@pytest.mark.parametrize(
    ("code", "message"),
    [(409, "the object has been modified"), (404, "not found")],
)
async def test_a_status_write_with_a_conflict_is_recomputed(here, caplog, code, message):
    body = {"kind": "Status", "status": "Failure", "reason": "x", "code": code, "message": message}
    other = Response(code, json.dumps(body).encode(), {})
    here.wire.instead = lambda _method, path: other if path.endswith("/status") else None
    create(here)
    await asyncio.sleep(3)
    assert status(here) == {}
    assert "refused" not in caplog.text
    here.wire.instead = lambda *_: None
    await asyncio.sleep(10)
    assert status(here)["desiredWorkerReplicas"] == 2, "without any further event"


@pytest.mark.rule("D8", "RM:I5")
async def test_a_cluster_recreated_between_read_and_write_does_not_get_the_status_of_the_old_one(here):
    create(here)
    await asyncio.sleep(0.1)
    old = here.world.cluster("demo")["metadata"]["uid"]

    def swap(_method, path):
        """Just before the first status write, another cluster takes the name."""
        if path.endswith("/status") and here.world.cluster("demo")["metadata"]["uid"] == old:
            here.world.store.delete(CLUSTERS, "default", "demo")
            here.world.create({**raycluster(group(replicas=0)), "metadata": {"name": "demo", "namespace": "default"}})
            seen.append(here.world.cluster("demo"))

    seen: list[dict] = []
    here.wire.instead = swap
    here.world.store.subscribe(
        lambda change: seen.append(change.entry.obj()) if change.entry.uid != old else None, CLUSTERS
    )
    await asyncio.sleep(5)
    assert len(seen) > 1
    assert all(obj.get("status", {}).get("desiredWorkerReplicas", 0) == 0 for obj in seen), "never the old one's two"


async def test_an_api_that_is_away_for_writes_is_backed_off_from_and_caught_up_with(here):
    here.wire.instead = lambda *_: ApiUnavailableError("503")
    create(here)
    await asyncio.sleep(20)
    tried = len(here.wire.times("POST", "services"))
    assert 3 <= tried <= 12, "backed off"
    here.wire.instead = lambda *_: None
    await asyncio.sleep(31)
    assert len(pods(here)) == 3


@pytest.mark.rule("RM:I14")
async def test_a_worker_that_disappears_is_replaced_within_a_second(here):
    create(here)
    await asyncio.sleep(0.1)
    make_ready(here)
    await asyncio.sleep(5)
    victim = next(p for p in pods(here) if "worker" in p["metadata"]["name"])["metadata"]["name"]
    here.world.force_delete_pod(victim)
    assert len(pods(here)) == 2
    await asyncio.sleep(1)
    assert len(pods(here)) == 3


# --- suspension --------------------------------------------------------------------------------------------------------


def suspend(here, value):
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["spec"].update(suspend=value))


def is_stored(here, kind):
    return any(c["type"] == kind and c["status"] == "True" for c in status(here)["conditions"])


async def ready_cluster(here):
    create(here, group(replicas=2))
    await asyncio.sleep(0.1)
    make_ready(here)
    await asyncio.sleep(10)
    here.wire.writes.clear()


@pytest.mark.rule("FD:RC-B4", "RC §5.4", "RC:SU-2", "RC:ST-3")
async def test_a_suspension_is_stored_then_acted_on_at_once_and_reported_when_the_last_pod_has_gone(here):
    await ready_cluster(here)
    suspend(here, value=True)
    began_at = asyncio.get_running_loop().time()
    await asyncio.sleep(5)
    verbs = [method for _, method, what in here.wire.writes if what != "events"]
    assert verbs[:4] == ["PATCH", "DELETE", "DELETE", "DELETE"]
    assert here.wire.writes[3][0] - began_at < 0.2
    assert pods(here) == []
    assert status(here)["state"] == "suspended"
    assert is_stored(here, constants.SUSPENDED)
    here.wire.writes.clear()
    await asyncio.sleep(3600)
    assert here.wire.writes == []


@pytest.mark.rule("RC §5.4")
async def test_a_resume_is_stored_and_followed_at_once_by_the_pods(here):
    await ready_cluster(here)
    suspend(here, value=True)
    await asyncio.sleep(5)
    here.wire.writes.clear()
    suspend(here, value=False)
    began_at = asyncio.get_running_loop().time()
    await asyncio.sleep(3)
    verbs = [method for _, method, what in here.wire.writes if what != "events"]
    assert verbs[:4] == ["PATCH", "POST", "POST", "POST"]
    assert here.wire.times("POST", "pods")[-1] - began_at < 0.2
    make_ready(here)
    await asyncio.sleep(3)
    assert status(here)["state"] == "ready"


@pytest.mark.rule("FD:RC-B7", "RC §5.4")
async def test_a_suspension_is_completed_before_a_cluster_that_is_no_longer_suspended_resumes(here):
    await ready_cluster(here)
    before = {pod["metadata"]["uid"] for pod in pods(here)}
    here.wire.instead = lambda method, path: ApiUnavailableError("away") if method == "DELETE" else None
    suspend(here, value=True)
    await asyncio.sleep(1)
    assert is_stored(here, constants.SUSPENDING)
    suspend(here, value=False)
    await asyncio.sleep(5)
    assert {pod["metadata"]["uid"] for pod in pods(here)} == before
    here.wire.instead = lambda _method, _path: None
    await asyncio.sleep(30)
    after = {pod["metadata"]["uid"] for pod in pods(here)}
    assert len(after) == 3
    assert not after & before


@pytest.mark.rule("RC §5.4")
async def test_while_the_status_is_rejected_no_pod_is_deleted(here):
    await ready_cluster(here)
    here.wire.instead = lambda method, path: Response(422, b"{}", {}) if path.endswith("/status") else None
    suspend(here, value=True)
    await asyncio.sleep(120)
    assert len(pods(here)) == 3
    assert here.wire.times("DELETE", "demo-head-00000") == []


@pytest.mark.rule("FD:RC-B4")
async def test_an_invalid_spec_and_a_lost_delete_do_not_stop_a_suspension(here):
    await ready_cluster(here)
    lost = iter([ApiUnavailableError("no answer", is_outcome_unknown=True)])
    here.wire.instead = lambda method, _path: next(lost, None) if method == "DELETE" else None
    here.world.edit(
        CLUSTERS, "demo", None, lambda obj: obj["spec"].update(suspend=True, workerGroupSpecs=[group(low=5, high=1)])
    )
    await asyncio.sleep(60)
    assert pods(here) == []
    assert is_stored(here, constants.SUSPENDED)


UNREADABLE = {"headGroupSpec": {**raycluster()["spec"]["headGroupSpec"], "rayStartParams": {"port": 6379}}}


@pytest.mark.rule("FD:RC-B4", "RC §5.4")
async def test_a_suspension_that_has_begun_ends_the_pods_although_the_spec_can_be_read_no_more(here):
    create(here, group(replicas=2))
    await asyncio.sleep(5)
    assert len(pods(here)) == 3
    begun = {
        "type": constants.SUSPENDING,
        "status": "True",
        "reason": "x",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    obj = here.world.cluster("demo")
    here.world.store.update(CLUSTERS, {**obj, "status": {"conditions": [begun]}}, subresource="status")
    here.world.store.update(CLUSTERS, {**here.world.cluster("demo"), "spec": {**obj["spec"], **UNREADABLE}})
    await asyncio.sleep(60)
    assert pods(here) == []
    assert is_stored(here, constants.SUSPENDED)
    assert is_stored(here, constants.INVALID)
    assert not is_stored(here, constants.SUSPENDING)
    here.wire.writes.clear()
    await asyncio.sleep(600)
    assert here.wire.writes == []


@pytest.mark.rule("D21")
async def test_a_cluster_whose_spec_can_be_read_no_more_keeps_its_pods(here):
    create(here, group(replicas=2))
    await asyncio.sleep(5)
    obj = here.world.cluster("demo")
    here.world.store.update(CLUSTERS, {**obj, "spec": {**obj["spec"], **UNREADABLE, "suspend": True}})
    await asyncio.sleep(60)
    assert len(pods(here)) == 3
    assert is_stored(here, constants.INVALID)


# --- deletion ----------------------------------------------------------------------------------------------------------

FINALIZER = constants.REDIS_CLEANUP_FINALIZER
OTHER_FINALIZER = "example.com/hold"
INVALID = {"workerGroupSpecs": [group(low=5, high=1)]}


def held(here, *finalizers, **spec):
    """A RayCluster that KubeRay's finalizer holds; its spec goes past the CRD, as an older one let it in."""
    obj = {**raycluster(), "metadata": {"name": "demo", "namespace": "default", "finalizers": list(finalizers)}}
    here.world.create(obj)
    if spec:
        here.world.store.update(CLUSTERS, {**here.world.cluster("demo"), "spec": {**obj["spec"], **spec}})


@pytest.mark.rule("FD:RC-B1", "RC:FIN-4", "D14", "RC:REC-4")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"workerGroupSpecs": [group(low=5, high=1)]}, id="an invalid spec"),
        pytest.param(
            {"headGroupSpec": {**raycluster()["spec"]["headGroupSpec"], "rayStartParams": {"port": 6379}}},
            id="a spec that cannot be read",
        ),
    ],
)
async def test_a_deleted_cluster_is_released_whatever_its_spec(here, spec):
    held(here, FINALIZER, **spec)
    await asyncio.sleep(5)
    here.world.delete_cluster("demo")
    await asyncio.sleep(1)
    assert here.world.cluster("demo") is None, (here.wire.writes, here.controller.controller._queue.__dict__)
    (event,) = [e for e in here.world.store.list("events", "default") if e["action"] == "Cleanup"]
    assert (event["type"], event["reason"]) == ("Warning", constants.REDIS_CLEANUP_SKIPPED)
    assert event["involvedObject"]["uid"] in event["message"]
    assert f"{FINALIZER} of RayCluster demo removed" in event["message"], (
        "it is read where events of many are collected"
    )


JOBS = "jobs.batch"
FT = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}, "rayVersion": "2.52.0"}


def cleanup_events(here):
    reasons = (each["reason"] for each in here.world.store.list("events", "default"))
    return sorted(reason for reason in reasons if re.search("leanup|Stuck", reason))


@pytest.fixture
async def controllers(here):
    """Garbage collection and the like run as well."""
    running = asyncio.create_task(here.world.run_controllers())
    yield
    running.cancel()


def end_job(here, kind):
    job = here.world.store.get(JOBS, "default", "demo-redis-cleanup")
    job["status"] = {"conditions": [{"type": kind, "status": "True"}]}
    here.world.store.update(JOBS, job, subresource="status")


@pytest.mark.rule("RC:FIN-2", "RC:FIN-4")
async def test_the_finalizer_is_stored_before_the_first_write_and_removed_with_fault_tolerance(here):
    here.world.create({**raycluster(**FT), "metadata": {"name": "demo", "namespace": "default"}})
    await asyncio.sleep(5)
    assert here.world.cluster("demo")["metadata"]["finalizers"] == [FINALIZER]
    kinds = [(method, what) for _, method, what in here.wire.writes if what != "events"]
    assert kinds[0] == ("PATCH", "demo")
    assert ("POST", "pods") in kinds
    assert here.world.cluster("demo")["metadata"]["generation"] == 1
    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["spec"].pop("gcsFaultToleranceOptions"))
    await asyncio.sleep(5)
    assert "finalizers" not in here.world.cluster("demo")["metadata"]
    assert cleanup_events(here) == [constants.REDIS_CLEANUP_SKIPPED], "nobody will remove the state of its head"


@pytest.mark.rule("RC:FIN-2")
async def test_no_head_is_created_while_the_finalizer_cannot_be_stored(here):
    forbidden = Response(403, b'{"kind":"Status","reason":"Forbidden","message":"no right"}', {})
    here.wire.instead = lambda method, path: forbidden if method == "PATCH" and path.endswith("/demo") else None
    here.world.create({**raycluster(**FT), "metadata": {"name": "demo", "namespace": "default"}})
    await asyncio.sleep(100)
    assert here.world.store.list("pods") == []
    assert 3 <= len(here.wire.times("PATCH", "demo")) <= 5
    reasons = {event["reason"] for event in here.world.store.list("events", "default")}
    assert constants.FAILED_TO_ADD_FINALIZER in reasons
    assert "no right" in find_condition(here.world.cluster("demo")["status"]["conditions"], "ReplicaFailure")["message"]


@pytest.mark.rule("RC:FIN-3", "RC:RJ-1")
@pytest.mark.parametrize(
    ("ends_as", "reasons"),
    [("Complete", ["CreatedRedisCleanupJob"]), ("FailureTarget", ["CreatedRedisCleanupJob", "RedisCleanupFailed"])],
)
@pytest.mark.usefixtures("controllers")
async def test_redis_is_cleaned_up_by_a_job_after_the_head(here, ends_as, reasons):
    held(here, OTHER_FINALIZER, **FT)
    await asyncio.sleep(5)
    here.world.delete_cluster("demo")
    await asyncio.sleep(5)
    left = here.world.store.list("pods", "default")
    assert [pod["metadata"]["labels"]["ray.io/node-type"] for pod in left] == ["redis-cleanup"]
    (job,) = here.world.store.list(JOBS)
    assert job["metadata"]["ownerReferences"][0]["uid"] == here.world.cluster("demo")["metadata"]["uid"]
    await asyncio.sleep(60)
    assert FINALIZER in here.world.cluster("demo")["metadata"]["finalizers"]
    end_job(here, ends_as)
    await asyncio.sleep(20)
    assert here.world.cluster("demo")["metadata"]["finalizers"] == [OTHER_FINALIZER]
    assert cleanup_events(here) == reasons
    here.wire.writes.clear()
    await asyncio.sleep(3600)
    assert here.wire.writes == []


@pytest.mark.rule("RC:FIN-3", "SC:S20")
async def test_a_clean_up_that_does_not_end_holds_the_cluster_as_long_as_its_annotation_says(here):
    held(here, **FT)
    here.world.edit(
        CLUSTERS,
        "demo",
        None,
        lambda obj: obj["metadata"].update(annotations={constants.FT_DELETION_TIMEOUT_ANNOTATION: "90"}),
    )
    await asyncio.sleep(5)
    here.world.delete_cluster("demo")
    await asyncio.sleep(80)
    assert here.world.cluster("demo")
    await asyncio.sleep(20)
    assert here.world.cluster("demo") is None
    assert cleanup_events(here) == ["CreatedRedisCleanupJob", "ForceDeletedStuckCluster"]


@pytest.mark.rule("SC:S20")
@pytest.mark.parametrize(
    ("message", "within_s", "posts"),
    [
        pytest.param("jobs.batch is forbidden: no right", 40, 7, id="no right, or no quota"),
        pytest.param(
            "unable to create new content in namespace default because it is being terminated", 2, 1,
            id="the namespace is being deleted",
        ),
    ],
)  # fmt: skip
async def test_a_clean_up_that_is_forbidden_holds_the_cluster_for_less_than_a_minute(here, message, within_s, posts):
    held(here, **FT)
    await asyncio.sleep(5)
    cause = {"causes": [{"reason": "NamespaceTerminating"}]} if "terminated" in message else {}
    answer = {"kind": "Status", "reason": "Forbidden", "message": message, "details": cause}
    forbidden = Response(403, json.dumps(answer).encode(), {})
    here.wire.instead = lambda method, path: forbidden if method == "POST" and path.endswith("/jobs") else None
    here.world.delete_cluster("demo")
    await asyncio.sleep(within_s)
    assert here.world.cluster("demo") is None
    assert len(here.wire.times("POST", "jobs")) == posts


@pytest.mark.rule("RC:FIN-3")
@pytest.mark.usefixtures("controllers")
async def test_in_a_foreground_deletion_the_job_runs_to_its_end(here):
    held(here, **FT)
    await asyncio.sleep(5)
    here.world.store.delete(CLUSTERS, "default", "demo", propagation="Foreground")
    await asyncio.sleep(60)
    end_job(here, "Complete")
    await asyncio.sleep(20)
    assert here.world.cluster("demo") is None
    assert cleanup_events(here) == ["CreatedRedisCleanupJob"]


@pytest.mark.rule("FD:PS3-1")
@pytest.mark.usefixtures("controllers")
async def test_a_cluster_deleted_without_its_pods_keeps_them_and_their_state(here):
    held(here, **FT)
    await asyncio.sleep(5)
    before = here.world.store.list("pods", "default")
    here.world.store.delete(CLUSTERS, "default", "demo", propagation="Orphan")
    await asyncio.sleep(20)
    assert here.world.cluster("demo") is None
    after = here.world.store.list("pods", "default")
    assert [pod["metadata"]["uid"] for pod in after] == [pod["metadata"]["uid"] for pod in before]
    assert [pod["metadata"].get("deletionTimestamp") for pod in after] == [None] * len(before)
    assert here.world.store.list(JOBS) == []
    assert cleanup_events(here) == [constants.REDIS_CLEANUP_SKIPPED]


@pytest.mark.rule("FD:RC-B1")
async def test_other_finalizers_stay_also_one_that_comes_in_between(here):
    held(here, FINALIZER, **INVALID)
    await asyncio.sleep(1)
    patches = []

    def comes_in_between(method, path):
        if method == "PATCH" and path.endswith("/demo"):
            patches.append(path)
            if len(patches) == 1:
                here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["metadata"].update(labels={"a": "b"}))

    here.world.edit(CLUSTERS, "demo", None, lambda obj: obj["metadata"]["finalizers"].append(OTHER_FINALIZER))
    here.wire.instead = comes_in_between
    here.world.delete_cluster("demo")
    await asyncio.sleep(5)
    assert here.world.cluster("demo")["metadata"]["finalizers"] == [OTHER_FINALIZER]
    assert len(patches) == 2
    here.wire.writes.clear()
    await asyncio.sleep(3600)
    assert here.wire.writes == []


@pytest.mark.rule("FD:RC-B1")
async def test_a_finalizer_that_may_not_be_removed_is_reported_and_tried_again_slowly(here):
    held(here, FINALIZER, **INVALID)
    await asyncio.sleep(5)
    forbidden = Response(403, b'{"kind":"Status","reason":"Forbidden","message":"no right"}', {})
    here.wire.instead = lambda method, path: forbidden if method == "PATCH" and path.endswith("/demo") else None
    here.world.delete_cluster("demo")
    await asyncio.sleep(100)
    assert 3 <= len(here.wire.times("PATCH", "demo")) <= 5
    reasons = {event["reason"] for event in here.world.store.list("events", "default")}
    assert constants.FAILED_TO_REMOVE_FINALIZER in reasons
    assert constants.REDIS_CLEANUP_SKIPPED not in reasons


@pytest.mark.rule("FD:RC-B1", "RC:REC-2")
async def test_a_deleted_cluster_of_another_controller_is_left_alone(here):
    held(here, FINALIZER, managedBy="example.com/operator")
    here.world.delete_cluster("demo")
    await asyncio.sleep(60)
    assert here.world.cluster("demo")["metadata"]["finalizers"] == [FINALIZER]
