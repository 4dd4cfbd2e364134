"""Chart, CRDs and samples at a real API server that refuses what it does not know; nothing of them is stored."""

import subprocess
from pathlib import Path

import pytest

from integration.probe.client import eventually
from kube_tools import find_tool
from support.deadlines import PATIENCE

pytestmark = [pytest.mark.kube, pytest.mark.rule("SE:C4")]

ROOT = Path(__file__).parents[2]
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
POLICY = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
VALUES = {
    "as it comes": "replicas=1",
    "in two namespaces": "watchNamespaces={default,kube-public},rbac.readNodes=false",
    "hardened": f"replicas=2,networkPolicy.apiServer={{10.96.0.1/32}},image.digest=sha256:{'0' * 64},ui.enabled=true",
}


@pytest.fixture(scope="module")
def kubectl(kube_plane):
    def call(*words, given=None):
        command = [find_tool("kubectl"), "--kubeconfig", kube_plane.kubeconfig, *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60 * PATIENCE, check=False)

    crds = [word for path in CRDS for word in ("--filename", str(path))]
    assert call("apply", "--server-side", "--force-conflicts", *crds).returncode == 0
    eventually(lambda: call("get", "rayclusters,trainingjobs").returncode == 0, "both kinds are served")
    return call


def try_out(kubectl, text):
    """kubectl's result of a strict dry run at the server, which admits and validates, but stores nothing."""
    options = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    return kubectl("apply", *options, "--filename", "-", given=text)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_is_accepted(kubectl, values):
    command = [find_tool("helm"), "template", "raytide", ROOT / "helm" / "raytide", "--namespace", "default"]
    command += ["--kube-version", "1.35.0", "--api-versions", POLICY]
    done = subprocess.run([*command, "--set", values], capture_output=True, text=True, check=True)
    assert ("kind: ValidatingAdmissionPolicy\n" in done.stdout) == ("readNodes" not in values)
    tried = try_out(kubectl, done.stdout)
    assert (tried.returncode, tried.stderr) == (0, "")


@pytest.mark.parametrize("file", [*CRDS, *sorted((ROOT / "samples").glob("*.yaml"))], ids=lambda file: file.name)
def test_a_crd_or_sample_is_accepted(kubectl, file):
    done = try_out(kubectl, file.read_text())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["raycluster", "trainingjob-seed"])
def test_a_misspelled_field_is_refused(kubectl, name):
    text = (ROOT / "samples" / f"{name}.yaml").read_text()
    assert "\nspec:\n" in text
    done = try_out(kubectl, text.replace("\nspec:\n", "\nspec:\n  misspeled: 1\n"))
    assert done.returncode != 0
    assert "misspeled" in done.stderr
