"""Bad RayClusters: rejected at admission, or reported by a condition and an event that name the field; other clusters are reconciled.

First what our CRD is asked, then what an older, careless CRD let in and ours finds stored; beside every bad cluster there
is a good one, which must become ready. On the embedded API the real room runs in virtual time, on a real control plane the
operator as a process.
"""

import asyncio
import logging
import random
import secrets
from dataclasses import dataclass

import msgspec
import pytest

from integration.cluster_under_test import path_of
from integration.clusters import APIS
from integration.embedded_cluster import Operator, until
from integration.kube_cluster import KubeCluster
from integration.probe.client import Client
from integration.probe.servers import from_kubeconfig
from raytide.api import constants
from raytide_sandbox.apiserver.routes import Request
from support import virtual_time
from support.builders import group, raycluster
from support.manifest_files import body_of

from simulation.in_process_transport import InProcessTransport
from simulation.operator_under_test import OperatorUnderTest, SimulatedClock
from simulation.simulated_kube import CRD, NAMESPACE, SimulatedKube

pytestmark = pytest.mark.looptime

CLUSTERS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io"
HEAD = raycluster()["spec"]["headGroupSpec"]
CONTAINER = {"name": "c", "image": "rayproject/ray:2.52.0"}


def head(**change):
    return {"headGroupSpec": {**HEAD, **change}}


def worker(**change):
    return {"workerGroupSpecs": [{**group(), **change}]}


def pod(**change):
    return {"template": {"spec": {"containers": [{**CONTAINER, **change}]}}}


def written(name, spec):
    obj = raycluster(name=name, **spec)
    obj["metadata"] = {"name": name}
    return obj


def send(env, method, path, body=None, **query):
    answer = env.api.handle(Request(method, path, query, {}, msgspec.json.encode(body) if body else b""))
    return answer.status, msgspec.json.decode(answer.body), answer.headers


# --- at admission ------------------------------------------------------------------------------------------------------

REJECTED = {
    "replicas as a word": (worker(replicas="many"), "spec.workerGroupSpecs[0].replicas"),
    "a quantity of no unit": (
        head(**pod(resources={"limits": {"cpu": "lots"}})),
        "spec.headGroupSpec.template.spec.containers[0].resources.limits",
    ),
    "a head without containers": (
        head(template={"spec": {"containers": []}}),
        "spec.headGroupSpec.template.spec.containers",
    ),
    "a group without containers": (
        worker(template={"spec": {"containers": []}}),
        "spec.workerGroupSpecs[0].template.spec.containers",
    ),
    "a template without spec": (head(template={}), "spec.headGroupSpec.template.spec"),
    "min above max": (worker(minReplicas=5, maxReplicas=1), "spec.workerGroupSpecs[0].minReplicas"),
    "two groups of one name": ({"workerGroupSpecs": [group("x"), group("x")]}, "spec.workerGroupSpecs[1]"),
    "a group's name of 64 characters": (worker(groupName="x" * 64), "spec.workerGroupSpecs[0].groupName"),
    "no head": ({"headGroupSpec": None}, "spec.headGroupSpec"),
}


async def build_env():
    return SimulatedKube(random.Random(0))


@pytest.fixture(scope="module", params=APIS)
def ask(request):
    """(method, path, body, **query) -> status, answer, headers; nothing is stored."""
    if request.param == "embedded":
        env = asyncio.run(build_env())
        yield lambda *call, **query: send(env, *call, **query, dryRun="All")
        return
    plane = request.getfixturevalue("kube_plane")
    cluster = KubeCluster(plane, run="")
    cluster.install_crd()
    cluster.hang_up()
    client = Client(from_kubeconfig(str(plane.kubeconfig)), "default")

    def ask(*call, **query):
        answer = client.call(*call, **query, dryRun="All")
        return answer.status, answer.body, answer.headers

    yield ask
    client.close()


