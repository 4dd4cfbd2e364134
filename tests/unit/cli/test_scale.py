"""Arguments of `raytide scale`; what it writes is tested beside the operator in tests/integration/test_client.py."""

import click
import pytest
from click.testing import CliRunner

import raytide.cli
from raytide.cli.scale import Scaled, controlled_by, parse_sizes


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
        pytest.param(("demo", "two"), "'two' is neither a number nor GROUP=NUMBER", id="a word"),
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
    scaled = Scaled("RayCluster", "default", "demo", sizes, None, "2 of 2 workers are ready")
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
    scaled = Scaled(obj["kind"], "default", "demo", 3, controlled_by(obj), "")
    assert (scaled.as_json()["controlledBy"], scaled.as_json()["note"]) == (controller, note)
    assert scaled.lines()[1:] == ([f"note: {note}"] if note else [])
