"""What the demo draws in a terminal while it waits: the lanes of `raytide top`, and what changed since the first task waited."""

import io

import pytest
from rich.console import Console

from raytide.explain.model import Verdict
from raytide.explain.overview import Lane

from demo import live_view
from demo_scaling import Look, Timeline

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
    timeline.note(Look(demand=12))
    text = printed(console, timeline)
    assert text.index("autoscaled") < text.index("tasks done") < text.index("│ 12 ")