@pytest.mark.rule("SE:C10")
@pytest.mark.parametrize(("spec", "field"), REJECTED.values(), ids=REJECTED)
def test_rejected_at_admission_with_the_field(ask, spec, field):
    status, answer, _ = ask("POST", CLUSTERS, written("bad", spec))
    assert status == 422
    assert field in answer["message"]


def test_a_name_too_long_is_rejected(ask):
    status, answer, _ = ask("POST", CLUSTERS, written("x" * 54, {}))
    assert (status, "metadata.name" in answer["message"]) == (422, True)


def test_an_unknown_field_is_rejected_by_a_strict_client_and_dropped_with_a_warning_otherwise(ask):
    spec = worker(replica=3)
    status, answer, _ = ask("POST", CLUSTERS, written("typo", spec), fieldValidation="Strict")
    assert status == 400
    assert 'unknown field "spec.workerGroupSpecs[0].replica"' in answer["message"]
    status, answer, headers = ask("POST", CLUSTERS, written("typo", spec))
    assert status == 201
    assert 'unknown field \\"spec.workerGroupSpecs[0].replica\\"' in headers["warning"]
    assert "replica" not in answer["spec"]["workerGroupSpecs"][0]


# --- stored before our CRD came ----------------------------------------------------------------------------------------

IN_HEAD = "spec.headGroupSpec.template.spec.containers[0]"
STORED = {
    "replicas-word": (worker(replicas="many"), "spec.workerGroupSpecs[0].replicas"),
    "replicas-fraction": (worker(replicas=1.5), "spec.workerGroupSpecs[0].replicas"),
    "min-above-max": (worker(minReplicas=5, maxReplicas=1), "spec.workerGroupSpecs[0].minReplicas"),
    "two-of-one-name": ({"workerGroupSpecs": [group("x"), group("x")]}, "spec.workerGroupSpecs[1].groupName"),
    "no-head": ({"headGroupSpec": None}, "spec.headGroupSpec"),
    "groups-word": ({"workerGroupSpecs": "none"}, "spec.workerGroupSpecs"),
    "group-null": ({"workerGroupSpecs": [None]}, "spec.workerGroupSpecs[0]"),
    "group-nameless": ({"workerGroupSpecs": [{"replicas": 1}]}, "spec.workerGroupSpecs[0].groupName"),
    "params-number": (head(rayStartParams={"port": 6379}), "spec.headGroupSpec.rayStartParams.port"),
    "template-word": (head(template="x"), "spec.headGroupSpec.template"),
    "template-empty": (head(template={}), "spec.headGroupSpec.template.spec.containers"),
    "containers-none": (head(template={"spec": {"containers": []}}), "spec.headGroupSpec.template.spec.containers"),
    "containers-word": (head(template={"spec": {"containers": "x"}}), "spec.headGroupSpec.template.spec.containers"),
    "container-word": (worker(template={"spec": {"containers": ["x"]}}), "Specs[0].template.spec.containers[0]"),
    "labels-number": (
        head(template={"metadata": {"labels": {"a": 1}}, "spec": {"containers": [CONTAINER]}}),
        "spec.headGroupSpec.template.metadata.labels.a",
    ),
    "env-map": (head(**pod(env={"A": "1"})), f"{IN_HEAD}.env"),
    "env-nameless": (head(**pod(env=[{"value": "1"}])), f"{IN_HEAD}.env[0].name"),
    "command-word": (head(**pod(command="ray")), f"{IN_HEAD}.command"),
    "port-word": (head(**pod(ports=["80"])), f"{IN_HEAD}.ports[0]"),
    "mount-number": (head(**pod(volumeMounts=[{"name": "a", "mountPath": 5}])), f"{IN_HEAD}.volumeMounts[0].mountPath"),
    "limits-list": (head(**pod(resources={"limits": [1]})), f"{IN_HEAD}.resources.limits"),
    "service-word": (head(headService="x"), "spec.headGroupSpec.headService"),
    "service-ports": (head(headService={"spec": {"ports": [None]}}), "spec.headGroupSpec.headService.spec.ports[0]"),
    "options-word": ({"autoscalerOptions": "x"}, "spec.autoscalerOptions"),
    "storage-word": (
        {"gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": "x"}},
        "spec.gcsFaultToleranceOptions.storage",
    ),
    "managed-number": ({"managedBy": 5}, "spec.managedBy"),
    "x" * 54: ({}, "metadata.name"),
}
"""By the cluster's name: what is stored, and the field the condition or the event must name."""

