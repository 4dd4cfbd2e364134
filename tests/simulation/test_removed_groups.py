"""A worker group is removed from the spec while some of its workers are busy: operator and autoscaler together (SC:S14)."""

import pytest

from support import virtual_time

from simulation.autoscaled_environment import AutoscaledEnvironment
from simulation.demand_scenarios import demanded
from simulation.manifests import NAME, new_cluster
from simulation.scenarios import edit, workers

pytestmark = pytest.mark.looptime

SEEDS = range(3)
GRACE_S = 300.0


async def two_groups(env: AutoscaledEnvironment) -> None:
    """Five workers each, by their minimum; seven of them are busy, of group b two."""
    cluster = new_cluster([demanded("a", 5, least=5), demanded("b", 5, least=5)])
    cluster["spec"].update(enableInTreeAutoscaling=True, autoscalerOptions={"idleTimeoutSeconds": 60})
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    env.checks_demand = False
    env.kube.create(cluster)
    env.start()
    while len(env.ray.raylets) < 10:
        await env.pass_time(0.5)
    env.ray.set_tasks(10)
    await env.pass_time(5.0)
    idle = [raylet for raylet in env.ray.raylets.values() if raylet.group == "b"][:3]
    for raylet in idle:
        env.ray._add_tasks(raylet, -1)
        env.ray.requested_tasks -= 1
    await env.pass_time(8.0)


def run_seed(seed: int, *, is_always_busy: bool) -> list[str]:
    async def run() -> list[str]:
        env = AutoscaledEnvironment(seed)
        env.open()
        try:
            await two_groups(env)
            untouched = set(workers(env, "a"))
            busy = {raylet.pod for raylet in env.ray.raylets.values() if raylet.group == "b" and raylet.tasks}
            assert (len(untouched), len(busy), len(workers(env, "b"))) == (5, 2, 5)
            edit(env, lambda spec: spec["workerGroupSpecs"].pop())
            await env.pass_time(30.0)
            if set(workers(env, "b")) != busy:
                env.checks.add_violation(
                    f"after 30 s of group b there are {workers(env, 'b')}, busy are {sorted(busy)}"
                )
            if not is_always_busy:
                for raylet in [each for each in env.ray.raylets.values() if each.pod in busy]:
                    env.ray._on_drained(env.ray.gcs.nodes[raylet.node_id])
                    env.ray.requested_tasks -= 1
                await env.pass_time(40.0)
            else:
                await env.pass_time(GRACE_S - 60.0)
                if set(workers(env, "b")) != busy:
                    env.checks.add_violation("busy workers were deleted before the end of their grace period")
                await env.pass_time(80.0)
            if left := workers(env, "b"):
                env.checks.add_violation(f"left of group b: {left}")
            if set(workers(env, "a")) != untouched:
                env.checks.add_violation("group a was touched")
            if (starts := sum(each.has_raylet for each in env.sidecars.values())) != 1:
                env.checks.add_violation(f"the autoscaler was started {starts} times")
            cluster = env.kube.cluster(NAME)
            assert cluster is not None
            if cluster["status"].get("desiredWorkerReplicas") != 5:
                env.checks.add_violation(
                    f"status says {cluster['status'].get('desiredWorkerReplicas')} workers are desired"
                )
        finally:
            await env.close()
        return env.checks.violations

    return virtual_time.run(run())


@pytest.mark.rule("SC:S14", "FD:AS-A13")
@pytest.mark.parametrize("is_always_busy", [False, True], ids=["their tasks end", "their tasks do not end"])
def test_idle_workers_of_a_removed_group_are_deleted_at_once_and_busy_ones_when_idle_or_after_five_minutes(
    *, is_always_busy: bool
) -> None:
    red = {seed: found for seed in SEEDS if (found := run_seed(seed, is_always_busy=is_always_busy))}
    assert red == {}
