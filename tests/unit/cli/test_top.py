"""`raytide top`: lanes, their order, plain lines, and what a terminal shows."""

import io
import itertools
import json
from dataclasses import replace

import click
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

import raytide.cli
from raytide.cli.top import render
from raytide.cli.top.lanes import read_once
from raytide.client.workload_reader import ReadError
from raytide.explain.model import Phase, Size, Verdict
from raytide.explain.overview import GroupSize, Lane, in_order, lane_of
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from support.builders import group, pod
from support.explained import (
    HEAD,
    HOSTILE,
    NOON,
    RAYCLUSTERS,
    TRAININGJOBS,
    UNSCHEDULABLE,
    hostile,
    of_cluster,
    waiting_worker,
    worker,
)
from support.faults.types import Answer
from support.stored_workloads import api_with, cluster_object, job_object

from simulation.in_process_transport import InProcessTransport

pytestmark = pytest.mark.rule("SC:S21")

READY = Lane("RayCluster", "default", "ready", 2, 2, Verdict.NOTHING_MISSING)
WAITS = Lane("TrainingJob", "text", "bert", 8, 3, Verdict.WAITS, "InsufficientGPU", "needs 1 GPU", 0)
NEVER = Lane(
    "RayCluster", "vision", "big", 4, 0, Verdict.CAN_NEVER_RUN, "NoFittingGroup", "{CPU: 8} x 1 fit no group", 2
)


def drawn(lanes, errors=(), *, width=100, lines=20, has_namespaces=True) -> str:
    console = Console(file=io.StringIO(), width=width, height=40, color_system=None, legacy_windows=False)
    console.print(render.drawn(list(lanes), list(errors), lines=lines, has_namespaces=has_namespaces, width=width))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


# --- lanes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["a quota is used up", "an image cannot be pulled", "it is suspended", "the demand fits no group"]
)
def test_a_lane_has_the_first_reason_of_the_explanation_without_pods(words):
    case = RAYCLUSTERS[words]()
    lane = lane_of("RayCluster", case.objects.obj, NOON)
    assert (lane.name, lane.reason, lane.verdict.exit_code) == ("demo", case.reason, case.exit_code)


def test_a_lane_of_a_job():
    case = TRAININGJOBS["a trainer's image cannot be pulled"]()
    lane = lane_of("TrainingJob", case.objects.obj, NOON)
    assert (lane.reason, lane.wanted, lane.ready, lane.verdict) == ("ImagePullFailed", 2, 0, Verdict.WAITS)


def test_a_lane_of_a_cluster_that_lacks_nothing():
    lane = lane_of("RayCluster", of_cluster(HEAD, worker(0), worker(1)).obj, NOON)
    assert lane == Lane(
        "RayCluster", "default", "demo", 2, 2, Verdict.NOTHING_MISSING, uid=lane.uid, size=Size(2, 2, 2)
    )


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("TrainingJob", {"priorityClassName": "high"}, "high"),
        ("RayCluster", {"headGroupSpec": {"template": {"spec": {"priorityClassName": "high"}}}}, "high"),
        ("RayCluster", {"headGroupSpec": {"template": []}}, ""),
        ("TrainingJob", {"priorityClassName": ["high"]}, ""),
        ("TrainingJob", None, ""),
    ],
)
def test_a_lane_has_the_priority_class_of_its_pods(kind, spec, expected):
    obj = {"apiVersion": "x/v1", "kind": kind, "metadata": {"namespace": "default", "name": "x"}, "spec": spec}
    assert lane_of(kind, obj, NOON).priority == expected


def test_a_lane_has_the_groups_of_a_cluster_with_several():
    pods = (HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE), pod("demo-gpu-worker-00000", group="gpu"))
    both = of_cluster(*pods, groups=(group("cpu", 2), group("gpu", 1))).obj
    assert lane_of("RayCluster", both, NOON).groups == (
        GroupSize("cpu", 2, 1, "Unschedulable"),
        GroupSize("gpu", 1, 1),
    )
    assert lane_of("RayCluster", of_cluster(HEAD, worker(0), groups=(group("cpu", 2),)).obj, NOON).groups == ()


