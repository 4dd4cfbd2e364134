"""`raytide why`: what it reads, what it prints, and its exit codes."""

import json
from dataclasses import replace

import click
import pytest
import yaml
from click.testing import CliRunner

import raytide.cli
from raytide.cli.columns import printable
from raytide.cli.why import parse_workload
from raytide.cli.why.render import render
from raytide.client import workload_reader
from raytide.client.workload_reader import AmbiguousError, ReadError, WorkloadReader
from raytide.explain.explain import explain
from raytide.explain.model import RAYCLUSTER, TRAININGJOB, Change, Effect, Field, NodeFacts
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from raytide_sandbox.apiserver.routes import Api
from support.builders import group
from support.explained import (
    AT_MAXIMUM,
    HEAD,
    HOSTILE,
    NOON,
    RAYCLUSTERS,
    SHAPES,
    TRAININGJOBS,
    UNSCHEDULABLE,
    GroupDecision,
    decided,
    hostile,
    of_cluster,
    waiting_worker,
    worker,
)
from support.faults.types import Answer
from support.stored_workloads import api_with, cluster_object, job_object, pod_object, warning

from simulation.in_process_transport import InProcessTransport

pytestmark = pytest.mark.rule("SC:S21")


def printed(objects) -> str:
    """The text without styles."""
    return click.unstyle(render(explain(objects, NOON), "text"))


# --- text ----------------------------------------------------------------------------------------------------------------------


def test_the_text_of_a_cluster_with_two_causes():
    record = decided(cluster=(SHAPES,), cpu=GroupDecision(2, why=(AT_MAXIMUM,)))
    pods = (HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE))
    assert printed(of_cluster(*pods, groups=(group(replicas=2, high=2),), record=record)) == (
        """\
RayCluster default/demo: 1 of 2 workers are ready. 2 requests can never run: {CPU: 1, GPU: 1} x 1, {CPU: 8} x 1 fit no group. \
2 requests wait: group cpu is at maxReplicas 2, and 1 more.

    STAGE      WANTED   FOUND
>   demand                      4 requests of tasks, actors or placement groups have no place
!   decision   2                the autoscaler's decision, unchanged since 2026-01-01T12:00:00Z
    wanted     2                cpu 2
    pods       2        2       1 ready; head ready
!   nodes      2        1       on 1 node; 1 without a node

GROUP   MIN   MAX   WANTED   PODS   READY   REASON
cpu     0     2     2        2      1       MaxReached

Can never run:
> NoFittingGroup (demand, since 2026-01-01T12:00:00Z)
    can never run: {CPU: 1, GPU: 1} x 1, {CPU: 8} x 1 fit no group, whose nodes have at most {CPU: 1, GPU: 0}; add a group with such nodes
    held by: the worker groups in the spec
    fix:     add a worker group with such nodes, or request less per task, actor or bundle

Waits:
  group cpu: MaxReached (decision, since 2026-01-01T12:00:00Z)
    pending: {CPU: 1} x 2; the group is at its maximum of 2: raise maxReplicas
    held by: maxReplicas of group cpu
    fix:     raise maxReplicas of group cpu, or wait until work in it ends
  group cpu: Unschedulable (nodes, since 2026-01-01T12:00:00Z)
    0/3 nodes are available: 3 Insufficient cpu.
    held by: free cpu on the nodes
    fix:     add nodes with free cpu, lower the request, or end pods that use it

POD NOT READY           PHASE     NODE   REASON          MESSAGE
demo-cpu-worker-00001   Pending   -      Unschedulable   0/3 nodes are available: 3 Insufficient cpu.

Notes:
  group cpu is at maxReplicas 2"""
    )


def test_the_text_of_a_cluster_that_lacks_nothing():
    assert printed(of_cluster(HEAD, worker(0), worker(1))) == (
        """\
RayCluster default/demo: 2 of 2 workers are ready.

    STAGE      WANTED   FOUND
    demand                      not autoscaled: replicas of the spec are the demand
    decision   2                replicas of the spec
    wanted     2                cpu 2
    pods       2        2       2 ready; head ready
    nodes      2        2       on 1 node"""
    )


