"""`raytide why` beside the real operator: what it says is what the conditions say, on the embedded API and on a real one.

The commands have the kubeconfig of the cluster. `CAUSES` are the eight of SC:S21: each is made, the command,
the condition, the event and the page have to name the same cause, holder and fix, and the condition has to clear after the
fix. The operator runs with --state-tracks-readiness, so that `state` follows the workers.
"""

import asyncio
import json
import os
import pty
import re
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import click
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from click.testing import CliRunner

from integration.cluster_under_test import RAYCLUSTERS, READY, TRAININGJOBS, path_of
from integration.clusters import APIS, cluster_with_operator
from integration.embedded_cluster import PATIENCE_S, until
from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide.cli import main
from raytide.diagnosis.model import Diagnosis
from support.builders import group, raycluster, template
from support.terminal import accept_ctrl_c
from support.training_builders import trainingjob

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("SC:S21")]

UNSCHEDULABLE = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu.",
}  # fmt: skip
GATED = {
    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
}  # fmt: skip
RUNNING = {"ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
NO_IMAGE = {"ready": False, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("operator")
    async with cluster_with_operator(request, folder, "--state-tracks-readiness") as cluster:
        yield cluster


@asynccontextmanager
async def page_of(cluster, namespace):
    """A session with `raytide ui` of that namespace, which runs as a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "ui", "-n", namespace, "--port", "0", "--kubeconfig", str(cluster.kubeconfig),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=accept_ctrl_c,
    )  # fmt: skip
    line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode()
    shown, site, token = re.fullmatch(
        r"showing namespace (\S+) at (http://127\.0\.0\.1:\d+)/#token=(\S+)\n", line
    ).groups()
    assert shown == namespace
    async with ClientSession(site, headers={"Authorization": f"Bearer {token}"}) as session:
        yield session
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, err.decode()) == (0, "the address contains a token: it gives others your rights to read; Ctrl-C ends it\n\n")  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(cluster):
    async with page_of(cluster, "default") as session:
        yield session


@pytest.fixture
def namespace(request):
    name = request.node.originalname.replace("_", "-").replace("test-", "")[:40].rstrip("-")
    return f"{name}-{secrets.token_hex(2)}"


async def why(cluster, namespace, name="demo", *words):
    """Exit code and answer of `raytide why -o json`, in a thread: a process of its own would import the package each time."""
    command = ["why", name, "-n", namespace, "-o", "json", "--kubeconfig", str(cluster.kubeconfig), *words]
    result = await asyncio.wait_for(asyncio.to_thread(CliRunner().invoke, main, command), PATIENCE_S)
    assert result.exit_code in (0, 3, 4), result.stderr
    return result.exit_code, json.loads(result.stdout)


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


# --- the eight causes of SC:S21 -----------------------------------------------------------------------------------------------


async def more_workers(cluster, namespace):
    """A cluster that runs gets a second worker; returns the name of its pod. No scheduler considers it but the test."""
    await running(cluster, namespace, group(replicas=1, template=template("ray-worker", schedulerName="test")))
    cluster.scale(namespace, "demo", 2)
    await until("two workers", lambda: len(cluster.names(namespace, "cpu")) == 2)
    (name,) = [p["metadata"]["name"] for p in cluster.pods(namespace, "cpu") if p["status"].get("phase") != "Running"]
    return name


async def unschedulable(cluster, namespace):
    """kube-scheduler finds no node for a worker, although one is large enough for it."""
    cluster.add_node(f"large-{namespace}", cpu="64", memory="256Gi")
    name = await more_workers(cluster, namespace)
    cluster.set_pod_status(namespace, name, phase="Pending", conditions=[UNSCHEDULABLE])


async def with_node(cluster, namespace):
    """There is a node for it."""
    cluster.make_ready(namespace)
    cluster.request("DELETE", path_of("nodes", "", f"large-{namespace}"))


async def gated(cluster, namespace):
    """A worker has a scheduling gate."""
    pods = template("ray-worker", schedulingGates=[{"name": "example.com/gate"}])
    cluster.apply(raycluster(group(replicas=1, template=pods), namespace=namespace))
    await until("both pods exist", lambda: len(cluster.names(namespace)) == 2)
    (worker,) = cluster.pods(namespace, "cpu")
    cluster.set_pod_status(namespace, worker["metadata"]["name"], phase="Pending", conditions=[GATED])
    become_ready(cluster, namespace, "headgroup")


async def without_gates(cluster, namespace):
    """Its controller removes the gate."""
    (worker,) = cluster.pods(namespace, "cpu")
    cluster.edit(namespace, worker["metadata"]["name"], lambda pod: pod["spec"].pop("schedulingGates"), "pods")
    cluster.make_ready(namespace)


async def without_image(cluster, namespace):
    """The kubelet cannot pull the image of a worker."""
    name = await more_workers(cluster, namespace)
    cluster.bind(namespace, name, "n0")
    status = [{"name": "ray-worker", "image": "x", "imageID": "", "restartCount": 0, **NO_IMAGE}]
    cluster.set_pod_status(namespace, name, phase="Pending", containerStatuses=status)


async def with_image(cluster, namespace):
    """The kubelet has pulled it."""
    for pod in cluster.pods(namespace, "cpu"):
        status = [{"name": "ray-worker", "image": "x", "imageID": "", "restartCount": 0, **RUNNING}]
        name = pod["metadata"]["name"]
        cluster.set_pod_status(namespace, name, phase="Running", conditions=READY, containerStatuses=status)


async def without_quota(cluster, namespace):
    """The namespace has no quota for workers."""
    cluster.ensure_namespace(namespace)
    low_priority = cluster.without_quota(namespace)
    pods = template("ray-worker", priorityClassName=low_priority)
    cluster.apply(raycluster(group(replicas=1, template=pods), namespace=namespace))
    await until("the head exists", lambda: cluster.names(namespace, "headgroup"))
    cluster.make_ready(namespace)


async def with_quota(cluster, namespace):
    """It gets one."""
    cluster.give_quota(namespace)
    await until("the worker exists", lambda: cluster.names(namespace, "cpu"))
    cluster.make_ready(namespace)


def limited(*whys, **of_cluster):
    """The autoscaler's record limits the group `cpu`, or the whole cluster."""

    async def make(cluster, namespace):
        await running(cluster, namespace, group(replicas=1, high=1), enableInTreeAutoscaling=True)
        decide(cluster, namespace, replace(AGREED, groups={"cpu": GroupDecision(1, why=whys)}, **of_cluster))

    return make


async def unlimited(cluster, namespace):
    """It has no reason any more."""
    decide(cluster, namespace, AGREED)


async def contended(cluster, namespace):
    """Argo CD writes another number of workers than the autoscaler."""
    await running(cluster, namespace, group(replicas=1, high=3), enableInTreeAutoscaling=True)
    decide(cluster, namespace, replace(AGREED, groups={"cpu": GroupDecision(1, adopted_replicas=2)}))
    write_as_argocd(cluster, namespace, 2)


async def agreed(cluster, namespace):
    """It writes the autoscaler's number."""
    write_as_argocd(cluster, namespace, 1)


def write_as_argocd(cluster, namespace, replicas):
    """Change `replicas` as another client."""
    body = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
    path = path_of(RAYCLUSTERS, namespace, "demo")
    cluster.done("PATCH", path, body, content_type="application/json-patch+json", fieldManager="argocd")


AGREED = DecisionRecord("", "", groups={"cpu": GroupDecision(1)})


def decide(cluster, namespace, record):
    """The autoscaler runs in the head pod and writes this record."""
    (head,) = cluster.pods(namespace, "headgroup")
    statuses = [
        {"name": container["name"], "image": "x", "imageID": "", "restartCount": 0, **RUNNING}
        for container in head["spec"]["containers"]
    ]
    cluster.set_pod_status(namespace, head["metadata"]["name"], containerStatuses=statuses)
    uid = cluster.get(RAYCLUSTERS, namespace, "demo")["metadata"]["uid"]
    text = encode_record(replace(record, cluster=uid, head=head["metadata"]["uid"]))
    body = {"metadata": {"annotations": {constants.AUTOSCALER_DECISION_ANNOTATION: text}}}
    cluster.done("PATCH", path_of(RAYCLUSTERS, namespace, "demo"), body, content_type="application/merge-patch+json")


def become_ready(cluster, namespace, group_name):
    """The pods of that group run."""
    for pod in cluster.pods(namespace, group_name):
        name = pod["metadata"]["name"]
        cluster.bind(namespace, name, getattr(cluster, "node", "n0"))
        cluster.set_pod_status(namespace, name, phase="Running", conditions=READY)


@dataclass(frozen=True)
class Cause:
    """How a cause comes about, what has to be said about it, and what removes it."""

    make: Callable[..., Awaitable[None]]
    remove: Callable[..., Awaitable[None]]
    condition: str
    reason: str
    stage: str
    holder: str
    """Its beginning."""
    fix: str
    """A part of it."""
    group: str = "cpu"
    exit_code: int = 3


AT_MAXIMUM = Diagnosis("MaxReached", 2).having(shapes="{CPU: 1} x 2", maximum="1")
FITS_NOWHERE = Diagnosis("NoFittingGroup", 1).having(shapes="{TPU: 1} x 1", most="{TPU: 0}")
NO_GCS = Diagnosis("HeadDown", 1, "the GCS does not respond")
MISSING, LIMITED = constants.WORKERS_MISSING, constants.SCALING_LIMITED
CAUSES = {
    "a group is at its maximum": Cause(
        limited(AT_MAXIMUM), unlimited, LIMITED, "MaxReached", "decision", "maxReplicas of group cpu", "raise maxReplicas"
    ),
    "a quota is used up": Cause(
        without_quota, with_quota, MISSING, "QuotaExceeded", "pods", "ResourceQuota ", "raise ResourceQuota "
    ),
    "no node has enough CPUs": Cause(
        unschedulable, with_node, MISSING, "Unschedulable", "nodes", "free cpu on the nodes", "add nodes with free cpu"
    ),
    "a scheduling gate is set": Cause(
        gated, without_gates, MISSING, "SchedulingGated", "nodes", "the controller of scheduling gate example.com/gate", "removes the gate"
    ),
    "an image cannot be pulled": Cause(
        without_image, with_image, MISSING, "ImagePullFailed", "pods", "the image of ray-worker", "check name and tag"
    ),
    "the demand fits no group": Cause(
        limited(why=(FITS_NOWHERE,)), unlimited, LIMITED, "NoFittingGroup", "demand", "the worker groups in the spec", "add a worker group", "", 4
    ),
    "Ray's head node is down": Cause(
        limited(why=(NO_GCS,)), unlimited, LIMITED, "HeadDown", "decision", "the head pod", "kubectl logs demo-head-", ""
    ),
    "another client writes replicas": Cause(
        contended, agreed, constants.REPLICAS_CONTENDED, "ReplicasRewritten", "decision", "argocd, which also writes replicas", "stop that client", ""
    ),
}  # fmt: skip


@pytest.mark.rule("SC:S4")
@pytest.mark.parametrize("words", CAUSES)
async def test_why_the_condition_the_event_and_the_page_name_the_same_cause_holder_and_cure(
    cluster, page, namespace, words
):
    cause = CAUSES[words]

    def condition():
        found = cluster.condition(namespace, "demo", cause.condition)
        return found if (found.get("reason"), found.get("status")) == (cause.reason, "True") else None

    await cause.make(cluster, namespace)
    reported = await until(f"{cause.condition} says {cause.reason}", condition)
    answer = await explained(cluster, namespace, cause.reason)
    first = answer["blockers"][0]
    assert (first["stage"], first["group"], answer["exitCode"]) == (cause.stage, cause.group, cause.exit_code)
    assert first["holder"].startswith(cause.holder)
    assert cause.fix in first["cure"]
    assert first["since"] == reported["lastTransitionTime"]
    holder, _, _users = first["holder"].partition("; in its namespace ")  # those of a quota, which only a caller lists
    fix = f"held by: {holder}; fix: {first['cure']}"
    for part in (first["message"], fix):
        assert part in reported["message"]
    (note,) = await until("there is an event", lambda: cluster.notes(namespace, cause.condition))
    for part in (first["message"], fix):
        assert part in note
    async with page.get(f"/api/why/RayCluster/{namespace}/demo") as shown:
        assert (await shown.json())["blockers"] == answer["blockers"]
    await cause.remove(cluster, namespace)
    await until("the condition has cleared", lambda: not cluster.condition(namespace, "demo", cause.condition))
    assert (await why(cluster, namespace))[0] == 0


async def test_state_leaves_ready_when_a_worker_is_missing_for_30_seconds(cluster, namespace):
    await unschedulable(cluster, namespace)
    await until("it is reported", lambda: cluster.condition(namespace, "demo", constants.WORKERS_MISSING))
    assert cluster.status(namespace, "demo")["state"] == "ready"
    await until("it is not ready", lambda: cluster.status(namespace, "demo").get("state") != "ready")
    cluster.make_ready(namespace)
    await until("it is ready again", lambda: cluster.status(namespace, "demo").get("state") == "ready")


async def test_demand_that_fits_no_group_and_a_group_at_its_maximum(cluster, namespace):
    await running(cluster, namespace, group(replicas=1, high=1), enableInTreeAutoscaling=True)
    decide(
        cluster, namespace, replace(AGREED, groups={"cpu": GroupDecision(1, why=(AT_MAXIMUM,))}, why=(FITS_NOWHERE,))
    )
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
    assert waiting()["message"] == f"{first['message']}; held by: {first['holder']}; fix: {first['cure']}"
    assert first["since"] == waiting()["lastTransitionTime"]
    cluster.delete(namespace, "demo", TRAININGJOBS)


async def top(cluster, namespace, *words, output=asyncio.subprocess.PIPE, **environ):
    """`raytide top` as a process."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "top", "-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "--interval", "0.2", *words,
        stdout=output, stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
        preexec_fn=accept_ctrl_c,
    )  # fmt: skip


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
    async with page_of(cluster, namespace) as session:

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


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        (
            ("why", "tj/demo", "-n", "{}"),
            1,
            "there is no TrainingJob demo in namespace {}: it is a RayCluster; use raycluster/demo",
        ),
        (
            ("scale", "tj/demo", "2", "-n", "{}"),
            1,
            "there is no TrainingJob demo in namespace {}: it is a RayCluster; use raycluster/demo",
        ),
        (
            ("why", "raycluster/job", "-n", "{}"),
            1,
            "there is no RayCluster job in namespace {}: it is a TrainingJob; use trainingjob/job",
        ),
    ],
    ids=["why", "scale", "why of a TrainingJob"],
)
async def test_a_command_for_one_kind_names_the_other(cluster, namespace, words, code, answer):
    cluster.apply(raycluster(group("cpu", 0), name="demo", namespace=namespace))
    cluster.create(TRAININGJOBS, trainingjob(name="job", namespace=namespace, trainer={"entrypoint": "true"}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", *(word.format(namespace) for word in words),
        "--kubeconfig", str(cluster.kubeconfig), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, out) == (code, b"")
    assert err.decode().endswith(f"Error: {answer.replace('{}', namespace)}\n")


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
