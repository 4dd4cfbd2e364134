"""What becomes of slices under a quota that has room for a part of one, in ten minutes of virtual time (SC:S4)."""

import pytest

from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.faults.types import Answer

from simulation.manifests import new_cluster
from simulation.multi_host_scenarios import HOSTS, RAISED_WITHIN_S, WorkerQuota, slices, workers
from simulation.stage import Stage, heard_by

pytestmark = pytest.mark.looptime

TEN_MINUTES_S = 600.0
MOST_DELETES = 8
PARTIAL_FOR_S = 30.0


def forbid_quotas(limit: WorkerQuota):
    """As where the operator may not read quotas."""

    def admit(request: Request) -> Answer | None:
        if "/resourcequotas/" in request.path:
            return Answer(403, message="resourcequotas is forbidden")
        return limit.admit(request)

    return admit


def deletes(stage: Stage) -> int:
    return sum(write.startswith("DELETE") for write in stage.judge.writes)


async def partial_s(stage: Stage, for_s: float) -> float:
    """For how long at a stretch the number of workers was no multiple of the hosts, at most."""
    longest = stretch = 0.0
    for _ in range(int(for_s)):
        await stage.pass_time(1.0)
        stretch = stretch + 1.0 if len(workers(stage, "a")) % HOSTS else 0.0
        longest = max(longest, stretch)
    return longest


async def begin(stage: Stage) -> WorkerQuota:
    stage.open()
    limit = WorkerQuota(stage, 10)
    stage.start()
    stage.world.create(new_cluster([slices("a", 3)]))
    return limit


@pytest.mark.rule("SC:S4", "RM:I6", "RM:I18")
@pytest.mark.parametrize("seed", range(5))
async def test_two_slices_of_three_are_up_and_the_third_comes_when_the_quota_has_room(seed: int) -> None:
    stage = Stage(seed)
    with heard_by(stage.judge):
        limit = await begin(stage)
        assert await partial_s(stage, TEN_MINUTES_S) <= PARTIAL_FOR_S
        up = set(workers(stage, "a"))
        assert len(up) == 2 * HOSTS
        assert deletes(stage) <= HOSTS - 1 < MOST_DELETES, "what was given up once is not begun without room"
        assert "ReplicaFailure" in stage.true_conditions("life")

        limit.hard = 12
        await stage.settle(within_s=RAISED_WITHIN_S)
        assert up < set(workers(stage, "a")), "the first two were not touched"
        await stage.close()
    assert stage.judge.violations == []


@pytest.mark.rule("SC:S4", "RM:I6")
@pytest.mark.parametrize("seed", range(5))
async def test_where_quotas_may_not_be_read_it_is_tried_ever_more_rarely(seed: int) -> None:
    stage = Stage(seed)
    with heard_by(stage.judge):
        limit = await begin(stage)
        stage.wire.admission = forbid_quotas(limit)
        assert await partial_s(stage, TEN_MINUTES_S) <= PARTIAL_FOR_S
        assert len(workers(stage, "a")) == 2 * HOSTS
        assert 2 * 2 <= deletes(stage) <= MOST_DELETES
        limit.hard = 12
        await stage.settle(within_s=TEN_MINUTES_S)
        await stage.close()
    assert stage.judge.violations == []
