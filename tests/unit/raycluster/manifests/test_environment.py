"""Variables of Ray and init containers, their order, and which of them the user may set (RC §3.6)."""

from dataclasses import replace
from typing import Any

import pytest

from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from support.builders import group, parsed, raycluster, template

CONFIG = PodConfig(operator_version="1.2.3")
FQDN = "demo-head-svc.default.svc.cluster.local"
SHARED = {
    "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
    "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
    "RAY_CLOUD_INSTANCE_ID": "metadata.name",
    "RAY_NODE_TYPE_NAME": "metadata.labels['ray.io/group']",
    "KUBERAY_GEN_RAY_START_CMD": "COMMAND",
    "RAY_PORT": "6379",
}


def read(container: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value or field path of each variable, the start command reduced to a word."""
    found = []
    for variable in container.get("env", []):
        value = variable["valueFrom"]["fieldRef"]["fieldPath"] if "valueFrom" in variable else variable["value"]
        found.append((variable["name"], "COMMAND" if value.startswith("ray start") else value))
    return found


def with_env(*env: dict[str, Any], **spec: Any) -> dict[str, Any]:
    own = template(**spec)
    own["spec"]["containers"][0]["env"] = list(env)
    return own


def head_env(cluster: RayCluster, config: PodConfig = CONFIG) -> list[tuple[str, str]]:
    return read(build_head_pod(cluster, config, "demo-head-aaaaa")["spec"]["containers"][0])


def worker_spec(cluster: RayCluster, config: PodConfig = CONFIG) -> dict[str, Any]:
    return build_worker_template(cluster, cluster.spec.worker_group_specs[0], config)["spec"]


def worker_env(cluster: RayCluster, config: PodConfig = CONFIG) -> list[tuple[str, str]]:
    return read(worker_spec(cluster, config)["containers"][0])


def originating_from(kind: str) -> RayCluster:
    manifest = raycluster()
    manifest["metadata"]["labels"] = {"ray.io/originated-from-crd": kind}
    return RayCluster.parse(manifest)


@pytest.mark.rule("RC:POD-13", "RC:CMD-5")
def test_a_heads_variables_in_order():
    assert head_env(parsed()) == [
        *SHARED.items(),
        ("RAY_ADDRESS", "127.0.0.1:6379"),
        ("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
        ("RAY_USAGE_STATS_EXTRA_TAGS", "kuberay_version=1.2.3;kuberay_crd=RayCluster"),
        ("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"),
    ]


@pytest.mark.rule("RC:POD-20", "RC:CMD-5")
def test_a_workers_variables_in_order():
    assert worker_env(parsed()) == [
        ("FQ_RAY_IP", FQDN),
        ("RAY_IP", "demo-head-svc"),
        *SHARED.items(),
        ("RAY_ADDRESS", f"{FQDN}:6379"),
        ("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
        ("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"),
    ]


@pytest.mark.rule("RC:POD-13")
@pytest.mark.parametrize("kind", ["RayJob", "RayService", "RayCluster"])
def test_the_usage_tags_name_where_the_cluster_comes_from(kind):
    assert ("RAY_USAGE_STATS_EXTRA_TAGS", f"kuberay_version=1.2.3;kuberay_crd={kind}") in head_env(
        originating_from(kind)
    )


@pytest.mark.rule("RC:POD-13")
def test_an_unknown_origin_counts_as_a_ray_cluster():
    tags = dict(head_env(originating_from("Surprise")))["RAY_USAGE_STATS_EXTRA_TAGS"]
    assert tags == "kuberay_version=1.2.3;kuberay_crd=RayCluster"


@pytest.mark.rule("RC:POD-13", "RC:POD-20")
def test_only_pods_of_a_ray_service_fail_fast():
    timeouts = {
        "RAY_timeout_ms_task_wait_for_death_info": "0",
        "RAY_gcs_server_request_timeout_seconds": "5",
        "RAY_SERVE_KV_TIMEOUT_S": "5",
    }
    service = originating_from("RayService")
    assert timeouts.items() <= set(head_env(service))
    assert timeouts.items() <= set(worker_env(service))
    assert timeouts.keys().isdisjoint(dict(head_env(originating_from("RayJob"))))


@pytest.mark.rule("RC:RSP-3", "RC:POD-13", "RC:POD-20")
def test_the_heads_port_is_passed_to_all_containers():
    cluster = parsed(headGroupSpec={"rayStartParams": {"port": "6380"}, "template": template()})
    assert {("RAY_PORT", "6380"), ("RAY_ADDRESS", "127.0.0.1:6380")} <= set(head_env(cluster))
    assert {("RAY_PORT", "6380"), ("RAY_ADDRESS", f"{FQDN}:6380")} <= set(worker_env(cluster))


@pytest.mark.rule("RC:POD-20")
@pytest.mark.parametrize(
    ("name", "is_the_users"),
    [
        ("RAY_PORT", True),
        ("RAY_ADDRESS", True),
        ("RAY_USAGE_STATS_KUBERAY_IN_USE", True),
        ("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", True),
        ("FROM_SETTINGS", True),
        ("FQ_RAY_IP", False),
        ("RAY_IP", False),
        ("RAY_CLUSTER_NAME", False),
        ("RAY_CLUSTER_NAMESPACE", False),
        ("RAY_CLOUD_INSTANCE_ID", False),
        ("RAY_NODE_TYPE_NAME", False),
        ("KUBERAY_GEN_RAY_START_CMD", False),
    ],
)
def test_the_user_may_set_some_variables_and_not_others(name, is_the_users):
    config = replace(CONFIG, default_container_envs=({"name": "FROM_SETTINGS", "value": "x"},))
    env = worker_env(parsed(group(template=with_env({"name": name, "value": "own"}))), config)
    assert env[0] == (name, "own")
    assert (dict(env)[name] == "own") is is_the_users
    assert (len([n for n, _ in env if n == name]) == 1) is is_the_users


@pytest.mark.rule("RC:POD-13", "RC:POD-20")
def test_configured_variables_come_before_generated_ones():
    config = replace(CONFIG, default_container_envs=({"name": "PROXY", "value": "http://p"},))
    cluster = parsed(group(template=with_env({"name": "OWN", "value": "1"})))
    assert worker_env(cluster, config)[:3] == [("OWN", "1"), ("PROXY", "http://p"), ("FQ_RAY_IP", FQDN)]
    assert head_env(cluster, config)[0] == ("PROXY", "http://p")


@pytest.mark.rule("RC:POD-13", "RC:POD-20")
def test_every_init_container_gets_the_address_of_the_head():
    prepare = {"name": "prepare", "image": "busybox", "env": [{"name": "OWN", "value": "1"}]}
    own = template(initContainers=[prepare, {"name": "other", "image": "busybox"}])
    cluster = parsed(group(template=own), headGroupSpec={"template": own})
    where = [("FQ_RAY_IP", FQDN), ("RAY_IP", "demo-head-svc")]
    heads = build_head_pod(cluster, CONFIG, "demo-head-aaaaa")["spec"]["initContainers"]
    assert [read(c) for c in heads] == [[("OWN", "1"), *where], where]
    assert [read(c) for c in worker_spec(cluster)["initContainers"]] == [[("OWN", "1"), *where], where, where]


@pytest.mark.rule("RC:HS-2")
def test_a_chosen_service_name_is_used_everywhere():
    service = {"metadata": {"name": "my-head"}, "spec": {}}
    cluster = parsed(headGroupSpec={"template": template(), "headService": service})
    env = dict(worker_env(cluster))
    assert env["FQ_RAY_IP"] == "my-head.default.svc.cluster.local"
    assert env["RAY_IP"] == "my-head"
    assert env["RAY_ADDRESS"] == "my-head.default.svc.cluster.local:6379"
