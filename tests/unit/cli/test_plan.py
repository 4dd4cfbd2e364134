"""`raytide plan -f`: snapshots of small clusters, and their plans."""

import json
from datetime import UTC, datetime

import pytest
import yaml
from click.testing import CliRunner

from raytide.api.sharing_record import ResizeNote, SharingRecord, encode_record
from raytide.cli import main
from support.explained import HOSTILE
from support.plan_snapshots import (
    NOW,
    as_documents,
    as_list,
    job,
    namespace,
    node,
    pod,
    priority_class,
    quota,
    trainer_pod,
)

pytestmark = pytest.mark.rule("TJ:7.15")


def call(*args: str, stdin: str = ""):
    """The command, as a person types it, at a moment that does not move."""
    return CliRunner().invoke(main, ["plan", "--at", NOW, *args], input=stdin)


def planned(text: str, *args: str) -> dict:
    """The plan of a snapshot, as JSON."""
    result = call("-f", "-", "-o", "json", *args, stdin=text)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def moves(plan: dict) -> dict:
    """Name -> from, to, reason."""
    return {each["name"]: (each["from"], each["to"], each["reason"]) for each in plan["resizes"]}


def waiting(plan: dict) -> dict:
    return {each["name"]: each["reason"] for each in plan["waiting"]}


# --- the vectors of TJ §4 as lists of objects -------------------------------------------------------------------------------

MINIMUMS_ONLY = {"rebalance": False}
"""Otherwise a plan serves minimums and rebalances in one resize of each job."""

VECTORS = {
    "V1 the least fulfilled is always next": (
        [node(cpu=33), job("a", 1, 20, 2), job("b", 1, 10, 5), job("other", 20, 20, 20)],
        {"a": (2, 8, "Growing")},
    ),
    "V2 ten equal jobs share eighty CPUs": (
        [node(cpu=100), *(job(f"j{n}", 2, 20, 2) for n in range(10))],
        {f"j{n}": (2, 10, "Growing") for n in range(10)},
    ),
    "V3 the most fulfilled job shrinks for a new gang": (
        [
            node(cpu=64, gpu=12),
            job("a", 1, 8, 8, gpu=1, scaling=MINIMUMS_ONLY),
            job("b", 1, 8, 4, gpu=1, scaling=MINIMUMS_ONLY),
            job("c", 2, 4, gpu=1),
        ],
        {"a": (8, 6, "Reclaimed"), "c": (0, 2, "Admitted")},
    ),
    "V4 of equal jobs the one with more CPU shrinks": (
        [
            node(cpu=64, gpu=15),
            job("a", 2, 6, 6, gpu=1),
            job("b", 2, 10, 9, gpu=1, cpu=2),
            job("c", 3, 3, gpu=1),
        ],
        {"a": (6, 5, "Reclaimed"), "b": (9, 7, "Reclaimed"), "c": (0, 3, "Admitted")},
    ),
    "V5 a gang waits if all jobs are at their minimum": (
        [node(cpu=64, gpu=6), job("a", 4, 8, 4, gpu=1), job("b", 2, 2, 2, gpu=1), job("c", 1, 4, gpu=1)],
        {},
    ),
    "V6 no job is shrunk for a minimum that cannot be reached": (
        [node(cpu=64, gpu=3), job("a", 2, 4, 3, gpu=1), job("c", 2, 2, gpu=1)],
        {},
    ),
    "V7 a job at its maximum is not resized": ([node(cpu=53), job("a", 1, 3, 3)], {}),
    "V8 free capacity on two nodes does not add up": (
        [
            node("one", cpu=16, gpu=6),
            node("two", cpu=16, gpu=6),
            job("a", 1, 4, 2, gpu=4),
        ],
        {},
    ),
    "V10 a job above its maximum shrinks": ([node(cpu=10), job("a", 1, 4, 6)], {"a": (6, 4, "AboveMaximum")}),
    "V12 only GPU jobs release GPUs": (
        [node(cpu=13, gpu=3), job("x", 1, 10, 10), job("g", 1, 4, 3, gpu=1), job("c", 1, 2, gpu=1)],
        {"g": (3, 2, "Reclaimed"), "c": (0, 1, "Admitted")},
    ),
    "V14 the seed's job starts with five GPUs": (
        [node(cpu=16, gpu=5), job("job-1", 3, 6, cpu="500m", gpu=1)],
        {"job-1": (0, 5, "Admitted")},
    ),
    "V16 A and B reach equal scores": (
        [node(cpu=12), job("a", 1, 9, 5), job("b", 1, 5, 3)],
        {"a": (5, 8, "Growing"), "b": (3, 4, "Growing")},
    ),
    "V17 without rebalancing no job is resized": (
        [node(cpu=22), job("a", 2, 20, 20, scaling={"rebalance": False}), job("b", 2, 20, 2)],
        {},
    ),
    "V17 with rebalancing they come within the gap": (
        [node(cpu=22), job("a", 2, 20, 20), job("b", 2, 20, 2)],
        {"a": (20, 12, "Rebalanced"), "b": (2, 10, "Rebalanced")},
    ),
    "V18 two new gangs are served by the most fulfilled": (
        [
            node(cpu=33),
            job("a", 2, 20, 20, scaling=MINIMUMS_ONLY),
            job("b", 2, 20, 12, scaling=MINIMUMS_ONLY),
            job("c", 2, 4, startPolicy="Gang"),
            job("d", 3, 6, startPolicy="Gang"),
        ],
        {"a": (20, 16, "Reclaimed"), "c": (0, 2, "Admitted"), "d": (0, 3, "Admitted")},
    ),
}


