"""helm with the sandbox's emulator: releases are installed, changed, rolled back and removed.

No controller runs Deployments in the emulator, so nothing here waits for pods (`helm --wait` would wait for ever); that is what
the end-to-end suite on a real control plane is for.
"""

import os
import subprocess
from pathlib import Path

import pytest

from kube_tools import find_tool
from support.sandbox_process import SandboxProcess

pytestmark = [pytest.mark.helm, pytest.mark.timeout(120)]

CHART = Path(__file__).parents[2] / "helm" / "raytide"


@pytest.fixture(scope="module")
def sandbox():
    running = SandboxProcess()
    try:
        running.up("--nodes", "1", "--isolation", "plain", "--no-crds")
        yield running
    finally:
        running.end()


@pytest.fixture
def helm(sandbox):
    def call(*words):
        environ = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "HELM_NAMESPACE": "ops"}
        command = [find_tool("helm"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield call
    call("uninstall", "raytide", "--ignore-not-found")


def operator_args(sandbox):
    found = sandbox.get("/apis/apps/v1/namespaces/ops/deployments/raytide")
    return found["spec"]["template"]["spec"]["containers"][0]["args"]


def count(sandbox, path):
    return len(sandbox.get(path)["items"])


def test_a_release_from_install_to_uninstall(sandbox, helm):
    helm("install", "raytide", str(CHART), "--create-namespace", "--set", "replicas=2,networkPolicy.enabled=true")
    assert "--log-level=info" in operator_args(sandbox)
    assert sandbox.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io")
    assert sandbox.get("/apis/policy/v1/namespaces/ops/poddisruptionbudgets/raytide")
    assert sandbox.get("/apis/coordination.k8s.io/v1/namespaces/ops/leases/ray-operator-leader")

    helm("upgrade", "raytide", str(CHART), "--reuse-values", "--set", "logLevel=debug,networkPolicy.enabled=false")
    assert "--log-level=debug" in operator_args(sandbox)
    assert count(sandbox, "/apis/networking.k8s.io/v1/namespaces/ops/networkpolicies") == 0

    helm("rollback", "raytide", "1")
    assert "--log-level=info" in operator_args(sandbox)
    assert count(sandbox, "/apis/networking.k8s.io/v1/namespaces/ops/networkpolicies") == 1

    helm("uninstall", "raytide")
    for path in (
        "/apis/apps/v1/namespaces/ops/deployments",
        "/api/v1/namespaces/ops/services",
        "/api/v1/namespaces/ops/secrets",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/ops/roles",
        "/apis/coordination.k8s.io/v1/namespaces/ops/leases",
    ):
        assert count(sandbox, path) == 0, path
    assert sandbox.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io")


def test_a_lease_of_another_owner_is_not_changed(sandbox, helm):
    sandbox.api("POST", "/api/v1/namespaces", {"metadata": {"name": "ops"}})
    leases = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"
    theirs = {"metadata": {"name": "ray-operator-leader"}, "spec": {"holderIdentity": "kuberay"}}
    status, _ = sandbox.api("POST", leases, theirs)
    assert status == 201
    helm("install", "raytide", str(CHART))
    helm("upgrade", "raytide", str(CHART), "--set", "logLevel=debug")
    helm("uninstall", "raytide")
    assert sandbox.get(f"{leases}/ray-operator-leader")["spec"]["holderIdentity"] == "kuberay"


def test_an_upgrade_leaves_the_holder_of_the_lease_alone(sandbox, helm):
    path = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/ray-operator-leader"
    sandbox.api("DELETE", path)
    helm("install", "raytide", str(CHART), "--create-namespace")
    lease = sandbox.get(path)
    status, _ = sandbox.api("PUT", path, {**lease, "spec": {"holderIdentity": "we", "leaseDurationSeconds": 30}})
    assert status == 200
    helm("upgrade", "raytide", str(CHART), "--set", "logLevel=debug")
    assert sandbox.get(path)["spec"] == {"holderIdentity": "we", "leaseDurationSeconds": 30}
