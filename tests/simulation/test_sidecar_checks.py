"""Which workers the checks of the autoscaler count as staying when another worker is drained (sidecar_checks.py)."""

from collections.abc import Callable

import pytest

from raytide.autoscaler.model import DrainReason

from simulation.autoscaled_environment import AutoscaledEnvironment
from simulation.environment import log_errors_as_violations
from simulation.manifests import NAME, find, group
from simulation.scenarios import edit, live_cluster
from simulation.simulated_ray import Raylet

pytestmark = pytest.mark.looptime

STEP_S = 0.05
"""Shorter than the shortest time between a pod that is Ready and its raylet in the GCS."""


def ready(env: AutoscaledEnvironment) -> list[str]:
    """Live workers that are Ready."""
    cluster = env.kube.cluster(NAME)
    assert cluster is not None
    return [pod.name for pod in env.pod_tracker.live_pods(cluster["metadata"]["uid"], "a") if pod.is_ready]


async def wait_until(env: AutoscaledEnvironment, predicate: Callable[[], bool]) -> None:
    """Wait until it is true, at most a minute."""
    for _ in range(int(60.0 / STEP_S)):
        if predicate():
            return
        await env.pass_time(STEP_S)
    raise AssertionError("the condition was not reached within a minute")


async def drain(env: AutoscaledEnvironment, raylet: Raylet) -> list[str]:
    """Drain it as the autoscaler does and return the new violations; the pod ends within a second."""
    before = len(env.checks.violations)
    client = env.ray.client(env.ray.head)
    answer = await client.drain(raylet.node_id, reason=DrainReason.IDLE_TERMINATION, message="", deadline_ms=0)
    assert answer.is_accepted
    return env.checks.violations[before:]


@pytest.mark.rule("AS:B-28")
@pytest.mark.parametrize("seed", range(5))
async def test_a_ready_pod_counts_as_staying_before_its_raylet_joins_and_not_after_its_raylet_exited(seed: int) -> None:
    """Three workers run, a fourth is Ready and its raylet has not joined: one may be drained for three replicas, not two."""
    env = AutoscaledEnvironment(seed)
    with log_errors_as_violations(env.checks):
        env.open()
        await live_cluster(env, group("a", 3))
        await wait_until(env, lambda: len(env.ray.raylets) == 3)
        edit(env, lambda spec: find(spec, "a").update(replicas=4))
        await wait_until(env, lambda: len(ready(env)) == 4)
        first, second, _ = env.ray.raylets.values()  # the fourth raylet has not joined
        edit(env, lambda spec: find(spec, "a").update(replicas=3))
        assert await drain(env, first) == []
        assert len(ready(env)) == 4, "the pod of the drained raylet has not ended"
        (objection,) = await drain(env, second)
        assert "while 3 of a are desired and 2 stay" in objection
        await env.close()
