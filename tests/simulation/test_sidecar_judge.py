"""What the judge of the autoscaler counts as a worker that stays when another one is drained (sidecar_judge.py)."""

from collections.abc import Callable

import pytest

from raytide.autoscaler.model import DrainReason

from simulation.autoscaled_stage import AutoscaledStage
from simulation.manifests import NAME, find, group
from simulation.ray_world import Raylet
from simulation.scenarios import edit, live_cluster
from simulation.stage import heard_by

pytestmark = pytest.mark.looptime

STEP_S = 0.05
"""Shorter than the shortest time between a pod that is Ready and its raylet in the GCS."""


def ready(stage: AutoscaledStage) -> list[str]:
    """Live workers that are Ready."""
    cluster = stage.world.cluster(NAME)
    assert cluster is not None
    return [pod.name for pod in stage.census.live_in(cluster["metadata"]["uid"], "a") if pod.is_ready]


async def until(stage: AutoscaledStage, is_so: Callable[[], bool]) -> None:
    """Wait for it, at most a minute."""
    for _ in range(int(60.0 / STEP_S)):
        if is_so():
            return
        await stage.pass_time(STEP_S)
    raise AssertionError("it does not come about")


async def drain(stage: AutoscaledStage, raylet: Raylet) -> list[str]:
    """Drain it at once as the autoscaler does, and return what the judge objects to; the pod ends within a second."""
    before = len(stage.judge.violations)
    client = stage.ray.client(stage.ray.head)
    answer = await client.drain(raylet.node_id, reason=DrainReason.IDLE_TERMINATION, message="", deadline_ms=0)
    assert answer.is_accepted
    return stage.judge.violations[before:]


@pytest.mark.rule("AS:B-28")
@pytest.mark.parametrize("seed", range(5))
async def test_a_ready_pod_stays_before_its_raylet_joins_and_not_after_its_raylet_ended(seed: int) -> None:
    """Three workers run, a fourth is Ready and its raylet has not joined: one may be drained for three replicas, not two."""
    stage = AutoscaledStage(seed)
    with heard_by(stage.judge):
        stage.open()
        await live_cluster(stage, group("a", 3))
        await until(stage, lambda: len(stage.ray.raylets) == 3)
        edit(stage, lambda spec: find(spec, "a").update(replicas=4))
        await until(stage, lambda: len(ready(stage)) == 4)
        first, second, _ = stage.ray.raylets.values()  # the fourth raylet has not joined
        edit(stage, lambda spec: find(spec, "a").update(replicas=3))
        assert await drain(stage, first) == []
        assert len(ready(stage)) == 4, "the pod of the drained raylet has not ended"
        (objection,) = await drain(stage, second)
        assert "while 3 of a are wanted and 2 stay" in objection
        await stage.close()
