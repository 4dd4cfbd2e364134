"""Pods that hold capacity only in the plan: unschedulable for other reasons, or rejected at admission."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from raytide.api.conditions import timestamp
from raytide.api.sharing_record import CREATION_FORBIDDEN, UNSCHEDULABLE, ResizeNote
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.scheduler_mismatch import BELIEVE_AFTER, DOUBT_AFTER, SchedulerMismatches
from support.elastic_builders import resizes_of
from unit.fairshare.test_participants import NOW, external_pod, job, made, node, ordered, pod_of

NODES = [node(f"n{i}") for i in range(3)]
SOON = timedelta(seconds=1)
FORBIDDEN = {"admission": {"forbidden": True}}
REPEATEDLY = {"admission": {"forbidden": True, "repeatedlyForbidden": True}}


def waiting_pod(index):
    """A trainer for which kube-scheduler found no node."""
    created = timestamp(NOW - timedelta(seconds=300))
    return replace(pod_of(index, creationTimestamp=created), is_unschedulable=True)


def stuck_external_pod(**spec):
    return replace(external_pod("1", **spec), is_unschedulable=True)


class Sharing:
    """Passes over one snapshot as time goes by."""

    def __init__(self, *args, **more):
        self.args, self.more, self.doubts = args, more, SchedulerMismatches()

    def share(self, now):
        pool = self.doubts.with_mismatches(made(*self.args, now=now, **self.more), now)
        division = allocate(pool)
        self.doubts.learn(division, now)
        return division


def one_per_node(replicas=20, floor=2):
    """20 trainers with the node's network: one fits on each node, although the CPUs suffice for 24."""
    pods = [pod_of(i, f"n{i}") for i in range(3)] + [waiting_pod(i) for i in range(3, replicas)]
    return Sharing(job(floor=floor, ceiling=20, replicas=replicas, record=ordered(replicas)), pods, NODES)


@pytest.mark.rule("FD:SH-B6")
def test_pods_that_stay_unschedulable_despite_free_capacity_are_released():
    sharing = one_per_node()
    assert resizes_of(sharing.share(NOW)) == {}
    assert sharing.doubts.changes_at == NOW + DOUBT_AFTER
    assert resizes_of(sharing.share(NOW + DOUBT_AFTER - SOON)) == {}
    (resize,) = sharing.share(NOW + DOUBT_AFTER).resizes
    assert (resize.before, resize.after, resize.reason) == (20, 3, UNSCHEDULABLE)
    assert "kube-scheduler finds no node for 17 of its pods although nodes have enough free capacity" in resize.message


@pytest.mark.rule("FD:SH-B6")
def test_growth_after_a_release_is_retried_with_exponential_backoff():
    for times, wait_s in ((1, 120), (2, 240), (3, 480), (4, 960), (5, 1800)):
        at = NOW - timedelta(seconds=wait_s - 10)
        record = ordered(3, *(ResizeNote(at, 20, 3, UNSCHEDULABLE) for _ in range(times)))
        pods = [pod_of(i, f"n{i}") for i in range(3)]
        waiting = Sharing(job(floor=2, ceiling=20, replicas=3, record=record), pods, NODES)
        assert resizes_of(waiting.share(NOW)) == {}, times
        assert resizes_of(waiting.share(NOW + timedelta(seconds=12))) == {"j": 17}, times


@pytest.mark.rule("FD:SH-B6")
@pytest.mark.parametrize(
    ("hours_ago", "wait_s"),
    [
        pytest.param([0], 120, id="once"),
        pytest.param([0, 24, 48, 72], 120, id="four times, each a day apart"),
        pytest.param([0, 0.5, 24, 24.5], 240, id="twice now, and twice yesterday"),
        pytest.param([0, 0.5, 1.0, 1.5, 2.0], 1800, id="five times in a row"),
    ],
)
def test_only_what_was_released_in_a_row_makes_the_next_try_later(hours_ago, wait_s):
    last = NOW - timedelta(seconds=wait_s - 10)
    notes = [ResizeNote(last - timedelta(hours=ago), 20, 3, UNSCHEDULABLE) for ago in sorted(hours_ago, reverse=True)]
    pods = [pod_of(i, f"n{i}") for i in range(3)]
    waiting = Sharing(job(floor=2, ceiling=20, replicas=3, record=ordered(3, *notes)), pods, NODES)
    assert resizes_of(waiting.share(NOW)) == {}
    assert resizes_of(waiting.share(NOW + timedelta(seconds=12))) == {"j": 17}


