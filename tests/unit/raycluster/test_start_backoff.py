"""How long a pod that ended without having been ready keeps its place, and what its successor carries."""

from datetime import UTC, datetime, timedelta

import pytest

from raytide.api import constants
from raytide.api.actions import Outcome, Result
from raytide.api.pod import ContainerView, pod_from_manifest
from raytide.raycluster.conditions import head_pod_ready
from raytide.raycluster.manifests.recreate_hash import recreate_hash
from raytide.raycluster.observed import observe
from raytide.raycluster.pod_actions import failed_starts_value
from raytide.raycluster.start_backoff import REMEMBERED_S, FailedStarts, start_waits
from support.builders import CLUSTER_UID, dying, group, head, parsed, pod
from unit.raycluster.test_plan import ENOUGH, decide, writes_of

ENDED_AT = "2026-01-01T01:00:00Z"
NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)
SPEC = "v2:abc"
GONE = ContainerView("ray-worker", "terminated", "Error", "no ray here", exit_code=127)

pytestmark = pytest.mark.rule("FD:RC3-3")


def ended(count=0, spec=SPEC, **fields):
    value = failed_starts_value(count, spec) if count else ""
    return pod(**{"phase": "Failed", "ended_at": ENDED_AT, "failed_starts": value, "containers": (GONE,), **fields})


@pytest.mark.parametrize(
    ("found", "wait_s"),
    [
        pytest.param(ended(), None, id="the first is replaced at once"),
        pytest.param(ended(1), 1, id="the second after a second"),
        pytest.param(ended(2), 2, id="the next after two"),
        pytest.param(ended(5), 16, id="and so on"),
        pytest.param(ended(50), 300, id="at most five minutes"),
        pytest.param(ended(3, has_been_ready=True), None, id="one that had been ready at once"),
        pytest.param(ended(3, spec="v2:other"), None, id="one of another spec at once"),
        pytest.param(ended(3, deletion_timestamp=ENDED_AT), None, id="one that is terminating does not wait"),
        pytest.param(ended(3, node_name="away"), None, id="nor does one whose node is away"),
        pytest.param(ended(3, ended_at="2026-01-01T00:59:58Z"), 2, id="the time that passed counts"),
        pytest.param(ended(3, ended_at="2026-01-01T00:00:00Z"), None, id="until it is over"),
        pytest.param(
            ended(3, ended_at="2026-01-01T09:00:00Z", creation_timestamp=ENDED_AT),
            4,
            id="a clock that is ahead is ignored",
        ),
        pytest.param(
            ended(3, ended_at="2026-01-01T00:00:00Z", creation_timestamp=ENDED_AT),
            4,
            id="a clock that is behind is, too",
        ),
        pytest.param(
            ended(3, phase="Running", restart_policy="Never", creation_timestamp=ENDED_AT), 4, id="Ray alone ended"
        ),
        pytest.param(pod(failed_starts="3 " + SPEC), None, id="a pod that runs does not wait"),
        pytest.param(ended(failed_starts="9" * 50 + " " + SPEC), None, id="a number that is none is ignored"),
    ],
)
def test_a_pod_that_ended_before_it_was_ready_keeps_its_place(found, wait_s):
    waits = start_waits([found], SPEC, NOW, {"away"})
    assert waits == ({} if wait_s is None else {found.name: wait_s + 1})  # times are in whole seconds


@pytest.mark.parametrize(
    ("ready", "has_been"),
    [
        pytest.param(None, False, id="no condition: the kubelet rejected it"),
        pytest.param({"status": "True"}, True, id="it is ready"),
        pytest.param(
            {"status": "False", "lastTransitionTime": "2026-01-01T00:00:01Z"}, False, id="not ready from its start"
        ),
        pytest.param({"status": "False", "lastTransitionTime": "2026-01-01T00:00:10Z"}, True, id="ready until later"),
        pytest.param({"status": "False", "lastTransitionTime": "never"}, False, id="a time that is none"),
    ],
)
def test_the_kubelets_times_show_whether_a_pod_has_been_ready(ready, has_been):
    conditions = [{"type": "Ready", **ready}] if ready else []
    status = {"phase": "Failed", "startTime": "2026-01-01T00:00:00Z", "conditions": conditions}
    assert pod_from_manifest({"metadata": {}, "status": status}).has_been_ready is has_been


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        pytest.param({"containers": (GONE,)}, "Error", "container ray-worker: ended with exit code 127 (Error): no ray here", id="exit"),
        pytest.param(
            {"containers": (), "reason": "UnexpectedAdmissionError", "message": "Allocate failed"},
            "UnexpectedAdmissionError", "UnexpectedAdmissionError: Allocate failed", id="rejected by the kubelet",
        ),
        pytest.param({"containers": ()}, "Unknown", "its phase is Failed", id="no cause"),
    ],
)  # fmt: skip
def test_the_condition_of_a_head_that_ended_has_its_cause(fields, reason, message):
    found = head_pod_ready([head(phase="Failed", ready=pod_from_manifest({"metadata": {}}).ready, **fields)])
    assert (found.status, found.reason, found.message) == (False, reason, message)


