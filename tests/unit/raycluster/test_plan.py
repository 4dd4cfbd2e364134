"""The writes of a plan, step by step."""

import itertools

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Delete
from raytide.api.config import ClusterConfig, PodConfig
from raytide.api.pod import pod_from_manifest
from raytide.api.raycluster import RayCluster
from raytide.api.service import service_from_manifest
from raytide.raycluster.observed import Observed, PendingRetry, observe
from raytide.raycluster.plan import plan
from support.builders import dying, group, head, head_service, parsed, pending, pod, raycluster

CONFIG = ClusterConfig()


def decide(cluster, *pods, service=True, config=CONFIG, **observed):
    services = (head_service(),) if service else ()
    suffixes = itertools.count()
    return plan(
        cluster, Observed(pods=pods, services=services, **observed), config, lambda p: f"{p}{next(suffixes):05d}"
    )


def writes_of(todo):
    """The writes as words."""
    verbs = {Create: "create", Delete: "delete"}
    return [f"{verbs[type(action)]} {action.name}" for action in todo.actions]


@pytest.mark.rule("FD:PS3-1")
@pytest.mark.parametrize(
    ("other", "is_created"),
    [
        pytest.param(head("demo-head-x", owner_uid=""), False, id="an ownerless head that runs"),
        pytest.param(
            head("demo-head-x", owner_uid="", deletion_timestamp="2026-01-01T00:00:00Z"), False, id="until it is gone"
        ),
        pytest.param(head("demo-head-x", owner_uid="", phase="Failed"), True, id="not one that has ended"),
        pytest.param(pod("demo-cpu-worker-x", owner_uid=""), True, id="not an ownerless worker"),
    ],
)
def test_no_head_is_created_beside_one_without_an_owner(other, is_created):
    cluster = parsed()
    observed = observe(cluster.metadata.uid, pods=[other], services=[head_service()])
    todo = plan(cluster, observed, CONFIG, lambda prefix: f"{prefix}aaaaa")
    assert ("create demo-head-aaaaa" in writes_of(todo)) is is_created
    notes = [event.message for event in todo.events if event.reason == constants.HEAD_POD_WITHOUT_OWNER]
    assert [other.name in note for note in notes] == ([] if is_created else [True])


@pytest.mark.rule("RC:HP-5", "RC:HS-1")
def test_a_new_cluster_gets_service_head_and_workers_in_one_pass():
    todo = decide(parsed(), service=False)
    assert writes_of(todo) == [
        "create demo-head-svc",
        "create demo-head-00000",
        "create demo-cpu-worker-00001",
        "create demo-cpu-worker-00002",
    ]
    assert [action.success_reason for action in todo.actions] == [
        constants.CREATED_SERVICE,
        constants.CREATED_HEAD_POD,
        constants.CREATED_WORKER_POD,
        constants.CREATED_WORKER_POD,
    ]


def drawing(*suffixes):
    """A source of names whose dice fall like that."""
    left = iter(suffixes)
    return lambda prefix: f"{prefix}{next(left)}"


@pytest.mark.rule("D15")
@pytest.mark.parametrize(
    ("in_use", "suffixes"),
    [
        pytest.param({}, ["aaaaa", "aaaaa", "bbbbb"], id="one that this plan has given already"),
        pytest.param({"pods": ("ccccc",)}, ["ccccc", "aaaaa", "bbbbb"], id="that of a pod that is there or in flight"),
        pytest.param({"dying": ("ccccc",)}, ["ccccc", "aaaaa", "bbbbb"], id="that of a pod on its way out"),
        pytest.param(
            {"foreign": ("ccccc",)}, ["aaaaa", "ccccc", "bbbbb"], id="that of a pod of another cluster of the same name"
        ),
    ],
)
def test_a_new_pod_never_gets_a_name_that_is_in_use(in_use, suffixes):
    there = [pod(f"demo-cpu-worker-{each}") for each in in_use.get("pods", ())]
    gone = [dying(f"demo-cpu-worker-{each}") for each in in_use.get("dying", ())]
    foreign = frozenset(f"demo-cpu-worker-{each}" for each in in_use.get("foreign", ()))
    cluster = parsed(group(replicas=2 + len(there) + len(gone)))
    observed = Observed(pods=(head(), *there, *gone), services=(head_service(),), foreign_names=foreign)
    todo = plan(cluster, observed, CONFIG, drawing(*suffixes))
    assert writes_of(todo) == ["create demo-cpu-worker-aaaaa", "create demo-cpu-worker-bbbbb"]


