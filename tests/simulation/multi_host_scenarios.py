"""Scenarios of multi-host groups on which each fault is tried.

Scenario S5 of the fault matrix in five variants: replicas of several hosts are created and deleted, lose a host, change
`numOfHosts`, meet a quota that admits only some hosts of a replica, and are deleted by the name of one host. That every
replica is complete in the end, and none was broken without a reason, is checked everywhere (RM:I6, replica_checks.py).
"""

from typing import Any

from raytide_sandbox.apiserver.request_response import Request
from support.faults.types import Answer

from simulation.environment import Environment
from simulation.manifests import find, group, new_cluster
from simulation.scenarios import Scenario, edit, live_cluster, workers
from simulation.simulated_kube import NAMESPACE

HOSTS = 4
QUOTA = "team"
QUOTA_S = 14.0
RAISED_WITHIN_S = 15.0
"""The rejected replica is created within this time after the quota was raised (SC:S4)."""


def slices(name: str, replicas: int, hosts: int = HOSTS) -> dict[str, Any]:
    """A worker group of multi-host replicas."""
    return {**group(name, replicas), "numOfHosts": hosts}


async def scale_up_and_down(env: Environment) -> None:
    """RM:S5: one replica, two, and one again, without a broken replica."""
    await live_cluster(env, slices("a", 1))
    edit(env, lambda spec: find(spec, "a").update(replicas=2))
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(replicas=1))
    await env.settle()


async def host_lost(env: Environment) -> None:
    """RM:S5: a host is evicted, its replica is deleted and recreated; the other replica is not touched."""
    await live_cluster(env, slices("a", 2, hosts=3))
    untouched = set(workers(env, "a")[3:])
    env.kube.evict_pod(workers(env, "a")[1])
    await env.pass_time(2.0)
    await env.settle()
    if not env.checks.has_stale_start and not untouched <= set(workers(env, "a")):
        env.checks.add_violation("a replica was deleted that had lost no host")


async def host_vanished(env: Environment) -> None:
    """A host is deleted by force: it is recreated, or its whole replica if the delete was observed."""
    await live_cluster(env, slices("a", 2, hosts=2))
    env.kube.force_delete_pod(workers(env, "a")[1])
    await env.pass_time(2.0)
    await env.settle()


async def hosts_changed(env: Environment) -> None:
    """`numOfHosts` grows, and becomes one: every replica is recreated."""
    await live_cluster(env, slices("a", 2, hosts=2))
    edit(env, lambda spec: find(spec, "a").update(numOfHosts=3))
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(numOfHosts=1))
    await env.settle()


async def deleted_by_one_name(env: Environment) -> None:
    """RM:S5 with S3: one name deletes four pods; the list is emptied later (RM:I15)."""
    await live_cluster(env, slices("a", 2))
    named = workers(env, "a")[1:2]
    edit(env, lambda spec: find(spec, "a").update(replicas=1, scaleStrategy={"workersToDelete": named}))
    await env.pass_time(2.0)
    edit(env, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": []}))
    await env.settle()


class WorkerQuota:
    """A ResourceQuota for workers: enforced, and reported in its status."""

    def __init__(self, env: Environment, hard: int) -> None:
        self.hard = hard
        self.rejected = 0
        self._stage = env
        env.kube.store.create("resourcequotas", {"metadata": {"name": QUOTA, "namespace": NAMESPACE}})
        env.transport.admission = self.admit

    @property
    def used(self) -> int:
        """Number of workers in the store."""
        return sum(pod.group != "headgroup" for pod in self._stage.pod_tracker.tracked_pods())

    def admit(self, request: Request) -> Answer | None:
        """The response of the quota to a request; None: admitted."""
        if request.path.endswith(f"/resourcequotas/{QUOTA}"):
            self._update_status()
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

    def _update_status(self) -> None:
        status = {"hard": {"pods": str(self.hard)}, "used": {"pods": str(self.used)}}
        self._stage.kube.edit(
            "resourcequotas", QUOTA, None, lambda quota: quota.update(status=status), subresource="status"
        )


async def quota(env: Environment) -> None:
    """RM:S4 in short: the quota admits one replica and two hosts more, later all."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    limit = WorkerQuota(env, HOSTS + 2)
    env.kube.create(new_cluster([slices("a", 2), group("b", 0)]))
    await env.pass_time(QUOTA_S)
    if not env.script.met and len(workers(env, "a")) != HOSTS:
        env.checks.add_violation(f"under a quota for one replica and a half: {len(workers(env, 'a'))} hosts")
    limit.hard = 2 * HOSTS
    env.disturbed_until_s = env.loop.time()
    await env.settle()


MULTI_HOST = (
    Scenario("slices-come-and-go", scale_up_and_down),
    Scenario("slice-host-lost", host_lost),
    Scenario("slice-host-vanished", host_vanished, has_exact_counts=False),
    Scenario("slices-resized", hosts_changed),
    Scenario("slice-named", deleted_by_one_name),
    Scenario("slice-quota", quota, has_exact_counts=False),
)
"""Each fault is tried at every point of these."""
