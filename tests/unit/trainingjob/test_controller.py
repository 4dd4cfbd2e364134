"""A pass over a TrainingJob besides its plan, in virtual time on the in-process API: reads, waits, events, state."""

import asyncio
import itertools
import json
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from raytide.api import trainingjob_constants as constants
from raytide.api.config import JobConfig
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key
from raytide.controller.base import ControllerOptions
from raytide.kube.client import Client
from raytide.kube.transport import Response
from raytide.metrics import REGISTRY
from raytide.runtime.clock import Clock
from raytide.trainingjob.controller import TrainingJobController
from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time
from support.definitions import define
from support.training_builders import trainingjob

from simulation.in_process_transport import InProcessTransport, wait_until_at_work
from simulation.simulated_kube import SimulatedKube

pytestmark = pytest.mark.looptime

JOBS = "trainingjobs.paddlepaddle.org"
KEY = Key("default", "demo")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = yaml.load(
    (Path(__file__).parents[3] / "crds" / "paddlepaddle.org_trainingjobs.yaml").read_text(), Loader=yaml.CSafeLoader
)
BODY = json.dumps(CRD).encode()


class VirtualClock(Clock):
    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=virtual_time.elapsed_s())


class Wire(InProcessTransport):
    """Notes every write with its moment; the test may answer instead."""

    def __init__(self, api):
        super().__init__(api, latency_s=0.001)
        self.writes = []
        self.lists = []
        self.instead = lambda _method, _path: None

    async def request(self, method, path, **rest):
        last = path.rsplit("/", 1)[1]
        if method == "GET":
            self.lists.append(last)
        answer = self.instead(method, path)
        if method != "GET":
            self.writes.append((virtual_time.elapsed_s(), method, last))
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None else await super().request(method, path, **rest)

    def times(self, method, last):
        return [at for at, m, what in self.writes if (m, what) == (method, last)]


class IdleWorld(SimulatedKube):
    """Pods do nothing by themselves."""

    def _on_pod(self, change):
        pass


@asynccontextmanager
async def running_controller(world):
    """A running controller."""
    wire, clock = Wire(world.api), VirtualClock()
    controller = TrainingJobController(
        Client(wire, clock=clock), clock=clock, config=JobConfig(), options=ControllerOptions()
    )
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(0.1)
    yield SimpleNamespace(world=world, wire=wire, controller=controller)
    await controller.stop()
    await running


@pytest.fixture
async def here():
    world = IdleWorld(random.Random(0))
    install(world)
    async with running_controller(world) as here:
        await wait_until_at_work(here.controller.reconcile_loop)
        yield here


def install(world):
    define(world.api, world.store, BODY)


def create(here, **spec):
    obj = trainingjob(**{"scaling": {"enabled": False}, **spec})
    here.world.store.create(JOBS, {**obj, "metadata": {"name": "demo", "namespace": "default"}})


def job(here):
    return here.world.store.find(JOBS, "default", "demo").obj()


def status(here):
    return job(here).get("status", {})


def edit(here, change):
    here.world.edit(JOBS, "demo", None, lambda obj: change(obj["spec"]))


def pods(here):
    return {key.name: entry.obj() for key, entry in here.world.store.entries("pods", "default")}


def report(here, name, **status_of_pod):
    here.world.edit("pods", name, None, lambda pod: pod["status"].update(status_of_pod), subresource="status")


def make_ready(here):
    for name in pods(here):
        report(here, name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])


@pytest.mark.rule("D8")
async def test_status_waits_half_a_second_after_acting_and_is_written_at_most_every_half_second(here):
    create(here)
    await asyncio.sleep(0.2)
    assert status(here) == {}
    for _ in range(10):
        make_ready(here)
        await asyncio.sleep(0.2)
        report(here, "demo-trainer-1", phase="Pending")
        await asyncio.sleep(0.2)
    times = here.wire.times("PATCH", "status")
    assert len(times) >= 2
    assert all(later - earlier >= 0.5 for earlier, later in itertools.pairwise(times))


@pytest.mark.rule("RM:I19", "PF:P8")
async def test_once_it_runs_nothing_is_written_for_an_hour(here):
    create(here)
    await asyncio.sleep(1)
    make_ready(here)
    await asyncio.sleep(10)
    assert status(here)["phase"] == "Running"
    here.wire.writes.clear()
    await asyncio.sleep(3600)
    assert here.wire.writes == []


@pytest.mark.rule("FD:RC-B18", "RM:I19")
async def test_a_persistent_warning_is_one_event_and_no_further_write_in_two_days(here):
    create(here)
    await asyncio.sleep(1)
    make_ready(here)
    await asyncio.sleep(120)
    events = here.world.store.list("events")
    assert [event["reason"] for event in events if event["type"] == "Warning"] == [constants.INVALID_SPEC]
    here.wire.writes.clear()
    await asyncio.sleep(2 * 86_400)
    assert here.wire.writes == []


