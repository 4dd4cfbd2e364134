"""Which lives of multi-host groups is every fault tried on?

Scenario S5 of the fault matrix in five lives: replicas of several hosts come and go, lose a host, change their size, meet
a quota that has room for some hosts of a replica only, and are told to go by the name of one host. That every replica is
whole at the end, and that none was broken without a reason, is judged everywhere (RM:I6, replica_judge.py).
"""

from typing import Any

from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.faults.types import Answer

from simulation.manifests import find, group, new_cluster
from simulation.scenarios import Scenario, edit, live_cluster, workers
from simulation.stage import Stage
from simulation.world import NAMESPACE

HOSTS = 4
QUOTA = "team"
QUOTA_S = 14.0
RAISED_WITHIN_S = 15.0
"""So long after a quota was raised the replica it kept out is there (SC:S4)."""


def slices(name: str, replicas: int, hosts: int = HOSTS) -> dict[str, Any]:
    """A worker group whose replicas have several hosts."""
    return {**group(name, replicas), "numOfHosts": hosts}


async def come_and_go(stage: Stage) -> None:
    """RM:S5: one replica, two, none of them broken on the way to one again."""
    await live_cluster(stage, slices("a", 1))
    edit(stage, lambda spec: find(spec, "a").update(replicas=2))
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(replicas=1))
    await stage.settle()


async def host_lost(stage: Stage) -> None:
    """RM:S5: a host ends, its replica follows and is made anew; the other does not notice."""
    await live_cluster(stage, slices("a", 2, hosts=3))
    spared = set(workers(stage, "a")[3:])
    stage.world.evict(workers(stage, "a")[1])
    await stage.pass_time(2.0)
    await stage.settle()
    if not stage.judge.is_past_believed and not spared <= set(workers(stage, "a")):
        stage.judge.note("a replica went that had lost nobody")


async def host_vanished(stage: Stage) -> None:
    """Somebody deletes a host by force: it is made again, or, where it was seen to go, all of its replica."""
    await live_cluster(stage, slices("a", 2, hosts=2))
    stage.world.vanish(workers(stage, "a")[1])
    await stage.pass_time(2.0)
    await stage.settle()


async def resized(stage: Stage) -> None:
    """`numOfHosts` grows, and becomes one: every replica is made anew."""
    await live_cluster(stage, slices("a", 2, hosts=2))
    edit(stage, lambda spec: find(spec, "a").update(numOfHosts=3))
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(numOfHosts=1))
    await stage.settle()


async def named_by_one_host(stage: Stage) -> None:
    """RM:S5 with S3: one name ends four pods; the list is emptied later (RM:I15)."""
    await live_cluster(stage, slices("a", 2))
    named = workers(stage, "a")[1:2]
    edit(stage, lambda spec: find(spec, "a").update(replicas=1, scaleStrategy={"workersToDelete": named}))
    await stage.pass_time(2.0)
    edit(stage, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": []}))
    await stage.settle()


class WorkerQuota:
    """A ResourceQuota for workers: enforced, and told to whoever reads it."""

    def __init__(self, stage: Stage, hard: int) -> None:
        self.hard = hard
        self.rejected = 0
        self._stage = stage
        stage.world.store.create("resourcequotas", {"metadata": {"name": QUOTA, "namespace": NAMESPACE}})
        stage.wire.admission = self.admit

    @property
    def used(self) -> int:
        """Every worker that is not gone for good."""
        return sum(pod.group != "headgroup" for pod in self._stage.census.everybody())

    def admit(self, request: Request) -> Answer | None:
        """What the quota says to a request."""
        if request.path.endswith(f"/resourcequotas/{QUOTA}"):
            self._tell()
        is_pod = request.method == "POST" and request.path.endswith("/pods")  # a service selects by that label
        is_worker = is_pod and b'"ray.io/node-type":"worker"' in request.body
        if not is_worker or self.used < self.hard:
            return None
        self.rejected += 1
        return Answer(
            403,
            message=f'pods "x" is forbidden: exceeded quota: {QUOTA}, requested: pods=1, used: pods={self.used}, '
            f"limited: pods={self.hard}",
        )

    def _tell(self) -> None:
        told = {"hard": {"pods": str(self.hard)}, "used": {"pods": str(self.used)}}
        self._stage.world.edit(
            "resourcequotas", QUOTA, None, lambda quota: quota.update(status=told), subresource="status"
        )


async def quota(stage: Stage) -> None:
    """RM:S4 in short: there is room for one replica and two hosts more, later for all."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    limit = WorkerQuota(stage, HOSTS + 2)
    stage.world.create(new_cluster([slices("a", 2), group("b", 0)]))
    await stage.pass_time(QUOTA_S)
    if not stage.script.met and len(workers(stage, "a")) != HOSTS:
        stage.judge.note(f"under a quota for one replica and a half: {len(workers(stage, 'a'))} hosts")
    limit.hard = 2 * HOSTS
    stage.trouble_until = stage.loop.time()
    await stage.settle()


MULTI_HOST = (
    Scenario("slices-come-and-go", come_and_go),
    Scenario("slice-host-lost", host_lost),
    Scenario("slice-host-vanished", host_vanished, has_exact_counts=False),
    Scenario("slices-resized", resized),
    Scenario("slice-named", named_by_one_host),
    Scenario("slice-quota", quota, has_exact_counts=False),
)
"""Each with every fault at every point."""