@pytest.mark.rule("TJ:4")
@pytest.mark.parametrize(("objects", "expected"), VECTORS.values(), ids=VECTORS)
def test_vectors(objects, expected):
    plan = planned(as_list(*objects))
    ends: dict = {}
    for each in plan["resizes"]:
        first, _, _ = ends.get(each["name"], (each["from"], 0, ""))
        ends[each["name"]] = (first, each["to"], each["reason"])
    assert ends == expected


def test_a_waiting_gang_has_the_reason():
    objects = VECTORS["V5 a gang waits if all jobs are at their minimum"][0]
    plan = planned(as_list(*objects))
    assert waiting(plan)["c"] == "InsufficientGPU"


def test_gpus_on_two_nodes_are_called_fragmented():
    plan = planned(as_list(*VECTORS["V8 free capacity on two nodes does not add up"][0]))
    assert waiting(plan) == {"a": "Fragmented"}


# --- the form -------------------------------------------------------------------------------------------------------------


def test_the_json_has_exactly_the_documented_form():
    plan = planned(as_list(node(cpu=4, gpu=2), job("a", 1, 3, 1), job("big", 1, 2, gpu=4)))
    assert list(plan) == ["resizes", "waiting"]
    assert plan["resizes"] == [
        {
            "kind": "TrainingJob",
            "namespace": "default",
            "name": "a",
            "from": 1,
            "to": 3,
            "reason": "Growing",
            "message": "ScaledUp 1→3 into free capacity",
            "victims": [],
            "placements": {"node-1": 2},
        }
    ]
    assert [sorted(each) for each in plan["waiting"]] == [
        ["message", "name", "namespace", "reason", "reservesCapacity"]
    ]
    assert plan["waiting"][0]["reason"] == "Unsatisfiable"


@pytest.mark.rule("FD:SH-B3")
def test_a_scale_down_names_the_pods_to_be_removed():
    """The highest index on the planned node, which has trainers 0 to 2."""
    nodes = [node("one", cpu=8, gpu=3), node("two", cpu=8, gpu=3)]
    plan = planned(as_list(*nodes, job("a", 1, 5, 5, gpu=1), job("b", 2, 2, gpu=1)))
    shrink, growth = plan["resizes"]
    assert (shrink["name"], shrink["victims"], shrink["placements"]) == ("a", ["a-trainer-2"], {})
    assert (growth["name"], growth["victims"], growth["placements"]) == ("b", [], {"one": 1, "two": 1})


