"""How many writes does a life of a job cost?"""

import pytest

from simulation.training_manifests import new_job
from simulation.training_stage import TrainingStage

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("low", "high", "gpu", "sizes"),
    [
        pytest.param(2, 2, 0, 1, id="one of fixed size"),
        pytest.param(2, 2, 1, 1, id="a gang"),
        pytest.param(2, 6, 0, 2, id="one that grows from its minimum: the second size is the second write"),
    ],
)
async def test_a_start_costs_one_write_of_the_membership_per_size(low: int, high: int, gpu: int, sizes: int) -> None:
    stage = TrainingStage(7)
    stage.open()
    stage.start()
    await stage.pass_time(2.0)
    stage.world.create(new_job("a", low, high, gpu=gpu))
    await stage.settle()
    writes = [write for write in stage.judge.writes if "configmaps" in write]
    await stage.close()
    assert stage.judge.violations == []
    assert len(writes) == sizes, writes
