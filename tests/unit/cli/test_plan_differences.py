"""What other jobs would have more or less because of a submitted one."""

import pytest

from raytide.cli.plan.render import differences
from raytide.fairshare.algorithm.allocate import allocate
from support.elastic_builders import World, id_of, job, node


def full() -> World:
    """Two nodes of 4 CPUs: a has 6, b has 2."""
    return World([node("one", cpu=4), node("two", cpu=4)], [job("a", 2, 8, 6), job("b", 2, 4, 2)])


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(
            job("c", 2, 4, 0, is_gang=True),
            ("default/c starts with 2 of 2 to 4", "default/a is scaled down by 2 (6 -> 4)"),
            id="jobs that shrink are named with the number",
        ),
        pytest.param(
            job("c", 1, 2, 0, cpu=100, is_gang=True),
            None,
            id="a job that cannot start changes no other job",
        ),
    ],
)
def test_what_would_change_if_it_were_submitted(new, expected):
    before = full()
    after = full()
    after.add(new)
    pools = [world.pool() for world in (before, after)]
    lines = differences((pools[0], allocate(pools[0])), (pools[1], allocate(pools[1])), [new.id])
    if expected is not None:
        assert lines == expected
    else:
        assert lines[0].startswith("default/c waits: Unsatisfiable: ")
        assert lines[1:] == ("the size of no other job changes",)


def test_jobs_that_grow_less_because_of_a_new_job_are_listed():
    before = World([node(cpu=8)], [job("a", 1, 8, 2)])
    after = World([node(cpu=8)], [job("a", 1, 8, 2)])
    after.add(job("c", 3, 3, 0, is_gang=True))
    pools = [world.pool() for world in (before, after)]
    lines = differences((pools[0], allocate(pools[0])), (pools[1], allocate(pools[1])), [id_of("c")])
    assert lines == ("default/c starts with 3 of 3 to 3", "default/a grows by 3 less (2 -> 5, not 8)")
