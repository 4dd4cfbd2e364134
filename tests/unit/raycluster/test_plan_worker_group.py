"""Created and deleted workers, one test per rule; and properties for random groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api.actions import MAX_WRITES
from raytide.api.pod import ContainerView, PodCondition
from raytide.raycluster.desired_replicas import ScalingState, clamp_replicas, wanted_pods
from raytide.raycluster.plan_worker_group import GroupInputs, plan_group, removed_groups
from support.builders import NOT_READY, dying, pending, pod, waiting, worker_group

UNSCHEDULABLE = PodCondition("False", "Unschedulable", "0/3 nodes are available")


def order_of(group):
    """The desired replicas of the spec."""
    return ScalingState().desired_replicas_of(group)


def decide(group, pods, *, outdated_names=(), **context):
    """`plan_group` where the spec rules."""
    return plan_group(GroupInputs(group, pods, order_of(group), **context), outdated_names=outdated_names)


def running(count, **fields):
    return [
        pod(f"demo-cpu-worker-run{i:02d}", creation_timestamp=f"2026-01-01T00:00:{i:02d}Z", **fields)
        for i in range(count)
    ]


def victims(decision):
    return [victim.pod.name.removeprefix("demo-cpu-worker-") for victim in decision.victims]


@pytest.mark.rule("RC:WG-2")
@pytest.mark.parametrize(
    ("replicas", "low", "high", "wanted"),
    [
        pytest.param(2, 0, 10, 2, id="replicas between the bounds are unchanged"),
        pytest.param(0, 2, 4, 2, id="too few become the minimum"),
        pytest.param(9, 0, 3, 3, id="too many become the maximum"),
        pytest.param(None, 1, 3, 1, id="absent replicas mean the minimum"),
        pytest.param(7, 0, None, 7, id="an absent maximum bounds nothing"),
    ],
)
def test_replicas_are_clamped(replicas, low, high, wanted):
    assert clamp_replicas(worker_group(replicas=replicas, low=low, high=high)) == wanted


@pytest.mark.rule("RC:WG-1")
def test_a_suspended_group_has_no_pods():
    group = worker_group(replicas=3).model_copy(update={"suspend": True})
    assert wanted_pods(group, order_of(group)) == 0
    assert len(decide(group, running(3)).victims) == 3


@pytest.mark.rule("RC:SH-4")
@pytest.mark.parametrize(
    ("taken", "wanted", "expected"),
    [
        pytest.param([], 3, (0, 1, 2), id="an empty group counts from zero"),
        pytest.param([0, 2], 4, (1, 3), id="gaps are filled first"),
        pytest.param([None, 5], 3, (0,), id="a pod without an index takes none"),
    ],
)
def test_new_workers_get_the_smallest_unused_index(taken, wanted, expected):
    pods = [pod(f"demo-cpu-worker-{i}", replica_index=index) for i, index in enumerate(taken)]
    assert decide(worker_group(replicas=wanted), pods).create_indices == expected


@pytest.mark.rule("RC:SH-4")
def test_the_index_of_a_terminating_worker_is_not_reused():
    lost = dying("demo-cpu-worker-aaaaa", replica_index=0, node_name="gone")
    assert decide(worker_group(replicas=1), [lost], unready_nodes={"gone"}).create_indices == (1,)


@pytest.mark.rule("RC:SH-4", "D6")
def test_the_index_of_a_worker_that_an_abandoned_request_may_still_create_is_not_used():
    assert decide(worker_group(replicas=3), running(1), arriving_indices={2}).create_indices == (0, 1)
    assert decide(worker_group(replicas=4), [], arriving_indices={1, 2}).create_indices == (0, 3, 4, 5)


@pytest.mark.rule("RC:SH-6")
def test_a_group_with_the_desired_replicas_is_not_changed():
    decision = decide(worker_group(replicas=3), running(3))
    assert (decision.create_indices, decision.victims, decision.unknown_names) == ((), (), ())


@pytest.mark.rule("RC:EX-5", "SC:S12")
@pytest.mark.parametrize(
    ("node", "unready", "created"),
    [
        pytest.param("node-0", frozenset(), 0, id="a terminating worker counts until it is gone"),
        pytest.param("node-0", frozenset({"node-0"}), 1, id="unless its node is unready"),
        pytest.param("", frozenset({"node-0"}), 0, id="a terminating worker that never had a node counts"),
    ],
)
def test_terminating_workers(node, unready, created):
    pods = [*running(1), dying("demo-cpu-worker-dying", node_name=node)]
    assert len(decide(worker_group(replicas=2), pods, unready_nodes=unready).create_indices) == created


@pytest.mark.rule("RC:EX-5")
def test_terminating_workers_are_not_deleted_again_and_no_other_worker_is_deleted_instead():
    pods = [*running(2), dying("demo-cpu-worker-dying")]
    assert victims(decide(worker_group(replicas=2), pods)) == []


ENDED = (ContainerView("ray-worker", "terminated", "Error"),)


@pytest.mark.rule("RC:SD-1", "RC:SD-2", "RC:SD-3")
@pytest.mark.parametrize(
    ("fields", "is_replaced"),
    [
        pytest.param({"phase": "Failed"}, True, id="a failed worker is replaced"),
        pytest.param({"phase": "Succeeded"}, True, id="a finished worker is replaced"),
        pytest.param(
            {"restart_policy": "Never", "containers": ENDED}, True, id="ended Ray, restartPolicy Never: replaced"
        ),
        pytest.param({"restart_policy": "Always", "containers": ENDED}, False, id="ended Ray that will restart: kept"),
        pytest.param(
            {"restart_policy": "Never", "containers": (ContainerView("sidecar", "terminated"),)},
            False,
            id="an ended sidecar: kept",
        ),
        pytest.param({"phase": "Pending", "ready": NOT_READY}, False, id="a pending worker is kept"),
        pytest.param({"phase": "Unknown"}, False, id="a worker of unknown phase is kept"),
        pytest.param({"containers": (waiting("ray-worker", "CrashLoopBackOff"),)}, False, id="a crash loop is kept"),
    ],
)
def test_replacement(fields, is_replaced):
    decision = decide(worker_group(replicas=1), [pod("demo-cpu-worker-aaaaa", **fields)])
    assert bool(decision.victims) is is_replaced
    assert decision.create_indices == (), "the successor is made once the old one is gone"


@pytest.mark.rule("RC:SH-2")
def test_named_workers_are_deleted_first_whatever_their_phase_and_replicas():
    pods = [*running(3), pending("demo-cpu-worker-pend")]
    decision = decide(worker_group(replicas=4, to_delete=("demo-cpu-worker-run01",)), pods)
    assert victims(decision) == ["run01"]
    assert decision.create_indices == (), "the named worker counts until it is gone"


@pytest.mark.rule("RC:SH-2", "RC:SH-3")
def test_naming_a_worker_and_lowering_replicas_deletes_exactly_that_worker():
    decision = decide(worker_group(replicas=2, to_delete=("demo-cpu-worker-run01",)), running(3))
    assert victims(decision) == ["run01"]


@pytest.mark.rule("SC:S10", "RM:I5")
@pytest.mark.parametrize(
    ("named", "is_foreign"),
    [
        pytest.param("deployment-pod", True, id="a pod that cannot be a worker is reported"),
        pytest.param("b-cpu-worker-xxxxx", True, id="another cluster's worker is reported"),
        pytest.param("demo-cpu-worker-zzzzz", False, id="a deleted worker is ignored"),
        pytest.param("demo-cpu-worker-run00", False, id="a worker of the group is not reported"),
    ],
)
def test_foreign_names_are_reported_and_never_deleted(named, is_foreign):
    decision = decide(worker_group(replicas=2, to_delete=(named,)), running(2), existing_names={"b-cpu-worker-xxxxx"})
    assert decision.unknown_names == ((named,) if is_foreign else ())
    assert all(victim.pod.cluster == "demo" for victim in decision.victims)


def shrink(pods, replicas):
    return victims(decide(worker_group(replicas=replicas), pods))


@pytest.mark.rule("SC:S9")
def test_the_right_victims():
    """Ten workers, six running and four pending: 10 → 7 → 6 → 5."""
    pods = [*running(6), *[pending(f"demo-cpu-worker-pend{i}") for i in range(4)]]
    assert sorted(shrink(pods, 7)) == ["pend1", "pend2", "pend3"]
    assert shrink([*running(6), pending("demo-cpu-worker-pend0")], 6) == ["pend0"]
    assert shrink(running(6), 5) == ["run05"], "the newest"


@pytest.mark.rule("SC:S9")
def test_stuck_then_pending_then_failing_then_not_ready_then_the_newest():
    pods = [
        pod("demo-cpu-worker-old", creation_timestamp="2026-01-01T00:00:00Z"),
        pod("demo-cpu-worker-new", creation_timestamp="2026-01-02T00:00:00Z"),
        pod("demo-cpu-worker-unready", ready=NOT_READY),
        pod("demo-cpu-worker-crash", ready=NOT_READY, containers=(waiting("ray-worker", "CrashLoopBackOff"),)),
        pending("demo-cpu-worker-pend"),
        pending("demo-cpu-worker-stuck", scheduled=UNSCHEDULABLE),
    ]
    assert shrink(pods, 0) == ["stuck", "pend", "crash", "unready", "new", "old"]


def test_surplus_workers_with_a_create_in_flight_are_deleted_before_running_ones():
    in_flight = pending("demo-cpu-worker-flight", uid="", creation_timestamp="")
    assert shrink([*running(2), in_flight], 2) == ["flight"]


@pytest.mark.rule("RC:SH-5")
def test_under_autoscaling_workers_are_deleted_only_by_name():
    group = worker_group(replicas=1, to_delete=("demo-cpu-worker-run02",))
    assert victims(decide(group, running(5), may_choose_victims=False)) == ["run02"]


@pytest.mark.rule("D6", "RC:SH-5")
def test_but_a_surplus_create_without_an_answer_is_not_repeated():
    in_flight = pending("demo-cpu-worker-flight", uid="", creation_timestamp="")
    group = worker_group(replicas=1)
    assert victims(decide(group, [*running(2), in_flight], may_choose_victims=False)) == ["flight"]


@pytest.mark.rule("D6")
@pytest.mark.parametrize(
    ("wanted", "leaving", "withheld"),
    [
        pytest.param(3, 1, 1, id="a pod still leaves: its place is not free"),
        pytest.param(4, 1, 0, id="there is a place for both"),
        pytest.param(3, 0, 0, id="nothing leaves"),
    ],
)
@pytest.mark.parametrize("may_choose", [True, False], ids=["spec", "autoscaling"])
def test_a_create_without_an_answer_is_repeated_once_its_place_is_free(wanted, leaving, withheld, may_choose):
    in_flight = pending("demo-cpu-worker-flight", uid="", creation_timestamp="")
    gone = [dying(f"demo-cpu-worker-dying{i}") for i in range(leaving)]
    decision = decide(worker_group(replicas=wanted), [*running(2), in_flight, *gone], may_choose_victims=may_choose)
    assert (victims(decision), decision.create_indices) == ([], ())
    assert decision.withheld == (in_flight,) * withheld


@pytest.mark.rule("SC:S14")
def test_workers_of_a_removed_group_are_deleted():
    pods = [*running(2), pod("demo-gone-worker-a", group="gone"), dying("demo-gone-worker-b", group="gone")]
    assert [victim.pod.name for victim in removed_groups({"cpu"}, pods)] == ["demo-gone-worker-a"]


# --- for any group ---------------------------------------------------------------------------------------------------

phases = st.sampled_from(["Running", "Pending", "Failed", "Succeeded", "Unknown", ""])


@st.composite
def groups_of_pods(draw):
    count = draw(st.integers(0, 12))
    in_flight = draw(st.integers(0, 3))
    return [
        *(pending(f"demo-cpu-worker-flight{i}", uid="", creation_timestamp="") for i in range(in_flight)),
        *(draw(seen_pods(i)) for i in range(count)),
    ]


@st.composite
def seen_pods(draw, i):
    return pod(
        f"demo-cpu-worker-{i:05d}",
        phase=draw(phases),
        ready=draw(st.sampled_from([PodCondition("True"), NOT_READY])),
        replica_index=draw(st.none() | st.integers(0, 6)),
        deletion_timestamp=draw(st.sampled_from(["", "", "2026-01-01T00:00:00Z"])),
        node_name=draw(st.sampled_from(["node-0", "node-1"])),
        creation_timestamp=f"2026-01-01T00:00:{draw(st.integers(0, 59)):02d}Z",
    )


@st.composite
def situations(draw):
    pods = draw(groups_of_pods())
    known = [p.name for p in pods]
    named = draw(st.lists(st.sampled_from([*known, "deployment-pod", "b-x-worker-1"]), max_size=4))
    group = worker_group(
        replicas=draw(st.integers(0, 12)),
        low=draw(st.integers(0, 3)),
        high=draw(st.integers(3, 8)),
        to_delete=tuple(named),
    )
    return group, pods, draw(st.booleans()), draw(st.sampled_from([frozenset(), frozenset({"node-1"})]))


def carry_out(pods, decision):
    """What the overlay shows after the writes: creations in flight, deletions marked, the unwanted found and deleted."""
    doomed = {victim.pod.name for victim in decision.victims}
    stay = [p.marked_terminating("2026-01-01T02:00:00Z") if p.name in doomed else p for p in pods]
    created = [
        pending(f"demo-cpu-worker-new{i}", uid="", replica_index=index)
        for i, index in enumerate(decision.create_indices)
    ]
    return stay + created


@pytest.mark.rule("RM:I1", "RM:I4", "D6")
@given(situations())
def test_decisions_stay_within_bounds_delete_only_own_pods_and_are_idempotent(situation):
    group, pods, may_choose, unready = situation
    decision = decide(group, pods, may_choose_victims=may_choose, unready_nodes=unready)
    wanted = wanted_pods(group, order_of(group))
    uids = {p.uid for p in pods if not p.is_terminating} - {""}
    doomed = [victim.pod.uid for victim in decision.victims if victim.pod.uid]
    unwanted = {victim.pod.name for victim in decision.victims if not victim.pod.uid}
    assert set(doomed) <= uids
    assert len(doomed) == len(set(doomed))
    assert unwanted <= {p.name for p in pods if not p.uid}, "only what may not exist yet has no uid"

    after = carry_out(pods, decision)
    counted = [p for p in after if not (p.is_terminating and p.node_name in unready)]
    assert not decision.create_indices or len(counted) <= wanted, "creates only up to what is wanted, dying included"
    indices = [p.replica_index for p in after if p.replica_index is not None]
    assert all(indices.count(index) == 1 for index in decision.create_indices)

    again = decide(group, after, may_choose_victims=may_choose, unready_nodes=unready)
    assert (again.create_indices, again.victims) == ((), ())


@pytest.mark.rule("RM:I4")
@given(groups_of_pods(), st.integers(0, 12))
def test_no_running_pod_is_chosen_while_a_pending_one_remains(pods, replicas):
    decision = decide(worker_group(replicas=replicas, high=20), pods)
    doomed = {victim.pod.name for victim in decision.victims if "has" in victim.reason and "of" in victim.reason}
    alive = [p for p in pods if not p.is_terminating and not p.is_finished]
    if any(p.is_running for p in alive if p.name in doomed):
        assert all(p.is_running for p in alive if p.name not in doomed and p.uid)


def test_two_thousand_million_replicas_do_not_exhaust_memory():
    decision = decide(worker_group(replicas=2_000_000_000, high=None), [])
    assert decision.create_indices == tuple(range(MAX_WRITES))


def test_a_negative_number_of_hosts_means_none():
    group = worker_group(replicas=2).model_copy(update={"num_of_hosts": -1})
    assert wanted_pods(group, order_of(group)) == 0
