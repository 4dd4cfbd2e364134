"""A small cluster does not wait for a large one (RM:I20, D4, D7)."""

import pytest

from support import virtual_time

from simulation.manifests import group, new_cluster
from simulation.stage import Stage, heard_by
from simulation.world import Kubelets

pytestmark = pytest.mark.looptime

LARGE = 300
IN_BETWEEN = 400
"""Writes until the small cluster has its head and its worker: two passes of the large one, at most (200 actions each)."""
FIRST_POD_S = 3.0


@pytest.mark.rule("RM:I20")
def test_a_cluster_of_one_worker_gets_its_pods_while_another_gets_three_hundred() -> None:
    async def live() -> tuple[int, float, list[str]]:
        stage = Stage(3, kubelets=Kubelets(start_s=(5.0, 6.0)))
        with heard_by(stage.judge):
            stage.open()
            stage.start()
            await stage.pass_time(1.0)
            stage.world.create(new_cluster([group("a", LARGE, LARGE)], "large"))
            await stage.pass_time(0.05)
            before, begun_s = len(stage.judge.writes), stage.loop.time()
            stage.world.create(new_cluster([group("a", 1)], "small"))
            while stage.census.born["small", "a"] < 1 and stage.loop.time() < begun_s + 60.0:
                await stage.pass_time(0.01)
            in_between, took_s = len(stage.judge.writes) - before, stage.loop.time() - begun_s
            await stage.settle()
            await stage.close()
        return in_between, took_s, stage.judge.violations

    in_between, took_s, violations = virtual_time.run(live())
    assert violations == []
    assert in_between <= IN_BETWEEN
    assert took_s <= FIRST_POD_S
