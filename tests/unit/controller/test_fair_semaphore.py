"""One test per bullet of `FairSemaphore` and `Window`."""

import asyncio

import pytest

from raytide.controller.fair_semaphore import FairSemaphore, Window

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D7")]


async def use(slots: FairSemaphore, key: str, log: list[str], takes_s: float = 1.0) -> None:
    async with slots.hold(key):
        log.append(key)
        await asyncio.sleep(takes_s)


async def test_keys_are_served_in_round_robin_order():
    slots, log = FairSemaphore(1), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for key in "aaaabc":
            tasks.create_task(use(slots, key, log))
    assert "".join(log) == "aabcaa"


async def test_no_more_holders_than_slots():
    slots, log = FairSemaphore(3), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(7):
            tasks.create_task(use(slots, "a", log))
        for expected in (3, 6, 7):
            await asyncio.sleep(0.5)
            assert len(log) == expected
            await asyncio.sleep(0.5)


async def test_a_cancelled_waiter_does_not_block_other_keys():
    slots, log = FairSemaphore(1), list[str]()
    first, second, third = (asyncio.create_task(use(slots, key, log)) for key in "abc")
    await asyncio.sleep(0.5)
    second.cancel()
    await asyncio.wait_for(asyncio.gather(first, third), 5)
    assert log == ["a", "c"]
    await asyncio.wait_for(use(slots, "d", log), 2)


async def test_a_waiter_cancelled_right_when_called_passes_the_slot_on():
    slots, log = FairSemaphore(1), list[str]()
    first, second = (asyncio.create_task(use(slots, key, log)) for key in "ab")
    await asyncio.sleep(0)
    first.add_done_callback(lambda _: second.cancel())
    await asyncio.gather(first, second, return_exceptions=True)
    await asyncio.wait_for(use(slots, "c", log), 2)
    assert log[-1] == "c"


async def test_a_window_doubles_on_success_up_to_32_and_halves_on_rejection():
    window, widths = Window(), []
    for is_success in [True] * 6 + [False] * 7:
        await window.enter()
        window.leave(is_success=is_success)
        widths.append(window.width)
    assert widths == [2, 4, 8, 16, 32, 32, 16, 8, 4, 2, 1, 1, 1]


async def test_a_full_window_makes_the_next_one_wait():
    window = Window(2)
    await window.enter()
    await window.enter()
    third = asyncio.create_task(window.enter())
    await asyncio.sleep(1)
    assert not third.done()
    window.withdraw()
    await asyncio.wait_for(third, 1)
    assert window.width == 2


async def test_under_contention_a_window_has_eight_slots():
    crowd = [True]
    window = Window(32, is_contended=lambda: crowd[0])
    for _ in range(8):
        await window.enter()
    ninth = asyncio.create_task(window.enter())
    await asyncio.sleep(1)
    assert not ninth.done()
    crowd[0] = False
    window.withdraw()
    await asyncio.wait_for(ninth, 1)
    for _ in range(32 - 8):
        await asyncio.wait_for(window.enter(), 1)
