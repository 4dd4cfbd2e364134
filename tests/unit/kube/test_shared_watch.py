"""Shared watches: one list and one watch for several informers, each with its own view, in virtual time."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from raytide.api.meta import NODES, PODS
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock
from unit.kube.scripted import HANG, ScriptedTransport, answer, line, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D3")]


def node(name: str, version: int, **spec) -> dict:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "spec": spec}


def listed(*nodes: dict, version: int, more: str = ""):
    return answer({"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(nodes)})


class Env:
    """A transport, its shared watches, and the changes that each informer's handler was called with."""

    def __init__(self, *answers, streams=()) -> None:
        self.wire = ScriptedTransport()
        self.wire.answers += answers
        self.wire.streams += streams
        self.watches = SharedWatches(Client(self.wire, clock=Clock()), clock=Clock())
        self.changes: dict[str, list[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def informer(self, name, *, field="name", resource=NODES, **options) -> Informer[str]:
        """An informer whose view is the name and one field of the metadata."""
        changes = self.changes[name] = []

        def decode(raw: msgspec.Raw) -> str:
            metadata = msgspec.json.decode(raw)["metadata"]
            return f"{metadata['name']}/{metadata[field]}"

        def note(old: str | None, new: str | None) -> None:
            changes.append(("+" if old is None else "-" if new is None else "~") + (new or old))

        return Informer(self.watches, resource, decoder=decode, on_change=note, name=name, **options)

    def start(self, informer: Informer[str]) -> None:
        self._tasks[informer.name] = asyncio.create_task(informer.run())

    async def stop(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def running(self, *informers: Informer[str]) -> AsyncIterator[None]:
        for each in informers:
            self.start(each)
        try:
            yield
        finally:
            for task in self._tasks.values():
                if task.done():
                    task.result()
            for name in tuple(self._tasks):
                await self.stop(name)


async def test_equal_informers_share_a_list_and_a_watch_and_keep_their_own_views():
    events = line("ADDED", node("b", 6)) + line("MODIFIED", node("a", 7)) + line("DELETED", node("b", 8))
    env = Env(listed(node("a", 1), version=5), streams=[[events, HANG]])
    names, versions = env.informer("names"), env.informer("versions", field="resourceVersion")
    async with env.running(names, versions):
        await asyncio.wait_for(versions.wait_synced(), 1)
        await asyncio.sleep(1)
        assert (len(env.wire.calls), len(env.wire.watches)) == (1, 1)
        assert env.changes["names"] == ["+a/a", "+b/b", "~a/a", "-b/b"]
        assert env.changes["versions"] == ["+a/1", "+b/6", "~a/7", "-b/6"]
        assert (names.get("", "a"), versions.get("", "a")) == ("a/a", "a/7")
        assert names.version == versions.version == 8


@pytest.mark.parametrize(
    "options",
    [
        {"label_selector": "a=b"},
        {"field_selector": "metadata.name=a"},
        {"namespaces": ("ns",), "resource": PODS},
        {"resource": PODS},
    ],
    ids=str,
)
async def test_other_selectors_namespaces_and_kinds_have_their_own_watch(options):
    env = Env(listed(version=5), listed(version=5))
    async with env.running(env.informer("one"), env.informer("other", **options)):
        await asyncio.sleep(1)
        assert (len(env.wire.calls), len(env.wire.watches)) == (2, 2)


async def test_only_the_namespaces_that_both_watch_are_shared():
    env = Env(*[listed(version=5)] * 3)
    one, other = (env.informer(str(n), resource=PODS, namespaces=n) for n in (("a", "b"), ("b", "c")))
    async with env.running(one, other):
        await asyncio.sleep(1)
        assert sorted(watch.path for watch in env.wire.watches) == [f"/api/v1/namespaces/{n}/pods" for n in "abc"]
        assert [other.version_in(name) for name in "abc"] == [0, 5, 5]


async def test_an_informer_that_starts_later_is_filled_by_one_list_without_changes_for_the_others():
    env = Env(listed(node("a", 1), version=5), listed(node("a", 1), node("b", 6), version=7))
    env.wire.streams += [[line("ADDED", node("b", 6)), HANG], [0.5, line("ADDED", node("c", 8)), HANG]]
    early, late = env.informer("early"), env.informer("late")
    async with env.running(early):
        await asyncio.sleep(1)
        assert (late.is_synced, len(late), late.version_in("")) == (False, 0, 0)
        env.start(late)
        await asyncio.wait_for(late.wait_synced(), 1)
        assert (sorted(late.all()), late.version) == (["a/a", "b/b"], 7)
        await asyncio.sleep(1)
        assert env.changes == {"early": ["+a/a", "+b/b", "+c/c"], "late": ["+a/a", "+b/b", "+c/c"]}
        assert [watch.query["resourceVersion"] for watch in env.wire.watches] == ["5", "7"]
        assert len(env.wire.calls) == 2


async def test_an_informer_that_starts_during_a_list_receives_all_of_it_or_the_next():
    env = Env(listed(node("a", 1), version=5, more="x"), listed(node("b", 2), version=5))
    env.wire.answers.append(listed(node("a", 1), node("b", 2), version=6))
    env.wire.takes_s = 2
    at_once, before, between = (env.informer(name) for name in ("at-once", "before", "between"))
    async with env.running(at_once):
        await asyncio.sleep(1)
        env.start(before)
        await asyncio.sleep(2)
        env.start(between)
        await asyncio.sleep(1.1)
        assert (at_once.is_synced, before.is_synced, between.is_synced) == (True, True, False)
        assert (len(before), len(between)) == (2, 0)
        await asyncio.sleep(2)
        assert (between.is_synced, len(between)) == (True, 2)
    assert env.changes == {name: ["+a/a", "+b/b"] for name in ("at-once", "before", "between")}


async def test_it_watches_as_long_as_one_informer_runs_and_relists_after_the_last_one_ended():
    env = Env(listed(node("a", 1), version=5), listed(node("b", 8), version=9))
    env.wire.streams += [[1, line("ADDED", node("c", 6)), HANG], [HANG]]
    one, other = env.informer("one"), env.informer("other")
    async with env.running(one, other):
        await asyncio.sleep(0.5)
        await env.stop("one")
        await asyncio.sleep(1)
        assert env.changes == {"one": ["+a/a"], "other": ["+a/a", "+c/c"]}
        await env.stop("other")
        again = env.informer("again")
        env.start(again)
        await asyncio.sleep(1)
        assert (list(again.all()), again.lists) == (["b/b"], 1)
        assert len(env.wire.watches) == 2
    assert env.changes["again"] == ["+b/b"]
    assert env.changes["other"] == ["+a/a", "+c/c"]


@pytest.mark.rule("D6")
async def test_two_refreshes_cost_one_list():
    env = Env(*[listed(version=5)] * 3)
    one, other = env.informer("one"), env.informer("other")
    async with env.running(one, other):
        await asyncio.sleep(1)
        await asyncio.wait_for(asyncio.gather(one.refresh(), other.refresh()), 1)
        assert len(env.wire.calls) == 2


@pytest.mark.rule("D6")
async def test_a_refresh_also_waits_for_the_first_list_of_its_own_informer():
    env = Env(*[listed(node("a", 1), version=5)] * 3)
    one, late = env.informer("one"), env.informer("late")
    async with env.running(one):
        await asyncio.sleep(1)
        refreshed = asyncio.create_task(late.refresh())
        await asyncio.sleep(1)
        assert not refreshed.done()
        env.start(late)
        await asyncio.wait_for(refreshed, 1)
        assert list(late.all()) == ["a/a"]


@pytest.mark.rule("FD:REL-B")
async def test_a_forbidden_collection_is_retried_rarely_only_while_every_informer_is_optional(caplog):
    caplog.set_level(logging.INFO, logger="raytide")
    env = Env()
    env.wire.responder = lambda _call: status_error(403, "Forbidden")
    optional, also = env.informer("one", if_forbidden="no a"), env.informer("two", if_forbidden="no b")
    required = env.informer("required")
    async with env.running(optional, also):
        await asyncio.sleep(1)
        assert len(env.wire.calls) == 1
        assert [r.message.split("; ", 1)[1] for r in caplog.records] == [
            "until this is allowed, no a; no b; retrying every 30 s"
        ]
        env.start(required)
        await asyncio.sleep(1)
        assert len(env.wire.calls) == 4, "at once, and after 0.2 s and 0.6 s"
        await env.stop("required")
        await asyncio.sleep(60)
        assert len(env.wire.calls) <= 7


async def test_an_error_in_a_handler_ends_every_informer_of_the_collection():
    env = Env(listed(node("a", 1), version=5))
    other = env.informer("other")
    broken = Informer(env.watches, NODES, decoder=bytes, on_change=lambda _old, _new: 1 / 0)
    tasks = [asyncio.create_task(each.run()) for each in (other, broken)]
    done, _ = await asyncio.wait(tasks, timeout=5)
    assert len(done) == 2
    for task in tasks:
        with pytest.raises(ExceptionGroup) as caught:
            task.result()
        assert caught.group_contains(ZeroDivisionError)


async def test_an_object_that_one_informer_cannot_decode_is_stored_by_the_others(caplog):
    env = Env(listed(node("a", 1), version=5), streams=[[line("ADDED", node("b", 6)), HANG]])
    good, bad = env.informer("good"), env.informer("bad", field="uid")
    async with env.running(good, bad):
        await asyncio.sleep(1)
        assert (sorted(good.all()), len(bad), bad.is_synced) == (["a/a", "b/b"], 0, True)
    assert caplog.text.count("cannot be decoded") == 2
