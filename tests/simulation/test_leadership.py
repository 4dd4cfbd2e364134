"""Of two replicas only the lease holder writes, and a new leader does not use old lists (RM:I1, I10; D6, D10)."""

from collections.abc import Awaitable, Callable

import pytest

from support import virtual_time
from support.faults.script import Call, Rule
from support.faults.types import CallFault, Delay, LoseAnswer, LoseRequest

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME, find, group, new_cluster
from simulation.simulated_kube import RAYCLUSTERS, Kubelets

pytestmark = pytest.mark.looptime

SEED = 11
FAST = Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 0.5))
LONG_S = 75.0
"""Longer than the lease duration."""


def run(steps: Callable[[Environment], Awaitable[None]]) -> None:
    """Run the steps with two replicas and a ready cluster; it must end in the desired state without a violation."""

    async def run_steps() -> list[str]:
        env = Environment(SEED, kubelets=FAST, replicas=2)
        with log_errors_as_violations(env.checks):
            env.open()
            env.kube.create(new_cluster([group("a", 3)]))
            env.start()
            await env.settle()
            await steps(env)
            await env.settle()
            await env.close()
        return env.checks.violations

    violations = virtual_time.run(run_steps())
    assert violations == [], "--- violations\n" + "\n".join(violations)


def scale(env: Environment, replicas: int) -> None:
    env.kube.edit(RAYCLUSTERS, NAME, None, lambda obj: find(obj["spec"], "a").update(replicas=replicas))


def is_pod_write(call: Call) -> bool:
    return call.is_write and call.plural == "pods"


def is_event_write(call: Call) -> bool:
    return call.is_write and call.plural == "events"


def is_lease_call(call: Call) -> bool:
    return call.plural == "leases"


@pytest.mark.rule("RM:I10", "D10")
@pytest.mark.parametrize("fault", [LoseRequest(), LoseAnswer()], ids=str)
def test_a_leader_that_cannot_reach_its_lease_stops_writing_before_the_next_leader_starts(fault: CallFault) -> None:
    async def steps(env: Environment) -> None:
        leader = env.leader()
        first = env.holder()
        until_s = env.loop.time() + LONG_S
        leader.script.of_calls.append(Rule(fault, is_lease_call, times=None, until_s=until_s))
        for second in range(round(LONG_S)):
            scale(env, 3 + second % 3)
            await env.pass_time(1.0)
        assert env.holder() not in (None, first)

    run(steps)


@pytest.mark.rule("RM:I10", "RM:I1")
def test_an_isolated_leader_does_not_write_again_after_it_reconnects() -> None:
    async def steps(env: Environment) -> None:
        leader, first = env.leader(), env.holder()
        until_s = env.loop.time() + LONG_S
        leader.script.of_calls.append(Rule(LoseRequest(), times=None, until_s=until_s))
        leader.transport.close_watches()
        scale(env, 5)
        await env.pass_time(LONG_S + 20.0)
        assert env.holder() not in (None, first)

    run(steps)


@pytest.mark.rule("RM:I1", "RM:I3", "D6")
def test_a_new_leader_with_lagging_watches_creates_nothing_twice() -> None:
    async def steps(env: Environment) -> None:
        leader = env.leader()
        standby = next(replica for replica in env.replicas if replica is not leader)
        standby.lag_s = 20.0
        scale(env, 8)
        await env.pass_time(0.5)
        await leader.operator.stop()
        await env.pass_time(10.0)
        assert env.holder() == standby.operator.identity
        standby.lag_s = 0.0
        leader.operator.start()

    run(steps)


@pytest.mark.rule("RM:I19", "D10")
def test_a_killed_leader_is_replaced_within_the_lease_duration_plus_5_s() -> None:
    async def steps(env: Environment) -> None:
        leader, first = env.leader(), env.holder()
        leader.operator.replace()
        scale(env, 5)
        await env.pass_time(35.0)
        assert env.holder() not in (None, first)
        assert env.difference() == ""

    run(steps)


@pytest.mark.rule("FD:REL-D", "RM:I1", "RM:I10")
@pytest.mark.parametrize("is_broken", [False, True], ids=["stopped in the middle of a pass", "a component failed"])
def test_a_leader_that_stops_with_unanswered_writes_lets_its_lease_expire(*, is_broken: bool) -> None:
    async def steps(env: Environment) -> None:
        leader, first = env.leader(), env.holder()
        leader.script.of_calls.append(Rule(Delay(1.9), is_pod_write, times=1))
        leader.script.of_calls.append(Rule(Delay(9.9), is_pod_write, times=None))  # sent after the stop was requested
        scale(env, 45)
        await env.pass_time(1.5)
        if is_broken:
            leader.operator.fail_component()
        else:
            await leader.operator.stop()
        await env.pass_time(1.0)
        assert env.holder() == first
        await env.pass_time(35.0)
        assert env.holder() not in (None, first)
        leader.script.clear()

    run(steps)


@pytest.mark.rule("FD:REL-D", "RM:I19")
def test_a_leader_that_stops_while_it_posts_an_event_releases_its_lease() -> None:
    async def steps(env: Environment) -> None:
        leader, first = env.leader(), env.holder()
        leader.script.of_calls.append(Rule(Delay(0.5), is_event_write, times=None))
        scale(env, 8)
        await env.pass_time(0.3)
        await leader.operator.stop()
        await env.pass_time(5.0)
        assert env.holder() not in (None, first)
        leader.script.clear()

    run(steps)


@pytest.mark.rule("FD:REL-D", "RM:I19")
def test_a_leader_that_stops_with_all_writes_answered_releases_its_lease() -> None:
    async def steps(env: Environment) -> None:
        leader, first = env.leader(), env.holder()
        scale(env, 8)
        await env.settle()
        await leader.operator.stop()
        await env.pass_time(5.0)
        assert env.holder() not in (None, first)

    run(steps)