@pytest.mark.rule("D15", "RC:MH-6")
def test_a_new_replica_never_gets_a_name_that_is_in_use():
    cluster = parsed(group(replicas=2, numOfHosts=1), group("tpu", replicas=2, numOfHosts=2))
    todo = plan(cluster, Observed(), CONFIG, drawing("h", "a", "b", "ccccc", "ccccc", "ddddd", *"efgi"))
    replicas = {action.manifest["metadata"]["labels"].get(constants.REPLICA_NAME_LABEL) for action in todo.actions}
    assert replicas >= {"tpu-ccccc", "tpu-ddddd"}


@pytest.mark.rule("RM:I14", "D5")
def test_the_plan_is_empty_once_all_desired_objects_exist():
    cluster = parsed(group(replicas=3), group("gpu", replicas=1))
    created = [action.manifest for action in decide(cluster, service=False).actions]
    pods = [pod_from_manifest(manifest) for manifest in created if manifest["kind"] == "Pod"]
    services = [service_from_manifest(manifest) for manifest in created if manifest["kind"] == "Service"]
    todo = plan(cluster, observe(cluster.metadata.uid, pods=pods, services=services), CONFIG, str)
    assert (len(pods), len(services), todo.actions) == (5, 1, ())


@pytest.mark.rule("RM:I8")
def test_every_child_names_its_owner_and_its_cluster():
    for action in decide(parsed(), service=False).actions:
        metadata = action.manifest["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-demo", True)
        assert metadata["labels"][constants.CLUSTER_LABEL] == "demo"


@pytest.mark.rule("RC:REC-2")
def test_a_cluster_that_another_controller_manages_gets_neither_writes_nor_status():
    todo = decide(parsed(managedBy="kueue.x-k8s.io/multikueue"), pod(phase="Failed"), service=False)
    assert (todo.actions, todo.events, todo.is_reported) == ((), (), False)


def test_a_cluster_that_is_managed_by_kuberay_is_reconciled():
    assert decide(parsed(managedBy=constants.MANAGED_BY_US), service=False).actions


@pytest.mark.rule("RC:V-11")
def test_an_invalid_cluster_keeps_its_pods_and_the_event_names_the_field():
    todo = decide(parsed(group(replicas=5, low=3, high=2)), head(), pod(phase="Failed"), service=False)
    assert todo.actions == ()
    assert todo.is_reported
    assert [event.reason for event in todo.events] == [constants.INVALID_SPEC]
    assert "minReplicas" in todo.events[0].message


@pytest.mark.rule("RC:V-61")
def test_a_warning_is_reported_and_stops_nothing():
    cluster = parsed(
        group(template={"spec": {"containers": [{"name": "ray"}], "restartPolicy": "Always"}}),
        enableInTreeAutoscaling=True,
        autoscalerOptions={"version": "v1"},
    )
    todo = decide(cluster, head(), service=False)
    assert todo.violations == ()
    assert todo.events
    assert todo.actions


# --- head ------------------------------------------------------------------------------------------------------------

ENOUGH = (pod("demo-cpu-worker-a"), pod("demo-cpu-worker-b"))


