"""Scenarios of suspended and of finalized RayClusters on which each fault is tried.

Like scenarios.py. Invariants at every write: no pod is deleted before the suspension is stored, and none is created while it
is. Rules RC §5.4, FD:RC-B1, B4, B7.
"""

from raytide.api.constants import REDIS_CLEANUP_FINALIZER

from simulation.environment import Environment
from simulation.manifests import NAME, group, new_cluster
from simulation.scenarios import Scenario, edit, live_cluster


async def suspend(env: Environment) -> None:
    """RM:S7: all pods are deleted, because other workloads need the capacity."""
    await live_cluster(env, group("a", 3))
    edit(env, lambda spec: spec.update(suspend=True))
    await env.settle()


async def suspend_and_resume(env: Environment) -> None:
    """RM:S7: suspend, then resume."""
    await suspend(env)
    edit(env, lambda spec: spec.update(suspend=False))
    await env.settle()


async def delete_finalized(env: Environment) -> None:
    """KubeRay's finalizer holds a cluster that is deleted."""
    cluster = new_cluster([group("a", 3)])
    cluster["metadata"]["finalizers"] = [REDIS_CLEANUP_FINALIZER]
    env.kube.create(cluster)
    env.start()
    await env.settle()
    await env.pass_time(10.0)
    env.start_recording()
    env.kube.delete_cluster(NAME)
    await env.settle()


SUSPENSION = (
    Scenario("suspend", suspend),
    Scenario("suspend-and-resume", suspend_and_resume),
    Scenario("delete-finalized", delete_finalized, has_exact_counts=False),
)
