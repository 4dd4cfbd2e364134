"""GCS fault tolerance in RocksDB: the PersistentVolumeClaim of the GCS, and the head pod that mounts it.

One operator with the feature gate and one API serve all tests of this file; every test has a namespace of its own. With real Ray,
the state outlives the head in test_ray_fault_tolerance.py.
"""

import secrets

import pytest
import pytest_asyncio

from integration.clusters import APIS, COLLECTED_S, cluster_with_operator
from integration.embedded_cluster import has_reconciled, holds_while, until
from raytide.api import constants
from support.builders import group, raycluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

GATE = "GCSFaultToleranceEmbeddedStorage=true"
CLAIMS = "persistentvolumeclaims"
CLAIM = "demo-gcs-pvc"
ONE_GIB = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("operator")
    async with cluster_with_operator(request, folder, "--feature-gates", GATE) as cluster:
        yield cluster


@pytest.fixture
def namespace():
    return f"storage-{secrets.token_hex(4)}"


def with_rocksdb(namespace, *, suspend=False, **storage):
    options = {"backend": "rocksdb", "storage": storage}
    return raycluster(group(replicas=1), namespace=namespace, suspend=suspend, gcsFaultToleranceOptions=options)


def claim(cluster, namespace, name=CLAIM):
    found = [each for each in cluster.all(CLAIMS, namespace) if each["metadata"]["name"] == name]
    return found[0] if found else None


