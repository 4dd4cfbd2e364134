"""A hostile object of one tenant does not affect others: the real operator in 512 MiB with a hundred clusters.

Each object of `hostile_objects.py` is stored past admission. Its user is told where something is wrong; a healthy neighbour
grows meanwhile; no step of a loop takes 100 ms of CPU, and the operator's memory stays far below its limit.
"""

import pytest
import pytest_asyncio

import machine_speed
from support.deadlines import PATIENCE
from support.hostile_environment import HostileEnv
from support.hostile_objects import HOSTILE
from support.worst_objects import WORST

LONGEST_STEP_S = 0.1
"""Of CPU time, which counts no waiting for others, on the machine on which the bar was set."""
MOST_MIB = 256
ATTEMPTS = 3

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(folder):
    env = HostileEnv(folder)
    try:
        await env.start()
        yield env
    finally:
        await env.stop()


async def least_cost(env, meet):
    """What it costs, measured again where a step took too long: a neighbor on the same core only ever adds to CPU time."""
    for _ in range(ATTEMPTS):
        slowness = machine_speed.slowness()
        try:
            cost = await meet()
        finally:
            await env.clear()
        bar_s = LONGEST_STEP_S * max(slowness, machine_speed.slowness())
        if cost["cpu_s"] < bar_s:
            break
    assert cost["cpu_s"] < bar_s, cost["step"]
    assert cost["peak_mib"] < MOST_MIB
    return cost


@pytest.mark.rule("SE:C10", "FD:SEC-F1", "FD:SEC-F6", "FD:SEC-F12", "PF:P7F")
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_object_does_not_delay_other_clusters(env, hostile):
    await least_cost(env, lambda: env.meet(hostile))


HUNDRED = 100
HEALTHZ_S = 1.0
SERVED_S = 5.0
"""Both of wall time: beside other levels, and at the lowest priority, all that happens takes longer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_env(env):
    """With 200 nodes, and a job that shares them."""
    await env.follow_capacity()
    return env


@pytest.mark.rule("FD:SEC3-1", "FD:SEC3-2", "FD:SEC3-3")
@pytest.mark.parametrize("worst", WORST.values(), ids=WORST)
async def test_a_hundred_of_the_worst_of_each_kind_do_not_delay_a_neighbor(shared_env, worst):
    patience = machine_speed.patience()
    cost = await least_cost(shared_env, lambda: shared_env.meet_many(worst.plural, map(worst.make, range(HUNDRED))))
    patience = max(PATIENCE, patience, machine_speed.patience())
    assert cost["healthz_s"] < HEALTHZ_S * patience
    assert cost["served_s"] < SERVED_S * patience
