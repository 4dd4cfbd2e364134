"""A small cluster does not wait for a large one (RM:I20, D4, D7)."""

from collections.abc import Awaitable, Callable

import pytest

from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.faults.types import Answer
from support import virtual_time

from simulation.manifests import find, group, new_cluster
from simulation.scenarios import edit
from simulation.stage import Stage, heard_by
from simulation.world import Kubelets

pytestmark = pytest.mark.looptime

LARGE = 300
IN_BETWEEN = 400
"""Writes until the small cluster has its head and its worker: two passes of the large one, at most (200 actions each)."""
FIRST_POD_S = 3.0
NOISY = 30
"""More than there are workers of the reconcile loop."""
NOISE_S = 60.0
EDITED_EVERY_S = 0.05


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


async def rejected(stage: Stage) -> None:
    """A quota rejects every further pod of the noisy clusters, which all want more."""

    def quota(request: Request) -> Answer | None:
        is_theirs = request.method == "POST" and b'"ray.io/cluster":"noisy-' in request.body
        return Answer(403, message="exceeded quota: pods") if is_theirs else None

    stage.wire.admission = quota
    for number in range(NOISY):
        edit(stage, lambda spec: find(spec, "a").update(replicas=8), f"noisy-{number}")
    await stage.pass_time(NOISE_S)
    stage.wire.admission = lambda _request: None


async def edited(stage: Stage) -> None:
    """Each noisy cluster is edited many times a second in turn."""
    for number in range(int(NOISE_S / EDITED_EVERY_S)):
        edit(
            stage,
            lambda spec, replicas=1 + number % 3: find(spec, "a").update(replicas=replicas),
            f"noisy-{number % NOISY}",
        )
        await stage.pass_time(EDITED_EVERY_S)


@pytest.mark.rule("RM:I20", "D4", "D7")
@pytest.mark.parametrize("noise", [rejected, edited])
def test_a_quiet_cluster_is_served_beside_many_that_keep_the_operator_busy(
    noise: Callable[[Stage], Awaitable[None]],
) -> None:
    async def live() -> tuple[float, list[str]]:
        stage = Stage(20)
        with heard_by(stage.judge):
            stage.open()
            stage.start()
            for number in range(NOISY):
                stage.world.create(new_cluster([group("a", 1)], f"noisy-{number}"))
            await stage.pass_time(5.0)
            making_noise = stage.loop.create_task(noise(stage))
            await stage.pass_time(NOISE_S / 2)
            begun_s = stage.loop.time()
            stage.world.create(new_cluster([group("a", 3)], "quiet"))
            while stage.census.born["quiet", "a"] < 3 and stage.loop.time() < begun_s + NOISE_S:
                await stage.pass_time(0.05)
            took_s = stage.loop.time() - begun_s
            await making_noise
            await stage.settle()
            await stage.close()
        return took_s, stage.judge.violations

    took_s, violations = virtual_time.run(live())
    assert violations == []
    assert took_s <= FIRST_POD_S