def test_an_ended_head_is_deleted_when_its_delay_is_over_and_its_successor_has_the_count():
    cluster = parsed()
    old = head(phase="Failed")
    waiting = decide(cluster, old, *ENOUGH, start_waits={old.name: 7.0})
    assert (waiting.actions, waiting.requeue_after_s) == ((), 7.0)
    assert writes_of(decide(cluster, old, *ENOUGH)) == [f"delete {old.name}"]
    assert writes_of(decide(cluster, old, head("demo-head-z"), *ENOUGH, start_waits={old.name: 7.0})) == [
        f"delete {old.name}"
    ]
    (create,) = decide(cluster, *ENOUGH, failed_starts={constants.HEAD_GROUP: (4,)}, spec_hash=SPEC).actions
    assert create.manifest["metadata"]["annotations"][constants.FAILED_STARTS_ANNOTATION] == f"4 {SPEC}"


@pytest.mark.parametrize(
    ("replicas", "to_delete", "deleted"),
    [
        pytest.param(2, (), 0, id="wanted places are kept"),
        pytest.param(1, (), 1, id="those that are not wanted are not"),
        pytest.param(2, ("demo-cpu-worker-a",), 1, id="nor those of named workers"),
    ],
)
def test_ended_workers_keep_only_wanted_places(replicas, to_delete, deleted):
    pods = [ended(1, name=f"demo-cpu-worker-{each}") for each in "ab"]
    cluster = parsed(group(replicas=replicas, scaleStrategy={"workersToDelete": list(to_delete)}))
    todo = decide(cluster, head(), *pods, start_waits={each.name: 5.0 for each in pods})
    assert [word.partition(" ")[0] for word in writes_of(todo)] == ["delete"] * deleted
    assert todo.requeue_after_s == 5.0


def test_a_pod_that_waits_is_not_yet_one_that_is_only_kept():
    found = ended(1)
    waiting = observe(CLUSTER_UID, pods=[found], services=(), kept_groups={"cpu"}, start_waits={found.name: 1.0})
    assert (waiting.pods, waiting.kept) == ((found,), ())


def test_the_count_of_a_pod_that_is_gone_goes_to_its_successor_once():
    cluster, counts = parsed(), FailedStarts()
    spec = recreate_hash(cluster)
    counts.record_pods(cluster, [ended(2, spec), dying("demo-cpu-worker-z")], now=0.0)
    counts.record_pods(cluster, [], now=1.0)
    assert (counts.counts(cluster.key), counts.spec_hash(cluster.key)) == ({"cpu": (3,)}, spec)
    (create, *_) = decide(cluster, head(), failed_starts=counts.counts(cluster.key), spec_hash=spec).actions
    counts.record_outcomes(cluster.key, [Outcome(create, Result.REJECTED)])
    assert counts.counts(cluster.key) == {"cpu": (3,)}
    counts.record_outcomes(cluster.key, [Outcome(create, Result.DONE)])
    assert counts.counts(cluster.key) == {}


@pytest.mark.parametrize(
    ("later", "now"),
    [
        pytest.param({}, REMEMBERED_S + 1, id="after ten minutes"),
        pytest.param({"uid": "uid-other"}, 1.0, id="with another cluster of the name"),
        pytest.param({"headServiceAnnotations": {"a": "b"}}, 1.0, id="with another spec"),
    ],
)
def test_counts_are_dropped(later, now):
    cluster, counts = parsed(), FailedStarts()
    counts.record_pods(cluster, [ended()], now=0.0)
    assert counts.counts(cluster.key) == {"cpu": (1,)}
    counts.record_pods(parsed(**later), [], now=now)
    assert counts.counts(cluster.key) == {}
    counts.record_pods(cluster, [ended()], now=0.0)
    counts.forget(cluster.key)
    assert counts.counts(cluster.key) == {}


def test_the_delay_is_due_at_the_second_that_it_names():
    found = ended(1)
    (left_s,) = start_waits([found], SPEC, NOW).values()
    assert start_waits([found], SPEC, NOW + timedelta(seconds=left_s)) == {}
