"""`ReplicasContended`: another client writes sizes that fair sharing does not keep."""

import pytest

from raytide.api import trainingjob_constants as constants
from support.job_world import JobWorld

pytestmark = pytest.mark.rule("FD:TJ3-2", "TJ:3.21")


def running_job(size=4):
    world = JobWorld(high=16, start_policy="Optimistic")
    world.admit(size)
    return world.run()


def state(world):
    found = world.settle().condition(constants.REPLICAS_CONTENDED)
    return (found["status"], found["reason"]) if found else None


def test_pods_are_created_for_granted_sizes_only():
    world = running_job(4)
    world.resize(16)
    assert world.settle().trainers == [0, 1, 2, 3]
    assert world.status["trainer"]["desired"] == 4
    assert world.phase == "Running"


def test_a_smaller_size_counts_at_once():
    world = running_job(4)
    world.resize(2)
    assert world.settle().trainers == [0, 1]


def test_without_sharing_a_larger_size_counts_too():
    world = running_job(4)
    world.edit(scaling={"enabled": False})
    world.resize(6)
    assert world.settle().trainers == [0, 1, 2, 3, 4, 5]


def test_named_victims_leave_whatever_another_client_writes():
    world = running_job(4)
    world.order(3, "Reclaimed", victims=("trainer-1",))
    world.resize(16)
    assert world.settle().trainers == [0, 2, 3]


def test_the_first_request_that_is_not_granted_is_told_and_the_second_is_contention():
    world = running_job()
    assert state(world) is None
    world.say_requested(16)
    assert state(world) == ("False", "ReplicasDiffer")
    message = world.condition(constants.REPLICAS_CONTENDED)["message"]
    assert message == "replicas was set to 16 (written by keda), fair sharing decided 4"
    world.say_requested(16, times=2)
    assert state(world) == ("True", "ReplicasRewritten")
    message = world.condition(constants.REPLICAS_CONTENDED)["message"]
    assert "held by: keda, which also writes replicas; fix: stop that client" in message
    (event,) = world.messages_of("ReplicasContended")
    assert event == message
    world.order(5)
    world.say_requested(16, times=3)
    assert state(world) == ("True", "ReplicasRewritten")
    assert len(world.messages_of("ReplicasContended")) == 1


def test_a_size_that_undoes_growth_is_contention_when_it_is_repeated():
    world = running_job()
    world.say_requested(2, times=1, writer="")
    assert state(world) is None
    world.say_requested(2, times=2, writer="")
    assert state(world) == ("True", "ReplicasRewritten")
    message = world.condition(constants.REPLICAS_CONTENDED)["message"]
    assert message.startswith(
        "replicas was set to 2 again after fair sharing had scaled the job up; held by: another client"
    )


def test_it_is_removed_with_the_note_and_when_the_job_is_suspended():
    world = running_job()
    world.say_requested(16, times=2)
    assert state(world)
    world.edit(suspend=True)
    assert state(world) is None
    world.edit(suspend=False)
    assert state(world)
    world.say_requested(4)
    assert state(world) is None


def test_the_name_of_the_client_is_escaped():
    world = running_job()
    world.say_requested(16, times=2, writer="a\x1b[31m\n\u202eb")
    world.settle()
    message = world.condition(constants.REPLICAS_CONTENDED)["message"]
    assert message.isprintable()
