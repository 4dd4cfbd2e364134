"""Ports, shared memory and the container that waits for the GCS (RC §3.1, §3.2, §3.6)."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from raytide.api.config import PodConfig
from raytide.raycluster.manifests.containers import wait_script
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from support.builders import group, parsed, template

CONFIG = PodConfig()
ADDRESS = "demo-head-svc.default.svc.cluster.local:6379"
SMALL = {"cpu": "200m", "memory": "256Mi"}


def ray_container(**fields: Any) -> dict[str, Any]:
    own = template()
    own["spec"]["containers"][0] |= fields
    return own


def worker_spec(own: dict[str, Any], config: PodConfig = CONFIG, **fields: Any) -> dict[str, Any]:
    cluster = parsed(group(template=own, **fields))
    return build_worker_template(cluster, cluster.spec.worker_group_specs[0], config)["spec"]


# --- metrics port --------------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-8", "RC:POD-19")
@pytest.mark.parametrize(
    ("own", "ports"),
    [
        pytest.param([], [{"name": "metrics", "containerPort": 8080}], id="none"),
        pytest.param(
            [{"name": "gcs", "containerPort": 6379}],
            [{"name": "gcs", "containerPort": 6379}, {"name": "metrics", "containerPort": 8080}],
            id="another",
        ),
        pytest.param(
            [{"name": "metrics", "containerPort": 9090}],
            [{"name": "metrics", "containerPort": 9090}],
            id="the user's own",
        ),
    ],
)
def test_there_is_a_port_named_metrics(own, ports):
    own_template = ray_container(ports=own)
    assert worker_spec(own_template)["containers"][0]["ports"] == ports
    head = build_head_pod(parsed(headGroupSpec={"template": own_template}), CONFIG, "demo-head-aaaaa")
    assert head["spec"]["containers"][0]["ports"] == ports


# --- shared memory -------------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:VOL-1")
@pytest.mark.parametrize(
    ("resources", "size"),
    [
        pytest.param(
            {"limits": {"memory": "4Gi"}, "requests": {"memory": "1Gi"}}, {"sizeLimit": "4Gi"}, id="the limit"
        ),
        pytest.param({"requests": {"memory": "1Gi"}}, {"sizeLimit": "1Gi"}, id="else the request"),
        pytest.param({"limits": {"cpu": "1"}}, {}, id="else no limit"),
    ],
)
def test_shared_memory_is_as_large_as_the_container_may_be(resources, size):
    spec = worker_spec(ray_container(resources=resources))
    assert spec["volumes"] == [{"name": "shared-mem", "emptyDir": {"medium": "Memory", **size}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "shared-mem", "mountPath": "/dev/shm"}]


@pytest.mark.rule("RC:VOL-1")
@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/"])
def test_shared_memory_the_user_mounted_stays(path):
    own = ray_container(volumeMounts=[{"name": "own", "mountPath": path}])
    own["spec"]["volumes"] = [{"name": "own", "emptyDir": {"medium": "Memory"}}]
    spec = worker_spec(own)
    assert spec["volumes"] == own["spec"]["volumes"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "own", "mountPath": path}]


@pytest.mark.rule("RC:VOL-1")
def test_a_volume_of_that_name_is_used_again():
    own = ray_container(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    own["spec"]["volumes"] = [{"name": "shared-mem", "hostPath": {"path": "/mnt"}}]
    spec = worker_spec(own)
    assert spec["volumes"] == own["spec"]["volumes"]
    assert spec["containers"][0]["volumeMounts"][1] == {"name": "shared-mem", "mountPath": "/dev/shm"}


@pytest.mark.rule("RC:VOL-1")
def test_an_object_store_elsewhere_needs_no_shared_memory():
    spec = worker_spec(template(), rayStartParams={"plasma-directory": "/tmp"})
    assert "volumes" not in spec
    assert "volumeMounts" not in spec["containers"][0]


# --- wait-gcs-ready --------------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:POD-17")
def test_a_worker_waits_after_the_users_init_containers():
    own = template(initContainers=[{"name": "prepare", "image": "busybox"}])
    assert [c["name"] for c in worker_spec(own)["initContainers"]] == ["prepare", "wait-gcs-ready"]


@pytest.mark.rule("RC:POD-17", "FD:RC3-7")
def test_an_init_container_of_that_name_takes_the_place_of_ours():
    mine = {"name": "wait-gcs-ready", "image": "busybox", "command": ["true"], "resources": {"limits": {"cpu": "1"}}}
    found = worker_spec(template(initContainers=[mine, {"name": "prepare", "image": "busybox"}]))["initContainers"]
    assert [c["name"] for c in found] == ["wait-gcs-ready", "prepare"]
    assert [variable["name"] for variable in found[0].pop("env")] == ["FQ_RAY_IP", "RAY_IP"]
    assert found[0] == mine


@pytest.mark.rule("RC:POD-17")
def test_the_wait_container_copies_the_ray_container_of_the_user():
    security = {"runAsUser": 1000}
    env = [{"name": "OWN", "value": "1"}]
    mounts = [{"name": "certificates", "mountPath": "/certificates"}]
    own = ray_container(
        imagePullPolicy="Always", securityContext=security, env=env, volumeMounts=mounts, envFrom=[{"secretRef": {}}]
    )
    waiting = worker_spec(own)["initContainers"][0]
    assert waiting.pop("args") == [wait_script(ADDRESS)]
    assert [variable["name"] for variable in waiting.pop("env")] == ["OWN", "FQ_RAY_IP", "RAY_IP"]
    assert waiting == {
        "name": "wait-gcs-ready",
        "image": "rayproject/ray:2.52.0",
        "imagePullPolicy": "Always",
        "securityContext": security,
        "command": ["/bin/bash", "-c", "--"],
        "volumeMounts": mounts,
        "resources": {"limits": SMALL, "requests": SMALL},
    }


@pytest.mark.rule("RC:POD-17", "RC:CMD-4")
def test_the_wait_container_uses_a_login_shell_on_request():
    waiting = worker_spec(template(), replace(CONFIG, is_login_shell=True))["initContainers"][0]
    assert waiting["command"] == ["/bin/bash", "-cl", "--"]


@pytest.mark.rule("RC:POD-17")
def test_waiting_can_be_switched_off():
    assert "initContainers" not in worker_spec(template(), replace(CONFIG, is_init_container_injected=False))


@pytest.mark.rule("RC:POD-13")
def test_a_head_does_not_wait():
    assert "initContainers" not in build_head_pod(parsed(), CONFIG, "demo-head-aaaaa")["spec"]


def run_wait_script(passes_after: int) -> str:
    """Run it in bash with a `ray` that answers that often with no, and a `sleep` that lets time jump."""
    stand_ins = f"""
asked=0
ray() {{
  asked=$((asked + 1))
  echo "asked $*"
  [ "$asked" -gt {passes_after} ]
}}
sleep() {{
  echo "slept $1"
  SECONDS=$((SECONDS + $1))
}}
"""
    done = subprocess.run(
        ["bash", "-c", "--", stand_ins + wait_script(ADDRESS)], check=True, capture_output=True, text=True, timeout=20
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.rule("RC:POD-17")
def test_the_first_yes_ends_the_wait_at_once():
    assert "slept" not in run_wait_script(passes_after=0)


@pytest.mark.rule("RC:POD-17")
def test_it_checks_every_five_seconds_and_prints_no_hint_for_two_minutes():
    output = run_wait_script(passes_after=24)
    assert output.count("slept 5") == 24
    assert "https://docs.ray.io/" not in output
    # The answer after 24 pauses is the first one that is shown.
    assert output.count(f"asked health-check --address {ADDRESS}") == 1


@pytest.mark.rule("RC:POD-17")
def test_later_it_shows_each_answer_and_where_to_read_on():
    output = run_wait_script(passes_after=30)
    assert output.count(f"asked health-check --address {ADDRESS}") == 7
    assert output.count("https://docs.ray.io/") == 6
