"""Every golden RayCluster through the API server and the real controller, compared with KubeRay's recording.

Accepted or rejected as recorded; objects, status and events equal, field by field, but for the differences that
golden_differences.py knows a reason for (for users: docs/compatibility.md). Which file has which of them is said here, so
that a reason never covers more than was meant. Where a feature is not built yet, the fields that ask for it are named in
the condition `Unsupported`, and nothing differs but what that feature would have made.
"""

import copy
from dataclasses import replace

import pytest

from raytide.api import constants
from support.golden_differences import REJECTED, compare, lacking
from support.golden_records import read_record, spec_files
from support.golden_run import seen_of, seen_of_all

pytestmark = pytest.mark.looptime

INVALID = ("Warning", constants.INVALID_SPEC)

REPORTED = {"09-ft-rocksdb": "spec.gcsFaultToleranceOptions.backend"}
"""Rejected by the operator, because a feature gate is its affair: condition, event, and the field both name."""

UNSUPPORTED_FIELDS = {
    "16-ingress": {"spec.headGroupSpec.enableIngress"},
    "30-recreate": {"spec.upgradeStrategy.type"},
    "37-login-shell-and-domain": {"metadata.labels[ray.io/priority-class-name]"},
    "32-enable-serve": {"metadata.annotations[ray.io/enable-serve-service]"},
}
"""The fields that must stand in `Unsupported`."""

FT = "08-ft-redis"
HEAD = "Pod head/headgroup/0.spec"
SIDECAR = {
    f"{HEAD}.containers.autoscaler.{field}"
    for field in (
        *("image", "command", "args", "livenessProbe", "securityContext", "volumeMounts.autoscaler-token"),
        *("env.KUBERAY_GEN_AUTOSCALER_START_CMD.value", "env.RAYTIDE_OPERATOR_VERSION", "env.RAYTIDE_GCS_ADDRESS"),
    )
} | {f"{HEAD}.volumes.autoscaler-token"}
"""What our own autoscaler has and Ray's has not."""
NO_TOKEN = f"{HEAD}.automountServiceAccountToken"
TOKEN = {f"{HEAD}.containers.autoscaler.volumeMounts.autoscaler-token", f"{HEAD}.volumes.autoscaler-token"}
"""What each autoscaler has."""
SPEAKS_V2 = f"{HEAD}.containers.ray-head.env.RAY_enable_autoscaler_v2"

ROLES = {
    "03-autoscaling-default": "as-default",
    "04-autoscaling-v2-options": "as-v2",
    "05-autoscaling-v1": "as-v1",
    "06-autoscaling-two-groups": "autoscaler-demo",
    "18-auth-secret-autoscaling": "auth-secret",
    "23-group-fields": "group-fields",
    "29-own-service-account": "own-sa",
}
"""The autoscaled files, and what their roles are called."""


def narrow(file):
    """The one difference with both autoscalers."""
    return f"Role {ROLES[file]}.rules"


