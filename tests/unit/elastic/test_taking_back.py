"""What becomes of instances above the floor that find no node? Nobody pends for ever (SC:S25)."""

from dataclasses import replace

import pytest

from elastic_builders import World, companion, id_of, job, node, quota, resizes_of, stranger
from raytide.elastic.fairness import divide
from raytide.elastic.model import NO_ROOM, Pool

pytestmark = pytest.mark.rule("SC:S25")


def starving(world: World, **long: int) -> Pool:
    """The pool in which so many of a job's pods have had no node for long."""
    pool = world.pool()
    known = (replace(one, unplaced_for_long=long.get(one.id.name, 0)) for one in pool.participants)
    return replace(pool, participants=tuple(known))


def test_what_found_no_node_for_long_is_taken_back_with_its_reason():
    (resize,) = divide(starving(World([node(cpu=8)], [job("a", 2, 20, 12)]), a=4)).resizes
    assert (resize.before, resize.after, resize.reason, resize.is_released) == (12, 8, NO_ROOM, True)
    assert resize.message == "ScaledDown 12→8: 4 of them had no node for 20 s"


@pytest.mark.parametrize(
    ("more", "cpu", "long", "taken"),
    [
        pytest.param({}, 8, 0, 0, id="not yet after a moment"),
        pytest.param({}, 8, 3, -3, id="those that were made a moment ago may still wait"),
        pytest.param({"floor": 10}, 8, 4, -2, id="never below the minimum"),
        pytest.param({"floor": 12}, 8, 4, 0, id="not the minimum itself"),
        pytest.param({"step": 4, "floor": 0}, 9, 3, -4, id="down to a size that it may have"),
        pytest.param({"sizes": (2, 6, 12)}, 8, 4, -6, id="down to a size of the list"),
        pytest.param({"is_scaling_enabled": False}, 8, 4, 0, id="but for whoever wants to be left alone"),
        pytest.param(
            {"may_shrink": False, "may_grow": False}, 8, 4, -4, id="in a cool-down too: nobody loses what runs"
        ),
    ],
)
def test_how_much_is_taken_back(more, cpu, long, taken):
    world = World([node(cpu=cpu)], [job("a", 2, 20, 12)])
    pool = starving(world, a=long)
    pool = replace(pool, participants=tuple(replace(one, **more) for one in pool.participants))
    assert resizes_of(divide(pool)) == ({"a": taken} if taken else {})


def test_for_what_has_room_by_now_a_scheduler_is_given_the_time():
    """It is about to look again; and whatever else keeps it from the node, growth would only bring it back."""
    world = World([node(cpu=8)], [job("a", 2, 20, 12)])
    bigger = replace(starving(world, a=4), nodes=(node("node-1", cpu=12, used={"cpu": 8000}),))
    assert divide(bigger).resizes == ()


def test_what_comes_with_the_instances_goes_with_them():
    world = World([node(cpu=8)], [job("a", 2, 20, 12, cpu=0.5, companion=companion(2, 1, 9, cpu=0.5))])
    (resize,) = divide(starving(world, a=2)).resizes
    assert (resize.after, resize.companions) == (10, (6, 5))


def test_a_plan_carried_out_takes_nothing_back_again_and_gives_it_to_nobody():
    world = World([node(cpu=12)], [job("a", 2, 20, 12), job("b", 2, 20, 4)])
    world.jobs[id_of("a")].trainers = ["node-1"] * 8 + [""] * 4
    world.jobs[id_of("b")].trainers = ["node-1"] * 4
    plan = divide(starving(world, a=4))
    assert resizes_of(plan) == {"a": -4}
    assert divide(world.carried_out(plan).pool()).resizes == ()


# --- behind pods of a higher priority ----------------------------------------------------------------------------------


def behind(world: World, *strangers, **more) -> Pool:
    """The pool in which those wait for a node, and nobody has waited for long."""
    pool = replace(world.pool(), strangers=strangers)
    return replace(pool, participants=tuple(replace(one, **more) for one in pool.participants))


def test_behind_pods_of_a_higher_priority_nobody_waits_at_all():
    """kube-scheduler evicted four of twelve for them; the four need not come back only to pend."""
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), stranger(count=3, priority=1, name="shop/web-0"))
    (resize,) = divide(pool).resizes
    assert (resize.before, resize.after, resize.reason) == (12, 8, NO_ROOM)
    assert resize.message == (
        "ScaledDown 12→8: no room is left for more of them behind shop/web-0, which has a higher priority and no node"
    )


@pytest.mark.parametrize(
    ("first", "more", "taken"),
    [
        pytest.param(stranger(priority=0), {}, 0, id="equals wait their turn, and it is given time"),
        pytest.param(stranger(cpu=9, priority=1), {}, 0, id="for what no node can ever hold nobody waits"),
        pytest.param(stranger(cpu=8, priority=1), {}, -4, id="a large one keeps the others waiting"),
        pytest.param(stranger(priority=1), {"floor": 10}, -2, id="never below the minimum"),
        pytest.param(stranger(priority=1), {"step": 4, "floor": 0}, -4, id="down to a size that it may have"),
        pytest.param(stranger(priority=1), {"may_shrink": False}, -4, id="in a cool-down too: nobody loses what runs"),
        pytest.param(
            stranger(priority=1), {"is_scaling_enabled": False}, 0, id="but for whoever wants to be left alone"
        ),
        pytest.param(stranger(priority=1), {"uncreated": 4}, -4, id="pods that are not made yet need not be made"),
    ],
)
def test_who_is_behind_whom(first, more, taken):
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), first, **more)
    assert resizes_of(divide(pool)) == ({"a": taken} if taken else {})


def test_the_room_that_is_left_beside_them_is_kept():
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), stranger(count=3, priority=1))
    roomy = replace(pool, nodes=(node("node-1", cpu=13, used={"cpu": 8000}),))
    assert resizes_of(divide(roomy)) == {"a": -2}, "five are free, three of them for the strangers"


def test_what_a_quota_refuses_waits_for_the_quota():
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), stranger(priority=1), uncreated=4)
    refused = replace(pool, quotas=(quota(cpu=-3000),))
    assert resizes_of(divide(refused)) == {"a": -1}


def test_carried_out_it_is_the_end_of_it():
    world = World([node(cpu=8)], [job("a", 2, 20, 12)])
    pool = behind(world, stranger(count=3, priority=1))
    after = behind(world.carried_out(divide(pool)), stranger(count=3, priority=1))
    assert divide(after).resizes == ()
