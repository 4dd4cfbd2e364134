"""`raytide plan --submit`."""

import json

import pytest
from click.testing import CliRunner

from raytide.cli import main
from support.plan_snapshots import NOW, as_documents, as_list, job, node, pod, quota

pytestmark = pytest.mark.rule("TJ:7.15")


@pytest.fixture
def ask(tmp_path):
    """The command about a snapshot, with files by name."""

    def call(snapshot: str, *args: str, **files: str):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        known = {f"{name}.yaml" for name in files}
        paths = [str(tmp_path / word) if word in known else word for word in args]
        return CliRunner().invoke(main, ["plan", "--at", NOW, "-f", "-", *paths], input=snapshot)

    return call


FULL = as_list(node(cpu=20, gpu=8), job("a", 1, 8, 6, gpu=1, scaling={"rebalance": False}), job("b", 1, 8, 2, gpu=1))


def test_submit_lists_the_jobs_that_shrink_and_by_how_much(ask):
    result = ask(FULL, "--submit", "new.yaml", new=as_documents(job("c", 2, 4, gpu=1)))
    assert result.exit_code == 0, result.output
    assert result.stdout.split("\n\n")[-1].splitlines() == [
        "If default/c were submitted:",
        "  default/c starts with 2 of 2 to 4",
        "  default/a is scaled down by 2 (6 -> 4)",
    ]


def test_the_pods_of_a_submitted_job_use_up_the_quota(ask):
    roles = {"pserver": {"min-instance": 1}, "master": {}}
    cluster = as_list(node(cpu=20), quota(used={"pods": "0"}, pods="6"))
    result = ask(cluster, "--submit", "new.yaml", new=as_documents(job("c", 2, 9, **roles)))
    assert "  default/c starts with 4 of 2 to 9" in result.stdout.splitlines()


def test_what_if_gives_the_plan_with_the_new_job_as_json(ask):
    result = ask(FULL, "--submit", "new.yaml", "-o", "json", new=as_documents(job("c", 2, 4, gpu=1)))
    plan = json.loads(result.stdout)
    assert list(plan) == ["resizes", "waiting", "quiet"]
    resizes = [(each["pass"], each["name"], each["from"], each["to"]) for each in plan["resizes"]]
    assert (resizes, plan["quiet"]) == ([(1, "a", 6, 4), (2, "c", 0, 2)], True)


def test_what_if_of_the_impossible_changes_nothing(ask):
    result = ask(FULL, "--submit", "new.yaml", new=as_documents(job("c", 2, 4, gpu=9)))
    assert "default/c waits: Unsatisfiable: needs 9 nvidia.com/gpu on one node; the largest node has 8" in result.stdout
    assert "the size of no other job changes" in result.stdout


def test_several_jobs_can_be_submitted_at_once(ask):
    new = as_documents(job("c", 1, 1, gpu=1), job("d", 1, 1, gpu=1, namespace="other"))
    result = ask(FULL, "--submit", "new.yaml", new=new)
    assert "If default/c and other/d were submitted:" in result.stdout
    assert "default/a is scaled down by 2 (6 -> 4)" in result.stdout


def test_a_submitted_job_is_the_youngest(ask):
    """It does not overtake a job that waits already."""
    waits = as_list(node(cpu=20, gpu=2), job("first", 2, 2, gpu=2), job("a", 1, 1, 1, gpu=1))
    result = ask(waits, "--submit", "new.yaml", "-o", "json", new=as_documents(job("zz", 1, 1, gpu=1)))
    assert [each["name"] for each in json.loads(result.stdout)["resizes"]] == ["zz"], "the first could not begin anyway"
    both = as_list(node(cpu=20, gpu=2), job("first", 2, 2, gpu=1))
    result = ask(both, "--submit", "new.yaml", "-o", "json", new=as_documents(job("aa", 2, 2, gpu=1)))
    assert [each["name"] for each in json.loads(result.stdout)["resizes"]] == ["first"]


def test_a_submitted_job_gets_the_namespace_of_the_option(ask):
    bare = job("c", 1, 2)
    del bare["metadata"]["namespace"]
    result = ask(FULL, "--submit", "new.yaml", "-n", "team", new=as_documents(bare))
    assert "If team/c were submitted:" in result.stdout