LISTED = {
    "03-autoscaling-default": {narrow("03-autoscaling-default"), *TOKEN, NO_TOKEN, "event UsingRayAutoscaler"},
    "04-autoscaling-v2-options": {
        *{place.removesuffix(".autoscaler-token") if "Mounts" in place else place for place in SIDECAR},
        *(narrow("04-autoscaling-v2-options"), NO_TOKEN),
        f"{HEAD}.containers.autoscaler.env.RAYTIDE_AUTOSCALER_HEALTH_PORT",
    }
    - {f"{HEAD}.containers.autoscaler.securityContext"},
    "05-autoscaling-v1": {narrow("05-autoscaling-v1"), *TOKEN, NO_TOKEN},
    "06-autoscaling-two-groups": {narrow("06-autoscaling-two-groups"), *SIDECAR, NO_TOKEN, SPEAKS_V2},
    "18-auth-secret-autoscaling": {narrow("18-auth-secret-autoscaling"), *SIDECAR, NO_TOKEN, SPEAKS_V2},
    "23-group-fields": {narrow("23-group-fields"), *SIDECAR, NO_TOKEN},
    "29-own-service-account": {narrow("29-own-service-account"), *SIDECAR, SPEAKS_V2},
    "02-head-only": {f"status {name}WorkerReplicas" for name in ("desired", "available", "ready")},
    "07-multi-host": {f"Pod worker/slice/{i}.metadata.annotations" for i in range(8)},
    "13-custom-resources": {"status conditions.WorkersMissing", "status diagnoses"},
    "08-ft-redis": {"status observedGeneration"},
    "10-ft-annotation": {"status observedGeneration"},
    "20-long-names": {
        "Pod worker/a-rather-long-worker-group-name-one/0.metadata.name",
        "Pod worker/a-rather-long-worker-group-name-two/0.metadata.name",
    },
    "21-suspend": {"event DeletedPod", "status availableWorkerReplicas", "status readyWorkerReplicas"},
    "22-group-suspend": {"event DeletedWorkerPod"},
    "28-clamped-replicas": {"event ReplicasClamped"},
    "33-workers-to-delete": {"event InvalidRayClusterSpec"},
}
"""Where files without unsupported features differ.

03 names a Ray with which our autoscaler is not tested; 04 mounts one volume at two places, has a security context of its own, and envFrom; 05 brings an image and a command of its own.
"""

SAME = [file for file in spec_files() if file not in {*REJECTED, *REPORTED, *UNSUPPORTED_FIELDS}]
MUST_BE_SAME = {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 17, 18, 19, 20, 23, 24, 25, 26, 27, 28, 29, 31, 33, 38}


@pytest.fixture(scope="module", params=["apply", "create"])
def seen(request):
    return seen_of_all(request.param)


def differences_of(file, ours):
    return compare(ours.fate_beside(read_record(file)))


def unlisted(file, ours):
    return [difference for difference in differences_of(file, ours) if not difference.reason]


@pytest.mark.parametrize("file", spec_files())
def test_accepted_or_rejected_as_recorded(seen, file):
    recorded_as_invalid = any(reason.startswith("Invalid") for _, reason, _ in read_record(file)["events"])
    is_rejected = bool(seen[file].rejected) or bool(seen[file].condition(constants.INVALID))
    assert is_rejected == (recorded_as_invalid or file == "34-invalid-duplicate-groups")


@pytest.mark.parametrize("file", spec_files())
def test_every_difference_has_its_reason(seen, file):
    assert unlisted(file, seen[file]) == []


@pytest.mark.parametrize(("file", "field"), REJECTED.items(), ids=REJECTED)
def test_the_api_server_names_the_field_it_rejects(seen, file, field):
    assert field in seen[file].rejected
    assert seen[file].objects == {}


@pytest.mark.parametrize(("file", "field"), REPORTED.items(), ids=REPORTED)
def test_the_operator_names_the_field_it_rejects(seen, file, field):
    ours = seen[file]
    assert field in ours.condition(constants.INVALID)["message"]
    assert (ours.objects, ours.events) == ({}, {INVALID})
    assert field in ours.notes


@pytest.mark.parametrize("file", SAME)
def test_the_same_objects_status_and_events_as_kuberay(seen, file):
    assert {difference.place for difference in differences_of(file, seen[file])} == LISTED.get(file, set())
    assert seen[file].condition(constants.UNSUPPORTED) == {}


@pytest.mark.rule("RC:AS-1", "RC:AS-2", "RC:AS-3", "RC:RB-1", "RC:RB-3", "RC:RB-5", "RC:POD-6", "RC:POD-19")
@pytest.mark.parametrize("file", ROLES)
def test_where_rays_autoscaler_is_the_rule_only_the_role_is_narrower(file):
    found = differences_of(file, seen_of(tuple(ROLES), "apply", "ray")[file])
    assert {each.place for each in found} == {narrow(file)}


