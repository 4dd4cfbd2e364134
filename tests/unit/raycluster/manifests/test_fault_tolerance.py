"""With fault tolerance, Ray pods use the same storage namespace in Redis under KubeRay and Raytide (RC §3.8)."""

import pytest

from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from support.builders import raycluster

STORAGE_NAMESPACE = "RAY_external_storage_namespace"
STAMP = "ray.io/external-storage-namespace"
REDIS = {"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}
BY_ANNOTATION = {"ray.io/ft-enabled": "true"}


def cluster(*env, annotations=None, params=None, uid="uid-demo", **spec):
    obj = raycluster(uid=uid, **spec)
    obj["metadata"]["annotations"] = annotations or {}
    head = obj["spec"]["headGroupSpec"]
    head["template"]["spec"]["containers"][0]["env"] = list(env)
    head["rayStartParams"] = {**head["rayStartParams"], **(params or {})}
    return RayCluster.parse(obj)


def head_of(cluster):
    pod = build_head_pod(cluster, PodConfig(), "demo-head-aaaaa")
    ray = pod["spec"]["containers"][0]
    return pod["metadata"]["annotations"], {entry["name"]: entry for entry in ray["env"]}, " ".join(ray["args"])


def worker_env(cluster):
    pod = build_worker_template(cluster, cluster.spec.worker_group_specs[0], PodConfig())
    return {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}


@pytest.mark.rule("FD:RC-B2", "RC:FT-2")
def test_two_clusters_that_share_one_redis_do_not_share_their_state():
    heads = [head_of(cluster(REDIS, annotations=BY_ANNOTATION, uid=uid)) for uid in ("uid-1", "uid-2")]
    assert [env[STORAGE_NAMESPACE]["value"] for _, env, _ in heads] == ["uid-1", "uid-2"]
    assert [annotations[STAMP] for annotations, _, _ in heads] == ["uid-1", "uid-2"]


@pytest.mark.rule("FD:RC-B2", "RC:FT-2")
@pytest.mark.parametrize(
    ("annotations", "spec", "expected"),
    [
        pytest.param({**BY_ANNOTATION, STAMP: "abc"}, {}, "abc", id="the annotation's"),
        pytest.param({**BY_ANNOTATION, STAMP: ""}, {}, "uid-demo", id="an empty annotation names none"),
        pytest.param({}, {"gcsFaultToleranceOptions": {}}, "uid-demo", id="the uid"),
        pytest.param({}, {"gcsFaultToleranceOptions": {"externalStorageNamespace": "mine"}}, "mine", id="the option's"),
    ],
)
def test_which_storage_namespace(annotations, spec, expected):
    stamped, env, _ = head_of(cluster(annotations=annotations, **spec))
    assert (stamped[STAMP], env[STORAGE_NAMESPACE]["value"]) == (expected, expected)


@pytest.mark.rule("FD:RC-B2", "RC:FT-2")
def test_a_storage_namespace_in_the_users_environment_stays():
    own = {"name": STORAGE_NAMESPACE, "value": "mine"}
    pod = build_head_pod(cluster(REDIS, own, annotations=BY_ANNOTATION), PodConfig(), "demo-head-aaaaa")
    env = pod["spec"]["containers"][0]["env"]
    assert [entry["value"] for entry in env if entry["name"] == STORAGE_NAMESPACE] == ["mine"]


@pytest.mark.rule("FD:RC-B2", "RC:FT-1")
def test_workers_wait_ten_minutes_for_a_recreated_head():
    assert worker_env(cluster(annotations=BY_ANNOTATION))["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"
    assert worker_env(cluster(gcsFaultToleranceOptions={}))["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"


@pytest.mark.rule("FD:RC-B2", "RC:FT-3", "RC:RSP-9")
def test_address_and_credentials_of_the_options():
    password = {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}
    options = {"redisAddress": "redis:6379", "redisUsername": {"value": "ray"}, "redisPassword": password}
    _, env, command = head_of(cluster(gcsFaultToleranceOptions=options))
    assert env["RAY_REDIS_ADDRESS"] == REDIS
    assert env["REDIS_USERNAME"] == {"name": "REDIS_USERNAME", "value": "ray"}
    assert env["REDIS_PASSWORD"] == {"name": "REDIS_PASSWORD", **password}
    assert "--redis-username=$REDIS_USERNAME " in command
    assert "--redis-password=$REDIS_PASSWORD " in command


@pytest.mark.rule("FD:RC-B2", "RC:FT-4")
def test_the_password_of_ray_start_is_in_the_environment_too():
    params = {"redis-password": "secret"}
    _, env, _ = head_of(cluster(REDIS, annotations=BY_ANNOTATION, params=params))
    assert env["REDIS_PASSWORD"]["value"] == "secret"
    own = {"name": "REDIS_PASSWORD", "value": "other"}
    _, env, _ = head_of(cluster(REDIS, own, annotations=BY_ANNOTATION, params=params))
    assert env["REDIS_PASSWORD"]["value"] == "other"


@pytest.mark.rule("RC §3.8")
@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        pytest.param({}, {}, id="no fault tolerance"),
        pytest.param({"ray.io/ft-enabled": "false", STAMP: "abc"}, {}, id="switched off"),
    ],
)
def test_without_redis_nothing_is_added(annotations, spec):
    without = cluster(annotations=annotations, **spec)
    stamped, env, _ = head_of(without)
    assert STAMP not in stamped
    assert not {STORAGE_NAMESPACE, "RAY_REDIS_ADDRESS", "REDIS_PASSWORD"} & env.keys()
    assert "RAY_gcs_rpc_server_reconnect_timeout_s" not in worker_env(without)
