"""Requests that the token of a cluster's autoscaler permits on a real API server (SC:S10, SE:C5, SE:C8).

An operator with exactly the chart's rights makes two clusters in a namespace that enforces the Pod Security Standard
`restricted`, with the chart's admission policy; then the test uses the token of the first one's autoscaler. The real server
checks that the operator passes on no right it has not itself, that nothing the operator injects breaks the standard, and
that of its own RayCluster the token changes what an autoscaler has to change.
"""

import asyncio
import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kube_tools import find_tool
from raytide.api.limits import MAX_GROUPS
from support.builders import group, raycluster, template
from support.kube_plane import KubePlane, eventually
from support.operator_process import OperatorProcess
from support.plane_admin import PlaneAdmin

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

RESTRICTED = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ENFORCED = {f"pod-security.kubernetes.io/{how}": "restricted" for how in ("enforce", "warn")}
LABEL = {"metadata": {"labels": {"mine": "yes"}}}
CHART = Path(__file__).parents[2] / "helm" / "raytide"
ADMISSION, POLICY = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
MANY = MAX_GROUPS
"""Groups of a very large RayCluster."""
UNRELATED_POD = {"metadata": {"name": "bystander"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}


def restricted(container):
    made = template(container, **RESTRICTED)
    made["spec"]["containers"][0]["securityContext"] = CONTAINER
    return made


def cluster(name, namespace):
    workers = group("cpu", replicas=1, template=restricted("ray-worker"))
    head = {"rayStartParams": {}, "template": restricted("ray-head")}
    obj = raycluster(workers, headGroupSpec=head, enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2"})
    return {**obj, "metadata": {"name": name, "namespace": namespace}}


def policy(namespace):
    """The chart's admission policy and its binding, for that namespace."""
    values = json.dumps({"watchNamespaces": [namespace]})
    of_server = ["--kube-version", "1.35.0", "--api-versions", f"{ADMISSION}/{POLICY}"]
    command = [find_tool("helm"), "template", namespace, str(CHART), *of_server, "--values", "-"]
    events_of = subprocess.run(command, input=values, capture_output=True, text=True, check=True)
    made = [each for each in yaml.safe_load_all(events_of.stdout) if each and each["apiVersion"] == ADMISSION]
    assert [each["kind"] for each in made] == [POLICY, f"{POLICY}Binding"]
    return made


@dataclass
class Scene:
    """The namespace, its pods, and the token of the autoscaler of cluster `a`."""

    plane: KubePlane
    namespace: str
    token: str

    @property
    def core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def clusters(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self.namespace}/rayclusters"

    def pod_of(self, name: str, node_type: str) -> str:
        selector = f"ray.io/cluster%3D{name},ray.io/node-type%3D{node_type}"
        return self.plane.request_json("GET", f"{self.core}/pods?labelSelector={selector}")[1]["items"][0]["metadata"][
            "name"
        ]

    def order(self, operations, token: str):
        """Code and answer of a JSON patch of cluster `a` that is only tried."""
        path, content = f"{self.clusters}/a?dryRun=All", "application/json-patch+json"
        return self.plane.request_json("PATCH", path, operations, content_type=content, token=token)

    def token_of_head(self) -> str:
        """What the kubelet would mount: bound to the head pod, here for an account of another name with the same role."""
        account = f"bound-{secrets.token_hex(3)}"
        self.plane.create(f"{self.core}/serviceaccounts", {"metadata": {"name": account}})
        bind(self, "a", account)
        metadata = {"name": f"x-head-{account}"}
        spec = {"serviceAccountName": account, **restricted("c")["spec"], "automountServiceAccountToken": False}
        pod = self.plane.create(f"{self.core}/pods", {"metadata": metadata, "spec": spec})
        bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": pod["metadata"]["uid"]}
        request = {"spec": {"boundObjectRef": bound}}
        token = self.plane.create(f"{self.core}/serviceaccounts/{account}/token", request)["status"]["token"]
        path = f"{self.clusters}/a"
        eventually(lambda: self.plane.request_json("GET", path, token=token)[0] == 200, "the role is its own")
        return token

    def status(self, method: str, path: str, body=None) -> int:
        return self.plane.request_json(method, path, body, token=self.token)[0]


async def prepare(plane, folder, run):
    async with PlaneAdmin(plane.server, plane.authority, plane.admin_token) as admin:
        await admin.install_crd()
        await admin.make_namespaces(f"system-{run}")
        return await admin.operator_account(f"system-{run}", folder, name=f"operator-{run}")


@pytest.fixture(scope="module")
def scene(kube_plane, tmp_path_factory):
    run, folder = secrets.token_hex(3), tmp_path_factory.mktemp("rights")
    account = asyncio.run(prepare(kube_plane, folder, run))
    namespace = kube_plane.new_namespace("rights")
    core = f"/api/v1/namespaces/{namespace}"
    for made, plural in zip(policy(namespace), ("policies", "policybindings"), strict=True):
        kube_plane.create(f"/apis/{ADMISSION}/validatingadmission{plural}", made)
    kube_plane.create(f"{core}/pods", UNRELATED_POD)
    assert kube_plane.request_json("PATCH", core, {"metadata": {"labels": ENFORCED}})[0] == 200
    with OperatorProcess(account, folder / "operator.log", "--watch-namespace", namespace):
        for name in ("a", "b"):
            kube_plane.create(f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters", cluster(name, namespace))
        pods = f"{core}/pods?labelSelector=ray.io/cluster"
        eventually(
            lambda: len(kube_plane.request_json("GET", pods)[1]["items"]) == 4, "heads and workers are there", 60
        )
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = kube_plane.create(f"{core}/serviceaccounts/a/token", request)["status"]["token"]
        eventually(
            lambda: kube_plane.request_json("GET", f"{core}/pods", token=token)[0] == 200,
            "the binding has taken effect",
        )
        tried = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/a?dryRun=All"
        eventually(
            lambda: kube_plane.request_json("PATCH", tried, LABEL, token=token)[0] != 200,
            "the admission policy has taken effect",
            60,
        )
        yield Scene(kube_plane, namespace, token)
    # Pods that are left would wait for the nodes of other tests, where there is no kubelet to end them.
    kube_plane.request_json("DELETE", f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters")
    kube_plane.request_json("DELETE", f"{core}/pods", {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
    eventually(lambda: not kube_plane.request_json("GET", f"{core}/pods")[1]["items"], "its pods are gone")


@pytest.mark.rule("SC:S10", "RC:RB-4")
def test_it_may_read_pods_and_read_and_patch_its_own_raycluster(scene):
    order = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}]
    path = f"{scene.clusters}/a"
    assert scene.status("GET", path) == 200
    answer = scene.plane.request_json(
        "PATCH", path, order, content_type="application/json-patch+json", token=scene.token
    )
    assert answer[0] == 200, answer
    assert scene.status("GET", f"{scene.core}/pods?watch=true&timeoutSeconds=1") == 200


OWN_FIELD = "fieldSelector=metadata.name%3Da"


@pytest.mark.rule("FD:AS-A16", "SE:C8")
def test_it_may_list_and_watch_its_own_raycluster(scene):
    code, listed = scene.plane.request_json("GET", f"{scene.clusters}?{OWN_FIELD}&limit=500", token=scene.token)
    assert (code, [each["metadata"]["name"] for each in listed["items"]]) == (200, ["a"])
    assert scene.status("GET", f"{scene.clusters}?{OWN_FIELD}&limit=1") == 200
    assert scene.status("GET", f"{scene.clusters}?{OWN_FIELD}&watch=1&timeoutSeconds=1") == 200


def patched(path, value):
    return [{"op": "add", "path": path, "value": value}]


GROUP = "/spec/workerGroupSpecs/0"
HEAD = "/spec/headGroupSpec/template/spec"
MORE_GROUPS = [
    {"op": "copy", "from": GROUP, "path": "/spec/workerGroupSpecs/1"},
    {"op": "replace", "path": "/spec/workerGroupSpecs/1/groupName", "value": "more"},
]
OF_A_GROUP, OF_SPEC = "only replicas and scaleStrategy of a worker group", "nothing in spec but replicas"
REJECTED = {
    "a worker's image": (patched(f"{GROUP}/template/spec/containers/0/image", "evil"), OF_A_GROUP),
    "a worker's account": (patched(f"{GROUP}/template/spec/serviceAccountName", "admin"), OF_A_GROUP),
    "a group's bounds": (patched(f"{GROUP}/maxReplicas", 1000), OF_A_GROUP),
    "a group's parameters": (patched(f"{GROUP}/rayStartParams", {"num-cpus": "9"}), OF_A_GROUP),
    "a group's name": (patched(f"{GROUP}/groupName", "other"), "rename or reorder worker groups"),
    "the groups": (MORE_GROUPS, "may not add"),
    "the head's account": (patched(f"{HEAD}/serviceAccountName", "admin"), OF_SPEC),
    "the head's command": (patched(f"{HEAD}/containers/0/command", ["id"]), OF_SPEC),
    "autoscaling": (patched("/spec/enableInTreeAutoscaling", False), OF_SPEC),
    "its program": (patched("/spec/autoscalerOptions/image", "evil"), OF_SPEC),
    "what was not there": (patched("/spec/suspend", True), OF_SPEC),
    "labels": (patched("/metadata/labels", {"mine": "yes"}), "labels, finalizers or owners"),
    "finalizers": (patched("/metadata/finalizers", ["example.com/stays"]), "labels, finalizers or owners"),
    "other annotations": (patched("/metadata/annotations", {"ray.io/ft-enabled": "true"}), "no annotation but"),
}


@pytest.mark.rule("FD:SEC-F8")
@pytest.mark.parametrize("what", REJECTED)
@pytest.mark.parametrize("user", ["token", "bound"])
def test_of_its_own_raycluster_it_may_not_change(scene, what, user):
    order, words = REJECTED[what]
    code, answer = scene.order(order, scene.token if user == "token" else scene.token_of_head())
    assert code == 403, answer
    assert words in answer["message"]


@pytest.mark.rule("FD:SEC-F8")
@pytest.mark.parametrize("user", ["token", "bound"])
def test_it_may_change_replicas_the_scale_strategy_and_its_record(scene, user):
    order = [
        {"op": "replace", "path": f"{GROUP}/replicas", "value": 1},
        *patched(f"{GROUP}/scaleStrategy", {"workersToDelete": []}),
        *patched("/metadata/annotations", {"raytide.io/autoscaler-decision": "{}"}),
    ]
    code, answer = scene.order(order, scene.token if user == "token" else scene.token_of_head())
    assert code == 200, answer


@pytest.mark.rule("FD:SEC-F8")
def test_the_policy_applies_only_to_the_account_named_in_the_head_template(scene):
    plane, rbac = scene.plane, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}"
    label = f"{scene.clusters}/named?dryRun=All"
    named = cluster("named", scene.namespace)
    named["spec"]["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = "of-the-head"
    tokens = {}
    for account in ("of-the-head", "of-a-team"):
        plane.create(f"{scene.core}/serviceaccounts", {"metadata": {"name": account}})
        rule = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "resourceNames": ["named"], "verbs": ["patch"]}
        plane.create(f"{rbac}/roles", {"metadata": {"name": account}, "rules": [rule]})
        bind(scene, account, account)
        answer = plane.create(f"{scene.core}/serviceaccounts/{account}/token", {"spec": {}})
        tokens[account] = answer["status"]["token"]
    plane.create(scene.clusters, named)
    eventually(lambda: plane.request_json("PATCH", label, LABEL, token=tokens["of-a-team"])[0] == 200, "a team may", 60)
    code, answer = plane.request_json("PATCH", label, LABEL, token=tokens["of-the-head"])
    assert code == 403
    assert "labels, finalizers or owners" in answer["message"]
    rule = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["patch"]}
    plane.create(f"{rbac}/roles", {"metadata": {"name": "all"}, "rules": [rule]})
    bind(scene, "all", "of-the-head")
    eventually(
        lambda: plane.request_json("PATCH", label, LABEL, token=tokens["of-the-head"])[0] == 200,
        "an account that may patch every RayCluster by a right of its own stays free",
    )


@pytest.mark.rule("FD:SEC-F8")
def test_the_policy_does_not_apply_to_an_unrelated_account_with_a_clusters_name(scene):
    plane, rbac = scene.plane, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}"
    made = cluster("team", scene.namespace)
    made["spec"] |= {"enableInTreeAutoscaling": False, "suspend": True}
    del made["spec"]["autoscalerOptions"]
    plane.create(scene.clusters, made)
    plane.create(f"{scene.core}/serviceaccounts", {"metadata": {"name": "team"}})
    rule = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["patch"]}
    plane.create(f"{rbac}/roles", {"metadata": {"name": "of-the-team"}, "rules": [rule]})
    bind(scene, "of-the-team", "team")
    token = plane.create(f"{scene.core}/serviceaccounts/team/token", {"spec": {}})["status"]["token"]
    path = f"{scene.clusters}/team?dryRun=All"
    eventually(lambda: plane.request_json("PATCH", path, LABEL, token=token)[0] == 200, "it may what its role says")


