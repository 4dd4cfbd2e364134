"""Under an operator that reads no decision record: state in memory instead, and which writes are its own."""

import itertools

import pytest

from support.builders import group
from unit.autoscaler.simulated_cluster import World


def crashing(*, is_recorded: bool) -> World:
    world = World([group("cpu", replicas=0)], start_s=5, is_recorded=is_recorded)
    world.crashes.add("cpu")
    world.demand(4)
    return world


@pytest.mark.rule("FD:AS-A8", "SC:S13")
def test_a_failing_group_is_backed_off_as_with_a_record():
    made = []
    for is_recorded in (True, False):
        world = crashing(is_recorded=is_recorded)
        world.run(1500)
        made.append(len(world.created))
    assert made[1] <= made[0] + 4


@pytest.mark.rule("FD:AS-A8")
@pytest.mark.parametrize("fate", ["lost", "unheard"])
def test_a_patch_without_an_answer_is_sent_again_at_once_and_attributed_to_no_writer(fate):
    world = World([group("cpu", replicas=0)], is_recorded=False)
    world.run(10)
    fates = itertools.chain([fate], itertools.repeat("ok"))
    world.fate_of_patches = lambda: next(fates)
    world.demand(5)
    assert world.run_until(lambda: world.replicas() == 5, 14) <= 11
    world.run(5)
    assert not [line for line in world.lines if "another writer" in line]


@pytest.mark.rule("FD:AS-A8")
def test_writes_of_another_writer_are_still_detected():
    world = World([group("cpu", replicas=0)], is_recorded=False)
    world.demand(5)
    world.run(40)
    world.edit("cpu", replicas=2)
    world.run(20)
    assert world.replicas() == 5
    assert [line for line in world.lines if "another writer" in line]
