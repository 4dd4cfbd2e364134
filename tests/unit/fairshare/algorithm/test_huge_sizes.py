"""Huge sizes are computed without loops over instances."""

import time

import pytest

from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import ClusterSnapshot
from support.elastic_builders import job, node, resizes_of

HUGE = 2_147_483_647


def divided_in_a_moment(cpu, *jobs):
    """Sizes by a plan that takes no more than a second of CPU: one step per missing pod took hours."""
    pool = ClusterSnapshot(nodes=(node(cpu=cpu),), participants=jobs)
    began = time.process_time()
    division = allocate(pool)
    assert time.process_time() - began < 1
    return resizes_of(division)


@pytest.mark.rule("FD:SEC-F1")
def test_a_size_far_above_the_maximum_is_cut_at_once():
    assert divided_in_a_moment(8, job("a", 1, 2, HUGE)) == {"a": 2 - HUGE}


@pytest.mark.rule("FD:SEC-F1")
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_job_below_its_minimum_takes_from_a_huge_job_without_a_loop_over_its_pods(step):
    big = job("big", 1, HUGE, 1_000_000, step=step)
    below = job("below", 2, 2, 0, is_gang=True, priority=5)
    sizes = divided_in_a_moment(4, big, below)
    assert sizes["below"] == 2


@pytest.mark.rule("FD:SEC-F1")
def test_a_huge_job_with_allowed_sizes_shrinks_to_a_smaller_one():
    big = job("big", 1, HUGE, 1_000_000, sizes=(1, 3, 500, 1_000_000))
    below = job("below", 2, 2, 0, is_gang=True, priority=5)
    sizes = divided_in_a_moment(4, big, below)
    assert sizes["below"] == 2


@pytest.mark.rule("FD:SEC-F1", "SC:S25")
@pytest.mark.parametrize(("more", "left"), [({}, 8), ({"step": 5}, 7), ({"sizes": (2, 6, 9)}, 6)], ids=str)
def test_what_found_no_node_for_long_is_taken_back_at_once(more, left):
    waiting = job("a", 2, HUGE, 1_000_000, unplaced_for_long=1_000_000, **more)
    assert divided_in_a_moment(8, waiting) == {"a": left - 1_000_000}
