"""When a node counts as dead, though the stream of nodes and that of pods come each in its own time."""

import asyncio
import contextlib

import pytest

import virtual_time
from raytide.api.meta import NODES
from raytide.api.node import decode_node
from raytide.api.pod import PodView
from raytide.kube import nodes
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes
from raytide.runtime.clock import Clock
from unit.kube.scripted import HANG, ScriptedTransport, answer, line, refusal

pytestmark = [pytest.mark.looptime, pytest.mark.rule("FD:RC-B10")]


def node(name, version, ready="True"):
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def bookmark(version):
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def on(name, version):
    return PodView(namespace="ns", name="p", node_name=name, resource_version=str(version))


@contextlib.asynccontextmanager
async def following(*stream, listed=(), then=()):
    """DeadNodes whose informer has listed at version 100 and then plays the streams, and what it tells by itself."""
    wire = ScriptedTransport()
    wire.answers.append(answer({"metadata": {"resourceVersion": "100"}, "items": list(listed)}))
    wire.streams.extend([stream, then] if then else [stream])
    told = []

    def note(old, new):
        dead.note(old, new)

    informer = Informer(Client(wire, clock=Clock()), NODES, clock=Clock(), decoder=decode_node, on_change=note)
    dead = DeadNodes(informer)
    tasks = [asyncio.ensure_future(work) for work in (informer.run(), dead.follow(told.extend))]
    try:
        await informer.wait_synced()
        yield dead, told
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
        pytest.param([on("gone", 150), on("gone", 99)], {"gone"}, id="one of its pods was on it before the list"),
        pytest.param([on("", 50)], set(), id="a pod without a node"),
    ],
)
def test_after_a_list(pods, dead):
    async def main():
        async with following(listed=[node("n1", 10), node("n2", 11, "Unknown")]) as (nodes_of, _):
            assert nodes_of.unready(pods) == dead

    virtual_time.run(main())


def test_a_node_whose_event_comes_after_its_pod_is_alive_all_the_time():
    async def main():
        async with following(5.0, line("ADDED", node("new", 140)), HANG) as (dead, told):
            assert not dead.unready([on("new", 150)])
            await asyncio.sleep(120)
            assert not dead.unready([on("new", 150)])
            assert told == []

    virtual_time.run(main())


def test_a_node_that_was_deleted_is_gone_for_pods_that_change_afterwards_until_it_comes_back():
    async def main():
        stream = (line("DELETED", node("n1", 110)), 10.0, line("ADDED", node("n1", 160)), HANG)
        async with following(*stream, listed=[node("n1", 10)]) as (dead, _):
            await asyncio.sleep(1)
            assert dead.unready([on("n1", 150)]) == {"n1"}
            await asyncio.sleep(10)
            assert not dead.unready([on("n1", 150)])

    virtual_time.run(main())


def test_a_doubt_is_told_within_seconds_of_the_word_that_ends_it():
    async def main():
        async with following(30.0, bookmark(149), 5.0, bookmark(150), HANG) as (dead, told):
            assert not dead.unready([on("gone", 150)])
            await asyncio.sleep(34)
            assert told == []
            await asyncio.sleep(1 + nodes.SETTLE_EVERY_S)
            assert told == ["gone"]
            assert dead.unready([on("gone", 170)]) == {"gone"}, "what has been told stays so"

    virtual_time.run(main())


def test_nothing_is_gone_while_nodes_cannot_be_followed():
    async def main():
        forbidden = refusal(403, "Forbidden", "nodes are forbidden")
        async with following(forbidden, then=(bookmark(101), HANG)) as (dead, told):
            await asyncio.sleep(0.1)
            assert not dead.unready([on("gone", 50)])
            await asyncio.sleep(5)
            assert told == ["gone"], "and is again once they can be"

    virtual_time.run(main())


def test_names_of_deleted_nodes_are_bounded(monkeypatch):
    monkeypatch.setattr(nodes, "MOST_NAMES", 3)

    async def main():
        gone = [line("DELETED", node(f"n{n}", 110 + n)) for n in range(5)]
        async with following(*gone, HANG, listed=[node(f"n{n}", n) for n in range(5)]) as (dead, _):
            await asyncio.sleep(1)
            assert dead.unready(on(f"n{n}", 500) for n in range(5)) == {"n2", "n3", "n4"}

    virtual_time.run(main())