@pytest.mark.rule("TJ 7.7", "D6")
async def test_a_size_that_changes_twice_in_a_moment_leaves_the_right_membership(here):
    create(here, low=1, high=5)
    await asyncio.sleep(1)
    first = membership(here)
    for size in (4, 1):
        edit(here, lambda spec, size=size: spec["trainer"].update(replicas=size))
        await asyncio.sleep(0.004)  # the patch of the first is answered, its event has not come
    await asyncio.sleep(3)
    assert membership(here) == first


def membership(here):
    return here.world.store.find("configmaps", "default", "demo-membership").obj()["data"]


@pytest.mark.rule("D2")
async def test_a_deleted_job_causes_no_further_writes_and_leaves_no_metric_series(here):
    create(here)
    await asyncio.sleep(2)
    assert series() != []
    here.world.store.delete(JOBS, "default", "demo")
    await asyncio.sleep(2)
    here.wire.writes.clear()
    for name in list(pods(here)):
        here.world.store.delete("pods", "default", name)
    await asyncio.sleep(10)
    assert here.wire.writes == []
    assert series() == []


@pytest.mark.rule("RM:I5")
async def test_the_pods_of_an_earlier_job_of_the_name_are_waited_for(here):
    create(here)
    await asyncio.sleep(2)
    here.world.store.delete(JOBS, "default", "demo")
    create(here)
    here.wire.writes.clear()
    await asyncio.sleep(40)
    assert [what for _, _, what in here.wire.writes if what in ("pods", "services", "configmaps")] == []
    for name in list(pods(here)):
        here.world.force_delete_pod(name)
    await asyncio.sleep(1)
    assert pods(here) == {}, "they would read the members of the earlier job"
    for resource, name in (("services", "demo"), ("configmaps", "demo-membership")):
        here.world.store.delete(resource, "default", name)
    await asyncio.sleep(1)
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods(here).values()} == {
        job(here)["metadata"]["uid"]
    }
    assert len(pods(here)) == 2


def series():
    return [
        s
        for family in REGISTRY.collect()
        if family.name.startswith("trainingjob_")
        for s in family.samples
        if s.labels.get("name") == "demo"
    ]


@pytest.mark.rule("TJ §8")
async def test_what_is_measured_of_a_job(here):
    create(here, low=2, high=4)
    await asyncio.sleep(0.3)
    report(here, "demo-trainer-0", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    await asyncio.sleep(3)
    labels = {"namespace": "default", "name": "demo"}

    def of(state):
        return REGISTRY.get_sample_value("trainingjob_instances", {**labels, "role": "trainer", "state": state})

    assert {state: of(state) for state in ("desired", "pending", "ready")} == {"desired": 2, "pending": 1, "ready": 1}
    assert REGISTRY.get_sample_value("trainingjob_fulfillment", labels) == 0
    assert REGISTRY.get_sample_value("trainingjob_waiting_seconds", labels) == 0


@pytest.mark.rule("SC:S3", "RM:I18")
async def test_rejected_trainers_are_retried_every_thirty_seconds_with_one_pod(here):
    here.wire.instead = lambda method, path: retry() if (method, path[-4:]) == ("POST", "pods") else None
    create(here, low=3, high=3)
    await asyncio.sleep(95)
    asked = here.wire.times("POST", "pods")
    assert len(asked) == 4, asked
    here.wire.instead = lambda *_: None
    await asyncio.sleep(31)
    assert len(pods(here)) == 3


def retry():
    body = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "exceeded quota"}
    return Response(403, json.dumps(body).encode(), {})


@pytest.mark.rule("D6")
async def test_a_create_without_an_answer_is_repeated_and_makes_no_second_pod(here):
    lost = iter([ApiUnavailableError("no answer", is_outcome_unknown=True)])
    here.wire.instead = lambda method, path: next(lost, None) if (method, path[-4:]) == ("POST", "pods") else None
    create(here)
    await asyncio.sleep(60)
    assert set(pods(here)) == {"demo-trainer-0", "demo-trainer-1"}


@pytest.mark.rule("D6", "PF:P8")
async def test_a_create_of_unknown_outcome_is_read_once_when_the_job_has_become_invalid(here):
    lost = ApiUnavailableError("no answer", is_outcome_unknown=True)
    here.wire.instead = lambda method, path: lost if (method, path[-4:]) == ("POST", "pods") else None
    create(here)
    await asyncio.sleep(0.2)
    change = {"min-instance": 5, "max-instance": 1}
    here.world.edit(JOBS, "demo", None, lambda job: job["spec"]["trainer"].update(change))
    await asyncio.sleep(0.2)
    here.wire.writes.clear()
    passes = here.controller.reconcile_loop.passes
    await asyncio.sleep(60)
    assert here.wire.times("POST", "pods") == []
    assert here.controller.reconcile_loop.passes - passes < 10


