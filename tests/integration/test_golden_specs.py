"""Every golden RayCluster, through the API server and the real operator room, beside what KubeRay made of it.

Accepted or refused as recorded; objects, status and events equal, field by field, but for the differences that
golden_differences.py knows a reason for (for users: docs/compatibility.md). Which file has which of them is said here, so
that a reason never covers more than was meant. Where a feature is not built yet, the fields that ask for it are named in
the condition `Unsupported`, and nothing differs but what that feature would have made.
"""

import copy
from dataclasses import replace

import pytest

from golden_differences import REFUSED, compare, lacking
from golden_records import read_record, spec_files
from golden_world import seen_of_all
from raytide.api import names

INVALID = ("Warning", names.INVALID_SPEC)

REPORTED = {"09-ft-rocksdb": "spec.gcsFaultToleranceOptions.backend"}
"""Refused by the operator, because a feature gate is its affair: condition, event, and the field both name."""

AUTOSCALER = {"spec.enableInTreeAutoscaling", "spec.autoscalerOptions"}
NOT_BUILT = {
    "03-autoscaling-default": {"spec.enableInTreeAutoscaling"},
    "04-autoscaling-v2-options": AUTOSCALER,
    "05-autoscaling-v1": AUTOSCALER,
    "06-autoscaling-two-groups": AUTOSCALER,
    "07-multi-host": {"spec.workerGroupSpecs[0].numOfHosts"},
    "08-ft-redis": {"spec.gcsFaultToleranceOptions"},
    "10-ft-annotation": {
        "metadata.annotations[ray.io/ft-enabled]",
        "metadata.annotations[ray.io/external-storage-namespace]",
    },
    "16-ingress": {"spec.headGroupSpec.enableIngress"},
    "17-auth-token": {"spec.authOptions.mode"},
    "18-auth-secret-autoscaling": {
        *("spec.enableInTreeAutoscaling", "spec.authOptions.mode", "spec.authOptions.secretName"),
    },
    "21-suspend": {"spec.suspend"},
    "23-group-fields": {
        *AUTOSCALER,
        *("spec.workerGroupSpecs[0].idleTimeoutSeconds", "spec.workerGroupSpecs[0].priority"),
    },
    "29-own-service-account": {"spec.enableInTreeAutoscaling"},
    "30-recreate": {"spec.upgradeStrategy.type"},
    "32-enable-serve": {"metadata.annotations[ray.io/enable-serve-service]"},
}
"""The fields that must stand in `Unsupported`."""

LISTED = {
    "13-custom-resources": {"status conditions.WorkersMissing"},
    "20-long-names": {
        "Pod worker/a-rather-long-worker-group-name-one/0.metadata.name",
        "Pod worker/a-rather-long-worker-group-name-two/0.metadata.name",
    },
    "22-group-suspend": {"event DeletedWorkerPod"},
    "33-workers-to-delete": {"event InvalidRayClusterSpec"},
}
"""Where the files differ that ask for nothing unbuilt."""

SAME = [file for file in spec_files() if file not in {*REFUSED, *REPORTED, *NOT_BUILT}]
MUST_BE_SAME = {1, 2, 11, 12, 13, 14, 15, 19, 20, 24, 25, 26, 27, 28, 31, 33, 38}


@pytest.fixture(scope="module", params=["apply", "create"])
def seen(request):
    return seen_of_all(request.param)


def differences_of(file, ours):
    return compare(ours.fate_beside(read_record(file)))


def unlisted(file, ours):
    return [difference for difference in differences_of(file, ours) if not difference.reason]


@pytest.mark.parametrize("file", spec_files())
def test_accepted_or_refused_as_recorded(seen, file):
    recorded_as_invalid = any(reason.startswith("Invalid") for _, reason, _ in read_record(file)["events"])
    is_refused = bool(seen[file].refused) or bool(seen[file].condition(names.INVALID))
    assert is_refused == (recorded_as_invalid or file == "34-invalid-duplicate-groups")


@pytest.mark.parametrize("file", spec_files())
def test_every_difference_has_its_reason(seen, file):
    assert unlisted(file, seen[file]) == []


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
    assert {difference.place for difference in differences_of(file, seen[file])} == LISTED.get(file, set())
    assert seen[file].condition(names.UNSUPPORTED) == {}


@pytest.mark.parametrize("file", NOT_BUILT)
def test_every_field_of_what_is_not_built_is_named(seen, file):
    fate = seen[file].fate_beside(read_record(file))
    assert set(fate.unsupported) == NOT_BUILT[file]
    assert lacking(fate)


@pytest.mark.parametrize("file", NOT_BUILT.keys() - {"21-suspend", "07-multi-host"})
def test_what_is_built_runs_meanwhile(seen, file):
    assert seen[file].raw_status["state"] == "ready"
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
    changed = copy.deepcopy(ours.record)
    changed["applied"][0][2:] = [1, "spec.rayVersion: not today"]
    del changed["objects"]["Service minimal-head-svc"]
    changed["objects"]["Pod head/headgroup/0"]["metadata"]["annotations"]["ray.io/kuberay-version"] = ""
    changed["status"]["minimal"]["desiredCPU"] = "4"
    changed["status"]["minimal"]["conditions"].reverse()
    changed["finalizers"]["minimal"] = ["x"]
    changed["events"] = []
    assert {difference.place for difference in unlisted("01-minimal", replace(ours, record=changed))} == {
        *("applied RayCluster minimal", "Service minimal-head-svc", "status desiredCPU", "finalizers"),
        *("Pod head/headgroup/0.metadata.annotations.ray.io/kuberay-version", "status order of conditions"),
        *("event CreatedHeadPod", "event CreatedService", "event CreatedWorkerPod"),
    }


def test_a_missing_feature_explains_nothing_in_a_file_that_does_not_ask_for_it():
    ours = seen_of_all("apply")["03-autoscaling-default"]
    quiet = copy.deepcopy(ours.raw_status)
    quiet["conditions"] = [each for each in quiet["conditions"] if each["type"] != names.UNSUPPORTED]
    places = {difference.place for difference in unlisted("03-autoscaling-default", replace(ours, raw_status=quiet))}
    assert {"Role as-default", "RoleBinding as-default", "event CreatedRole"} <= places
