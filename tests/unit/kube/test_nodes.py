"""When a node counts as unready, although the watches of nodes and pods are not synchronized."""

import asyncio
import contextlib

import pytest

from raytide.api.meta import NODES
from raytide.api.node import decode_node
from raytide.api.pod import PodView
from raytide.kube import nodes
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock
from support import virtual_time
from unit.kube.scripted import HANG, ScriptedTransport, answer, line, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("FD:RC-B10")]


def node(name, version, ready="True"):
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def bookmark(version):
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def on(name, version, uid="old"):
    return PodView(namespace="ns", name="p", uid=uid, node_name=name, resource_version=str(version))


@contextlib.asynccontextmanager
async def following(*stream, listed=(), then=(), pods=()):
    """DeadNodes that has seen these pods, whose informer has listed at version 100 and then plays the streams, and the keys that it enqueues."""
    wire = ScriptedTransport()
    wire.answers.append(answer({"metadata": {"resourceVersion": "100"}, "items": list(listed)}))
    wire.streams.extend([stream, then] if then else [stream])
    reported = []

    def note(_old, new):
        dead.update(new)

    informer = Informer(
        SharedWatches(Client(wire, clock=Clock()), clock=Clock()), NODES, decoder=decode_node, on_change=note
    )
    dead = DeadNodes(informer)
    for pod in pods:
        dead.update_pod(None, pod)
    tasks = [asyncio.ensure_future(work) for work in (informer.run(), dead.run(reported.extend))]
    try:
        await informer.wait_synced()
        yield dead, reported
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("pods", "dead"),
    [
        pytest.param([on("n1", 50)], set(), id="a node that is there and Ready"),
        pytest.param([on("n2", 50)], {"n2"}, id="one that is NotReady"),
        pytest.param([on("gone", 50)], {"gone"}, id="one that is not there, though the pod was on it before the list"),
        pytest.param([on("new", 150)], set(), id="a pod was scheduled after the list, to a node that may be new"),
        pytest.param(
            [on("new", 150), on("new", 99, "b")], set(), id="one of its pods may be on a new node of that name"
        ),
        pytest.param([on("gone", 99), on("gone", 100, "b")], {"gone"}, id="all of its pods were on it before the list"),
        pytest.param([on("", 50)], set(), id="a pod without a node"),
    ],
)
def test_after_a_list(pods, dead):
    async def main():
        async with following(listed=[node("n1", 10), node("n2", 11, "Unknown")]) as (nodes_of, _):
            assert nodes_of.dead_among(pods) == dead

    virtual_time.run(main())


def test_a_node_whose_event_follows_that_of_its_pod_is_never_unready():
    async def main():
        async with following(5.0, line("ADDED", node("new", 140)), HANG) as (dead, reported):
            assert not dead.dead_among([on("new", 150)])
            await asyncio.sleep(120)
            assert not dead.dead_among([on("new", 150)])
            assert reported == []

    virtual_time.run(main())


def test_a_node_that_was_deleted_is_gone_for_its_pods_however_they_change_afterwards_until_it_comes_back():
    async def main():
        stream = (line("DELETED", node("n1", 110)), 10.0, line("ADDED", node("n1", 160)), HANG)
        async with following(*stream, listed=[node("n1", 10)], pods=[on("n1", 105)]) as (dead, _):
            await asyncio.sleep(1)
            assert dead.dead_among([on("n1", 150)]) == {"n1"}
            await asyncio.sleep(10)
            assert not dead.dead_among([on("n1", 170)])

    virtual_time.run(main())


