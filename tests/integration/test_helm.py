"""helm with the sandbox's emulator: releases are installed, changed, rolled back and removed.

No controller runs Deployments and Jobs in the emulator, so nothing here waits for pods (`helm --wait` would wait for ever, and so
would the Job that upgrades the CRDs); that is what the end-to-end suite on a real control plane is for.
"""

import copy
import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from kube_tools import find_tool
from support.deadlines import PATIENCE
from support.documented_commands import session
from support.sandbox_process import SandboxProcess

pytestmark = [pytest.mark.helm, pytest.mark.timeout(120)]

NO_JOB = ("--set", "crds.upgrade=false")
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
    def call(*words, values=None):
        environ = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "HELM_NAMESPACE": "ops"}
        command = [find_tool("helm"), *words]
        given = None if values is None else json.dumps(values)
        done = subprocess.run(
            [*command, *(() if values is None else ("--values", "-"))],
            input=given,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=False,
            env=environ,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield call
    call("uninstall", "raytide", "--ignore-not-found")


def operator_args(sandbox):
    found = sandbox.get("/apis/apps/v1/namespaces/ops/deployments/raytide")
    return found["spec"]["template"]["spec"]["containers"][0]["args"]


def count(sandbox, path):
    return len(sandbox.get(path)["items"])


@pytest.mark.parametrize("command", session("helm"), ids=lambda command: command.typed[-40:])
def test_the_commands_of_the_pages_install_and_change_a_release(sandbox, helm, command, tmp_path):
    program, *words = shlex.split(command.typed.replace("\\\n", " "))
    assert program == "helm"
    words.remove("--wait")  # nothing runs the operator here
    (tmp_path / "kuberay-values.yaml").write_text("batchScheduler: {enabled: false}\n")
    places = {"helm/raytide": str(CHART), "kuberay-values.yaml": str(tmp_path / "kuberay-values.yaml")}
    if words[0] == "upgrade":
        helm("install", "raytide", str(CHART), "--namespace", "raytide", "--create-namespace", *NO_JOB)
    helm(*[places.get(word, word) for word in words], *NO_JOB)
    assert sandbox.get("/apis/apps/v1/namespaces/raytide/deployments/raytide")["spec"]["replicas"] > 0
    helm("uninstall", "raytide", "--namespace", "raytide")


def test_a_release_from_install_to_uninstall(sandbox, helm):
    helm("install", "raytide", str(CHART), "--create-namespace", "--set", "replicas=2")
    assert "--log-level=info" in operator_args(sandbox)
    assert sandbox.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io")
    assert sandbox.get("/apis/policy/v1/namespaces/ops/poddisruptionbudgets/raytide")
    assert sandbox.get("/apis/coordination.k8s.io/v1/namespaces/ops/leases/ray-operator-leader")

    helm(
        "upgrade", "raytide", str(CHART), "--reset-then-reuse-values", *NO_JOB,
        "--set", "logLevel=debug,networkPolicy.enabled=false",
    )  # fmt: skip
    assert "--log-level=debug" in operator_args(sandbox)
    assert count(sandbox, "/apis/networking.k8s.io/v1/namespaces/ops/networkpolicies") == 0

    helm("rollback", "raytide", "1")
    assert "--log-level=info" in operator_args(sandbox)
    assert count(sandbox, "/apis/networking.k8s.io/v1/namespaces/ops/networkpolicies") == 2

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
    helm("upgrade", "raytide", str(CHART), *NO_JOB, "--set", "logLevel=debug")
    helm("uninstall", "raytide")
    assert sandbox.get(f"{leases}/ray-operator-leader")["spec"]["holderIdentity"] == "kuberay"


def test_an_upgrade_leaves_the_holder_of_the_lease_alone(sandbox, helm):
    path = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/ray-operator-leader"
    sandbox.api("DELETE", path)
    helm("install", "raytide", str(CHART), "--create-namespace")
    lease = sandbox.get(path)
    status, _ = sandbox.api("PUT", path, {**lease, "spec": {"holderIdentity": "we", "leaseDurationSeconds": 30}})
    assert status == 200
    helm("upgrade", "raytide", str(CHART), *NO_JOB, "--set", "logLevel=debug")
    assert sandbox.get(path)["spec"] == {"holderIdentity": "we", "leaseDurationSeconds": 30}


def notes(helm, values):
    """What helm would print after an installation on this API server."""
    answer = helm("install", "raytide", str(CHART), "--create-namespace", "--dry-run=server", values=values)
    return answer.partition("\nNOTES:\n")[2]


@pytest.mark.rule("FD:UX-8", "FD:UX-9")
@pytest.mark.parametrize(
    ("values", "wanted", "not_wanted"),
    [
        pytest.param(
            {},
            [
                "watches RayClusters and TrainingJobs in all namespaces.",
                "kubectl delete crd rayclusters.ray.io trainingjobs.paddlepaddle.org",
                "helm upgrade also upgrades the CRDs.",
                "never --reuse-values",
                "admits no pod to the metrics: name your Prometheus in networkPolicy.metricsFrom",
            ],
            ["kubeClient", "creates no RBAC"],
            id="default",
        ),
        pytest.param(
            {"kubeClient": {"qps": 100.0, "burst": 200}},
            ["kubeClient.qps and kubeClient.burst have no effect"],
            [],
            id="KubeRay's client limits",
        ),
        pytest.param(
            {"crds": {"upgrade": False}, "networkPolicy": {"enabled": False}},
            ["Before each upgrade: kubectl apply --server-side --force-conflicts -f crds/"],
            ["admits no pod"],
            id="no Job for CRDs",
        ),
        pytest.param(
            {"rayCluster": {"enabled": False}, "watchNamespace": ["team-a", "team-b"], "rbacEnable": False},
            ["watches TrainingJobs in team-a, team-b.", "grant service account raytide the permissions"],
            ["Ray cluster", "KubeRay"],
            id="TrainingJobs in two namespaces, without RBAC",
        ),
    ],
)
def test_the_notes_report_what_has_no_effect_and_what_is_to_do(helm, values, wanted, not_wanted):
    text = notes(helm, values)
    assert [line for line in wanted if line not in text] == []
    assert [word for word in not_wanted if word in text] == []


@pytest.mark.rule("FD:UX-9")
def test_the_notes_report_a_crd_of_kuberay_which_helm_does_not_replace(sandbox, helm):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    helm("install", "raytide", str(CHART), "--create-namespace")  # with the CRDs
    helm("uninstall", "raytide")
    ours = sandbox.get(f"{path}/rayclusters.ray.io")
    assert "that of another installation" not in notes(helm, {})
    theirs = copy.deepcopy(ours)
    theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = (
        "RayCluster is the Schema for the RayClusters API"
    )
    status, answer = sandbox.api("PUT", f"{path}/rayclusters.ray.io", theirs)
    assert status == 200, answer
    text = notes(helm, {})
    assert "The CRD rayclusters.ray.io is that of another installation, such as KubeRay's" in text
    status, changed = sandbox.api(
        "PUT", f"{path}/rayclusters.ray.io", {**ours, "metadata": sandbox.get(f"{path}/rayclusters.ray.io")["metadata"]}
    )
    assert status == 200, changed
