"""Who holds what a workload lacks: what is short, on which nodes, and whose pods request it."""

from dataclasses import replace

import pytest

from raytide.api.capacity import CapacityNode, CapacityPod, NodeTaint
from raytide.api.pod import PodCondition
from raytide.api.pod_requirements import PodConstraints
from raytide.explain.explain import explain, lacks_capacity
from raytide.explain.holders import closed_nodes, pending, shortages
from raytide.explain.messages import closed_by, held, no_node_admits, open_nodes, short_of
from raytide.explain.model import RAYCLUSTER, Holding, Need, Verdict
from raytide.simulator.inputs import PlanInputs
from support.explained import (
    HEAD,
    NOON,
    RAYCLUSTERS,
    TRAININGJOBS,
    UNSCHEDULABLE,
    of_cluster,
    retry,
    waiting_worker,
    worker,
)

GPU = "nvidia.com/gpu"
SEVERAL = PodCondition(
    "False",
    "Unschedulable",
    "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {a: b}, 1 node(s) were unschedulable.",
)
ON_A = PodConstraints(node_selector=(("pool", "a"),))

pytestmark = pytest.mark.rule("FD:UX3-1")


def node(name: str, cpu: int = 16, gpu: int = 0, **fields) -> CapacityNode:
    return CapacityNode(name=name, allocatable={"cpu": cpu * 1000, "memory": 64 << 30, "pods": 110, GPU: gpu}, **fields)


def pod(name: str, on: str = "", cpu: int = 1, gpu: int = 0, namespace: str = "ml", **fields) -> CapacityPod:
    requests = {"cpu": cpu * 1000, "pods": 1} | ({GPU: gpu} if gpu else {})
    return CapacityPod(name=name, namespace=namespace, node=on, requests=requests, limits={}, **fields)


def cluster(nodes, pods) -> PlanInputs:
    return PlanInputs(nodes=tuple(nodes), pods=tuple(pods))


def short(nodes, pods, wanted: CapacityPod, count: int = 1):
    return shortages(cluster(nodes, pods), [Need(wanted, count)])


TWO = [node("n1", gpu=4), node("n2", gpu=2)]
VISION = [pod(f"v{n}", "n1", gpu=1, cluster="vision-rl") for n in range(3)]


def test_a_gang_short_of_gpus_is_told_what_is_needed_what_is_free_and_who_holds_the_rest():
    (found,) = short(TWO, VISION, pod("w", gpu=1), 4)
    assert (found.resource, found.needed, found.free, found.total) == (GPU, 4, 3, 6)
    assert found.holders == (Holding(RAYCLUSTER, "ml", "vision-rl", 3),)
    assert short_of(found) == "needs 4 nvidia.com/gpu; 3 of 6 are free"
    assert held([found]) == "ml/vision-rl (RayCluster) 3 nvidia.com/gpu"


@pytest.mark.rule("FD:UX3-4")
def test_all_resources_that_are_short_are_named():
    busy = [pod("web", "n1", cpu=15, namespace="web"), pod("db", "n2", cpu=15, namespace="web"), *VISION]
    found = short(TWO, busy, pod("w", cpu=4, gpu=2), 2)
    assert {each.resource for each in found} == {"cpu", GPU}
    assert [holder.name for each in found if each.resource == "cpu" for holder in each.holders] == [
        "db",
        "web",
        "vision-rl",
    ]


@pytest.mark.rule("FD:UX3-3")
@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (pod("w", cpu=40), "needs 40 cpu on one node; the largest has 16"),
        (pod("w", gpu=5), "needs 5 nvidia.com/gpu on one node; the largest has 4"),
    ],
)
def test_a_pod_larger_than_any_node_is_told_the_largest_one(wanted, text):
    (found,) = short(TWO, VISION, wanted)
    assert (found.is_impossible, short_of(found), held([found])) == (True, text, "")


