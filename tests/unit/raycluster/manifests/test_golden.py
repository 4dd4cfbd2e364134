"""Pods and services are those that KubeRay creates for the same RayClusters.

Every difference stands in `DIFFERENCES` with its reason, and in docs/compatibility.md for the user.
"""

import pytest

from raytide.api.actions import Create
from raytide.api.config import ClusterConfig, PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.names import head_pod_name
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from raytide.raycluster.manifests.services import build_head_service
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from support.golden_records import as_recorded, differences, read_record, read_spec, spec_files, without_hash

CONFIG = PodConfig(operator_version="nightly")

COMPARED = [
    "01-minimal",
    "02-head-only",
    "11-overwrite-command",
    "12-user-command",
    "13-custom-resources",
    "14-head-service",
    "15-service-nodeport",
    "19-rich-template",
    "20-long-names",
    "24-ray-start-params",
    "25-new-ray-probes",
    "26-no-ray-version",
    "27-own-probes",
    "28-clamped-replicas",
    "31-managed-by-other",
    "33-workers-to-delete",
    "38-memory-and-shm",
]

LONG_NAMES = "KubeRay cuts both groups' names to the same prefix; ours tells them apart by a hash (D15)"

DIFFERENCES = {
    "20-long-names": {
        "Pod worker/a-rather-long-worker-group-name-one/0.metadata.name": (
            "a-very-long-ray-cluster-name-that-reaches-the-limi-worker-*",
            "a-very-long-ray-cluster-name-that-reaches-3611caec-worker-*",
            LONG_NAMES,
        ),
        "Pod worker/a-rather-long-worker-group-name-two/0.metadata.name": (
            "a-very-long-ray-cluster-name-that-reaches-the-limi-worker-*",
            "a-very-long-ray-cluster-name-that-reaches-ede8b87b-worker-*",
            LONG_NAMES,
        ),
    },
}
"""By file and field: what KubeRay has, what we have, and why."""


def namer(prefix):
    return f"{prefix}x2y4z"


def objects_we_send(file):
    """Everything the first pass creates, by the recording's names for objects."""
    cluster = RayCluster.parse(read_spec(file))
    objects = {}
    for action in plan(cluster, Observed(), ClusterConfig(pods=CONFIG), namer).actions:
        assert isinstance(action, Create)
        objects[recorded_key(action.manifest)] = action.manifest
    return objects


def recorded_key(manifest):
    if manifest["kind"] != "Pod":
        return f"{manifest['kind']} {manifest['metadata']['name']}"
    labels = manifest["metadata"]["labels"]
    index = labels.get("ray.io/worker-group-replica-index", "0")
    return f"Pod {labels['ray.io/node-type']}/{labels['ray.io/group']}/{index}"


def normalised(objects):
    return {key: without_hash(manifest) for key, manifest in objects.items()}


@pytest.mark.parametrize("file", COMPARED)
def test_objects_are_those_of_kuberay_for(file):
    ours = {key: as_recorded(manifest) for key, manifest in objects_we_send(file).items()}
    found = differences(normalised(read_record(file)["objects"]), normalised(ours))
    assert found == {path: (theirs, us) for path, (theirs, us, _why) in DIFFERENCES.get(file, {}).items()}


@pytest.mark.parametrize("file", spec_files())
def test_every_golden_spec_can_be_read_and_built(file):
    cluster = RayCluster.parse(read_spec(file))
    head = build_head_pod(cluster, CONFIG, head_pod_name(cluster, CONFIG, namer))
    assert head["spec"]["containers"][0]["env"]
    assert build_head_service(cluster, CONFIG)["spec"]["ports"]
    for group in cluster.spec.worker_group_specs:
        assert build_worker_template(cluster, group, CONFIG)["spec"]["containers"][0]["env"]


def test_the_comparison_detects_every_kind_of_change():
    record = read_record("01-minimal")["objects"]
    ours = {key: as_recorded(manifest) for key, manifest in objects_we_send("01-minimal").items()}
    del ours["Pod worker/cpu/1"]
    head = ours["Pod head/headgroup/0"]
    head["metadata"]["labels"]["ray.io/cluster"] = "other"
    head["spec"]["containers"][0]["livenessProbe"]["timeoutSeconds"] = 6
    head["spec"]["tolerations"].pop()
    ours["Service minimal-head-svc"]["spec"]["ports"][0]["port"] = 1
    assert set(differences(normalised(record), normalised(ours))) == {
        "Pod worker/cpu/1",
        "Pod head/headgroup/0.metadata.labels.ray.io/cluster",
        "Pod head/headgroup/0.spec.containers.ray-head.livenessProbe.timeoutSeconds",
        "Pod head/headgroup/0.spec.tolerations",
        "Service minimal-head-svc.spec.ports.client.port",
    }
