"""Arguments and output of `raytide scale`; what it writes is tested beside the operator in tests/integration/test_client.py."""

import asyncio
import json
from contextlib import asynccontextmanager

import click
import pytest
import yaml
from click.testing import CliRunner

import raytide.cli
from raytide.cli.scale import Scaled, bounds_exceeded, controlled_by, parse_sizes
from raytide.client import workload_reader, workloads
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from support import virtual_time
from support.faults.types import Answer
from support.stored_workloads import api_with, cluster_object, job_object

from simulation.in_process_transport import InProcessTransport


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        pytest.param(("3",), 3, id="a number"),
        pytest.param(("gpu=2",), {"gpu": 2}, id="a group"),
        pytest.param(("gpu=2", "cpu=0"), {"gpu": 2, "cpu": 0}, id="two groups"),
        pytest.param(("a=b=2",), {"a=b": 2}, id="a group with a sign in its name"),
    ],
)
def test_sizes_are_a_number_or_numbers_by_group(words, sizes):
    assert parse_sizes(words) == sizes


@pytest.mark.parametrize(
    "words", [("x",), ("-1",), ("1", "2"), ("a=",), ("=1",), ("a=-1",), ("a=1.5",), ("3", "a=1"), ("a=1", "a=2")]
)
def test_other_sizes_are_a_usage_error(words):
    with pytest.raises(click.UsageError):
        parse_sizes(words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("demo",), "Missing argument 'N|GROUP=N...'", id="no size"),
        pytest.param(("pod/demo", "1"), "'pod' is no kind that Raytide manages", id="another kind"),
        pytest.param(("De mo", "1"), "'De mo' is not a name in Kubernetes", id="no name"),
        pytest.param(("demo", "1", "-n", "../x"), "--namespace: '../x' is not a name", id="no namespace"),
        pytest.param(("demo", "two"), "'two' is neither a number nor GROUP=NUMBER\n", id="a word"),
        pytest.param(("demo", "2", "3"), "GROUP=NUMBER: give one number, or one for each group", id="two numbers"),
        pytest.param(("demo", "-1"), "-1: the number must not be negative", id="a negative number"),
    ],
)
def test_usage_errors_name_the_argument(arguments, message):
    result = CliRunner().invoke(raytide.cli.main, ["scale", *arguments])
    assert (result.exit_code, message in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("sizes", "text"),
    [(3, "3 requested"), ({"gpu": 2}, "gpu 2 requested"), ({"gpu": 2, "cpu": 0}, "gpu 2, cpu 0 requested")],
)
def test_what_was_written_is_said_first(sizes, text):
    scaled = Scaled("RayCluster", "default", "demo", sizes, None, "2 of 2 workers are ready", "")
    assert scaled.lines() == [f"RayCluster default/demo: {text}", "2 of 2 workers are ready"]
    assert scaled.as_json()["requested"] == sizes


@pytest.mark.parametrize(
    ("obj", "controller", "note"),
    [
        pytest.param(
            {"kind": "RayCluster", "spec": {"enableInTreeAutoscaling": True}},
            "autoscaler",
            "enableInTreeAutoscaling is true, so Ray's autoscaler may change the number again",
            id="a RayCluster with an autoscaler",
        ),
        pytest.param({"kind": "RayCluster", "spec": {}}, None, "", id="a RayCluster without one"),
        pytest.param(
            {"kind": "TrainingJob", "spec": {}},
            "fair-sharing",
            "fair sharing may change the number again, within the capacity and the bounds of the job",
            id="a TrainingJob",
        ),
        pytest.param(
            {"kind": "TrainingJob", "spec": {"scaling": {"enabled": False}}}, None, "", id="a TrainingJob of fixed size"
        ),
    ],
)
def test_a_controller_that_may_change_it_again_is_a_field_and_a_note(obj, controller, note):
    scaled = Scaled(obj["kind"], "default", "demo", 3, controlled_by(obj), "", "")
    assert (scaled.as_json()["controlledBy"], scaled.as_json()["note"]) == (controller, note)
    assert scaled.lines()[1:] == ([f"note: {note}"] if note else [])


GROUPS = [{"groupName": "cpu", "minReplicas": 1, "maxReplicas": 10}, {"groupName": "gpu"}]