@pytest.mark.rule("FD:SH-B6")
def test_an_unschedulable_minimum_holds_no_capacity_for_long():
    sharing = one_per_node(replicas=20, floor=20)
    other = job("other", 1, 9, metadata={"uid": "uid-other"}, replicas=1, record=None)
    jobs, pods, nodes = sharing.args
    sharing.args = [jobs, other], [*pods, pod_of(0, "n0", uid="uid-other", job="other")], nodes
    assert resizes_of(sharing.share(NOW)).get("other", 0) <= 3
    assert resizes_of(sharing.share(NOW + DOUBT_AFTER)) == {"other": 8}
    later = sharing.share(NOW + DOUBT_AFTER + BELIEVE_AFTER)
    assert resizes_of(later).get("other", 0) <= 3, "their requests are counted again"


@pytest.mark.rule("FD:SH-B6")
def test_pods_of_others_that_wait_for_something_else_stop_blocking_growth():
    pods = [pod_of(0, "n0"), pod_of(1, "n1"), *(stuck_external_pod(priority=-10) for _ in range(20))]
    sharing = Sharing(job(floor=2, ceiling=20, replicas=2), pods, NODES)
    assert resizes_of(sharing.share(NOW)) == {"j": 2}
    assert resizes_of(sharing.share(NOW + DOUBT_AFTER)) == {"j": 18}


@pytest.mark.rule("FD:SH-B6")
def test_pods_that_fit_only_since_a_moment_are_not_released():
    pods = [pod_of(0, "n0"), pod_of(1, "n1"), stuck_external_pod()]
    full = [node("n0", "1"), node("n1", "1")]
    sharing = Sharing(job(floor=2, ceiling=9, replicas=2), pods, full)
    for minutes in range(60):
        sharing.share(NOW + timedelta(minutes=minutes))
    sharing.args = sharing.args[0], pods, [*full, node("n2", "1")]
    assert resizes_of(sharing.share(NOW + timedelta(hours=1))) == {}, "the new capacity is for the waiting pods"


def with_victim(refused, floor=14):
    """A job that has everything, and one whose pods have not come."""
    victim = job("victim", 2, 16, replicas=16, metadata={"uid": "uid-victim"})
    pods = [pod_of(i, "n0", uid="uid-victim", job="victim") for i in range(16)]
    claimant = job("claimant", floor, floor, replicas=floor, status=FORBIDDEN if refused else {}, **(refused or {}))
    return made([victim, claimant], pods, [node("n0", "16")])


@pytest.mark.rule("FD:SEC-F3")
def test_a_job_whose_pods_are_rejected_drains_no_other_job():
    assert resizes_of(allocate(with_victim(None))) == {"victim": -14}
    assert resizes_of(allocate(with_victim({"priorityClassName": "gold"}))) == {}


@pytest.mark.rule("FD:SEC-F3")
def test_a_gang_whose_pods_were_rejected_takes_only_free_capacity():
    assert resizes_of(allocate(with_victim({"startPolicy": "Gang"}))) == {}
    free = made(job("j", 2, 2, startPolicy="Gang", status=FORBIDDEN), [], NODES)
    assert resizes_of(allocate(free)) == {"j": 2}


def with_refused(status):
    """A job with 18 trainers that are not created, and one that would take their capacity."""
    refused = job("refused", 2, 20, replicas=20, record=ordered(20), status=status)
    other = job("other", 1, 22, replicas=1, metadata={"uid": "uid-other"})
    pods = [pod_of(0, "n0", job="refused"), pod_of(1, "n0", job="refused")]
    pods.append(pod_of(0, "n1", uid="uid-other", job="other"))
    return made([refused, other], pods, NODES)


@pytest.mark.rule("FD:SEC-F3")
def test_one_rejection_releases_no_trainer_and_holds_no_capacity():
    assert resizes_of(allocate(with_refused(FORBIDDEN))) == {"other": 21}


@pytest.mark.rule("FD:SEC-F3")
def test_repeatedly_rejected_trainers_hold_no_capacity_and_are_released():
    division = allocate(with_refused(REPEATEDLY))
    assert resizes_of(division) == {"refused": -18, "other": 21}
    back = next(one for one in division.resizes if one.id.name == "refused")
    assert (back.reason, back.message) == (
        CREATION_FORBIDDEN,
        "ScaledDown 20→2: the API server rejects 18 of its pods",
    )