@pytest.mark.parametrize(
    ("heads", "unready", "expected"),
    [
        pytest.param([head()], (), [], id="one head is kept"),
        pytest.param([], (), ["create demo-head-00000"], id="no head: one is made"),
        pytest.param([head(phase="Failed")], (), ["delete demo-head-aaaaa"], id="a failed head is deleted"),
        pytest.param([dying("demo-head-aaaaa", node_type="head", group="headgroup")], (), [], id="a dying head counts"),
        pytest.param(
            [head(deletion_timestamp="2026-01-01T00:00:00Z")],
            ("node-0",),
            ["create demo-head-00000"],
            id="unless its node is away",
        ),
        pytest.param([head(phase="Pending")], (), [], id="a pending head is waited for"),
        pytest.param([head(phase="Failed", uid="")], (), [], id="a head without a uid cannot be deleted yet"),
        pytest.param(
            [head("demo-head-new", creation_timestamp="2026-01-02T00:00:00Z"), head("demo-head-old")],
            (),
            ["delete demo-head-new"],
            id="of two ready heads the older stays",
        ),
        pytest.param(
            [head("demo-head-old", phase="Pending"), head("demo-head-new", creation_timestamp="2026-01-02T00:00:00Z")],
            (),
            ["delete demo-head-old"],
            id="a ready head stays whatever its age",
        ),
    ],
)
@pytest.mark.rule("RC:HP-2", "RC:HP-3", "RC:HP-4", "RM:I2")
def test_head(heads, unready, expected):
    todo = decide(parsed(), *heads, *ENOUGH, unready_nodes=frozenset(unready))
    assert writes_of(todo) == expected


@pytest.mark.rule("RC:HP-2")
def test_losing_the_head_does_not_stop_the_groups():
    assert writes_of(decide(parsed(), head(phase="Failed"), ENOUGH[0])) == [
        "delete demo-head-aaaaa",
        "create demo-cpu-worker-00000",
    ]


@pytest.mark.rule("RC:HP-3")
def test_a_provisioned_head_whose_restart_is_disabled_is_not_recreated_nor_are_its_workers():
    conditions = [{"type": constants.PROVISIONED, "status": "True"}]
    obj = {**raycluster(), "status": {"conditions": conditions}}
    obj["metadata"]["annotations"] = {constants.DISABLE_PROVISIONED_HEAD_RESTART_ANNOTATION: "true"}
    assert decide(RayCluster.parse(obj)).actions == ()


def test_a_deterministic_head_name_has_no_random_end():
    config = ClusterConfig(pods=PodConfig(is_head_pod_name_deterministic=True))
    assert writes_of(decide(parsed(), *ENOUGH, config=config)) == ["create demo-head"]


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SC:S3", "RM:I18")
def test_a_rejected_group_waits_and_the_others_do_not():
    retry = PendingRetry("a", constants.FAILED_TO_CREATE_WORKER_POD, "exceeded quota", retry_in_s=12.0)
    cluster = parsed(group("a", 1), group("b", 1))
    todo = decide(cluster, head(), pending_retries=(retry,))
    assert writes_of(todo) == ["create demo-b-worker-00000"]
    assert todo.requeue_after_s == 12.0


@pytest.mark.rule("SC:S3")
def test_a_rejected_group_still_shrinks():
    retry = PendingRetry("cpu", constants.FAILED_TO_CREATE_WORKER_POD, "exceeded quota", retry_in_s=12.0)
    todo = decide(parsed(group(replicas=1)), head(), *ENOUGH, pending_retries=(retry,))
    assert writes_of(todo) == ["delete demo-cpu-worker-b"]


@pytest.mark.rule("SC:S14")
def test_workers_of_a_removed_group_are_deleted_with_the_reason():
    todo = decide(parsed(), head(), *ENOUGH, pod("demo-gone-worker-a", group="gone"))
    assert writes_of(todo) == ["delete demo-gone-worker-a"]
    assert "no longer in the spec" in todo.actions[0].message


@pytest.mark.rule("FD:REL-11", "SC:S14")
def test_workers_of_a_removed_group_are_deleted_after_the_create_of_the_head_and_before_creates_of_workers():
    """The head is what the cluster needs first; what the removed group uses of a quota is for the groups that are left."""
    todo = decide(parsed(group(replicas=1)), pod("demo-gone-worker-a", group="gone"))
    assert writes_of(todo) == ["create demo-head-00000", "delete demo-gone-worker-a", "create demo-cpu-worker-00001"]


@pytest.mark.rule("RM:I5")
def test_every_delete_carries_the_uid_it_means():
    todo = decide(parsed(group(replicas=0)), head(phase="Failed"), *ENOUGH, pod("demo-x-worker-a", group="x"))
    assert {(action.name, action.uid) for action in todo.actions} == {
        (name, f"uid-{name}")
        for name in ("demo-head-aaaaa", "demo-x-worker-a", "demo-cpu-worker-a", "demo-cpu-worker-b")
    }