def test_the_text_of_a_job_that_waits_for_another_one():
    assert printed(TRAININGJOBS["a job of higher priority holds the capacity"]().objects) == (
        """\
TrainingJob default/demo: 0 of 2 trainers run, its bounds are 2 to 4. \
Waits: HigherPriority (needs 1 cpu to reach its minimum of 2, held by default/big, which has a higher priority).

    STAGE      WANTED   FOUND
    demand     4                2 to 4 trainers
>   decision   0                not admitted by the sharing pass
    wanted     0                trainer 0
    pods       0        0       0 ready
    nodes      0        0       on 0 nodes

GROUP     MIN   MAX   WANTED   PODS   READY   REASON
trainer   2     4     0        0      0       HigherPriority

Waits:
> HigherPriority (decision, since 2026-01-01T00:00:00Z)
    needs 1 cpu to reach its minimum of 2, held by default/big, which has a higher priority
    held by: default/big
    fix:     set a higher priorityClassName, or wait until that job ends

Notes:
  Fair sharing, sentence 6: No job shrinks below its minimum, in its cooldown, for a lower priority, for `preemptionPolicy: Never`, or \
for pods that have scheduling gates or got no node within the last hour."""
    )


def test_changes_that_would_help_are_printed_with_their_commands():
    effects = (Effect(TRAININGJOB, "default", "demo", 0, 4), Effect(RAYCLUSTER, "ml", "rl", 3, 2))
    changes = (
        Change(RAYCLUSTER, "ml", "rl", Field.REPLICAS, 3, 2, "gpu", effects=effects),
        Change(TRAININGJOB, "default", "demo", Field.MIN_INSTANCE, 4, 3, effects=(replace(effects[0], having=3),)),
    )
    found = replace(explain(TRAININGJOBS["no node has a free GPU"]().objects, NOON), changes=changes)
    assert click.unstyle(render(found, "text")).split("\n\n")[-2] == (
        """\
Fixes, each found by a simulation:
  - scale group gpu of RayCluster ml/rl from 3 to 2: then default/demo has 4 trainers, ml/rl 2 instead of 3
    $ raytide scale raycluster/rl gpu=2 -n ml
  - lower min-instance from 4 to 3: then default/demo has 3 trainers
    $ kubectl patch trainingjob demo -n default --type merge -p '{"spec":{"trainer":{"min-instance":3}}}'"""
    )


@pytest.mark.parametrize("make", [*RAYCLUSTERS.values(), *TRAININGJOBS.values()])
def test_the_first_blocker_is_marked_once_in_the_list(make):
    text = printed(make().objects)
    assert len([line for line in text.splitlines() if line.startswith("> ") and "   " not in line]) == 1


