"""TrainingJobs under the real operator: kopf, informers and sharing, over HTTP, on both API servers.

The test plays scheduler and kubelet where there is none. Jobs that must not be resized by the sharing pass say so.
"""

import asyncio
import itertools
import json
import secrets
from pathlib import Path

import aiohttp
import pytest
import yaml

from integration.cluster_under_test import CRD, JOB_CRD, TRAININGJOBS, path_of
from integration.clusters import APIS, COLLECTED_S, new_cluster
from integration.embedded_cluster import PATIENCE_S, Operator, has_reconciled, holds_while, until
from raytide.api import trainingjob_constants as constants
from support.builders import raycluster
from support.ports import free_port
from support.training_builders import trainingjob

SEED = yaml.safe_load((Path(__file__).parents[2] / "samples" / "trainingjob-seed.yaml").read_text())
FIXED = {"enabled": False}
ROLE = {"resources": {"requests": {"cpu": "1"}}}
MEMBERS = "demo-membership"


@pytest.fixture(params=APIS)
async def cluster(request):
    """Both kinds, a node with three GPUs."""
    cluster = new_cluster(request)
    await cluster.start()
    cluster.install_crd(JOB_CRD)
    capacity = {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "3"}
    cluster.worker = cluster.add_node("gpus", **capacity)
    yield cluster
    await cluster.stop()


@pytest.fixture
def namespace(cluster):
    name = f"jobs-{secrets.token_hex(4)}"
    cluster.ensure_namespace(name)
    return name


@pytest.fixture
def kubeconfig(cluster, tmp_path):
    return cluster.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
async def operator(kubeconfig):
    operator = await Operator().start(kubeconfig)
    yield operator
    if operator.process.returncode is None:
        assert await operator.stop() == 0, operator.log
    assert "this is a bug" not in operator.log, operator.log


def submit(cluster, namespace, **spec):
    """A job of CPU trainers that the sharing pass does not resize."""
    obj = trainingjob(namespace=namespace, **{"scaling": FIXED, **spec})
    metadata = {"name": obj["metadata"]["name"], "namespace": namespace}
    return cluster.create(TRAININGJOBS, {**obj, "metadata": metadata})


def job(cluster, namespace, name="demo"):
    return cluster.get(TRAININGJOBS, namespace, name)


def status(cluster, namespace, name="demo"):
    return job(cluster, namespace, name).get("status", {})


def trainers(cluster, namespace):
    """The trainers in the status; empty before it is written."""
    return status(cluster, namespace).get("trainer", {})


def change(cluster, namespace, **spec):
    cluster.edit(namespace, "demo", lambda obj: obj["spec"].update(spec), TRAININGJOBS)


def resize(cluster, namespace, replicas):
    cluster.edit(namespace, "demo", lambda obj: obj["spec"]["trainer"].update(replicas=replicas), TRAININGJOBS)


def pod_names(*roles_and_counts, of="demo"):
    """`("trainer", 2)` is demo-trainer-0 and demo-trainer-1; a bare role is a pod without a number."""
    numbered = [
        f"{of}-{entry[0]}-{index}" for entry in roles_and_counts if entry != "master" for index in range(entry[1])
    ]
    return {*numbered, *(f"{of}-master" for entry in roles_and_counts if entry == "master")}


async def made(cluster, namespace, wanted):
    await until(f"there are {sorted(wanted)}", lambda: cluster.names(namespace) == wanted)


async def running(cluster, namespace, wanted):
    """Those pods, and no others, made and then reported ready."""
    await made(cluster, namespace, wanted)
    cluster.make_ready(namespace, cluster.worker)


def members(cluster, namespace):
    """The membership as pods see it."""
    return cluster.get("configmaps", namespace, MEMBERS)["data"]


