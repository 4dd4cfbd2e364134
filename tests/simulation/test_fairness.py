"""A small cluster does not wait for a large one (RM:I20, D4, D7)."""

from collections.abc import Awaitable, Callable

import pytest

from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time
from support.faults.types import Answer

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import find, group, new_cluster
from simulation.scenarios import edit
from simulation.simulated_kube import Kubelets

pytestmark = pytest.mark.looptime

LARGE = 300
IN_BETWEEN = 400
"""Maximum of writes until the small cluster has its head and its worker: two passes of the large one (200 actions each)."""
FIRST_POD_S = 3.0
NOISY = 30
"""More than there are workers of the reconcile loop."""
NOISE_S = 60.0
EDITED_EVERY_S = 0.05


@pytest.mark.rule("RM:I20")
def test_a_cluster_of_one_worker_gets_its_pods_while_another_gets_300() -> None:
    async def run() -> tuple[int, float, list[str]]:
        env = Environment(3, kubelets=Kubelets(start_s=(5.0, 6.0)))
        with log_errors_as_violations(env.checks):
            env.open()
            env.start()
            await env.pass_time(1.0)
            env.kube.create(new_cluster([group("a", LARGE, LARGE)], "large"))
            await env.pass_time(0.05)
            before, begun_s = len(env.checks.writes), env.loop.time()
            env.kube.create(new_cluster([group("a", 1)], "small"))
            while env.pod_tracker.created["small", "a"] < 1 and env.loop.time() < begun_s + 60.0:
                await env.pass_time(0.01)
            in_between, took_s = len(env.checks.writes) - before, env.loop.time() - begun_s
            await env.settle()
            await env.close()
        return in_between, took_s, env.checks.violations

    in_between, took_s, violations = virtual_time.run(run())
    assert violations == []
    assert in_between <= IN_BETWEEN
    assert took_s <= FIRST_POD_S


async def reject_pods(env: Environment) -> None:
    """A quota rejects every further pod of the noisy clusters, which are all scaled up."""

    def reject(request: Request) -> Answer | None:
        is_noisy = request.method == "POST" and b'"ray.io/cluster":"noisy-' in request.body
        return Answer(403, message="exceeded quota: pods") if is_noisy else None

    env.transport.admission = reject
    for number in range(NOISY):
        edit(env, lambda spec: find(spec, "a").update(replicas=8), f"noisy-{number}")
    await env.pass_time(NOISE_S)
    env.transport.admission = lambda _request: None


async def edit_often(env: Environment) -> None:
    """Each noisy cluster is edited many times a second in turn."""
    for number in range(int(NOISE_S / EDITED_EVERY_S)):
        edit(
            env,
            lambda spec, replicas=1 + number % 3: find(spec, "a").update(replicas=replicas),
            f"noisy-{number % NOISY}",
        )
        await env.pass_time(EDITED_EVERY_S)


@pytest.mark.rule("RM:I20", "D4", "D7")
@pytest.mark.parametrize("noise", [reject_pods, edit_often])
def test_a_new_cluster_is_reconciled_in_time_while_many_others_keep_the_operator_busy(
    noise: Callable[[Environment], Awaitable[None]],
) -> None:
    async def run() -> tuple[float, list[str]]:
        env = Environment(20)
        with log_errors_as_violations(env.checks):
            env.open()
            env.start()
            for number in range(NOISY):
                env.kube.create(new_cluster([group("a", 1)], f"noisy-{number}"))
            await env.pass_time(5.0)
            making_noise = env.loop.create_task(noise(env))
            await env.pass_time(NOISE_S / 2)
            begun_s = env.loop.time()
            env.kube.create(new_cluster([group("a", 3)], "quiet"))
            while env.pod_tracker.created["quiet", "a"] < 3 and env.loop.time() < begun_s + NOISE_S:
                await env.pass_time(0.05)
            took_s = env.loop.time() - begun_s
            await making_noise
            await env.settle()
            await env.close()
        return took_s, env.checks.violations

    took_s, violations = virtual_time.run(run())
    assert violations == []
    assert took_s <= FIRST_POD_S
