"""Number of writes of the membership for the start of a TrainingJob."""

import pytest

from simulation.training_environment import TrainingEnvironment
from simulation.training_manifests import new_job

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("low", "high", "gpu", "sizes"),
    [
        pytest.param(2, 2, 0, 1, id="one of fixed size"),
        pytest.param(2, 2, 1, 1, id="a gang"),
        pytest.param(2, 6, 0, 2, id="one that grows from its minimum: the second size is the second write"),
    ],
)
async def test_a_start_writes_the_membership_once_per_size(low: int, high: int, gpu: int, sizes: int) -> None:
    env = TrainingEnvironment(7)
    env.open()
    env.start()
    await env.pass_time(2.0)
    env.kube.create(new_job("a", low, high, gpu=gpu))
    await env.settle()
    writes = [write for write in env.checks.writes if "configmaps" in write]
    await env.close()
    assert env.checks.violations == []
    assert len(writes) == sizes, writes
