"""The Job that removes the state of a GCS from Redis (RC:RJ-1..4)."""

import ast
import shlex

import pytest

from raytide.api.config import AutoscalerConfig, PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod
from raytide.raycluster.manifests.redis_cleanup import build_cleanup_job
from support.builders import raycluster

OPTIONS = {
    "redisAddress": "redis:6379",
    "redisUsername": {"value": "ray"},
    "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis-pw", "key": "password"}}},
    "externalStorageNamespace": "my-ns",
}


def cluster(*, template=None, container=None, labels=None, annotations=None, name="demo", **spec):
    obj = raycluster(gcsFaultToleranceOptions=OPTIONS, rayVersion="2.52.0", **spec)
    obj["metadata"]["name"] = name
    head = obj["spec"]["headGroupSpec"]["template"]
    head.setdefault("metadata", {}).update(labels=labels or {}, annotations=annotations or {})
    head["spec"] |= template or {}
    head["spec"]["containers"][0] |= container or {}
    return RayCluster.parse(obj)


def job_of(found, config=PodConfig(), *, is_owned=True):  # noqa: B008 - frozen
    return build_cleanup_job(found, config, is_owned=is_owned, deadline_s=400)


def pod_of(found, config=PodConfig()):  # noqa: B008
    return job_of(found, config)["spec"]["template"]["spec"]


@pytest.mark.rule("RC:RJ-1")
def test_the_job_is_named_labelled_and_bounded_as_kuberays():
    job = job_of(cluster())
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == ("demo-redis-cleanup", "default")
    assert job["metadata"]["ownerReferences"][0]["kind"] == "RayCluster"
    assert {name: job["spec"].get(name) for name in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")} == {
        "backoffLimit": 0, "activeDeadlineSeconds": 300, "ttlSecondsAfterFinished": None,
    }  # fmt: skip
    labels = job["metadata"]["labels"]
    assert (labels["ray.io/cluster"], labels["ray.io/node-type"]) == ("demo", "redis-cleanup")
    assert job["spec"]["template"]["metadata"] == {"labels": labels, "annotations": job["metadata"]["annotations"]}
    long = job_of(cluster(name="a" * 60))["metadata"]["name"]
    assert (len(long), long.endswith("-redis-cleanup")) == (63, True)


@pytest.mark.rule("RC:RJ-2")
def test_the_pod_reaches_redis_as_the_head_does():
    found = cluster(template={"nodeSelector": {"zone": "a"}, "volumes": [{"name": "tls", "emptyDir": {}}]})
    head, pod = build_head_pod(found, PodConfig(), "")["spec"], pod_of(found)
    (ray,) = pod["containers"]
    assert (ray["image"], pod["nodeSelector"]) == (head["containers"][0]["image"], {"zone": "a"})
    assert {"name": "tls", "emptyDir": {}} in pod["volumes"]
    env = {each["name"]: each for each in ray["env"]}
    assert [each for each in head["containers"][0]["env"] if each not in ray["env"]] == []
    assert env["RAY_REDIS_ADDRESS"]["value"] == "redis:6379"
    assert env["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"]["name"] == "redis-pw"
    assert env["RAY_external_storage_namespace"]["value"] == "my-ns"
    assert env["RAY_redis_db_connect_retries"]["value"] == "60"
    assert env["RAY_redis_db_connect_wait_milliseconds"]["value"] == "500"


