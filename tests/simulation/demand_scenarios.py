"""Which lives of clusters that follow their demand is every fault tried on?

Nobody writes `replicas` here but the autoscaler: users ask Ray for work and give it up, raylets come and go, and operator
and autoscaler do the rest (RM §2.3 S2 to S6 and S10, with the real loop on either side). Each waits in between until the
work runs on no more workers than it needs and nobody is named any more.
"""

from typing import Any

from raytide_sandbox.faults.types import Answer

from simulation.autoscaled_stage import AutoscaledStage
from simulation.manifests import group, new_cluster
from simulation.multi_host_scenarios import HOSTS
from simulation.scenarios import QUOTA_S, Scenario, edit, workers
from simulation.world import NODES

IDLE_S = 8
"""After so many seconds without work a worker may go."""
BACKOFF_S = 40.0
"""The first back-off of a blocked group, and a tick or two."""


def demanded(name: str, most: int, hosts: int = 1, least: int = 0) -> dict[str, Any]:
    """A group of workers with one CPU each."""
    found = {**group(name, least, most), "minReplicas": least}
    found["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    return {**found, "numOfHosts": hosts} if hosts > 1 else found


async def autoscaled(stage: AutoscaledStage, workers_of: dict[str, Any], tasks: int = 0) -> None:
    """The prelude: one group that has what its demand needs, and has been content for a while."""
    cluster = new_cluster([workers_of])
    cluster["spec"]["enableInTreeAutoscaling"] = True
    cluster["spec"]["autoscalerOptions"] = {"idleTimeoutSeconds": IDLE_S}
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    stage.world.create(cluster)
    stage.start()
    stage.ray.ask(tasks)
    await stage.settle()
    await stage.pass_time(10.0)
    stage.begin()


def grow(tasks: int) -> Any:
    """RM:S2: from none to many, and one more than there may be."""

    async def tell(stage: AutoscaledStage) -> None:
        await autoscaled(stage, demanded("a", tasks))
        stage.ray.ask(tasks + 1)
        await stage.settle()

    return tell


def shrink(many: int, few: int) -> Any:
    """RM:S3: most of the work is done; who is idle goes by name, and nobody comes in its stead."""

    async def tell(stage: AutoscaledStage) -> None:
        await autoscaled(stage, demanded("a", many), many)
        stage.ray.ask(few)
        await stage.settle()

    return tell


async def withdrawn(stage: AutoscaledStage) -> None:
    """RM:S4: there is no room for all that was asked for, and then nobody needs it: fewer, and nobody is named for it."""
    await autoscaled(stage, demanded("a", 9), 2)
    until_s = stage.loop.time() + QUOTA_S

    def three(request: Any) -> Answer | None:
        is_worker = request.method == "POST" and b'"ray.io/node-type":"worker"' in request.body
        if is_worker and len(workers(stage, "a")) >= 3 and stage.loop.time() < until_s:
            return Answer(403, message="exceeded quota: three workers")
        return None

    stage.wire.admission = three
    stage.ray.ask(8)
    await stage.pass_time(QUOTA_S / 2)
    stage.ray.ask(3)
    stage.trouble_until = until_s
    await stage.settle()
    await stage.pass_time(BACKOFF_S)  # the group's reason stands in the record until then, and goes by the clock


async def turned_busy(stage: AutoscaledStage) -> None:
    """RM:S3: work comes to a node in the very moment in which it is asked to leave; it stays, and so does the number."""
    await autoscaled(stage, demanded("a", 6), 5)
    stage.ray.late_tasks = 1
    stage.ray.ask(1)
    await stage.settle()


async def slices(stage: AutoscaledStage) -> None:
    """RM:S5: two replicas of four hosts by demand, one host lost, and down to one replica again."""
    await autoscaled(stage, demanded("a", 3, HOSTS), HOSTS)
    stage.ray.ask(HOSTS + 1)
    await stage.settle()
    stage.world.evict(workers(stage, "a")[1])
    await stage.pass_time(2.0)
    await stage.settle()
    stage.ray.ask(HOSTS - 1)
    await stage.settle()


async def workers_lost(stage: AutoscaledStage) -> None:
    """RM:S6: one worker is evicted, one fails, and a machine dies with what runs on it; the work goes on elsewhere."""
    await autoscaled(stage, demanded("a", 6), 4)
    stage.world.evict(workers(stage, "a")[1])
    await stage.pass_time(3.0)
    stage.world.kill_pod(workers(stage, "a")[0], "Failed")
    await stage.pass_time(2.0)
    await stage.settle()
    stage.world.lose_node(NODES[1])
    await stage.pass_time(20.0)
    stage.world.bury_node(NODES[1])
    await stage.settle()


async def switched(stage: AutoscaledStage) -> None:
    """RM:S10: autoscaling is switched off and on, its rights are withdrawn and given back; the demand changes meanwhile."""
    await autoscaled(stage, demanded("a", 6), 3)
    stage.is_judging_demand = False
    edit(stage, lambda spec: spec.update(enableInTreeAutoscaling=False))
    stage.ray.ask(5)
    await stage.pass_time(10.0)
    await stage.settle()
    stage.is_judging_demand = True
    edit(stage, lambda spec: spec.update(enableInTreeAutoscaling=True))
    await stage.settle()
    stage.withdraw_rights()
    stage.ray.ask(2)
    await stage.pass_time(30.0)
    stage.withdraw_rights(is_withdrawn=False)
    stage.trouble_until = stage.loop.time()
    await stage.settle()


async def head_lost(stage: AutoscaledStage) -> None:
    """RM:S6: the head fails, and with it the GCS and the autoscaler; a new session finds its workers anew."""
    await autoscaled(stage, demanded("a", 6), 3)
    stage.world.kill_pod(workers(stage, "headgroup")[0], "Failed")
    await stage.pass_time(3.0)
    stage.trouble_until = stage.loop.time()
    await stage.settle()


BY_DEMAND = (
    Scenario("demand-grows", grow(12), stage=AutoscaledStage),
    Scenario("demand-falls", shrink(10, 3), stage=AutoscaledStage),
    Scenario("demand-withdrawn", withdrawn, has_exact_counts=False, stage=AutoscaledStage),
    Scenario("demand-turned-busy", turned_busy, stage=AutoscaledStage),
    Scenario("demand-slices", slices, has_exact_counts=False, stage=AutoscaledStage),
    Scenario("demand-workers-lost", workers_lost, has_exact_counts=False, stage=AutoscaledStage),
    Scenario("demand-switched", switched, has_exact_counts=False, stage=AutoscaledStage),
    Scenario("demand-head-lost", head_lost, has_exact_counts=False, stage=AutoscaledStage),
)
"""Each with every fault at every point."""

LARGE_BY_DEMAND = (
    Scenario("demand-grows-to-100", grow(100), stage=AutoscaledStage),
    Scenario("demand-falls-100-to-10", shrink(100, 10), stage=AutoscaledStage),
)
"""Too long for every point: a few, evenly spread."""