@pytest.mark.rule("D6")
def test_a_create_in_flight_that_is_not_wanted_any_more_is_named_not_deleted():
    todo = decide(parsed(group(replicas=0)), head(), pending("demo-cpu-worker-flight", uid=""))
    assert (todo.unwanted, todo.actions) == ({"demo-cpu-worker-flight"}, ())


@pytest.mark.rule("SC:S10", "RM:I5")
def test_pods_with_the_clusters_label_and_another_owner_are_not_deleted():
    foreign_pods = [pod("demo-cpu-worker-x", owner_uid="other"), head("demo-head-x", owner_uid="")]
    cluster = parsed(group(replicas=0, scaleStrategy={"workersToDelete": ["demo-cpu-worker-x"]}))
    observed = observe(cluster.metadata.uid, pods=[head(), *foreign_pods], services=[head_service()])
    todo = plan(cluster, observed, CONFIG, str)
    assert todo.actions == ()
    assert "demo-cpu-worker-x" in todo.events[0].message


@pytest.mark.rule("SC:S10")
def test_a_worker_named_by_another_group_is_left_alone_and_reported():
    cluster = parsed(
        group("cpu", 2), group("gpu", 0, scaleStrategy={"workersToDelete": ["demo-cpu-worker-a", "demo-head-aaaaa"]})
    )
    todo = decide(cluster, head(), *ENOUGH)
    assert todo.actions == ()
    (event,) = todo.events
    assert event.group == "gpu"
    assert event.message.startswith(
        "scaleStrategy.workersToDelete of group gpu has names that are not workers of the group: demo-cpu-worker-a, demo-head-aaaaa;"
    )


@pytest.mark.rule("RC:SH-5")
@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param(False, [], id="under autoscaling a group shrinks by names only"),
        pytest.param(True, ["delete demo-cpu-worker-b"], id="unless random deletion is allowed"),
    ],
)
def test_autoscaled_groups(allowed, expected):
    cluster = parsed(group(replicas=1), enableInTreeAutoscaling=True)
    config = ClusterConfig(is_random_pod_delete_enabled=allowed)
    assert writes_of(decide(cluster, head(), *ENOUGH, config=config)) == expected


@pytest.mark.rule("RC:SH-4")
def test_replica_index_labels_follow_the_gate():
    on = decide(parsed(group(replicas=1)), head()).actions[0].manifest["metadata"]["labels"]
    off_config = ClusterConfig(pods=PodConfig(has_multi_host_indexing=False))
    off = decide(parsed(group(replicas=1)), head(), config=off_config).actions[0].manifest["metadata"]["labels"]
    assert on[constants.REPLICA_INDEX_LABEL] == "0"
    assert constants.REPLICA_INDEX_LABEL not in off


@pytest.mark.rule("RC:SU-3", "RC:SU-4")
@pytest.mark.parametrize(
    ("spec", "was_suspended", "is_gated"),
    [
        pytest.param({"suspend": True}, False, True, id="a suspended cluster gets no pods"),
        pytest.param({}, True, True, id="removing the key does not resume"),
        pytest.param({"suspend": False}, True, True, id="an explicit false resumes, once that is stored"),
        pytest.param({"suspend": False}, False, False, id="now it is stored"),
    ],
)
def test_suspended(spec, was_suspended, is_gated):
    status = {"conditions": [{"type": constants.SUSPENDED, "status": str(was_suspended)}]}
    todo = decide(parsed(status=status, **spec), service=False)
    assert writes_of(todo)[0] == "create demo-head-svc"
    assert (len(todo.actions) > 1) is not is_gated
    assert todo.is_status_gated is is_gated


# --- groups of several hosts -----------------------------------------------------------------------------------------


def hosts_of(todo):
    """Replica name, replica index and host index of every worker that is created."""
    labels = [action.manifest["metadata"]["labels"] for action in todo.actions if action.group == "cpu"]
    return [
        (each[constants.REPLICA_NAME_LABEL], each[constants.REPLICA_INDEX_LABEL], each[constants.HOST_INDEX_LABEL])
        for each in labels
    ]


