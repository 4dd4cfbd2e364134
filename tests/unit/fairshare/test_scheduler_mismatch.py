"""Pods that hold capacity only in the plan: unschedulable for other reasons, or rejected at admission."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from raytide.api.conditions import timestamp
from raytide.api.sharing_record import CREATION_FORBIDDEN, UNSCHEDULABLE, ResizeNote
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import INSUFFICIENT, SCHEDULING_GATED
from raytide.fairshare.scheduler_mismatch import BELIEVE_AFTER, DOUBT_AFTER, FORGET_AFTER, SchedulerMismatches
from support.elastic_builders import resizes_of, waiting_of
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
        assert resizes_of(waiting.share(NOW + timedelta(seconds=12))) == {"j": 1}, times


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
    assert resizes_of(waiting.share(NOW + timedelta(seconds=12))) == {"j": 1}, "one trainer first"


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


# --- claims that do not turn into running pods ---------------------------------------------------------------------------------------


def victim(size, nodes=2):
    """A job of 2 to 16 trainers, as many per node."""
    pods = [pod_of(i, f"n{i % nodes}", uid="uid-victim", job="victim") for i in range(size)]
    return job("victim", 2, 16, replicas=size, metadata={"uid": "uid-victim"}), pods


def without_node(count, *, role="trainer", **changes):
    """Pods of the job `j`, created ten minutes ago, without a node."""
    created = timestamp(NOW - timedelta(seconds=600))
    return [replace(pod_of(i, role=role, creationTimestamp=created), **changes) for i in range(count)]


def role_of(count, **more):
    """A role of so many pods with one CPU each."""
    return {
        "entrypoint": "x",
        "min-instance": count,
        "max-instance": count,
        "resources": {"requests": {"cpu": "1"}},
        **more,
    }


GATES = {"template": {"spec": {"schedulingGates": [{"name": "example.com/hold"}]}}}
TWO_NODES = [node("n0"), node("n1")]


@pytest.mark.rule("FD:SEC3-4")
@pytest.mark.parametrize(
    ("gated", "pods"),
    [
        pytest.param(job(floor=14, ceiling=14), without_node(14, is_scheduling_gated=True), id="trainers"),
        pytest.param(
            job(floor=1, ceiling=1, pserver=role_of(13)),
            [
                *without_node(1, is_scheduling_gated=True),
                *without_node(13, role="pserver", is_scheduling_gated=True),
            ],
            id="parameter servers",
        ),
        pytest.param(job(trainer=role_of(14, **GATES)), [], id="trainers that are not created yet"),
    ],
)
def test_pods_with_scheduling_gates_hold_no_capacity(gated, pods):
    other, its_pods = victim(2)
    division = allocate(made([other, gated], [*its_pods, *pods], TWO_NODES))
    assert resizes_of(division) == {"victim": 14}
    assert waiting_of(division) == {"j": SCHEDULING_GATED}


@pytest.mark.rule("FD:SEC3-4")
def test_a_gang_whose_template_has_scheduling_gates_takes_only_free_capacity():
    other, its_pods = victim(12)
    for floor, is_admitted in ((4, True), (5, False)):
        gang = job(startPolicy="Gang", trainer=role_of(floor, **GATES))
        division = allocate(made([other, gang], its_pods, TWO_NODES))
        assert resizes_of(division) == ({"j": 4} if is_admitted else {"victim": 4})


@pytest.mark.rule("FD:SEC3-4")
def test_a_job_without_its_gates_claims_its_minimum_again():
    other, its_pods = victim(16)
    held = job(trainer=role_of(4, **GATES))
    for is_gated, expected in ((True, {}), (False, {"victim": -4})):
        pods = [*its_pods, *without_node(4, is_scheduling_gated=is_gated)]
        assert resizes_of(allocate(made([other, held], pods, TWO_NODES))) == expected


@pytest.mark.rule("FD:SEC3-4", "FD:TJ3-1")
@pytest.mark.parametrize("role", ["trainer", "pserver"])
@pytest.mark.parametrize("is_unschedulable", [True, False], ids=["no node is found", "no scheduler looks at them"])
def test_a_minimum_that_gets_no_node_lapses_and_then_takes_only_free_capacity(role, is_unschedulable):
    """Its pods need what a plan does not know, or another scheduler that does not run."""
    other, its_pods = victim(2)
    stuck = job(floor=14, ceiling=14) if role == "trainer" else job(floor=1, ceiling=1, pserver=role_of(13))
    pods = without_node(14, is_unschedulable=is_unschedulable)
    if role == "pserver":
        pods = [pod_of(0, "n1"), *without_node(13, role=role, is_unschedulable=is_unschedulable)]
    sharing = Sharing([other, stuck], [*its_pods, *pods], TWO_NODES)
    assert resizes_of(sharing.share(NOW)).get("victim", 0) <= 0
    lapsed = NOW + DOUBT_AFTER
    assert resizes_of(sharing.share(lapsed))["victim"] >= 13, "its minimum holds no capacity"
    other, its_pods = victim(16 if role == "trainer" else 15)
    sharing.args = [other, stuck], [*its_pods, *pods], TWO_NODES
    for later in (BELIEVE_AFTER, FORGET_AFTER - SOON):
        division = sharing.share(lapsed + later)
        assert resizes_of(division) == {}, "no trainer ends for pods that got no node before"
        assert waiting_of(division)["j"] == INSUFFICIENT
    assert resizes_of(sharing.share(lapsed + FORGET_AFTER)) == {"victim": 2 - len(its_pods)}


@pytest.mark.rule("FD:TJ3-1")
def test_growth_that_failed_is_retried_with_one_trainer_and_free_capacity():
    other, its_pods = victim(10)
    record = ordered(2, ResizeNote(NOW - timedelta(seconds=130), 8, 2, UNSCHEDULABLE))
    pods = [pod_of(0, "n0"), pod_of(1, "n1")]
    failed = job(floor=1, ceiling=16, replicas=2, record=record)
    assert resizes_of(allocate(made([failed], pods, TWO_NODES))) == {"j": 1}
    division = allocate(made([other, failed], [*its_pods, *pods], [node("n0", "6"), node("n1", "6")]))
    assert resizes_of(division) == {}


@pytest.mark.rule("FD:TJ3-1")
def test_the_next_growth_waits_until_the_first_trainer_has_a_node():
    def at(node_name):
        notes = [(130, 8, 2, UNSCHEDULABLE), (60, 2, 3, "Growing")]
        resizes = [ResizeNote(NOW - timedelta(seconds=ago), *note) for ago, *note in notes]
        pods = [pod_of(0, "n0"), pod_of(1, "n1"), pod_of(2, node_name)]
        failed = job(floor=1, ceiling=16, replicas=3, record=ordered(3, *resizes))
        return resizes_of(allocate(made([failed], pods, TWO_NODES)))

    assert at("") == {}
    assert at("n0") == {"j": 13}


@pytest.mark.rule("FD:TJ3-1")
def test_no_job_yields_again_to_pods_that_got_no_node_from_what_it_released():
    def yielding(size):
        return job(floor=2, ceiling=12, replicas=size, scaling={"yieldToPods": True})

    pods = [pod_of(i, f"n{i % 2}") for i in range(10)]
    stuck = stuck_external_pod(priority=5)
    nodes = [node("n0", "6"), node("n1", "6")]
    sharing = Sharing([yielding(10)], [*pods, stuck], nodes)
    sharing.share(NOW)
    sharing.share(NOW + DOUBT_AFTER)
    sharing.args = [yielding(12)], [*pods, pod_of(10, "n0"), pod_of(11, "n1"), stuck], nodes
    for later in (DOUBT_AFTER, BELIEVE_AFTER + DOUBT_AFTER):
        assert resizes_of(sharing.share(NOW + later)) == {}


@pytest.mark.rule("FD:TJ3-1")
def test_a_trainer_counts_with_what_admission_added_to_its_pods():
    """A LimitRange or a webhook: the template requests one CPU, and each pod two."""
    pods = [pod_of(i, "n0", cpu="2") for i in range(2)]
    assert resizes_of(allocate(made(job(floor=2, ceiling=16, replicas=2), pods, TWO_NODES))) == {"j": 6}