@pytest.mark.rule("RC:RJ-2")
def test_nothing_of_the_head_keeps_the_pod_waiting_or_running():
    found = cluster(
        template={
            "schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}],
            "schedulerName": "volcano",
            "resourceClaims": [{"name": "gpu"}],
            "restartPolicy": "Always",
            "initContainers": [{"name": "mine", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}],
            "resources": {"requests": {"cpu": "64"}},
        },
        container={
            "resources": {"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "gpu"}]},
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
        },
        labels={"kueue.x-k8s.io/queue-name": "team", "volcano.sh/queue-name": "q", "mine": "stays"},
        annotations={"scheduling.k8s.io/group-name": "pg", "mine": "stays"},
        enableInTreeAutoscaling=True,
        autoscalerOptions={"version": "v2"},
    )
    config = PodConfig(
        autoscaler=AutoscalerConfig(has_native_sidecars=True),
        head_sidecar_containers=({"name": "logs", "image": "fluent"},),
    )
    job, pod = job_of(found, config), pod_of(found, config)
    (ray,) = pod["containers"]
    dropped = {"schedulingGates", "schedulerName", "resourceClaims", "serviceAccountName", "resources"}
    assert set(pod) & dropped == set()
    assert [(each["name"], each["resources"]) for each in pod["initContainers"]] == [("mine", {})]
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    amounts = {"cpu": "200m", "memory": "256Mi"}
    assert ray["resources"] == {"requests": amounts, "limits": amounts}
    assert set(ray) & {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"} == set()
    metadata = job["metadata"]
    assert [
        name for name in (*metadata["labels"], *metadata["annotations"]) if name.startswith(("kueue", "volc", "sched"))
    ] == []
    assert (metadata["labels"]["mine"], metadata["annotations"]["mine"]) == ("stays", "stays")


@pytest.mark.rule("RC:RJ-2")
@pytest.mark.parametrize("delegated", [False, True])
def test_it_needs_no_token_whose_secret_may_be_gone(delegated):
    options = {"mode": "token", "enableK8sTokenAuth": True} if delegated else {"mode": "token", "secretName": "mine"}
    pod = pod_of(cluster(authOptions=options, enableInTreeAutoscaling=True))
    assert not [each for each in pod["containers"][0]["env"] if "AUTH" in each["name"]]


@pytest.mark.rule("RC:RJ-2")
def test_a_service_account_of_the_users_stays():
    """It may be the identity by which Redis or its secret is reached."""
    pod = pod_of(cluster(template={"serviceAccountName": "mine"}, enableInTreeAutoscaling=True))
    assert pod["serviceAccountName"] == "mine"
    assert "automountServiceAccountToken" not in pod
    assert "automountServiceAccountToken" not in pod_of(cluster()), "it may be the namespace's default one"


# --- the script ------------------------------------------------------------------------------------------------------


def called(monkeypatch, **environment):
    """The arguments with which the script calls Ray, run here with another `cleanup_redis_storage`."""
    (ray,) = pod_of(cluster())["containers"]
    assert ray["command"] == ["/bin/bash", "-c", "--"]
    python, option, script = shlex.split(ray["args"][0])
    assert (python, option) == ("python", "-c")
    ast.parse(script)
    calls = []
    module = type("gcs_utils", (), {"cleanup_redis_storage": staticmethod(lambda **given: calls.append(given) or True)})
    monkeypatch.setitem(__import__("sys").modules, "ray._private.gcs_utils", module)
    for name in ("RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RAY_external_storage_namespace": "ns", **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        exec(script, {})
    assert not ended.value.code
    return calls[0]


@pytest.mark.rule("RC:RJ-3", "RC:RJ-4")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"RAY_REDIS_ADDRESS": "redis:1234"}, ("redis", 1234, "", False, None), id="host and port"),
        pytest.param({"RAY_REDIS_ADDRESS": "a:1,b:2"}, ("a", 1, "", False, None), id="the first of several"),
        pytest.param({"RAY_REDIS_ADDRESS": "redis"}, ("redis", 6379, "", False, None), id="the default port"),
        pytest.param(
            {"RAY_REDIS_ADDRESS": "rediss://u:p@r:1"}, ("r", 1, "p", True, None), id="TLS, password in the URL"
        ),
        pytest.param(
            {"RAY_REDIS_ADDRESS": "redis://u:p@r:1", "REDIS_PASSWORD": "q", "REDIS_USERNAME": "v"},
            ("r", 1, "q", False, "v"),
            id="the environment wins",
        ),
        pytest.param(
            {"RAY_REDIS_ADDRESS": "redis://u@r:1", "REDIS_USERNAME": ""}, ("r", 1, "", False, "u"), id="empty"
        ),
    ],
)
def test_the_script_passes_on_what_the_environment_says(monkeypatch, environment, expected):
    given = called(monkeypatch, **environment)
    assert given.pop("storage_namespace") == "ns"
    found = tuple(given.get(name) for name in ("host", "port", "password", "use_ssl", "username"))
    assert found == expected
