"""A real control plane starts, ends, restarts components, and is configured as a production cluster.

What one test kills or breaks is a control plane of its own; the rest ask the one of the session.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
import yaml

from raytide_sandbox.controlplane.flags import PARTS
from raytide_sandbox.controlplane.ports import is_free
from raytide_sandbox.controlplane.processes import ControlPlane, ControlPlaneError, PlaneSettings
from raytide_sandbox.state_dir import start_ticks
from support.deadlines import PATIENCE
from support.kube_plane import eventually, find_plane_binary, plane_from_kubeconfig, plane_of
from support.sandbox_process import processes_with

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

READY_S = 15.0 * PATIENCE
STOPPED_S = 5.0
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "1"}}
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def build(tmp_path):
    """Makes control planes in one directory; nothing of them is left, or the test fails."""
    made = []

    def make(**settings):
        made.append(ControlPlane(tmp_path / "plane", find_plane_binary(), PlaneSettings(is_durable=False, **settings)))
        return made[-1]

    yield make
    for plane in made:
        plane.stop()
    assert_nothing_is_left(tmp_path / "plane")


def assert_nothing_is_left(directory):
    assert processes_with(str(directory)) == []
    file = directory / "ports.json"
    ports = json.loads(file.read_text()) if file.exists() else {}
    assert [name for name, port in ports.items() if not is_free(port)] == []


def pod(name):
    container = {"name": "main", "image": "busybox"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


# --- lifecycle ------------------------------------------------------------------------------------------------------------
def test_it_is_ready_and_gone_in_time(tmp_path):
    """The best of three: what else runs on the machine only ever makes it slower."""
    took = []
    for attempt in range(3):
        plane = ControlPlane(tmp_path / str(attempt), find_plane_binary(), PlaneSettings(is_durable=False))
        with ExitStack() as stack:
            stack.callback(plane.stop)
            started = time.monotonic()
            plane.start()
            ready_s = time.monotonic() - started
            assert plane_of(plane).request_json("POST", "/api/v1/namespaces/default/pods", pod("at-once"))[0] == 201
            assert all(plane.pid(name) for name in PARTS)
            started = time.monotonic()
            plane.stop()
            took.append((ready_s, time.monotonic() - started))
        assert_nothing_is_left(plane.directory)
        if took[-1][0] <= READY_S and took[-1][1] <= STOPPED_S * PATIENCE:
            return
    pytest.fail(f"seconds until ready and until gone: {took}")


def test_a_restart_has_the_same_objects_users_and_address(build):
    with build() as plane:
        kept = plane_of(plane).create(MAPS, MAP)
    with build() as again:
        assert again.server == plane.server
        assert plane_of(plane).request_json("GET", f"{MAPS}/kept") == (200, kept)


@pytest.mark.timeout(600)
def test_twenty_starts_in_a_row_leave_nothing_behind(build):
    for _ in range(20):
        plane = build()
        plane.start()
        plane.stop()
        assert_nothing_is_left(plane.directory)


def test_two_in_one_process_do_not_meet(build, tmp_path):
    other = ControlPlane(tmp_path / "other", find_plane_binary(), PlaneSettings(parts=PARTS[:2], is_durable=False))
    with ExitStack() as stack:
        first, second = stack.enter_context(build(parts=PARTS[:2])), stack.enter_context(other)
        plane_of(first).create(MAPS, MAP)
        assert plane_of(second).request_json("GET", f"{MAPS}/kept")[0] == 404
        assert plane_of(second).request_json("GET", MAPS, token=first.admin_token)[0] == 401
    assert_nothing_is_left(tmp_path / "other")


def test_the_requested_port_or_the_next_free_one(build, tmp_path):
    first = build(parts=PARTS[:2], port=25443)
    with first:
        port = int(first.server.rpartition(":")[2])
        settings = PlaneSettings(parts=PARTS[:2], port=port, is_durable=False)
        with ControlPlane(tmp_path / "other", find_plane_binary(), settings) as second:
            assert int(second.server.rpartition(":")[2]) > port
            assert second.server in second.kubeconfig.read_text()
            assert plane_of(second).request_json("GET", MAPS)[0] == 200


@pytest.mark.parametrize("component", ["etcd", "kube-apiserver", "kube-controller-manager"])
def test_a_killed_component_is_missed_and_comes_back(build, component):
    with build() as plane:
        kube = plane_of(plane)
        kube.create(MAPS, MAP)
        os.kill(plane.pid(component), 9)
        eventually(lambda: plane.pid(component) is None, f"{component} is gone")
        with pytest.raises(ControlPlaneError, match=f"{component} was ended by SIGKILL"):
            plane.check()
        plane.start_component(component)
        plane.check()
        eventually(lambda: kube.request_json("GET", f"{MAPS}/kept")[0] == 200, "the object is there again")


def test_an_announced_kill_is_no_error(build):
    with build(parts=PARTS[:2]) as plane:
        plane.kill("kube-apiserver")
        plane.check()
        assert plane.pid("kube-apiserver") is None
        with pytest.raises(OSError, match=r"."):
            plane_of(plane).request_json("GET", MAPS)
        plane.start_component("kube-apiserver")
        assert plane_of(plane).request_json("GET", MAPS)[0] == 200


OWNER = """
import pathlib, sys, threading
from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings
plane = ControlPlane(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), PlaneSettings(is_durable=False))
thread = threading.Thread(target=plane.start)
thread.start()
thread.join()
print("ready", flush=True)
sys.stdin.read()
"""


def test_an_owner_that_is_killed_takes_its_components_along(build, tmp_path):
    command = [sys.executable, "-c", OWNER, str(tmp_path / "plane"), str(find_plane_binary())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"ready\n"
        components = [pid for pid in processes_with(str(tmp_path / "plane")) if pid != owner.pid]
        assert len(components) == len(PARTS)
        owner.kill()
    eventually(lambda: not any(map(start_ticks, components)), "all components are gone", STOPPED_S)
    with build() as again:  # and their lock, their ports and their files are usable
        assert plane_of(again).request_json("GET", MAPS)[0] == 200


@pytest.mark.parametrize(
    ("component", "settings"),
    [
        ("etcd", {"etcd_flags": ("--no-such-flag",)}),
        ("kube-apiserver", {"apiserver_flags": ("--no-such-flag",)}),
        ("kube-controller-manager", {"controller_flags": ("--no-such-flag",)}),
        ("kube-scheduler", {"scheduler_flags": ("--no-such-flag",)}),
    ],
    ids=PARTS,
)
def test_a_component_that_does_not_start_is_an_error_with_its_output(build, component, settings):
    plane = build(**settings)
    with pytest.raises(ControlPlaneError) as caught:
        plane.start()
    first, *words = str(caught.value).splitlines()
    assert first.startswith(f"{component} ended with exit code ")
    assert "no-such-flag" in "\n".join(words)
    assert_nothing_is_left(plane.directory)


def test_a_folder_with_a_program_per_component_will_do(build, tmp_path):
    found = find_plane_binary()
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in PARTS[:2]:
        (folder / name).symlink_to(found / name if found.is_dir() else found)
    plane = build(parts=PARTS[:2])
    with ControlPlane(plane.directory, folder, plane.settings) as started:
        plane_of(started).create(MAPS, MAP)


# --- a cluster as others are ----------------------------------------------------------------------------------------------
def test_requests_without_a_token_are_unauthorized(kube_plane):
    assert kube_plane.request_json("GET", "/api/v1/namespaces", token="")[0] == 401


def test_the_kubeconfig_is_the_administrators(kube_plane):
    config = yaml.safe_load(kube_plane.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == kube_plane.server
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = kube_plane.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert "system:masters" in who["status"]["userInfo"]["groups"]


def test_a_named_kubeconfig_is_enough(kube_plane):
    named = plane_from_kubeconfig(kube_plane.kubeconfig)
    assert (named.server, named.authority) == (kube_plane.server, kube_plane.authority)
    assert named.request_json("GET", "/api/v1/namespaces/default")[0] == 200


def test_a_service_account_may_nothing_until_it_is_given(kube_plane):
    namespace = kube_plane.new_namespace()
    token = kube_plane.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    )["status"]["token"]
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    status, answer = kube_plane.request_json("GET", maps, token=token)
    assert (status, answer["reason"]) == (403, "Forbidden")
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    kube_plane.create(f"{group}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    kube_plane.create(f"{group}/rolebindings", {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": role})
    eventually(lambda: kube_plane.request_json("GET", maps, token=token)[0] == 200, "the right has arrived")


def test_a_pod_gets_the_token_of_its_service_account(kube_plane):
    pods = f"/api/v1/namespaces/{kube_plane.new_namespace()}/pods"
    spec = kube_plane.create(pods, pod("with-token"))["spec"]
    assert spec["serviceAccountName"] == "default"
    assert [source for volume in spec["volumes"] for source in volume["projected"]["sources"] if "configMap" in source]


def test_the_scheduler_sets_the_unschedulable_condition(kube_plane):
    pods = f"/api/v1/namespaces/{kube_plane.new_namespace()}/pods"
    kube_plane.create(pods, {**pod("big"), "spec": {**pod("big")["spec"], "nodeSelector": {"no-such": "node"}}})

    def waits():
        _, found = kube_plane.request_json("GET", f"{pods}/big")
        return [c for c in found["status"].get("conditions", ()) if c.get("reason") == "Unschedulable"]

    eventually(waits, "the pod is unschedulable")


def test_dependents_are_deleted_with_their_owner(kube_plane):
    maps = f"/api/v1/namespaces/{kube_plane.new_namespace()}/configmaps"
    owner = kube_plane.create(maps, {**MAP, "metadata": {"name": "owner"}})["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    kube_plane.create(maps, {**MAP, "metadata": {"name": "dependent", "ownerReferences": [reference]}})
    kube_plane.request_json("DELETE", f"{maps}/owner")
    eventually(lambda: kube_plane.request_json("GET", f"{maps}/dependent")[0] == 404, "the dependent is gone")


def test_without_the_right_to_an_owners_finalizers_its_deletion_cannot_be_blocked(kube_plane):
    """OwnerReferencesPermissionEnforcement, as on many clusters."""
    namespace = kube_plane.new_namespace()
    token = kube_plane.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    )["status"]["token"]
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["create", "list"]}]
    kube_plane.create(f"{group}/roles", {"metadata": {"name": "writer"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"}
    kube_plane.create(f"{group}/rolebindings", {"metadata": {"name": "writer"}, "subjects": [subject], "roleRef": role})
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    eventually(lambda: kube_plane.request_json("GET", maps, token=token)[0] == 200, "the right has arrived")
    owner = kube_plane.create(f"/api/v1/namespaces/{namespace}/pods", pod("owner"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["uid"], "blockOwnerDeletion": True}
    body = {**MAP, "metadata": {"name": "dependent", "ownerReferences": [reference]}}
    status, answer = kube_plane.request_json("POST", maps, body, token=token)
    assert (status, "cannot set blockOwnerDeletion" in answer["message"]) == (403, True)


def test_a_validating_admission_policy_rejects(kube_plane):
    namespace = kube_plane.new_namespace()
    name = f"few-keys-{secrets.token_hex(4)}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": chosen},
        "validations": [{"expression": "size(object.data) < 2", "message": "one key is enough"}],
    }
    kube_plane.create(policies, {"metadata": {"name": name}, "spec": policy})
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": chosen}}
    kube_plane.create(f"{policies[:-3]}ybindings", {"metadata": {"name": name}, "spec": binding})
    maps = f"/api/v1/namespaces/{namespace}/configmaps"

    def rejected():
        body = {**MAP, "metadata": {"generateName": "two-"}, "data": {"a": "1", "b": "2"}}
        status, answer = kube_plane.request_json("POST", maps, body)
        return status == 422 and answer["message"]

    assert "one key is enough" in eventually(rejected, "the policy is in force", 60)
    kube_plane.create(maps, MAP)


def test_rules_in_cel_reject(kube_plane):
    word = secrets.token_hex(4)
    group, plural = f"{word}.example.com", "ranges"
    rule = {"rule": "self.low <= self.high", "message": "low is above high"}
    number = {"type": "integer"}
    spec = {"type": "object", "properties": {"low": number, "high": number}, "x-kubernetes-validations": [rule]}
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    names = {"plural": plural, "singular": "range", "kind": "Range"}
    definition = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kube_plane.create(crds, {"metadata": {"name": f"{plural}.{group}"}, "spec": definition})
    path = f"/apis/{group}/v1/namespaces/{kube_plane.new_namespace()}/{plural}"
    eventually(lambda: kube_plane.request_json("GET", path)[0] == 200, "the kind is served")
    body = {"apiVersion": f"{group}/v1", "kind": "Range", "metadata": {"name": "r"}, "spec": {"low": 1, "high": 2}}
    status, answer = kube_plane.request_json("POST", path, {**body, "spec": {"low": 3, "high": 2}})
    assert (status, "low is above high" in answer["message"]) == (422, True)
    kube_plane.create(path, body)
    kube_plane.request_json("DELETE", f"{crds}/{plural}.{group}")


# --- node identities and the audit log: only of a control plane that the tests started ----------------------------
@pytest.fixture
def ours(kube_plane):
    """The session's, if it was started here."""
    if kube_plane.control is None:
        pytest.skip("the certificates and the audit log of an existing cluster are not available")
    return kube_plane


