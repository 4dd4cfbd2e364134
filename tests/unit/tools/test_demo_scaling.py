"""The demo's report of a cluster that follows its demand: each change once, with durations."""

import asyncio
import io

import pytest
from rich.console import Console

from demo_scaling import Snapshot, Timeline


class Watch:
    """A timeline that prints to a string, with a clock that the test sets."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self.page = io.StringIO()
        self.now = 100.0
        console = Console(file=self.page, force_terminal=is_terminal, width=120)
        self.timeline = Timeline(console, monotonic=lambda: self.now)

    def see(self, after_s: float, snapshot: Snapshot) -> None:
        self.now += after_s
        self.timeline.add(snapshot)


@pytest.fixture
def watch():
    return Watch()


def test_nothing_is_reported_before_there_is_demand(watch):
    watch.see(5, Snapshot())
    assert watch.timeline.snapshots == []
    watch.see(5, Snapshot(demand=12))
    assert watch.timeline.snapshots == [(0, Snapshot(demand=12))]


def test_a_change_is_one_line_where_there_is_no_terminal(watch):
    watch.see(0, Snapshot(demand=12))
    watch.see(3, Snapshot(demand=12, wanted=4))
    watch.see(3, Snapshot(demand=12, wanted=4))
    watch.timeline.task_ended()
    watch.see(4, Snapshot(wanted=4, pods=4, ready_pods=1, nodes=2, draining=1))
    assert watch.page.getvalue().splitlines() == [
        "  +0 s  demand 12  wanted 0  pods 0/0 Ready  Ray nodes 0  tasks done 0",
        "  +3 s  demand 12  wanted 4  pods 0/0 Ready  Ray nodes 0  tasks done 0",
        "  +10 s  demand 0  wanted 4  pods 1/4 Ready  Ray nodes 2 + 1 draining  tasks done 1",
    ]


def test_a_terminal_gets_a_table_and_no_lines():
    watch = Watch(is_terminal=True)
    watch.see(0, Snapshot(demand=12))
    assert watch.page.getvalue() == ""
    assert watch.timeline.table().row_count == 1


def test_how_long_each_stretch_took(watch):
    watch.see(50, Snapshot(demand=12))
    watch.see(3, Snapshot(demand=12, wanted=4, pods=4))
    watch.see(9, Snapshot(demand=10, wanted=4, pods=4, nodes=2))
    watch.see(2, Snapshot(wanted=4, pods=4, nodes=4))
    watch.timeline.demand_ended(watch.now + 6)
    watch.see(11, Snapshot(wanted=0, pods=4, draining=4))
    watch.see(1, Snapshot(wanted=0, pods=4))
    watch.see(2, Snapshot())
    found = watch.timeline
    assert (found.first_worker_s, found.capacity_s, found.scale_down_s) == (12, 14, 8)


def test_what_did_not_happen_took_no_time(watch):
    watch.see(0, Snapshot(demand=12, wanted=4))
    found = watch.timeline
    assert (found.first_worker_s, found.capacity_s, found.scale_down_s) == (None, None, None)


async def test_what_breaks_the_looking_is_raised_by_the_next_wait(watch):
    async def snapshot():
        raise KeyError("replicas")

    async def wait():
        for _ in range(10):
            await watch.timeline.has_no_workers()
            await asyncio.sleep(0)

    async with watch.timeline.following(snapshot, every_s=0):
        with pytest.raises(KeyError, match="replicas"):
            await wait()
