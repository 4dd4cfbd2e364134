"""What others take away that no watch shows is found missing by the resync (RM:F12)."""

import pytest

from raytide_sandbox.faults.script import Rule
from raytide_sandbox.faults.types import CommitLate

from simulation.autoscaled_scenarios import autoscaled
from simulation.foreign_hands import give_away, unlabel
from simulation.manifests import NAME, NEIGHBOUR, group, new_cluster
from simulation.matrix import learn
from simulation.scenarios import Scenario, edit, live_cluster, workers
from simulation.stage import Stage
from simulation.world import NAMESPACE, RAYCLUSTERS

pytestmark = pytest.mark.looptime

RIGHTS = ("serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")
FOUND_WITHIN_S = 1800.0 + 300.0 + 60.0
"""What was there is asked for again by the first resync after five minutes, and resyncs come every half hour."""


@pytest.mark.rule("RM:F12", "RC:RB-1", "D3")
def test_an_autoscalers_rights_that_others_delete_are_made_again() -> None:
    async def tell(stage: Stage) -> None:
        await autoscaled(stage, 2, 4)
        for kind in RIGHTS:
            stage.world.store.delete(kind, NAMESPACE, NAME)
        await stage.pass_time(FOUND_WITHIN_S)
        if missing := [kind for kind in RIGHTS if stage.world.store.find(kind, NAMESPACE, NAME) is None]:
            stage.judge.note(f"not made again within {FOUND_WITHIN_S:.0f} s: {missing}")

    assert learn(Scenario("rights-taken", tell)).violations == []


@pytest.mark.rule("RM:F12")
def test_a_worker_that_lost_its_groups_label_runs_on_until_the_cluster_is_suspended() -> None:
    async def tell(stage: Stage) -> None:
        await live_cluster(stage, group("a", 3))
        released = workers(stage, "a")[0]
        unlabel(stage.world, released, "ray.io/group")
        await stage.settle()
        edit(stage, lambda spec: spec["workerGroupSpecs"][0].update(replicas=1))
        await stage.settle()
        if stage.world.store.find("pods", NAMESPACE, released) is None:
            stage.judge.note(f"deleted, though it belongs to no group: {released}")
        edit(stage, lambda spec: spec.update(suspend=True))
        await stage.settle()
        if stage.world.store.find("pods", NAMESPACE, released) is not None:
            stage.judge.note(f"still there, though the cluster is suspended: {released}")

    assert learn(Scenario("released-worker", tell)).violations == []


@pytest.mark.rule("RM:F12", "RM:I4")
def test_a_delete_carried_out_after_another_cluster_adopted_the_pod_is_no_delete_of_that_cluster() -> None:
    async def tell(stage: Stage) -> None:
        stage.world.create(new_cluster([group("a", 1)], NEIGHBOUR))
        await live_cluster(stage, group("a", 1), group("b", 1))
        (worker,) = workers(stage, "b")
        stage.script.of_calls.append(Rule(CommitLate(5.0), lambda call: call.method == "DELETE"))
        edit(stage, lambda spec: spec["workerGroupSpecs"].pop())
        await stage.pass_time(1.0)
        give_away(stage.world, worker, RAYCLUSTERS, NEIGHBOUR)
        await stage.settle()

    assert learn(Scenario("adopted-while-deleted", tell)).violations == []
