"""What the demo draws in a terminal while it waits: the lanes of `raytide top`, and what changed since the first task waited."""

import asyncio
import io
import threading

import pytest
from rich.console import Console

from raytide.explain.model import Verdict
from raytide.explain.overview import Lane

from demo import live_view
from demo_cluster import DemoError
from demo_scaling import Snapshot, Timeline
from demo_transcript import Transcript

LANE = Lane("RayCluster", "default", "autoscaled", 4, 1, Verdict.WAITS, "WaitingForPods", "3 of 4 are not ready", 0)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100)


def printed(console, timeline):
    console.print(live_view(lambda: [LANE], timeline))
    return console.file.getvalue()


def test_before_there_is_demand_it_is_the_lanes(console):
    text = printed(console, Timeline(console))
    assert "autoscaled  █████░░░░░░░░░░░░░░░  1/4  WaitingForPods: 3 of 4 are not ready" in text
    assert "demand" not in text


def test_then_the_changes_are_below_the_lanes(console):
    timeline = Timeline(console)
    timeline.add(Snapshot(demand=12))
    text = printed(console, timeline)
    assert text.index("autoscaled") < text.index("tasks done") < text.index("│ 12 ")


@pytest.mark.looptime
async def test_a_step_is_drawn_four_times_a_second_by_the_event_loop_which_changes_the_lanes(console):
    drawn_by = []

    def view():
        drawn_by.append((threading.get_ident(), asyncio.get_running_loop()))
        return f"view {len(drawn_by)}"

    async with Transcript(console).step("it starts", deadline_s=10, view=view):
        await asyncio.sleep(2.1)
    assert set(drawn_by) == {(threading.get_ident(), asyncio.get_running_loop())}
    assert 9 <= len(drawn_by) <= 12  # rich reads the view at its start and its end, too
    assert "view 8" in console.file.getvalue()
    assert len(asyncio.all_tasks()) == 1, "nothing draws after the end"


@pytest.mark.looptime
async def test_a_step_that_is_drawn_fails_at_its_deadline(console):
    with pytest.raises(DemoError, match="it starts: not within 3 s; last state: none"):
        async with Transcript(console).step("it starts", deadline_s=3, view=lambda: "view"):
            await asyncio.Event().wait()
    assert len(asyncio.all_tasks()) == 1
