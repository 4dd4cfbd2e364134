"""Scenarios of RayClusters on which each fault is tried.

Each scenario has a setup without faults, a moment from which calls and watch events are numbered
(`Environment.start_recording`), and then actions of users and failures of nodes, each followed by a wait for the desired
state. The run without a fault is the reference; a run with one fault at one point must end in the same state (RM §2.3,
scenarios S1–S14 as far as the product has them).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from raytide_sandbox.apiserver.request_response import Request
from support.faults.types import Answer

from simulation.environment import Environment
from simulation.manifests import NAME, OTHER_NAME, find, group, new_cluster, template
from simulation.simulated_kube import NAMESPACE, NODES, RAYCLUSTERS

QUOTA_S = 20.0
QUOTA_RETRY_S = 60.0
"""A create that a quota rejected is retried within this time (RM:I18)."""
REPLACED_WITHIN_S = 10.0
"""SC:S12."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of the fault matrix."""

    name: str
    run: Callable[[Environment], Awaitable[None]]
    has_exact_counts: bool = True
    """False if the number of created pods depends on timing."""
    is_quiet: bool = False
    """True if the operator has nothing to write during the whole scenario (RM:I19)."""
    environment: type[Environment] = Environment
    """The class of the environment."""


async def live_cluster(env: Environment, *groups: dict[str, Any]) -> None:
    """The setup of most scenarios: a cluster that has been ready for 10 s."""
    env.kube.create(new_cluster(list(groups)))
    env.start()
    await env.settle()
    await env.pass_time(10.0)
    env.start_recording()


def edit(env: Environment, change: Callable[[dict[str, Any]], Any], name: str = NAME) -> None:
    """A user edits the spec."""
    env.kube.edit(RAYCLUSTERS, name, None, lambda obj: change(obj["spec"]))


def workers(env: Environment, group_name: str) -> list[str]:
    """The names of a group's live workers, oldest first."""
    cluster = env.kube.cluster(NAME)
    assert cluster is not None
    return [pod.name for pod in env.pod_tracker.live_pods(cluster["metadata"]["uid"], group_name)]


# --- scenarios-----------------------------------------------------------------------------------------------------------


async def create(env: Environment) -> None:
    """RM:S1: a head and three workers."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    env.kube.create(new_cluster([group("a", 3)]))
    await env.settle()


def grow(most: int) -> Callable[[Environment], Awaitable[None]]:
    """RM:S2: scale up from zero."""

    async def run(env: Environment) -> None:
        await live_cluster(env, group("a", 0, most))
        edit(env, lambda spec: find(spec, "a").update(replicas=most))
        await env.settle()

    return run


def scale_down_with_names(many: int, few: int) -> Callable[[Environment], Awaitable[None]]:
    """RM:S3: an autoscaler names the pods to delete, and later empties the list (RM:I15)."""

    async def run(env: Environment) -> None:
        await live_cluster(env, group("a", many, many))
        named = workers(env, "a")[1 : many - few + 1]
        edit(env, lambda spec: find(spec, "a").update(replicas=few, scaleStrategy={"workersToDelete": named}))
        await env.settle()
        edit(env, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": []}))
        await env.settle()

    return run


async def scale_down(env: Environment) -> None:
    """RM:S4: scale down; the operator chooses the victims."""
    await live_cluster(env, group("a", 7))
    edit(env, lambda spec: find(spec, "a").update(replicas=2))
    await env.settle()


async def worker_evicted(env: Environment) -> None:
    """RM:S6: a kubelet evicts one worker."""
    await live_cluster(env, group("a", 3))
    env.kube.evict_pod(workers(env, "a")[1])
    await env.settle()


async def head_fails(env: Environment) -> None:
    """RM:S6: the head fails, and a worker is deleted by force a moment later."""
    await live_cluster(env, group("a", 2))
    env.kube.end_pod(workers(env, "headgroup")[0], "Failed")
    await env.pass_time(0.3)
    env.kube.force_delete_pod(workers(env, "a")[0])
    await env.settle()


async def node_lost(env: Environment) -> None:
    """RM:S6: a node fails with pods on it, and its Node is deleted later."""
    await live_cluster(env, group("a", 4))
    env.kube.lose_node(NODES[1])
    await env.pass_time(20.0)
    env.kube.delete_node(NODES[1])
    await env.settle()


async def node_not_ready(env: Environment) -> None:
    """RM:S6, SC:S12: a node stays NotReady: its pods never terminate and are replaced at once."""
    await live_cluster(env, group("a", 4))
    env.kube.lose_node(NODES[1])
    await _expect_replacement(env, 4)
    await env.settle()


async def node_not_ready_at_start(env: Environment) -> None:
    """The operator ran on that node: a new one starts while the Node is NotReady; later the node recovers."""
    await live_cluster(env, group("a", 4))
    env.kill()
    env.kube.lose_node(NODES[1])
    await _expect_replacement(env, 4)
    await env.settle()
    env.kube.recover_node(NODES[1])
    await env.pass_time(5.0)
    await env.settle()


async def _expect_replacement(env: Environment, count: int) -> None:
    """Check that so many workers are live in time, without garbage collection of a deleted Node (FD:REL-A)."""
    await env.pass_time(REPLACED_WITHIN_S)
    if not env.script.met and (alive := len(workers(env, "a"))) != count:
        env.checks.add_violation(f"{alive} of {count} workers are live {REPLACED_WITHIN_S:.0f} s after a node failed")


async def delete_while_creating(env: Environment) -> None:
    """RM:S8: the user deletes the cluster after the first writes."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    env.kube.create(new_cluster([group("a", 5)]))
    await env.pass_time(0.05)
    env.kube.delete_cluster(NAME)
    await env.settle()


