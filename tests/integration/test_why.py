"""`raytide why` beside the real operator: what it says is what the conditions say, on the embedded API and on a real one.

The command runs as a process with the kubeconfig of the cluster. Each test makes one cause of SC:S21 and waits until it is
named; the cause, its holder and the exit code have to be right, and the reason has to be that of the condition.
"""

import asyncio
import json
import os
import pty
import re
import secrets
import signal
import sys
from contextlib import suppress

import click
import pytest
import pytest_asyncio
from aiohttp import ClientSession

from integration.cluster_under_test import RAYCLUSTERS, TRAININGJOBS, path_of
from integration.clusters import APIS, cluster_with_operator
from integration.embedded_cluster import PATIENCE_S, until
from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, Why, encode_record
from support.builders import group, raycluster, template
from support.training_builders import trainingjob

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("SC:S21")]

UNSCHEDULABLE = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu.",
}  # fmt: skip
RUNNING = {"ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
NO_IMAGE = {"ready": False, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    async with cluster_with_operator(request, tmp_path_factory.mktemp("operator")) as cluster:
        yield cluster


@pytest.fixture
def namespace(request):
    name = request.node.originalname.replace("_", "-").replace("test-", "")[:40].rstrip("-")
    return f"{name}-{secrets.token_hex(2)}"


async def why(cluster, namespace, name="demo", *words):
    """Exit code and answer of `raytide why -o json`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "why", name, "-n", namespace, "-o", "json", "--kubeconfig", str(cluster.kubeconfig), *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode in (0, 3, 4), err.decode()
    return process.returncode, json.loads(out)


async def explained(cluster, namespace, reason, name="demo"):
    """The answer, once its first cause is this one."""
    for _ in range(20):
        code, answer = await why(cluster, namespace, name)
        if [each["reason"] for each in answer["blockers"]][:1] == [reason]:
            assert code == answer["exitCode"]
            return answer
    raise AssertionError(f"the first cause is not {reason}: {answer}")


async def running(cluster, namespace, *groups, **spec):
    """A RayCluster all of whose pods exist and are ready."""
    obj = cluster.apply(raycluster(*(groups or (group(),)), namespace=namespace, **spec))
    wanted = 1 + sum(g["replicas"] for g in obj["spec"]["workerGroupSpecs"])
    await until("all pods exist", lambda: len(cluster.names(namespace)) == wanted)
    cluster.make_ready(namespace)
    await until("state is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")


def reported(cluster, namespace, kind):
    """Whether the condition is there."""
    return lambda: cluster.condition(namespace, "demo", kind)


async def test_a_cluster_that_lacks_nothing(cluster, namespace):
    await running(cluster, namespace)
    code, answer = await why(cluster, namespace)
    assert (code, answer["verdict"], answer["blockers"], answer["unreadable"]) == (0, "NothingMissing", [], [])
    assert answer["summary"] == "2 of 2 workers are ready."
    assert answer["object"]["kind"] == "RayCluster"


async def test_no_node_for_a_worker(cluster, namespace):
    await running(cluster, namespace, group(replicas=1))
    cluster.scale(namespace, "demo", 2)
    await until("two workers", lambda: len(cluster.names(namespace, "cpu")) == 2)
    (name,) = [p["metadata"]["name"] for p in cluster.pods(namespace, "cpu") if p["status"].get("phase") != "Running"]
    cluster.set_pod_status(namespace, name, phase="Pending", conditions=[UNSCHEDULABLE])
    await until(
        "it is reported",
        lambda: cluster.condition(namespace, "demo", constants.WORKERS_MISSING).get("reason") == "Unschedulable",
    )
    answer = await explained(cluster, namespace, "Unschedulable")
    (first,) = answer["blockers"]
    assert (first["stage"], first["group"], first["holder"], answer["exitCode"]) == (
        "nodes",
        "cpu",
        "free cpu on the nodes",
        3,
    )
    assert first["since"] == cluster.condition(namespace, "demo", constants.WORKERS_MISSING)["lastTransitionTime"]
    assert [pod["name"] for pod in answer["pods"]] == [name]


async def test_an_image_that_is_missing(cluster, namespace):
    cluster.apply(raycluster(group(replicas=1), namespace=namespace))
    await until("both pods exist", lambda: len(cluster.names(namespace)) == 2)
    (worker,) = cluster.pods(namespace, "cpu")
    name = worker["metadata"]["name"]
    cluster.bind(namespace, name, "n0")
    status = [{"name": "ray-worker", "image": "x", "imageID": "", "restartCount": 0, **NO_IMAGE}]
    cluster.set_pod_status(namespace, name, phase="Pending", containerStatuses=status)
    await until(
        "it is reported",
        lambda: cluster.condition(namespace, "demo", constants.WORKERS_MISSING).get("reason") == "ImagePullFailed",
    )
    _, answer = await why(cluster, namespace)
    found = {each["group"]: each for each in answer["blockers"]}
    assert (found["cpu"]["reason"], found["cpu"]["holder"]) == ("ImagePullFailed", "the image of ray-worker")
    assert found["cpu"]["message"] in cluster.condition(namespace, "demo", constants.WORKERS_MISSING)["message"]


@pytest.mark.rule("SC:S4")
async def test_a_quota_that_is_used_up(cluster, namespace):
    cluster.ensure_namespace(namespace)
    low_priority = cluster.without_quota(namespace)
    pods = template("ray-worker", priorityClassName=low_priority)
    cluster.apply(raycluster(group(replicas=1, template=pods), namespace=namespace))
    await until(
        "it is reported",
        lambda: cluster.condition(namespace, "demo", constants.WORKERS_MISSING).get("reason") == "QuotaExceeded",
    )
    cluster.make_ready(namespace)
    answer = await explained(cluster, namespace, "QuotaExceeded")
    cluster.give_quota(namespace)
    first = answer["blockers"][0]
    assert (first["stage"], first["group"], answer["exitCode"]) == ("pods", "cpu", 3)
    assert first["holder"].startswith("ResourceQuota ")
    assert first["message"] in cluster.condition(namespace, "demo", constants.REPLICA_FAILURE).get(
        "message", first["message"]
    )


async def test_demand_that_fits_no_group_and_a_group_at_its_maximum(cluster, namespace):
    await running(cluster, namespace, group(replicas=1, high=1), enableInTreeAutoscaling=True)
    (head,) = cluster.pods(namespace, "headgroup")
    statuses = [
        {"name": container["name"], "image": "x", "imageID": "", "restartCount": 0, **RUNNING}
        for container in head["spec"]["containers"]
    ]
    cluster.set_pod_status(namespace, head["metadata"]["name"], containerStatuses=statuses)
    why_waiting = Why("MaxReached", 2, "pending: {CPU: 1} x 2; the group is at its maximum of 1: raise maxReplicas")
    never = Why("NoFittingGroup", 1, "can never run: {TPU: 1} x 1 fit no group; add a group with such nodes")
    uid = cluster.get(RAYCLUSTERS, namespace, "demo")["metadata"]["uid"]
    record = DecisionRecord(
        uid, head["metadata"]["uid"], groups={"cpu": GroupDecision(1, why=(why_waiting,))}, why=(never,)
    )
    body = {"metadata": {"annotations": {constants.AUTOSCALER_DECISION_ANNOTATION: encode_record(record)}}}
    cluster.done("PATCH", path_of(RAYCLUSTERS, namespace, "demo"), body, content_type="application/merge-patch+json")
    await until("it is reported", reported(cluster, namespace, constants.SCALING_LIMITED))
    limited = cluster.condition(namespace, "demo", constants.SCALING_LIMITED)
    assert limited["reason"] == "NoFittingGroup"
    assert limited["message"].startswith("1 × NoFittingGroup (can never run: {TPU: 1} x 1 fit no group")
    answer = await explained(cluster, namespace, "NoFittingGroup")
    assert (answer["verdict"], answer["exitCode"]) == ("CanNeverRun", 4)
    assert [(each["reason"], each["permanent"]) for each in answer["blockers"]] == [
        ("NoFittingGroup", True),
        ("MaxReached", False),
    ]
    assert answer["blockers"][1]["holder"] == "maxReplicas of group cpu"


async def test_a_suspended_cluster(cluster, namespace):
    await running(cluster, namespace)
    cluster.edit(namespace, "demo", lambda obj: obj["spec"].update(suspend=True), RAYCLUSTERS)
    await until(
        "it is suspended", lambda: cluster.condition(namespace, "demo", constants.SUSPENDED).get("status") == "True"
    )
    answer = await explained(cluster, namespace, "Suspended")
    assert (answer["blockers"][0]["holder"], answer["exitCode"]) == ("spec.suspend", 3)


async def test_a_cluster_of_another_controller(cluster, namespace):
    cluster.apply(raycluster(namespace=namespace, managedBy="kueue.x-k8s.io/multikueue"))
    answer = await explained(cluster, namespace, "ManagedByOther")
    assert answer["blockers"][0]["holder"] == "controller kueue.x-k8s.io/multikueue"


async def test_a_job_for_which_no_node_is_large_enough(cluster, namespace):
    cluster.ensure_namespace(namespace)
    job = trainingjob(name="demo", namespace=namespace, start_policy="Gang", trainer={"entrypoint": "true"})
    job["metadata"] = {"name": "demo", "namespace": namespace}
    job["spec"]["trainer"]["resources"] = {"requests": {"cpu": "100000"}, "limits": {"cpu": "100000"}}
    cluster.create(TRAININGJOBS, job)

    def waiting():
        conditions = cluster.get(TRAININGJOBS, namespace, "demo").get("status", {}).get("conditions", [])
        return next((c for c in conditions if (c["type"], c["reason"]) == ("Waiting", "Unsatisfiable")), None)

    await until("it is reported", waiting)
    answer = await explained(cluster, namespace, "Unsatisfiable")
    first = answer["blockers"][0]
    assert (answer["object"]["kind"], first["holder"], first["permanent"], answer["exitCode"]) == (
        "TrainingJob",
        "the size of the nodes",
        True,
        4,
    )
    assert (first["message"], first["since"]) == (waiting()["message"], waiting()["lastTransitionTime"])
    cluster.delete(namespace, "demo", TRAININGJOBS)


async def top(cluster, namespace, *words, output=asyncio.subprocess.PIPE, **environ):
    """`raytide top` as a process."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "top", "-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "--interval", "0.2", *words,
        stdout=output, stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
        preexec_fn=accept_ctrl_c,
    )  # fmt: skip


def accept_ctrl_c():
    """Undo what a shell without job control does to its background processes: they ignore SIGINT, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def ended(process):
    """Its exit code after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return await asyncio.wait_for(process.wait(), PATIENCE_S)


async def test_top_prints_a_line_per_change_without_a_terminal(cluster, namespace):
    await running(cluster, namespace, group(replicas=1))
    process = await top(cluster, namespace)

    async def line(part):
        while part not in (text := (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode()):
            assert text, (await process.stderr.read()).decode()
        return text

    await line("RayCluster   demo   1       1        -")
    cluster.scale(namespace, "demo", 2)
    assert "waits" in await line("RayCluster   demo   1   2")
    cluster.delete(namespace, "demo")
    await line("RayCluster   demo   deleted")
    assert await ended(process) == 0


async def test_top_draws_lanes_in_a_terminal(cluster, namespace):
    await running(cluster, namespace, group(replicas=1))
    ours, theirs = pty.openpty()
    process = await top(cluster, namespace, output=theirs, TERM="xterm", COLUMNS="100", LINES="20")
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = b""

    def is_drawn():
        nonlocal seen
        with suppress(BlockingIOError):
            seen += os.read(ours, 65536)
        return "████████████████████  1/1" in click.unstyle(seen.decode(errors="ignore"))

    await until("the lane is drawn", is_drawn)
    assert await ended(process) == 0
    os.close(ours)


async def test_top_once(cluster, namespace):
    await running(cluster, namespace, group(replicas=1))
    process = await top(cluster, namespace, "--once", "-o", "json")
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    assert [(lane["name"], lane["ready"], lane["wanted"]) for lane in json.loads(out)["items"]] == [("demo", 1, 1)]


async def test_the_page_of_a_running_cluster(cluster, namespace):
    await running(cluster, namespace, group(replicas=1))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "ui", "-n", namespace, "--port", "0", "--kubeconfig", str(cluster.kubeconfig),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=accept_ctrl_c,
    )  # fmt: skip
    line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode()
    shown, site, token = re.fullmatch(
        r"showing namespace (\S+) at (http://127\.0\.0\.1:\d+)/#token=(\S+)\n", line
    ).groups()
    async with ClientSession(site, headers={"Authorization": f"Bearer {token}"}) as session:

        async def lanes():
            async with session.get("/api/lanes") as answer:
                return [
                    (each["name"], each["ready"], each["wanted"], len(each["steps"]))
                    for each in (await answer.json())["items"]
                ]

        async with asyncio.timeout(PATIENCE_S):
            while await lanes() != [("demo", 1, 1, 1)]:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.05)
        async with session.get(f"/api/why/RayCluster/{namespace}/demo") as answer:
            assert (await answer.json())["verdict"] == "NothingMissing"
    assert shown == namespace
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, err.decode()) == (0, "the address contains a token: it gives others your rights to read; Ctrl-C ends it\n\n")  # fmt: skip


async def test_a_name_that_does_not_exist(cluster, namespace):
    cluster.ensure_namespace(namespace)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "why", "nothing", "-n", namespace, "--kubeconfig", str(cluster.kubeconfig),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, out) == (1, b"")
    assert err.decode().startswith(
        f"Error: there is no RayCluster or TrainingJob nothing in namespace {namespace}: it has neither"
    )
