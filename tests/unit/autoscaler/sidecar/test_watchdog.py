"""The watchdog ends a process that is stuck, and never one that reports progress."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from raytide.autoscaler.model import SchedulingRequest
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.sidecar.reconcile import reconcile
from raytide.autoscaler.sidecar.watchdog import STUCK_S, Watchdog
from raytide.autoscaler.state.snapshot import ReconcilerState
from support.deadlines import PATIENCE
from unit.autoscaler.scheduling.questions import HEAD, group, head, running, spread, tasks
from unit.autoscaler.simulated_cluster import World

SHORT = """
    import asyncio, sys, time
    from raytide.autoscaler.sidecar import watchdog
    from raytide.runtime.clock import Clock
    watchdog.STUCK_S, watchdog.MIN_RESET_INTERVAL_S = 1.5, 0.05

    async def main():
        one = watchdog.Watchdog(Clock())
        beating = asyncio.create_task(one.beat())
        await asyncio.sleep(0)
        ends_at = time.monotonic() + 4
        while time.monotonic() < ends_at:
            {body}
        beating.cancel()

    asyncio.run(main())
"""


def ended_with(body: str) -> int:
    """The exit code of a process that blocks its event loop more than twice as long as the watchdog allows."""
    program = textwrap.dedent(SHORT).format(body=body)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60 * PATIENCE, check=False
    ).returncode


@pytest.mark.rule("FD:AS-A4")
def test_a_stuck_process_ends_and_one_that_reports_progress_does_not():
    assert ended_with("pass") == 1
    assert ended_with("one.report_progress()") == 0


@pytest.mark.rule("FD:AS-A4")
@pytest.mark.looptime
async def test_the_alarm_is_put_off_by_progress_but_not_for_every_step():
    class FakeClock:
        at_s = 0.0

        def monotonic(self) -> float:
            return self.at_s

    clock = FakeClock()
    ends: list[float] = []
    watchdog = Watchdog(clock, ends.append)
    beating = asyncio.create_task(watchdog.beat())
    await asyncio.sleep(0)
    for _ in range(1000):
        clock.at_s += 0.5
        watchdog.report_progress()
    assert ends == [STUCK_S] * 501
    beating.cancel()


@pytest.mark.rule("FD:AS-A4")
def test_schedule_reports_progress_for_every_gang_and_group_of_nodes():
    steps: list[None] = []
    nodes = [running(f"n{number}", "g", CPU=number + 1) for number in range(20)]
    gangs = tuple(spread(f"{number:02x}", 2, CPU=1) for number in range(30))
    question = SchedulingRequest((HEAD, group("g", most=100, CPU=4)), (head(), *nodes), (tasks(5, CPU=1),), gangs=gangs)
    assert schedule(question, lambda: steps.append(None)) == schedule(question)
    assert len(steps) >= len(gangs) * 2


@pytest.mark.rule("FD:AS-A4")
def test_a_pass_reports_progress():
    world, steps = World(), []
    world.step()
    reconcile(world.snapshot(), ReconcilerState(), lambda: steps.append(None))
    assert steps
