"""Created and deleted hosts of multi-host groups, one test per rule; and properties for random groups."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api import constants
from raytide.api.actions import MAX_WRITES
from raytide.api.pod import PodCondition
from raytide.raycluster.desired_replicas import DesiredReplicas, clamp_replicas
from raytide.raycluster.manifests.names import unused
from raytide.raycluster.observed import PendingRetry
from raytide.raycluster.plan_multihost_group import plan_replicas
from raytide.raycluster.plan_worker_group import GroupInputs
from support.builders import NOT_READY, dying, pending, pod, worker_group

LATER = "2026-01-01T02:00:00Z"
SIZE = 4


def group_of(replicas=2, hosts=SIZE, *, high=10, to_delete=(), **fields):
    group = worker_group(replicas=replicas, high=high, to_delete=to_delete)
    return group.model_copy(update={"num_of_hosts": hosts, **fields})


def host(replica, index, made=pod, **fields):
    """One host of the replica of that number."""
    created_at = f"2026-01-01T00:00:{replica:02d}Z"
    labels = {"replica_name": f"cpu-{replica}", "replica_index": replica, "host_index": index, "num_of_hosts": SIZE}
    return made(f"demo-cpu-worker-{replica}{index}", **{**labels, "creation_timestamp": created_at, **fields})


def replica(number, hosts=range(SIZE), made=pod, **fields):
    return [host(number, index, made, **fields) for index in hosts]


def decide(group, pods, *, retry=None, **circumstances):
    order = DesiredReplicas(clamp_replicas(group), frozenset(group.scale_strategy.workers_to_delete))
    numbers = itertools.count(1)
    namer = unused(lambda prefix: f"{prefix}-{next(numbers)}", lambda: (each.replica_name for each in pods))
    inputs = GroupInputs(group, pods, order, **circumstances)
    return plan_replicas(inputs, lambda: namer("new"), rejection=retry)


def created(decision):
    """Replica name and host index, in order."""
    return [f"{new.replica_name}/{new.host_index}" for new in decision.new_hosts]


def victims(decision):
    return sorted(victim.pod.name.removeprefix("demo-cpu-worker-") for victim in decision.victims)


def reasons(decision):
    return {victim.reason for victim in decision.victims}


def all_of(*numbers):
    return [f"{number}{index}" for number in numbers for index in range(SIZE)]


# --- growing ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:MH-6", "RC:MH-5")
def test_a_new_group_gets_all_hosts_of_all_replicas():
    decision = decide(group_of(2), [])
    assert created(decision) == [f"new-{n}/{i}" for n in (1, 2) for i in range(SIZE)]
    assert [new.replica_index for new in decision.new_hosts] == [0] * SIZE + [1] * SIZE


@pytest.mark.rule("RC:MH-6")
def test_a_new_replica_gets_the_smallest_unused_index_and_all_its_hosts_the_same():
    decision = decide(group_of(4), [*replica(0), *replica(2)])
    assert [new.replica_index for new in decision.new_hosts] == [1] * SIZE + [3] * SIZE


@pytest.mark.rule("RC:MH-6", "D6")
def test_the_index_of_a_replica_that_an_abandoned_request_may_still_create_is_not_used():
    decision = decide(group_of(2), [], arriving_indices={0})
    assert [new.replica_index for new in decision.new_hosts] == [1] * SIZE + [2] * SIZE


@pytest.mark.rule("RM:I6")
@pytest.mark.parametrize(
    ("have", "expected"),
    [
        pytest.param([0, 1], ["cpu-0/2", "cpu-0/3"], id="the hosts that were never made"),
        pytest.param([3], ["cpu-0/0", "cpu-0/1", "cpu-0/2"], id="whichever came first"),
        pytest.param([0, 1, 2, 3], [], id="a whole replica lacks none"),
    ],
)
def test_a_replica_in_the_making_is_completed_under_its_name(have, expected):
    decision = decide(group_of(1), replica(0, have))
    assert (created(decision), victims(decision)) == (expected, [])
    assert {new.replica_index for new in decision.new_hosts} <= {0}


@pytest.mark.rule("D6")
def test_hosts_in_flight_are_there():
    assert created(decide(group_of(1), replica(0, made=pending, uid="", creation_timestamp=""))) == []


@pytest.mark.rule("RM:I6")
def test_what_lacks_least_is_completed_first_and_new_replicas_come_last():
    decision = decide(group_of(3), [*replica(0, [0]), *replica(1, [0, 1, 2])])
    assert created(decision)[:4] == ["cpu-1/3", "cpu-0/1", "cpu-0/2", "cpu-0/3"]
    assert created(decision)[4:] == [f"new-1/{i}" for i in range(SIZE)]


@pytest.mark.rule("RM:I1")
@pytest.mark.parametrize("left", [1, 2, 3, 4])
def test_a_new_replica_waits_for_the_last_host_of_the_deleted_one(left):
    gone = replica(0, range(left), dying)
    assert created(decide(group_of(2), [*gone, *replica(1)])) == []


@pytest.mark.rule("SC:S12")
def test_a_new_replica_does_not_wait_for_hosts_on_an_unready_node():
    gone = replica(0, made=dying, node_name="away")
    decision = decide(group_of(2), [*gone, *replica(1)], unready_nodes={"away"})
    assert len(created(decision)) == SIZE
    assert {new.replica_index for new in decision.new_hosts} == {2}, "an index is free when its last host is gone"


@pytest.mark.parametrize(
    ("replicas", "hosts"),
    [
        pytest.param(2_000_000_000, 4, id="two thousand million replicas"),
        pytest.param(1, 2_000_000_000, id="two thousand million hosts"),
    ],
)
def test_no_number_of_replicas_or_hosts_exhausts_memory(replicas, hosts):
    assert len(created(decide(group_of(replicas, hosts, high=None), []))) == MAX_WRITES


def test_a_suspended_group_has_no_pods():
    decision = decide(group_of(2, suspend=True), [*replica(0), *replica(1, [0, 1])])
    assert (victims(decision), created(decision)) == ([*all_of(0), "10", "11"], [])


# --- losing hosts ----------------------------------------------------------------------------------------------------

FAILED = {"phase": "Failed"}


@pytest.mark.rule("RC:MH-3", "RM:I6")
@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(host(0, 2, **FAILED), id="a host that failed"),
        pytest.param(host(0, 2, phase="Succeeded"), id="a host that finished"),
        pytest.param(host(0, 2, dying), id="a host that a client deletes"),
        pytest.param(host(0, 2, dying, node_name="away"), id="a host whose machine died"),
    ],
)
def test_takes_its_replica_with_it_and_no_other(lost):
    decision = decide(group_of(2), [*replica(0, [0, 1, 3]), lost, *replica(1)], unready_nodes={"away"})
    assert victims(decision) == ["00", "01", "03"]
    end = "is terminating" if lost.is_terminating else "has ended"
    assert reasons(decision) == {f"host {lost.name} of its replica {end}"}
    assert decision.is_continued is lost.is_finished


@pytest.mark.rule("RC:MH-3", "RM:I6")
def test_the_failed_host_of_a_replica_is_deleted_last():
    """It is the reason to delete the others: an operator that is killed half-way must still see it."""
    pods = [*replica(0, [0, 1, 3]), host(0, 2, **FAILED)]
    half_way = [each.marked_terminating(LATER) if each.host_index == 0 else each for each in pods]
    assert victims(decide(group_of(1), half_way)) == ["01", "03"]
    assert victims(decide(group_of(1), [each for each in half_way if not each.is_terminating])) == ["01", "03"]
    all_marked = [each if each.is_finished else each.marked_terminating(LATER) for each in pods]
    decision = decide(group_of(1), all_marked)
    assert (victims(decision), decision.is_continued) == (["02"], False)


@pytest.mark.parametrize(
    "well",
    [
        pytest.param(host(0, 2, pending), id="that waits for a node"),
        pytest.param(host(0, 2, ready=NOT_READY), id="that is not ready"),
        pytest.param(host(0, 2, phase="Unknown"), id="whose phase is Unknown"),
    ],
)
@pytest.mark.rule("RC:SD-3")
def test_a_host_is_kept(well):
    decision = decide(group_of(1), [*replica(0, [0, 1, 3]), well])
    assert (victims(decision), created(decision)) == ([], [])


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("named", "gone"),
    [
        pytest.param((), [], id="for a moment longer"),
        pytest.param(("demo-cpu-worker-02",), ["00", "01", "03"], id="unless its autoscaler has named it"),
    ],
)
def test_a_host_that_exited_0_counts_as_it_is(named, gone):
    pods = [*replica(0, [0, 1, 3]), host(0, 2, phase="Succeeded")]
    decision = decide(group_of(1, to_delete=named), pods, exit_grace={"demo-cpu-worker-02": 1.0})
    assert (victims(decision), created(decision)) == (gone, [])


@pytest.mark.rule("RM:I6", "RC:MH-2")
def test_a_host_that_disappeared_without_a_trace_is_recreated():
    """A lost create looks the same, and deleting three working hosts costs more than creating the missing one."""
    assert created(decide(group_of(1), replica(0, [0, 1, 3]))) == ["cpu-0/2"]


@pytest.mark.rule("RM:I6")
def test_of_two_hosts_with_one_index_only_the_better_stays():
    """A create whose response was lost may be executed long after another host was created instead."""
    double = host(0, 1, pending, uid="late", creation_timestamp=LATER)
    decision = decide(group_of(1), [*replica(0), double])
    assert [victim.pod.uid for victim in decision.victims] == ["late"]
    after = [*replica(0), double.marked_terminating(LATER)]
    assert (victims(decide(group_of(1), after)), created(decide(group_of(1), after))) == ([], [])


# --- shrinking -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:MH-4", "RM:I5")
@pytest.mark.parametrize(
    ("named", "gone", "unknown_names"),
    [
        pytest.param("demo-cpu-worker-12", all_of(1), (), id="the name of any host names its replica"),
        pytest.param("demo-cpu-worker-99", [], (), id="a deleted host is ignored"),
        pytest.param("deployment-pod", [], ("deployment-pod",), id="a pod that cannot be a worker is reported"),
        pytest.param("b-x-worker-1", [], ("b-x-worker-1",), id="so is another cluster's worker"),
    ],
)
def test_names_to_delete(named, gone, unknown_names):
    group = group_of(2, to_delete=(named,))
    decision = decide(group, [*replica(0), *replica(1)], existing_names={"b-x-worker-1"})
    assert (victims(decision), decision.unknown_names, created(decision)) == (gone, unknown_names, [])


@pytest.mark.rule("RC:MH-7")
def test_under_autoscaling_whole_replicas_are_deleted_only_by_name():
    group = group_of(1, to_delete=("demo-cpu-worker-20",))
    pods = [*replica(0), *replica(1), *replica(2)]
    assert victims(decide(group, pods, may_choose_victims=False)) == all_of(2)


@pytest.mark.rule("D6", "RC:MH-7")
def test_under_autoscaling_a_replica_with_a_create_in_flight_may_be_deleted():
    pods = [*replica(0), *replica(1, range(3)), host(1, 3, pending, uid="")]
    assert victims(decide(group_of(1), pods, may_choose_victims=False)) == all_of(1)


@pytest.mark.rule("D6")
def test_a_create_without_an_answer_is_repeated_once_its_place_is_free():
    pods = [*replica(0), *replica(1, range(3)), host(1, 3, pending, uid="")]
    old = [host(2, index, dying) for index in range(SIZE)]
    decision = decide(group_of(2), [*pods, *old])
    assert (victims(decision), [each.host_index for each in decision.withheld]) == ([], [3])
    assert decide(group_of(2), pods).withheld == ()


@pytest.mark.rule("RM:I6")
def test_under_autoscaling_a_surplus_incomplete_replica_may_be_deleted():
    decision = decide(group_of(1), [*replica(0), *replica(1, [0, 1])], may_choose_victims=False)
    assert (victims(decision), created(decision)) == (["10", "11"], [])


UNREADY = {"ready": NOT_READY}


@pytest.mark.rule("RC:MH-7", "SC:S9")
@pytest.mark.parametrize(
    ("pods", "gone"),
    [
        pytest.param([*replica(0), *replica(1), *replica(2)], all_of(2), id="of equals the newest"),
        pytest.param([*replica(0, [0, 1]), *replica(1), *replica(2)], ["00", "01"], id="an incomplete one first"),
        pytest.param([*replica(0, [0, 1, 2]), host(0, 3, pending), *replica(1), *replica(2)], all_of(0), id="pending"),
        pytest.param(
            [*replica(0, **UNREADY), *replica(1, [0, 1, 2]), host(1, 3, pending), *replica(2)],
            all_of(1),
            id="the worst host decides",
        ),
        pytest.param(
            [*replica(0, [0, 1, 2]), host(0, 3, **UNREADY), *replica(1), *replica(2)], all_of(0), id="unready"
        ),
    ],
)
def test_the_replica_with_the_lowest_deletion_cost_is_deleted(pods, gone):
    decision = decide(group_of(2), pods)
    assert (victims(decision), created(decision)) == (gone, [])
    assert reasons(decision) == {"group cpu has 3 replicas, 2 desired"}


# --- replicas of another time ----------------------------------------------------------------------------------------


@pytest.mark.rule("RC:MH-9", "RM:I6")
@pytest.mark.parametrize(
    ("hosts", "at_once"),
    [
        pytest.param(2, 0, id="fewer hosts: the new ones wait for the old to go"),
        pytest.param(8, 1, id="more hosts: one new replica fits in addition to the old ones"),
    ],
)
def test_every_replica_is_recreated_when_the_number_of_hosts_changes(hosts, at_once):
    decision = decide(group_of(2, hosts), [*replica(0), *replica(1)])
    assert (victims(decision), len(created(decision))) == (all_of(0, 1), at_once * hosts)
    assert {new.replica_index for new in decision.new_hosts} <= {2}


@pytest.mark.rule("RC:MH-2", "RC:MH-9")
@pytest.mark.parametrize(
    ("have", "hosts", "is_kept"),
    [
        pytest.param(range(4), 4, True, id="a whole one is kept"),
        pytest.param(range(3), 4, False, id="an incomplete one may be one of another size"),
        pytest.param(range(4), 2, False, id="one with too many hosts is of another size"),
    ],
)
def test_a_replica_that_kuberay_made(have, hosts, is_kept):
    decision = decide(group_of(1, hosts), replica(0, have, num_of_hosts=None))
    assert victims(decision) == ([] if is_kept else [f"0{index}" for index in have])
    assert created(decision) == []


def plain(i, **fields):
    return pod(f"demo-cpu-worker-p{i}", **{"creation_timestamp": f"2026-01-01T00:00:{i:02d}Z", **fields})


@pytest.mark.rule("RC:MH-1", "RM:I6")
@pytest.mark.parametrize(
    ("pods", "replicas", "gone", "new"),
    [
        pytest.param([plain(i) for i in range(8)], 2, [], 0, id="are two replicas, the oldest four and the next"),
        pytest.param([plain(i) for i in range(6)], 1, ["p4", "p5"], 0, id="that are no whole replica go"),
        pytest.param(
            [plain(i) for i in range(8)], 1, ["p4", "p5", "p6", "p7"], 0, id="go by replica, the newest first"
        ),
        pytest.param([plain(i) for i in range(4)], 2, [], 4, id="count, and the rest is made with labels"),
        pytest.param([plain(0, **FAILED), *(plain(i) for i in range(1, 5))], 1, ["p0"], 0, id="that ended go alone"),
    ],
)
def test_workers_from_before_the_gate(pods, replicas, gone, new):
    decision = decide(group_of(replicas), pods)
    assert (victims(decision), len(created(decision))) == (gone, new)


@pytest.mark.rule("RC:MH-1", "RC:MH-4")
def test_a_name_ends_the_replica_that_unlabelled_workers_are_taken_for():
    pods = [plain(i) for i in range(8)]
    assert victims(decide(group_of(2, to_delete=("demo-cpu-worker-p5",)), pods)) == ["p4", "p5", "p6", "p7"]
    left = [each.marked_terminating(LATER) if each.name > "demo-cpu-worker-p3" else each for each in pods]
    for gone in range(4):
        assert victims(decide(group_of(1), left[: 8 - gone])) == []


@pytest.mark.rule("FD:REL-11", "RC:MH-1")
def test_unlabelled_workers_are_grouped_by_age_whatever_their_names():
    pods = [plain(i, creation_timestamp=f"2026-01-01T00:0{i % 2}:00Z") for i in range(8)]
    assert victims(decide(group_of(1), pods)) == ["p1", "p3", "p5", "p7"]


@pytest.mark.rule("RC:MH-9")
def test_workers_that_were_single_hosts_are_no_replica():
    pods = [plain(i, replica_index=i) for i in range(4)]
    decision = decide(group_of(1), pods)
    assert (victims(decision), created(decision)) == (["p0", "p1", "p2", "p3"], [])


# --- rejections --------------------------------------------------------------------------------------------------------


def rejected(times=1, retry_in_s=5.0, replicas_in_s=0.0):
    return PendingRetry(
        "cpu", constants.FAILED_TO_CREATE_WORKER_POD, "exceeded quota", retry_in_s, times, replicas_in_s
    )


@pytest.mark.rule("SC:S4")
@pytest.mark.parametrize(
    ("pods", "retry", "gone", "new"),
    [
        pytest.param(replica(2, [0, 1]), rejected(), [], 0, id="rejected once: wait"),
        pytest.param(
            replica(2, [0, 1]), rejected(times=2), ["20", "21"], 0, id="rejected twice: the replica is given up"
        ),
        pytest.param([], rejected(times=2), [], 0, id="nothing incomplete: wait"),
        pytest.param(
            [*replica(2, [0]), *replica(3, [0, 1, 2])],
            rejected(times=2),
            ["20"],
            0,
            id="with one host the other is whole",
        ),
        pytest.param(
            [*replica(2, [0, 1, 2]), *replica(3, [0, 1, 2])],
            rejected(times=2),
            ["30", "31", "32"],
            0,
            id="of equals the newest is given up for the others",
        ),
        pytest.param(
            [*replica(2, [0, 1]), *replica(3, [0], dying)],
            rejected(times=2),
            [],
            0,
            id="while other pods terminate the quota may have capacity soon",
        ),
        pytest.param(
            replica(2, [0, 1, 2]), rejected(times=0, retry_in_s=0.0, replicas_in_s=60.0), [], 1, id="given up: complete"
        ),
        pytest.param(
            [*replica(2, [0, 1, 2]), *replica(3, [0], dying)],
            rejected(times=0, retry_in_s=0.0, replicas_in_s=60.0),
            [],
            0,
            id="given up: complete the others once it has gone",
        ),
        pytest.param([], rejected(times=0, retry_in_s=0.0, replicas_in_s=60.0), [], 0, id="given up: begin no other"),
    ],
)
def test_a_rejected_group(pods, retry, gone, new):
    decision = decide(group_of(4), [*replica(0), *replica(1), *pods], retry=retry)
    assert (victims(decision), len(created(decision))) == (gone, new)
    assert decision.has_given_up is bool(gone)


@pytest.mark.rule("SC:S4", "RM:I18")
@pytest.mark.parametrize(
    ("pods", "needs_none"),
    [
        pytest.param(replica(2), True, id="all are there"),
        pytest.param(replica(2, [0, 1]), True, id="all are begun"),
        pytest.param([], False, id="one is not"),
        pytest.param(replica(2, [0], dying), False, id="one terminates"),
    ],
)
def test_whether_quota_for_another_replica_is_needed(pods, needs_none):
    """A replica that was given up may stay and be completed after all: what held the next one back is void then."""
    retry = rejected(times=0, retry_in_s=0.0, replicas_in_s=60.0)
    decision = decide(group_of(3), [*replica(0), *replica(1), *pods], retry=retry)
    assert decision.needs_none is needs_none


# --- for any group ---------------------------------------------------------------------------------------------------

phases = st.sampled_from(["Running", "Running", "Running", "Pending", "Failed", "Succeeded", "Unknown"])


@st.composite
def some_hosts(draw, number):
    """A few hosts of one replica in any state, perhaps two of an index, perhaps made for another number."""
    made_for = draw(st.sampled_from([3, 3, 3, 2, None]))
    found = []
    for index in draw(st.lists(st.integers(0, 3), max_size=4)):
        is_in_flight = draw(st.integers(0, 5)) == 0
        found.append(
            pod(
                f"demo-cpu-worker-{number}-{len(found)}",
                uid="" if is_in_flight else f"uid-{number}-{len(found)}",
                phase="" if is_in_flight else draw(phases),
                ready=draw(st.sampled_from([PodCondition("True"), NOT_READY])),
                replica_name=f"cpu-{number}",
                replica_index=number,
                host_index=index,
                num_of_hosts=made_for,
                deletion_timestamp="" if is_in_flight else draw(st.sampled_from(["", "", "", LATER])),
                node_name=draw(st.sampled_from(["node-0", "node-1"])),
                creation_timestamp=f"2026-01-01T00:00:{draw(st.integers(0, 59)):02d}Z",
            )
        )
    return found


@st.composite
def observed_states(draw):
    pods = [each for number in range(draw(st.integers(0, 5))) for each in draw(some_hosts(number))]
    pods += [
        plain(i, replica_index=draw(st.sampled_from([None, None, 7])))
        for i in range(draw(st.sampled_from([0, 0, 2, 5])))
    ]
    named = draw(st.lists(st.sampled_from([*(each.name for each in pods), "deployment-pod"]), max_size=2))
    group = group_of(draw(st.integers(0, 4)), 3, to_delete=tuple(named))
    return group, draw(st.permutations(pods)), draw(st.booleans())


def carry_out(pods, decision, draw_outcome=lambda: True):
    """What the overlay shows afterwards: hosts in flight unless they were rejected, deletions marked."""
    doomed = {victim.pod.name for victim in decision.victims}
    stay = [each.marked_terminating(LATER) if each.name in doomed else each for each in pods]
    created_at = [
        pending(
            f"demo-cpu-worker-{new.replica_name}-{new.host_index}-{len(pods)}",
            uid=f"uid-{new.replica_name}-{new.host_index}-{len(pods)}",
            replica_name=new.replica_name,
            replica_index=new.replica_index,
            host_index=new.host_index,
            num_of_hosts=3,
            creation_timestamp=LATER,
        )
        for new in decision.new_hosts
        if draw_outcome()
    ]
    return stay + created_at


@pytest.mark.rule("RM:I1", "RM:I4", "RM:I5", "D6")
@given(observed_states())
def test_decisions_stay_within_bounds_delete_only_own_pods_and_are_idempotent(state):
    group, pods, may_choose = state
    decision = decide(group, pods, may_choose_victims=may_choose)
    alive = {each.name for each in pods if not each.is_terminating}
    doomed = [victim.pod.name for victim in decision.victims]
    assert set(doomed) <= alive
    assert len(doomed) == len(set(doomed))
    assert all(victim.reason for victim in decision.victims)

    after = carry_out(pods, decision)
    assert not decision.new_hosts or len(after) <= clamp_replicas(group) * 3, "the dying included"
    again = decide(group, after, may_choose_victims=may_choose)
    assert again.new_hosts == ()
    assert not again.victims or decision.is_continued
    assert all(victim.pod.is_finished for victim in again.victims), "the last of their replicas"
    last = decide(group, carry_out(after, again), may_choose_victims=may_choose)
    assert (last.new_hosts, last.victims) == ((), ())


@pytest.mark.rule("RM:I6", "RM:I14")
@given(observed_states(), st.data())
def test_the_group_ends_with_whole_replicas_whichever_creates_are_rejected(state, data):
    group, pods, may_choose = state
    for attempt in range(12):
        has_luck = attempt > 5
        decision = decide(group, pods, may_choose_victims=may_choose)
        pods = carry_out(pods, decision, lambda luck=has_luck: luck or data.draw(st.booleans()))
        if has_luck or data.draw(st.booleans()):
            pods = [each for each in pods if not each.is_terminating]
    whole = clamp_replicas(group)
    replicas = {}
    for each in pods:
        replicas.setdefault(each.replica_name, []).append(each.host_index)
    unlabelled = replicas.pop("", [])
    assert len(unlabelled) % 3 == 0
    assert all(sorted(indices) == [0, 1, 2] for indices in replicas.values())
    count = len(replicas) + len(unlabelled) // 3
    assert count == whole if may_choose else count >= whole


@pytest.mark.rule("RM:I23")
@given(observed_states(), st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_the_order_of_pods(state, random):
    group, pods, may_choose = state
    shuffled = random.sample(pods, len(pods))
    one, other = (decide(group, seen, may_choose_victims=may_choose) for seen in (pods, shuffled))
    assert victims(one) == victims(other)
    assert sorted(created(one)) == sorted(created(other))
