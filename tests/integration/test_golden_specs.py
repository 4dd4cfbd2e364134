"""Every golden RayCluster, through the API server and the real operator room, beside what KubeRay made of it.

Accepted or refused as recorded; objects, status and events equal, field by field, but for the differences listed here
with their reasons (for users: docs/compatibility.md). Where a feature is not built yet, the fields that ask for it are
named in the condition `Unsupported`, and nothing differs but what that feature would have made.
"""

import copy
import re

import pytest

from golden_records import differences, read_record, spec_files, without_hash
from golden_world import seen_of_all
from raytide.api import names

INVALID = ("Warning", names.INVALID_SPEC)

REFUSED = {
    "34-invalid-duplicate-groups": "spec.workerGroupSpecs[1]",
    "35-invalid-min-above-max": "spec.workerGroupSpecs[0].minReplicas",
    "36-invalid-name": "metadata.name",
    "39-invalid-group-idle-without-v2": "workerGroupSpecs[].idleTimeoutSeconds",
    "40-invalid-labels-param": "spec.workerGroupSpecs[0].rayStartParams",
}
"""Refused by the API server already, and the field it names: the CRD's rules are KubeRay's, so that no webhook is needed.

KubeRay accepts 34 and lets both groups share their pods; we do not.
"""

REPORTED = {"09-ft-rocksdb": "spec.gcsFaultToleranceOptions.backend"}
"""Refused by the operator, because a feature gate is its affair: condition, event, and the field both name."""

NOT_BUILT = {
    "03-autoscaling-default": {"spec.enableInTreeAutoscaling": "autoscaler"},
    "04-autoscaling-v2-options": {"spec.enableInTreeAutoscaling": "autoscaler", "spec.autoscalerOptions": "autoscaler"},
    "05-autoscaling-v1": {"spec.enableInTreeAutoscaling": "autoscaler", "spec.autoscalerOptions": "autoscaler"},
    "06-autoscaling-two-groups": {"spec.enableInTreeAutoscaling": "autoscaler", "spec.autoscalerOptions": "autoscaler"},
    "07-multi-host": {"spec.workerGroupSpecs[0].numOfHosts": "multi-host"},
    "08-ft-redis": {"spec.gcsFaultToleranceOptions": "fault tolerance"},
    "10-ft-annotation": {
        "metadata.annotations[ray.io/ft-enabled]": "fault tolerance",
        "metadata.annotations[ray.io/external-storage-namespace]": "fault tolerance",
    },
    "16-ingress": {"spec.headGroupSpec.enableIngress": "ingress"},
    "17-auth-token": {"spec.authOptions.mode": "auth"},
    "18-auth-secret-autoscaling": {
        "spec.enableInTreeAutoscaling": "autoscaler",
        "spec.authOptions.mode": "auth",
        "spec.authOptions.secretName": "auth",
    },
    "21-suspend": {"spec.suspend": "suspend"},
    "23-group-fields": {
        "spec.enableInTreeAutoscaling": "autoscaler",
        "spec.autoscalerOptions": "autoscaler",
        "spec.workerGroupSpecs[0].idleTimeoutSeconds": "autoscaler",
        "spec.workerGroupSpecs[0].priority": "autoscaler",
    },
    "29-own-service-account": {"spec.enableInTreeAutoscaling": "autoscaler"},
    "30-recreate": {"spec.upgradeStrategy.type": "upgrade"},
    "32-enable-serve": {"metadata.annotations[ray.io/enable-serve-service]": "serve service"},
}
"""The fields that must stand in `Unsupported`, and the feature each belongs to."""

RAY_START = r"Pod head/.*\.ray-head\.(args|env\.KUBERAY_GEN_RAY_START_CMD\.value)"
LACKING = {
    "autoscaler": (
        r"(Role|RoleBinding|ServiceAccount) .*",
        RAY_START,  # --no-monitor
        r"Pod head/.*\.containers\.(autoscaler|ray-head\.(env\.RAY_enable_autoscaler_v2|volumeMounts\.ray-logs))",
        r"Pod head/.*\.spec\.(volumes\.ray-logs|serviceAccount|serviceAccountName)",
        r"Pod .*\.spec\.restartPolicy",  # Never, so that the autoscaler v2 may replace pods
        r"event Created(Role|RoleBinding|ServiceAccount)",
    ),
    "multi-host": (
        r"Pod worker/slice/\d",
        r"Service multi-host-headless",
        r"status (availableWorkerReplicas|readyWorkerReplicas|state|conditions\.WorkersMissing)",
    ),
    "fault tolerance": (
        RAY_START,  # --redis-password
        r"Pod head/.*\.annotations\.ray\.io/external-storage-namespace",
        r"Pod head/.*\.env\.(RAY_REDIS_ADDRESS|RAY_external_storage_namespace|REDIS_PASSWORD)",
        r"Pod worker/.*\.env\.RAY_gcs_rpc_server_reconnect_timeout_s",
        r"finalizers",
        r"status observedGeneration",  # KubeRay counts its own finalizer's write
    ),
    "ingress": (r"Ingress .*", r"event CreatedIngress"),
    "auth": (r"Pod .*\.env\.RAY_AUTH_(MODE|TOKEN)", r"Secret .*"),
    "suspend": (
        r"status conditions\.(RayClusterProvisioned|RayClusterSuspended|RayClusterSuspending)",
        r"event DeletedPod",
    ),
    "upgrade": (),
    "serve service": (r"Service serve-serve-svc",),
}
"""What may differ while the feature is not built: only what it would have made."""