async def delete_and_create_again(env: Environment) -> None:
    """RM:S8: a cluster of the same name is created while the pods of the first are terminating."""
    await live_cluster(env, group("a", 3))
    env.kube.delete_cluster(NAME)
    env.kube.create(new_cluster([group("a", 2)]))
    await env.settle()


async def namespace_deleted(env: Environment) -> None:
    """The namespace is deleted, and no object may be created meanwhile."""
    await live_cluster(env, group("a", 3))
    env.kube.store.delete("namespaces", "", NAMESPACE)
    await env.pass_time(5.0)
    await env.settle()


async def template_changed(env: Environment) -> None:
    """RM:S9: running pods are kept; later pods are created from the new template."""
    await live_cluster(env, group("a", 3))
    edit(env, lambda spec: find(spec, "a").update(template=template("worker", "rayproject/ray:2.61.0")))
    await env.pass_time(3.0)
    await env.settle()
    env.kube.force_delete_pod(workers(env, "a")[0])
    await env.settle()


async def two_writers(env: Environment) -> None:
    """RM:S11: a user and an autoscaler write `replicas` in turn, the latter with names of pods that may be deleted already."""
    await live_cluster(env, group("a", 4))
    named = workers(env, "a")[:2]
    edit(env, lambda spec: find(spec, "a").update(replicas=6))
    await env.pass_time(0.05)
    edit(env, lambda spec: find(spec, "a").update(replicas=2, scaleStrategy={"workersToDelete": named}))
    await env.pass_time(0.3)
    edit(env, lambda spec: find(spec, "a").update(replicas=5))
    await env.settle()


async def common_name_prefix(env: Environment) -> None:
    """RM:S12: two clusters with a common name prefix; one is scaled, the other deleted."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    env.kube.create(new_cluster([group("a", 2)]))
    env.kube.create(new_cluster([group("a", 2)], OTHER_NAME))
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(replicas=3))
    env.kube.delete_cluster(OTHER_NAME)
    await env.settle()


async def groups_change(env: Environment) -> None:
    """A group is added to the spec, another one is removed."""
    await live_cluster(env, group("a", 2), group("b", 2))

    def change(spec: dict[str, Any]) -> None:
        spec["workerGroupSpecs"] = [find(spec, "a"), group("c", 3)]

    edit(env, change)
    await env.settle()


async def quota(env: Environment) -> None:
    """A quota rejects the fourth worker of one group for a while; the other group gets all of its workers (RM:I18)."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    until_s = env.loop.time() + QUOTA_S

    def three_of_a(request: Request) -> Answer | None:
        is_worker_of_a = request.method == "POST" and b'"ray.io/group":"a"' in request.body
        if is_worker_of_a and len(workers(env, "a")) >= 3 and env.loop.time() < until_s:
            return Answer(403, message="exceeded quota: three workers of a")
        return None

    env.transport.admission = three_of_a
    env.kube.create(new_cluster([group("a", 5), group("b", 2)]))
    await env.pass_time(QUOTA_S - 1.0)
    counts = len(workers(env, "a")), len(workers(env, "b"))
    if not env.script.met and ("ReplicaFailure" not in env.true_conditions(NAME) or counts != (3, 2)):
        env.checks.add_violation(f"under a quota of three: {counts} workers, conditions {env.true_conditions(NAME)}")
    env.disturbed_until_s = until_s
    await env.settle(within_s=QUOTA_RETRY_S)


async def upgrade(env: Environment) -> None:
    """RM:S14: SIGTERM for the operator; its successor has nothing to write for a ready cluster (RM:I19)."""
    await live_cluster(env, group("a", 3))
    await env.operator.stop()
    env.operator.start()
    await env.pass_time(30.0)


SCENARIOS = (
    Scenario("create", create),
    Scenario("grow", grow(12)),
    Scenario("shrink-named", scale_down_with_names(10, 3)),
    Scenario("shrink-unnamed", scale_down),
    Scenario("worker-evicted", worker_evicted),
    Scenario("head-fails", head_fails),
    Scenario("node-lost", node_lost),
    Scenario("node-away", node_not_ready),
    Scenario("node-away-at-start", node_not_ready_at_start),
    Scenario("delete-while-creating", delete_while_creating, has_exact_counts=False),
    Scenario("delete-and-create-again", delete_and_create_again, has_exact_counts=False),
    Scenario("namespace-deleted", namespace_deleted, has_exact_counts=False),
    Scenario("template-changed", template_changed),
    Scenario("two-writers", two_writers, has_exact_counts=False),
    Scenario("neighbours", common_name_prefix),
    Scenario("groups-change", groups_change),
    Scenario("quota", quota),
    Scenario("upgrade", upgrade, is_quiet=True),
)
"""Each fault is tried at every point of these."""

LARGE = (
    Scenario("grow-to-100", grow(100)),
    Scenario("shrink-named-100-to-10", scale_down_with_names(100, 10)),
)
"""Too long for every point: faults are tried at a few points, evenly spread."""