def test_what_is_free_in_sum_and_not_on_one_node_is_said_of_one_node():
    (found,) = short(TWO, [pod("a", "n1", gpu=3, job="text"), pod("b", "n2", gpu=1, job="text")], pod("w", gpu=2))
    assert short_of(found) == "needs 2 nvidia.com/gpu; 2 of 6 are free, at most 1 on one node, where a pod needs 2"
    assert held([found]) == "ml/text (TrainingJob) 4 nvidia.com/gpu"


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("n1"), node("n2", is_ready=False)], id="a node that is not ready"),
        pytest.param([node("n1"), node("n2", is_cordoned=True)], id="a cordoned node"),
        pytest.param([node("n1"), node("n2", taints=(NodeTaint("gpu", "", "NoSchedule"),))], id="a taint"),
    ],
)
def test_nodes_where_the_pods_may_not_run_count_for_nothing(nodes):
    (found,) = short(nodes, [pod("a", "n1", cpu=16), pod("b", "n2", cpu=1)], pod("w"))
    assert (found.total, [one.name for one in found.holders]) == (16_000, ["a"])


def test_only_nodes_that_the_selector_admits_count():
    nodes = [node("n1", labels={"pool": "a"}), node("n2", labels={"pool": "b"})]
    (found,) = short(nodes, [pod("a", "n1", cpu=16), pod("b", "n2", cpu=2)], pod("w", constraints=ON_A))
    assert [one.name for one in found.holders] == ["a"]


@pytest.mark.parametrize(
    ("nodes", "wanted", "count"),
    [
        pytest.param(TWO, pod("w"), 3, id="there is room"),
        pytest.param([node("n1")], pod("w", constraints=ON_A), 1, id="no node matches: capacity would not help"),
        pytest.param([], pod("w"), 1, id="there are no nodes"),
        pytest.param(TWO, pod("w"), 0, id="nothing is needed"),
    ],
)
def test_nothing_is_short_when(nodes, wanted, count):
    assert short(nodes, [], wanted, count) == ()


def test_holders_are_bounded_and_in_order_of_what_they_hold():
    others = [pod(f"p{n}", "n1", cpu=1, namespace=f"ns{n}") for n in range(9)]
    (found,) = short([node("n1", cpu=12)], [*others, pod("big", "n1", cpu=3)], pod("w"))
    assert ([one.name for one in found.holders], found.more_holders) == (["big", "p0", "p1", "p2", "p3"], 5)
    assert held([found]).endswith("ns3/p3 (Pod) 1 cpu and 5 more holders")


def test_of_many_different_pods_those_of_which_there_are_most_are_compared():
    needs = [Need(pod("w", cpu=20 + n), 2000 - n) for n in range(1000)]
    found = {each.resource: each for each in shortages(cluster([node("n1")], []), needs)}
    assert found["cpu"].each == 24_000


def test_pods_without_a_node_that_a_scheduler_may_place_are_what_a_workload_needs():
    pods = [
        pod("a", cluster="demo"),
        pod("b", cluster="demo"),
        pod("c", cluster="demo", cpu=2),
        pod("bound", "n1", cluster="demo"),
        pod("gated", cluster="demo", is_scheduling_gated=True),
        pod("going", cluster="demo", is_terminating=True),
        pod("other", cluster="other"),
        pod("elsewhere", cluster="demo", namespace="web"),
    ]
    found = pending(cluster([], pods), RAYCLUSTER, "ml", "demo")
    assert [(need.pod.requests["cpu"], need.count) for need in found] == [(1000, 2), (2000, 1)]


# --- nodes that are closed to the pods ---------------------------------------------------------------------------------------


T4 = PodConstraints(node_selector=(("accelerator", "t4"),))
ON_T4 = {"accelerator": "t4"}
DEDICATED = NodeTaint("dedicated", "inference", "NoSchedule")
OTHERS = [
    node("a100", gpu=4, taints=(NodeTaint(GPU, "present", "NoSchedule"),)),
    node("archive", labels={"pool": "archive"}, is_cordoned=True),
    node("small"),
]


