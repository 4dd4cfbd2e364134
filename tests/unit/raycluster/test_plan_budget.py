"""The number of creates in one plan of a RayCluster."""

import tracemalloc

import pytest

from raytide.api.actions import MAX_WRITES, Create
from raytide.api.config import ClusterConfig
from raytide.api.meta import PODS
from raytide.raycluster.observed import Observed, PendingRetry
from raytide.raycluster.plan import plan
from support.builders import group, head, head_service, parsed, pod

CONFIG = ClusterConfig()


def decide(cluster, *pods, **observed):
    numbers = iter(range(10**9))
    state = Observed(pods=(head(), *pods), services=(head_service(),), **observed)
    return plan(cluster, state, CONFIG, lambda prefix: f"{prefix}{next(numbers):06d}")


def wide(groups, replicas, **extra):
    return parsed(*(group(f"g{number}", replicas=replicas, high=10**6, **extra) for number in range(groups)))


def created_by_group(todo):
    counts = {}
    for action in todo.actions:
        if isinstance(action, Create) and action.resource == PODS:
            counts[action.group] = counts.get(action.group, 0) + 1
    return counts


@pytest.mark.rule("FD:SEC-F1", "PF:P7F")
@pytest.mark.parametrize("hosts", [1, 4], ids=["of one host", "of four hosts"])
def test_hundreds_of_groups_of_six_hundred_replicas_share_one_budget(hosts):
    cluster = wide(290, 600, numOfHosts=hosts)
    tracemalloc.start()
    todo = decide(cluster)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counts = created_by_group(todo)
    assert sum(counts.values()) == MAX_WRITES
    assert todo.has_more
    assert len(counts) == 290, "every group has a part, so that a rejected one stops no other"
    assert peak < 20_000_000


@pytest.mark.rule("FD:SEC-F1", "SC:S3")
def test_a_group_that_is_rejected_leaves_the_budget_to_the_others():
    cluster = wide(2, 600)
    pending_retries = (PendingRetry("g0", "FailedToCreateWorkerPod", "exceeded quota", 20.0),)
    todo = decide(cluster, pending_retries=pending_retries)
    assert created_by_group(todo) == {"g1": MAX_WRITES}
    assert todo.has_more


@pytest.mark.rule("FD:SEC-F1")
def test_creates_within_the_budget_are_one_plan_without_a_continuation():
    todo = decide(wide(5, 100))
    assert created_by_group(todo) == {f"g{number}": 100 for number in range(5)}
    assert not todo.has_more


@pytest.mark.rule("FD:SEC-F1")
def test_creates_beyond_the_budget_are_left_to_the_next_plan():
    todo = decide(wide(250, 3))
    assert sum(created_by_group(todo).values()) == MAX_WRITES
    assert todo.has_more


@pytest.mark.rule("FD:SEC-F1")
def test_a_complete_group_has_no_actions_and_no_continuation():
    pods = [pod(f"demo-cpu-worker-{number}", replica_index=number) for number in range(3)]
    todo = decide(parsed(group(replicas=3)), *pods)
    assert (todo.actions, todo.has_more) == ((), False)
