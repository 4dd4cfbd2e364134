"""Two jobs that grow in turn into what was freed for a third one (FD:SH-B11), in the timed model.

At commit 7a80e47, with a termination of 31 s, they were resized 295 times in the first hour and 327 times in the second: the pod
of four CPUs found no node, because the victims went by index, three on one node and two on the other; each time one of the
two jobs had been scaled down for it, the other one grew into the freed capacity.
"""

import pytest

from support.training_policies import Raytide
from support.training_world import Ask, Circumstances, SimNode, Submission, World

HOUR_S = 3600.0


@pytest.mark.rule("FD:SH-B11")
@pytest.mark.parametrize("stop_s", [10.0, 31.0, 60.0, 120.0, 300.0])
@pytest.mark.parametrize("scheduler", ["spread", "pack", "random"])
def test_capacity_freed_for_a_large_trainer_is_not_taken_by_other_jobs(scheduler, stop_s):
    nodes = [SimNode(f"node-{number}", 8_000, 1 << 20) for number in range(2)]
    circumstances = Circumstances(start_s=2.0, stop_s=stop_s, scheduler=scheduler)
    world = World(nodes, Raytide(scaling={"accounting": "Requests"}), circumstances)
    world.submit(Submission(name="first", at_s=0.0, low=3, high=13, trainer=Ask(1000, 1), initial=3))
    world.submit(Submission(name="fixed", at_s=360.0, low=1, high=1, trainer=Ask(4000, 1), initial=1))
    world.submit(Submission(name="last", at_s=365.0, low=4, high=15, trainer=Ask(1000, 1), initial=4))
    world.run(HOUR_S)
    in_an_hour = [job.resizes for job in world.jobs]
    assert sum(in_an_hour) <= 12
    world.run(3 * HOUR_S)
    assert [job.resizes for job in world.jobs] == in_an_hour
    assert {job.of.name: job.wanted for job in world.jobs} == {"first": 5, "fixed": 1, "last": 7}