def make_claim(cluster, namespace, name=CLAIM, **metadata):
    cluster.ensure_namespace(namespace)
    return cluster.create(CLAIMS, {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": ONE_GIB})


def owners(cluster, namespace):
    found = claim(cluster, namespace)
    return [owner["uid"] for owner in found["metadata"].get("ownerReferences", ())] if found else None


def set_policy(cluster, namespace, policy):
    def change(obj):
        obj["spec"]["gcsFaultToleranceOptions"]["storage"]["deletionPolicy"] = policy

    cluster.edit(namespace, "demo", change)


@pytest.mark.rule("RC:PVC-2", "RC:PVC-3", "RC:FT-5", "RC:REC-14")
async def test_the_claim_is_there_before_the_head_and_goes_with_the_cluster(cluster, namespace):
    uid = cluster.apply(with_rocksdb(namespace, size="2Gi", subPath="ray"))["metadata"]["uid"]
    (head,) = await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    found = claim(cluster, namespace)
    assert found["metadata"]["creationTimestamp"] <= head["metadata"]["creationTimestamp"]
    assert found["metadata"]["labels"] == {"ray.io/cluster": "demo"}
    assert found["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert owners(cluster, namespace) == [uid]
    assert {"name": "gcs-storage", "persistentVolumeClaim": {"claimName": CLAIM}} in head["spec"]["volumes"]
    await until("it is told", lambda: "CreatedPVC" in cluster.events(namespace))
    assert not cluster.condition(namespace, "demo", "Unsupported")
    cluster.delete(namespace, "demo")
    await until("the claim is gone", lambda: claim(cluster, namespace) is None, within_s=COLLECTED_S)


@pytest.mark.rule("RC:PVC-3")
async def test_a_retained_claim_outlives_its_cluster_and_serves_the_next_of_that_name(cluster, namespace):
    cluster.apply(with_rocksdb(namespace, deletionPolicy="Retain"))
    await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    kept = claim(cluster, namespace)["metadata"]["uid"]
    assert owners(cluster, namespace) == []
    cluster.delete(namespace, "demo")
    await until("its pods are gone", lambda: not cluster.names(namespace), within_s=COLLECTED_S)
    second = cluster.apply(with_rocksdb(namespace))["metadata"]["uid"]
    await until("the second owns it", lambda: owners(cluster, namespace) == [second])
    assert claim(cluster, namespace)["metadata"]["uid"] == kept
    await until("its head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    set_policy(cluster, namespace, "Retain")
    await until("it has no owner again", lambda: owners(cluster, namespace) == [])


@pytest.mark.rule("RC:PVC-3")
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="without an owner and without the label"),
        pytest.param({"labels": {"ray.io/cluster": "other"}}, id="of another cluster"),
    ],
)
async def test_a_claim_of_somebody_else_is_told_and_never_touched(cluster, namespace, metadata):
    before = make_claim(cluster, namespace, **metadata)
    cluster.apply(with_rocksdb(namespace))
    await until("it is told", lambda: cluster.notes(namespace, "FailedToCreatePVC"))
    assert "already exists" in cluster.notes(namespace, "FailedToCreatePVC")[0]
    await holds_while(
        "there is no head",
        lambda: not cluster.names(namespace, constants.HEAD_GROUP),
        has_reconciled(cluster, namespace),
    )
    after = claim(cluster, namespace)
    assert (after["metadata"]["uid"], owners(cluster, namespace)) == (before["metadata"]["uid"], [])
    condition = cluster.condition(namespace, "demo", "ReplicaFailure")
    assert CLAIM in condition["message"]
    cluster.delete(namespace, CLAIM, CLAIMS)
    await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    assert owners(cluster, namespace), "the cluster has one of its own"


@pytest.mark.rule("RC:PVC-1")
async def test_a_claim_that_the_user_names_is_waited_for_and_never_touched(cluster, namespace):
    cluster.apply(with_rocksdb(namespace, claimName="mine"))
    (head,) = await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    assert {"name": "gcs-storage", "persistentVolumeClaim": {"claimName": "mine"}} in head["spec"]["volumes"]
    (note,) = await until("it is told", lambda: cluster.notes(namespace, "FailedToCreatePVC"))
    assert note.startswith("PersistentVolumeClaim mine does not exist")
    before = make_claim(cluster, namespace, "mine")
    await has_reconciled(cluster, namespace)
    after = claim(cluster, namespace, "mine")
    assert (after["metadata"]["uid"], after["metadata"].get("ownerReferences")) == (before["metadata"]["uid"], None)
    assert claim(cluster, namespace) is None


@pytest.mark.rule("RC:PVC-1", "RC:PVC-3")
async def test_a_retained_claim_that_the_user_names_now_is_never_touched_again(cluster, namespace):
    cluster.apply(with_rocksdb(namespace, deletionPolicy="Retain"))
    await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    await has_reconciled(cluster, namespace)

    def name_it(obj):
        obj["spec"]["gcsFaultToleranceOptions"]["storage"] = {"claimName": CLAIM}

    cluster.edit(namespace, "demo", name_it)
    await has_reconciled(cluster, namespace)
    assert owners(cluster, namespace) == []


@pytest.mark.rule("RC:PVC-2")
async def test_a_claim_that_was_deleted_is_made_again_with_the_next_head(cluster, namespace):
    cluster.apply(with_rocksdb(namespace))
    await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    first = claim(cluster, namespace)["metadata"]["uid"]
    cluster.edit(namespace, "demo", lambda obj: obj["spec"].update(suspend=True))
    await until("it is suspended", lambda: cluster.status(namespace, "demo").get("state") == "suspended")
    cluster.delete(namespace, CLAIM, CLAIMS)
    await until("the claim is gone", lambda: claim(cluster, namespace) is None, within_s=COLLECTED_S)
    cluster.edit(namespace, "demo", lambda obj: obj["spec"].update(suspend=False))
    await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    found = await until("another claim exists", lambda: claim(cluster, namespace))
    assert found["metadata"]["uid"] != first


@pytest.mark.rule("RC:PVC-4")
async def test_a_claim_that_differs_is_used_as_it_is_and_told(cluster, namespace):
    make_claim(cluster, namespace, labels={"ray.io/cluster": "demo"})
    cluster.apply(with_rocksdb(namespace, size="5Gi", accessModes=["ReadWriteMany"], deletionPolicy="Retain"))
    (note,) = await until("it is told", lambda: cluster.notes(namespace, "FailedToCreatePVC"))
    assert "size is 1Gi, not 5Gi; accessModes are ReadWriteOnce, not ReadWriteMany" in note
    await until("the head exists", lambda: cluster.pods(namespace, constants.HEAD_GROUP))
    assert claim(cluster, namespace)["spec"]["resources"] == ONE_GIB["resources"]


@pytest.mark.rule("RC:PVC-2", "RC:SU-1")
async def test_a_suspended_cluster_gets_its_claim_and_no_pods(cluster, namespace):
    cluster.apply(with_rocksdb(namespace, suspend=True))
    await until("the claim exists", lambda: claim(cluster, namespace))
    await has_reconciled(cluster, namespace)
    assert not cluster.pods(namespace)


async def test_steady_nothing_is_written(cluster, namespace):
    cluster.apply(with_rocksdb(namespace))
    await until("all pods exist", lambda: len(cluster.names(namespace)) == 2)
    cluster.make_ready(namespace)
    await until("it is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")
    await has_reconciled(cluster, namespace)
    cluster.writes.clear()
    await holds_while("nothing is written", lambda: not cluster.writes, has_reconciled(cluster, namespace))
