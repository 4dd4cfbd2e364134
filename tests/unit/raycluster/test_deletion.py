"""What happens before a RayCluster with state in Redis is gone, and the event about data that stays there."""

from datetime import UTC, datetime, timedelta

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Delete
from raytide.api.config import ClusterConfig
from raytide.api.meta import JOBS, RAYCLUSTERS
from raytide.api.raycluster import RayCluster
from raytide.raycluster.deletion import (
    JobState,
    after_rejection,
    clean_up,
    is_being_deleted,
    is_head_gone,
    is_held,
    job_state,
    release_unclean,
    seconds_left,
    state_of,
    timed_out,
)
from raytide.raycluster.observed import observe
from support.builders import group, head, pod, raycluster

pytestmark = pytest.mark.rule("FD:RC-B1")
DELETED_AT = datetime(2026, 1, 1, tzinfo=UTC)
FINALIZER = constants.REDIS_CLEANUP_FINALIZER
OPTIONS = {"redisAddress": "redis:6379", "externalStorageNamespace": "my-ns"}
FT = {"gcsFaultToleranceOptions": OPTIONS, "rayVersion": "2.52.0"}
CONFIG = ClusterConfig()
TERMINATING = {"deletion_timestamp": "2026-01-01T00:00:01Z"}


def deleted(*finalizers, annotations=None, **spec):
    obj = raycluster(**spec)
    obj["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": list(finalizers),
        "annotations": annotations or {},
        "resourceVersion": "7",
    }
    return obj


def cleanup(phase="Running", **fields):
    return pod(
        "demo-redis-cleanup-abcde", owner_uid="uid-job", node_type=constants.REDIS_CLEANUP, phase=phase, **fields
    )


def seen(*pods, **observed):
    return observe("uid-demo", pods=pods, services=(), **observed)


def decide(*pods, job=None, after_s=0, obj=None, **observed):
    """What to do now with a cluster whose state is in Redis."""
    found = obj or deleted(FINALIZER, **FT)
    left_s = seconds_left(found, DELETED_AT + timedelta(seconds=after_s), after_s)
    if left_s <= 0:
        return timed_out(found)
    cluster = RayCluster.parse(found)
    return clean_up(cluster, seen(*pods, **observed), job, CONFIG, left_s=left_s, tried_for_s=after_s)


def unclean(obj, *pods, after_s=0):
    """What to do now with one that no Job cleans up after."""
    why = state_of(obj, CONFIG)
    assert isinstance(why, str)
    left_s = seconds_left(obj, DELETED_AT + timedelta(seconds=after_s), after_s)
    return release_unclean(obj, pods, why, left_s) if left_s > 0 else timed_out(obj)


def test_a_deletion_timestamp_marks_a_cluster_as_being_deleted():
    assert is_being_deleted(deleted())
    assert not is_being_deleted(raycluster())


@pytest.mark.rule("RC:REC-5", "D14", "RC:REC-2")
@pytest.mark.parametrize(
    ("obj", "held"),
    [
        pytest.param(deleted("example.com/hold", **FT), False, id="without the finalizer garbage collection does it"),
        pytest.param(deleted("example.com/hold", FINALIZER), True, id="with it"),
        pytest.param(deleted(FINALIZER, managedBy="example.com/other"), False, id="another operator removes it"),
        pytest.param(
            deleted(FINALIZER, managedBy=constants.MULTIKUEUE), True, id="no operator acts on a MultiKueue copy"
        ),
    ],
)
def test_the_finalizer_is_ours_to_remove(obj, held):
    assert is_held(obj) is held


# --- with state to remove --------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:FIN-3")
def test_pods_are_deleted_first_and_workers_are_not_waited_for():
    todo = decide(head(), pod(), cleanup())
    assert all(isinstance(each, Delete) and each.uid for each in todo.actions)
    assert {each.name for each in todo.actions} == {head().name, pod().name}
    assert (todo.release, todo.requeue_after_s) == (None, 300)
    assert not is_head_gone(seen(head(), pod()))
    assert not is_head_gone(seen(head(**TERMINATING), pod()))
    assert not is_head_gone(seen(pod(), arriving=[head()])), "its create may still be carried out"
    assert is_head_gone(seen(pod(**TERMINATING)))


