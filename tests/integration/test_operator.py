"""The real operator with kopf, on pods whose status the test sets: the lifecycle of RayClusters.

One operator and one API serve all tests of this file; every test has a namespace of its own. Everything here is shown on
the embedded API and, by `make kube-suite`, on a real control plane.
"""

import secrets
import sys

import pytest
import pytest_asyncio

import crds
from integration.cluster_under_test import RAYCLUSTERS, path_of
from integration.clusters import APIS, COLLECTED_S, new_cluster
from integration.embedded_cluster import Operator, has_reconciled, holds_while, until
from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide.diagnosis.model import Diagnosis
from support.builders import group, raycluster, template

pytestmark = pytest.mark.asyncio(loop_scope="module")


COMPLETE_S, REPLACED_S = 10.0, 10.0
"""The bars of SC:S3 and SC:S12."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    cluster = new_cluster(request)
    await cluster.start()
    operator = await Operator().start(cluster.write_kubeconfig(tmp_path_factory.mktemp("operator") / "kubeconfig"))
    yield cluster
    code = await operator.stop()
    await cluster.stop()
    sys.stdout.write(operator.log)  # shown when a test of this file fails
    assert code == 0, operator.log
    assert "Traceback" not in operator.log
    assert "shutdown complete" in operator.log


@pytest.fixture
def namespace(request):
    name = request.node.originalname.replace("_", "-").replace("test-", "")[:40].rstrip("-")
    return f"{name}-{secrets.token_hex(2)}"


async def running(cluster, namespace, *groups, name="demo"):
    """A RayCluster all of whose pods are Ready."""
    obj = cluster.apply(raycluster(*groups, name=name, namespace=namespace))
    wanted = 1 + sum(g["replicas"] for g in obj["spec"]["workerGroupSpecs"])
    before = len(cluster.names(namespace))
    await until("all pods exist", lambda: len(cluster.names(namespace)) == before + wanted)
    cluster.make_ready(namespace)
    await until("state is ready", lambda: cluster.status(namespace, name).get("state") == "ready")
    return obj


def nothing(writes):
    """True; what was written is in the words of its failure."""
    assert not writes, dict(writes)
    return True


def workers(cluster, namespace, group_name="cpu"):
    return cluster.names(namespace, group_name)


@pytest.mark.rule("FD:UX-4")
async def test_the_columns_of_kubectl_are_not_empty_without_workers(cluster, namespace):
    cluster.apply(raycluster(group(replicas=0), namespace=namespace))
    await until("there is a status", lambda: cluster.status(namespace, "demo").get("conditions"))
    columns = crds.build_raycluster_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    paths = [each["jsonPath"] for each in columns if each["name"].endswith("workers")]
    assert len(paths) == 3
    assert {path: cluster.status(namespace, "demo").get(path.rpartition(".")[2]) for path in paths} == dict.fromkeys(
        paths, 0
    )
    cluster.make_ready(namespace)
    await until("it is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")
    assert cluster.status(namespace, "demo")["readyWorkerReplicas"] == 0


async def test_create_gives_service_head_and_workers(cluster, namespace):
    obj = await running(cluster, namespace)
    (service,) = cluster.all("services", namespace)
    assert service["metadata"]["name"] == "demo-head-svc"
    pods = cluster.pods(namespace)
    assert sorted(p["metadata"]["labels"]["ray.io/group"] for p in pods) == ["cpu", "cpu", "headgroup"]
    for child in [service, *pods]:
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner["uid"] == obj["metadata"]["uid"]
    status = cluster.status(namespace, "demo")
    assert (status["readyWorkerReplicas"], status["desiredWorkerReplicas"], status["desiredCPU"]) == (2, 2, "3")
    assert cluster.condition(namespace, "demo", constants.PROVISIONED)["status"] == "True"
    assert cluster.condition(namespace, "demo", constants.WORKERS_MISSING) == {}
    expected = {constants.CREATED_SERVICE, constants.CREATED_HEAD_POD, constants.CREATED_WORKER_POD}
    await until("events are recorded", lambda: expected <= cluster.events(namespace))


@pytest.mark.rule("PF:P8", "RM:I19", "D14")
async def test_it_writes_what_is_needed_and_then_nothing(cluster, namespace):
    cluster.writes.clear()
    await running(cluster, namespace)
    assert cluster.writes["POST pods"] == 3
    assert cluster.writes["POST services"] == 1
    assert cluster.writes["PATCH status"] <= 5
    expected = {constants.CREATED_SERVICE, constants.CREATED_HEAD_POD, constants.CREATED_WORKER_POD}
    await until("events are recorded", lambda: expected <= cluster.events(namespace))
    cluster.writes.clear()
    stored = cluster.get("rayclusters.ray.io", namespace, "demo")["metadata"]
    assert stored["generation"] == 1
    assert "finalizers" not in stored
    assert "annotations" not in stored
    await holds_while("nothing is written", lambda: nothing(cluster.writes), has_reconciled(cluster, namespace))


async def test_scale_up_and_down(cluster, namespace):
    await running(cluster, namespace)
    first = workers(cluster, namespace)
    cluster.scale(namespace, "demo", 4)
    await until("four workers", lambda: len(workers(cluster, namespace)) == 4)
    assert first < workers(cluster, namespace)
    cluster.scale(namespace, "demo", 2)
    await until("two workers", lambda: len(workers(cluster, namespace)) == 2)
    assert workers(cluster, namespace) == first, "the pending ones go, the running ones stay"
    await holds_while(
        "and no worker comes back", lambda: workers(cluster, namespace) == first, has_reconciled(cluster, namespace)
    )


@pytest.mark.rule("SE:C9")
async def test_names_labels_and_workers_to_delete_reach_no_pod_of_another_namespace(cluster, namespace):
    other = f"{namespace}-b"
    await running(cluster, other)
    before = {pod["metadata"]["uid"]: pod["metadata"]["labels"] for pod in cluster.pods(other)}
    victims = tuple(sorted(workers(cluster, other)))
    labels = {"ray.io/cluster": "demo", "raytide.io/namespace": other}
    hostile = group(replicas=2)
    hostile["template"]["metadata"] = {"namespace": other, "labels": labels}
    obj = cluster.apply(raycluster(hostile, name="demo", namespace=namespace))
    await until("all pods exist", lambda: len(cluster.names(namespace)) == 3)
    cluster.make_ready(namespace)
    cluster.scale(namespace, "demo", 1, victims=victims)
    await until("one worker", lambda: len(workers(cluster, namespace)) == 1)
    cluster.delete(namespace, "demo")
    await until("its pods are deleted", lambda: not cluster.names(namespace), within_s=COLLECTED_S)
    after = {pod["metadata"]["uid"]: pod["metadata"]["labels"] for pod in cluster.pods(other)}
    assert after == before
    owners = {owner["uid"] for pod in cluster.pods(other) for owner in pod["metadata"]["ownerReferences"]}
    assert obj["metadata"]["uid"] not in owners


@pytest.mark.rule("RC:SH-2", "SC:S10")
async def test_only_workers_named_in_workers_to_delete_are_deleted(cluster, namespace):
    await running(cluster, namespace, group(replicas=3))
    await running(cluster, namespace, name="other")
    foreign = next(n for n in workers(cluster, namespace) if n.startswith("other-"))
    victim, *rest = sorted(n for n in workers(cluster, namespace) if n.startswith("demo-"))
    unrelated = {
        "metadata": {"name": "deployment-pod", "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "img"}]},
    }
    cluster.create("pods", unrelated)
    cluster.scale(namespace, "demo", 2, victims=(victim, foreign, "deployment-pod"))
    await until("the victim is gone", lambda: victim not in cluster.names(namespace))
    await until("a warning is recorded", lambda: constants.INVALID_SPEC in cluster.events(namespace))
    all_pods = {*rest, foreign, "deployment-pod"}
    await holds_while(
        "the others stay", lambda: all_pods <= cluster.names(namespace), has_reconciled(cluster, namespace)
    )


@pytest.mark.rule("RC:SD-1")
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_an_ended_worker_is_replaced(cluster, namespace, phase):
    await running(cluster, namespace)
    victim, survivor = sorted(workers(cluster, namespace))
    cluster.set_pod_status(namespace, victim, phase=phase)
    await until(
        "it is replaced", lambda: victim not in cluster.names(namespace) and len(workers(cluster, namespace)) == 2
    )
    assert survivor in workers(cluster, namespace)


@pytest.mark.rule("FD:RC-B15")
async def test_the_last_failed_worker_is_kept_if_the_annotation_is_set(cluster, namespace):
    await running(cluster, namespace)
    asked = {constants.KEEP_FAILED_PODS_ANNOTATION: "true"}
    cluster.edit(namespace, "demo", lambda obj: obj["metadata"].update(annotations=asked))
    first, second = sorted(workers(cluster, namespace))
    cluster.set_pod_status(namespace, first, phase="Failed")
    await until("it has a successor", lambda: len(workers(cluster, namespace)) == 3)
    await until("it is reported", lambda: constants.KEPT_FAILED_POD in cluster.events(namespace))
    cluster.make_ready(namespace)
    cluster.set_pod_status(namespace, second, phase="Failed")
    await until("only one of them is left", lambda: {first, second} - workers(cluster, namespace))
    await until("there are two successors", lambda: len(workers(cluster, namespace)) == 3)


@pytest.mark.rule("FD:RC-B16", "RC:HP-6")
async def test_a_lost_head_is_replaced_and_workers_stay(cluster, namespace):
    await running(cluster, namespace)
    (head,) = cluster.names(namespace, "headgroup")
    before = workers(cluster, namespace)
    cluster.end(namespace, head)
    await until("a new head", lambda: cluster.names(namespace, "headgroup") - {head})
    cluster.make_ready(namespace)
    (new,) = cluster.names(namespace, "headgroup")
    await until("status shows it", lambda: cluster.status(namespace, "demo")["head"].get("podName") == new)
    assert workers(cluster, namespace) == before
    await until("it is reported", lambda: cluster.notes(namespace, constants.HEAD_POD_LOST))
    assert f"Head pod {head} is lost" in cluster.notes(namespace, constants.HEAD_POD_LOST)[0]


@pytest.mark.rule("FD:RC3-3")
async def test_heads_that_the_kubelet_rejects_are_replaced_after_delays_with_their_cause(cluster, namespace):
    cluster.apply(raycluster(group(replicas=0), namespace=namespace))
    rejected = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
    seen: set[str] = set()
    for _ in range(3):
        (new,) = await until("a new head", lambda: cluster.names(namespace, "headgroup") - seen)
        cluster.set_pod_status(namespace, new, **rejected)
        seen.add(new)
    await until("it was not lost", lambda: cluster.notes(namespace, constants.HEAD_POD_NEVER_READY))
    assert not cluster.notes(namespace, constants.HEAD_POD_LOST)

    def condition():
        found = cluster.status(namespace, "demo").get("conditions", ())
        return next((each for each in found if each["type"] == constants.HEAD_POD_READY), {})

    await until("the cause is shown", lambda: condition().get("reason") == "UnexpectedAdmissionError")
    assert "Allocate failed" in condition()["message"]
    (last,) = await until("the next try", lambda: cluster.pods(namespace, "headgroup"))
    assert last["metadata"]["annotations"][constants.FAILED_STARTS_ANNOTATION].partition(" ")[0] in {"2", "3"}


@pytest.mark.rule("RC:EX-5")
async def test_a_terminating_worker_counts_until_it_is_gone(cluster, namespace):
    await running(cluster, namespace)
    victim = min(workers(cluster, namespace))
    cluster.holds.add(victim)
    cluster.scale(namespace, "demo", 2, victims=(victim,))
    await until("it is terminating", lambda: victim not in workers(cluster, namespace))
    await holds_while(
        "no third pod is made", lambda: len(cluster.pods(namespace, "cpu")) == 2, has_reconciled(cluster, namespace)
    )
    cluster.end(namespace, victim)
    await until("its successor comes", lambda: len(workers(cluster, namespace)) == 2)


@pytest.mark.rule("SC:S12")
async def test_a_terminating_worker_on_an_unready_node_does_not_block_its_replacement(cluster, namespace):
    await running(cluster, namespace)
    node = f"n-dead-{namespace[-4:]}"
    cluster.create("nodes", {"metadata": {"name": node}})
    cluster.set_node_ready(node, "True")
    cluster.scale(namespace, "demo", 3)
    await until("a third worker", lambda: len(workers(cluster, namespace)) == 3)
    (victim,) = [p["metadata"]["name"] for p in cluster.pods(namespace, "cpu") if not p["spec"].get("nodeName")]
    cluster.make_ready(namespace, node)
    cluster.holds.add(victim)
    cluster.delete(namespace, victim, "pods")
    await holds_while(
        "it counts while its node is well",
        lambda: len(cluster.pods(namespace, "cpu")) == 3,
        has_reconciled(cluster, namespace),
    )
    cluster.set_node_ready(node, "Unknown")
    await until("its successor comes", lambda: len(workers(cluster, namespace)) == 3, within_s=REPLACED_S)
    cluster.end(namespace, victim)
    cluster.delete("", node, "nodes")


@pytest.mark.rule("SC:S14")
async def test_pods_of_a_removed_group_are_deleted_and_others_stay(cluster, namespace):
    await running(cluster, namespace, group("a", 2), group("b", 2))
    before = workers(cluster, namespace, "a")
    cluster.edit(namespace, "demo", lambda obj: obj["spec"]["workerGroupSpecs"].pop())
    await until("b is gone", lambda: not cluster.pods(namespace, "b"))
    assert workers(cluster, namespace, "a") == before
    await until("status is of one group", lambda: cluster.status(namespace, "demo")["desiredWorkerReplicas"] == 2)


@pytest.mark.rule("RC:REC-5", "RM:I16")
async def test_delete_takes_everything_along(cluster, namespace):
    await running(cluster, namespace)
    cluster.delete(namespace, "demo")
    await until(
        "pods and service are gone",
        lambda: not cluster.pods(namespace) and not cluster.all("services", namespace),
        within_s=COLLECTED_S,
    )
    cluster.apply(raycluster(group(replicas=0), name="later", namespace=namespace))
    await until("the operator has looked at a later one", lambda: cluster.pods(namespace, "headgroup"))
    assert len(cluster.pods(namespace)) == 1, "and stay gone"


async def test_delete_and_create_again_at_once(cluster, namespace):
    await running(cluster, namespace)
    before = cluster.names(namespace)
    cluster.delete(namespace, "demo")
    obj = cluster.apply(raycluster(namespace=namespace))
    uid = obj["metadata"]["uid"]

    def owned():
        children = cluster.pods(namespace) + cluster.all("services", namespace)
        return [c for c in children if c["metadata"]["ownerReferences"][0]["uid"] == uid]

    await until("the new one has all its children", lambda: len(owned()) == 4, within_s=COLLECTED_S)
    assert not before & cluster.names(namespace)


async def test_two_clusters_do_not_touch_each_other(cluster, namespace):
    await running(cluster, namespace, name="one")
    await running(cluster, namespace, name="two")
    two = {n for n in cluster.names(namespace) if n.startswith("two-")}
    cluster.scale(namespace, "one", 0)
    await until("one has no workers", lambda: not [n for n in workers(cluster, namespace) if n.startswith("one-")])
    cluster.delete(namespace, "one")
    await until("one is gone", lambda: cluster.names(namespace) == two, within_s=COLLECTED_S)
    assert cluster.status(namespace, "two")["state"] == "ready"


@pytest.mark.rule("SC:S3", "RM:I18")
async def test_a_group_without_quota_does_not_block_the_next_group(cluster, namespace):
    low_priority = template(priorityClassName=cluster.without_quota(namespace))
    cluster.apply(
        raycluster(group("a", 10, template=low_priority), group("b", 10), group("c", 10), namespace=namespace)
    )
    await until("b and c are complete", lambda: len(cluster.names(namespace)) == 21, within_s=COMPLETE_S)
    condition = await until("a says why", lambda: cluster.condition(namespace, "demo", constants.REPLICA_FAILURE))
    assert condition["message"].startswith("group a: ")
    assert "exceeded quota: none" in condition["message"]
    missing = cluster.condition(namespace, "demo", constants.WORKERS_MISSING)
    assert missing["reason"] == "QuotaExceeded"
    asked = cluster.writes["POST pods"]
    await holds_while(
        "it is not asked at every look",
        lambda: cluster.writes["POST pods"] <= asked + 1,
        has_reconciled(cluster, namespace),
    )
    cluster.give_quota(namespace)
    await until("events are recorded", lambda: constants.FAILED_TO_CREATE_WORKER_POD in cluster.events(namespace))
    cluster.scale(namespace, "demo", 3)
    await until("a new generation is tried at once", lambda: len(workers(cluster, namespace, "a")) == 3)


@pytest.mark.rule("RC:V-11")
async def test_an_invalid_spec_is_reported_and_other_clusters_are_reconciled(cluster, namespace):
    cluster.apply(raycluster(namespace=namespace, name="good"))
    await until("the good one has its pods", lambda: len(cluster.names(namespace)) == 3)
    cluster.store_past_admission(raycluster(group(low=5, high=2), namespace=namespace, name="bad"))
    condition = await until("it is reported", lambda: cluster.condition(namespace, "bad", constants.INVALID))
    assert "spec.workerGroupSpecs[0].minReplicas" in condition["message"]
    await until("an event reports it", lambda: constants.INVALID_SPEC in cluster.events(namespace))
    cluster.scale(namespace, "good", 3)
    await until("the good one goes on", lambda: len(cluster.names(namespace)) == 4)
    assert not [n for n in cluster.names(namespace) if n.startswith("bad")]


@pytest.mark.rule("FD:RC3-4")
async def test_the_head_service_selects_a_head_of_any_labels(cluster, namespace):
    own = {**template("ray-head"), "metadata": {"labels": {"app.kubernetes.io/created-by": "argo"}}}
    head_group = {"rayStartParams": {}, "template": own, "labels": {"app.kubernetes.io/name": "train"}}
    cluster.apply(raycluster(group(replicas=0), namespace=namespace, headGroupSpec=head_group))
    (head,) = await until("the head exists", lambda: cluster.pods(namespace))
    (service,) = cluster.services(namespace)
    assert service["spec"]["selector"].items() <= head["metadata"]["labels"].items()


@pytest.mark.rule("FD:RC3-4")
async def test_a_head_service_that_does_not_select_the_next_head_is_reported(cluster, namespace):
    await running(cluster, namespace, group(replicas=0))
    (head,) = cluster.names(namespace)
    own = {**template("ray-head"), "metadata": {"labels": {"ray.io/identifier": "mine"}}}
    cluster.edit(namespace, "demo", lambda obj: obj["spec"]["headGroupSpec"].update(template=own))
    cluster.end(namespace, head)
    (note,) = await until("the event names the label", lambda: cluster.notes(namespace, constants.HEAD_SERVICE_CHANGED))
    assert note.startswith("service demo-head-svc selects ray.io/identifier=demo-head, but head pod demo-head-")
    assert "has ray.io/identifier=mine" in note


@pytest.mark.rule("FD:RC3-7")
async def test_an_init_container_replaces_ours_and_an_invalid_pod_is_reported_with_its_field(cluster, namespace):
    waiting = {"name": "wait-gcs-ready", "image": "busybox", "command": ["true"]}
    invalid = template("a", initContainers=[{"name": "a", "image": "busybox"}])
    groups = group("own", template=template(initContainers=[waiting])), group("bad", template=invalid)
    cluster.apply(raycluster(*groups, namespace=namespace))
    pods = await until("the valid group has its pods", lambda: cluster.pods(namespace)[2:] and cluster.pods(namespace))
    own = next(pod for pod in pods if pod["metadata"]["labels"]["ray.io/group"] == "own")
    assert [each["command"] for each in own["spec"]["initContainers"]] == [["true"]]
    cluster.make_ready(namespace)

    def reported():
        found = cluster.condition(namespace, "demo", constants.WORKERS_MISSING)
        return found if found and found["reason"] == "CreationInvalid" else None

    condition = await until("the invalid group is reported", reported)
    assert "ontainers[0].name in the spec" in condition["message"]


async def test_a_wrong_type_is_reported_with_its_field_and_other_clusters_are_reconciled(cluster, namespace):
    cluster.store_past_admission(raycluster(group(replicas="many"), namespace=namespace, name="bad"))
    condition = await until("it is reported", lambda: cluster.condition(namespace, "bad", constants.INVALID))
    assert "spec.workerGroupSpecs[0].replicas" in condition["message"]
    cluster.apply(raycluster(namespace=namespace, name="good"))
    await until("the good one has its pods", lambda: len(cluster.names(namespace)) == 3)


async def test_unknown_fields_are_ignored(cluster, namespace):
    obj = raycluster(namespace=namespace, fieldOfTomorrow={"a": 1})
    cluster.store_past_admission(obj)
    await until("it has its pods", lambda: len(cluster.names(namespace)) == 3)


async def test_an_edit_that_breaks_the_spec_leaves_what_runs_alone(cluster, namespace):
    await running(cluster, namespace)
    before = cluster.names(namespace)
    broken = [group(replicas=0), group(replicas=1)]
    cluster.past_admission(
        lambda: cluster.edit(namespace, "demo", lambda obj: obj["spec"].update(workerGroupSpecs=broken))
    )
    await until("it is reported", lambda: cluster.condition(namespace, "demo", constants.INVALID))
    await holds_while(
        "everything stays", lambda: cluster.names(namespace) == before, has_reconciled(cluster, namespace)
    )


@pytest.mark.rule("RC:REC-2")
async def test_a_cluster_managed_by_another_controller_is_left_alone(cluster, namespace):
    cluster.apply(raycluster(namespace=namespace, managedBy="kueue.x-k8s.io/multikueue"))
    await holds_while(
        "nothing happens",
        lambda: not cluster.pods(namespace) and not cluster.status(namespace, "demo"),
        has_reconciled(cluster, namespace),
    )


async def test_unsupported_fields_are_named(cluster, namespace):
    obj = raycluster(group(replicas=1), namespace=namespace)
    obj["spec"]["headGroupSpec"]["enableIngress"] = True
    cluster.apply(obj)
    condition = await until("it is reported", lambda: cluster.condition(namespace, "demo", constants.UNSUPPORTED))
    assert "spec.headGroupSpec.enableIngress" in condition["message"]


# --- the decision record -----------------------------------------------------------------------------------------------

RUNNING = {
    "ready": True,
    "started": True,
    "restartCount": 0,
    "image": "img",
    "imageID": "img",
    "state": {"running": {}},
}


def decide(cluster, namespace, decision):
    """The sidecar's patch: the number and the record, under its own name."""
    obj = cluster.get(RAYCLUSTERS, namespace, "demo")
    (head,) = cluster.pods(namespace, "headgroup")
    record = DecisionRecord(obj["metadata"]["uid"], head["metadata"]["uid"], groups={"cpu": decision})
    annotations = {constants.AUTOSCALER_DECISION_ANNOTATION: encode_record(record)}
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]},
        {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": decision.replicas},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ]
    path, manager = path_of(RAYCLUSTERS, namespace, "demo"), constants.AUTOSCALER_FIELD_MANAGER
    cluster.done("PATCH", path, operations, content_type="application/json-patch+json", fieldManager=manager)


@pytest.mark.rule("D19", "SC:S6", "RM:I4")
async def test_another_writer_of_replicas_deletes_no_worker_and_is_named(cluster, namespace):
    """The API server writes managedFields: only a real one shows the name of the writer."""
    manifest = raycluster(group(replicas=1), namespace=namespace, enableInTreeAutoscaling=True)
    cluster.apply(manifest)
    await until("head and worker", lambda: len(cluster.names(namespace)) == 2)
    cluster.make_ready(namespace)
    (head,) = cluster.pods(namespace, "headgroup")
    statuses = [{"name": container["name"], **RUNNING} for container in head["spec"]["containers"]]
    cluster.set_pod_status(namespace, head["metadata"]["name"], containerStatuses=statuses)
    decide(cluster, namespace, GroupDecision(3, why=(Diagnosis("MaxReached", 4),)))
    await until("the record is followed", lambda: len(workers(cluster, namespace)) == 3)
    await until(
        "the reason for the limit is reported",
        lambda: cluster.condition(namespace, "demo", constants.SCALING_LIMITED).get("reason") == "MaxReached",
    )

    del manifest["metadata"]["uid"], manifest["metadata"]["generation"]
    query = {"content_type": "application/apply-patch+yaml", "fieldManager": "gitops-loop", "force": "true"}
    cluster.done("PATCH", path_of(RAYCLUSTERS, namespace, "demo"), manifest, **query)
    difference = "group cpu: replicas is 1 (written by gitops-loop), the autoscaler decided 3"
    await until(
        "the other writer is reported",
        lambda: cluster.condition(namespace, "demo", constants.REPLICAS_CONTENDED).get("message") == difference,
    )
    await holds_while(
        "no worker goes", lambda: len(workers(cluster, namespace)) == 3, has_reconciled(cluster, namespace)
    )
    assert cluster.status(namespace, "demo")["desiredWorkerReplicas"] == 3


def apply_gates(cluster, namespace, manager, *types):
    """What a quota controller applies: its own entries of the list, under its own name."""
    spec = {
        "workerGroupSpecs": [{"groupName": "cpu", "scaleStrategy": {"scaleGate": [{"type": one} for one in types]}}]
    }
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo"}, "spec": spec}
    query = {"content_type": "application/apply-patch+yaml", "fieldManager": manager}
    cluster.done("PATCH", path_of(RAYCLUSTERS, namespace, "demo"), body, **query)


def gates(cluster, namespace):
    (found,) = cluster.get(RAYCLUSTERS, namespace, "demo")["spec"]["workerGroupSpecs"]
    return [gate["type"] for gate in found.get("scaleStrategy", {}).get("scaleGate", [])]


@pytest.mark.rule("FD:AS3-8", "AS:K-11")
async def test_scale_gates_stay_until_their_own_controllers_remove_them(cluster, namespace):
    await running(cluster, namespace, group(replicas=1))
    apply_gates(cluster, namespace, "quota", "example.com/quota")
    apply_gates(cluster, namespace, "maintenance", "example.com/maintenance")
    path = path_of(RAYCLUSTERS, namespace, "demo")
    names = [{"op": "add", "path": "/spec/workerGroupSpecs/0/scaleStrategy/workersToDelete", "value": []}]
    cluster.done("PATCH", path, names, content_type="application/json-patch+json", fieldManager="sidecar")
    await has_reconciled(cluster, namespace)
    assert sorted(gates(cluster, namespace)) == ["example.com/maintenance", "example.com/quota"]
    apply_gates(cluster, namespace, "quota")
    assert gates(cluster, namespace) == ["example.com/maintenance"]
    assert len(workers(cluster, namespace)) == 1


@pytest.mark.rule("FD:PS3-1")
async def test_a_head_without_an_owner_holds_back_a_second_one_until_it_is_deleted(cluster, namespace):
    labels = {
        constants.CLUSTER_LABEL: "demo",
        constants.NODE_TYPE_LABEL: constants.HEAD,
        constants.GROUP_LABEL: constants.HEAD_GROUP,
    }
    cluster.ensure_namespace(namespace)
    orphan = {
        "metadata": {"name": "orphan", "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "ray-head", "image": "img"}]},
    }
    cluster.create("pods", orphan)
    cluster.apply(raycluster(group(replicas=0), namespace=namespace))
    await until("it is named", lambda: cluster.notes(namespace, constants.HEAD_POD_WITHOUT_OWNER))
    assert cluster.names(namespace, "headgroup") == {"orphan"}
    cluster.end(namespace, "orphan")
    await until("there is a head", lambda: cluster.names(namespace, "headgroup") - {"orphan"})
