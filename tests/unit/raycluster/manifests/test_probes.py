"""The probes of Ray containers, and the exit codes of their commands (RC §3.6)."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from support.builders import group, parsed, raycluster, template
from support.deadlines import PATIENCE

CONFIG = PodConfig()
RAYLET = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
GCS = "wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success"
SERVE = "wget --tries 1 -T 10 -q -O- http://localhost:8000/-/healthz | grep success"


def bash(command: str) -> dict[str, Any]:
    return {"exec": {"command": ["bash", "-c", command]}}


def http(port: int = 52365) -> dict[str, Any]:
    return {"httpGet": {"path": "/api/healthz", "port": port}}


def liveness(check: dict[str, Any], timeout_s: int) -> dict[str, Any]:
    times = {"initialDelaySeconds": 30, "timeoutSeconds": timeout_s, "periodSeconds": 5}
    return {**check, **times, "successThreshold": 1, "failureThreshold": 120}


def readiness(check: dict[str, Any], timeout_s: int, failures: int = 10) -> dict[str, Any]:
    times = {"initialDelaySeconds": 10, "timeoutSeconds": timeout_s, "periodSeconds": 5}
    return {**check, **times, "successThreshold": 1, "failureThreshold": failures}


def probes_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in pod["spec"]["containers"][0].items() if key.endswith("Probe")}


def head_probes(cluster: RayCluster, config: PodConfig = CONFIG) -> dict[str, Any]:
    return probes_of(build_head_pod(cluster, config, "demo-head-aaaaa"))


def worker_probes(cluster: RayCluster, config: PodConfig = CONFIG) -> dict[str, Any]:
    return probes_of(build_worker_template(cluster, cluster.spec.worker_group_specs[0], config))


def of_ray_service(*groups: dict[str, Any], **spec: Any) -> RayCluster:
    manifest = raycluster(*groups, **spec)
    manifest["metadata"]["labels"] = {"ray.io/originated-from-crd": "RayService"}
    return RayCluster.parse(manifest)


@pytest.mark.rule("RC:PRB-2", "RC:PRB-4")
def test_the_probe_of_an_old_head_checks_raylet_and_gcs():
    check = bash(f"{RAYLET} && {GCS}")
    assert head_probes(parsed()) == {"livenessProbe": liveness(check, 5), "readinessProbe": readiness(check, 5)}


@pytest.mark.rule("RC:PRB-2", "RC:PRB-4")
def test_the_probe_of_an_old_worker_checks_the_raylet():
    check = bash(RAYLET)
    assert worker_probes(parsed()) == {"livenessProbe": liveness(check, 2), "readinessProbe": readiness(check, 2)}


@pytest.mark.rule("RC:PRB-1")
@pytest.mark.parametrize("version", ["2.53.0", "v2.53", "2.53.0rc1", "3.0"])
def test_a_new_ray_has_one_http_probe(version):
    cluster = parsed(rayVersion=version)
    assert head_probes(cluster) == {"livenessProbe": liveness(http(), 5), "readinessProbe": readiness(http(), 5)}
    assert worker_probes(cluster) == {"livenessProbe": liveness(http(), 2), "readinessProbe": readiness(http(), 2)}


@pytest.mark.rule("RC:PRB-1")
@pytest.mark.parametrize("version", ["", "2.52.9", "nightly", "2", "latest"])
def test_an_old_or_unknown_ray_has_exec_probes(version):
    assert "exec" in worker_probes(parsed(rayVersion=version))["livenessProbe"]


@pytest.mark.rule("RC:PRB-1", "RC:PRB-2", "RC:PRB-4")
def test_probes_follow_the_ports_the_user_chose():
    params = {"dashboard-agent-listen-port": "1111", "dashboard-port": "2222"}
    head = {"rayStartParams": params, "template": template()}
    asked = head_probes(parsed(headGroupSpec=head))["livenessProbe"]["exec"]["command"][2]
    assert "localhost:1111/api/local_raylet_healthz" in asked
    assert "localhost:2222/api/gcs_healthz" in asked
    assert head_probes(parsed(headGroupSpec=head, rayVersion="2.53.0"))["livenessProbe"] == liveness(http(1111), 5)
    odd = {"rayStartParams": {"dashboard-agent-listen-port": "agent"}, "template": template()}
    assert head_probes(parsed(headGroupSpec=odd, rayVersion="2.53.0"))["livenessProbe"] == liveness(http(), 5)


@pytest.mark.rule("RC:PRB-3")
@pytest.mark.parametrize("version", ["2.52.0", "2.53.0"])
def test_a_worker_of_a_ray_service_is_ready_when_it_serves(version):
    cluster = of_ray_service(rayVersion=version)
    assert worker_probes(cluster)["readinessProbe"] == readiness(bash(f"{RAYLET} && {SERVE}"), 2, failures=1)
    check = http() if version == "2.53.0" else bash(RAYLET)
    assert worker_probes(cluster)["livenessProbe"] == liveness(check, 2)
    assert head_probes(cluster)["readinessProbe"]["failureThreshold"] == 10


@pytest.mark.rule("RC:PRB-3")
def test_the_serve_port_is_the_one_of_that_name():
    own = template()
    own["spec"]["containers"][0]["ports"] = [{"containerPort": 1}, {"name": "serve", "containerPort": 9000}]
    asked = worker_probes(of_ray_service(group(template=own)))["readinessProbe"]["exec"]["command"][2]
    assert "http://localhost:9000/-/healthz" in asked


@pytest.mark.rule("RC:PRB-4")
@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe"])
def test_a_probe_of_the_users_stays_and_the_other_is_added(kind):
    own = template()
    own["spec"]["containers"][0] |= {kind: {"exec": {"command": ["true"]}}, "startupProbe": {"tcpSocket": {"port": 1}}}
    probes = worker_probes(parsed(group(template=own)))
    assert probes[kind] == {"exec": {"command": ["true"]}}
    assert set(probes) == {"livenessProbe", "readinessProbe", "startupProbe"}


@pytest.mark.rule("RC:PRB-4")
def test_probes_can_be_switched_off():
    config = replace(CONFIG, is_probe_injected=False)
    assert head_probes(parsed(), config) == {}
    assert worker_probes(parsed(), config) == {}


@pytest.mark.rule("RC:PRB-2")
@pytest.mark.parametrize(
    ("answers", "is_healthy"),
    [
        pytest.param({"raylet": "success", "gcs": "success"}, True, id="both are well"),
        pytest.param({"raylet": "success", "gcs": "down"}, False, id="the GCS is down"),
        pytest.param({"raylet": "down", "gcs": "success"}, False, id="the raylet is down"),
        pytest.param({"raylet": "success"}, False, id="the GCS does not answer"),
    ],
)
def test_the_probe_command_fails_if_one_of_its_checks_fails(answers, is_healthy):
    shell, flag, command = head_probes(parsed())["livenessProbe"]["exec"]["command"]
    cases = "".join(f"*{service}_healthz) echo {answer};; " for service, answer in answers.items())
    wget = f'wget() {{ case "${{@: -1}}" in {cases}*) return 4;; esac; }}; '
    done = subprocess.run([shell, flag, wget + command], check=False, capture_output=True, timeout=10 * PATIENCE)
    assert (done.returncode == 0) is is_healthy