@pytest.mark.rule("RC:FIN-3", "SC:S12")
def test_a_head_on_a_lost_node_is_not_waited_for():
    lost = head(node_name="n1", **TERMINATING)
    assert not is_head_gone(seen(lost))
    assert is_head_gone(seen(lost, unready_nodes=frozenset({"n1"})))


@pytest.mark.rule("RC:FIN-3", "RC:RJ-1")
def test_once_the_head_is_gone_the_job_is_created():
    todo = decide(pod(**TERMINATING), job=JobState.ABSENT)
    (create,) = todo.actions
    assert isinstance(create, Create)
    assert (create.resource, create.name) == (JOBS, "demo-redis-cleanup")
    assert (create.success_reason, create.failure_reason) == ("CreatedRedisCleanupJob", "FailedToCreateRedisCleanupJob")
    assert (todo.release, todo.requeue_after_s) == (None, 2)


@pytest.mark.rule("RC:RJ-1")
def test_in_a_foreground_deletion_the_job_has_no_owner_and_ends_by_its_ttl():
    """Garbage collection deletes all dependents before their owner, also those that come later."""
    (owned,) = decide(job=JobState.ABSENT).actions
    (free,) = decide(job=JobState.ABSENT, obj=deleted("foregroundDeletion", FINALIZER, **FT)).actions
    assert owned.manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-demo"
    assert "ttlSecondsAfterFinished" not in owned.manifest["spec"]
    assert "ownerReferences" not in free.manifest["metadata"]
    assert free.manifest["spec"]["ttlSecondsAfterFinished"] == 30
    cluster = RayCluster.parse(deleted("foregroundDeletion", FINALIZER, **FT))
    assert job_state(cluster, free.manifest) is JobState.RUNNING
    later = RayCluster.parse({**cluster.raw, "metadata": {**cluster.raw["metadata"], "uid": "uid-later"}})
    assert job_state(later, free.manifest) is JobState.ABSENT, "one of a cluster that was recreated under the same name"


@pytest.mark.rule("RC:RJ-1")
def test_the_job_ends_before_the_cluster_is_released():
    """A cluster that is created then may use the same storage namespace."""
    specs = [decide(job=JobState.ABSENT, after_s=after_s).actions[0].manifest["spec"] for after_s in (0, 200)]
    assert [spec["activeDeadlineSeconds"] for spec in specs] == [295, 95]


@pytest.mark.rule("RC:FIN-3", "SC:S20")
def test_an_operator_that_comes_back_late_tries_for_a_minute():
    obj = deleted(FINALIZER, **FT)
    assert seconds_left(obj, DELETED_AT + timedelta(hours=1), 0) == 60
    assert seconds_left(obj, DELETED_AT + timedelta(hours=1), 60) <= 0
    odd = {"deletionTimestamp": "?", "annotations": {constants.FT_DELETION_TIMEOUT_ANNOTATION: 5}}
    assert seconds_left({**obj, "metadata": {**obj["metadata"], **odd}}, DELETED_AT, 1) == 59


@pytest.mark.rule("RC:FIN-3", "SC:S12")
def test_what_a_lost_head_may_still_write_is_told():
    lost = head(node_name="n1", **TERMINATING)
    todo = decide(lost, job=JobState.SUCCEEDED, unready_nodes=frozenset({"n1"}))
    assert (todo.event.reason, bool(todo.release)) == (constants.REDIS_CLEANUP_FAILED, True)
    assert "may still write from node n1" in todo.event.message


@pytest.mark.rule("RC:FIN-3")
@pytest.mark.parametrize(
    ("job", "reason"),
    [
        pytest.param(JobState.SUCCEEDED, None, id="it succeeded: nothing stays"),
        pytest.param(JobState.FAILED, constants.REDIS_CLEANUP_FAILED, id="it failed"),
    ],
)
def test_when_the_job_has_ended_the_cluster_is_released(job, reason):
    todo = decide(job=job, after_s=9)
    assert todo.release
    assert (todo.event.reason if todo.event else None) == reason


