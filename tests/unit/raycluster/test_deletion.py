"""When KubeRay's finalizer is removed, and the event about data that stays in Redis."""

from datetime import UTC, datetime, timedelta

import pytest

from raytide.api import constants
from raytide.api.meta import RAYCLUSTERS
from raytide.raycluster.deletion import deletion, is_being_deleted
from support.builders import head, pod, raycluster

pytestmark = pytest.mark.rule("FD:RC-B1")
DELETED_AT = datetime(2026, 1, 1, tzinfo=UTC)
FINALIZER = constants.REDIS_CLEANUP_FINALIZER
OPTIONS = {"redisAddress": "redis:6379", "externalStorageNamespace": "my-ns"}


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


def decide(obj, *pods, after_s=0):
    return deletion(obj, pods, DELETED_AT + timedelta(seconds=after_s))


def test_a_deletion_timestamp_marks_a_cluster_as_being_deleted():
    assert is_being_deleted(deleted())
    assert not is_being_deleted(raycluster())


@pytest.mark.rule("RC:REC-5", "D14")
def test_without_kuberays_finalizer_no_action_is_planned():
    todo = decide(deleted("example.com/hold"), head(), pod())
    assert (todo.release, todo.event, todo.requeue_after_s) == (None, None, None)


@pytest.mark.rule("RC:K-4")
@pytest.mark.parametrize(
    ("finalizers", "left"),
    [([FINALIZER], None), (["a", FINALIZER, "b"], ["a", "b"])],
    ids=["it alone", "among others"],
)
def test_the_patch_removes_it_from_the_version_that_was_read(finalizers, left):
    patch = decide(deleted(*finalizers), head(), pod()).release
    assert (patch.resource, patch.namespace, patch.name) == (RAYCLUSTERS, "default", "demo")
    assert (patch.uid, patch.version, patch.body) == ("uid-demo", "7", {"metadata": {"finalizers": left}})


@pytest.mark.rule("RC:FT-2")
@pytest.mark.parametrize(
    ("spec", "annotations", "message"),
    [
        pytest.param({"gcsFaultToleranceOptions": OPTIONS}, {}, ["my-ns", "redis:6379"], id="from the options"),
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
    event = decide(deleted(FINALIZER, annotations=annotations, **spec)).event
    assert (event.reason, event.event_type) == (constants.REDIS_CLEANUP_SKIPPED, "Warning")
    assert [word for word in message if word not in event.message] == []
    assert len(event.message) < 800


@pytest.mark.rule("RC:FIN-1")
def test_rocksdb_leaves_nothing_in_redis():
    todo = decide(deleted(FINALIZER, gcsFaultToleranceOptions={"backend": "rocksdb"}))
    assert todo.release
    assert todo.event is None


# --- a clean-up that KubeRay began -----------------------------------------------------------------------------------


@pytest.mark.rule("RC:FIN-3")
@pytest.mark.parametrize(
    ("annotated", "after_s", "left_s"),
    [
        (None, 10, 290),
        ("60", 10, 50),
        ("0", 10, 290),
        ("-5", 10, 290),
        ("soon", 10, 290),
        ("9" * 5000, 10, 290),
        ("60", 60, None),
        (None, 300, None),
    ],
)
def test_a_running_clean_up_is_waited_for_as_long_as_kuberay_would(annotated, after_s, left_s):
    annotations = {constants.FT_DELETION_TIMEOUT_ANNOTATION: annotated} if annotated else {}
    todo = decide(deleted(FINALIZER, annotations=annotations), cleanup(), after_s=after_s)
    assert todo.requeue_after_s == left_s
    assert (todo.release is None) is (left_s is not None)
    if left_s is None:
        assert todo.event.reason == "ForceDeletedStuckCluster"


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        pytest.param([cleanup("Succeeded")], None, id="it succeeded: nothing stays"),
        pytest.param([cleanup("Failed")], constants.REDIS_CLEANUP_FAILED, id="it failed"),
        pytest.param(
            [cleanup(deletion_timestamp="2026-01-01T00:00:01Z")], constants.REDIS_CLEANUP_SKIPPED, id="it was deleted"
        ),
        pytest.param(
            [head(), pod()], constants.REDIS_CLEANUP_SKIPPED, id="there is none: Ray's pods are not waited for"
        ),
    ],
)
def test_what_is_over_is_not_waited_for(pods, reason):
    todo = decide(deleted(FINALIZER), *pods, after_s=1)
    assert todo.release
    assert (todo.event.reason if todo.event else None) == reason