@pytest.mark.rule("FD:UX3-4")
@pytest.mark.parametrize(
    ("nodes", "why", "holder", "fix"),
    [
        pytest.param(
            [],
            "no node has the labels accelerator=t4",
            "nodeSelector accelerator=t4 of the pod template",
            "add nodes with the labels accelerator=t4, or change nodeSelector or affinity of the pod template",
            id="no node has the labels",
        ),
        pytest.param(
            [node("t4-1", labels=ON_T4, taints=(DEDICATED,))],
            "no node takes the pods: node t4-1 has the taint dedicated=inference:NoSchedule, which the pods "
            "do not tolerate",
            "node t4-1 has the taint dedicated=inference:NoSchedule, which the pods do not tolerate",
            "add a toleration for the taint dedicated=inference:NoSchedule to the pod template",
            id="the only one has a taint",
        ),
        pytest.param(
            [node("t4-1", labels=ON_T4, is_cordoned=True)],
            "no node takes the pods: node t4-1 is cordoned",
            "node t4-1 is cordoned",
            "kubectl uncordon t4-1",
            id="the only one is cordoned",
        ),
        pytest.param(
            [node("t4-1", labels=ON_T4, is_ready=False)],
            "no node takes the pods: node t4-1 is not Ready",
            "node t4-1 is not Ready",
            "repair the node: kubectl describe node t4-1",
            id="the only one is not Ready",
        ),
        pytest.param(
            [node("t4-1", labels=ON_T4, taints=(DEDICATED,)), node("t4-2", labels=ON_T4, is_cordoned=True)],
            "no node takes the pods: node t4-1 has the taint dedicated=inference:NoSchedule, which the pods "
            "do not tolerate, node t4-2 is cordoned",
            "node t4-1 has the taint dedicated=inference:NoSchedule, which the pods do not tolerate, node t4-2 is cordoned",
            "add a toleration for the taint dedicated=inference:NoSchedule to the pod template, or kubectl uncordon t4-2",
            id="either would do",
        ),
        pytest.param(
            [
                node("t4-1", labels=ON_T4, taints=(DEDICATED,), is_cordoned=True),
                node("t4-2", labels=ON_T4, is_cordoned=True),
            ],
            "no node takes the pods: node t4-2 is cordoned",
            "node t4-2 is cordoned",
            "kubectl uncordon t4-2",
            id="the one that takes less",
        ),
        pytest.param(
            [node("t4-1", cpu=0, labels=ON_T4, is_cordoned=True), node("t4-2", labels=ON_T4, taints=(DEDICATED,))],
            "no node takes the pods: node t4-2 has the taint dedicated=inference:NoSchedule, which the pods "
            "do not tolerate",
            "node t4-2 has the taint dedicated=inference:NoSchedule, which the pods do not tolerate",
            "add a toleration for the taint dedicated=inference:NoSchedule to the pod template",
            id="the one that has capacity",
        ),
    ],
)
def test_what_closes_the_nodes_that_match_is_named_and_nothing_that_would_not_help(nodes, why, holder, fix):
    closed = closed_nodes(cluster([*OTHERS, *nodes], []), [Need(pod("w", constraints=T4), 1)])
    assert (no_node_admits(closed), closed_by(closed), open_nodes(closed)) == (why, holder, fix)


def test_nodes_are_open_to_pods_that_one_admits_whatever_is_free_there():
    full = [node("t4-1", labels=ON_T4), pod("big", "t4-1", cpu=16)]
    assert closed_nodes(cluster(full[:1], full[1:]), [Need(pod("w", constraints=T4), 1)]) is None
    assert closed_nodes(cluster([], []), []) is None


def test_in_a_cluster_without_nodes_none_is_closed():
    assert closed_nodes(cluster([], []), [Need(pod("w", constraints=T4), 1)]) is None


def test_a_node_under_pressure_is_closed_by_its_taint():
    pressure = NodeTaint("node.kubernetes.io/disk-pressure", "", "NoSchedule")
    closed = closed_nodes(cluster([node("n1", taints=(pressure,))], []), [Need(pod("w"), 1)])
    assert closed_by(closed) == (
        "node n1 has the taint node.kubernetes.io/disk-pressure:NoSchedule, which the pods do not tolerate"
    )


def test_taints_of_the_nodes_own_conditions_are_not_named_beside_them():
    cordoned = NodeTaint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    closed = closed_nodes(
        cluster([node("t4-1", labels=ON_T4, is_cordoned=True, taints=(cordoned,))], []),
        [Need(pod("w", constraints=T4), 1)],
    )
    assert closed_by(closed) == "node t4-1 is cordoned"


# --- in the explanation ------------------------------------------------------------------------------------------------------


def stuck(cpu: int = 1):
    """A RayCluster with a worker that has no node, and what the cluster has."""
    objects = of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE))
    waiting = pod("demo-cpu-worker-00001", cpu=cpu, namespace="default", cluster="demo")
    return replace(objects, cluster=cluster([node("n1")], [waiting, pod("big", "n1", cpu=16, cluster="rl")]))