def test_yaml_has_what_json_has():
    explanation = RAYCLUSTERS["a quota is used up"]().explained()
    assert yaml.safe_load(render(explanation, "yaml")) == json.loads(render(explanation, "json"))


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_no_code_of_an_object_reaches_the_terminal(output):
    shown = click.unstyle(render(explain(hostile(), NOON), output))
    assert "cod.exe" in shown
    assert not [character for character in shown if character != "\n" and not character.isprintable()]
    if output == "text":
        assert all("kind:" not in line[:8] for line in shown.splitlines()), "no line of its own"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("né → 日本", "né → 日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\tc", "a  b c"),
        ("\x9b\x7f", "\\x9b\\x7f"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_printable(text, expected):
    assert printable(text) == expected


# --- arguments and exit codes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("demo",), ("", "demo")),
        (("raycluster/demo",), (RAYCLUSTER, "demo")),
        (("rayclusters.ray.io/demo",), (RAYCLUSTER, "demo")),
        (("RayCluster", "demo"), (RAYCLUSTER, "demo")),
        (("tj/demo",), (TRAININGJOB, "demo")),
        (("rc/demo",), (RAYCLUSTER, "demo")),
        (("trainingjobs", "demo"), (TRAININGJOB, "demo")),
    ],
)
def test_the_workload_is_named_as_for_kubectl(words, expected):
    assert parse_workload(words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing argument"),
        (("pod/demo",), "'pod' is no kind that Raytide manages: use raycluster/demo or trainingjob/demo"),
        (("a/b/c",), "is not [KIND/]NAME"),
        (("raycluster/",), "is not [KIND/]NAME"),
        (("a", "b", "c"), "is not [KIND/]NAME"),
        (("../../secrets",), "is not [KIND/]NAME"),
        (("Demo",), "the name: 'Demo' is not a name in Kubernetes"),
        (("a,b=c",), "is not a name in Kubernetes"),
        (("a\x1b[31m",), "the name: 'a\\\\x1b[31m' is not a name in Kubernetes"),
        (("demo", "-n", "x/y"), "--namespace: 'x/y' is not a name in Kubernetes"),
        (("demo", "-o", "tall"), "Invalid value for '-o'"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(words, message):
    result = CliRunner().invoke(raytide.cli.main, ["why", *words])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_without_a_cluster_it_ends_with_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    result = CliRunner().invoke(raytide.cli.main, ["why", "demo"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"), [("all workers are ready", 0), ("a quota is used up", 3), ("the demand fits no group", 4)]
)
def test_the_exit_code_is_that_of_the_verdict(words, code, monkeypatch):
    objects = of_cluster(HEAD, worker(0), worker(1)) if code == 0 else RAYCLUSTERS[words]().objects

    async def explained(*_):
        return explain(objects, NOON)

    monkeypatch.setattr("raytide.cli.why._explanation", explained)
    result = CliRunner().invoke(raytide.cli.main, ["why", "demo", "-o", "json"])
    assert (result.exit_code, json.loads(result.output)["exitCode"]) == (code, code)


# --- reading ---------------------------------------------------------------------------------------------------------------


def reader(api: Api, *, forbidden: str = "", asked: list | None = None) -> WorkloadReader:
    """With the rights to everything but one kind."""
    wire = InProcessTransport(api)

    def admission(request):
        is_meant = forbidden and forbidden in request.path.split("/")
        return Answer(403, "Forbidden") if is_meant else None

    wire.admission = admission
    if asked is not None:
        wire.on_request = lambda request: asked.append(request.path)
    return WorkloadReader(Client(wire, clock=Clock()), "default")


@pytest.mark.looptime
async def test_without_a_kind_both_are_looked_at():
    for made, kind in ((cluster_object(), RAYCLUSTER), (job_object(), TRAININGJOB)):
        assert (await reader(api_with(made)).read("", "demo")).kind == kind


@pytest.mark.looptime
async def test_if_both_exist_the_kind_has_to_be_named():
    api = api_with(cluster_object(), job_object())
    with pytest.raises(AmbiguousError) as caught:
        await reader(api).read("", "demo")
    assert str(caught.value) == (
        "RayCluster default/demo and TrainingJob default/demo exist: name one, such as raycluster/demo"
    )
    assert (await reader(api).read(TRAININGJOB, "demo")).kind == TRAININGJOB


@pytest.mark.looptime
async def test_if_it_does_not_exist_the_error_names_what_does():
    with pytest.raises(ReadError) as caught:
        await reader(api_with(cluster_object("a"), cluster_object("b"), job_object("c"))).read("", "demo")
    assert str(caught.value) == (
        "there is no RayCluster or TrainingJob demo in namespace default: there are RayCluster a, b and TrainingJob c"
    )


@pytest.mark.looptime
@pytest.mark.parametrize("status", [403, 404, 500], ids=["forbidden", "no such object or kind", "no usable response"])
@pytest.mark.parametrize(
    ("kind", "plural"), [(TRAININGJOB, "rayclusters"), (RAYCLUSTER, "trainingjobs")], ids=["TrainingJob", "RayCluster"]
)
async def test_the_error_is_the_same_if_the_object_of_the_other_kind_cannot_be_read(kind, plural, status):
    wire = InProcessTransport(api_with(cluster_object("a"), job_object("b")))
    wire.admission = lambda request: Answer(status) if request.path.endswith(f"/{plural}/demo") else None
    with pytest.raises(ReadError) as caught:
        await WorkloadReader(Client(wire, clock=Clock()), "default").find(kind, "demo")
    assert str(caught.value) == (
        f"there is no {kind} demo in namespace default: there are RayCluster a and TrainingJob b"
    )


@pytest.mark.looptime
async def test_the_error_names_the_objects_of_a_kind_if_the_other_is_forbidden():
    with pytest.raises(ReadError) as caught:
        await reader(api_with(cluster_object(), job_object("b")), forbidden="rayclusters").find(TRAININGJOB, "demo")
    assert str(caught.value) == "there is no TrainingJob demo in namespace default: there are TrainingJob b"


@pytest.mark.looptime
async def test_the_names_in_an_error_are_bounded():
    with pytest.raises(ReadError) as caught:
        await reader(api_with(*(cluster_object(f"a{i:02}") for i in range(30)))).read(RAYCLUSTER, "demo")
    assert str(caught.value).endswith("there are RayCluster a00, a01, a02, a03, a04, a05, a06, a07, a08, a09 …")


@pytest.mark.looptime
async def test_in_an_empty_namespace_the_error_says_so():
    with pytest.raises(ReadError, match="it has neither RayClusters nor TrainingJobs that you may list"):
        await reader(api_with()).read("", "demo")


@pytest.mark.looptime
async def test_pods_nodes_gates_and_events_are_read():
    gated = pod_object("demo-cpu-worker-g")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    gated["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
    }
    lost = pod_object("demo-cpu-worker-l", node="n1", phase="Running")
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }  # fmt: skip
    gone = pod_object("demo-cpu-worker-x", node="n2", phase="Running")
    api = api_with(
        cluster_object(), gated, lost, gone, pod_object("other", labels={}), node,
        warning("demo.1", "RayCluster", "demo", "no pods"), warning("other.1", "RayCluster", "other", "not its own"),
        warning("pod.1", "Pod", "demo-cpu-worker-l", "node is lost"),
    )  # fmt: skip
    found = await reader(api).read("", "demo")
    assert sorted(pod.name for pod in found.pods) == ["demo-cpu-worker-g", "demo-cpu-worker-l", "demo-cpu-worker-x"]
    gates = {pod.name: pod.scheduling_gates for pod in found.pods if pod.scheduling_gates}
    assert gates == {"demo-cpu-worker-g": ("kueue.x-k8s.io/admission",)}
    assert found.nodes == {"n1": NodeFacts(is_ready=False), "n2": NodeFacts(is_ready=False, exists=False)}
    assert sorted((each.about, each.message, each.count) for each in found.events) == [
        ("", "no pods", 3),
        ("demo-cpu-worker-l", "node is lost", 3),
    ]
    assert found.unreadable == ()


@pytest.mark.looptime
async def test_events_that_repeat_a_condition_are_not_shown_beside_it():
    api = api_with(
        cluster_object(),
        warning("a", "RayCluster", "demo", "1 of 2 workers not ready", reason="WorkersMissing", minute=1),
        warning("c", "RayCluster", "demo", "of group cpu", minute=3),
        warning("d", "RayCluster", "demo", "of group gpu", minute=4),
    )
    found = await reader(api).read("", "demo")
    assert [each.message for each in found.events] == ["of group gpu", "of group cpu"]


@pytest.mark.looptime
@pytest.mark.parametrize("plural", ["pods", "nodes", "events"])
async def test_what_may_not_be_read_is_named_once_and_the_rest_still_answers(plural):
    api = api_with(cluster_object(), pod_object("demo-cpu-worker-l", node="n1", phase="Running"))
    found = await reader(api, forbidden=plural).read("", "demo")
    assert [each.what for each in found.unreadable] == [plural]
    text = click.unstyle(render(explain(found, NOON), "text"))
    assert f"Not read:\n  {plural} cannot be read: on purpose" in text
    assert (found.pods is None) is (plural == "pods")


@pytest.mark.looptime
async def test_a_kind_that_may_not_be_read_is_named_if_the_other_has_the_object():
    found = await reader(api_with(cluster_object(), job_object("x")), forbidden="trainingjobs").read("", "demo")
    assert [each.what for each in found.unreadable] == [TRAININGJOB]


@pytest.mark.looptime
async def test_a_workload_that_may_not_be_read_is_an_error():
    with pytest.raises(ReadError, match="RayCluster default/demo cannot be read: on purpose"):
        await reader(api_with(cluster_object()), forbidden="rayclusters").read(RAYCLUSTER, "demo")


@pytest.mark.looptime
async def test_the_number_of_requests_does_not_depend_on_the_namespace():
    pods = [pod_object(f"demo-cpu-worker-{i:03}", node=f"n{i}", phase="Running") for i in range(50)]
    asked = []
    await reader(api_with(*(cluster_object(f"x{i}") for i in range(50)), cluster_object(), *pods), asked=asked).read(
        "", "demo"
    )
    assert len(asked) == 2 + 2 + workload_reader.MAX_NODES + workload_reader.MAX_PODS_WITH_EVENTS
    assert "/apis/ray.io/v1/namespaces/default/rayclusters" not in asked


@pytest.mark.looptime
async def test_no_more_pods_are_read_than_the_limit(monkeypatch):
    monkeypatch.setattr(workload_reader, "MAX_PODS", 5)
    monkeypatch.setattr(
        "raytide.kube.client.Client.pages.__kwdefaults__", {**Client.pages.__kwdefaults__, "page_size": 5}
    )
    pods = [pod_object(f"demo-cpu-worker-{i:03}") for i in range(12)]
    found = await reader(api_with(cluster_object(), *pods)).read("", "demo")
    assert len(found.pods) == 5
    assert [each.error for each in found.unreadable] == ["only the first 5 pods were read"]


def test_the_hostile_text_is_hostile():
    assert printable(HOSTILE) != HOSTILE