@pytest.mark.rule("RC:HL-1", "RC:MH-6", "RM:I6")
def test_a_multi_host_group_gets_its_service_before_the_head_and_its_hosts_replica_by_replica():
    todo = decide(parsed(group(replicas=2, numOfHosts=2)), service=False)
    assert writes_of(todo)[:3] == ["create demo-head-svc", "create demo-headless", "create demo-head-00000"]
    first, second = "cpu-00001", "cpu-00002"
    assert hosts_of(todo) == [(first, "0", "0"), (first, "0", "1"), (second, "1", "0"), (second, "1", "1")]
    assert len({action.name for action in todo.actions}) == 7


@pytest.mark.rule("RC:HL-1", "D5")
def test_once_all_hosts_and_the_headless_service_are_there_the_plan_is_empty():
    cluster = parsed(group(replicas=2, numOfHosts=3))
    created = [action.manifest for action in decide(cluster, service=False).actions]
    pods = [pod_from_manifest(manifest) for manifest in created if manifest["kind"] == "Pod"]
    services = [service_from_manifest(manifest) for manifest in created if manifest["kind"] == "Service"]
    todo = plan(cluster, observe(cluster.metadata.uid, pods=pods, services=services), CONFIG, str)
    assert (len(pods), len(services), todo.actions) == (7, 2, ())


@pytest.mark.rule("RC:HL-1")
def test_single_host_groups_need_no_headless_service():
    assert "create demo-headless" not in writes_of(decide(parsed(group(replicas=2, numOfHosts=1)), service=False))


@pytest.mark.rule("RC:GRP-4")
def test_without_the_gate_hosts_are_plain_workers_that_are_counted():
    config = ClusterConfig(pods=PodConfig(has_multi_host_indexing=False))
    cluster = parsed(group(replicas=2, numOfHosts=3))
    todo = decide(cluster, head(), pod("demo-cpu-worker-a", replica_name="r", host_index=0), config=config)
    workers = [action for action in todo.actions if action.group == "cpu"]
    assert len(workers) == 5
    replica_labels = {constants.REPLICA_NAME_LABEL, constants.REPLICA_INDEX_LABEL, constants.HOST_INDEX_LABEL}
    assert all(replica_labels.isdisjoint(action.manifest["metadata"]["labels"]) for action in workers)


@pytest.mark.rule("RC:MH-9")
def test_hosts_of_replicas_are_recreated_when_the_group_has_one_host_each():
    hosts = [pod(f"demo-cpu-worker-{i}", replica_name="r", replica_index=0, host_index=i) for i in range(2)]
    todo = decide(parsed(group(replicas=2, numOfHosts=1)), head(), *hosts)
    assert writes_of(todo) == ["delete demo-cpu-worker-0", "delete demo-cpu-worker-1"]


@pytest.mark.rule("SC:S4", "RM:I18")
def test_a_replica_that_cannot_be_completed_is_given_up_and_no_other_begun():
    hosts = [
        pod(f"demo-cpu-worker-{i}", replica_name="r", replica_index=0, host_index=i, num_of_hosts=4) for i in range(2)
    ]
    retry = PendingRetry("cpu", constants.FAILED_TO_CREATE_WORKER_POD, "exceeded quota", retry_in_s=12.0, times=2)
    cluster = parsed(group(replicas=3, numOfHosts=4), group("gpu", replicas=1))
    todo = decide(cluster, head(), *hosts, pending_retries=(retry,))
    assert [name for name in writes_of(todo) if "headless" not in name] == [
        "delete demo-cpu-worker-0",
        "delete demo-cpu-worker-1",
        "create demo-gpu-worker-00000",
    ]
    assert (todo.given_up, todo.requeue_after_s) == ({"cpu"}, 12.0)


@pytest.mark.rule("FD:SEC-F12")
def test_ten_thousand_unknown_names_are_one_event():
    junk = [f"junk-{number}" for number in range(9_999)]
    todo = decide(parsed(group("cpu", 2, scaleStrategy={"workersToDelete": [*junk, "y" * 100_000]})), head(), *ENOUGH)
    (event,) = todo.events
    assert event.message.startswith("scaleStrategy.workersToDelete of group cpu has names that are not workers")
    assert ": junk-0, junk-1, junk-10 and 9997 more; " in event.message
    assert len(event.message) < 1000