def test_what_can_never_run_comes_first():
    for lanes in itertools.permutations((READY, WAITS, NEVER)):
        assert in_order(lanes) == [NEVER, WAITS, READY]


# --- text ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ready", "wanted", "expected"),
    [
        (0, 0, "····"),
        (0, 4, "░░░░"),
        (2, 4, "██░░"),
        (4, 4, "████"),
        (9, 4, "████"),
        (1, 1000, "█░░░"),
        (999, 1000, "███░"),
        (3, 0, "████"),
    ],
)
def test_a_bar_shows_a_part_of_each_that_there_is(ready, wanted, expected):
    assert render.bar(Lane("RayCluster", "n", "x", wanted, ready, Verdict.WAITS), 4) == expected


def test_plain_lines():
    assert render.once_as("table", [NEVER, WAITS, READY], has_namespaces=True) == (
        """\
KIND          NAMESPACE   NAME    READY   WANTED   STATE           REASON
RayCluster    vision      big     0       4        can never run   NoFittingGroup: {CPU: 8} x 1 fit no group (and 2 more)
TrainingJob   text        bert    3       8        waits           InsufficientGPU: needs 1 GPU
RayCluster    default     ready   2       2        -               -"""
    )


@pytest.mark.rule("FD:UX3-2", "FD:UX3-6")
@pytest.mark.parametrize(
    ("size", "cells"),
    [
        (Size(phase=Phase.SUCCEEDED, needed=4), ("-", "-", "succeeded")),
        (Size(phase=Phase.FAILED), ("-", "-", "failed")),
        (Size(phase=Phase.SUSPENDED, needed=4), ("0", "(4)", "suspended")),
        (Size(needed=4), ("0", "4", "-")),
    ],
)
def test_a_workload_that_does_not_run_has_its_phase(size, cells):
    lane = Lane("TrainingJob", "text", "bert", size.needed, 0, Verdict.NOTHING_MISSING, size=size)
    assert render.row(lane, has_namespaces=False)[2:5] == cells


@pytest.mark.rule("FD:UX3-2")
def test_the_lane_of_a_gang_that_waits_wants_its_minimum():
    lane = lane_of("TrainingJob", TRAININGJOBS["no node has enough free resources"]().objects.obj, NOON)
    assert (lane.ready, lane.wanted, lane.size.maximum) == (0, 2, 4)


def test_without_workloads_it_says_so():
    assert render.once_as("table", [], has_namespaces=True) == "there are neither RayClusters nor TrainingJobs"


def test_for_programs():
    answer = json.loads(render.once_as("json", [WAITS], has_namespaces=True))
    assert answer == yaml.safe_load(render.once_as("yaml", [WAITS], has_namespaces=True))
    assert (answer["apiVersion"], answer["kind"]) == ("raytide.io/v1alpha1", "Overview")
    assert answer["items"] == [
        {
            "kind": "TrainingJob", "namespace": "text", "name": "bert", "wanted": 8, "ready": 3, "verdict": "Waits",
            "reason": "InsufficientGPU", "message": "needs 1 GPU", "more": 0, "needed": 0, "maximum": None, "phase": "", "phaseSince": None, "priority": "",
        }
    ]  # fmt: skip


def test_a_terminal_shows_a_lane_per_workload():
    assert drawn([NEVER, WAITS, READY], ["TrainingJob: forbidden"]) == (
        """\
WORKLOAD       READY OF WANTED            REASON
vision/big     ░░░░░░░░░░░░░░░░░░░░  0/4  NoFittingGroup: {CPU: 8} x 1 fit no group (and 2 more)
text/bert      ███████░░░░░░░░░░░░░  3/8  InsufficientGPU: needs 1 GPU
default/ready  ████████████████████  2/2
3 workloads: 1 waits, 1 can never run
not read: TrainingJob: forbidden"""
    )


def test_lanes_that_do_not_fit_are_counted():
    text = drawn([NEVER, WAITS, READY], lines=1)
    assert len(text.splitlines()) == 3
    assert text.endswith("3 workloads: 1 waits, 1 can never run; 2 more do not fit")


def test_a_narrow_terminal_has_one_line_per_lane():
    assert [len(line) <= 60 for line in drawn([NEVER, WAITS], width=60).splitlines()] == [True] * 4


