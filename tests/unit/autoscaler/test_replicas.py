"""Whole replicas: grouping of hosts, and the effect of choosing some hosts on the others (B-8)."""

import pytest

from raytide.autoscaler.model import Instance, NodeType, Status
from raytide.autoscaler.replicas import complete_replicas, hosts_by_replica, replicas_to_fill, touched_replicas


def host(name: str, replica: str = "") -> Instance:
    return Instance(name, "slices", Status.RAY_RUNNING, pod=name, replica=replica)


HOSTS = (host("a-0", "a"), host("b-0", "b"), host("a-1", "a"), host("b-1", "b"), host("alone"))


def test_hosts_are_grouped_in_order_and_one_without_a_name_is_its_own_replica():
    found = {name: [one.pod for one in hosts] for name, hosts in hosts_by_replica(HOSTS).items()}
    assert found == {"a": ["a-0", "a-1"], "b": ["b-0", "b-1"], "alone": ["alone"]}
    assert list(found) == ["a", "b", "alone"]


@pytest.mark.parametrize(
    ("ids", "touched", "complete"),
    [
        (set(), set(), set()),
        ({"a-0"}, {"a-0", "a-1"}, set()),
        ({"a-0", "a-1", "b-1"}, {"a-0", "a-1", "b-0", "b-1"}, {"a-0", "a-1"}),
        ({"alone", "unknown"}, {"alone"}, {"alone"}),
    ],
)
def test_a_choice_of_hosts_touches_some_replicas_and_completes_others(ids, touched, complete):
    assert touched_replicas(HOSTS, ids) == touched
    assert complete_replicas(HOSTS, ids) == complete


def test_missing_hosts_fill_incomplete_replicas_before_new_ones():
    slices = NodeType("slices", num_of_hosts=2)
    assert replicas_to_fill(slices, {"a": 1, "b": 2}, 4) == [
        "a",
        "slices-requested-replica-0",
        "slices-requested-replica-0",
        "slices-requested-replica-1",
    ]
    assert replicas_to_fill(slices, {"a": 1, "b": 1}, 1) == ["a"]
    assert replicas_to_fill(NodeType("single"), {"": 3}, 2) == ["", ""]
