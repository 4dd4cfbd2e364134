"""A worker group leaves the spec while some of its workers are busy: operator and autoscaler together (SC:S14)."""

import pytest

from support import virtual_time

from simulation.autoscaled_stage import AutoscaledStage
from simulation.demand_scenarios import demanded
from simulation.manifests import NAME, new_cluster
from simulation.scenarios import edit, workers

pytestmark = pytest.mark.looptime

SEEDS = range(3)
GRACE_S = 300.0


async def two_groups(stage: AutoscaledStage) -> None:
    """Five workers each, by their minimum; seven of them are busy, of group b two."""
    cluster = new_cluster([demanded("a", 5, least=5), demanded("b", 5, least=5)])
    cluster["spec"].update(enableInTreeAutoscaling=True, autoscalerOptions={"idleTimeoutSeconds": 60})
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    stage.is_judging_demand = False
    stage.world.create(cluster)
    stage.start()
    while len(stage.ray.raylets) < 10:
        await stage.pass_time(0.5)
    stage.ray.ask(10)
    await stage.pass_time(5.0)
    idle = [raylet for raylet in stage.ray.raylets.values() if raylet.group == "b"][:3]
    for raylet in idle:
        stage.ray._work(raylet, -1)
        stage.ray.asked -= 1
    await stage.pass_time(8.0)


def live_through(seed: int, *, is_busy_for_ever: bool) -> list[str]:
    async def play() -> list[str]:
        stage = AutoscaledStage(seed)
        stage.open()
        try:
            await two_groups(stage)
            untouched = set(workers(stage, "a"))
            busy = {raylet.pod for raylet in stage.ray.raylets.values() if raylet.group == "b" and raylet.tasks}
            assert (len(untouched), len(busy), len(workers(stage, "b"))) == (5, 2, 5)
            edit(stage, lambda spec: spec["workerGroupSpecs"].pop())
            await stage.pass_time(30.0)
            if set(workers(stage, "b")) != busy:
                stage.judge.note(f"after 30 s of group b there are {workers(stage, 'b')}, busy are {sorted(busy)}")
            if not is_busy_for_ever:
                for raylet in [each for each in stage.ray.raylets.values() if each.pod in busy]:
                    stage.ray._drained(stage.ray.gcs.nodes[raylet.node_id])
                    stage.ray.asked -= 1
                await stage.pass_time(40.0)
            else:
                await stage.pass_time(GRACE_S - 60.0)
                if set(workers(stage, "b")) != busy:
                    stage.judge.note("busy workers were ended before their time was up")
                await stage.pass_time(80.0)
            if left := workers(stage, "b"):
                stage.judge.note(f"left of group b: {left}")
            if set(workers(stage, "a")) != untouched:
                stage.judge.note("group a was touched")
            if (lives := sum(each.lives for each in stage.sidecars.values())) != 1:
                stage.judge.note(f"the autoscaler was started {lives} times")
            cluster = stage.world.cluster(NAME)
            assert cluster is not None
            if cluster["status"].get("desiredWorkerReplicas") != 5:
                stage.judge.note(f"status says {cluster['status'].get('desiredWorkerReplicas')} workers are desired")
        finally:
            await stage.close()
        return stage.judge.violations

    return virtual_time.run(play())


@pytest.mark.rule("SC:S14", "FD:AS-A13")
@pytest.mark.parametrize("is_busy_for_ever", [False, True], ids=["their work ends", "their work does not end"])
def test_idle_workers_of_a_removed_group_go_at_once_and_busy_ones_when_they_are_done_or_after_five_minutes(
    *, is_busy_for_ever: bool
) -> None:
    red = {seed: found for seed in SEEDS if (found := live_through(seed, is_busy_for_ever=is_busy_for_ever))}
    assert red == {}
