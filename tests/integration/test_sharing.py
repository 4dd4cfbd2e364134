"""The sharing controller on an API over HTTP, embedded and real: sizes of jobs, their order, and the writes.

The room alone runs here; the test is the jobs' controller, the scheduler and the kubelets, so that every moment between
an order and its effect can be looked at. The cluster of all tests is one node with GPUs that only their jobs may use.
"""

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from integration.cluster_under_test import JOB_CRD, MERGE, TRAININGJOBS, path_of
from integration.clusters import APIS, new_cluster
from integration.embedded_cluster import holds_for, until
from raytide.api import trainingjob_constants as constants
from raytide.api.config import JobConfig, SharingConfig
from raytide.api.gang_admission import is_admitted
from raytide.api.sharing_record import parse_record
from raytide.api.tenants import TENANT_LABEL
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare import participants
from raytide.fairshare.controller import FairShareController, FairShareOptions
from raytide.kube.client import Client
from raytide.kube.kubeconfig import load_client_config
from raytide.manager.tenant_settings import parse_tenants
from raytide.runtime.clock import Clock
from raytide.trainingjob.manifests.objects import build_pod
from support.deadlines import PATIENCE
from support.training_builders import size_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

LABEL = "sharing-test"
CONFIG = SharingConfig(period_s=1.0, settle_s=0.2)
GPUS = 8
PASSES_S = 2 * CONFIG.period_s
"""In which passes come although nothing changes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request):
    cluster = new_cluster(request)
    await cluster.start()
    if cluster.request("GET", "/apis/paddlepaddle.org/v1/trainingjobs", limit="1")[0] != 200:
        cluster.install_crd(JOB_CRD)
    cluster.gpu_node = cluster.add_node("gpus", **{"cpu": "32", "memory": "64Gi", constants.GPU: str(GPUS)})
    body = {"metadata": {"labels": {LABEL: cluster.gpu_node}}}
    cluster.done("PATCH", path_of("nodes", "", cluster.gpu_node), body, content_type=MERGE)
    yield cluster
    await cluster.stop()


class Scene:
    """One namespace with its jobs, and the sharing controller."""

    def __init__(self, cluster, namespace):
        self.cluster = cluster
        self.namespace = namespace
        self.patches = []
        self.before_patch = lambda _name: None
        cluster.ensure_namespace(namespace)

    @asynccontextmanager
    async def shared(self, tmp_path, config=CONFIG):
        """Run the controller."""
        access = await load_client_config(self.cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        transport = await access.open_transport()
        client = Client(transport, clock=Clock())
        patch = client.patch

        async def witnessed(resource, key, body, **more):
            self.patches.append((key.name, body))
            self.before_patch(key.name)
            return await patch(resource, key, body, **more)

        client.patch = witnessed
        controller = FairShareController(
            client, clock=Clock(), config=config, options=FairShareOptions(namespaces=(self.namespace,))
        )
        running = asyncio.create_task(controller.run())
        try:
            yield controller
            assert not running.done()
        finally:
            await controller.stop()
            await asyncio.wait_for(running, 20 * PATIENCE)
            await transport.close()
            for job in self.cluster.all(TRAININGJOBS, self.namespace):
                self.cluster.delete(self.namespace, job["metadata"]["name"], TRAININGJOBS)
            self.cluster.holds.clear()
            for pod in self.cluster.pods(self.namespace):
                self.cluster.end(self.namespace, pod["metadata"]["name"])
            await until("all pods are gone", lambda: not self.cluster.pods(self.namespace))

    # --- people ---

    def submit(self, name, floor, ceiling, **scaling):
        amounts = {"cpu": "1", constants.GPU: 1}
        trainer = {"entrypoint": "true", "min-instance": floor, "max-instance": ceiling}
        trainer |= {"nodeSelector": {LABEL: self.cluster.gpu_node}, "resources": {"limits": amounts}}
        spec = {"image": "busybox", "trainer": trainer, "scaling": scaling}
        self.cluster.create(
            TRAININGJOBS,
            {
                "apiVersion": "paddlepaddle.org/v1",
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": spec,
            },
        )

    def scale(self, name, replicas):
        path = path_of(TRAININGJOBS, self.namespace, name, "scale")
        self.cluster.done("PATCH", path, {"spec": {"replicas": replicas}}, content_type=MERGE)

    # --- looking ---

    def job(self, name):
        return TrainingJob.parse(self.cluster.get(TRAININGJOBS, self.namespace, name))

    def size(self, name):
        return self.job(name).spec.trainer.replicas

    def record(self, name):
        return parse_record(self.job(name).metadata.annotations.get(constants.SHARING_ANNOTATION))

    def trainers(self, name):
        """Names of its pods, the dying ones too."""
        pods = self.cluster.pods(self.namespace)
        return sorted(p["metadata"]["name"] for p in pods if p["metadata"]["labels"].get(constants.JOB_LABEL) == name)

    # --- the job's controller, once ---

    def carry_out(self, name):
        """Exactly the pods of its spec and record, on the node as long as they fit."""
        job = self.job(name)
        wanted = job.desired_replicas() if is_admitted(job, self.record(name)) else 0
        size = size_for(job, wanted)
        pods = {f"{name}-trainer-{i}": build_pod(job, constants.TRAINER, i, size, JobConfig()) for i in range(wanted)}
        there = set(self.trainers(name))
        for missing in sorted(pods.keys() - there):
            pod = pods[missing]
            if int(pod["metadata"]["labels"][constants.INDEX_LABEL]) < GPUS:
                pod["spec"]["nodeName"] = self.cluster.gpu_node
            self.cluster.create("pods", pod)
        for surplus in sorted(there - pods.keys()):
            self.cluster.delete(self.namespace, surplus, "pods")

    async def settled(self, name, size):
        """It has that size, and its pods."""
        await until(f"{name} has {size}", lambda: self.size(name) == size)
        self.carry_out(name)
        await until(f"{name} has {size} pods", lambda: len(self.trainers(name)) == size)


@pytest.fixture
def scene(cluster, request):
    name = request.node.originalname.replace("_", "-").replace("test-", "")[:30].rstrip("-")
    return Scene(cluster, f"{name}-{secrets.token_hex(2)}")


@pytest.mark.rule("TJ:3.9", "TJ:3.11", "TJ:3.12", "TJ:4")
async def test_three_jobs_share_and_capacity_is_given_when_it_is_free(scene, tmp_path):
    async with scene.shared(tmp_path):
        scene.submit("a", 2, 8, shrinkCooldownSeconds=0)
        await scene.settled("a", 8)
        leaving = {"a-trainer-5", "a-trainer-6", "a-trainer-7"}
        scene.cluster.holds |= leaving
        scene.submit("b", 3, 3)
        await until("a gives three", lambda: scene.size("a") == 5)
        scene.carry_out("a")
        await until("b knows what it waits for", lambda: (r := scene.record("b")) and r.waiting)
        assert scene.record("b").waiting.is_below_minimum
        await holds_for("b waits", lambda: not scene.record("b").is_admitted, seconds=PASSES_S)
        for pod in sorted(leaving)[:2]:
            scene.cluster.end(scene.namespace, pod)
        await holds_for("b waits for the last one", lambda: not scene.record("b").is_admitted, seconds=PASSES_S)
        scene.cluster.end(scene.namespace, sorted(leaving)[2])
        await scene.settled("b", 3)
        assert scene.record("b").is_admitted
        note = scene.record("a").resizes[-1]
        assert (note.before, note.after, note.for_job) == (8, 5, f"{scene.namespace}/b")
        scene.submit("c", 2, 2)
        await until("a gives two more", lambda: scene.size("a") == 3)
        scene.carry_out("a")
        await scene.settled("c", 2)
        scene.submit("d", 4, 4)
        await until("d does not fit and says so", lambda: (r := scene.record("d")) and r.waiting)
        await holds_for("no job shrinks without a receiver", lambda: scene.size("a") == 3, seconds=PASSES_S)
        assert len([body for name, body in scene.patches if name == "a" and body.get("spec")]) <= 4


@pytest.mark.rule("FD:SH-B9", "TJ:3.10")
async def test_a_large_gang_starts_before_the_small_ones_behind_it(scene, tmp_path):
    async with scene.shared(tmp_path):
        scene.submit("running", 4, 4)
        await scene.settled("running", 4)
        scene.submit("large", 8, 8)
        await until("it waits with a reservation", lambda: (r := scene.record("large")) and r.waiting)
        assert "; free capacity is reserved for it until " in scene.record("large").waiting.message
        scene.submit("small", 1, 1)
        await until("small waits", lambda: (r := scene.record("small")) and r.waiting)
        assert scene.record("small").waiting.reason == "CapacityReserved"
        await holds_for("and goes on", lambda: not scene.record("small").is_admitted, seconds=PASSES_S)
        scene.cluster.delete(scene.namespace, "running", TRAININGJOBS)
        for pod in scene.trainers("running"):
            scene.cluster.delete(scene.namespace, pod, "pods")
        await scene.settled("large", 8)
        await until("small waits for GPUs", lambda: scene.record("small").waiting.reason == "InsufficientGPU")


@pytest.mark.rule("FD:SH-B9", "TJ:3.10")
async def test_a_reservation_lapses_though_nothing_happens(scene, tmp_path):
    async with scene.shared(tmp_path, replace(CONFIG, reservation_s=6.0)):
        scene.submit("running", 4, 4)
        await scene.settled("running", 4)
        scene.submit("large", 8, 8)
        await until("it waits", lambda: (r := scene.record("large")) and r.waiting)
        scene.submit("small", 1, 1)
        await until("small waits", lambda: (r := scene.record("small")) and r.waiting)
        assert scene.record("small").waiting.reason == "CapacityReserved"
        await scene.settled("small", 1)
        assert scene.record("large").waiting.reserved_since is not None


@pytest.mark.rule("TJ:7.13", "D25")
async def test_a_tenant_grows_to_its_borrowing_limit_until_its_namespace_loses_the_label(scene, tmp_path):
    tenants = parse_tenants("[{name: a, nominalQuota: {nvidia.com/gpu: 2}, borrowingLimit: {nvidia.com/gpu: 1}}]")
    namespace = path_of("namespaces", "", scene.namespace)
    scene.cluster.done("PATCH", namespace, {"metadata": {"labels": {TENANT_LABEL: "a"}}}, content_type=MERGE)
    async with scene.shared(tmp_path, replace(CONFIG, tenants=tenants)):
        scene.submit("limited", 1, 8)
        await scene.settled("limited", 3)
        await until("it says why", lambda: scene.record("limited").waiting.reason == "QuotaExceeded")
        assert (
            "tenant a has 0 left of 1 nvidia.com/gpu needed within its nominal quota"
            in scene.record("limited").waiting.message
        )
        scene.cluster.done("PATCH", namespace, {"metadata": {"labels": {TENANT_LABEL: None}}}, content_type=MERGE)
        await scene.settled("limited", 8)


@pytest.mark.rule("TJ:3.19")
async def test_an_edit_overrides_a_decision_made_before_it(scene, tmp_path):
    edited = []

    def edit_once(job):
        growth = scene.patches[-1][1].get("spec", {}).get("trainer", {}).get("replicas", 0)
        if growth > 4 and not edited:
            edited.append(growth)
            path = path_of(TRAININGJOBS, scene.namespace, job)
            scene.cluster.done("PATCH", path, {"spec": {"trainer": {"max-instance": 4}}}, content_type=MERGE)

    scene.before_patch = edit_once
    async with scene.shared(tmp_path):
        scene.submit("a", 2, 8)
        await scene.settled("a", 4)
        assert edited == [8]
        assert all(note.after <= 4 for note in scene.record("a").resizes)
    assert all(body["metadata"]["resourceVersion"] for _, body in scene.patches)
    assert all(set(body) <= {"metadata", "spec"} for _, body in scene.patches)


@pytest.mark.rule("TJ:3.21")
async def test_kubectl_scale_resizes_the_job_and_is_recorded(scene, tmp_path):
    async with scene.shared(tmp_path):
        scene.submit("a", 2, 6)
        await scene.settled("a", 6)
        scene.scale("a", 3)
        await until("it is recorded", lambda: scene.record("a").resizes[-1].reason == "Requested")
        note = scene.record("a").resizes[-1]
        assert (note.before, note.after) == (6, 3)
        scene.carry_out("a")
        await holds_for("it cools down", lambda: scene.size("a") == 3, seconds=PASSES_S)


@pytest.mark.rule("TJ:3.21", "FD:TJ3-2")
async def test_what_kubectl_scale_requests_beyond_the_capacity_is_not_granted(scene, tmp_path):
    async with scene.shared(tmp_path):
        scene.submit("a", 2, 12)
        await scene.settled("a", GPUS)
        resizes = scene.record("a").resizes
        scene.scale("a", 11)
        await until("it is answered", lambda: scene.record("a").request is not None)
        note = scene.record("a").request
        assert (note.replicas, note.times, scene.size("a")) == (11, 1, GPUS)
        await holds_for("and it stays so", lambda: scene.size("a") == GPUS, seconds=PASSES_S)
        assert scene.record("a").resizes == resizes, "no pod was created for it"


@pytest.mark.rule("TJ:3.21", "SC:S25")
async def test_what_was_ordered_beyond_the_capacity_without_sharing_is_released(scene, tmp_path, monkeypatch):
    """After a while, although nothing else happens: time alone makes a pass look."""
    monkeypatch.setattr(participants, "_LONG", timedelta(seconds=4))
    path = path_of(TRAININGJOBS, scene.namespace, "a")
    async with scene.shared(tmp_path):
        scene.submit("a", 2, 12)
        await scene.settled("a", GPUS)
        scene.cluster.done("PATCH", path, {"spec": {"scaling": {"enabled": False}}}, content_type=MERGE)
        scene.scale("a", 11)
        await until(
            "it is recorded", lambda: ("Requested", 11) in [(n.reason, n.after) for n in scene.record("a").resizes]
        )
        scene.carry_out("a")
        scene.cluster.done("PATCH", path, {"spec": {"scaling": {"enabled": True}}}, content_type=MERGE)
        await scene.settled("a", GPUS)
        note = scene.record("a").resizes[-1]
        assert (note.before, note.after, note.reason) == (11, 8, "InsufficientCapacity")
        assert note.message == "ScaledDown 11→8: 3 of its pods had no node for 20 s"
        await holds_for("and it stays so", lambda: scene.size("a") == GPUS, seconds=PASSES_S)


async def test_a_status_written_all_the_time_does_not_stop_decisions(scene, tmp_path):
    def report(job):
        path = path_of(TRAININGJOBS, scene.namespace, job, "status")
        scene.cluster.done("PATCH", path, {"status": {"trainer": {"ready": len(scene.patches)}}}, content_type=MERGE)

    scene.before_patch = report
    scene.submit("a", 2, 6)
    async with scene.shared(tmp_path):
        await until("a tries", lambda: scene.patches)
        scene.before_patch = lambda _job: None
        await scene.settled("a", 6)
