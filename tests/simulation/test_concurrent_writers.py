"""Objects that concurrent writers changed and that no watch shows are repaired by the resync (RM:F12)."""

import pytest

from support.faults.script import Rule
from support.faults.types import CommitLate

from simulation.autoscaled_scenarios import autoscaled
from simulation.concurrent_writers import change_owner, remove_label
from simulation.environment import Environment
from simulation.fault_matrix import run_without_fault
from simulation.manifests import NAME, OTHER_NAME, group, new_cluster
from simulation.scenarios import Scenario, edit, live_cluster, workers
from simulation.simulated_kube import NAMESPACE, RAYCLUSTERS

pytestmark = pytest.mark.looptime

RIGHTS = ("serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")
FOUND_WITHIN_S = 1800.0 + 300.0 + 60.0
"""The first resync after five minutes gets the objects again; resyncs come every half hour."""


@pytest.mark.rule("RM:F12", "RC:RB-1", "D3")
def test_deleted_rbac_objects_of_the_autoscaler_are_recreated() -> None:
    async def steps(env: Environment) -> None:
        await autoscaled(env, 2, 4)
        for kind in RIGHTS:
            env.kube.store.delete(kind, NAMESPACE, NAME)
        await env.pass_time(FOUND_WITHIN_S)
        if missing := [kind for kind in RIGHTS if env.kube.store.find(kind, NAMESPACE, NAME) is None]:
            env.checks.add_violation(f"not recreated within {FOUND_WITHIN_S:.0f} s: {missing}")

    assert run_without_fault(Scenario("rights-taken", steps)).violations == []


@pytest.mark.rule("RM:F12")
def test_a_worker_without_its_group_label_is_kept_until_the_cluster_is_suspended() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 3))
        released = workers(env, "a")[0]
        remove_label(env.kube, released, "ray.io/group")
        await env.settle()
        edit(env, lambda spec: spec["workerGroupSpecs"][0].update(replicas=1))
        await env.settle()
        if env.kube.store.find("pods", NAMESPACE, released) is None:
            env.checks.add_violation(f"deleted, though it belongs to no group: {released}")
        edit(env, lambda spec: spec.update(suspend=True))
        await env.settle()
        if env.kube.store.find("pods", NAMESPACE, released) is not None:
            env.checks.add_violation(f"still there, though the cluster is suspended: {released}")

    assert run_without_fault(Scenario("released-worker", steps)).violations == []


@pytest.mark.rule("RM:F12", "RM:I4")
def test_a_late_delete_of_a_pod_adopted_by_another_cluster_is_not_counted_for_that_cluster() -> None:
    async def steps(env: Environment) -> None:
        env.kube.create(new_cluster([group("a", 1)], OTHER_NAME))
        await live_cluster(env, group("a", 1), group("b", 1))
        (worker,) = workers(env, "b")
        env.script.of_calls.append(Rule(CommitLate(5.0), lambda call: call.method == "DELETE"))
        edit(env, lambda spec: spec["workerGroupSpecs"].pop())
        await env.pass_time(1.0)
        change_owner(env.kube, worker, RAYCLUSTERS, OTHER_NAME)
        await env.settle()

    assert run_without_fault(Scenario("adopted-while-deleted", steps)).violations == []