def test_the_table_names_no_more_than_three_pods_or_nodes():
    objects = [node(cpu=8), job("a", 1, 8, 8), job("b", 4, 4, startPolicy="Gang")]
    assert "removes" not in call("-f", "-", stdin=as_list(*objects)).stdout
    few = [node(cpu=8), job("a", 1, 8, 8), job("b", 2, 2, startPolicy="Gang")]
    assert "for default/b, which needs 2 to reach its minimum; removes a-trainer-7, a-trainer-6" in (
        call("-f", "-", stdin=as_list(*few)).stdout
    )


def test_yaml_is_the_same_as_json():
    text = as_list(node(cpu=4), job("a", 1, 3, 1), job("b", 1, 3, 1))
    result = call("-f", "-", "-o", "yaml", stdin=text)
    assert yaml.safe_load(result.stdout) == planned(text)


@pytest.mark.rule("FD:SEC3-6")
@pytest.mark.parametrize("options", [[], ["-o", "json"], ["-o", "yaml"]])
def test_no_code_of_a_file_reaches_the_terminal(options):
    result = call("-f", "-", *options, stdin=as_list(node(cpu=1), job(HOSTILE, 2, 3), job("b", 1, 3, 1)))
    assert "cod.exe" in result.output
    assert not [each for each in result.output if each != "\n" and not each.isprintable()]
    assert "\nkind:" not in result.output


def test_the_table_lists_all_jobs_with_reasons():
    result = call("-f", "-", stdin=as_list(node(cpu=3), job("a", 1, 2, 1), job("b", 1, 3, 1)))
    assert result.stdout.splitlines() == [
        "2 jobs, 1 of 1 node usable, 1 resize, 0 below minimum.",
        "",
        "JOB         FROM   TO   REASON    MESSAGE",
        "default/a   1      2    Growing   ScaledUp 1→2 into free capacity; planned on node-1 (1)",
        "",
        "WAITING     HAS   MIN   MAX   REASON                  MESSAGE",
        (
            "default/b   1     1     3     InsufficientResources   needs 1 cpu free on one node; "
            "the best node has 0 free, to grow beyond 1"
        ),
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(as_list(node(cpu=3), job("a", 1, 3, 1)), id="a kind: List"),
        pytest.param(as_documents(node(cpu=3), job("a", 1, 3, 1)), id="documents"),
        pytest.param(yaml.safe_dump([node(cpu=3), job("a", 1, 3, 1)]), id="a bare list"),
        pytest.param(json.dumps([node(cpu=3), job("a", 1, 3, 1)]), id="JSON"),
        pytest.param("---\n" + as_documents(node(cpu=3), job("a", 1, 3, 1)) + "---\n", id="with empty documents"),
        pytest.param(
            yaml.safe_dump({"apiVersion": "v1", "kind": "NodeList", "items": [node(cpu=3)]})
            + "---\n"
            + as_list(job("a", 1, 3, 1)),
            id="a NodeList",
        ),
        pytest.param(
            as_list(node(cpu=3), job("a", 1, 3, 1)).replace("'2026-01-01T00:00:00Z'", "2026-01-01T00:00:00Z"),
            id="a time without quotes",
        ),
    ],
)
def test_every_way_to_write_a_list_is_read(text):
    assert moves(planned(text)) == {"a": (1, 3, "Growing")}


def test_items_of_a_typed_list_need_no_kind_of_their_own():
    bare = {key: value for key, value in node(cpu=3).items() if key not in ("kind", "apiVersion")}
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "NodeList", "items": [bare]})
    assert moves(planned(text + "---\n" + as_list(job("a", 1, 3, 1)))) == {"a": (1, 3, "Growing")}


