"""Of two replicas only the holder of the lease writes, and a new leader trusts no old list (RM:I1, I10; D6, D10)."""

from collections.abc import Awaitable, Callable

import pytest

from raytide_sandbox.faults.script import Call, Rule
from raytide_sandbox.faults.types import CallFault, Delay, LoseAnswer, LoseRequest
from support import virtual_time

from simulation.manifests import NAME, find, group, new_cluster
from simulation.stage import Stage, heard_by
from simulation.world import RAYCLUSTERS, Kubelets

pytestmark = pytest.mark.looptime

SEED = 11
FAST = Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 0.5))
LONG_S = 75.0
"""Longer than a lease."""


def play(tell: Callable[[Stage], Awaitable[None]]) -> None:
    """Two replicas over a cluster that is well; afterwards everything is as wanted and nothing was violated."""

    async def live() -> list[str]:
        stage = Stage(SEED, kubelets=FAST, replicas=2)
        with heard_by(stage.judge):
            stage.open()
            stage.world.create(new_cluster([group("a", 3)]))
            stage.start()
            await stage.settle()
            await tell(stage)
            await stage.settle()
            await stage.close()
        return stage.judge.violations

    violations = virtual_time.run(live())
    assert violations == [], "--- violations\n" + "\n".join(violations)


def scale(stage: Stage, replicas: int) -> None:
    stage.world.edit(RAYCLUSTERS, NAME, None, lambda obj: find(obj["spec"], "a").update(replicas=replicas))


def is_of_pods(call: Call) -> bool:
    return call.is_write and call.plural == "pods"


def is_of_events(call: Call) -> bool:
    return call.is_write and call.plural == "events"


def is_of_lease(call: Call) -> bool:
    return call.plural == "leases"


@pytest.mark.rule("RM:I10", "D10")
@pytest.mark.parametrize("fault", [LoseRequest(), LoseAnswer()], ids=str)
def test_a_leader_that_cannot_reach_its_lease_stops_writing_before_another_begins(fault: CallFault) -> None:
    async def tell(stage: Stage) -> None:
        leader = stage.leader()
        first = stage.holder()
        until_s = stage.loop.time() + LONG_S
        leader.script.of_calls.append(Rule(fault, is_of_lease, times=None, until_s=until_s))
        for second in range(round(LONG_S)):
            scale(stage, 3 + second % 3)
            await stage.pass_time(1.0)
        assert stage.holder() not in (None, first)

    play(tell)


@pytest.mark.rule("RM:I10", "RM:I1")
def test_a_leader_that_is_cut_off_and_comes_back_does_not_go_on() -> None:
    async def tell(stage: Stage) -> None:
        leader, first = stage.leader(), stage.holder()
        until_s = stage.loop.time() + LONG_S
        leader.script.of_calls.append(Rule(LoseRequest(), times=None, until_s=until_s))
        leader.wire.cut()
        scale(stage, 5)
        await stage.pass_time(LONG_S + 20.0)
        assert stage.holder() not in (None, first)

    play(tell)


@pytest.mark.rule("RM:I1", "RM:I3", "D6")
def test_a_new_leader_whose_watches_are_late_makes_nothing_twice() -> None:
    async def tell(stage: Stage) -> None:
        leader = stage.leader()
        standby = next(replica for replica in stage.replicas if replica is not leader)
        standby.lag_s = 20.0
        scale(stage, 8)
        await stage.pass_time(0.5)
        await leader.operator.stop()
        await stage.pass_time(10.0)
        assert stage.holder() == standby.operator.identity
        standby.lag_s = 0.0
        leader.operator.start()

    play(tell)


@pytest.mark.rule("RM:I19", "D10")
def test_a_killed_leader_is_succeeded_within_the_lease_and_five_seconds() -> None:
    async def tell(stage: Stage) -> None:
        leader, first = stage.leader(), stage.holder()
        leader.operator.replace()
        scale(stage, 5)
        await stage.pass_time(35.0)
        assert stage.holder() not in (None, first)
        assert stage.difference() == ""

    play(tell)


@pytest.mark.rule("FD:REL-D", "RM:I1", "RM:I10")
@pytest.mark.parametrize("is_broken", [False, True], ids=["told to stop in the middle of a pass", "a part of it broke"])
def test_a_leader_that_ends_with_writes_unanswered_lets_its_lease_run_out(*, is_broken: bool) -> None:
    async def tell(stage: Stage) -> None:
        leader, first = stage.leader(), stage.holder()
        leader.script.of_calls.append(Rule(Delay(1.9), is_of_pods, times=1))
        leader.script.of_calls.append(Rule(Delay(9.9), is_of_pods, times=None))  # sent after the end was asked for
        scale(stage, 45)
        await stage.pass_time(1.5)
        if is_broken:
            leader.operator.break_down()
        else:
            await leader.operator.stop()
        await stage.pass_time(1.0)
        assert stage.holder() == first
        await stage.pass_time(35.0)
        assert stage.holder() not in (None, first)
        leader.script.clear()

    play(tell)


@pytest.mark.rule("FD:REL-D", "RM:I19")
def test_a_leader_that_ends_while_it_posts_an_event_gives_its_lease_back() -> None:
    async def tell(stage: Stage) -> None:
        leader, first = stage.leader(), stage.holder()
        leader.script.of_calls.append(Rule(Delay(0.5), is_of_events, times=None))
        scale(stage, 8)
        await stage.pass_time(0.3)
        await leader.operator.stop()
        await stage.pass_time(5.0)
        assert stage.holder() not in (None, first)
        leader.script.clear()

    play(tell)


@pytest.mark.rule("FD:REL-D", "RM:I19")
def test_a_leader_that_ends_with_every_write_answered_gives_its_lease_back() -> None:
    async def tell(stage: Stage) -> None:
        leader, first = stage.leader(), stage.holder()
        scale(stage, 8)
        await stage.settle()
        await leader.operator.stop()
        await stage.pass_time(5.0)
        assert stage.holder() not in (None, first)

    play(tell)
