"""Which lives of suspended and of finalized RayClusters is every fault tried on?

Like scenarios.py. What must hold at every write of them is the judge's: nothing is deleted before the suspension is stored,
and no pod is made while it is. Rules RC §5.4, FD:RC-B1, B4, B7.
"""

from raytide.api.constants import REDIS_CLEANUP_FINALIZER

from simulation.manifests import NAME, group, new_cluster
from simulation.scenarios import Scenario, edit, live_cluster
from simulation.stage import Stage


async def suspend(stage: Stage) -> None:
    """RM:S7: all pods are deleted, because other workloads need the capacity."""
    await live_cluster(stage, group("a", 3))
    edit(stage, lambda spec: spec.update(suspend=True))
    await stage.settle()


async def suspend_and_resume(stage: Stage) -> None:
    """RM:S7: and the cluster comes back."""
    await suspend(stage)
    edit(stage, lambda spec: spec.update(suspend=False))
    await stage.settle()


async def delete_finalized(stage: Stage) -> None:
    """KubeRay's finalizer holds a cluster that is deleted."""
    cluster = new_cluster([group("a", 3)])
    cluster["metadata"]["finalizers"] = [REDIS_CLEANUP_FINALIZER]
    stage.world.create(cluster)
    stage.start()
    await stage.settle()
    await stage.pass_time(10.0)
    stage.begin()
    stage.world.delete_cluster(NAME)
    await stage.settle()


SUSPENSION = (
    Scenario("suspend", suspend),
    Scenario("suspend-and-resume", suspend_and_resume),
    Scenario("delete-finalized", delete_finalized, has_exact_counts=False),
)