@pytest.mark.rule("RC:RB-4", "SC:S10", "RM:I12")
@pytest.mark.parametrize("file", ROLES)
def test_the_autoscaler_may_write_only_its_own_raycluster(seen, file):
    name = ROLES[file]
    written = [
        rule for rule in seen[file].objects[f"Role {name}"]["rules"] if set(rule["verbs"]) - {"get", "list", "watch"}
    ]
    verbs = ["get", "list", "watch", "patch"]
    own = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": verbs, "resourceNames": [name]}
    assert written == [own]


@pytest.mark.parametrize("file", UNSUPPORTED_FIELDS)
def test_every_field_of_what_is_not_built_is_named(seen, file):
    fate = seen[file].fate_beside(read_record(file))
    assert set(fate.unsupported) == UNSUPPORTED_FIELDS[file]
    assert lacking(fate)


@pytest.mark.parametrize("file", UNSUPPORTED_FIELDS)
def test_what_is_built_runs_meanwhile(seen, file):
    assert seen[file].raw_status["state"] == "ready"
    assert seen[file].condition(constants.HEAD_POD_READY)["status"] == "True"


def test_a_suspended_cluster_gets_its_service_and_no_pod(seen):
    assert list(seen["21-suspend"].objects) == ["Service suspended-head-svc"]


@pytest.mark.rule("RC §3.3", "RC:HL-2", "RC:MH-6")
def test_the_hosts_of_a_replica_have_its_name_and_find_each_other_by_a_service(seen):
    objects = seen["07-multi-host"].objects
    assert "Service multi-host-headless" in objects
    hosts = [objects[f"Pod worker/slice/{i}"]["metadata"]["labels"] for i in range(8)]
    assert [(each[constants.REPLICA_INDEX_LABEL], each[constants.HOST_INDEX_LABEL]) for each in hosts] == [
        (str(replica), str(host)) for replica in range(2) for host in range(4)
    ]


def test_every_file_has_its_place():
    assert len(spec_files()) == 40
    assert {int(file[:2]) for file in SAME} >= MUST_BE_SAME
    assert LISTED.keys() <= set(SAME)


def test_the_comparison_detects_every_kind_of_change():
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


def test_a_missing_feature_explains_no_difference_in_a_file_without_that_feature():
    ours = seen_of_all("apply")["16-ingress"]
    quiet = copy.deepcopy(ours.raw_status)
    quiet["conditions"] = [each for each in quiet["conditions"] if each["type"] != constants.UNSUPPORTED]
    places = {difference.place for difference in unlisted("16-ingress", replace(ours, raw_status=quiet))}
    assert {"Ingress with-ingress-head-ingress", "event CreatedIngress"} <= places


@pytest.mark.rule("FD:REL-10")
@pytest.mark.parametrize(
    ("change", "place"),
    [
        pytest.param(lambda r, n: r["finalizers"].update({n: ["x"]}), "finalizers", id="a finalizer of Raytide"),
        pytest.param(
            lambda r, n: r["status"][n].update(observedGeneration=7),
            "status observedGeneration",
            id="a future generation",
        ),
        pytest.param(
            lambda r, n: r["objects"]["Pod head/headgroup/0"]["spec"]["containers"][0].update(args=["sleep"]),
            "Pod head/headgroup/0.spec.containers.ray-head.args",
            id="another command of the head",
        ),
    ],
)
def test_fault_tolerance_explains_nothing_but_the_generation_of_kuberays_write(change, place):
    ours = seen_of_all("apply")[FT]
    assert unlisted(FT, ours) == []
    changed = copy.deepcopy(ours.record)
    change(changed, next(iter(changed["status"])))
    assert place in {difference.place for difference in unlisted(FT, replace(ours, record=changed))}


def test_a_role_that_allows_more_than_kuberays_is_detected():
    ours = seen_of_all("apply")["03-autoscaling-default"]
    changed = copy.deepcopy(ours.record)
    changed["objects"]["Role as-default"]["rules"][0]["verbs"].append("delete")
    places = {difference.place for difference in unlisted("03-autoscaling-default", replace(ours, record=changed))}
    assert places == {"Role as-default.rules"}
