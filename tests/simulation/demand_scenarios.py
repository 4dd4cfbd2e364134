"""Scenarios of RayClusters that follow the demand of Ray, on which each fault is tried.

Only the autoscaler writes `replicas`: users submit and cancel tasks, raylets register and exit, and operator and autoscaler
react (RM §2.3 S2 to S6 and S10, with the real loop on both sides). Each step waits until the tasks run on the minimum number
of workers and `workersToDelete` is empty.
"""

from typing import Any

from support.faults.types import Answer

from simulation.autoscaled_environment import AutoscaledEnvironment
from simulation.manifests import group, new_cluster
from simulation.multi_host_scenarios import HOSTS
from simulation.scenarios import QUOTA_S, Scenario, edit, workers
from simulation.simulated_kube import NODES

IDLE_S = 8
"""Idle timeout of workers."""
BACKOFF_S = 40.0
"""The first back-off of a blocked group, and a tick or two."""


def demanded(name: str, most: int, hosts: int = 1, least: int = 0) -> dict[str, Any]:
    """A group of workers with one CPU each."""
    found = {**group(name, least, most), "minReplicas": least}
    found["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    return {**found, "numOfHosts": hosts} if hosts > 1 else found


async def autoscaled(env: AutoscaledEnvironment, worker_group: dict[str, Any], tasks: int = 0) -> None:
    """The setup: one group that has satisfied its demand for 10 s."""
    cluster = new_cluster([worker_group])
    cluster["spec"]["enableInTreeAutoscaling"] = True
    cluster["spec"]["autoscalerOptions"] = {"idleTimeoutSeconds": IDLE_S}
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    env.kube.create(cluster)
    env.start()
    env.ray.set_tasks(tasks)
    await env.settle()
    await env.pass_time(10.0)
    env.start_recording()


def grow(tasks: int) -> Any:
    """RM:S2: scale up from zero to the maximum, with one task more than it has room for."""

    async def run(env: AutoscaledEnvironment) -> None:
        await autoscaled(env, demanded("a", tasks))
        env.ray.set_tasks(tasks + 1)
        await env.settle()

    return run


def shrink(many: int, few: int) -> Any:
    """RM:S3: most tasks end; idle workers are deleted by name and not replaced."""

    async def run(env: AutoscaledEnvironment) -> None:
        await autoscaled(env, demanded("a", many), many)
        env.ray.set_tasks(few)
        await env.settle()

    return run


async def demand_withdrawn(env: AutoscaledEnvironment) -> None:
    """RM:S4: a quota rejects a part of the scale-up, then the demand falls: `replicas` is lowered without names."""
    await autoscaled(env, demanded("a", 9), 2)
    until_s = env.loop.time() + QUOTA_S

    def reject_fourth_worker(request: Any) -> Answer | None:
        is_worker = request.method == "POST" and b'"ray.io/node-type":"worker"' in request.body
        if is_worker and len(workers(env, "a")) >= 3 and env.loop.time() < until_s:
            return Answer(403, message="exceeded quota: three workers")
        return None

    env.transport.admission = reject_fourth_worker
    env.ray.set_tasks(8)
    await env.pass_time(QUOTA_S / 2)
    env.ray.set_tasks(3)
    env.disturbed_until_s = until_s
    await env.settle()
    await env.pass_time(BACKOFF_S)  # the record has the group's reason until then; it expires by time


async def busy_on_drain(env: AutoscaledEnvironment) -> None:
    """RM:S3: a task starts on a node while its drain is requested; the node and the number of replicas stay."""
    await autoscaled(env, demanded("a", 6), 5)
    env.ray.tasks_on_drain = 1
    env.ray.set_tasks(1)
    await env.settle()


async def slices(env: AutoscaledEnvironment) -> None:
    """RM:S5: two replicas of four hosts by demand, one host lost, and down to one replica again."""
    await autoscaled(env, demanded("a", 3, HOSTS), HOSTS)
    env.ray.set_tasks(HOSTS + 1)
    await env.settle()
    env.kube.evict_pod(workers(env, "a")[1])
    await env.pass_time(2.0)
    await env.settle()
    env.ray.set_tasks(HOSTS - 1)
    await env.settle()


async def workers_lost(env: AutoscaledEnvironment) -> None:
    """RM:S6: one worker is evicted, one fails, and a node fails with its pods; the tasks run elsewhere."""
    await autoscaled(env, demanded("a", 6), 4)
    env.kube.evict_pod(workers(env, "a")[1])
    await env.pass_time(3.0)
    env.kube.end_pod(workers(env, "a")[0], "Failed")
    await env.pass_time(2.0)
    await env.settle()
    env.kube.lose_node(NODES[1])
    await env.pass_time(20.0)
    env.kube.delete_node(NODES[1])
    await env.settle()


async def autoscaling_switched(env: AutoscaledEnvironment) -> None:
    """RM:S10: autoscaling is switched off and on, its RBAC is revoked and restored; the demand changes meanwhile."""
    await autoscaled(env, demanded("a", 6), 3)
    env.checks_demand = False
    edit(env, lambda spec: spec.update(enableInTreeAutoscaling=False))
    env.ray.set_tasks(5)
    await env.pass_time(10.0)
    await env.settle()
    env.checks_demand = True
    edit(env, lambda spec: spec.update(enableInTreeAutoscaling=True))
    await env.settle()
    env.revoke_rbac()
    env.ray.set_tasks(2)
    await env.pass_time(30.0)
    env.revoke_rbac(is_revoked=False)
    env.disturbed_until_s = env.loop.time()
    await env.settle()


async def head_lost(env: AutoscaledEnvironment) -> None:
    """RM:S6: the head fails, and with it the GCS and the autoscaler; the workers register with a new session."""
    await autoscaled(env, demanded("a", 6), 3)
    env.kube.end_pod(workers(env, "headgroup")[0], "Failed")
    await env.pass_time(3.0)
    env.disturbed_until_s = env.loop.time()
    await env.settle()


BY_DEMAND = (
    Scenario("demand-grows", grow(12), environment=AutoscaledEnvironment),
    Scenario("demand-falls", shrink(10, 3), environment=AutoscaledEnvironment),
    Scenario("demand-withdrawn", demand_withdrawn, has_exact_counts=False, environment=AutoscaledEnvironment),
    Scenario("demand-turned-busy", busy_on_drain, environment=AutoscaledEnvironment),
    Scenario("demand-slices", slices, has_exact_counts=False, environment=AutoscaledEnvironment),
    Scenario("demand-workers-lost", workers_lost, has_exact_counts=False, environment=AutoscaledEnvironment),
    Scenario("demand-switched", autoscaling_switched, has_exact_counts=False, environment=AutoscaledEnvironment),
    Scenario("demand-head-lost", head_lost, has_exact_counts=False, environment=AutoscaledEnvironment),
)
"""Each fault is tried at every point of these."""

LARGE_BY_DEMAND = (
    Scenario("demand-grows-to-100", grow(100), environment=AutoscaledEnvironment),
    Scenario("demand-falls-100-to-10", shrink(100, 10), environment=AutoscaledEnvironment),
)
"""Too long for every point: faults are tried at a few points, evenly spread."""