@pytest.mark.rule("FD:SEC-F8")
def test_the_policy_validates_a_large_raycluster_within_its_budget(scene):
    large = cluster("a-large", scene.namespace)
    (worker,) = large["spec"]["workerGroupSpecs"]
    groups = [{**worker, "groupName": f"group-{number}", "replicas": 0, "minReplicas": 0} for number in range(MANY)]
    large["spec"] |= {"workerGroupSpecs": groups, "suspend": True}
    scene.plane.create(scene.clusters, large)
    account = f"{scene.core}/serviceaccounts/a-large"
    eventually(lambda: scene.plane.request_json("GET", account)[0] in (200, 404), "the API answers")
    if scene.plane.request_json("GET", account)[0] == 404:
        scene.plane.request_json("POST", f"{scene.core}/serviceaccounts", {"metadata": {"name": "a-large"}})
    rule = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "resourceNames": ["a-large"], "verbs": ["patch"]}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}"
    scene.plane.create(f"{rbac}/roles", {"metadata": {"name": "of-large"}, "rules": [rule]})
    bind(scene, "of-large", "a-large")
    token = scene.plane.create(f"{account}/token", {"spec": {}})["status"]["token"]
    path, content = f"{scene.clusters}/a-large?dryRun=All", "application/json-patch+json"
    last = [{"op": "replace", "path": f"/spec/workerGroupSpecs/{MANY - 1}/replicas", "value": 1}]

    def events_of():
        return scene.plane.request_json("PATCH", path, last, content_type=content, token=token)

    eventually(lambda: events_of()[0] == 200, f"replicas may be changed: {events_of()[1]}")
    more = patched(f"/spec/workerGroupSpecs/{MANY - 1}/maxReplicas", 7)
    code, answer = scene.plane.request_json("PATCH", path, more, content_type=content, token=token)
    assert code == 403
    assert OF_A_GROUP in answer["message"]