def with_any_schema(world):
    """As an older CRD, that lets everything in."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    name = CRD["metadata"]["name"]
    found = json.loads(world.api.handle(Request("GET", f"{DEFINITIONS}/{name}", {}, {}, b"")).body)
    for version in found["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": anything}
    answer = world.api.handle(Request("PUT", f"{DEFINITIONS}/{name}", {}, {}, json.dumps(found).encode()))
    assert answer.status == 200, answer.body


@pytest.mark.rule("D13")
async def test_an_unreadable_job_is_reported_and_other_jobs_are_reconciled(here):
    with_any_schema(here.world)
    broken = {"trainer": {"min-instance": "many"}}
    metadata = {"name": "broken", "namespace": "default"}
    here.world.store.create(
        JOBS, {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": metadata, "spec": broken}
    )
    create(here)
    await asyncio.sleep(3)
    events = here.world.store.find(JOBS, "default", "broken").obj()["status"]
    assert events["waiting"] == constants.INVALID_SPEC
    assert "spec.trainer.min-instance" in events["conditions"][0]["message"]
    assert (events["conditions"][0]["type"], events["conditions"][0]["reason"]) == (
        constants.INVALID,
        constants.INVALID_SPEC,
    )
    assert len(pods(here)) == 2
    here.wire.writes.clear()
    await asyncio.sleep(60)
    assert here.wire.times("PATCH", "status") == [], "said once"


@pytest.mark.parametrize("limit", ["six", -3], ids=["cannot be parsed", "is parsed"])
@pytest.mark.rule("D13")
async def test_an_invalid_job_is_suspended_its_pods_are_deleted_and_it_is_reported_once(here, limit):
    """A queue controller suspends it and waits for the capacity, whatever else is in the spec."""
    create(here)
    await asyncio.sleep(5)
    assert here.world.store.count("pods") == 2
    with_any_schema(here.world)
    invalid = {"suspend": True, "backoffLimit": limit}
    here.world.edit(JOBS, "demo", None, lambda obj: obj["spec"].update(invalid))
    await asyncio.sleep(30)
    events = here.world.store.find(JOBS, *KEY).obj()["status"]
    conditions = {each["type"]: each["status"] for each in events["conditions"]}
    assert pods(here) == {}
    assert (events["phase"], conditions["Suspended"], conditions[constants.INVALID]) == ("Suspended", "True", "True")
    assert "backoffLimit" in next(each["message"] for each in events["conditions"] if each["type"] == constants.INVALID)
    before = len(here.wire.writes)
    await asyncio.sleep(3600)
    assert here.wire.writes[before:] == []
    here.world.edit(JOBS, "demo", None, lambda obj: obj["spec"].update(suspend=False, backoffLimit=6))
    await asyncio.sleep(60)
    assert len(pods(here)) == 2


async def test_without_its_crd_only_the_kind_is_listed_until_it_appears():
    async with running_controller(IdleWorld(random.Random(0))) as here:
        await asyncio.sleep(120)
        assert set(here.wire.lists) == {"trainingjobs"}
        assert 4 <= len(here.wire.lists) <= 12
        install(here.world)
        create(here)
        await asyncio.sleep(31)
        assert len(pods(here)) == 2


async def test_a_controller_that_waits_for_its_kind_stops_in_order():
    async with running_controller(IdleWorld(random.Random(0))) as here:
        await asyncio.sleep(5)
        stopping_at = virtual_time.elapsed_s()
    assert virtual_time.elapsed_s() - stopping_at < 1
    assert here.wire.writes == []


@pytest.mark.rule("FD:RC-B10")
async def test_pods_of_a_node_deleted_just_before_them_are_replaced_at_once(here):
    create(here, low=1, high=1)
    await asyncio.sleep(1)
    (pod,) = here.world.store.list("pods")
    name = pod["metadata"]["name"]
    here.world.store.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}})
    held = {"finalizers": ["example.com/hold"]}
    here.world.edit("pods", name, None, lambda obj: (obj["spec"].update(nodeName="n9"), obj["metadata"].update(held)))
    await asyncio.sleep(1)
    here.world.store.delete("nodes", "", "n9")
    here.world.store.delete("pods", "default", name)
    await asyncio.sleep(1)
    (dying,) = (pod for pod in here.controller.pods.by_index(KEY) if pod.is_terminating)
    assert here.controller.dead_nodes.dead_among([dying]) == {"n9"}