@pytest.mark.rule("FD:UX3-10")
@pytest.mark.parametrize(
    ("obj", "sizes", "notes"),
    [
        pytest.param({"workerGroupSpecs": GROUPS}, {"cpu": 10, "gpu": 99}, [], id="within the bounds"),
        pytest.param(
            {"workerGroupSpecs": GROUPS},
            {"cpu": 99, "gpu": 99},
            ["note: group cpu: maxReplicas is 10, so 10 are wanted"],
            id="above maxReplicas",
        ),
        pytest.param(
            {"workerGroupSpecs": GROUPS[:1]}, 0, ["note: group cpu: minReplicas is 1, so 1 are wanted"], id="below"
        ),
        pytest.param(
            {"trainer": {"min-instance": 2, "max-instance": 4}},
            9,
            ["note: max-instance is 4, so 4 are wanted"],
            id="a TrainingJob",
        ),
        pytest.param({}, 3, [], id="nothing is known"),
    ],
)
def test_a_size_beyond_a_bound_is_noted(obj, sizes, notes):
    kind = "TrainingJob" if "trainer" in obj else "RayCluster"
    bounded = bounds_exceeded({"kind": kind, "spec": obj}, sizes)
    scaled = Scaled(kind, "default", "demo", sizes, None, "", "", bounded)
    assert scaled.lines()[1:] == notes
    assert len(scaled.as_json()["bounded"]) == len(notes)


# --- a wait that fails -------------------------------------------------------------------------------------------------------


@pytest.fixture
def scale(monkeypatch):
    """Run `raytide scale` in virtual time on an API server in memory.

    `afterwards` answers what follows the write, and `at_the_write` that itself.
    """

    def run(obj: dict, *words: str, afterwards: Answer | None = None, at_the_write: Answer | None = None):
        wire, is_written = InProcessTransport(api_with(obj)), False

        def admission(request):
            nonlocal is_written
            if request.method == "PATCH":
                is_written = True
                return at_the_write
            return afterwards if is_written else None

        @asynccontextmanager
        async def connected(*_):
            yield Client(wire, clock=Clock()), "default"

        wire.admission = admission
        monkeypatch.setattr(asyncio, "run", virtual_time.run)
        for module in (workload_reader, workloads):
            monkeypatch.setattr(module, "connected", connected)
        return CliRunner().invoke(raytide.cli.main, ["scale", f"{obj['kind'].lower()}/demo", *words])

    return run


FAILED_WAITS = [
    pytest.param(
        cluster_object,
        None,
        "RayCluster demo is not ready after 5 s: RayCluster default/demo: ",
        id="it is not ready in time",
    ),
    pytest.param(
        cluster_object,
        Answer(404),
        "there is no RayCluster demo in namespace default: it does not exist, or was deleted",
        id="it is deleted",
    ),
    pytest.param(cluster_object, Answer(403), "RayCluster demo: on purpose", id="it may not be read any more"),
    pytest.param(
        job_object, None, "TrainingJob demo is not ready after 5 s: TrainingJob default/demo: ", id="a TrainingJob"
    ),
    pytest.param(
        job_object,
        Answer(404),
        "there is no TrainingJob demo in namespace default: it does not exist, or was deleted",
        id="a TrainingJob is deleted",
    ),
]


@pytest.mark.looptime
@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize(("make", "afterwards", "error"), FAILED_WAITS)
def test_a_failed_wait_prints_one_object_with_what_was_written_and_the_error(scale, make, afterwards, error, output):
    result = scale(make(), "3", "--wait", "--timeout", "5", "-o", output, afterwards=afterwards)
    assert result.exit_code == 1, result.output
    found = (json.loads if output == "json" else yaml.safe_load)(result.stdout)
    assert found["error"].startswith(error)
    assert result.stderr == f"Error: {found['error']}\n"
    assert {field: found[field] for field in ("kind", "name", "requested", "reached")} == {
        "kind": make()["kind"],
        "name": "demo",
        "requested": 3,
        "reached": "",
    }


@pytest.mark.looptime
@pytest.mark.parametrize(("make", "afterwards", "error"), FAILED_WAITS)
def test_a_failed_wait_says_what_was_written_before_the_error(scale, make, afterwards, error):
    result = scale(make(), "3", "--wait", "--timeout", "5", afterwards=afterwards)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{make()['kind']} default/demo: 3 requested\n")
    assert result.stderr.startswith(f"Error: {error}")


@pytest.mark.looptime
@pytest.mark.parametrize("words", [(), ("--wait",)])
def test_a_rejected_write_prints_only_the_error(scale, words):
    rejected = Answer(422, message="spec.replicas: too many")
    result = scale(cluster_object(), "3", "-o", "json", *words, at_the_write=rejected)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: RayCluster demo: spec.replicas: too many\n"


@pytest.mark.looptime
def test_without_an_error_the_field_is_empty(scale):
    result = scale(cluster_object(), "3", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["error"]) == (0, "")