def bind(scene, role, account):
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": scene.namespace}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    body = {"metadata": {"name": f"{role}-{account}"}, "roleRef": ref, "subjects": [subject]}
    scene.plane.create(f"{rbac}/rolebindings", body)


RESIZE = {"spec": {"containers": [{"name": "ray-worker", "resources": {"limits": {"cpu": "1m"}}}]}}
ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
BINDING = {"metadata": {"name": "more"}, "roleRef": ROLE_REF}
FORBIDDEN = {
    "read another RayCluster": ("GET", "{clusters}/b", None),
    "patch another RayCluster": ("PATCH", "{clusters}/b", LABEL),
    "list RayClusters": ("GET", "{clusters}", None),
    "list another RayCluster": ("GET", "{clusters}?fieldSelector=metadata.name%3Db", None),
    "watch RayClusters": ("GET", "{clusters}?watch=1&timeoutSeconds=1", None),
    "watch another RayCluster": ("GET", "{clusters}?fieldSelector=metadata.name%3Db&watch=1&timeoutSeconds=1", None),
    "watch all but another": ("GET", "{clusters}?fieldSelector=metadata.name%21%3Db&watch=1&timeoutSeconds=1", None),
    "make a RayCluster": ("POST", "{clusters}", {"metadata": {"name": "c"}}),
    "delete its own RayCluster": ("DELETE", "{clusters}/a", None),
    "write its own status": ("PATCH", "{clusters}/a/status", {"status": {"state": "ready"}}),
    "resize another cluster's worker": ("PATCH", "{core}/pods/{b_worker}/resize", RESIZE),
    "resize its own worker": ("PATCH", "{core}/pods/{a_worker}/resize", RESIZE),
    "patch a pod": ("PATCH", "{core}/pods/{a_worker}", LABEL),
    "delete its own worker": ("DELETE", "{core}/pods/{a_worker}", None),
    "delete a bystander": ("DELETE", "{core}/pods/bystander", None),
    "make a pod": ("POST", "{core}/pods", UNRELATED_POD),
    "run something in a pod": ("GET", "{core}/pods/{b_head}/exec?command=id", None),
    "read logs": ("GET", "{core}/pods/{b_head}/log", None),
    "read Secrets": ("GET", "{core}/secrets", None),
    "read ConfigMaps": ("GET", "{core}/configmaps", None),
    "change services": ("DELETE", "{core}/services/a-head-svc", None),
    "request another token": ("POST", "{core}/serviceaccounts/b/token", {"spec": {}}),
    "change its own role": ("PATCH", "{rbac}/roles/a", LABEL),
    "bind itself to more": ("POST", "{rbac}/rolebindings", BINDING),
    "read pods of another namespace": ("GET", "/api/v1/namespaces/kube-system/pods", None),
    "read nodes": ("GET", "/api/v1/nodes", None),
}