def test_several_files_are_one_snapshot(tmp_path):
    first, second = tmp_path / "nodes.yaml", tmp_path / "jobs.yaml"
    first.write_text(as_list(node(cpu=3)))
    second.write_text(as_list(job("a", 1, 3, 1)))
    result = call("-f", str(first), "-f", str(second), "-o", "json")
    assert moves(json.loads(result.stdout)) == {"a": (1, 3, "Growing")}


def test_other_kinds_are_skipped_and_counted():
    other = {"apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "x"}}
    result = call("-f", "-", "-o", "json", stdin=as_list(node(cpu=3), other, job("a", 1, 3, 1)))
    assert moves(json.loads(result.stdout)) == {"a": (1, 3, "Growing")}
    assert "note: skipped 1 TrainingJob (kai.alibabacloud.com/v1alpha1): a plan does not depend on it" in result.stderr


# --- what counts ----------------------------------------------------------------------------------------------------------


def test_pods_of_the_list_are_counted_on_their_nodes():
    """With two pods on one node, the third fits only on the other one."""
    objects = [node("one", cpu=2), node("two", cpu=1), job("a", 1, 5, 2)]
    pods = [trainer_pod("a", index, on="one") for index in range(2)]
    assert moves(planned(as_list(*objects, *pods))) == {"a": (2, 3, "Growing")}


def test_foreign_pods_take_capacity_unless_they_have_ended():
    objects = [node(cpu=6), job("a", 1, 9, 1), pod("web", on="node-1", cpu=2), pod("done", on="node-1", cpu=3)]
    objects[-1]["status"]["phase"] = "Succeeded"
    assert moves(planned(as_list(*objects))) == {"a": (1, 4, "Growing")}


def test_an_external_pod_with_a_thousand_cpus_shrinks_no_job():
    plan = planned(as_list(node(cpu=4), job("a", 1, 4, 4), pod("huge", cpu=1000)))
    assert plan["resizes"] == []


def test_pods_with_no_more_than_paddles_labels_belong_to_their_job():
    objects = [node("one", cpu=4), node("two", cpu=2), job("a", 1, 5, 2)]
    pods = [pod(f"a-trainer-{index}", on="one", cpu=2, labels={"paddle-job": "a"}) for index in range(2)]
    assert moves(planned(as_list(*objects, *pods))) == {"a": (2, 3, "Growing")}


def test_paddles_labels_on_a_pod_of_another_owner_are_no_claim():
    owner = {"kind": "Job", "name": "a-trainer", "uid": "another", "controller": True}
    objects = [node(cpu=4), job("a", 1, 5, 2)]
    pods = [pod("a-trainer-0", on="node-1", cpu=1, labels={"paddle-job": "a"}, ownerReferences=[owner])]
    assert moves(planned(as_list(*objects, *pods))) == {"a": (2, 3, "Growing")}


def test_cordoned_and_unready_nodes_have_no_capacity():
    away = node("two", cpu=8)
    away["status"]["conditions"][0]["status"] = "Unknown"
    objects = [node("one", cpu=2), away, node("three", cpu=8, unschedulable=True), job("a", 1, 9, 1)]
    assert moves(planned(as_list(*objects))) == {"a": (1, 2, "Growing")}


def test_a_quota_bounds_growth_in_its_namespace():
    bounds = quota(used={"requests.cpu": "1"}, **{"requests.cpu": "3"})
    objects = [node(cpu=20), job("a", 1, 9, 1), trainer_pod("a", 0, on="node-1"), bounds]
    plan = planned(as_list(*objects))
    assert moves(plan) == {"a": (1, 3, "Growing")}
    assert waiting(plan) == {"a": "QuotaExceeded"}


def test_priority_classes_determine_the_donor():
    low, high = job("low", 1, 4, 4), job("high", 2, 2, startPolicy="Gang", priorityClassName="vip")
    objects = [node(cpu=4), low, high, priority_class("vip", 10)]
    assert moves(planned(as_list(*objects))) == {"low": (4, 2, "Reclaimed"), "high": (0, 2, "Admitted")}
    low["spec"]["priorityClassName"], high["spec"]["priorityClassName"] = "vip", ""
    plan = planned(as_list(*objects))
    assert moves(plan) == {}
    assert waiting(plan)["high"] == "HigherPriority"


@pytest.mark.rule("FD:TJ3-7")
@pytest.mark.parametrize(
    ("of_class", "template"),
    [
        pytest.param(priority_class("vip", 10, preemptionPolicy="Never"), {}, id="by its PriorityClass"),
        pytest.param(
            priority_class("usual", 10, preemptionPolicy="Never", globalDefault=True), {}, id="by the default class"
        ),
        pytest.param(priority_class("vip", 10), {"preemptionPolicy": "Never"}, id="by the template"),
    ],
)
@pytest.mark.parametrize("size", [None, 2])
def test_pods_that_may_not_preempt_take_nothing_for_a_minimum_nor_for_growth(of_class, template, size):
    """KAI-Scheduler#1032: a job of a higher priority took three trainers, whatever its preemptionPolicy."""
    low, high = job("low", 1, 4, 4, priorityClassName="low"), job("high", 2, 5, size, startPolicy="Gang")
    high["spec"]["priorityClassName"] = "" if of_class.get("globalDefault") else "vip"
    high["spec"]["trainer"]["template"] = {"spec": template}
    pods = [trainer_pod("low", index, on="node-1") for index in range(4)]
    pods += [trainer_pod("high", index, on="node-1") for index in range(size or 0)]
    plan = planned(as_list(node(cpu=len(pods)), low, high, of_class, priority_class("low", -10), *pods))
    assert moves(plan) == {}
    (message,) = [each["message"] for each in plan["waiting"] if each["name"] == "high"]
    assert message.endswith(", without preemption (preemptionPolicy: Never)")


@pytest.mark.rule("FD:TJ3-7")
def test_a_job_that_yields_gives_to_pods_of_other_workloads_that_may_not_preempt():
    """kube-scheduler makes no room for them, and the job consents."""
    donor, web = job("donor", 1, 4, 4, scaling={"yieldToPods": True}), pod("web", cpu=1)
    web["spec"] |= {"priority": 100}
    web["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    objects = [node(cpu=4), donor, *(trainer_pod("donor", index, on="node-1") for index in range(4))]
    for policy in ("PreemptLowerPriority", "Never"):
        web["spec"] |= {"preemptionPolicy": policy}
        assert moves(planned(as_list(*objects, web))) == {"donor": (4, 3, "YieldedToPods")}


TENANTS = "[{name: a, nominalQuota: {cpu: 2}, borrowingLimit: {cpu: 2}}, {name: b}]"


@pytest.mark.rule("TJ:7.13", "D25")
def test_labels_of_namespaces_name_tenants():
    objects = [node(cpu=20), namespace("one", "a"), namespace("two", "b")]
    objects += [job("x", 1, 9, 1, namespace="one"), job("y", 1, 9, 1, namespace="two")]
    plan = planned(as_list(*objects), "--tenants", TENANTS)
    assert moves(plan) == {"x": (1, 4, "Growing"), "y": (1, 9, "Growing")}
    assert waiting(plan) == {"x": "QuotaExceeded"}
    assert moves(planned(as_list(*objects)))["x"] == (1, 9, "Growing"), "without a list there are no tenants"


@pytest.mark.rule("TJ:7.13", "D25")
def test_the_table_names_the_tenants_limit():
    objects = [node(cpu=20), namespace("default", "a"), job("x", 1, 9, 4)]
    result = call("-f", "-", "--tenants", TENANTS, stdin=as_list(*objects))
    assert "tenant a has 0 left of 1 cpu needed within its nominal quota and borrowing limit" in result.output


@pytest.mark.rule("TJ:7.13", "D25")
def test_a_wrong_list_of_tenants_is_one_line():
    result = call("-f", "-", "--tenants", "[{name: a, weight: 0}]", stdin=as_list(node(cpu=1)))
    assert result.exit_code == 2
    assert "--tenants: [0].weight: must be between 0.001 and 1000" in result.output


def test_load_and_names_of_gpus_are_as_the_operator_is_configured():
    text = as_list(node(cpu=10), job("a", 1, 9, 1))
    assert moves(planned(text, "--max-load", "cpu=50")) == {"a": (1, 5, "Growing")}
    strange = node(cpu=10)
    strange["status"]["allocatable"]["npu"] = "1"
    gang = job("a", 2, 4)
    gang["spec"]["trainer"]["resources"]["limits"]["npu"] = 1
    assert moves(planned(as_list(strange, gang), "--gpu-resources", "npu")) == {}


def test_a_cooldown_is_evaluated_at_the_given_time():
    resting = job("a", 1, 9, 2)
    note = ResizeNote(datetime(2026, 2, 1, 11, 59, 50, tzinfo=UTC), 1, 2, "Growing")
    record = SharingRecord("uid-a", 2, resizes=(note,))
    resting["metadata"]["annotations"] = {"raytide.io/sharing": encode_record(record)}
    text = as_list(node(cpu=9), resting)
    assert waiting(planned(text)) == {"a": "CoolingDown"}
    later = CliRunner().invoke(main, ["plan", "-f", "-", "-o", "json", "--at", "2026-02-01T12:00:40"], input=text)
    assert moves(json.loads(later.stdout)) == {"a": (2, 9, "Growing")}


def test_jobs_that_are_invalid_take_no_part_and_are_reported():
    plan = planned(as_list(node(cpu=9), job("odd", 5, 2, 1), job("a", 1, 9, 1)))
    assert moves(plan) == {"a": (1, 9, "Growing")}
    assert waiting(plan) == {"odd": "InvalidSpec"}


def test_jobs_of_one_name_in_two_namespaces_are_two():
    twins = [job("a", 1, 2, 1, namespace=where) for where in ("one", "two")]
    plan = planned(as_list(node(cpu=9), *twins))
    assert [(each["namespace"], each["name"]) for each in plan["resizes"]] == [("one", "a"), ("two", "a")]


def test_the_same_snapshot_gives_the_same_plan_in_any_order():
    objects = [node("one", cpu=5), node("two", cpu=3), job("a", 1, 6, 2), job("b", 2, 9, 2), job("c", 3, 3, gpu=1)]
    assert planned(as_list(*objects)) == planned(as_documents(*reversed(objects)))


# --- jobs whose pods are not in the list ------------------------------------------------------------------------------------


def test_a_gang_without_an_order_has_not_begun():
    plan = planned(as_list(node(cpu=9, gpu=2), job("a", 2, 2, gpu=1)))
    assert moves(plan) == {"a": (0, 2, "Admitted")}


def test_assumed_pods_leave_capacity_to_those_that_are_shown():
    shown = [trainer_pod("b", index, on="one") for index in range(3)]
    objects = [node("one", cpu=4), node("two", cpu=4), job("a", 1, 8, 5), job("b", 3, 3, 3), *shown]
    assert planned(as_list(*objects))["resizes"] == []


def test_what_names_no_namespace_is_in_the_default_one():
    bare = job("a", 1, 3, 1)
    del bare["metadata"]["namespace"]
    text = as_list(node(cpu=4), bare)
    assert [each["namespace"] for each in planned(text)["resizes"]] == ["default"]
    assert [each["namespace"] for each in planned(text, "-n", "team")["resizes"]] == ["team"]


def test_a_job_without_a_uid_is_accepted():
    bare = job("a", 1, 3, 1)
    del bare["metadata"]["uid"], bare["metadata"]["creationTimestamp"]
    assert moves(planned(as_list(node(cpu=4), bare))) == {"a": (1, 3, "Growing")}