UNTOLD_BY_CONDITION = {
    *("groups-word", "group-null", "template-word", "containers-word"),
    *("options-word", "storage-word"),
}
"""Here the API server rejects every write, the status too, because a rule of ours cannot read the object: event only.

KubeRay's own CRD would not have let any of these in.
"""

UNTOLD_ON_A_REAL_SERVER = {*UNTOLD_BY_CONDITION, "env-map", "managed-number"}
"""A real server's rules also stumble over these; the emulator's see that the value did not change."""

DENIED_BY_POD_SECURITY = {
    "quantity-word": (head(**pod(resources={"limits": {"cpu": "lots"}})), "quantities must match"),
    "group-name-64": (worker(groupName="x" * 64), "metadata.labels"),
}
"""The manifest can be built, but the API server rejects the pod: `ReplicaFailure` has its message."""

CLAMPED = {"negative-replicas": worker(replicas=-3), "negative-hosts": worker(numOfHosts=-1)}
BROKEN_STATUS = {
    "conditions-word": {"conditions": "x"},
    "condition-null": {"conditions": [None]},
    "generation-word": {"observedGeneration": "x"},
    "endpoints-word": {"endpoints": "x"},
    "times-word": {"stateTransitionTimes": "x"},
}


def redefine(env, change):
    _, crd, _ = send(env, "GET", DEFINITION)
    change(crd)
    assert send(env, "PUT", DEFINITION, crd)[0] == 200


