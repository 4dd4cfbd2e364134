"""An operator that runs for days keeps nothing of deleted objects and past events (PF:P11).

Days of churn in virtual time: objects are created, scaled, suspended, rejected and deleted, pods fail, quotas reject pods,
watches break and the API server fails. Each day ends with an idle period and the same objects as at its beginning.
Containers, objects, tasks, watches and metrics of the operator must then be the same as after the first day.
"""

from collections.abc import Awaitable, Callable

import pytest

from raytide.controller.reconcile_loop import ReconcileLoop
from raytide.metrics import REGISTRY
from support import virtual_time
from support.faults.script import Call, Rule
from support.faults.types import Answer, Error, LoseAnswer, RefuseConnection

from simulation.environment import Environment, log_errors_as_violations
from simulation.footprint import Footprint, footprint
from simulation.history import is_write
from simulation.manifests import find, group, new_cluster
from simulation.scenarios import edit, live_cluster, workers
from simulation.training_environment import TrainingEnvironment
from simulation.training_kube import JOBS
from simulation.training_manifests import new_job

pytestmark = [pytest.mark.looptime, pytest.mark.soak, pytest.mark.timeout(600)]

DAYS = 3
ROUNDS_PER_DAY = 4
ROUND_S = 19_800.0
REST_S = 7_200.0
"""Longer than any back-off and than all state that is kept for a time."""
BYTES_TOLERATED = 0.05
"""Names and resourceVersions have more digits after days."""

Churn = Callable[[Environment, int], Awaitable[None]]


def is_pod_create(call: Call) -> bool:
    """Whether it creates a pod."""
    return call.method == "POST" and call.plural == "pods"


async def churn_of_clusters(env: Environment, number: int) -> None:
    """One cluster from its creation to its deletion, with an invalid edit, and a pod of the steady cluster that fails."""
    name = f"c{number}"
    env.script.of_calls.append(Rule(Answer(403, message="exceeded quota: pods"), is_pod_create, times=2))
    env.kube.create(new_cluster([group("a", 3), group("b", 1)], name))
    await env.settle()
    env.script.of_calls += [Rule(LoseAnswer(), is_write), Rule(Answer(503), is_write, times=3)]
    edit(env, lambda spec: find(spec, "a").update(replicas=5), name)
    await env.settle()
    edit(env, lambda spec: spec.update(suspend=True), name)
    await env.settle()
    edit(env, lambda spec: spec.update(suspend=False), name)
    await env.settle()
    env.kube.end_pod(workers(env, "a")[0], "Failed")
    named = workers(env, "a")[-1:]
    edit(env, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": [*named, "absent"]}))
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": []}))
    edit(env, lambda spec: spec.update(workerGroupSpecs=[group("a", 1), group("a", 1)]), name)  # the name twice
    await env.pass_time(60.0)
    env.kube.delete_cluster(name)
    await env.settle()


async def churn_of_jobs(env: Environment, number: int) -> None:
    """One job that grows, is suspended and is deleted, next to a steady job."""
    assert isinstance(env, TrainingEnvironment)
    name = f"j{number}"
    env.script.of_calls.append(Rule(Answer(403, message="exceeded quota: pods"), is_pod_create, times=2))
    env.kube.create(new_job(name, 1, 3))
    await env.settle(600.0)
    env.script.of_calls += [Rule(LoseAnswer(), is_write), Rule(Answer(503), is_write, times=3)]
    env.kube.edit_job(name, env.kube.namespace, lambda job: job["spec"]["trainer"].update({"max-instance": 5}))
    await env.settle(600.0)
    env.kube.edit_job(name, env.kube.namespace, lambda job: job["spec"].update(suspend=True))
    await env.settle(600.0)
    env.kube.delete(JOBS, name, env.kube.namespace)
    await env.settle(600.0)


async def clusters_at_rest(env: Environment) -> None:
    """One RayCluster that stays."""
    await live_cluster(env, group("a", 3))


async def jobs_at_rest(env: Environment) -> None:
    """One TrainingJob that stays."""
    env.kube.create(new_job("steady", 1, 2))
    env.start()
    await env.settle(600.0)


async def disrupt_watches(env: Environment, number: int) -> None:
    """Let watches expire, close them, or stop the API server for a minute."""
    match number % 3:
        case 0:
            env.script.of_lines.append(Rule(Error(410)))
        case 1:
            env.transport.close_watches()
        case _:
            until_s = env.loop.time() + 60.0
            env.script.of_calls.append(Rule(RefuseConnection(), times=None, until_s=until_s))
            env.transport.close_watches()
            await env.pass_time(60.0)


async def footprints(
    env: Environment, set_up: Callable[[Environment], Awaitable[None]], churn: Churn, days: int
) -> list[Footprint]:
    """The operator's footprint at the end of each day."""
    found = []
    await set_up(env)
    for number in range(days * ROUNDS_PER_DAY):
        begun_s = env.loop.time()
        await disrupt_watches(env, number)
        await churn(env, number)
        await env.pass_time(max(0.0, begun_s + ROUND_S - env.loop.time()))
        if number % ROUNDS_PER_DAY == ROUNDS_PER_DAY - 1:
            env.script.clear()
            await env.settle(600.0)
            await env.pass_time(REST_S)
            watches = env.transport.open_watches
            found.append(footprint(env.operator.controllers, watches=watches, registry=REGISTRY))
    return found


def run_days(
    new_env: type[Environment], set_up: Callable[[Environment], Awaitable[None]], churn: Churn, days: int
) -> tuple[list[Footprint], list[str]]:
    """The footprints of so many days, and the violations."""

    async def run() -> tuple[list[Footprint], list[str]]:
        env = new_env(11)
        with log_errors_as_violations(env.checks):
            env.open()
            found = await footprints(env, set_up, churn, days)
            await env.close()
        return found, env.checks.violations

    return virtual_time.run(run())


def growth(first: Footprint, last: Footprint) -> dict[str, tuple[int, int]]:
    """The differences: path of a container or name of a figure -> before, after."""
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
    ("new_env", "set_up", "churn"),
    [
        pytest.param(Environment, clusters_at_rest, churn_of_clusters, id="RayClusters"),
        pytest.param(TrainingEnvironment, jobs_at_rest, churn_of_jobs, id="TrainingJobs"),
    ],
)
def test_days_of_churn_do_not_grow_the_operator(
    new_env: type[Environment], set_up: Callable[[Environment], Awaitable[None]], churn: Churn
) -> None:
    found, violations = run_days(new_env, set_up, churn, DAYS)
    assert violations == []
    assert growth(found[0], found[-1]) == {}
    assert found[-1].size_bytes == pytest.approx(found[0].size_bytes, rel=BYTES_TOLERATED)


@pytest.mark.rule("PF:P11")
def test_the_soak_detects_state_kept_of_deleted_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reconcile loop that does not forget deleted objects."""
    monkeypatch.setattr(ReconcileLoop, "forget", lambda _self, _key: None)
    found, _ = run_days(Environment, clusters_at_rest, churn_of_clusters, 2)
    assert any(path.startswith(".reconcile_loop") for path in growth(*found))