@pytest.mark.parametrize(
    "known",
    [
        pytest.param([on("n1", 105)], id="before its deletion only the pod of the old node was known"),
        pytest.param(
            [on("n1", 105), on("n1", 150, "new")], id="the watch of pods is so far ahead that its pod was known too"
        ),
    ],
)
def test_a_pod_on_a_reregistered_node_is_not_unready_before_the_watch_shows_the_node(known):
    async def main():
        stream = (line("DELETED", node("n1", 110)), 10.0, line("ADDED", node("n1", 140)), HANG)
        async with following(*stream, listed=[node("n1", 10)], pods=known) as (dead, reported):
            await asyncio.sleep(1)
            assert dead.dead_among([on("n1", 105)]) == {"n1"}, "a cluster whose pods were all on the old node"
            assert not dead.dead_among([on("n1", 150, "new")])
            assert not dead.dead_among([on("n1", 120), on("n1", 150, "new")]), (
                "the answer is per node, so both pods are spared"
            )
            await asyncio.sleep(60)
            assert not dead.dead_among([on("n1", 155, "new")])
            assert reported == []

    virtual_time.run(main())


def test_a_node_that_is_not_registered_again_is_gone_for_pods_first_seen_after_its_deletion_too():
    async def main():
        stream = (line("DELETED", node("n1", 110)), 10.0, bookmark(150), HANG)
        async with following(*stream, listed=[node("n1", 10)], pods=[on("n1", 150)]) as (dead, reported):
            await asyncio.sleep(1)
            assert not dead.dead_among([on("n1", 150)])
            await asyncio.sleep(10 + nodes.RECHECK_INTERVAL_S)
            assert reported == ["n1"]
            assert dead.dead_among([on("n1", 170)]) == {"n1"}

    virtual_time.run(main())


def test_a_missing_node_is_reported_within_seconds_of_the_event_that_decides():
    async def main():
        async with following(30.0, bookmark(149), 5.0, bookmark(150), HANG, pods=[on("gone", 150)]) as (dead, reported):
            assert not dead.dead_among([on("gone", 150)])
            await asyncio.sleep(34)
            assert reported == []
            await asyncio.sleep(1 + nodes.RECHECK_INTERVAL_S)
            assert reported == ["gone"]
            assert dead.dead_among([on("gone", 170)]) == {"gone"}, "what has been told stays so"

    virtual_time.run(main())


def test_no_node_is_unready_while_nodes_cannot_be_watched():
    async def main():
        forbidden = status_error(403, "Forbidden", "nodes are forbidden")
        async with following(forbidden, then=(bookmark(101), HANG)) as (dead, reported):
            await asyncio.sleep(0.1)
            assert not dead.dead_among([on("gone", 50)])
            await asyncio.sleep(5)
            assert reported == ["gone"], "and is again once they can be"

    virtual_time.run(main())


def test_the_recorded_version_of_a_pod_starts_with_its_node_and_ends_with_its_deletion():
    async def main():
        async with following(HANG, pods=[on("", 40), on("gone", 90, "b")]) as (dead, _):
            dead.update_pod(on("", 40), on("gone", 150))
            assert not dead.dead_among([on("gone", 170)]), "it was not on it before version 150"
            dead.update_pod(on("gone", 150), None)
            dead.update_pod(on("gone", 90, "b"), on("gone", 160, "c"))
            assert not dead.dead_among([on("gone", 170, "c")]), "another pod of that name"
            assert dead.dead_among([on("gone", 100)]) == {"gone"}, "only its version is recorded"

    virtual_time.run(main())


def test_a_pod_of_a_restored_store_counts_by_its_new_lower_version():
    async def main():
        async with following(HANG, pods=[on("gone", 900)]) as (dead, _):
            dead.update_pod(on("gone", 900), on("gone", 60))
            assert dead.dead_among([on("gone", 60)]) == {"gone"}

    virtual_time.run(main())


def test_the_number_of_undecided_nodes_is_bounded(monkeypatch):
    monkeypatch.setattr(nodes, "MAX_UNDECIDED", 3)

    async def main():
        async with following(10.0, bookmark(500), HANG) as (dead, reported):
            assert not dead.dead_among(on(f"n{n}", 500, f"p{n}") for n in range(5))
            await asyncio.sleep(10 + nodes.RECHECK_INTERVAL_S)
            assert sorted(reported) == ["n2", "n3", "n4"]

    virtual_time.run(main())
