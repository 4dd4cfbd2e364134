"""The desired replicas of a group and its victims: one rule of the contract per row (D19)."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api import constants
from raytide.api.actions import Create, Delete
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide.api.conditions import timestamp
from raytide.api.config import ClusterConfig
from raytide.api.pod import ContainerView
from raytide.api.raycluster import RayCluster
from raytide.raycluster.desired_replicas import DesiredReplicas, scaling_of
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from support.builders import CLUSTER_UID, group, head, head_service, parsed, pod, raycluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = ContainerView(constants.AUTOSCALER_CONTAINER, "running")
HEAD = head(containers=(ContainerView("ray-head", "running"), RUNNING))
RECORD = DecisionRecord(CLUSTER_UID, HEAD.uid, NOW)
CONFIG = ClusterConfig()
OLD_HEAD = replace(RECORD, head="uid-before")


def scaled(*groups, record=RECORD, down_since=None, is_down=False, annotations=None, autoscaling=True, **decided):
    """An autoscaled RayCluster whose record decides `group=GroupDecision`."""
    found = {**(annotations or {})}
    if record is not None:
        text = encode_record(replace(record, groups=decided))
        found = {constants.AUTOSCALER_DECISION_ANNOTATION: text, **found}
    cluster = raycluster(*groups, enableInTreeAutoscaling=autoscaling)
    cluster["metadata"]["annotations"] = found
    if down_since is not None:
        condition = {"type": constants.AUTOSCALER_DOWN, "status": str(is_down), "reason": "HeadMissing", "message": ""}
        cluster["status"] = {"conditions": [{**condition, "lastTransitionTime": timestamp(down_since)}]}
    return RayCluster.parse(cluster)


def seen(*pods, at=NOW, **more):
    return Observed(pods=pods, services=(head_service(),), seen_at=at, **more)


def order(cluster, state=None):
    """What becomes of its first group."""
    observed = seen(HEAD) if state is None else state
    return scaling_of(cluster, observed).desired_replicas_of(cluster.spec.worker_group_specs[0])


def workers(count, group="cpu"):
    return tuple(pod(f"demo-{group}-worker-{i:05d}", group=group) for i in range(count))


def decide(cluster, *pods, at=NOW, config=CONFIG, **more):
    todo = plan(cluster, seen(*pods, at=at, **more), config, lambda prefix: f"{prefix}xxxxx")
    made = [action for action in todo.actions if isinstance(action, Create) and action.group == "cpu"]
    gone = [action.name for action in todo.actions if isinstance(action, Delete)]
    return len(made), gone, todo


# --- valid -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D19")
def test_a_valid_record_rules():
    assert order(scaled(group(replicas=2), cpu=GroupDecision(5))) == DesiredReplicas(5)


@pytest.mark.rule("D19", "SC:S6", "RC:WG-2")
@pytest.mark.parametrize(
    ("replicas", "decision", "bounds", "expected"),
    [
        pytest.param(20, GroupDecision(20), (0, 30), 20, id="spec and record agree"),
        pytest.param(1, GroupDecision(20), (0, 30), 20, id="lower replicas of another writer are not followed"),
        pytest.param(30, GroupDecision(20), (0, 30), 30, id="a foreign higher number is adopted"),
        pytest.param(30, GroupDecision(20, adopted_replicas=30), (0, 30), 20, id="once"),
        pytest.param(
            30, GroupDecision(20, adopted_replicas=25), (0, 30), 30, id="another higher number is adopted too"
        ),
        pytest.param(None, GroupDecision(20), (0, 30), 20, id="replicas taken out of the spec is no order"),
        pytest.param(20, GroupDecision(20), (0, 10), 10, id="max takes precedence over the record at once"),
        pytest.param(
            90, GroupDecision(20), (0, 30), 30, id="max takes precedence over another writer's number at once"
        ),
        pytest.param(2, GroupDecision(2), (5, 30), 5, id="min takes precedence at once"),
        pytest.param(2, GroupDecision(2), (9, 5), 9, id="min takes precedence over max, as in KubeRay"),
    ],
)
def test_target_under_a_valid_record(replicas, decision, bounds, expected):
    cluster = scaled(group(replicas=replicas, low=bounds[0], high=bounds[1]), cpu=decision)
    assert order(cluster).replicas == expected


@pytest.mark.rule("D19")
def test_a_group_without_an_entry_in_the_record_follows_the_spec():
    assert order(scaled(group(replicas=3), gpu=GroupDecision(7))) == DesiredReplicas(3)


@pytest.mark.rule("D19", "RM:I4")
def test_names_are_those_of_spec_and_record():
    cluster = scaled(
        group(scaleStrategy={"workersToDelete": ["demo-cpu-worker-a"]}),
        cpu=GroupDecision(2, delete=("demo-cpu-worker-b",)),
    )
    assert order(cluster).names == {"demo-cpu-worker-a", "demo-cpu-worker-b"}


@pytest.mark.rule("D19", "RM:I4", "RM:I5")
def test_names_in_the_record_end_only_pods_of_their_own_group_and_cluster():
    mine, others = workers(3), workers(2, "gpu")
    foreign_pod = pod("demo-cpu-worker-other", owner_uid="uid-other")
    named = (mine[1].name, others[0].name, foreign_pod.name, HEAD.name, "demo-cpu-worker-gone0")
    cluster = scaled(
        group(replicas=2), group("gpu", replicas=2), cpu=GroupDecision(2, delete=named), gpu=GroupDecision(2)
    )
    made, gone, todo = decide(cluster, HEAD, *mine, *others, foreign_names=frozenset({foreign_pod.name}))
    assert (made, gone) == (0, [mine[1].name])
    messages = " ".join(event.message for event in todo.events)
    assert all(name in messages for name in (others[0].name, foreign_pod.name, HEAD.name))


# --- not valid -------------------------------------------------------------------------------------------------------

CRASHING = ContainerView(constants.AUTOSCALER_CONTAINER, "waiting", "CrashLoopBackOff")
ENDED = ContainerView(constants.AUTOSCALER_CONTAINER, "terminated", "Error", exit_code=1)


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param(seen(HEAD), None, id="the head of the record with a running autoscaler: valid"),
        pytest.param(
            seen(head(containers=(ContainerView(constants.AUTOSCALER_CONTAINER, "running", restart_count=9),))),
            None,
            id="a container that was restarted and runs: valid",
        ),
        pytest.param(seen(), "HeadMissing", id="no head"),
        pytest.param(seen(head("demo-head-bbbbb", containers=(RUNNING,))), "HeadReplaced", id="another head"),
        pytest.param(
            seen(head("demo-head-bbbbb", uid="", containers=(RUNNING,))), "HeadReplaced", id="a head still in flight"
        ),
        pytest.param(
            seen(head(containers=(RUNNING,), deletion_timestamp="-"), head("demo-head-bbbbb")),
            "HeadReplaced",
            id="the head of the record is dying and another is there",
        ),
        pytest.param(seen(head(containers=())), "AutoscalerNotRunning", id="containers not reported yet"),
        pytest.param(seen(head(containers=(ContainerView("ray-head", "running"),))), "AutoscalerNotRunning", id="none"),
        pytest.param(seen(head(containers=(CRASHING,))), "AutoscalerNotRunning", id="it waits in a crash loop"),
        pytest.param(seen(head(containers=(ENDED,))), "AutoscalerNotRunning", id="it has ended"),
        pytest.param(
            seen(head(phase="Failed", containers=(RUNNING,))), "AutoscalerNotRunning", id="the head pod has ended"
        ),
        pytest.param(seen(HEAD, unready_nodes=frozenset({"node-0"})), "HeadNodeAway", id="its node is away"),
    ],
)
def test_validity(state, reason):
    scaling = scaling_of(scaled(cpu=GroupDecision(5)), state)
    assert (scaling.record_problem.reason if scaling.record_problem else None) == reason
    assert scaling.record is not None, "followed for five minutes nevertheless"


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("down_since", "is_down", "replicas"),
    [
        pytest.param(None, False, 5, id="a fault that is not reported yet: the record applies"),
        pytest.param(NOW - timedelta(seconds=299), False, 5, id="not valid for 299 s: the record rules"),
        pytest.param(NOW - timedelta(seconds=300), False, 2, id="not valid for 300 s: spec.replicas rules"),
        pytest.param(NOW - timedelta(seconds=1), True, 2, id="called down already: spec.replicas rules"),
        pytest.param(NOW + timedelta(hours=1), False, 5, id="a moment in the future: the record rules"),
    ],
)
def test_stale(down_since, is_down, replicas):
    cluster = scaled(group(replicas=2), record=OLD_HEAD, down_since=down_since, is_down=is_down, cpu=GroupDecision(5))
    assert order(cluster).replicas == replicas


@pytest.mark.rule("D19")
def test_an_autoscaler_that_is_back_rules_again_at_once():
    cluster = scaled(group(replicas=2), down_since=NOW - timedelta(hours=1), is_down=True, cpu=GroupDecision(5))
    assert order(cluster).replicas == 5


@pytest.mark.rule("D19", "RM:I4")
@pytest.mark.parametrize("is_random", [False, True])
def test_no_worker_is_deleted_while_the_autoscaler_is_down(is_random):
    cluster = scaled(
        group(replicas=2), record=OLD_HEAD, down_since=NOW - timedelta(hours=1), is_down=True, cpu=GroupDecision(5)
    )
    config = ClusterConfig(is_random_pod_delete_enabled=is_random)
    assert decide(cluster, HEAD, *workers(5), config=config)[:2] == (0, [])


@pytest.mark.rule("D19")
def test_a_record_made_for_another_cluster_never_rules():
    copied = replace(RECORD, cluster="uid-of-the-backup")
    assert order(scaled(group(replicas=2), record=copied, cpu=GroupDecision(5))).replicas == 2


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"autoscaling": False}, id="autoscaling switched off: the record is ignored"),
        pytest.param({"annotations": {constants.AUTOSCALER_ANNOTATION: "paused"}}, id="paused: the spec rules"),
        pytest.param({"record": None}, id="no record at all: the spec rules, as in KubeRay"),
        pytest.param({"annotations": {constants.AUTOSCALER_DECISION_ANNOTATION: "{"}}, id="an unreadable record"),
    ],
)
def test_the_spec_rules(changes):
    cluster = scaled(
        group(replicas=2, scaleStrategy={"workersToDelete": ["demo-cpu-worker-a"]}),
        **changes,
        cpu=GroupDecision(5, delete=("demo-cpu-worker-b",)),
    )
    assert order(cluster) == DesiredReplicas(2, frozenset({"demo-cpu-worker-a"}))
    assert scaling_of(cluster, seen()).record_problem is None


@pytest.mark.rule("D19")
def test_a_record_left_over_from_before_the_cluster_chose_rays_autoscaler_rules_no_longer_than_its_author_runs():
    cluster = raycluster(
        group(replicas=2), enableInTreeAutoscaling=True, autoscalerOptions={"image": "rayproject/ray:2.52.0"}
    )
    text = encode_record(replace(RECORD, groups={"cpu": GroupDecision(5)}))
    cluster["metadata"]["annotations"] = {constants.AUTOSCALER_DECISION_ANNOTATION: text}
    chosen = RayCluster.parse(cluster)
    assert order(chosen).replicas == 5
    after = seen(head("demo-head-bbbbb", containers=(RUNNING,)))
    assert order(chosen, after).replicas == 2
    assert scaling_of(chosen, after).record_problem is None, "no autoscaler is down"


@pytest.mark.rule("D19")
def test_where_rays_autoscaler_is_the_rule_a_record_rules_no_longer_than_its_author_runs():
    cluster = scaled(cpu=GroupDecision(5))
    group_spec = cluster.spec.worker_group_specs[0]
    assert scaling_of(cluster, seen(HEAD), "ray").desired_replicas_of(group_spec).replicas == 5
    after = seen(head("demo-head-bbbbb", containers=(RUNNING,)))
    left_over = scaling_of(cluster, after, "ray")
    assert (left_over.record, left_over.record_problem) == (None, None), "no autoscaler is down"
    assert scaling_of(cluster, after).record_problem is not None


@pytest.mark.rule("D19")
def test_any_other_value_of_the_annotation_pauses_nothing():
    cluster = scaled(annotations={constants.AUTOSCALER_ANNOTATION: "on"}, cpu=GroupDecision(5))
    assert order(cluster).replicas == 5


# --- deletes only named workers --------------------------------------------------------------------------------------


@pytest.mark.rule("D19", "RM:I4", "RC:SH-5")
@pytest.mark.parametrize(
    ("changes", "is_random", "killed"),
    [
        pytest.param({}, False, 0, id="a valid record: the operator deletes only named workers"),
        pytest.param({}, True, 0, id="even where random deletion is allowed: it drains before it names"),
        pytest.param({"record": OLD_HEAD}, True, 0, id="nor while it is not valid"),
        pytest.param({"annotations": {constants.AUTOSCALER_ANNOTATION: "paused"}}, False, 0, id="nor while paused"),
        pytest.param({"record": None}, False, 0, id="nor under Ray's own sidecar"),
        pytest.param({"record": None}, True, 3, id="whose clusters may be shrunk at random where KubeRay may"),
        pytest.param({"autoscaling": False}, False, 3, id="without autoscaling the operator chooses"),
    ],
)
def test_too_many_workers(changes, is_random, killed):
    cluster = scaled(group(replicas=2), **changes, cpu=GroupDecision(2))
    config = ClusterConfig(is_random_pod_delete_enabled=is_random)
    made, gone, _ = decide(cluster, HEAD, *workers(5), config=config)
    assert (made, len(gone)) == (0, killed)


@pytest.mark.rule("D19")
def test_a_scale_down_makes_no_replacement():
    """Replicas first, names once the drain is accepted, and then the pod is gone."""
    pods, named = workers(3), GroupDecision(2, delete=(workers(3)[2].name,))
    steps = [(GroupDecision(2), pods), (named, pods), (named, pods[:2]), (GroupDecision(2), pods[:2])]
    results = [decide(scaled(group(replicas=2), cpu=decision), HEAD, *present)[:2] for decision, present in steps]
    assert results == [(0, []), (0, [pods[2].name]), (0, []), (0, [])]


# --- workers that ended well -----------------------------------------------------------------------------------------


def ended(name="demo-cpu-worker-00000", *, ago=timedelta(), code=0):
    container = ContainerView("ray-worker", "terminated", "Completed", exit_code=code, finished_at=timestamp(NOW - ago))
    return pod(name, phase="Succeeded" if code == 0 else "Failed", containers=(container,))


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("worker", "changes", "is_replaced"),
    [
        pytest.param(ended(), {}, False, id="a worker that exited 0 is not replaced at once"),
        pytest.param(ended(ago=timedelta(seconds=2)), {}, False, id="nor before two seconds are surely over"),
        pytest.param(ended(ago=timedelta(seconds=3)), {}, True, id="then it is"),
        pytest.param(ended(), {"named": True}, True, id="or when it is named"),
        pytest.param(ended(code=1), {}, True, id="one that failed is replaced at once"),
        pytest.param(ended(ago=-timedelta(seconds=2)), {}, False, id="a node's clock may be a little ahead"),
        pytest.param(ended(ago=-timedelta(hours=1)), {}, True, id="a timestamp one hour in the future is ignored"),
        pytest.param(ended(), {"autoscaling": False}, True, id="without autoscaling there is no wait"),
        pytest.param(ended(), {"record": RECORD}, False, id="with Raytide's sidecar the same"),
    ],
)
def test_a_worker_that_exited_0(worker, changes, is_replaced):
    named = {"scaleStrategy": {"workersToDelete": [worker.name]}} if changes.get("named") else {}
    cluster = scaled(
        group(replicas=1, **named),
        record=changes.get("record"),
        autoscaling=changes.get("autoscaling", True),
        cpu=GroupDecision(1),
    )
    made, gone, todo = decide(cluster, HEAD, worker)
    assert gone == ([worker.name] if is_replaced else [])
    assert made == 0, "the successor is made once the old one is gone"
    if not is_replaced:
        assert todo.requeue_after_s is not None
        assert 0 < todo.requeue_after_s <= 5


# --- whatever happens ------------------------------------------------------------------------------------------------

counts = st.none() | st.integers(0, 12)
worker_names = st.lists(st.sampled_from([f"demo-cpu-worker-{i:05d}" for i in range(8)]), max_size=4, unique=True)
decided = st.builds(GroupDecision, st.integers(0, 12), worker_names.map(tuple), counts)


@pytest.mark.rule("D19", "RM:I4", "RM:I7", "RM:I21")
@given(
    replicas=counts,
    low=st.integers(0, 4),
    span=st.integers(0, 6),
    named=worker_names,
    decision=decided,
    alive=st.integers(0, 8),
    is_random=st.booleans(),
    is_valid=st.booleans(),
    invalid_for=st.none() | st.integers(0, 600),
)
def test_only_named_workers_are_deleted_and_the_target_stays_between_min_and_max(
    *, replicas, low, span, named, decision, alive, is_random, is_valid, invalid_for
):
    cluster = scaled(
        group(replicas=replicas, low=low, high=low + span, scaleStrategy={"workersToDelete": named}),
        record=RECORD if is_valid else OLD_HEAD,
        down_since=None if invalid_for is None else NOW - timedelta(seconds=invalid_for),
        cpu=decision,
    )
    wanted = order(cluster)
    assert low <= wanted.replicas <= low + span
    pods = workers(alive)
    config = ClusterConfig(is_random_pod_delete_enabled=is_random)
    made, gone, _ = decide(cluster, HEAD, *pods, config=config)
    assert set(gone) <= {*named, *decision.delete}
    assert set(gone) == {p.name for p in pods if p.name in wanted.names}
    assert made == max(0, wanted.replicas - alive), "a pod that is about to go counts until it is gone"


@pytest.mark.rule("D19", "SC:S6")
@given(writes=st.lists(counts, max_size=20), decision=decided)
def test_one_foreign_number_repeated_for_ever_raises_the_target_once(writes, decision):
    """Between foreign writes a sidecar adopts what is to be adopted, and later decides its own number again."""
    own, adopted = decision.replicas, []
    for written in writes:
        raised = decision.replicas_to_adopt(written)
        if raised is not None:
            adopted.append(raised)
            decision = replace(decision, replicas=raised, adopted_replicas=raised)
            assert decision.replicas_to_adopt(written) is None, "the record takes over what the operator did meanwhile"
            decision = replace(decision, replicas=own)
    assert all(one != other for one, other in itertools.pairwise(adopted)), "never the same twice in a row"
    assert len(adopted) <= 1 or len(set(writes)) > 1


def test_clusters_without_autoscaling_have_no_record():
    scaling = scaling_of(parsed(), seen())
    assert (scaling.is_autoscaled, scaling.record, scaling.record_problem) == (False, None, None)
