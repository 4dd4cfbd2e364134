"""Which lives of RayClusters is every fault tried on?

Each scenario is a prelude without faults, a moment from which calls and watch lines are counted (`Stage.begin`), and what
users and machines do then, waiting in between until all is as wanted. Told without a fault it is the reference; told again
with one fault at one point it must end the same (RM §2.3, scenarios S1–S14 as far as the product has them).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.faults.types import Answer

from simulation.manifests import NAME, NEIGHBOUR, find, group, new_cluster, template
from simulation.stage import Stage
from simulation.world import NAMESPACE, NODES, RAYCLUSTERS

QUOTA_S = 20.0
QUOTA_RETRY_S = 60.0
"""What a quota rejected is tried again within this time (RM:I18)."""
REPLACED_WITHIN_S = 10.0
"""SC:S12."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One life."""

    name: str
    tell: Callable[[Stage], Awaitable[None]]
    has_exact_counts: bool = True
    """False where the number of pods made depends on who was faster."""
    is_quiet: bool = False
    """True where the operator has nothing to write from the beginning to the end (RM:I19)."""
    stage: type[Stage] = Stage
    """Where it is played."""


async def live_cluster(stage: Stage, *groups: dict[str, Any]) -> None:
    """The prelude of most: a cluster that has been well for a while."""
    stage.world.create(new_cluster(list(groups)))
    stage.start()
    await stage.settle()
    await stage.pass_time(10.0)
    stage.begin()


def edit(stage: Stage, change: Callable[[dict[str, Any]], Any], name: str = NAME) -> None:
    """A user edits the spec."""
    stage.world.edit(RAYCLUSTERS, name, None, lambda obj: change(obj["spec"]))


def workers(stage: Stage, group_name: str) -> list[str]:
    """The names of a group's live workers, oldest first."""
    cluster = stage.world.cluster(NAME)
    assert cluster is not None
    return [pod.name for pod in stage.census.live_in(cluster["metadata"]["uid"], group_name)]


# --- the lives -----------------------------------------------------------------------------------------------------------


async def create(stage: Stage) -> None:
    """RM:S1: a head and three workers."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    stage.world.create(new_cluster([group("a", 3)]))
    await stage.settle()


def grow(most: int) -> Callable[[Stage], Awaitable[None]]:
    """RM:S2: from none to many."""

    async def tell(stage: Stage) -> None:
        await live_cluster(stage, group("a", 0, most))
        edit(stage, lambda spec: find(spec, "a").update(replicas=most))
        await stage.settle()

    return tell


def shrink_named(many: int, few: int) -> Callable[[Stage], Awaitable[None]]:
    """RM:S3: an autoscaler names who has to go, and later empties the list (RM:I15)."""

    async def tell(stage: Stage) -> None:
        await live_cluster(stage, group("a", many, many))
        named = workers(stage, "a")[1 : many - few + 1]
        edit(stage, lambda spec: find(spec, "a").update(replicas=few, scaleStrategy={"workersToDelete": named}))
        await stage.settle()
        edit(stage, lambda spec: find(spec, "a").update(scaleStrategy={"workersToDelete": []}))
        await stage.settle()

    return tell


async def shrink_unnamed(stage: Stage) -> None:
    """RM:S4: fewer, and the operator chooses."""
    await live_cluster(stage, group("a", 7))
    edit(stage, lambda spec: find(spec, "a").update(replicas=2))
    await stage.settle()


async def worker_evicted(stage: Stage) -> None:
    """RM:S6: a kubelet under pressure ends one worker."""
    await live_cluster(stage, group("a", 3))
    stage.world.evict(workers(stage, "a")[1])
    await stage.settle()


async def head_fails(stage: Stage) -> None:
    """RM:S6: the head ends by itself, and a worker is deleted by force a moment later."""
    await live_cluster(stage, group("a", 2))
    stage.world.kill_pod(workers(stage, "headgroup")[0], "Failed")
    await stage.pass_time(0.3)
    stage.world.vanish(workers(stage, "a")[0])
    await stage.settle()


async def node_lost(stage: Stage) -> None:
    """RM:S6: a machine dies with some pods on it, and its Node is deleted later."""
    await live_cluster(stage, group("a", 4))
    stage.world.lose_node(NODES[1])
    await stage.pass_time(20.0)
    stage.world.bury_node(NODES[1])
    await stage.settle()


async def node_away(stage: Stage) -> None:
    """RM:S6, SC:S12: the machine dies and its Node stays NotReady: its pods end for nobody and are replaced at once."""
    await live_cluster(stage, group("a", 4))
    stage.world.lose_node(NODES[1])
    await _replaced(stage, 4)
    await stage.settle()


async def node_away_at_start(stage: Stage) -> None:
    """The operator ran on that machine: a new one starts while the Node is NotReady; much later the machine is back."""
    await live_cluster(stage, group("a", 4))
    stage.kill()
    stage.world.lose_node(NODES[1])
    await _replaced(stage, 4)
    await stage.settle()
    stage.world.recover_node(NODES[1])
    await stage.pass_time(5.0)
    await stage.settle()


async def _replaced(stage: Stage, count: int) -> None:
    """So many workers live in time; garbage collection of a deleted Node has no part in it (FD:REL-A)."""
    await stage.pass_time(REPLACED_WITHIN_S)
    if not stage.script.met and (alive := len(workers(stage, "a"))) != count:
        stage.judge.note(f"{alive} of {count} workers live {REPLACED_WITHIN_S:.0f} s after a node died")


async def delete_while_creating(stage: Stage) -> None:
    """RM:S8: the user changes their mind after the first writes."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    stage.world.create(new_cluster([group("a", 5)]))
    await stage.pass_time(0.05)
    stage.world.delete_cluster(NAME)
    await stage.settle()


