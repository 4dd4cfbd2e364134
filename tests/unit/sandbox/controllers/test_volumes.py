"""Claims get a volume of their own, a directory on this machine, and pods wait for their claims."""

from pathlib import PurePath

import pytest

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.controllers.manager import Controllers

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
ONE_GIB = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
MOUNTED = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.fixture
def provisioned(cluster):
    cluster.controllers = Controllers(cluster.store, volumes=PurePath("/v"))
    cluster.node("n1")
    return cluster


def claim(cluster):
    return cluster.store.get(CLAIMS, "default", "data")


def test_a_claim_is_bound_to_a_directory_of_its_own(provisioned):
    uid = provisioned.create(CLAIMS, "data", spec={**ONE_GIB, "storageClassName": "fast"})["metadata"]["uid"]
    found = claim(provisioned)
    assert found["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    volume = provisioned.store.get(VOLUMES, "", found["spec"]["volumeName"])
    assert volume["spec"]["hostPath"] == {"path": f"/v/pvc-{uid}", "type": "DirectoryOrCreate"}
    assert (volume["spec"]["claimRef"]["uid"], volume["spec"]["storageClassName"]) == (uid, "fast")
    assert volume["status"]["phase"] == "Bound"


def test_a_volume_goes_with_its_claim_and_the_next_claim_has_another(provisioned):
    provisioned.create(CLAIMS, "data", spec=ONE_GIB)
    first = claim(provisioned)["spec"]["volumeName"]
    provisioned.store.delete(CLAIMS, "default", "data")
    provisioned.settle()
    with pytest.raises(ApiStatusError, match="not found"):
        provisioned.store.get(VOLUMES, "", first)
    provisioned.create(CLAIMS, "data", spec=ONE_GIB)
    assert claim(provisioned)["spec"]["volumeName"] != first


def test_a_claim_of_a_volume_that_the_user_names_is_left_alone(provisioned):
    provisioned.create(CLAIMS, "data", spec={**ONE_GIB, "volumeName": "mine"})
    assert "status" not in claim(provisioned)


def test_a_pod_waits_for_its_claim_in_the_words_of_kube_scheduler(provisioned):
    provisioned.pod("p", volumes=MOUNTED)
    assert provisioned.scheduled("p")["message"] == ('0/1 nodes are available: persistentvolumeclaim "data" not found.')
    provisioned.create(CLAIMS, "data", spec=ONE_GIB)
    assert provisioned.node_of("p") == "n1"


def test_all_pods_that_wait_for_one_claim_start_with_it(provisioned):
    for name in ("p", "q"):
        provisioned.pod(name, volumes=MOUNTED)
    provisioned.create(CLAIMS, "data", spec=ONE_GIB)
    assert (provisioned.node_of("p"), provisioned.node_of("q")) == ("n1", "n1")


def test_without_a_directory_for_volumes_claims_and_their_pods_wait(cluster):
    cluster.node("n1")
    cluster.create(CLAIMS, "data", spec=ONE_GIB)
    cluster.pod("p", volumes=MOUNTED)
    cluster.pod("q")
    assert "status" not in claim(cluster)
    assert "pod has unbound immediate PersistentVolumeClaims" in cluster.scheduled("p")["message"]
    assert (cluster.node_of("p"), cluster.node_of("q")) == (None, "n1")


def test_a_pod_does_not_start_on_a_claim_that_is_being_deleted(provisioned):
    provisioned.create(CLAIMS, "data", spec=ONE_GIB, metadata={"finalizers": ["example.com/backup"]})
    provisioned.store.delete(CLAIMS, "default", "data")
    provisioned.pod("p", volumes=MOUNTED)
    assert "is being deleted" in provisioned.scheduled("p")["message"]