def finish(cluster, namespace, name, *, exit_code):
    """As a kubelet reports a container that has ended."""
    ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
    container = {"name": "trainer", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    cluster.set_pod_status(
        namespace,
        name,
        phase="Failed" if exit_code else "Succeeded",
        containerStatuses=[{**container, "state": {"terminated": ended}}],
    )


# --- the seed's example ----------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ §2.2", "TJ §3")
async def test_the_seeds_example_starts_in_order_with_its_resources(cluster, namespace, operator):
    cluster.create(TRAININGJOBS, {**SEED, "metadata": {"name": "job-1", "namespace": namespace}})
    await running(cluster, namespace, pod_names("master", of="job-1"))
    await running(cluster, namespace, pod_names("master", ("pserver", 3), of="job-1"))
    await running(cluster, namespace, pod_names("master", ("pserver", 3), ("trainer", 3), of="job-1"))
    await until("it runs", lambda: status(cluster, namespace, "job-1").get("phase") == "Running")
    small = {"limits": {"cpu": "800m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "600Mi"}}
    gpu = {"nvidia.com/gpu": "1"}
    for pod in cluster.pods(namespace):
        is_trainer = pod["metadata"]["labels"][constants.ROLE_LABEL] == constants.TRAINER
        more = gpu if is_trainer else {}
        asked = pod["spec"]["containers"][0]["resources"]
        found = {kind: {name: str(amount) for name, amount in asked[kind].items()} for kind in asked}
        assert found == {"limits": {**small["limits"], **more}, "requests": {**small["requests"], **more}}
    seen = status(cluster, namespace, "job-1")
    assert {role: seen[role]["ready"] for role in constants.ROLES} == {"master": 1, "pserver": 3, "trainer": 3}
    conditions = {c["type"]: c["status"] for c in seen["conditions"]}
    assert (conditions["Admitted"], conditions["Running"]) == ("True", "True")
    assert seen["trainer"]["fulfillment"] == 0, "there is no fourth GPU"


@pytest.mark.rule("TJ §3 row 11", "TJ 7.6")
async def test_a_gang_without_capacity_has_no_pods_and_a_waiting_condition(cluster, namespace, operator):
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "1"}}}
    submit(cluster, namespace, low=4, high=6, scaling={}, trainer=gpus)

    def words():
        conditions = status(cluster, namespace).get("conditions", ())
        return next((c["message"] for c in conditions if c["type"] == constants.WAITING), "")

    await until("its condition names the missing GPUs", lambda: "nvidia.com/gpu" in words())
    assert status(cluster, namespace)["phase"] == "Pending"
    await holds_while(
        "nothing is made", lambda: not cluster.pods(namespace), has_reconciled(cluster, namespace, kind=TRAININGJOBS)
    )


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ §3 row 21", "TJ 7.5", "TJ 7.7")
async def test_it_follows_replicas_and_deletes_the_highest_index_first(cluster, namespace, operator):
    submit(cluster, namespace, low=2, high=5)
    await running(cluster, namespace, pod_names(("trainer", 2)))
    resize(cluster, namespace, 4)
    await running(cluster, namespace, pod_names(("trainer", 4)))
    await until("all are ready", lambda: trainers(cluster, namespace).get("ready") == 4)
    assert trainers(cluster, namespace)["fulfillment"] == pytest.approx(0.667)
    longer = members(cluster, namespace)
    cluster.holds |= pod_names(("trainer", 4))  # no pod ends before the assertion
    resize(cluster, namespace, 2)
    await made(cluster, namespace, pod_names(("trainer", 2)))
    leaving = {p["metadata"]["name"]: p["metadata"] for p in cluster.pods(namespace) if dying(p)}
    assert set(leaving) == {"demo-trainer-2", "demo-trainer-3"}
    in_order = "Deleted 2 pods demo-trainer-3 … demo-trainer-2"  # in the order in which they were sent
    await until(
        "the highest index was deleted first",
        lambda: any(note.startswith(in_order) for note in cluster.notes(namespace, constants.DELETED_POD)),
    )
    assert members(cluster, namespace) != longer, "the others learned of it"
    assert int(status(cluster, namespace).get("restarts") or 0) == 0, "who is told to go has not failed"
    for name in leaving:
        cluster.end(namespace, name)
    await until("it says so", lambda: trainers(cluster, namespace)["replicas"] == 2)


