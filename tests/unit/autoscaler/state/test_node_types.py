"""The node types of a RayCluster spec."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytide.api.quantity import MAX_INT32
from raytide.autoscaler.model import (
    RESOURCE_UNIT_SCALING,
    Demand,
    Gang,
    GcsState,
    NodeStatus,
    RayNode,
    Request,
    amounts_of,
    labels_of,
)
from raytide.autoscaler.state.node_types import NodeTypes, asked_resources, node_types
from support.builders import group, raycluster, template


def read(*groups: Any, live: tuple[RayNode, ...] = (), asked: frozenset[str] = frozenset(), **spec: Any) -> NodeTypes:
    return node_types(raycluster(*groups, **spec)["spec"], live, asked)


def one(read_types: NodeTypes, name: str = "cpu"):
    return read_types.by_name()[name]


def problems_of(found: NodeTypes, name: str = "cpu") -> str:
    return " | ".join(problem.message for problem in found.problems if problem.group == name)


def live_node(node_type: str = "cpu", labels: dict[str, str] | None = None, **total: float) -> RayNode:
    return RayNode(
        f"id-{node_type}-{len(total)}",
        NodeStatus.IDLE,
        instance_id="p",
        node_type=node_type,
        total=amounts_of(total),
        labels=labels_of(labels or {}),
    )


# --- order, counts, limits -------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:C-1")
def test_the_head_comes_first_and_groups_follow_in_the_order_of_the_spec():
    assert [kind.name for kind in read(group("b"), group("a")).types] == ["headgroup", "b", "a"]


@pytest.mark.rule("AS:C-2", "AS:C-3")
def test_counts_are_hosts_and_the_head_is_limited_to_one():
    found = read(group("slice", low=1, high=3, numOfHosts=4), group("cpu", low=2, high=10))
    head, hosts, single = found.types
    assert (head.min_nodes, head.max_nodes, head.is_head) == (0, 1, True)
    assert (hosts.min_nodes, hosts.max_nodes, hosts.num_of_hosts) == (4, 12, 4)
    assert (single.min_nodes, single.max_nodes, single.num_of_hosts) == (2, 10, 1)
    assert found.max_nodes == 12 + 10 + 1


@pytest.mark.rule("AS:B-10")
@pytest.mark.parametrize("spec", [{}, {"workerGroupSpecs": None}, {"workerGroupSpecs": []}], ids=str)
def test_a_cluster_without_groups_has_a_head_only(spec):
    found = node_types({"headGroupSpec": {"template": template()}, **spec})
    assert ([kind.name for kind in found.types], found.max_nodes, found.problems) == (["headgroup"], 1, ())


def _bare(**fields: Any) -> dict[str, Any]:
    return {"groupName": "cpu", "template": template(), **fields}


@pytest.mark.rule("AS:B-10", "AS:B-20", "AS:C-11")
@pytest.mark.parametrize(
    ("fields", "bounds", "word"),
    [
        pytest.param({}, (0, MAX_INT32), "", id="a group without min and max has 0 and the largest int32"),
        pytest.param({"minReplicas": None, "maxReplicas": None}, (0, MAX_INT32), "", id="null is absent"),
        pytest.param({"minReplicas": 2, "maxReplicas": 5}, (2, 5), "", id="min and max are taken as written"),
        pytest.param({"minReplicas": "2", "maxReplicas": "5"}, (2, 5), "", id="texts that hold numbers are numbers"),
        pytest.param({"minReplicas": 1.9, "maxReplicas": 5.9}, (1, 5), "", id="fractions are cut off"),
        pytest.param({"maxReplicas": "1e1"}, (0, 10), "", id="an exponent is understood"),
        pytest.param({"minReplicas": -3, "maxReplicas": 5}, (0, 5), "", id="a negative min is 0"),
        pytest.param(
            {"minReplicas": 1, "maxReplicas": -5}, (1, 1), "below minReplicas", id="a negative max is at least min"
        ),
        pytest.param(
            {"minReplicas": 7, "maxReplicas": 5}, (7, 7), "below minReplicas", id="max below min counts as min"
        ),
        pytest.param({"maxReplicas": 10**12}, (0, MAX_INT32), "", id="a max beyond int32 is cut"),
        pytest.param(
            {"suspend": True, "minReplicas": 2, "maxReplicas": 5}, (0, 0), "", id="a suspended group has max 0"
        ),
        pytest.param({"suspend": False, "maxReplicas": 5}, (0, 5), "", id="suspend false is not suspended"),
    ],
)
def test_bounds(fields, bounds, word):
    found = read(_bare(**fields))
    assert (one(found).min_nodes, one(found).max_nodes) == bounds
    assert (word in problems_of(found)) if word else not found.problems


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        pytest.param({"replicas": 3, "minReplicas": 1, "maxReplicas": 5}, 3, id="replicas as written"),
        pytest.param({"replicas": 9, "maxReplicas": 5}, 5, id="above max counts as max"),
        pytest.param({"replicas": 0, "minReplicas": 2}, 2, id="below min counts as min"),
        pytest.param({"minReplicas": 2}, 2, id="absent means min"),
        pytest.param({"replicas": 3, "numOfHosts": 4}, 12, id="in pods, not replicas"),
        pytest.param({"replicas": 3, "suspend": True}, 0, id="none while suspended"),
    ],
)
def test_wanted_pods_are_what_the_operator_makes_of_replicas(fields, pods):
    assert read(_bare(**fields)).desired_hosts == {"cpu": pods}


def test_a_suspended_group_is_named_so_that_its_replicas_are_not_rewritten():
    assert read(_bare(suspend=True)).suspended == {"cpu"}


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:C-4")
@pytest.mark.parametrize(
    ("options", "fields", "expected", "word"),
    [
        pytest.param(None, {}, (60.0, None), "", id="60 s by default"),
        pytest.param({"idleTimeoutSeconds": 300}, {}, (300.0, None), "", id="the cluster's own"),
        pytest.param({"idleTimeoutSeconds": 0}, {}, (0.0, None), "", id="zero is a time"),
        pytest.param(
            {"idleTimeoutSeconds": 300},
            {"idleTimeoutSeconds": 30},
            (300.0, 30.0),
            "",
            id="the group's takes precedence",
        ),
        pytest.param({}, {"idleTimeoutSeconds": "45.5"}, (60.0, 45.5), "", id="a text that holds a number"),
        pytest.param(
            {"idleTimeoutSeconds": "soon"}, {}, (60.0, None), "not a duration", id="what is no time is the default"
        ),
        pytest.param({}, {"idleTimeoutSeconds": -5}, (60.0, None), "not a duration", id="a negative time is none"),
        pytest.param({}, {"idleTimeoutSeconds": "nan"}, (60.0, None), "not a duration", id="nan is none"),
        pytest.param({}, {"idleTimeoutSeconds": True}, (60.0, None), "not a duration", id="true is none"),
    ],
)
def test_idle_timeouts(options, fields, expected, word):
    found = read(_bare(**fields), autoscalerOptions=options)
    assert (found.idle_timeout_s, one(found).idle_timeout_s) == expected
    problems = " ".join(problem.message for problem in found.problems)
    assert (word in problems) if word else not problems


@pytest.mark.rule("AS:C-5")
@pytest.mark.parametrize(
    ("options", "is_conservative"),
    [
        ({"upscalingMode": "Conservative"}, True),
        ({"upscalingMode": "Default"}, False),
        ({"upscalingMode": "Aggressive"}, False),
        ({"upscalingMode": "whatever"}, False),
        ({}, False),
        (None, False),
    ],
    ids=str,
)
def test_only_conservative_limits_the_speed(options, is_conservative):
    assert read(autoscalerOptions=options).is_conservative is is_conservative


@pytest.mark.rule("AS:C-6")
@pytest.mark.parametrize(
    ("given", "priority", "is_problem"), [(None, 0, False), (10, 10, False), ("-3", -3, False), ("high", 0, True)]
)
def test_priority(given, priority, is_problem):
    found = read(_bare(priority=given))
    assert (one(found).priority, bool(found.problems)) == (priority, is_problem)


@pytest.mark.rule("AS:C-7", "AS:B-12")
def test_labels_are_the_groups_own_and_the_one_that_every_node_of_it_carries():
    found = read(group("cpu", labels={"ray.io/market-type": "spot", "team": ""}))
    assert one(found).labels == (("ray.io/market-type", "spot"), ("ray.io/node-group", "cpu"), ("team", ""))


@pytest.mark.rule("AS:C-7")
@pytest.mark.parametrize(
    "labels",
    [
        {"-bad": "x"},
        {"a/b/c": "x"},
        {"": "x"},
        {"ok": "not ok"},
        {"ok": "x" * 64},
        {"UPPER.example/key": "x"},
        {"ok": 3},
        {"ok\n": "x"},
        {"ok": "x\n"},
    ],
    ids=repr,
)
def test_a_label_that_kubernetes_would_not_take_is_left_out_and_reported(labels):
    found = read(group("cpu", labels={**labels, "good": "yes"}))
    assert one(found).labels == (("good", "yes"), ("ray.io/node-group", "cpu"))
    assert "is not a Kubernetes label" in problems_of(found)


@pytest.mark.rule("AS:C-7")
def test_labels_among_the_start_parameters_are_ignored_and_reported():
    found = read(group("cpu", rayStartParams={"labels": "a=b"}))
    assert ("a", "b") not in one(found).labels
    assert "rayStartParams[labels]" in problems_of(found)


# --- bad groups ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:B-20")
@pytest.mark.parametrize(
    ("fields", "field", "fix"),
    [
        pytest.param({"minReplicas": "two"}, "minReplicas", "set an integer", id="min that is no number"),
        pytest.param({"maxReplicas": []}, "maxReplicas", "set an integer", id="max that is a list"),
        pytest.param({"numOfHosts": 0}, "numOfHosts", "at least 1", id="no hosts at all"),
        pytest.param({"template": {}}, "the number of CPUs per node", "limits.cpu", id="no number of CPUs"),
        pytest.param(
            {"rayStartParams": {"num-cpus": "many"}}, "num-cpus", "set a number", id="num-cpus that is no number"
        ),
        pytest.param({"rayStartParams": {"num-gpus": "-1"}}, "num-gpus", "at least 0", id="fewer than no GPUs"),
        pytest.param(
            {"rayStartParams": {"resources": "{a: 1}"}}, "resources", "JSON object", id="resources that are no JSON"
        ),
        pytest.param(
            {"rayStartParams": {"resources": '{"a": "x"}'}}, "[a]", "set a number", id="a resource that is no number"
        ),
        pytest.param(
            {"rayStartParams": {"resources": '{"a": NaN}'}}, "[a]", "set an integer", id="a resource that is nan"
        ),
        pytest.param(
            {"rayStartParams": {"resources": '{"a": null}'}}, "[a]", "set an integer", id="a resource that is null"
        ),
        pytest.param({"rayStartParams": {"resources": '{"a": 1e999}'}}, "[a]", "set a number", id="beyond any size"),
        pytest.param({"resources": {"CPU": "4 cores"}}, "resources[CPU]", "set a number", id="CPUs with a unit"),
    ],
)
def test_a_bad_group_is_skipped_with_its_field_and_the_fix(fields, field, fix):
    found = read({**_bare(), **fields}, group("good"))
    assert [kind.name for kind in found.types] == ["headgroup", "good"]
    assert found.skipped == {"cpu"}
    assert "cpu" not in found.desired_hosts
    assert field in problems_of(found)
    assert fix in problems_of(found)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([{"template": template()}], "spec.workerGroupSpecs[0].groupName is missing"),
        (["text"], "spec.workerGroupSpecs[0].groupName is missing"),
        ([group("a"), group("a")], "spec.workerGroupSpecs[1].groupName 'a' is already used"),
        ([group("headgroup")], "groupName 'headgroup' is already used"),
    ],
    ids=["nameless", "no object", "duplicate", "the head's name"],
)
def test_an_entry_without_a_name_of_its_own_is_left_out(groups, message):
    found = node_types({"workerGroupSpecs": groups})
    assert message in " ".join(problem.message for problem in found.problems)
    assert [kind.name for kind in found.types] in (["headgroup"], ["headgroup", "a"])


def test_all_problems_of_a_group_are_reported_together():
    problems = read(group("cpu", labels={"ok": "not ok"}, priority="high")).problems_by_group()["cpu"]
    assert "labels[ok]" in problems
    assert "; priority is 'high'" in problems or "priority is 'high'" in problems.split("; ")[0]


def test_worker_groups_that_are_no_list_are_a_problem():
    found = node_types({"workerGroupSpecs": {"a": 1}})
    assert [problem.group for problem in found.problems] == [""]


def test_a_bad_head_is_reported_and_changes_nothing_else():
    found = read(headGroupSpec={"rayStartParams": {"num-cpus": "x"}})
    assert [kind.name for kind in found.types] == ["headgroup", "cpu"]
    assert "num-cpus" in problems_of(found, "headgroup")


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:B-12", "AS:V-8")
def test_planned_nodes_have_the_requested_resources_of_live_nodes():
    nodes = (live_node(CPU=1, **{"accelerator_type:A100": 1, "widget": 2, "node:10.0.0.1": 1}),)
    kind = one(read(group("cpu"), live=nodes, asked=frozenset({"accelerator_type:A100", "node:10.0.0.1"})))
    assert dict(kind.resources)["accelerator_type:A100"] == RESOURCE_UNIT_SCALING
    assert "widget" not in dict(kind.resources), "no demand requests it, so it must not change scores"
    assert "node:10.0.0.1" not in dict(kind.resources), "a new node has another address"


@pytest.mark.rule("AS:B-12")
def test_planned_nodes_have_the_minimum_of_what_all_live_nodes_of_the_group_have():
    nodes = (
        live_node(CPU=1, widget=4, gadget=1),
        live_node(CPU=1, widget=2),
        live_node("other", CPU=1),
        RayNode("dead", NodeStatus.DEAD, node_type="cpu"),
    )
    resources = dict(one(read(group("cpu"), live=nodes, asked=frozenset({"widget", "gadget"}))).resources)
    assert resources["widget"] == 2 * RESOURCE_UNIT_SCALING
    assert "gadget" not in resources


@pytest.mark.rule("AS:V-8")
def test_the_template_takes_precedence_over_resources_of_old_nodes():
    assert (
        dict(one(read(group("cpu", template=template(cpu="8")), live=(live_node(CPU=4),))).resources)["CPU"]
        == 8 * RESOURCE_UNIT_SCALING
    )


@pytest.mark.rule("AS:V-8")
def test_memory_that_is_only_requested_is_taken_from_live_nodes():
    requests_only = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]}}
    assert dict(one(read(_bare(template=requests_only))).resources)["memory"] == 2**31 * RESOURCE_UNIT_SCALING
    taught = read(_bare(template=requests_only), live=(live_node(CPU=1, memory=1.5e9),))
    assert dict(one(taught).resources)["memory"] == 1_500_000_000 * RESOURCE_UNIT_SCALING


@pytest.mark.rule("AS:V-8")
def test_resources_of_a_custom_ray_start_command_take_precedence_over_the_template():
    own = {"spec": {"containers": [{"command": ["ray start --num-cpus=2"], "resources": {"limits": {"cpu": "1"}}}]}}
    assert dict(one(read(_bare(template=own), live=(live_node(CPU=2),))).resources)["CPU"] == 2 * RESOURCE_UNIT_SCALING


@pytest.mark.rule("AS:V-8")
def test_a_group_without_cpus_in_its_template_is_read_once_one_of_its_nodes_is_live():
    found = read(_bare(template={}), live=(live_node(CPU=16),))
    assert dict(one(found).resources)["CPU"] == 16 * RESOURCE_UNIT_SCALING
    assert not found.skipped


@pytest.mark.rule("AS:B-12")
def test_planned_nodes_have_labels_on_which_live_nodes_agree():
    first = live_node(
        labels={"ray.io/node-id": "1", "ray.io/accelerator-type": "A100", "ray.io/availability-zone": "a", "x": "1"}
    )
    second = live_node(
        labels={"ray.io/node-id": "2", "ray.io/accelerator-type": "A100", "ray.io/availability-zone": "a", "x": "2"}
    )
    found = read(group("cpu"), live=(first, second))
    assert dict(one(found).labels) == {"ray.io/accelerator-type": "A100", "ray.io/node-group": "cpu"}


@pytest.mark.rule("FD:AS3-6")
def test_resources_of_all_demands_are_collected_except_amounts_of_zero():
    request = Request(amounts_of({"CPU": 1, "GPU": 0, "accelerator_type:A100": 0.001}))
    state = GcsState(
        tasks=(Demand(request),),
        gangs=(Gang("pg:PACK|PENDING", (Request(amounts_of({"bundle": 1})),)),),
        constraint=(Demand(Request(amounts_of({"held": 1}))),),
    )
    assert asked_resources(state) == {"CPU", "accelerator_type:A100", "bundle", "held"}


# --- anything at all -------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1", "2Gi", "1e9", "-1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "groupName",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "numOfHosts",
    "idleTimeoutSeconds",
    "priority",
    "suspend",
    "labels",
    "resources",
    "rayStartParams",
    "template",
]
GROUPS = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6)
PARAMS = st.dictionaries(st.sampled_from(["num-cpus", "num-gpus", "memory", "resources", "labels"]), JSON, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    spec=st.fixed_dictionaries(
        {},
        optional={
            "workerGroupSpecs": st.lists(GROUPS, max_size=3) | JSON,
            "headGroupSpec": JSON,
            "autoscalerOptions": JSON,
        },
    )
)
def test_no_json_makes_it_fail(spec):
    found = node_types(spec)
    assert found.types[0].is_head
    assert all(0 <= kind.min_nodes <= kind.max_nodes for kind in found.types)
    assert len({kind.name for kind in found.types}) == len(found.types)


@settings(max_examples=60, deadline=None)
@given(params=PARAMS, resources=JSON, limits=JSON, requests=JSON, selector=JSON)
def test_no_amount_makes_it_fail(params, resources, limits, requests, selector):
    container = {"resources": {"limits": limits, "requests": requests}}
    pod = {"spec": {"containers": [container], "nodeSelector": selector}}
    found = node_types({"workerGroupSpecs": [_bare(rayStartParams=params, resources=resources, template=pod)]})
    for kind in found.types:
        assert all(amount >= 0 and amount % RESOURCE_UNIT_SCALING == 0 for _, amount in kind.resources)
    assert ("cpu" in found.skipped) == ("cpu" not in found.by_name())


@pytest.mark.rule("FD:AS-A6")
def test_what_the_hosts_of_one_slice_share_is_not_the_groups():
    shared = {"ray.io/tpu-slice-name": "slice-7", "rack": "r1", "ray.io/tpu-topology": "2x2"}
    spec = {"workerGroupSpecs": [group("tpu", numOfHosts=2)]}

    def host_labels(*racks: str) -> dict[str, str]:
        nodes = [
            RayNode(f"n{i}", NodeStatus.IDLE, f"p{i}", "tpu", labels=labels_of({**shared, "rack": rack}))
            for i, rack in enumerate(racks)
        ]
        return dict(one(node_types(spec, nodes), "tpu").labels)

    own = {"ray.io/node-group": "tpu", "ray.io/tpu-topology": "2x2"}
    assert host_labels("r1", "r1") == own, "one slice proves nothing but its kind"
    assert host_labels("r1", "r1", "r2", "r2") == own
    assert host_labels("r1", "r1", "r1", "r1") == {**own, "rack": "r1"}


GPU_NODE = {"limits": {"cpu": "8", "nvidia.com/gpu": "1"}}
TPU_NODE = {"limits": {"cpu": "8", "google.com/tpu": "4"}}
NEURON_NODE = {"limits": {"cpu": "8", "aws.amazon.com/neuroncore": "2"}}


@pytest.mark.rule("FD:AS-A11")
@pytest.mark.parametrize(
    ("resources", "selector", "labels", "kind"),
    [
        (GPU_NODE, {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, {}, "A100"),
        (GPU_NODE, {"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, {}, "H100"),
        (GPU_NODE, {"karpenter.k8s.aws/instance-gpu-name": "a10g"}, {}, "A10G"),
        (GPU_NODE, {"nvidia.com/gpu.product": "Tesla-T4"}, {}, "T4"),
        (GPU_NODE, {}, {"ray.io/accelerator-type": "L4"}, "L4"),
        (TPU_NODE, {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}, {}, "TPU-V6E"),
        (NEURON_NODE, {}, {}, "aws-neuron-core"),
        (GPU_NODE, {"cloud.google.com/gke-accelerator": "nvidia-of-next-year"}, {}, ""),
        (GPU_NODE, {}, {}, ""),
    ],
)
def test_the_accelerator_type_is_derived_from_the_template_before_any_node_is_live(resources, selector, labels, kind):
    made = template("ray-worker", nodeSelector=selector)
    made["spec"]["containers"][0]["resources"] = resources
    spec = {"workerGroupSpecs": [group("gpu", template=made, labels=labels)]}
    asked = {f"accelerator_type:{name}" for name in ("A100", "H100", "A10G", "T4", "L4", "TPU-V6E", "aws-neuron-core")}
    found = one(node_types(spec, asked=asked), "gpu")
    kinds = {name.partition(":")[2] for name, _ in found.resources if name.startswith("accelerator_type:")}
    assert kinds == ({kind} if kind else set())
    assert dict(found.labels).get("ray.io/accelerator-type", "") == kind
    assert not [name for name, _ in one(node_types(spec), "gpu").resources if ":" in name], "only what is asked for"
