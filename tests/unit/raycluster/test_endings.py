"""Events about a failed worker and about a lost head."""

import pytest

from raytide.api import constants
from raytide.api.actions import Outcome, Result
from raytide.api.config import DEFAULT_FEATURE_GATES, OTHER_FEATURE_GATES, ClusterConfig
from raytide.api.pod import ContainerView, pod_from_manifest
from raytide.kube.event_recorder import build_note
from raytide.raycluster.endings import how_it_ended
from support.builders import dying, head, parsed, pod
from unit.raycluster.test_plan import ENOUGH, decide

RAY_ENDED = ContainerView("ray-worker", "terminated", "Error", exit_code=1, restart_count=2)
SIDECAR_ENDED = ContainerView("logs", "terminated", "OOMKilled", exit_code=137)
LOG = "/var/log/pods/default_demo-cpu-worker-aaaaa_uid-demo-cpu-worker-aaaaa"


@pytest.mark.rule("FD:RC-B15")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"phase": "Failed", "containers": (RAY_ENDED,)},
            "its phase is Failed: container ray-worker ended with exit code 1 (Error); "
            f"its log ends in {LOG}/ray-worker/2.log on node node-0",
            id="Ray's container",
        ),
        pytest.param(
            {"phase": "Failed", "containers": (ContainerView("ray-worker", "terminated", exit_code=0), SIDECAR_ENDED)},
            "its phase is Failed: container logs ended with exit code 137 (OOMKilled); "
            f"its log ends in {LOG}/logs/0.log on node node-0",
            id="the container that failed, not the one that ended well",
        ),
        pytest.param(
            {"phase": "Failed", "init_containers": (ContainerView("prepare", "terminated", "Error", exit_code=2),)},
            "its phase is Failed: container prepare ended with exit code 2 (Error); "
            f"its log ends in {LOG}/prepare/0.log on node node-0",
            id="an init container",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted"}, "its phase is Failed (Evicted)", id="without a container status"
        ),
        pytest.param(
            {"restart_policy": "Never", "containers": (ContainerView("ray-worker", "terminated", exit_code=0),)},
            "its Ray container has ended and its restartPolicy is Never: container ray-worker ended with exit code 0; "
            f"its log ends in {LOG}/ray-worker/0.log on node node-0",
            id="it ended well",
        ),
    ],
)
def test_the_event_about_a_failed_worker_names_container_code_reason_and_log(fields, message):
    worker = pod(**fields)
    assert how_it_ended(worker) == message
    (delete,) = [a for a in decide(parsed(), head(), worker, ENOUGH[0]).actions if a.name == worker.name]
    assert build_note([Outcome(delete, Result.DONE)]) == f"Deleted pod {worker.name}: {message}"


@pytest.mark.rule("FD:RC-B15")
@pytest.mark.parametrize(
    ("container", "reason"), [(SIDECAR_ENDED, constants.OOM_KILLED), (RAY_ENDED, constants.DELETED_WORKER_POD)]
)
def test_a_worker_that_ran_out_of_memory_is_an_event_of_its_own(container, reason):
    actions = decide(parsed(), head(), pod(phase="Failed", containers=(container,)), ENOUGH[0]).actions
    assert actions[0].success_reason == reason


@pytest.mark.rule("FD:RC-B15")
def test_a_worker_that_recovered_from_it_and_is_too_many_is_deleted_like_any_other():
    calm = ContainerView("ray-worker", "terminated", "OOMKilled", exit_code=137)
    (delete,) = decide(parsed(), head(), *ENOUGH, pod("demo-cpu-worker-z", phase="Running", containers=(calm,))).actions
    assert delete.success_reason == constants.DELETED_WORKER_POD


def test_the_reason_of_a_pod_is_read():
    assert pod_from_manifest({"metadata": {}, "status": {"phase": "Failed", "reason": "Evicted"}}).reason == "Evicted"


# --- a lost head -------------------------------------------------------------------------------------------------------
READY = {"type": constants.HEAD_POD_READY, "status": "True", "reason": "HeadPodRunningAndReady"}
KILLED = {"type": constants.HEAD_POD_READY, "status": "False", "reason": "OOMKilled", "message": "ray-head: "}
REDIS = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}
ROCKSDB = {"gcsFaultToleranceOptions": {"backend": "rocksdb"}}
EVERY_GATE = ClusterConfig(feature_gates=DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES)
LOST = "the GCS state is lost"
KEPT = "the GCS state is kept in Redis"


def cluster(condition, **spec):
    found = parsed(status={"head": {"podName": "demo-head-aaaaa"}, "conditions": [condition]})
    metadata = {**found.raw["metadata"], "finalizers": [constants.REDIS_CLEANUP_FINALIZER] if spec else []}
    return type(found).parse({**found.raw, "metadata": metadata, "spec": {**found.raw["spec"], **spec}})


@pytest.mark.rule("FD:RC-B16", "RC:HP-6")
@pytest.mark.parametrize(
    ("condition", "heads", "spec", "why", "state"),
    [
        pytest.param(READY, (), {}, "it was deleted while it was ready", LOST, id="a client deleted it"),
        pytest.param(READY, (), REDIS, "it was deleted while it was ready", KEPT, id="with fault tolerance"),
        pytest.param(
            READY, (), ROCKSDB, "it was deleted while it was ready", "the GCS state is kept on its volume", id="in RocksDB"
        ),
        pytest.param(KILLED, (), {}, "it was not ready (OOMKilled", LOST, id="it had ended"),
        pytest.param(
            READY, (dying("demo-head-aaaaa", group=constants.HEAD_GROUP, node_type=constants.HEAD, node_name="away"),), {},
            "node away is not Ready or is gone", LOST, id="its node is away",
        ),
    ],
)  # fmt: skip
def test_a_head_that_is_lost_is_reported_with_the_reason_and_what_survives(condition, heads, spec, why, state):
    todo = decide(cluster(condition, **spec), *heads, *ENOUGH, config=EVERY_GATE, unready_nodes=frozenset({"away"}))
    (event,) = [event for event in todo.events if event.reason == constants.HEAD_POD_LOST]
    assert event.event_type == "Warning"
    assert event.message.startswith(f"Head pod demo-head-aaaaa is lost: {why}")
    assert state in event.message


@pytest.mark.rule("FD:RC-B16")
@pytest.mark.parametrize(
    ("found", "heads"),
    [
        pytest.param(parsed(), (), id="a new cluster"),
        pytest.param(cluster(READY), (head(),), id="the head is there"),
        pytest.param(
            cluster(READY), (dying("demo-head-aaaaa", node_type=constants.HEAD),), id="the head is still ending"
        ),
    ],
)
def test_no_event_is_recorded_for_a_head_that_is_not_lost(found, heads):
    events = decide(found, *heads, *ENOUGH).events
    assert [event for event in events if event.reason == constants.HEAD_POD_LOST] == []


@pytest.mark.rule("FD:RC-B16")
def test_a_head_that_stays_away_is_reported_too():
    found = cluster(READY)
    obj = {
        **found.raw,
        "status": {**found.status, "conditions": [READY, {"type": constants.PROVISIONED, "status": "True"}]},
    }
    obj["metadata"]["annotations"] = {constants.DISABLE_PROVISIONED_HEAD_RESTART_ANNOTATION: "true"}
    todo = decide(type(found).parse(obj), *ENOUGH)
    assert (todo.actions, [event.reason for event in todo.events]) == ((), [constants.HEAD_POD_LOST])