def dying(pod):
    return "deletionTimestamp" in pod["metadata"]


@pytest.mark.rule("TJ §3 row 21")
async def test_kubectl_scale_is_bounded_by_the_spec(cluster, namespace, operator):
    submit(cluster, namespace, low=1, high=3)
    await made(cluster, namespace, pod_names(("trainer", 1)))
    scale = {"spec": {"replicas": 9}}
    path = path_of(TRAININGJOBS, namespace, "demo", "scale")
    code, answer = cluster.request("PATCH", path, scale, "application/merge-patch+json")
    if code == 200:  # a CRD rule may reject it as well
        await running(cluster, namespace, pod_names(("trainer", 3)))
    else:
        assert "max" in json.dumps(answer)
        resize(cluster, namespace, 3)
        await running(cluster, namespace, pod_names(("trainer", 3)))
    await until("scale shows it", lambda: cluster.done("GET", path)["status"]["replicas"] == 3)


# --- the end, and pauses ---------------------------------------------------------------------------------------------


@pytest.mark.rule("D14", "RM:I8")
async def test_a_deleted_job_takes_everything_along_with_the_operator_off(cluster, namespace, operator):
    submit(cluster, namespace, pserver={"min-instance": 1, **ROLE})
    await running(cluster, namespace, pod_names(("pserver", 1)))
    await running(cluster, namespace, pod_names(("pserver", 1), ("trainer", 2)))
    assert await operator.stop() == 0
    cluster.delete(namespace, "demo", TRAININGJOBS)

    def ours():
        kinds = ("pods", "services", "configmaps")
        return [o for kind in kinds for o in cluster.all(kind, namespace) if "ownerReferences" in o["metadata"]]

    await until("all is gone", lambda: not ours(), within_s=COLLECTED_S)


@pytest.mark.rule("D15")
async def test_a_job_that_is_recreated_at_once_starts_again(cluster, namespace, operator):
    submit(cluster, namespace)
    await running(cluster, namespace, pod_names(("trainer", 2)))
    cluster.delete(namespace, "demo", TRAININGJOBS)
    uid = submit(cluster, namespace)["metadata"]["uid"]

    def owners():
        return {owner["uid"] for pod in cluster.pods(namespace) for owner in pod["metadata"]["ownerReferences"]}

    await until("its own pods are there", lambda: owners() == {uid} and len(cluster.names(namespace)) == 2)
    assert constants.FAILED_TO_CREATE_POD not in cluster.events(namespace)


@pytest.mark.rule("TJ 7.12")
async def test_a_suspended_job_has_no_pods_and_can_be_resumed(cluster, namespace, operator):
    submit(cluster, namespace)
    await running(cluster, namespace, pod_names(("trainer", 2)))
    await until("it runs", lambda: status(cluster, namespace).get("phase") == "Running")
    change(cluster, namespace, suspend=True)
    await until("it has no pods", lambda: not cluster.pods(namespace))
    await until("it says so", lambda: status(cluster, namespace).get("phase") == "Suspended")
    change(cluster, namespace, suspend=False)
    await running(cluster, namespace, pod_names(("trainer", 2)))
    await until("it runs again", lambda: status(cluster, namespace).get("phase") == "Running")


@pytest.mark.rule("TJ 7.12", "RM:I3")
async def test_a_failure_is_counted_once_across_a_kill_and_the_trainer_is_replaced(
    cluster, namespace, operator, kubeconfig
):
    submit(cluster, namespace)
    await running(cluster, namespace, pod_names(("trainer", 2)))
    await until("it runs", lambda: status(cluster, namespace).get("phase") == "Running")
    first = cluster.get("pods", namespace, "demo-trainer-1")["metadata"]["uid"]
    finish(cluster, namespace, "demo-trainer-1", exit_code=137)
    await until("it is counted", lambda: status(cluster, namespace).get("restarts") == 1)
    await operator.kill()
    again = await Operator().start(kubeconfig)
    try:
        await until("it is replaced", lambda: uid_of(cluster, namespace, "demo-trainer-1") not in ("", first))
        cluster.make_ready(namespace, cluster.worker)
        await until("both are ready", lambda: trainers(cluster, namespace).get("ready") == 2)
        assert status(cluster, namespace)["restarts"] == 1
    finally:
        assert await again.stop() == 0, again.log


