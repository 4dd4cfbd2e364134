"""Token authentication: which containers send which token, and the Secret that the operator creates (RC §2.6, §3.9)."""

import pytest

from raytide.api.config import AutoscalerConfig, ClusterConfig, PodConfig
from raytide.api.meta import SECRETS
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from raytide.raycluster.manifests.token_auth import build_secret, secret_lookups
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from support.builders import head_service, raycluster

OF_CLUSTER = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "demo", "key": "auth_token"}}}
MODE = {"name": "RAY_AUTH_MODE", "value": "token"}
CREATES = PodConfig(creates_auth_secrets=True)
TOKEN_MOUNT = {"name": "ray-token", "mountPath": "/var/run/secrets/ray.io/serviceaccount", "readOnly": True}
TOKEN_VOLUME = {"name": "ray-token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def cluster(options=None, **spec):
    chosen = {"mode": "token"} if options is None else options
    return RayCluster.parse(raycluster(rayVersion="2.60.0", authOptions=chosen, **spec))


def containers(found, config=CREATES):
    """By name, those of the head and of a worker."""
    head = build_head_pod(found, config, "demo-head-aaaaa")["spec"]
    worker = build_worker_template(found, found.spec.worker_group_specs[0], config)["spec"]
    everything = (*head["containers"], *worker["containers"], *worker.get("initContainers", ()))
    return {each["name"]: each for each in everything}


def of_token(container):
    return [each for each in container["env"] if "AUTH" in each["name"]]


@pytest.mark.rule("RC:AU-3", "RC:POD-9", "RC:POD-19")
def test_ray_its_autoscaler_and_the_wait_for_the_gcs_send_the_token_and_nothing_of_the_user_does():
    own = [{"name": "ray-head", "image": "ray"}, {"name": "logs", "image": "logs", "env": []}]
    template = {"spec": {"containers": own, "initContainers": [{"name": "init", "image": "init", "env": []}]}}
    found = cluster(enableInTreeAutoscaling=True, headGroupSpec={"rayStartParams": {}, "template": template})
    pods = containers(found)
    head = build_head_pod(found, CREATES, "demo-head-aaaaa")["spec"]
    for name in ("ray-head", "ray-worker", "wait-gcs-ready", "autoscaler"):
        assert of_token(pods[name]) == [MODE, OF_CLUSTER], name
    assert of_token(pods["logs"]) == of_token(head["initContainers"][0]) == []


@pytest.mark.rule("RC:AU-3")
def test_the_token_of_the_users_secret_needs_no_permission_of_the_operator():
    ray = containers(cluster({"mode": "token", "secretName": "mine"}), PodConfig())["ray-head"]
    reference = {"secretKeyRef": {"name": "mine", "key": "auth_token"}}
    assert of_token(ray) == [MODE, {"name": "RAY_AUTH_TOKEN", "valueFrom": reference}]


@pytest.mark.rule("RC:AU-3")
def test_variables_of_the_template_stay():
    own = {"name": "RAY_AUTH_TOKEN", "value": "mine"}
    template = {"spec": {"containers": [{"name": "ray-head", "image": "ray", "env": [own]}]}}
    ray = containers(cluster(headGroupSpec={"rayStartParams": {}, "template": template}))["ray-head"]
    assert of_token(ray) == [own, MODE]


@pytest.mark.rule("RC:AU-3")
@pytest.mark.parametrize("mode", ["raytide", "ray"])
def test_a_token_of_kubernetes_is_a_volume_of_its_own(mode):
    found = cluster({"mode": "token", "enableK8sTokenAuth": True}, enableInTreeAutoscaling=True)
    config = PodConfig(autoscaler=AutoscalerConfig(mode))
    pods = containers(found, config)
    for name in ("ray-head", "ray-worker", "wait-gcs-ready", "autoscaler"):
        assert of_token(pods[name]) == [MODE, {"name": "RAY_ENABLE_K8S_TOKEN_AUTH", "value": "true"}], name
        assert TOKEN_MOUNT in pods[name]["volumeMounts"], name
    assert TOKEN_VOLUME in build_head_pod(found, config, "demo-head-aaaaa")["spec"]["volumes"]


@pytest.mark.rule("RC:AU-3", "RC:AS-1")
def test_mounts_of_autoscaler_options_come_after_that_of_the_token():
    options = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    found = cluster(
        {"mode": "token", "enableK8sTokenAuth": True}, enableInTreeAutoscaling=True, autoscalerOptions=options
    )
    names = [mount["name"] for mount in containers(found)["autoscaler"]["volumeMounts"]]
    assert [name for name in names if name in ("ray-token", "cache")] == ["ray-token", "cache"]


@pytest.mark.rule("RC:AU-3")
@pytest.mark.parametrize("options", [{}, {"mode": "disabled"}, {"secretName": "mine"}])
def test_without_the_mode_token_nothing_is_sent(options):
    assert of_token(containers(cluster(options))["ray-head"]) == []
    assert secret_lookups(cluster(options), CREATES) == ()


@pytest.mark.rule("RC:AU-1", "RC:AU-2")
def test_the_secret_is_kuberays():
    assert build_secret(cluster(), "t") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "demo",
            "namespace": "default",
            "labels": {"ray.io/cluster": "demo"},
            "ownerReferences": [
                {
                    "apiVersion": "ray.io/v1",
                    "kind": "RayCluster",
                    "name": "demo",
                    "uid": "uid-demo",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "stringData": {"auth_token": "t"},
    }


@pytest.mark.rule("RC:AU-1", "RC:REC-10")
@pytest.mark.parametrize(
    ("options", "config", "names"),
    [
        pytest.param({"mode": "token"}, CREATES, ["demo"], id="the operator's"),
        pytest.param({"mode": "token"}, PodConfig(), [], id="it may not create one"),
        pytest.param({"mode": "token", "secretName": "mine"}, CREATES, [], id="the user's"),
        pytest.param({"mode": "token", "enableK8sTokenAuth": True}, CREATES, [], id="Kubernetes'"),
    ],
)
def test_only_a_secret_of_the_operators_is_looked_up(options, config, names):
    found = secret_lookups(cluster(options), config)
    assert [each.name for each in found] == names
    assert all(each.may_use({"metadata": {"labels": {"ray.io/cluster": "demo"}}}) for each in found)
    assert not any(each.may_use({"metadata": {}}) for each in found)


@pytest.mark.rule("RC:AU-2", "RC:REC-10")
def test_the_first_head_waits_for_the_secret_with_a_token_that_is_drawn_once():
    observed = Observed(services=(head_service(),), missing=frozenset({(SECRETS, "demo")}))
    todo = plan(cluster(), observed, ClusterConfig(pods=CREATES), lambda prefix: f"{prefix}aaaaa", lambda: "drawn")
    (create,) = todo.actions
    assert create.manifest["stringData"] == {"auth_token": "drawn"}
    assert (todo.is_last, todo.is_continued, create.success_reason) == (True, True, "")