@pytest.mark.rule("RC:FIN-3", "SC:S20")
@pytest.mark.parametrize(
    ("annotated", "after_s", "left_s"),
    [
        (None, 10, 290),
        ("70", 10, 60),
        ("0", 10, 290),
        ("-5", 10, 290),
        ("soon", 10, 290),
        ("9" * 5000, 10, 290),
        ("60", 60, None),
        (None, 300, None),
    ],
)
@pytest.mark.parametrize(
    "pods", [[head(**TERMINATING)], []], ids=["a head that does not end", "a Job that does not end"]
)
def test_the_deadline_comes_first_whatever_is_waited_for(annotated, after_s, left_s, pods):
    annotations = {constants.FT_DELETION_TIMEOUT_ANNOTATION: annotated} if annotated else {}
    obj = deleted(FINALIZER, annotations=annotations, **FT)
    todo = decide(*pods, job=None if pods else JobState.RUNNING, after_s=after_s, obj=obj)
    assert (todo.release is None) is (left_s is not None)
    if left_s is None:
        assert todo.event.reason == "ForceDeletedStuckCluster"
        assert "my-ns" in todo.event.message
    else:
        assert todo.requeue_after_s == (left_s if pods else 2.5)


@pytest.mark.rule("FD:PS3-1")
def test_a_head_that_lost_its_owner_keeps_its_state():
    """After `kubectl delete --cascade=orphan` it runs on, and the Job would remove the state under it."""
    todo = decide(head(owner_uid=""), job=JobState.ABSENT)
    assert (todo.event.reason, bool(todo.release)) == (constants.REDIS_CLEANUP_SKIPPED, True)
    assert f"{head().name} has no owner and runs on" in todo.event.message