def test_the_explanation_names_the_holders():
    found = explain(stuck(), NOON)
    assert lacks_capacity(found)
    assert found.first.holder == "ml/rl (RayCluster) 16 cpu"
    assert (found.verdict, [each.resource for each in found.first.shortages]) == (Verdict.WAITS, ["cpu"])


@pytest.mark.rule("FD:UX3-4")
def test_the_explanation_says_what_closes_the_nodes_to_the_group():
    objects = stuck()
    waiting = pod("demo-cpu-worker-00001", namespace="default", cluster="demo", constraints=T4)
    found = explain(replace(objects, cluster=cluster(OTHERS, [waiting])), NOON)
    assert found.first.holder == "nodeSelector accelerator=t4 of the pod template"
    assert "no node has the labels accelerator=t4" in found.summary
    assert found.first.shortages == ()


@pytest.mark.rule("FD:UX3-4")
def test_where_nodes_are_open_and_full_the_fix_is_about_capacity_alone():
    objects = of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=SEVERAL))
    found = explain(replace(objects, cluster=stuck().cluster), NOON)
    assert found.first.fix == "add nodes with free cpu, lower the request, or end pods that use it"
    assert "group cpu: needs 1 cpu; 0 of 16 are free" in found.summary


@pytest.mark.rule("FD:UX3-1")
@pytest.mark.parametrize(
    "message",
    [
        (
            'pods "demo-cpu-worker-x" is forbidden: exceeded quota: team, requested: requests.cpu=1, used: requests.cpu=8, '
            "limited: requests.cpu=8"
        ),
        'pods "demo-cpu-worker-x" is forbidden: exceeded quota: team, requested: cpu=1, used: cpu=8, limited: cpu=8',
    ],
)
def test_who_uses_a_quota_of_the_namespace_is_named(message):
    objects = of_cluster(HEAD, worker(0), retries=(retry("cpu", message),))
    users = [
        pod("denoise", "n1", cpu=6, namespace="default", cluster="denoise"),
        pod("other", "n1", cpu=9, namespace="elsewhere"),
        pod("ended", "n1", cpu=9, namespace="default", is_finished=True),
    ]
    found = explain(replace(objects, cluster=cluster([node("n1")], users)), NOON)
    assert found.first.reason == "QuotaExceeded"
    assert found.first.holder == "ResourceQuota team; in its namespace default/denoise (RayCluster) 6 cpu"


@pytest.mark.rule("FD:UX3-3")
def test_who_holds_the_rest_is_not_named_where_no_node_is_large_enough():
    waiting = pod("demo-cpu-worker-00001", cpu=40, gpu=1, namespace="default", cluster="demo")
    full = cluster([node("n1", gpu=1)], [waiting, pod("big", "n1", gpu=1, cluster="rl")])
    found = explain(replace(stuck(), cluster=full), NOON)
    assert [each.resource for each in found.first.shortages] == ["cpu"]
    assert found.first.holder == "the size of the nodes"


@pytest.mark.rule("FD:UX3-3")
def test_a_worker_larger_than_any_node_can_never_run_as_a_trainer_can_not():
    found = explain(stuck(cpu=40), NOON)
    assert (found.verdict, found.first.is_permanent) == (Verdict.CAN_NEVER_RUN, True)
    assert "larger node" in found.first.fix


def test_what_the_sharing_pass_found_to_be_impossible_keeps_the_words_of_the_condition():
    case = TRAININGJOBS["no node could ever run a trainer"]()
    found = explain(replace(case.objects, cluster=cluster([node("n1", cpu=0)], [])), NOON)
    assert found.first.shortages[0].is_impossible
    assert (found.first.holder, found.first.fix) == (case.explained().first.holder, case.explained().first.fix)


def test_a_gang_without_pods_needs_those_of_its_minimum():
    case = TRAININGJOBS["no node has enough free resources"]()
    full = cluster([node("n1", cpu=2)], [pod("big", "n1", cpu=2, cluster="rl")])
    found = explain(replace(case.objects, cluster=full), NOON)
    (short_of_cpu,) = found.first.shortages
    assert (short_of_cpu.needed, found.first.holder) == (2000, "ml/rl (RayCluster) 2 cpu")


@pytest.mark.parametrize("words", ["an image cannot be pulled", "a webhook rejects the pods", "it is suspended"])
def test_other_causes_need_no_capacity(words):
    assert not lacks_capacity(RAYCLUSTERS[words]().explained())