async def delete_and_create_again(stage: Stage) -> None:
    """RM:S8: the same name at once for another cluster, while the first one's pods are still ending."""
    await live_cluster(stage, group("a", 3))
    stage.world.delete_cluster(NAME)
    stage.world.create(new_cluster([group("a", 2)]))
    await stage.settle()


async def namespace_deleted(stage: Stage) -> None:
    """Everything goes, and nothing may be made on the way."""
    await live_cluster(stage, group("a", 3))
    stage.world.store.delete("namespaces", "", NAMESPACE)
    await stage.pass_time(5.0)
    await stage.settle()


async def template_changed(stage: Stage) -> None:
    """RM:S9: what runs is left alone; who comes later comes from the new template."""
    await live_cluster(stage, group("a", 3))
    edit(stage, lambda spec: find(spec, "a").update(template=template("worker", "rayproject/ray:2.61.0")))
    await stage.pass_time(3.0)
    await stage.settle()
    stage.world.vanish(workers(stage, "a")[0])
    await stage.settle()


async def two_writers(stage: Stage) -> None:
    """RM:S11: a user and an autoscaler write `replicas` by turns, the latter with names that may be gone already."""
    await live_cluster(stage, group("a", 4))
    named = workers(stage, "a")[:2]
    edit(stage, lambda spec: find(spec, "a").update(replicas=6))
    await stage.pass_time(0.05)
    edit(stage, lambda spec: find(spec, "a").update(replicas=2, scaleStrategy={"workersToDelete": named}))
    await stage.pass_time(0.3)
    edit(stage, lambda spec: find(spec, "a").update(replicas=5))
    await stage.settle()


async def neighbours(stage: Stage) -> None:
    """RM:S12: two clusters whose names begin alike; one is scaled, the other deleted."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    stage.world.create(new_cluster([group("a", 2)]))
    stage.world.create(new_cluster([group("a", 2)], NEIGHBOUR))
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(replicas=3))
    stage.world.delete_cluster(NEIGHBOUR)
    await stage.settle()


async def groups_change(stage: Stage) -> None:
    """A group is added, another leaves the spec."""
    await live_cluster(stage, group("a", 2), group("b", 2))

    def change(spec: dict[str, Any]) -> None:
        spec["workerGroupSpecs"] = [find(spec, "a"), group("c", 3)]

    edit(stage, change)
    await stage.settle()


async def quota(stage: Stage) -> None:
    """A quota denies the fourth worker of one group for a while; the other group gets its own (RM:I18)."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    until_s = stage.loop.time() + QUOTA_S

    def three_of_a(request: Request) -> Answer | None:
        is_worker_of_a = request.method == "POST" and b'"ray.io/group":"a"' in request.body
        if is_worker_of_a and len(workers(stage, "a")) >= 3 and stage.loop.time() < until_s:
            return Answer(403, message="exceeded quota: three workers of a")
        return None

    stage.wire.admission = three_of_a
    stage.world.create(new_cluster([group("a", 5), group("b", 2)]))
    await stage.pass_time(QUOTA_S - 1.0)
    counts = len(workers(stage, "a")), len(workers(stage, "b"))
    if not stage.script.met and ("ReplicaFailure" not in stage.true_conditions(NAME) or counts != (3, 2)):
        stage.judge.note(f"under a quota of three: {counts} workers, conditions {stage.true_conditions(NAME)}")
    stage.trouble_until = until_s
    await stage.settle(within_s=QUOTA_RETRY_S)


async def upgrade(stage: Stage) -> None:
    """RM:S14: SIGTERM for the operator, and a new one takes over a cluster that is well: it has nothing to write (RM:I19)."""
    await live_cluster(stage, group("a", 3))
    await stage.operator.stop()
    stage.operator.start()
    await stage.pass_time(30.0)


SCENARIOS = (
    Scenario("create", create),
    Scenario("grow", grow(12)),
    Scenario("shrink-named", shrink_named(10, 3)),
    Scenario("shrink-unnamed", shrink_unnamed),
    Scenario("worker-evicted", worker_evicted),
    Scenario("head-fails", head_fails),
    Scenario("node-lost", node_lost),
    Scenario("node-away", node_away),
    Scenario("node-away-at-start", node_away_at_start),
    Scenario("delete-while-creating", delete_while_creating, has_exact_counts=False),
    Scenario("delete-and-create-again", delete_and_create_again, has_exact_counts=False),
    Scenario("namespace-deleted", namespace_deleted, has_exact_counts=False),
    Scenario("template-changed", template_changed),
    Scenario("two-writers", two_writers, has_exact_counts=False),
    Scenario("neighbours", neighbours),
    Scenario("groups-change", groups_change),
    Scenario("quota", quota),
    Scenario("upgrade", upgrade, is_quiet=True),
)
"""Each with every fault at every point."""

LARGE = (
    Scenario("grow-to-100", grow(100)),
    Scenario("shrink-named-100-to-10", shrink_named(100, 10)),
)
"""Too long for every point: a few, evenly spread."""