def test_a_node_may_write_only_its_own_node_object(ours):
    name, other = f"node-{secrets.token_hex(4)}", f"node-{secrets.token_hex(4)}"
    for node in (name, other):
        ours.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    identity = ours.control.issue_client(f"system:node:{name}", "system:nodes")
    as_node = type(ours)(**{**vars(ours), "admin_token": "", "identity": identity})
    label = {"metadata": {"labels": {"x": "y"}}}
    answers = {node: as_node.request_json("PATCH", f"/api/v1/nodes/{node}", label)[0] for node in (name, other)}
    assert answers == {name: 200, other: 403}
    assert as_node.request_json("GET", "/api/v1/secrets")[0] == 403


def test_the_audit_log_has_full_writes_of_pods_and_leases_and_metadata_of_others(ours):
    namespace = ours.new_namespace()
    core = f"/api/v1/namespaces/{namespace}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    ours.create(f"{core}/pods", pod("seen"))
    ours.request_json("PATCH", f"{core}/pods/seen", {"metadata": {"labels": {"x": "y"}}})
    ours.create(leases, {"metadata": {"name": "held"}, "spec": {"holderIdentity": "me"}})
    ours.create(f"{core}/configmaps", MAP)
    ours.request_json("DELETE", f"{core}/pods/seen?gracePeriodSeconds=0")
    ours.request_json("GET", f"{core}/pods/seen")

    def reported():
        events = [e for e in ours.audit_events() if e.get("objectRef", {}).get("namespace") == namespace]
        mine = [e for e in events if e["user"]["username"] == "raytide-admin" and "name" in e["objectRef"]]
        last = mine and mine[-1]["verb"] == "get" and mine[-1]["objectRef"]["resource"] == "pods"
        return last and {(e["verb"], e["objectRef"]["resource"], e["responseStatus"]["code"]): e for e in mine}

    found = eventually(reported, "the last request is in the log")
    assert found["create", "pods", 201]["responseObject"]["spec"]["serviceAccountName"] == "default"
    assert found["patch", "pods", 200]["requestObject"] == {"metadata": {"labels": {"x": "y"}}}
    assert found["delete", "pods", 200]["level"] == "RequestResponse"
    assert found["create", "leases", 201]["requestObject"]["spec"]["holderIdentity"] == "me"
    brief = found["create", "configmaps", 201]
    assert (brief["level"], "requestObject" in brief) == ("Metadata", False)
    assert found["get", "pods", 404]["level"] == "Metadata"
