"""What the token of a cluster's autoscaler can do on a real API server, and what not (SC:S10, SE:C5, SE:C8).

An operator with exactly the chart's rights makes two clusters in a namespace that enforces the Pod Security Standard
`restricted`; then somebody holds the token of the first one's autoscaler. The real server checks that the operator passes
on no right it has not itself, and that nothing the operator injects breaks the standard.
"""

import asyncio
import secrets
from dataclasses import dataclass

import pytest

from operator_process import OperatorProcess
from plane_admin import PlaneAdmin

from builders import group, raycluster, template
from kube_plane import KubePlane, eventually

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

RESTRICTED = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ENFORCED = {f"pod-security.kubernetes.io/{how}": "restricted" for how in ("enforce", "warn")}
BYSTANDER = {"metadata": {"name": "bystander"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}


def restricted(container):
    made = template(container, **RESTRICTED)
    made["spec"]["containers"][0]["securityContext"] = CONTAINER
    return made


def cluster(name, namespace):
    workers = group("cpu", replicas=1, template=restricted("ray-worker"))
    head = {"rayStartParams": {}, "template": restricted("ray-head")}
    obj = raycluster(workers, headGroupSpec=head, enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2"})
    return {**obj, "metadata": {"name": name, "namespace": namespace}}


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
    kube_plane.create(f"{core}/pods", BYSTANDER)
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
        yield Scene(kube_plane, namespace, token)


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


RESIZE = {"spec": {"containers": [{"name": "ray-worker", "resources": {"limits": {"cpu": "1m"}}}]}}
LABEL = {"metadata": {"labels": {"mine": "yes"}}}
ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
BINDING = {"metadata": {"name": "more"}, "roleRef": ROLE_REF}
FORBIDDEN = {
    "read another RayCluster": ("GET", "{clusters}/b", None),
    "patch another RayCluster": ("PATCH", "{clusters}/b", LABEL),
    "list RayClusters": ("GET", "{clusters}", None),
    "make a RayCluster": ("POST", "{clusters}", {"metadata": {"name": "c"}}),
    "delete its own RayCluster": ("DELETE", "{clusters}/a", None),
    "write its own status": ("PATCH", "{clusters}/a/status", {"status": {"state": "ready"}}),
    "resize another cluster's worker": ("PATCH", "{core}/pods/{b_worker}/resize", RESIZE),
    "resize its own worker": ("PATCH", "{core}/pods/{a_worker}/resize", RESIZE),
    "patch a pod": ("PATCH", "{core}/pods/{a_worker}", LABEL),
    "delete its own worker": ("DELETE", "{core}/pods/{a_worker}", None),
    "delete a bystander": ("DELETE", "{core}/pods/bystander", None),
    "make a pod": ("POST", "{core}/pods", BYSTANDER),
    "run something in a pod": ("GET", "{core}/pods/{b_head}/exec?command=id", None),
    "read logs": ("GET", "{core}/pods/{b_head}/log", None),
    "read Secrets": ("GET", "{core}/secrets", None),
    "read ConfigMaps": ("GET", "{core}/configmaps", None),
    "change services": ("DELETE", "{core}/services/a-head-svc", None),
    "ask for another token": ("POST", "{core}/serviceaccounts/b/token", {"spec": {}}),
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
    sidecar = next(each for each in head["spec"]["containers"] if each["name"] == "autoscaler")
    assert sidecar["securityContext"]["runAsNonRoot"] is True


@pytest.mark.rule("SE:C22")
def test_kubernetes_mounts_no_token_beside_the_sidecars(scene):
    head = scene.plane.request_json("GET", f"{scene.core}/pods/{scene.pod_of('a', 'head')}")[1]
    holders = {
        container["name"]
        for container in head["spec"]["containers"]
        for mount in container.get("volumeMounts", ())
        if mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    }
    assert holders == {"autoscaler"}


@pytest.mark.rule("SC:S10")
def test_names_of_foreign_pods_in_its_order_hurt_nobody_and_are_told(scene):
    names = ["bystander", scene.pod_of("b", "worker")]
    order = [{"op": "add", "path": "/spec/workerGroupSpecs/0/scaleStrategy", "value": {"workersToDelete": names}}]
    answer = scene.plane.request_json(
        "PATCH", f"{scene.clusters}/a", order, content_type="application/json-patch+json", token=scene.token
    )
    assert answer[0] == 200, answer

    def told():
        events = scene.plane.request_json("GET", f"/apis/events.k8s.io/v1/namespaces/{scene.namespace}/events")[1][
            "items"
        ]
        notes = [event["note"] for event in events if event["regarding"].get("name") == "a"]
        return all(any(f"{name} in scaleStrategy.workersToDelete" in note for note in notes) for name in names)

    eventually(told, "both names are told on a")
    for name in names:
        assert "deletionTimestamp" not in scene.plane.request_json("GET", f"{scene.core}/pods/{name}")[1]["metadata"]