@pytest.mark.rule("RC:FIN-3")
@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], JobState.RUNNING),
        ([("Complete", "True")], JobState.SUCCEEDED),
        ([("Failed", "False"), ("Suspended", "True")], JobState.RUNNING),
        ([("FailureTarget", "True")], JobState.FAILED),
        ([("FailureTarget", "True"), ("Failed", "True")], JobState.FAILED),
    ],
)
def test_the_job_says_in_conditions_how_it_ended(conditions, state):
    cluster = RayCluster.parse(deleted(FINALIZER, **FT))
    job = dict(decide(job=JobState.ABSENT).actions[0].manifest)
    job["status"] = {"conditions": [{"type": kind, "status": status} for kind, status in conditions]}
    assert job_state(cluster, job) is state
    assert job_state(cluster, None) is JobState.ABSENT
    of_an_earlier_one = {**job["metadata"], "ownerReferences": [{"uid": "uid-before"}]}
    for other in (of_an_earlier_one, {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:02Z"}):
        assert job_state(cluster, {**job, "metadata": other}) is JobState.ABSENT


@pytest.mark.rule("SC:S20")
@pytest.mark.parametrize(("rejected_for_s", "is_released"), [(0, False), (29, False), (30, True), (float("inf"), True)])
def test_a_job_that_is_rejected_holds_the_cluster_for_half_a_minute(rejected_for_s, is_released):
    todo = after_rejection(deleted(FINALIZER, **FT), "no quota " * 500, rejected_for_s)
    assert bool(todo.release) is is_released
    if is_released:
        assert todo.event.reason == constants.REDIS_CLEANUP_FAILED
        assert "its Job was rejected: no quota" in todo.event.message
        assert len(todo.event.message) < 1000
    else:
        assert todo.requeue_after_s == 5


# --- without ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:FIN-4", "RC:REC-4")
@pytest.mark.parametrize(
    ("obj", "config", "why"),
    [
        pytest.param(deleted(FINALIZER), CONFIG, "fault tolerance is off", id="it was switched off"),
        pytest.param(deleted(FINALIZER, **FT), ClusterConfig(cleans_up_redis=False), "ENABLE_GCS_FT", id="no clean-up"),
        pytest.param(deleted(FINALIZER, **FT, workerGroupSpecs=5), CONFIG, "cannot be read", id="an unreadable spec"),
        pytest.param(
            deleted(FINALIZER, **FT, workerGroupSpecs=[group(low=5, high=1)]), CONFIG, "invalid", id="an invalid spec"
        ),
        pytest.param(
            deleted(FINALIZER, **FT, managedBy=constants.MULTIKUEUE), CONFIG, "another controller", id="it is foreign"
        ),
        pytest.param(deleted(FINALIZER, "orphan", **FT), CONFIG, "without its pods", id="its pods are to live on"),
    ],
)
def test_where_no_job_can_run_the_cluster_is_released_at_once(obj, config, why):
    found = state_of(obj, config)
    assert why in found
    todo = release_unclean(obj, [head(), pod()], found, 300)
    assert (todo.event.reason, bool(todo.release), todo.actions) == (constants.REDIS_CLEANUP_SKIPPED, True, ())
    assert why in todo.event.message


@pytest.mark.rule("RC:K-4")
@pytest.mark.parametrize(
    ("finalizers", "left"),
    [([FINALIZER], None), (["a", FINALIZER, "b"], ["a", "b"])],
    ids=["it alone", "among others"],
)
def test_the_patch_removes_it_from_the_version_that_was_read(finalizers, left):
    patch = unclean(deleted(*finalizers), head(), pod()).release
    assert (patch.resource, patch.namespace, patch.name) == (RAYCLUSTERS, "default", "demo")
    assert (patch.uid, patch.version, patch.body) == ("uid-demo", "7", {"metadata": {"finalizers": left}})


@pytest.mark.rule("RC:FT-2")
@pytest.mark.parametrize(
    ("spec", "annotations", "message"),
    [
        pytest.param(
            {"gcsFaultToleranceOptions": OPTIONS, "suspend": 5}, {}, ["my-ns", "redis:6379"], id="from the options"
        ),
        pytest.param(
            {},
            {constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION: "theirs"},
            ["theirs", "RAY_REDIS_ADDRESS"],
            id="annotated",
        ),
        pytest.param({}, {}, ["uid-demo", "RAY_REDIS_ADDRESS"], id="by default the uid"),
        pytest.param({"gcsFaultToleranceOptions": "yes"}, {}, ["uid-demo"], id="options that cannot be read"),
    ],
)
def test_what_stays_in_redis_is_reported(spec, annotations, message):
    event = unclean(deleted(FINALIZER, annotations=annotations, **spec)).event
    assert (event.reason, event.event_type) == (constants.REDIS_CLEANUP_SKIPPED, "Warning")
    assert [word for word in message if word not in event.message] == []
    assert len(event.message) < 800


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://ray:secret@one:1,rediss://:secret@two:2", "redis://one:1,rediss://two:2"),
        ("ray:secret@one:1", "one:1"),
        ("one:1", "one:1"),
    ],
)
def test_an_address_is_shown_without_its_password(address, shown):
    event = unclean(deleted(FINALIZER, gcsFaultToleranceOptions={"redisAddress": address}, suspend=5)).event
    assert f" at {shown} may" in event.message
    assert "secret" not in event.message


@pytest.mark.rule("RC:FIN-1")
def test_rocksdb_leaves_nothing_in_redis():
    todo = unclean(deleted(FINALIZER, gcsFaultToleranceOptions={"backend": "rocksdb"}))
    assert todo.release
    assert todo.event is None


@pytest.mark.rule("RC:FIN-3")
@pytest.mark.parametrize(("after_s", "left_s"), [(10, 290), (300, None)])
def test_a_clean_up_that_kuberay_began_is_waited_for_as_long_as_kuberay_would(after_s, left_s):
    todo = unclean(deleted(FINALIZER), cleanup(), after_s=after_s)
    assert todo.requeue_after_s == left_s
    assert (todo.release is None) is (left_s is not None)
    if left_s is None:
        assert todo.event.reason == "ForceDeletedStuckCluster"


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        pytest.param([cleanup("Succeeded")], None, id="it succeeded: nothing stays"),
        pytest.param([cleanup("Failed")], constants.REDIS_CLEANUP_FAILED, id="it failed"),
        pytest.param([cleanup(**TERMINATING)], constants.REDIS_CLEANUP_SKIPPED, id="it was deleted"),
    ],
)
def test_what_is_over_is_not_waited_for(pods, reason):
    todo = unclean(deleted(FINALIZER), *pods, after_s=1)
    assert todo.release
    assert (todo.event.reason if todo.event else None) == reason