def test_what_the_server_wrote_into_a_submitted_job_means_nothing(ask):
    """A manifest copied from a running job is a new job."""
    copied = job("c", 2, 4, gpu=1)
    copied["metadata"] |= {"annotations": {"raytide.io/sharing": "{}"}, "deletionTimestamp": NOW}
    copied["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    result = ask(FULL, "--submit", "new.yaml", new=as_documents(copied))
    assert "default/c starts with 2 of 2 to 4" in result.stdout


def test_jobs_without_a_gang_get_capacity_too(ask):
    result = ask(as_list(node(cpu=8), job("a", 2, 8, 8)), "--submit", "new.yaml", new=as_documents(job("c", 3, 6)))
    assert "default/c starts with 4 of 3 to 6" in result.stdout, (
        "its minimum of 3, and one to a score next to that of a"
    )
    assert "default/a is scaled down by 4 (8 -> 4)" in result.stdout
    assert "new   3     6" in result.stdout, "it has nothing yet"


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        pytest.param(
            as_documents(node(cpu=1)),
            "new.yaml: no TrainingJob or RayCluster to submit, only Node (v1)",
            id="nothing to submit",
        ),
        pytest.param(
            as_documents(job("a", 1, 2)),
            "new.yaml: document 1: TrainingJob default/a exists already; submit it under another name",
            id="it is there",
        ),
        pytest.param(
            as_documents(job("c", 1, 2), job("c", 1, 2)),
            "new.yaml: document 2: TrainingJob default/c is defined twice, first in",
            id="twice",
        ),
        pytest.param(
            as_documents(job("c", 3, 2)),
            "new.yaml: document 1 (TrainingJob default/c): spec.trainer",
            id="min above max",
        ),
        pytest.param(
            as_documents(job("c", 1, 2, fault_tolerant=False)),
            "(TrainingJob default/c): spec.fault_tolerant",
            id="TJ 3.2",
        ),
    ],
)
def test_what_cannot_be_submitted(ask, new, sentence):
    result = ask(FULL, "--submit", "new.yaml", new=new)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


# --- passes until nothing changes -----------------------------------------------------------------------------------------


def test_submit_says_after_how_many_passes_nothing_changes(ask):
    result = ask(FULL, "--submit", "new.yaml", new=as_documents(job("c", 2, 4, gpu=1)))
    lines = result.stdout.splitlines()
    assert lines[0].endswith("2 resizes, 0 below minimum. Nothing changes after 2 passes.")
    assert [line.split()[:4] for line in lines[2:5]] == [
        ["PASS", "JOB", "FROM", "TO"],
        ["1", "default/a", "6", "4"],
        ["2", "default/c", "0", "2"],
    ]


def test_without_submit_the_plan_is_that_of_the_next_pass(ask):
    result = ask(as_list(node(cpu=4, gpu=2), job("a", 1, 3, 1)))
    assert "Nothing changes" not in result.stdout
    assert "PASS" not in result.stdout


def test_sizes_that_still_change_after_the_last_pass_are_said_to(ask, monkeypatch):
    monkeypatch.setattr("raytide.simulator.passes.MAX_PASSES", 1)
    result = ask(FULL, "--submit", "new.yaml", new=as_documents(job("c", 2, 4, gpu=1)))
    assert "The sizes still change after 1 pass: what follows is not shown." in result.stdout.splitlines()[0]
    monkeypatch.setattr("raytide.simulator.passes.MAX_PASSES", 2)
    result = ask(FULL, "--submit", "new.yaml", "-o", "json", new=as_documents(job("c", 2, 4, gpu=1)))
    assert json.loads(result.stdout)["quiet"] is False


def test_a_pass_that_resizes_no_job_is_quiet(ask):
    result = ask(as_list(node(cpu=4, gpu=2)), "--submit", "new.yaml", new=as_documents(job("c", 1, 1)))
    assert "passes" not in result.stdout.splitlines()[0]
    assert "default/c starts with 1" in result.stdout


def test_pending_pods_of_other_workloads_get_what_terminating_ones_release(ask):
    """In the first pass the capacity of the pods that terminate is not free; then it is another workload's."""
    leaving = pod("leaving", on="node-1", cpu=4, deletionTimestamp="2026-01-01T00:00:00Z")
    urgent = pod("urgent", cpu=4)
    urgent["spec"]["priority"] = 1000
    new = as_documents(job("c", 1, 8, cpu=1, scaling={"rebalance": False}))
    result = ask(as_list(node(cpu=8), leaving, urgent), "--submit", "new.yaml", "-o", "json", new=new)
    (last,) = [each["to"] for each in json.loads(result.stdout)["resizes"]]
    assert last == 4, result.stdout
