"""A pass that takes long does not hold the event loop, and two passes never plan at the same time."""

import asyncio
import threading
import time

import pytest

from raytide.api.config import SharingConfig
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.reconciler import FairShareReconciler
from raytide.runtime.clock import Clock
from support.deadlines import PATIENCE

pytestmark = pytest.mark.rule("FD:SEC3-1")


class Empty:
    """Caches of an empty cluster."""

    error, is_known = "", True

    def version_in(self, _namespace):
        return 0

    def nothing(self):
        return ()

    def mapping(self):
        return {}

    jobs = pods = nodes = quotas = nothing
    priorities = tenants = mapping


class SlowPlan:
    """A plan that takes as long as the test wants."""

    def __init__(self) -> None:
        self.may_end, self.has_begun = threading.Event(), threading.Event()
        self.begun = 0
        self.running = 0
        self.most_at_once = 0

    def __call__(self, snapshot):
        self.begun += 1
        self.has_begun.set()
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self.may_end.wait(60 * PATIENCE)
        self.running -= 1
        return allocate(snapshot)


def reconciler(divide):
    return FairShareReconciler(
        None, clock=Clock(), config=SharingConfig(), seen=Empty(), divide=divide, run=asyncio.to_thread
    )


async def begun(plan):
    assert await asyncio.to_thread(plan.has_begun.wait, 30 * PATIENCE)


async def test_the_event_loop_goes_on_while_a_plan_takes_long():
    plan = SlowPlan()
    passing = asyncio.create_task(reconciler(plan).reconcile())
    await begun(plan)
    steps, begun_at = 0, time.monotonic()
    while steps < 1000:
        await asyncio.sleep(0)
        steps += 1
    assert not passing.done()
    assert time.monotonic() - begun_at < 10 * PATIENCE
    plan.may_end.set()
    assert await passing == ()


async def test_a_pass_of_a_new_term_waits_for_the_plan_of_the_cancelled_one():
    plan = SlowPlan()
    of_both_terms = reconciler(plan)
    old = asyncio.create_task(of_both_terms.reconcile())
    await begun(plan)
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    new = asyncio.create_task(of_both_terms.reconcile())
    for _ in range(100):
        await asyncio.sleep(0)
    assert (plan.begun, new.done()) == (1, False)
    plan.may_end.set()
    await new
    assert (plan.begun, plan.most_at_once) == (2, 1)
