"""Slices under a quota that admits a part of one, over ten minutes of virtual time (SC:S4)."""

import pytest

from raytide_sandbox.apiserver.request_response import Request
from support.faults.types import Answer

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME, new_cluster
from simulation.multi_host_scenarios import HOSTS, RAISED_WITHIN_S, WorkerQuota, slices, workers

pytestmark = [pytest.mark.slow, pytest.mark.looptime]

TEN_MINUTES_S = 600.0
MAX_DELETES = 8
PARTIAL_FOR_S = 30.0


def forbid_quotas(limit: WorkerQuota):
    """Forbid reads of quotas, too."""

    def admit(request: Request) -> Answer | None:
        if "/resourcequotas/" in request.path:
            return Answer(403, message="resourcequotas is forbidden")
        return limit.admit(request)

    return admit


def deletes(env: Environment) -> int:
    return sum(write.startswith("DELETE") for write in env.checks.writes)


async def partial_s(env: Environment, for_s: float) -> float:
    """For how long at a stretch the number of workers was no multiple of the hosts, at most."""
    longest = stretch = 0.0
    for _ in range(int(for_s)):
        await env.pass_time(1.0)
        stretch = stretch + 1.0 if len(workers(env, "a")) % HOSTS else 0.0
        longest = max(longest, stretch)
    return longest


async def start_cluster(env: Environment) -> WorkerQuota:
    env.open()
    limit = WorkerQuota(env, 10)
    env.start()
    env.kube.create(new_cluster([slices("a", 3)]))
    return limit


@pytest.mark.rule("SC:S4", "RM:I6", "RM:I18")
@pytest.mark.parametrize("seed", range(5))
async def test_two_of_three_slices_run_and_the_third_is_created_when_the_quota_is_raised(seed: int) -> None:
    env = Environment(seed)
    with log_errors_as_violations(env.checks):
        limit = await start_cluster(env)
        assert await partial_s(env, TEN_MINUTES_S) <= PARTIAL_FOR_S
        running = set(workers(env, "a"))
        assert len(running) == 2 * HOSTS
        assert deletes(env) <= HOSTS - 1 < MAX_DELETES, "an incomplete replica is not retried without room in the quota"
        assert "ReplicaFailure" in env.true_conditions(NAME)

        limit.hard = 12
        await env.settle(within_s=RAISED_WITHIN_S)
        assert running < set(workers(env, "a")), "the first two were not touched"
        await env.close()
    assert env.checks.violations == []


@pytest.mark.rule("SC:S4", "RM:I6")
@pytest.mark.parametrize("seed", range(5))
async def test_without_permission_to_read_quotas_the_replica_is_retried_with_backoff(seed: int) -> None:
    env = Environment(seed)
    with log_errors_as_violations(env.checks):
        limit = await start_cluster(env)
        env.transport.admission = forbid_quotas(limit)
        assert await partial_s(env, TEN_MINUTES_S) <= PARTIAL_FOR_S
        assert len(workers(env, "a")) == 2 * HOSTS
        assert 2 * 2 <= deletes(env) <= MAX_DELETES
        limit.hard = 12
        await env.settle(within_s=TEN_MINUTES_S)
        await env.close()
    assert env.checks.violations == []
