"""`raytide plan` with invalid input: exit code 2, and one line with file, document and field."""

import json
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from raytide.cli import main
from support.plan_snapshots import NOW, as_documents, as_list, job, node, pod, priority_class, quota


def changed(obj: dict, path: str, value: object) -> dict:
    """The object with another value at a dotted path."""
    *way, last = path.split(".")
    at = obj
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = value
    return obj


NODE = node(cpu=4)

CASES = {
    "no YAML": ("a: [1, 2\nb: 3", "standard input: line 2, column 2: did not find expected ',' or ']'"),
    "a tab": ("a:\n\t- b", "standard input: line 2, column 1: found character that cannot start any token"),
    "text": ("just words", "standard input: document 1: this is text, not a Kubernetes object"),
    "a number in a list": (
        yaml.safe_dump([NODE, 7]),
        "standard input: document 1, item 2: this is a number, not a Kubernetes object",
    ),
    "no kind": ("apiVersion: v1\nmetadata: {name: x}", "standard input: document 1: kind is missing"),
    "no apiVersion": ("kind: Node\nmetadata: {name: x}", "standard input: document 1: apiVersion is missing"),
    "no name": (
        as_documents(NODE, {"apiVersion": "v1", "kind": "Pod", "metadata": {}}),
        "standard input: document 2 (Pod): metadata.name is missing",
    ),
    "no metadata": (
        "apiVersion: v1\nkind: Pod",
        "standard input: document 1 (Pod): metadata.name is missing",
    ),
    "items are no list": (
        "apiVersion: v1\nkind: List\nitems: {a: 1}",
        "standard input: document 1 (List): items is an object, not a list",
    ),
    "nothing": ("", "-: contains no Node; add the output of `kubectl get nodes -o yaml`"),
    "no nodes": (as_list(job("a", 1, 2)), "-: contains no Node; add the output of `kubectl get nodes -o yaml`"),
    "the same job twice": (
        as_list(NODE, job("a", 1, 2), job("a", 1, 2)),
        "document 1, item 3: TrainingJob default/a is defined twice, first in standard input: document 1, item 2",
    ),
    "a minimum in words": (
        as_documents(NODE, changed(job("a", 1, 2), "spec.trainer.min-instance", "two")),
        "standard input: document 2 (TrainingJob default/a): spec.trainer.min-instance input should be a valid integer",
    ),
    "a job without a trainer": (
        as_documents(NODE, changed(job("a", 1, 2), "spec", {})),
        "document 2 (TrainingJob default/a): spec.trainer is missing",
    ),
    "a node with a strange CPU": (
        as_documents(changed(node(), "status.allocatable", {"cpu": "four"})),
        "document 1 (Node node-1): status.allocatable.cpu: 'four' is not a quantity",
    ),
    "a pod with a strange request": (
        as_documents(NODE, pod("p", cpu="much")),
        "document 2 (Pod default/p): spec.containers[0].resources.requests.cpu: 'much' is not a quantity",
    ),
    "a pod on a number": (
        as_documents(NODE, changed(pod("p"), "spec.nodeName", 7)),
        "document 2 (Pod default/p): spec.nodeName: Expected str | null, got int",
    ),
    "a quota in words": (
        as_documents(NODE, quota(**{"requests.cpu": "lots"})),
        "document 2 (ResourceQuota default/quota): spec.hard.requests.cpu: 'lots' is not a quantity",
    ),
    "a priority in words": (
        as_documents(NODE, changed(priority_class("vip", 1), "value", "high")),
        "document 2 (PriorityClass vip): value: Expected int, got str",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), CASES.values(), ids=CASES)
def test_bad_objects(text, sentence):
    result = CliRunner().invoke(main, ["plan", "-f", "-"], input=text)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1, "one line"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        pytest.param(["-f", "/nonexistent.yaml"], "/nonexistent.yaml: No such file or directory", id="no such file"),
        pytest.param(["-f", "/"], "/: Is a directory", id="a directory"),
        pytest.param(
            ["-f", "-", "--rebalance-gap", "2"],
            "--rebalance-gap: '2' must be at least 0 and below 1",
            id="a gap of two",
        ),
        pytest.param(["-f", "-", "--max-load", "cpu=0"], "--max-load: 'cpu=0' is not RESOURCE=PERCENT", id="no load"),
        pytest.param(
            ["-f", "-", "--at", "noon"], "--at: 'noon' is not a time such as 2026-01-31T12:00:00Z", id="no time"
        ),
        pytest.param(
            ["-f", "-", "--context", "x"], "--filename cannot be combined with --kubeconfig or --context", id="both"
        ),
        pytest.param(
            ["-f", "-", "-o", "xml"], "'xml' is not one of 'table', 'wide', 'yaml', 'json'", id="no such form"
        ),
    ],
)
def test_bad_flags(args, sentence):
    result = CliRunner().invoke(main, ["plan", *args], input=as_list(NODE))
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    result = CliRunner().invoke(main, ["plan", "-f", str(path)])
    assert (result.exit_code, f"{path}: not valid UTF-8 text" in result.stderr) == (2, True)


def test_brackets_without_end_are_rejected_and_nothing_else(tmp_path):
    result = CliRunner().invoke(main, ["plan", "-f", "-"], input="[" * 3_000)
    assert result.exit_code == 2
    assert "standard input: " in result.stderr


@pytest.mark.rule("D21")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        pytest.param("[" * 50_000, "line 1, column 101", id="brackets"),
        pytest.param("[" * 50_000 + "]" * 50_000, "line 1, column 101", id="brackets with an end"),
        pytest.param('{"a":' * 50_000, "line 1, column 501", id="objects"),
        pytest.param("\n".join(f"{'  ' * i}a:" for i in range(1_000)), "line 101, column 201", id="indented"),
        pytest.param("".join(f"&a{i:03} [" for i in range(200)) + "]" * 200, "line 1, column 701", id="anchors"),
    ],
)
@pytest.mark.parametrize("flag", ["-f", "--submit"])
def test_deep_nesting_is_an_error_that_names_file_and_limit(text, where, flag, tmp_path):
    """The loader of libyaml is recursive: fifty thousand brackets overflowed the stack of the process."""
    deep, nodes = tmp_path / "deep.yaml", tmp_path / "nodes.yaml"
    deep.write_text(text)
    nodes.write_text(as_list(NODE))
    files = ["-f", str(deep)] if flag == "-f" else ["-f", str(nodes), "--submit", str(deep)]
    done = subprocess.run(
        [sys.executable, "-m", "raytide", "plan", *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"Error: {deep}: {where}: nested deeper than 100 levels\n")


def test_the_deepest_file_that_is_read():
    deep = changed(node(cpu=4), "metadata.annotations", {"a": [[]]})
    inner = deep["metadata"]["annotations"]["a"]
    for _ in range(95):
        inner[0] = [[]]
        inner = inner[0]
    result = CliRunner().invoke(main, ["plan", "-f", "-", "--at", NOW], input=json.dumps(deep))
    assert "levels" not in result.stderr


def test_without_a_cluster_nothing_is_planned(tmp_path):
    missing = str(tmp_path / "kubeconfig")
    result = CliRunner().invoke(main, ["plan", "--kubeconfig", missing, "--at", NOW])
    assert result.exit_code == 1
    assert f"kubeconfig {missing} does not exist" in result.stderr