@pytest.mark.rule("SC:S10", "SE:C8", "RM:I12")
@pytest.mark.parametrize("act", FORBIDDEN)
def test_it_may_not(scene, act):
    method, pattern, body = FORBIDDEN[act]
    path = pattern.format(
        clusters=scene.clusters,
        core=scene.core,
        rbac=f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}",
        a_worker=scene.pod_of("a", "worker"),
        b_worker=scene.pod_of("b", "worker"),
        b_head=scene.pod_of("b", "head"),
    )
    assert scene.status(method, path, body) == 403


@pytest.mark.rule("SE:C5")
def test_the_pods_are_admitted_where_the_restricted_standard_is_enforced(scene):
    path = f"{scene.core}/pods/{scene.pod_of('a', 'head')}"
    head = scene.plane.request_json("GET", path)[1]
    sidecar = next(each for each in head["spec"]["initContainers"] if each["name"] == "autoscaler")
    assert sidecar["securityContext"]["runAsNonRoot"] is True


@pytest.mark.rule("SE:C22")
def test_only_the_sidecar_has_a_token_mounted(scene):
    head = scene.plane.request_json("GET", f"{scene.core}/pods/{scene.pod_of('a', 'head')}")[1]
    holders = {
        container["name"]
        for container in (*head["spec"]["containers"], *head["spec"]["initContainers"])
        for mount in container.get("volumeMounts", ())
        if mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    }
    assert holders == {"autoscaler"}


@pytest.mark.rule("SC:S10")
def test_names_of_foreign_pods_in_its_record_delete_no_pod_and_are_reported(scene):
    names = ["bystander", scene.pod_of("b", "worker")]
    order = [{"op": "add", "path": "/spec/workerGroupSpecs/0/scaleStrategy", "value": {"workersToDelete": names}}]
    answer = scene.plane.request_json(
        "PATCH", f"{scene.clusters}/a", order, content_type="application/json-patch+json", token=scene.token
    )
    assert answer[0] == 200, answer

    def events_of():
        events = scene.plane.request_json("GET", f"/apis/events.k8s.io/v1/namespaces/{scene.namespace}/events")[1][
            "items"
        ]
        notes = [event["note"] for event in events if event["regarding"].get("name") == "a"]
        named = [note for note in notes if "scaleStrategy.workersToDelete of group" in note]
        return all(any(name in note for note in named) for name in names)

    eventually(events_of, "both names are told on a")
    for name in names:
        assert "deletionTimestamp" not in scene.plane.request_json("GET", f"{scene.core}/pods/{name}")[1]["metadata"]
