"""One test per bullet of `ReconcileLoop`'s contract, in virtual time."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key
from raytide.controller.reconcile_loop import ERROR_REASONS, Pace, ReconcileLoop
from raytide.metrics import REGISTRY
from raytide.runtime.clock import Clock
from raytide.runtime.logs import PASS
from support import virtual_time

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D4")]
A, B = Key("ns", "a"), Key("ns", "b")


class Diary:
    """A reconcile function that records its calls, then runs `act`."""

    def __init__(self, act: Callable[[Key], float | None] = lambda key: None, takes_s: float = 0.0) -> None:
        self.calls: list[tuple[float, Key]] = []
        self.act = act
        self.takes_s = takes_s

    async def __call__(self, key: Key) -> float | None:
        self.calls.append((virtual_time.elapsed_s(), key))
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        return self.act(key)

    @property
    def times(self) -> list[float]:
        return [pytest.approx(at) for at, _ in self.calls]


@contextlib.asynccontextmanager
async def running(diary: Diary, *, keys=(), **options) -> AsyncIterator[ReconcileLoop]:
    controller = ReconcileLoop("test", diary, clock=Clock(), keys=lambda: keys, **options)
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(0)
    try:
        yield controller
    finally:
        await controller.stop()
        await task


async def test_starting_enqueues_every_known_key():
    diary = Diary()
    async with running(diary, keys=(A, B)):
        await asyncio.sleep(1)
    assert [key for _, key in diary.calls] == [A, B]


async def test_the_first_enqueue_is_reconciled_at_once_and_following_ones_are_coalesced():
    diary = Diary()
    async with running(diary) as controller:
        await asyncio.sleep(1)
        controller.enqueue_coalesced(A)
        await asyncio.sleep(0.01)
        for _ in range(10):
            controller.enqueue_coalesced(A)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        controller.enqueue_coalesced(A)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert diary.times == [1.0, 1.2, pytest.approx(2.11, abs=0.01)]


async def test_an_event_does_not_wait_for_the_bundle():
    diary = Diary()
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(0.05)
        controller.enqueue(A)
        await asyncio.sleep(0.01)
        assert diary.times == [0.0, 0.05]


@pytest.mark.parametrize(
    ("takes_s", "gap_s"),
    [
        pytest.param(0.0, 0.2, id="a quick pass is followed by a gap of 0.2 s"),
        pytest.param(0.05, 0.5, id="a slow pass is followed by a gap of ten times its length"),
        pytest.param(2.0, 2.0, id="a very slow pass is followed by a gap of 2 s"),
    ],
)
async def test_the_gap_after_a_pass(takes_s, gap_s):
    diary = Diary(takes_s=takes_s)
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(takes_s / 2)
        controller.enqueue_coalesced(A)
        await asyncio.sleep(takes_s + 0.01)
        controller.enqueue_coalesced(A)
        await asyncio.sleep(10)
    assert diary.times == [0.0, takes_s + gap_s]


async def test_the_watch_event_of_an_own_write_is_dropped():
    diary = Diary()
    async with running(diary) as controller:

        def write(key: Key) -> None:
            controller.enqueue(key, "8")  # the watch is faster than the answer
            controller.ignore_resource_version(key, "7", "8")

        diary.act = write
        controller.enqueue(A, "7")
        await asyncio.sleep(1)
        controller.enqueue(A, "8")
        controller.enqueue(A, "7")
        await asyncio.sleep(1)
        assert len(diary.calls) == 1
        controller.enqueue(A, "9")
        await asyncio.sleep(1)
        assert len(diary.calls) == 2


async def test_a_foreign_change_during_the_pass_is_no_echo():
    diary = Diary()
    async with running(diary) as controller:

        def write(key: Key) -> None:
            if len(diary.calls) == 1:
                controller.enqueue(key, "8")
            controller.ignore_resource_version(key, "7", "9")

        diary.act = write
        controller.enqueue(A, "7")
        await asyncio.sleep(1)
        assert len(diary.calls) == 2


async def test_an_echo_does_not_shorten_a_back_off():
    diary = Diary(act=fail(ApiStatusError(403, "Forbidden", "quota")))
    async with running(diary) as controller:
        controller.ignore_resource_version(A, "7")
        controller.enqueue(A)
        await asyncio.sleep(0.1)
        controller.enqueue(A, "7")
        await asyncio.sleep(6)
    assert diary.times == [0, 5]


async def test_a_pass_returns_its_requeue_delay():
    answers = iter([3.0, 0.0, None])
    diary = Diary(act=lambda key: next(answers))
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(100)
    assert diary.times == [0.0, 3.0, 3.0]


async def test_a_key_whose_pass_was_cut_short_is_queued_behind_other_keys():
    answers = {A: iter([0.0, None]), B: iter([None])}
    diary = Diary(act=lambda key: next(answers[key]), takes_s=0.1)
    async with running(diary, workers=1) as controller:
        controller.enqueue(A)
        controller.enqueue(B)
        await asyncio.sleep(1)
    assert [key for _, key in diary.calls] == [A, B, A]


def fail(error: Exception) -> Callable[[Key], None]:
    def act(key: Key) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "times"),
    [
        pytest.param(ApiUnavailableError("away"), [0, 0.2, 0.6, 1.4, 3.0], id="unavailable backs off from 0.2 s"),
        pytest.param(
            ApiUnavailableError("later", retry_after_s=7), [0, 7, 14, 21], id="the server's Retry-After is respected"
        ),
        pytest.param(ApiStatusError(403, "Forbidden", "quota"), [0, 5, 15], id="rejected is retried slowly"),
        pytest.param(ValueError("oops"), [0, 1, 3, 7, 15], id="a bug backs off from 1 s"),
    ],
)
async def test_an_api_error_is_requeued_with_backoff(error, times):
    diary = Diary(act=fail(error))
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(times[-1] + 0.01)
    assert diary.times == times


def measured(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"controller": "test", **labels}) or 0.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, None),
        (ApiUnavailableError("away"), "unavailable"),
        (ApiStatusError(403, "Forbidden", "quota"), "rejected"),
        (ValueError("oops"), "unexpected"),
    ],
    ids=["no error", "unavailable", "rejected", "unexpected"],
)
async def test_a_pass_counts_in_the_metrics_by_duration_and_reason(error, reason):
    async with running(Diary(act=fail(error) if error else lambda key: None, takes_s=0.5)) as controller:
        errors = {each: measured("raytide_reconcile_errors_total", reason=each) for each in ERROR_REASONS}
        count, seconds = (measured(f"raytide_reconcile_seconds_{part}") for part in ("count", "sum"))
        controller.enqueue(A)
        await asyncio.sleep(0.6)
    assert measured("raytide_reconcile_seconds_count") - count == 1
    assert measured("raytide_reconcile_seconds_sum") - seconds == pytest.approx(0.5)
    after = {each: measured("raytide_reconcile_errors_total", reason=each) - errors[each] for each in ERROR_REASONS}
    assert after == {each: float(each == reason) for each in ERROR_REASONS}


async def test_every_series_about_errors_exists_before_the_first_error():
    async with running(Diary()):
        for reason in ERROR_REASONS:
            labels = {"controller": "test", "reason": reason}
            assert REGISTRY.get_sample_value("raytide_reconcile_errors_total", labels) is not None


async def test_a_success_resets_the_backoff():
    fails = iter([True, True, False, True, False])

    def act(key: Key) -> None:
        if next(fails):
            raise ApiUnavailableError("away")

    diary = Diary(act=act)
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(1)
        controller.enqueue(A)
        await asyncio.sleep(1)
    assert diary.times == [0, 0.2, 0.6, 1.0, 1.2]


async def test_back_off_ends_at_the_longest():
    diary = Diary(act=fail(ApiStatusError(403, "Forbidden", "quota")))
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(1000)
    gaps = [later[0] - earlier[0] for earlier, later in zip(diary.calls, diary.calls[1:], strict=False)]
    assert max(gaps) == pytest.approx(60)
    assert gaps[-2:] == pytest.approx([60, 60])


async def test_an_exception_is_logged_with_its_traceback_and_other_keys_are_reconciled(caplog):
    def act(key: Key) -> None:
        assert PASS.get() == f"controller=test namespace=ns name={key.name} pass={len(diary.calls)}"
        if key == A:
            raise ValueError("oops")

    diary = Diary(act=act)
    async with running(diary, workers=1) as controller:
        controller.enqueue(A)
        controller.enqueue(B)
        await asyncio.sleep(0.5)
    assert [key for _, key in diary.calls] == [A, B]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "oops" in str(record.exc_info)


async def test_resync_enqueues_every_key_once_at_a_moment_of_its_own():
    keys = [Key("ns", f"c{i}") for i in range(100)]
    diary = Diary()
    async with running(diary, keys=keys, pace=Pace(resync_s=600)):
        await asyncio.sleep(1)
        diary.calls.clear()
        await asyncio.sleep(600)
        assert sorted(key for _, key in diary.calls) == sorted(keys)
        assert len({at for at, _ in diary.calls}) > 20


async def test_stop_lets_a_running_pass_end_and_takes_no_other():
    diary = Diary(takes_s=4)
    async with running(diary, workers=1) as controller:
        controller.enqueue(A)
        controller.enqueue(B)
        await asyncio.sleep(1)
        await controller.stop()
        assert virtual_time.elapsed_s() == pytest.approx(4)
    assert [key for _, key in diary.calls] == [A]


async def test_stop_cancels_what_does_not_end_in_ten_seconds():
    diary = Diary(takes_s=400)
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(1)
    assert virtual_time.elapsed_s() == pytest.approx(11)
    assert controller.oldest_running_s() == 0


async def test_the_age_of_the_oldest_pass_is_known():
    diary = Diary(takes_s=8)
    async with running(diary) as controller:
        assert controller.oldest_running_s() == 0
        controller.enqueue(A)
        await asyncio.sleep(3)
        controller.enqueue(B)
        await asyncio.sleep(2)
        assert controller.oldest_running_s() == pytest.approx(5)


async def test_forget_drops_all_state_of_a_key():
    diary = Diary(act=lambda key: 5.0)
    async with running(diary) as controller:
        controller.enqueue(A)
        await asyncio.sleep(1)
        controller.ignore_resource_version(A, "7")
        controller.forget(A)
        await asyncio.sleep(40)
        assert len(diary.calls) == 1
        assert not controller._batched_until
        controller.enqueue(A, "7")
        await asyncio.sleep(1)
        assert len(diary.calls) == 2


@pytest.mark.rule("D10")
async def test_it_can_run_again_and_remembers_nothing():
    diary, keys = Diary(), [A]
    controller = ReconcileLoop("test", diary, clock=Clock(), keys=lambda: keys)
    controller.enqueue(B)
    first = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    controller.ignore_resource_version(A, "7")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    controller.enqueue(B)
    controller.enqueue_coalesced(B)
    await asyncio.sleep(10)
    assert diary.calls == [(0.0, A)], "rings outside a term are dropped"
    keys[:] = [A, B]
    async with _term(controller):
        await asyncio.sleep(1)
        assert [key for _, key in diary.calls] == [A, A, B]
        controller.enqueue(A, "7")
        await asyncio.sleep(1)
    assert [key for _, key in diary.calls] == [A, A, B, A], "what the last term saw is news again"


@contextlib.asynccontextmanager
async def _term(controller: ReconcileLoop) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(0)
    yield
    await controller.stop()
    await task
