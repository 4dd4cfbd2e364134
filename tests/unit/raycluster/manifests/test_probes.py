"""The probes of Ray containers, and the exit codes of their commands (RC §3.6)."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from support.builders import group, parsed, raycluster, template
from support.deadlines import PATIENCE

CONFIG = PodConfig()
PYTHON = (
    "python3 -c 'from sys import argv; from urllib.request import ProxyHandler, build_opener; "
    "print(build_opener(ProxyHandler({})).open(argv[1], timeout=int(argv[2])).read().decode())'"
)


def check(url: str, timeout_s: int) -> str:
    by_wget = f"wget --tries 1 -T {timeout_s} -q -O- {url}"
    return f"({by_wget} || [ $? -ne 127 ] || {PYTHON} {url} {timeout_s}) | grep success"


RAYLET = check("http://localhost:52365/api/local_raylet_healthz", 2)
GCS = check("http://localhost:8265/api/gcs_healthz", 10)
SERVE = check("http://localhost:8000/-/healthz", 10)


def bash(command: str) -> dict[str, Any]:
    return {"exec": {"command": ["bash", "-c", command]}}


def http(port: int = 52365, path: str = "/api/healthz") -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}}


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


@pytest.mark.rule("RC:PRB-3", "FD:RC3-8")
@pytest.mark.parametrize(
    ("version", "ready", "alive"),
    [("2.52.0", bash(f"{RAYLET} && {SERVE}"), bash(RAYLET)), ("2.53.0", http(8000, "/-/healthz"), http())],
)
def test_a_worker_of_a_ray_service_is_ready_when_it_serves(version, ready, alive):
    cluster = of_ray_service(rayVersion=version)
    assert worker_probes(cluster)["readinessProbe"] == readiness(ready, 2, failures=1)
    assert worker_probes(cluster)["livenessProbe"] == liveness(alive, 2)
    assert head_probes(cluster)["readinessProbe"]["failureThreshold"] == 10


@pytest.mark.rule("RC:PRB-3")
@pytest.mark.parametrize("version", ["2.52.0", "2.53.0"])
def test_the_serve_port_is_the_one_of_that_name(version):
    own = template()
    own["spec"]["containers"][0]["ports"] = [{"containerPort": 1}, {"name": "serve", "containerPort": 9000}]
    probe = worker_probes(of_ray_service(group(template=own), rayVersion=version))["readinessProbe"]
    if version == "2.53.0":
        assert probe["httpGet"]["port"] == 9000
    else:
        assert "http://localhost:9000/-/healthz" in probe["exec"]["command"][2]


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


@pytest.mark.rule("FD:RC3-8", "RC:PRB-2")
@pytest.mark.parametrize(
    ("programs", "status", "body", "is_healthy"),
    [
        pytest.param(["python3", "grep"], 200, "success", True, id="without wget Python asks"),
        pytest.param(["python3", "grep"], 200, "down", False, id="without wget an answer without success fails"),
        pytest.param(["python3", "grep"], 503, "success", False, id="without wget an error fails"),
        pytest.param(["grep"], 200, "success", False, id="with neither program it fails"),
    ],
)
def test_the_probe_command_needs_no_wget(programs, status, body, is_healthy, tmp_path):
    for program in programs:
        target = sys.executable if program == "python3" else shutil.which(program)
        (tmp_path / program).write_text(f'#!/bin/sh\nexec {target} "$@"\n')
        (tmp_path / program).chmod(0o755)
    with answering(status, body) as port:
        params = {"dashboard-agent-listen-port": str(port)}
        cluster = parsed(group(rayStartParams=params))
        _, flag, command = worker_probes(cluster)["livenessProbe"]["exec"]["command"]
        env = {"PATH": str(tmp_path), "http_proxy": "http://127.0.0.1:1"}
        bash_path = shutil.which("bash")
        done = subprocess.run([bash_path, flag, command], check=False, env=env, timeout=10 * PATIENCE)
    assert (done.returncode == 0) is is_healthy


@contextmanager
def answering(status: int, body: str) -> Iterator[int]:
    """A server at the port that it yields, with one answer for all requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
