"""The volume of a GCS that keeps its state in RocksDB: what the head gets, and the PersistentVolumeClaim (RC §2.10)."""

import pytest

from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.gcs_storage import build_claim, claim_lookups, differences, owner_patch
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from support.builders import raycluster

OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "backup", "uid": "uid-backup"}


def cluster(*, options=None, **storage):
    chosen = {"backend": "rocksdb", "storage": storage} if options is None else options
    return RayCluster.parse(raycluster(gcsFaultToleranceOptions=chosen))


def live(owners=(), version="7", **spec):
    """The claim as the API server stores it."""
    found = build_claim(cluster())
    found["metadata"] |= {"uid": "uid-claim", "resourceVersion": version, "ownerReferences": list(owners)}
    return {**found, "spec": {**found["spec"], "storageClassName": "standard", **spec}}


def own():
    (owner,) = build_claim(cluster())["metadata"]["ownerReferences"]
    return owner


@pytest.mark.rule("RC:FT-5")
def test_the_head_keeps_its_state_on_the_volume():
    pod = build_head_pod(cluster(subPath="ray"), PodConfig(), "demo-head-aaaaa")
    ray, annotations = pod["spec"]["containers"][0], pod["metadata"]["annotations"]
    env = {entry["name"]: entry.get("value") for entry in ray["env"]}
    assert (env["RAY_gcs_storage"], env["RAY_gcs_storage_path"]) == ("rocksdb", "/data/gcs")
    assert {"name": "gcs-storage", "mountPath": "/data/gcs", "subPath": "ray"} in ray["volumeMounts"]
    assert {"name": "gcs-storage", "persistentVolumeClaim": {"claimName": "demo-gcs-pvc"}} in pod["spec"]["volumes"]
    assert annotations["ray.io/ft-enabled"] == "true"
    assert "ray.io/external-storage-namespace" not in annotations
    assert not {"RAY_REDIS_ADDRESS", "RAY_external_storage_namespace", "REDIS_PASSWORD"} & env.keys()


@pytest.mark.rule("RC:FT-1", "RC:FT-5")
def test_workers_wait_for_the_next_head_and_have_no_volume():
    found = cluster()
    spec = build_worker_template(found, found.spec.worker_group_specs[0], PodConfig())["spec"]
    env = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    assert env["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"
    assert "RAY_gcs_storage" not in env
    assert "gcs-storage" not in {volume["name"] for volume in spec["volumes"]}


@pytest.mark.rule("RC:PVC-2")
def test_the_claim_has_the_defaults_of_kuberay():
    assert build_claim(cluster()) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "demo-gcs-pvc",
            "namespace": "default",
            "labels": {"ray.io/cluster": "demo"},
            "ownerReferences": [own()],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert (own()["kind"], own()["controller"], own()["blockOwnerDeletion"]) == ("RayCluster", True, True)


@pytest.mark.rule("RC:PVC-2")
def test_the_claim_is_as_the_spec_says():
    spec = build_claim(cluster(size=2, storageClassName="", accessModes=["ReadWriteMany"]))["spec"]
    assert spec == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "2"}},
        "storageClassName": "",
    }


@pytest.mark.rule("RC:PVC-3")
@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [
        pytest.param("DeleteWithCluster", [], [own()], id="left by an earlier cluster: taken over"),
        pytest.param("DeleteWithCluster", [own()], None, id="owned: nothing to do"),
        pytest.param("DeleteWithCluster", [OTHER], [OTHER, own()], id="owners that do not control it stay"),
        pytest.param("Retain", [own(), OTHER], [OTHER], id="retained from now on"),
        pytest.param("Retain", [], None, id="retained: nothing to do"),
        pytest.param(None, [], [own()], id="without a policy it goes with the cluster"),
    ],
)
def test_the_owner_of_the_claim_follows_the_policy(policy, before, after):
    patch = owner_patch(cluster(**({"deletionPolicy": policy} if policy else {})), live(before))
    assert (patch and patch.body["metadata"]["ownerReferences"]) == after
    if patch:
        assert (patch.uid, patch.version) == ("uid-claim", "7"), "never another claim, nor on what was not seen"


@pytest.mark.rule("RC:PVC-4")
@pytest.mark.parametrize(
    ("storage", "spec", "expected"),
    [
        pytest.param({}, {}, [], id="none"),
        pytest.param({"size": "1024Mi"}, {}, [], id="another spelling of the size"),
        pytest.param({"size": "2Gi"}, {}, ["size is 1Gi, not 2Gi"], id="the size"),
        pytest.param({"storageClassName": "standard"}, {}, [], id="the class is given and right"),
        pytest.param({"storageClassName": "fast"}, {}, ["storageClassName is standard, not fast"], id="the class"),
        pytest.param(
            {"accessModes": ["ReadWriteMany", "ReadWriteOnce"]},
            {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]},
            [],
            id="modes in another order",
        ),
        pytest.param(
            {"accessModes": ["ReadWriteMany"]}, {}, ["accessModes are ReadWriteOnce, not ReadWriteMany"], id="the modes"
        ),
        pytest.param({}, {"resources": {}}, ["size is None, not 1Gi"], id="a claim without a size"),
    ],
)
def test_differences_of_an_existing_claim_are_named(storage, spec, expected):
    assert list(differences(cluster(**storage), live(**spec))) == expected


@pytest.mark.rule("RC:PVC-1", "RC:PVC-3")
def test_which_claim_is_looked_up_and_may_be_used():
    (ours,) = claim_lookups(cluster())
    assert (ours.name, ours.has_to_be_ours) == ("demo-gcs-pvc", True)
    assert ours.may_use({"metadata": {"labels": {"ray.io/cluster": "demo"}}})
    assert not ours.may_use({"metadata": {"labels": {"ray.io/cluster": "other"}}})
    assert not ours.may_use({"metadata": {}})
    (users,) = claim_lookups(cluster(claimName="mine"))
    assert (users.name, users.has_to_be_ours) == ("mine", False)
    assert claim_lookups(cluster(options={"redisAddress": "redis:6379"})) == ()
