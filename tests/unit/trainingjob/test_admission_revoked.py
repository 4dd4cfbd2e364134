"""A job whose minimum cannot start releases its capacity, gang or not; rejections reach the sharing pass."""

from dataclasses import replace

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import PendingRetry
from raytide.api.gang_admission import is_forbidden, is_repeatedly_forbidden, may_be_admitted_at
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import LONGEST_PENDING_S
from raytide.diagnosis.render import HELD_BY
from raytide.trainingjob.validation import violations, warnings
from support.job_world import JobWorld
from support.training_builders import parsed_job

FORBIDDEN = PendingRetry(constants.TRAINER, "FailedToCreatePod", "no PriorityClass with name gold was found", 30.0)
QUOTA = PendingRetry(constants.TRAINER, "FailedToCreatePod", "exceeded quota: q", 30.0)


def halved(low=8, run=6, **spec):
    """An optimistic job of which some trainers have found no node."""
    world = JobWorld(low=low, high=low, fault_tolerant=True, **spec).settle()
    world.run("master")
    world.run(*(f"trainer-{index}" for index in range(run)))
    return world


@pytest.mark.rule("FD:SH-B14")
def test_an_optimistically_admitted_job_that_does_not_start_in_time_deletes_its_pods():
    world = halved(pendingTimeoutSeconds=120)
    assert world.condition(constants.ADMITTED)["reason"] == "Optimistic"
    world.order(8, "Requested")
    world.pass_time(119)
    assert world.settle().trainers == list(range(8))
    world.pass_time(1)
    world.settle()
    assert world.trainers == []
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_TIMEOUT
    assert world.status["admission"] == {"timeouts": 1}
    assert "the minimum did not start within 120 s" in world.messages_of(constants.GANG_TIMEOUT)[0]
    world.let_go()
    assert world.settle().trainers == [], "it waits until its whole minimum fits"
    assert is_gang(world.job, frozenset())
    assert (may_be_admitted_at(world.job) - world.now).total_seconds() == 60


@pytest.mark.rule("FD:SH-B14")
def test_it_is_as_before_once_its_minimum_has_run():
    world = halved(pendingTimeoutSeconds=120)
    world.order(8, "Requested")
    world.pass_time(120)
    world.settle()
    world.let_go()
    world.pass_time(60)
    world.admit(8)
    world.run()
    assert world.condition(constants.RUNNING)["status"] == "True"
    assert "admission" not in world.status
    assert not is_gang(world.job, frozenset())
    world.pass_time(10_000)
    assert world.settle().trainers == list(range(8))


@pytest.mark.rule("FD:SH-B14")
@pytest.mark.parametrize(
    "has_run", [pytest.param(True, id="its minimum has run"), pytest.param(False, id="its images take long")]
)
def test_what_has_nodes_gives_nothing_back(has_run):
    world = JobWorld(low=3, high=3, pendingTimeoutSeconds=120).settle()
    if has_run:
        world.run()
        world.pod("trainer-1", phase="Pending", node_name="")
    else:
        for index in range(3):
            world.pod(f"trainer-{index}", node_name="node-0")
    world.pass_time(10_000)
    assert world.settle().trainers == [0, 1, 2]


@pytest.mark.rule("FD:SEC-F3")
def test_a_gang_whose_pods_are_rejected_releases_its_capacity_soon():
    world = JobWorld(startPolicy="Gang", pendingTimeoutSeconds=2147483647).settle()
    world.admit()
    world.pending_retries = (FORBIDDEN,)
    world.settle()
    assert is_forbidden(world.job)
    assert not is_repeatedly_forbidden(world.job)
    assert world.condition(constants.WAITING)["reason"] == "CreationForbidden"
    world.pass_time(60)
    world.pending_retries = (replace(FORBIDDEN, times=3),)
    world.settle()
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_TIMEOUT
    assert "gold" in world.condition(constants.ADMITTED)["message"]
    world.pending_retries = ()
    world.settle()
    assert world.status["admission"] == {"timeouts": 1, "forbidden": True}, "creates were not retried"
    world.pass_time(60)
    world.admit()
    world.run()
    assert "admission" not in world.status


@pytest.mark.rule("FD:SEC-F3")
def test_one_rejection_ends_no_gang_whose_images_are_pulled():
    world = JobWorld(startPolicy="Gang", low=3, high=3, pendingTimeoutSeconds=3600).settle()
    world.admit(3)
    world.settle()
    world.pass_time(600)
    world.end("trainer-1", 137, reason="Evicted")
    world.pending_retries = (FORBIDDEN,)
    world.settle()
    assert world.condition(constants.ADMITTED)["status"] == "True"
    assert world.trainers == [0, 2]


@pytest.mark.rule("FD:SEC-F3")
def test_trainers_are_taken_back_for_three_rejections_in_a_row():
    world = JobWorld(low=2, high=4).settle()
    for times, repeatedly in ((1, False), (2, False), (3, True)):
        world.pending_retries = (replace(FORBIDDEN, times=times),)
        world.settle()
        assert is_forbidden(world.job)
        assert is_repeatedly_forbidden(world.job) == repeatedly, times
    world.pending_retries = ()
    world.settle()
    assert not is_forbidden(world.job)
    assert not is_repeatedly_forbidden(world.job)


@pytest.mark.rule("FD:SEC-F3")
def test_a_rejection_by_the_api_server_takes_precedence_over_the_reason_of_the_sharing_pass():
    world = JobWorld().settle()
    world.say_waiting("InsufficientResources")
    world.pod("trainer-0", phase="Pending")
    world.pending_retries = (FORBIDDEN,)
    world.settle()
    waiting = world.condition(constants.WAITING)
    assert (waiting["reason"], waiting["message"].partition(HELD_BY)[0]) == (
        "CreationForbidden",
        f"create of trainer rejected: {FORBIDDEN.message}",
    )


@pytest.mark.rule("FD:SEC-F3")
def test_a_quota_is_not_what_a_job_is_rejected_for():
    world = JobWorld().settle()
    world.pending_retries = (QUOTA,)
    world.settle()
    assert not is_forbidden(world.job)


@pytest.mark.rule("FD:SEC-F3")
def test_a_pending_timeout_above_a_week_is_cut_with_a_warning():
    job = parsed_job(pendingTimeoutSeconds=2147483647, trainer={"entrypoint": "true"})
    assert job.pending_timeout_s == LONGEST_PENDING_S
    assert not violations(job)
    (warning,) = warnings(job)
    assert "604800 (one week) is used" in warning.message
