"""A worker whose label `ray.io/group` was removed: replaced, and left alone until the cluster is suspended or deleted."""

from datetime import UTC, datetime

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Delete
from raytide.api.conditions import find_condition
from raytide.api.config import ClusterConfig
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import observe
from raytide.raycluster.plan import plan
from raytide.raycluster.status import status
from support.builders import CLUSTER_UID, dying, group, head, head_service, parsed, pod

pytestmark = pytest.mark.rule("RM:F12")

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOST = pod("demo-cpu-worker-lost0", group="")
WORKERS = (pod("demo-cpu-worker-aaaaa"), pod("demo-cpu-worker-bbbbb"))


def run_pass(cluster, *pods):
    observed = observe(CLUSTER_UID, pods=pods, services=(head_service(),), seen_at=NOW)
    return observed, plan(cluster, observed, ClusterConfig(), lambda prefix: f"{prefix}new00")


@pytest.mark.parametrize("is_autoscaled", [False, True])
def test_it_is_replaced_and_not_deleted(is_autoscaled):
    cluster = parsed(group(replicas=2), enableInTreeAutoscaling=is_autoscaled)
    _, todo = run_pass(cluster, head(), WORKERS[0], LOST)
    creates = [action.name for action in todo.actions if isinstance(action, Create) and "worker" in action.name]
    assert creates == ["demo-cpu-worker-new00"]
    assert not any(isinstance(action, Delete) for action in todo.actions)
    _, todo = run_pass(cluster, head(), *WORKERS, LOST)
    assert todo.actions == ()


def test_it_does_not_count():
    cluster = parsed(group(replicas=2))
    observed, todo = run_pass(cluster, head(), *WORKERS, LOST)
    computed = status(cluster, observed, todo, (), NOW, scaling=scaling_of(cluster, observed))
    assert computed["state"] == "ready"
    assert (computed["readyWorkerReplicas"], computed["availableWorkerReplicas"]) == (2, 2)


def test_its_name_is_not_used_again_and_cannot_be_named_by_a_group():
    names_of_others = group(replicas=3, scaleStrategy={"workersToDelete": [LOST.name]})
    observed, todo = run_pass(parsed(names_of_others), head(), *WORKERS, LOST)
    assert LOST.name in set(observed.names_in_use())
    assert not any(isinstance(action, Delete) for action in todo.actions)
    assert any(LOST.name in event.message for event in todo.events)


def suspending():
    kinds = ((constants.SUSPENDED, "False"), (constants.SUSPENDING, "True"))
    conditions = [
        {"type": kind, "status": value, "reason": kind, "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
        for kind, value in kinds
    ]
    return parsed(group(replicas=2), suspend=True, status={"conditions": conditions, "state": "ready"})


def test_a_suspension_deletes_it_and_is_over_when_it_is_gone():
    observed, todo = run_pass(suspending(), head(), *WORKERS, LOST)
    assert {action.name for action in todo.actions} == {pod.name for pod in (head(), *WORKERS, LOST)}
    for left, state, word in (((dying(LOST.name, group=""),), "ready", "True"), ((), "suspended", "False")):
        observed, todo = run_pass(suspending(), *left)
        computed = status(suspending(), observed, todo, (), NOW, scaling=scaling_of(suspending(), observed))
        assert computed["state"] == state
        assert find_condition(computed["conditions"], constants.SUSPENDING)["status"] == word
