"""Pods are bound to nodes, and conditions and events explain why some are not."""

import pytest


def test_pods_spread_over_equal_nodes(cluster):
    for name in ("n1", "n2", "n3"):
        cluster.node(name)
    for number in range(6):
        cluster.pod(f"p{number}", cpu="1")
    assert sorted(cluster.node_of(f"p{number}") for number in range(6)) == ["n1", "n1", "n2", "n2", "n3", "n3"]


def preferred(*weights_and_nodes):
    terms = [
        {
            "weight": weight,
            "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        }
        for weight, node in weights_and_nodes
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def test_preferred_node_affinity_precedes_the_load(cluster):
    for name in ("n1", "n2", "n3"):
        cluster.node(name)
    cluster.pod("first", cpu="1", affinity=preferred((10, "n2"), (100, "n3")))
    cluster.pod("second", cpu="1", affinity=preferred((100, "n3")))
    assert cluster.node_of("first") == cluster.node_of("second") == "n3"


def test_a_pod_runs_on_another_node_if_the_preferred_one_is_full(cluster):
    cluster.node("n1")
    cluster.node("n2", cpu="1")
    cluster.pod("p", cpu="2", affinity=preferred((100, "n2"), (1, "gone")))
    assert cluster.node_of("p") == "n1"


def test_a_bound_pod_has_a_condition_and_an_event(cluster):
    cluster.node("n1")
    cluster.pod("p")
    assert cluster.scheduled("p")["status"] == "True"
    assert cluster.events("Scheduled") == ["Successfully assigned default/p to n1"]


def test_a_pod_that_does_not_fit_stays_pending_with_one_event(cluster):
    for name in ("n1", "n2", "n3"):
        cluster.node(name)
    cluster.pod("big", cpu="9")
    cluster.pass_time(minutes=1)
    cluster.pod("small", cpu="1")

    assert cluster.node_of("big") is None
    condition = cluster.scheduled("big")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "0/3 nodes are available: 3 Insufficient cpu."
    assert cluster.events("FailedScheduling") == ["0/3 nodes are available: 3 Insufficient cpu."]


def test_the_same_capacity_is_never_assigned_twice(cluster):
    cluster.node("n1", cpu="4")
    for number in range(6):
        cluster.pod(f"p{number}", cpu="1", settle=False)
    cluster.settle()
    assert [cluster.node_of(f"p{number}") for number in range(6)] == ["n1"] * 4 + [None] * 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ends_makes_capacity_for_the_next(cluster, phase):
    cluster.node("n1", cpu="1")
    cluster.pod("first", cpu="1")
    cluster.pod("second", cpu="1")
    assert cluster.node_of("second") is None
    cluster.report("first", phase=phase)
    assert cluster.node_of("second") == "n1"


def test_a_terminating_pod_keeps_its_capacity_until_it_is_gone(cluster):
    cluster.node("n1", cpu="1")
    cluster.pod("first", cpu="1")
    cluster.pod("second", cpu="1")
    cluster.delete("pods", "first")
    assert cluster.node_of("second") is None
    cluster.delete("pods", "first", grace_s=0)
    assert cluster.node_of("second") == "n1"


def test_a_new_node_takes_the_waiting_pods_oldest_first(cluster):
    cluster.pod("young-in-name-old-in-age", cpu="1")
    cluster.pass_time(seconds=5)
    cluster.pod("a-late-comer", cpu="1")
    assert cluster.scheduled("a-late-comer")["message"] == "no nodes available to schedule pods"
    cluster.node("n1", cpu="1")
    assert cluster.node_of("young-in-name-old-in-age") == "n1"
    assert cluster.node_of("a-late-comer") is None


def test_priority_takes_precedence_over_age(cluster):
    cluster.pod("old", cpu="1")
    cluster.pass_time(seconds=5)
    cluster.pod("urgent", cpu="1", priority=1000)
    cluster.node("n1", cpu="1")
    assert cluster.node_of("urgent") == "n1"
    assert cluster.node_of("old") is None


def test_a_pod_gets_the_node_that_is_least_allocated_with_it(cluster):
    """An empty node of 4 CPUs would be a quarter full with the pod, one of 32 with two CPUs taken a tenth."""
    cluster.node("large", cpu="32")
    cluster.pod("there", cpu="2")
    cluster.node("small", cpu="4")
    cluster.pod("p", cpu="1")
    assert cluster.node_of("p") == "large"


def test_pods_of_one_second_are_bound_in_the_order_of_their_creation(cluster):
    """By name, the workers of a RayCluster would come before its head."""
    for name in ("ray-head", "ray-cpu-worker", "a"):
        cluster.pod(name, cpu="1")
    cluster.node("n1", cpu="1")
    assert [cluster.node_of(name) for name in ("ray-head", "ray-cpu-worker", "a")] == ["n1", None, None]


def test_uncordoning_a_node_binds_pending_pods(cluster):
    cluster.node("n1", spec={"unschedulable": True})
    cluster.pod("p")
    assert cluster.scheduled("p")["message"] == "0/1 nodes are available: 1 node(s) were unschedulable."
    node = cluster.get("nodes", "n1", "")
    cluster.store.update("nodes", {**node, "spec": {}})
    cluster.settle()
    assert cluster.node_of("p") == "n1"


def test_a_node_that_changes_keeps_count_of_its_pods(cluster):
    cluster.node("n1", cpu="2")
    cluster.pod("first", cpu="1")
    node = cluster.get("nodes", "n1", "")
    node["metadata"]["labels"] = {"zone": "a"}
    cluster.store.update("nodes", node)
    cluster.settle()
    cluster.pod("second", cpu="2")
    assert cluster.node_of("second") is None


def test_pods_bound_by_another_one_count(cluster):
    cluster.node("n1", cpu="2")
    cluster.pod("foreign", cpu="2", nodeName="n1")
    cluster.pod("p", cpu="1")
    assert cluster.node_of("p") is None


def test_pods_that_came_before_their_node_count_too(cluster):
    cluster.pod("foreign", cpu="2", nodeName="n1")
    cluster.node("n1", cpu="2")
    cluster.pod("p", cpu="1")
    assert cluster.node_of("p") is None


def test_a_gated_pod_is_left_alone_until_the_gates_are_gone(cluster):
    cluster.node("n1")
    cluster.pod("p", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert cluster.node_of("p") is None
    assert cluster.scheduled("p")["reason"] == "SchedulingGated"
    assert cluster.events("FailedScheduling") == []
    pod = cluster.get("pods", "p")
    del pod["spec"]["schedulingGates"]
    cluster.store.update("pods", pod)
    cluster.settle()
    assert cluster.node_of("p") == "n1"


def test_pods_of_another_scheduler_are_left_alone(cluster):
    cluster.node("n1")
    cluster.pod("p", schedulerName="volcano")
    assert cluster.node_of("p") is None
    assert cluster.scheduled("p") == {}


def test_a_quantity_that_cannot_be_read_stops_only_its_own_pod(cluster):
    cluster.node("n1")
    cluster.pod("bad", cpu="a lot", settle=False)
    cluster.pod("good", cpu="1")
    assert cluster.node_of("good") == "n1"
    assert "'a lot' is not a quantity" in cluster.scheduled("bad")["message"]


def test_a_node_that_cannot_be_read_takes_no_pods(cluster):
    cluster.node("n1", cpu="plenty")
    cluster.pod("p", cpu="1")
    assert cluster.node_of("p") is None


def test_the_reason_follows_the_cluster(cluster):
    cluster.node("n1", cpu="1")
    cluster.pod("big", cpu="2")
    cluster.node("n2", cpu="1")
    assert cluster.scheduled("big")["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert len(cluster.events("FailedScheduling")) == 2


def test_a_thousand_equal_pending_pods_need_one_check_of_the_nodes_per_round(cluster, monkeypatch):
    looks = []
    from raytide_sandbox.controllers import scheduler

    genuine = scheduler.rule_out
    monkeypatch.setattr(scheduler, "rule_out", lambda *args: looks.append(1) or genuine(*args))
    for number in range(3):
        cluster.node(f"n{number}", cpu="1")
    for number in range(1000):
        cluster.pod(f"p{number}", cpu="2", settle=False)
    cluster.settle()
    looks.clear()
    cluster.node("n4", cpu="1")
    assert 4 <= len(looks) <= 12


def test_a_second_step_does_nothing(cluster):
    cluster.node("n1", cpu="1")
    cluster.pod("fits", cpu="1")
    cluster.pod("waits", cpu="1")
    cluster.pod("gated", schedulingGates=[{"name": "g"}])
    before = cluster.store.version
    cluster.settle()
    assert cluster.store.version == before


def test_a_pod_changed_before_its_first_try_is_still_tried(cluster):
    cluster.node("n1")
    cluster.pod("p", settle=False)
    pod = cluster.get("pods", "p")
    pod["metadata"]["labels"] = {"a": "b"}
    cluster.store.update("pods", pod)
    cluster.settle()
    assert cluster.node_of("p") == "n1"


def test_a_change_before_the_first_attempt_does_not_change_the_order(cluster):
    cluster.node("n1", cpu="1")
    cluster.pod("ray-head", cpu="1", settle=False)
    cluster.pod("ray-worker", cpu="1", settle=False)
    pod = cluster.get("pods", "ray-head")
    pod["metadata"]["labels"] = {"a": "b"}
    cluster.store.update("pods", pod)
    cluster.settle()
    assert [cluster.node_of(name) for name in ("ray-head", "ray-worker")] == ["n1", None]


def test_an_irrelevant_change_of_a_pending_pod_causes_no_further_attempt(cluster, monkeypatch):
    from raytide_sandbox.controllers import scheduler

    cluster.node("n1", cpu="1")
    cluster.pod("p", cpu="2")
    looks = []
    monkeypatch.setattr(scheduler, "rule_out", lambda *args: looks.append(args) or [])
    pod = cluster.get("pods", "p")
    pod["metadata"]["annotations"] = {"a": "b"}
    cluster.store.update("pods", pod)
    cluster.settle()
    assert looks == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"priority": "high"}, id="a priority that is text"),
        pytest.param({"nodeSelector": ["zone"]}, id="a selector that is a list"),
        pytest.param({"containers": "none"}, id="containers that are no list"),
    ],
)
def test_fields_of_the_wrong_type_stop_only_their_own_pod(cluster, spec):
    cluster.node("n1")
    cluster.pod("bad", settle=False, **spec)
    cluster.pod("good")
    assert cluster.node_of("good") == "n1"
    assert cluster.node_of("bad") is None
    assert "Expected" in cluster.scheduled("bad")["message"]