LONG_NAMES = "KubeRay cuts both groups' names to the same prefix; ours tells them apart by a hash (D15)"
SAYS_WHY = "a condition of ours: says which workers are missing, and why (SC:S21)"
LISTED = {
    "13-custom-resources": {"status conditions.WorkersMissing": SAYS_WHY},
    "20-long-names": {
        "Pod worker/a-rather-long-worker-group-name-one/0.metadata.name": LONG_NAMES,
        "Pod worker/a-rather-long-worker-group-name-two/0.metadata.name": LONG_NAMES,
    },
    "22-group-suspend": {"event DeletedWorkerPod": "KubeRay tells of deleting a suspended group that had no pods"},
    "33-workers-to-delete": {"event InvalidRayClusterSpec": "a name that is no worker of the group is told (RM:I5)"},
}
"""Every other difference, with its reason."""

SAME = [file for file in spec_files() if file not in {*REFUSED, *REPORTED, *NOT_BUILT}]
MUST_BE_SAME = {1, 2, 11, 12, 13, 14, 15, 19, 20, 24, 25, 26, 27, 28, 31, 33, 38}


@pytest.fixture(scope="module", params=["apply", "create"])
def seen(request):
    return seen_of_all(request.param)


def found_differences(file, ours):
    """Places where our fate of the file differs from KubeRay's."""
    record = read_record(file)
    (status,) = record["status"].values()
    (finalizers,) = record["finalizers"].values()
    told = {(kind, reason) for kind, reason, _ in record["events"]}
    objects = differences(
        {key: without_hash(manifest) for key, manifest in record["objects"].items()},
        {key: without_hash(copy.deepcopy(manifest)) for key, manifest in ours.objects.items()},
    )
    return {
        *objects,
        *(f"status {path}" for path in differences(comparable(status), comparable(ours.status))),
        *(f"event {reason}" for _, reason in told ^ ours.events),
        *(["finalizers"] if finalizers != ours.finalizers else []),
    }


def comparable(status):
    """Conditions by type; node ports are drawn by the API server."""
    ports = {name: "drawn" if int(port) >= 30000 else port for name, port in status.get("endpoints", {}).items()}
    conditions = [{**condition, "name": condition["type"]} for condition in status.get("conditions", ())]
    return {**status, "endpoints": ports, "conditions": conditions}


@pytest.mark.parametrize("file", spec_files())
def test_accepted_or_refused_as_recorded(seen, file):
    recorded_as_invalid = any(reason.startswith("Invalid") for _, reason, _ in read_record(file)["events"])
    is_refused = bool(seen[file].refused) or bool(seen[file].condition(names.INVALID))
    assert is_refused == (recorded_as_invalid or file == "34-invalid-duplicate-groups")


@pytest.mark.parametrize(("file", "field"), REFUSED.items(), ids=REFUSED)
def test_the_api_server_names_the_field_it_refuses(seen, file, field):
    assert field in seen[file].refused
    assert seen[file].objects == {}


@pytest.mark.parametrize(("file", "field"), REPORTED.items(), ids=REPORTED)
def test_the_operator_names_the_field_it_refuses(seen, file, field):
    ours = seen[file]
    assert field in ours.condition(names.INVALID)["message"]
    assert (ours.objects, ours.events) == ({}, {INVALID})
    assert field in ours.notes


@pytest.mark.parametrize("file", SAME)
def test_the_same_objects_status_and_events_as_kuberay(seen, file):
    assert found_differences(file, seen[file]) == set(LISTED.get(file, {}))
    assert seen[file].condition(names.UNSUPPORTED) == {}


@pytest.mark.parametrize("file", NOT_BUILT)
def test_what_is_not_built_is_named_and_nothing_else_differs(seen, file):
    ours, wanted = seen[file], NOT_BUILT[file]
    told = ours.condition(names.UNSUPPORTED)["message"].split("; ")
    assert {sentence.rpartition(": ")[0] for sentence in told} == wanted.keys()
    allowed = [r"status conditions\.Unsupported", *(place for feature in wanted.values() for place in LACKING[feature])]
    odd = {place for place in found_differences(file, ours) if not any(re.fullmatch(ok, place) for ok in allowed)}
    assert odd == set()


@pytest.mark.parametrize("file", NOT_BUILT.keys() - {"21-suspend", "07-multi-host"})
def test_what_is_built_runs_meanwhile(seen, file):
    assert seen[file].status["state"] == "ready"
    assert seen[file].condition(names.HEAD_POD_READY)["status"] == "True"


def test_a_suspended_cluster_gets_its_service_and_no_pod(seen):
    assert list(seen["21-suspend"].objects) == ["Service suspended-head-svc"]


def test_the_other_groups_run_beside_a_multi_host_group(seen):
    pods = [key for key in seen["07-multi-host"].objects if key.startswith("Pod ")]
    assert pods == ["Pod head/headgroup/0", "Pod worker/single/0"]


def test_every_file_has_its_place():
    assert len(spec_files()) == 40
    assert {int(file[:2]) for file in SAME} >= MUST_BE_SAME
    assert LISTED.keys() <= set(SAME)


def test_the_comparison_notices_every_kind_of_change():
    ours = seen_of_all("apply")["01-minimal"]
    changed = type(ours)(
        objects={key: manifest for key, manifest in ours.objects.items() if "Service" not in key},
        status={**ours.status, "desiredCPU": "4"},
        finalizers=["x"],
        events=set(),
    )
    assert found_differences("01-minimal", changed) == {
        *("Service minimal-head-svc", "status desiredCPU", "finalizers"),
        *("event CreatedHeadPod", "event CreatedService", "event CreatedWorkerPod"),
    }
