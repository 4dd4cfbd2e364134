"""One test per bullet of `WorkQueue`'s contract, in virtual time."""

import asyncio

import pytest

from raytide.controller.workqueue import WorkQueue
from support import virtual_time

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D4")]


def now() -> float:
    return virtual_time.elapsed_s()


async def test_a_key_put_twice_is_taken_once():
    queue = WorkQueue[str]()
    queue.put("a")
    queue.put("a")
    queue.put("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_put_while_running_comes_again_only_after_done():
    queue = WorkQueue[str]()
    queue.put("a")
    await queue.get()
    assert queue.is_running("a")
    queue.put("a")
    queue.put("b")
    assert await queue.get() == "b"
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"


async def test_a_key_that_keeps_coming_passes_no_other():
    queue = WorkQueue[str]()
    for key in "abc":
        queue.put(key)
    taken = []
    for _ in range(6):
        key = await queue.get()
        taken.append(key)
        queue.put(key)
        queue.done(key)
    assert taken == ["a", "b", "c", "a", "b", "c"]


async def test_the_earliest_deadline_of_a_key_applies():
    queue = WorkQueue[str]()
    queue.put_after("a", 5)
    queue.put_after("a", 2)
    queue.put_after("a", 9)
    assert await queue.get() == "a"
    assert now() == pytest.approx(2)
    queue.done("a")
    await asyncio.sleep(20)
    assert len(queue) == 0


async def test_taking_a_key_cancels_its_deadline():
    queue = WorkQueue[str]()
    queue.put_after("a", 5)
    queue.put("a")
    queue.done(await queue.get())
    await asyncio.sleep(10)
    assert len(queue) == 0


async def test_a_deadline_set_while_running_survives_done():
    queue = WorkQueue[str]()
    queue.put("a")
    key = await queue.get()
    queue.put_after("a", 5)
    queue.done(key)
    assert await queue.get() == "a"
    assert now() == pytest.approx(5)


async def test_backing_off_doubles_until_success():
    queue = WorkQueue[str]()
    delays = [queue.put_backed_off("a", first_s=1, longest_s=5) for _ in range(4)]
    assert delays == [1, 2, 4, 5]
    queue.succeeded("a")
    assert queue.put_backed_off("a", first_s=1, longest_s=5) == 1
    assert queue.put_backed_off("a", first_s=1, longest_s=5, at_least_s=7) == 7


async def test_forget_drops_failures_and_deadline():
    queue = WorkQueue[str]()
    queue.put_backed_off("a", first_s=1)
    queue.forget("a")
    await asyncio.sleep(5)
    assert len(queue) == 0
    assert queue.put_backed_off("a", first_s=1) == 1


async def test_shut_down_returns_none_to_every_waiting_worker():
    queue = WorkQueue[str]()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.put_after("a", 1)
    queue.shut_down()
    queue.put("b")
    assert await asyncio.gather(*waiting) == [None, None, None]
    assert len(queue) == 0


async def test_a_key_for_a_cancelled_worker_is_returned_to_the_next_worker():
    queue = WorkQueue[str]()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.put("a")
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"
    assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)