def without_schema(crd):
    for version in crd["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def store(env, name, spec, status=None):
    assert send(env, "POST", CLUSTERS, written(name, spec))[0] == 201
    if status is not None:
        obj = {**env.cluster(name), "status": status}
        assert send(env, "PUT", f"{CLUSTERS}/{name}/status", obj)[0] == 200


EVERYTHING = {
    **{name: spec for name, (spec, _) in {**STORED, **DENIED_BY_POD_SECURITY}.items()},
    **CLAMPED,
    "healthy": {},
}


@dataclass
class Afterwards:
    """What became of everything that was stored."""

    clusters: dict
    pods: list
    events: list
    crashes: list
    errors: list
    untold: set

    def condition(self, name, kind):
        conditions = self.clusters[name].get("status", {}).get("conditions", ())
        return next((entry for entry in conditions if entry["type"] == kind), {})

    def pods_of(self, name):
        uid = self.clusters[name]["metadata"]["uid"]
        return [pod for pod in self.pods if pod["metadata"]["ownerReferences"][0]["uid"] == uid]


def by_name(objects):
    return {obj["metadata"]["name"]: obj for obj in objects}


async def switch_crds_and_run():
    """Everything bad is stored under a CRD without a schema, ours replaces it, the operator starts."""
    env = SimulatedKube(random.Random(0))
    redefine(env, without_schema)
    for name, spec in EVERYTHING.items():
        store(env, name, spec)
    for name, status in BROKEN_STATUS.items():
        store(env, name, {}, status)
    redefine(env, lambda crd: crd.update(spec=msgspec.json.decode(body_of(CRD))["spec"]))
    crashes = []
    operator = OperatorUnderTest(InProcessTransport(env.api), SimulatedClock(env.now), random.Random(0), crashes.append)
    controllers = asyncio.create_task(env.run_controllers())
    operator.start()
    await asyncio.sleep(30)
    await operator.stop()
    controllers.cancel()
    events, clusters, pods = (
        send(env, "GET", path)[1]["items"]
        for path in (
            f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events",
            CLUSTERS,
            f"/api/v1/namespaces/{NAMESPACE}/pods",
        )
    )
    return Afterwards(by_name(clusters), pods, events, crashes, [], UNTOLD_BY_CONDITION)


async def switch_real_crds_and_run(plane, kubeconfig):
    """The same on a real control plane, with a real operator that looks at one namespace."""
    cluster, namespace = KubeCluster(plane, run=secrets.token_hex(3)), f"bad-{secrets.token_hex(4)}"
    await cluster.start()
    try:
        cluster.ensure_namespace(namespace)
        cluster.past_admission(lambda: store_all(cluster, namespace))
        operator = await Operator("--watch-namespace", namespace).start(cluster.write_kubeconfig(kubeconfig))
        await until("every cluster is reported or ready", lambda: is_settled(cluster, namespace), within_s=100)
        assert await operator.stop() == 0
        found = [cluster.all(kind, namespace) for kind in ("rayclusters.ray.io", "pods", "events.events.k8s.io")]
        errors = [line for line in operator.lines if "level=ERROR" in line or "Traceback" in line]
        return Afterwards(by_name(found[0]), found[1], found[2], [], errors, UNTOLD_ON_A_REAL_SERVER)
    finally:
        await cluster.stop()


def store_all(cluster, namespace):
    path = path_of("rayclusters.ray.io", namespace)
    for name, spec in EVERYTHING.items():
        cluster.done("POST", path, written(name, spec))
    for name, status in BROKEN_STATUS.items():
        stored = cluster.done("POST", path, written(name, {}))
        cluster.done("PUT", f"{path}/{name}/status", {**stored, "status": status})


def is_settled(cluster, namespace):
    cluster.make_ready(namespace)
    clusters = by_name(cluster.all("rayclusters.ray.io", namespace))
    reported = {event["regarding"]["name"] for event in cluster.all("events.events.k8s.io", namespace)}
    ready = {name for name, obj in clusters.items() if obj.get("status", {}).get("state") == "ready"}
    return reported >= {*STORED, *DENIED_BY_POD_SECURITY} and ready >= {"healthy", *BROKEN_STATUS, *CLAMPED}


@pytest.fixture(scope="module", params=APIS)
def switched(request, tmp_path_factory):
    """How it stands afterwards."""
    if request.param != "embedded":
        kubeconfig = tmp_path_factory.mktemp("bad") / "kubeconfig"
        with asyncio.Runner() as runner:
            yield runner.run(switch_real_crds_and_run(request.getfixturevalue("kube_plane"), kubeconfig))
        return
    lines = []
    listener = logging.Handler(level=logging.ERROR)
    listener.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("raytide").addHandler(listener)
    afterwards = virtual_time.run(switch_crds_and_run())
    afterwards.errors = lines
    yield afterwards
    logging.getLogger("raytide").removeHandler(listener)


def test_the_operator_survives_and_calls_nothing_a_bug(switched):
    assert (switched.crashes, switched.errors) == ([], [])


@pytest.mark.parametrize("name", ["healthy", *BROKEN_STATUS, *CLAMPED])
def test_others_become_ready(switched, name):
    assert switched.clusters[name]["status"]["state"] == "ready"
    assert switched.condition(name, constants.INVALID) == {}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, (_, field) in STORED.items()], ids=STORED)
def test_what_is_stored_and_cannot_be_is_reported_with_its_field(switched, name, field):
    notes = [
        event["note"] for event in switched.events if event["regarding"]["name"] == name and event["type"] == "Warning"
    ]
    assert any(f"{field} " in note for note in notes), notes
    reported = switched.condition(name, constants.INVALID)
    assert (f"{field} " in reported.get("message", "")) == (name not in switched.untold)
    assert switched.pods_of(name) == []


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, (_, field) in DENIED_BY_POD_SECURITY.items()], ids=lambda text: text
)
def test_a_pod_rejected_by_the_api_server_is_reported_with_its_message(switched, name, field):
    failure = switched.condition(name, constants.REPLICA_FAILURE)
    assert failure["status"] == "True"
    assert field in failure["message"]
