"""An operator that runs for days keeps nothing of what has passed (PF:P11).

Days of churn in virtual time: objects are created, scaled, suspended, rejected and deleted, pods fail, quotas reject pods,
watches break and the API server fails. Each day ends with a rest and the same objects as at its beginning. Containers, objects,
tasks, watches and metrics of the operator must then be the same as after the first day.
"""

from collections.abc import Awaitable, Callable

import pytest

from raytide.controller.controller import ReconcileLoop
from raytide.metrics import REGISTRY
from raytide_sandbox.faults.script import Call, Rule
from raytide_sandbox.faults.types import Answer, Error, LoseAnswer, RefuseConnection
from support import virtual_time

from simulation.footprint import Footprint, footprint
from simulation.history import is_write
from simulation.manifests import find, group, new_cluster
from simulation.scenarios import edit, live_cluster, workers
from simulation.stage import Stage, heard_by
from simulation.training_manifests import new_job
from simulation.training_stage import TrainingStage
from simulation.training_world import JOBS

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(600)]

DAYS = 3
ROUNDS_PER_DAY = 4
ROUND_S = 19_800.0
REST_S = 7_200.0
"""Longer than any back-off and than everything that is remembered for a time."""
BYTES_TOLERATED = 0.05
"""Names and resourceVersions have more digits after days."""

Churn = Callable[[Stage, int], Awaitable[None]]


def is_pod_create(call: Call) -> bool:
    """Whether it creates a pod."""
    return call.method == "POST" and call.plural == "pods"


async def churn_of_clusters(stage: Stage, number: int) -> None:
    """One cluster from its creation to its deletion, another one that is invalid, and a pod of the steady one that fails."""
    name = f"c{number}"
    stage.script.of_calls.append(Rule(Answer(403, message="exceeded quota: pods"), is_pod_create, times=2))
    stage.world.create(new_cluster([group("a", 3), group("b", 1)], name))
    await stage.settle()
    stage.script.of_calls += [Rule(LoseAnswer(), is_write), Rule(Answer(503), is_write, times=3)]
    edit(stage, lambda spec: find(spec, "a").update(replicas=5), name)
    await stage.settle()
    edit(stage, lambda spec: spec.update(suspend=True), name)
    await stage.settle()
    edit(stage, lambda spec: spec.update(suspend=False), name)
    await stage.settle()
    stage.world.kill_pod(workers(stage, "a")[0], "Failed")
    named = workers(stage, "a")[-1:]
    edit(stage, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": [*named, "absent"]}))
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": []}))
    edit(stage, lambda spec: spec.update(workerGroupSpecs=[group("a", 1), group("a", 1)]), name)  # the name twice
    await stage.pass_time(60.0)
    stage.world.delete_cluster(name)
    await stage.settle()


async def churn_of_jobs(stage: Stage, number: int) -> None:
    """One job that grows, is suspended and deleted beside a steady one."""
    assert isinstance(stage, TrainingStage)
    name = f"j{number}"
    stage.script.of_calls.append(Rule(Answer(403, message="exceeded quota: pods"), is_pod_create, times=2))
    stage.world.create(new_job(name, 1, 3))
    await stage.settle(600.0)
    stage.script.of_calls += [Rule(LoseAnswer(), is_write), Rule(Answer(503), is_write, times=3)]
    stage.world.edit_job(name, stage.world.namespace, lambda job: job["spec"]["trainer"].update({"max-instance": 5}))
    await stage.settle(600.0)
    stage.world.edit_job(name, stage.world.namespace, lambda job: job["spec"].update(suspend=True))
    await stage.settle(600.0)
    stage.world.delete(JOBS, name, stage.world.namespace)
    await stage.settle(600.0)


async def clusters_at_rest(stage: Stage) -> None:
    """One RayCluster that stays."""
    await live_cluster(stage, group("a", 3))


async def jobs_at_rest(stage: Stage) -> None:
    """One TrainingJob that stays."""
    stage.world.create(new_job("steady", 1, 2))
    stage.start()
    await stage.settle(600.0)


async def trouble_with_watches(stage: Stage, number: int) -> None:
    """Watches that expire, are cut, or end because the API server is away for a minute."""
    match number % 3:
        case 0:
            stage.script.of_lines.append(Rule(Error(410)))
        case 1:
            stage.wire.cut()
        case _:
            until_s = stage.loop.time() + 60.0
            stage.script.of_calls.append(Rule(RefuseConnection(), times=None, until_s=until_s))
            stage.wire.cut()
            await stage.pass_time(60.0)


async def footprints(
    stage: Stage, begin: Callable[[Stage], Awaitable[None]], churn: Churn, days: int
) -> list[Footprint]:
    """The operator's footprint at the end of each day."""
    found = []
    await begin(stage)
    for number in range(days * ROUNDS_PER_DAY):
        begun_s = stage.loop.time()
        await trouble_with_watches(stage, number)
        await churn(stage, number)
        await stage.pass_time(max(0.0, begun_s + ROUND_S - stage.loop.time()))
        if number % ROUNDS_PER_DAY == ROUNDS_PER_DAY - 1:
            stage.script.clear()
            await stage.settle(600.0)
            await stage.pass_time(REST_S)
            watches = stage.wire.open_watches
            found.append(footprint(stage.operator.controllers, watches=watches, registry=REGISTRY))
    return found


def live(
    new_stage: type[Stage], begin: Callable[[Stage], Awaitable[None]], churn: Churn, days: int
) -> tuple[list[Footprint], list[str]]:
    """The footprints of so many days, and what was violated."""

    async def tell() -> tuple[list[Footprint], list[str]]:
        stage = new_stage(11)
        with heard_by(stage.judge):
            stage.open()
            found = await footprints(stage, begin, churn, days)
            await stage.close()
        return found, stage.judge.violations

    return virtual_time.run(tell())


def growth(first: Footprint, last: Footprint) -> dict[str, tuple[int, int]]:
    """What is more or less than before: path of a container or name of a figure -> before, after."""
    before = {**first.items, "objects": first.objects, "tasks": first.tasks, "watches": first.watches}
    after = {**last.items, "objects": last.objects, "tasks": last.tasks, "watches": last.watches}
    before["series"], after["series"] = first.series, last.series
    return {
        path: (before.get(path, 0), after.get(path, 0))
        for path in sorted({*before, *after})
        if before.get(path, 0) != after.get(path, 0)
    }


@pytest.mark.rule("PF:P11")
@pytest.mark.parametrize(
    ("stage", "begin", "churn"),
    [
        pytest.param(Stage, clusters_at_rest, churn_of_clusters, id="RayClusters"),
        pytest.param(TrainingStage, jobs_at_rest, churn_of_jobs, id="TrainingJobs"),
    ],
)
def test_days_of_churn_leave_nothing_in_the_operator(
    stage: type[Stage], begin: Callable[[Stage], Awaitable[None]], churn: Churn
) -> None:
    found, violations = live(stage, begin, churn, DAYS)
    assert violations == []
    assert growth(found[0], found[-1]) == {}
    assert found[-1].size_bytes == pytest.approx(found[0].size_bytes, rel=BYTES_TOLERATED)


@pytest.mark.rule("PF:P11")
def test_the_soak_shows_what_is_kept_of_deleted_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reconcile loop that does not forget deleted objects."""
    monkeypatch.setattr(ReconcileLoop, "forget", lambda _self, _key: None)
    found, _ = live(Stage, clusters_at_rest, churn_of_clusters, 2)
    assert any(path.startswith(".reconcile_loop") for path in growth(*found))