def uid_of(cluster, namespace, name):
    found = [p["metadata"]["uid"] for p in cluster.pods(namespace) if p["metadata"]["name"] == name]
    return found[0] if found else ""


@pytest.mark.rule("TJ 7.12")
async def test_a_finished_job_is_deleted_after_its_ttl(cluster, namespace, operator):
    submit(cluster, namespace, low=1, high=1, ttlSecondsAfterFinished=1)
    await running(cluster, namespace, pod_names(("trainer", 1)))
    finish(cluster, namespace, "demo-trainer-0", exit_code=0)
    await until("it is gone", lambda: cluster.request("GET", path_of(TRAININGJOBS, namespace, "demo"))[0] == 404)
    await until("so are its pods", lambda: not cluster.pods(namespace), within_s=COLLECTED_S)


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RM:I19", "PF:P8")
async def test_once_it_runs_nothing_is_written(cluster, namespace, operator):
    submit(cluster, namespace)
    await running(cluster, namespace, pod_names(("trainer", 2)))
    await until("it runs", lambda: trainers(cluster, namespace).get("ready") == 2)
    await holds_still(cluster, namespace)
    cluster.writes.clear()
    looking = has_reconciled(cluster, namespace, kind=TRAININGJOBS)
    await holds_while("nothing is written", lambda: not cluster.writes, looking)


async def holds_still(cluster, namespace):
    """Wait until two looks at the job, some time apart, see the same."""
    versions = []

    def is_still():
        versions.append(job(cluster, namespace)["metadata"]["resourceVersion"])
        recent = versions[-40:]
        return len(recent) == 40 and all(a == b for a, b in itertools.pairwise(recent))

    await until("the job is still", is_still)


# --- kinds that are not there ----------------------------------------------------------------------------------------


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("absent", "present"),
    [
        pytest.param(JOB_CRD, CRD, id="TrainingJobs come later"),
        pytest.param(CRD, JOB_CRD, id="RayClusters come later"),
    ],
)
async def test_a_missing_kind_does_not_stop_the_other(cluster, namespace, kubeconfig, absent, present):
    cluster.remove_crd(absent)
    port = free_port()
    operator = await Operator("--health-probe-bind-address", f"127.0.0.1:{port}").start(kubeconfig)
    try:
        works = {CRD: clusters_work, JOB_CRD: jobs_work}
        await works[present](cluster, namespace)
        async with asyncio.timeout(PATIENCE_S):  # until all streams have listed
            while (ready := await page(port, "/readyz"))[0] != 200:  # noqa: ASYNC110 - the state of another process
                await asyncio.sleep(0.1)
        assert f"waiting for CRD {absent.name.partition('_')[2].removesuffix('.yaml')}" in ready[1]
        cluster.install_crd(absent)
        await works[absent](cluster, namespace)
        assert (await page(port, "/healthz"))[0] == 200
        await until("kopf watches both", lambda: "restarting kopf: the API server serves other kinds" in operator.log)
    finally:
        assert await operator.stop() == 0, operator.log
        # The tests that follow need it.
        if absent == CRD and cluster.request("GET", "/apis/ray.io/v1/rayclusters")[0] != 200:
            cluster.install_crd(absent)


async def clusters_work(cluster, namespace):
    before = cluster.names(namespace)
    cluster.apply(raycluster(namespace=namespace))
    await until("a RayCluster has its pods", lambda: len(cluster.names(namespace) - before) == 3)


async def jobs_work(cluster, namespace):
    submit(cluster, namespace, name="job")
    await until("a TrainingJob has its pods", lambda: pod_names(("trainer", 2), of="job") <= cluster.names(namespace))


async def page(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


assert PATIENCE_S > 30, "a kind that is not served is asked for every 30 s"