def test_a_long_reason_is_cut_off_and_not_the_name_nor_the_bar():
    lane = replace(WAITS, message="no node has enough CPUs, and that is a long story " * 9)
    line = drawn([lane], width=80).splitlines()[1]
    assert line.startswith(f"{lane.namespace}/{lane.name}  {render.bar(lane)}  {lane.ready}/{lane.wanted}")
    assert line.rstrip().endswith("…")


def test_a_long_name_leaves_room_for_the_reason():
    for width in (100, 240):
        line = drawn([replace(WAITS, name="n" * 200)], width=width).splitlines()[1]
        assert line.index(f"…  {render.bar(WAITS)}") + 1 == max(40, width // 3)
        assert WAITS.reason in line


def test_no_code_and_no_markup_of_an_object_reaches_the_terminal():
    lane = lane_of("RayCluster", hostile().obj, NOON)
    marked = Lane("RayCluster", "n", "[red]x[/red]", 1, 0, Verdict.WAITS, "[link=http://x]", ":skull: [bold]")
    for text in (
        drawn([lane, marked], [HOSTILE], width=500),
        render.once_as("table", [lane, marked], has_namespaces=True),
    ):
        assert not [character for character in text if character != "\n" and not character.isprintable()]
        assert "[red]x[/red]" in text
        assert ":skull: [bold]" in text


def test_without_a_terminal_each_change_is_a_line(capsys):
    screen = render.PlainScreen()
    with screen:
        screen.show([WAITS, READY], [], has_namespaces=False)
        screen.show([READY], ["TrainingJob: forbidden"], has_namespaces=False)
        screen.show([READY, NEVER], ["TrainingJob: forbidden"], has_namespaces=False)
    out, err = capsys.readouterr()
    assert out.splitlines()[3:] == [
        "TrainingJob   bert   deleted",
        "RayCluster   big   0   4   can never run   NoFittingGroup: {CPU: 8} x 1 fit no group (and 2 more)",
    ]
    assert err == "not read: TrainingJob: forbidden\n"


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    assert isinstance(render.screen(is_terminal=True), render.PlainScreen)


def test_a_terminal_is_drawn_in_place():
    console = Console(
        file=io.StringIO(), width=80, height=10, force_terminal=True, color_system=None, legacy_windows=False
    )
    screen = render.TerminalScreen(console)
    with screen:
        screen.show([WAITS] * 30, [], has_namespaces=False)
        text = click.unstyle(console.file.getvalue())
    assert "23 more do not fit" in text
    assert console.file.getvalue().endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the earlier screen are back"


# --- arguments and reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-n", "a", "-A"), "--namespace cannot be combined with --all-namespaces"),
        (("-n", "a/b"), "is not a name in Kubernetes"),
        (("--interval", "0"), "Invalid value for '--interval'"),
        (("-o", "tall"), "Invalid value for '-o'"),
        (("demo",), "unexpected extra argument"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(words, message):
    result = CliRunner().invoke(raytide.cli.main, ["top", *words])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def client(api, *forbidden):
    wire = InProcessTransport(api)
    wire.admission = lambda request: Answer(403, "Forbidden") if request.path.rpartition("/")[2] in forbidden else None
    return Client(wire, clock=Clock())


@pytest.mark.looptime
async def test_both_kinds_are_read():
    lanes, errors = await read_once(client(api_with(cluster_object("a"), job_object("b"))), "default")
    assert ([(lane.kind, lane.name, lane.reason) for lane in lanes], errors) == (
        [("RayCluster", "a", "NotReconciled"), ("TrainingJob", "b", "NotReconciled")],
        [],
    )


@pytest.mark.looptime
async def test_a_kind_that_may_not_be_read_does_not_end_the_other():
    lanes, errors = await read_once(client(api_with(cluster_object("a")), "trainingjobs"), "default")
    assert ([lane.name for lane in lanes], errors) == (["a"], ["trainingjobs cannot be listed: on purpose"])


@pytest.mark.looptime
async def test_without_the_rights_for_both_it_is_an_error():
    with pytest.raises(ReadError, match="rayclusters and trainingjobs cannot be listed: on purpose"):
        await read_once(client(api_with(), "rayclusters", "trainingjobs"), "default")
