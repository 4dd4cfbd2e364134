"""What is still noticed after a bad moment: nodes dead at the start, deleted, or readable only later; a store that went back
to an older snapshot (FD:REL-A, B, C, FD:RC-B10)."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raytide_sandbox.faults.script import Call, Rule
from raytide_sandbox.faults.types import Answer, Delay
from support import virtual_time

from simulation.manifests import NAME, find, group
from simulation.scenarios import edit, live_cluster, workers
from simulation.stage import Stage, heard_by
from simulation.world import NODES

pytestmark = pytest.mark.looptime

REPLACED_WITHIN_S = 10.0
"""SC:S12."""
FOLLOWED_AGAIN_S = 90.0
"""A watch from the store's future is ended by the server within a minute; then the collection is listed again."""
Story = Callable[[Stage], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    """In a loop of its own with virtual time; nothing may be violated."""

    async def tell() -> list[str]:
        stage = Stage(7)
        with heard_by(stage.judge):
            stage.open()
            await story(stage)
            await stage.close()
        return stage.judge.violations

    assert virtual_time.run(tell()) == []


def running_workers(stage: Stage) -> int:
    """How many workers of the cluster are not on the lost node."""
    cluster = stage.world.cluster(NAME)
    assert cluster is not None
    pods = [stage.world.store.find("pods", "default", name) for name in workers(stage, "a")]
    return sum(pod is not None and pod.obj()["spec"].get("nodeName") != NODES[1] for pod in pods)


def live_workers(stage: Stage) -> list[str]:
    """The names of the group's workers in the store, not as anybody remembers them."""
    pods = (entry.obj() for _, entry in stage.world.store.entries("pods", "default") if not entry.is_terminating)
    return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"].get("ray.io/group") == "a"]


def of_nodes(call: Call) -> bool:
    """Whether it asks about nodes."""
    return call.plural == "nodes"


async def seconds_until_replaced(stage: Stage) -> float:
    """From now until four workers are on nodes that live."""
    begun_s = stage.loop.time()
    while running_workers(stage) < 4 and stage.loop.time() < begun_s + 3600:
        await stage.pass_time(0.5)
    return stage.loop.time() - begun_s


@pytest.mark.rule("FD:REL-A", "SC:S12")
@pytest.mark.parametrize("is_back", [False, True], ids=["the node stays away", "the node comes back"])
def test_an_operator_that_starts_while_a_node_is_dead_replaces_its_workers_in_time(*, is_back: bool) -> None:
    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 4))
        stage.script.of_calls.append(Rule(Delay(3.0), of_nodes))
        stage.kill()
        stage.world.lose_node(NODES[1])
        assert await seconds_until_replaced(stage) <= REPLACED_WITHIN_S
        if is_back:
            stage.world.recover_node(NODES[1])
        await stage.pass_time(60.0)
        assert running_workers(stage) == 4

    play(story)


@pytest.mark.rule("FD:REL-B", "SC:S12")
def test_a_right_to_read_nodes_that_is_granted_late_is_used() -> None:
    async def story(stage: Stage) -> None:
        until_s = stage.loop.time() + 20.0
        stage.script.of_calls.append(Rule(Answer(403), of_nodes, times=None, until_s=until_s))
        await live_cluster(stage, group("a", 4))
        await stage.pass_time(40.0)
        stage.world.lose_node(NODES[1])
        assert await seconds_until_replaced(stage) <= REPLACED_WITHIN_S
        await stage.pass_time(1.0)

    play(story)


@pytest.mark.rule("FD:REL-C", "RM:F10", "RM:I1")
@pytest.mark.parametrize(
    "edit_at_s",
    [
        pytest.param(1.0, id="a user scales before anything could be noticed"),
        pytest.param(300.0, id="a user scales after five minutes"),
    ],
)
def test_a_store_restored_from_an_older_snapshot_makes_no_pod_too_many(edit_at_s: float) -> None:
    async def story(stage: Stage) -> None:
        store = stage.world.store
        await live_cluster(stage, group("a", 3))
        snapshot = store.snapshot()
        for _ in range(5):  # the older the snapshot, the longer its versions stay below what was seen
            edit(stage, lambda spec: find(spec, "a").update(replicas=6))
            await stage.settle()
            edit(stage, lambda spec: find(spec, "a").update(replicas=3))
            await stage.settle()
        store.restore(snapshot)
        stage.judge.forget_statuses()
        await stage.pass_time(edit_at_s)
        edit(stage, lambda spec: find(spec, "a").update(replicas=5))
        await stage.pass_time(FOLLOWED_AGAIN_S)
        most = 0
        for _ in range(1200):
            most = max(most, len(live_workers(stage)))
            await stage.pass_time(0.5)
        assert (most, len(live_workers(stage))) == (5, 5)

    play(story)


@pytest.mark.rule("FD:RC-B10", "SC:S12")
@pytest.mark.parametrize("is_deleted_first", [False, True], ids=["pods die, the Node goes", "the Node goes, pods die"])
def test_dying_pods_of_a_node_that_was_deleted_do_not_hold_up_their_successors(*, is_deleted_first: bool) -> None:
    """A machine is scaled away: its Node object goes at once, and a finalizer keeps its pods for an hour."""

    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 4))
        names = stage.world.silence_node(NODES[1])
        for name in names:
            stage.world.edit("pods", name, None, lambda pod: pod["metadata"].update(finalizers=["example.com/hold"]))
        if is_deleted_first:
            stage.world.store.delete("nodes", "", NODES[1])
        for name in names:
            stage.world.store.delete("pods", "default", name)
        if not is_deleted_first:
            await stage.pass_time(5.0)
            assert running_workers(stage) < 4, "as long as the Node is there and well, dying pods count"
            stage.world.store.delete("nodes", "", NODES[1])
        assert await seconds_until_replaced(stage) <= REPLACED_WITHIN_S
        for name in names:
            stage.world.edit("pods", name, None, lambda pod: pod["metadata"].update(finalizers=[]))
        await stage.pass_time(60.0)
        assert running_workers(stage) == 4

    play(story)
