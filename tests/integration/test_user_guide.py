"""The outputs in docs/user-guide.md come from this run: real Ray on a sandbox, the operator, and kubectl.

Each command is taken from the guide as it stands there. What it changes it changes once; what it shows is asked for until it
is what the guide shows (guide_outputs.py says what is not compared), or the deadline is over.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deadlines import PATIENCE
from support.documented_commands import session
from support.guide_outputs import Example, differs, examples
from support.operator_process import OperatorProcess
from support.ports import free_port
from support.ray_environment import small
from support.sandbox_process import Json, Kubectl, SandboxProcess, eventually
from support.terminal import Terminal

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
    pytest.mark.rule("FD:UX-10"),
]
ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = examples("user-guide.md")
PATIENCE_S = 150.0 * PATIENCE
NAME_OF_POD = re.compile(r"\b(\w+(?:-\w+)*-(?:head|worker)-)[a-z0-9]{5}\b")

EIGHT_TASKS = """
import ray, time
nap = ray.remote(num_cpus=1)(lambda: time.sleep(3))
ray.get([nap.remote() for _ in range(8)])
"""


class Guide:
    """A reader of the guide at a terminal, in a checkout, with a kubeconfig."""

    def __init__(self, sandbox: SandboxProcess) -> None:
        self.kubectl = Kubectl(sandbox)
        self.operator = OperatorProcess(sandbox.kubeconfig, sandbox.directory / "operator.log")

    def example(self, command: str, nth: int = 0) -> Example:
        """The command of the guide that begins like this."""
        return [example for example in GUIDE if example.command.startswith(command)][nth]

    def type(self, command: str) -> str:
        """Run it once, with the names that pods have here, and return what it prints."""
        done = subprocess.run(
            ["bash", "-c", self._with_names_of_today(command)],
            capture_output=True,
            text=True,
            timeout=330 * PATIENCE,
            check=False,
            cwd=ROOT,
            env={**self.kubectl.env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
        return done.stdout + done.stderr

    def does(self, command: str) -> None:
        """Run it once; its output is that of the guide, if the guide has it."""
        example = self.example(command)
        printed = self.type(example.command)
        assert not example.output or not (difference := differs(example, printed)), difference

    def shows(self, command: str, *, is_ordered: bool = True) -> None:
        """Within the deadline; typed again until then."""
        example = self.example(command)
        end = time.monotonic() + PATIENCE_S
        while difference := differs(example, self.type(example.command), is_ordered=is_ordered):
            assert time.monotonic() < end, difference
            time.sleep(0.1)

    def _with_names_of_today(self, command: str) -> str:
        pods = self.kubectl("get", "pods", "--no-headers", "-o", "custom-columns=:metadata.name").split()
        return NAME_OF_POD.sub(lambda name: next((p for p in pods if p.startswith(name[1])), name[0]), command)


@pytest.fixture(scope="module")
def guide() -> Iterator[Guide]:
    sandbox = SandboxProcess()
    try:
        sandbox.up()
        reader = Guide(sandbox)
        with reader.operator:
            yield reader
    finally:
        sandbox.end()


@pytest.fixture(autouse=True)
def no_rayclusters_are_left(guide: Guide) -> Iterator[None]:
    yield
    guide.kubectl("delete", "rayclusters", "--all", "--wait=false")
    eventually(lambda: "No resources" in guide.kubectl("get", "pods"), "all pods are gone", 60)


def sample(name: str, file: str = "raycluster.yaml") -> Json:
    """One of the samples under another name, with small object stores."""
    manifest: Json = small(yaml.safe_load((ROOT / "samples" / file).read_text()))
    manifest["metadata"]["name"] = name
    return manifest


def group(manifest: Json) -> Any:
    """Its first group of workers."""
    return manifest["spec"]["workerGroupSpecs"][0]


def worker_container(manifest: Json) -> Any:
    return group(manifest)["template"]["spec"]["containers"][0]


def test_a_first_raycluster_is_made_scaled_and_loses_a_worker_by_name(guide: Guide) -> None:
    guide.does("kubectl apply -f samples/raycluster.yaml")
    guide.does("kubectl wait --for=condition=RayClusterProvisioned raycluster/sample")
    guide.shows("kubectl get raycluster,pods")
    guide.shows("kubectl describe raycluster sample", is_ordered=False)
    guide.shows("kubectl exec sample-head-")
    guide.does("kubectl patch raycluster sample --type=json -p '[{")
    guide.shows("kubectl get raycluster sample")
    guide.does("kubectl patch raycluster sample --type=json -p '[\n")
    eventually(lambda: "named in scaleStrategy.workersToDelete" in guide.kubectl("get", "events"), "the event says why")


def test_other_pages_reach_ray(guide: Guide, tmp_path: Path) -> None:
    guide.kubectl("apply", "-f", "-", given=sample("sample"))
    guide.does("kubectl wait --for=condition=RayClusterProvisioned raycluster/sample")
    head = guide.kubectl("get", "pods", "-l", "ray.io/node-type=head", "-o", "name").strip()
    reader = Terminal(tmp_path, {**guide.kubectl.env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    try:
        with reader.page(session("ray", "README.md")) as page:
            page.type("kubectl exec <head pod>", "Active:", **{"<head pod>": head})
        with reader.page(session("ray", "docs/sandbox.md")) as page:
            page.type("kubectl wait", "condition met")
            page.type("kubectl exec $(kubectl get pod", "Active:")
            page.start("kubectl logs -f sample-head-dhbqv", "Ray runtime started", **{"sample-head-dhbqv": head})
            port = str(free_port())
            page.start("kubectl port-forward", "Forwarding from", **{"8265:8265": f"{port}:8265"})
            page.type("curl -s localhost:8265", "ray_version", **{"localhost:8265": f"localhost:{port}"})
    finally:
        reader.close()


def test_ray_scales_a_group_to_its_maximum_and_back(guide: Guide) -> None:
    manifest = sample("auto", "raycluster-autoscaler.yaml")
    # The workers are still there when `ray status` is typed.
    manifest["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] = 40
    group(manifest)["maxReplicas"] = 4
    guide.kubectl("apply", "-f", "-", given=manifest)
    guide.type("kubectl wait --for=condition=HeadPodReady raycluster/auto --timeout=5m")
    guide.type(f"kubectl exec auto-head-aaaaa -c ray-head -- python -c '{EIGHT_TASKS}'")
    guide.shows("kubectl exec auto-head-")
    guide.shows("kubectl logs auto-head-")


def test_a_failed_worker_is_replaced(guide: Guide) -> None:
    manifest = sample("sample")
    group(manifest)["template"]["spec"]["restartPolicy"] = "Never"
    guide.kubectl("apply", "-f", "-", given=manifest)
    guide.does("kubectl wait --for=condition=RayClusterProvisioned raycluster/sample")
    guide.type("kubectl exec sample-cpu-worker-aaaaa -- pkill -f 'ray start'")
    guide.shows("kubectl get pods", is_ordered=False)
    guide.shows("kubectl get events", is_ordered=False)


def test_a_condition_has_the_reason_for_missing_workers(guide: Guide) -> None:
    manifest = sample("big")
    worker_container(manifest)["resources"] = {"requests": {"cpu": "1k"}, "limits": {"cpu": "1k"}}
    guide.kubectl("apply", "-f", "-", given=manifest)
    guide.shows("kubectl get raycluster big")


def test_faults_are_rejected_with_the_sentences_of_the_guide(guide: Guide) -> None:
    text = (ROOT / "docs" / "user-guide.md").read_text()
    shown = text.partition("## Rejected specs")[2].partition("```console\n")[2].partition("```")[0].splitlines()
    typo, bounds, twice, empty = (sample(name) for name in ("typo", "minmax", "dup", "nocont"))
    worker_container(typo)["imagee"] = "ray"
    group(bounds)["minReplicas"] = 6
    twice["spec"]["workerGroupSpecs"].append(copy.deepcopy(group(twice)))
    group(empty)["template"]["spec"]["containers"] = []
    for manifest, sentence in zip((typo, bounds, twice, empty), shown, strict=True):
        output = guide.kubectl("apply", "-f", "-", given=manifest, exit_code=1)
        assert any(not differs(Example("apply", (sentence,)), line) for line in output.splitlines()), output


def test_the_operator_prints_its_version_missing_permissions_and_readiness(
    guide: Guide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide.does("raytide --version")
    guide.does("raytide operator --qps 5")
    with urllib.request.urlopen(f"http://{guide.operator.health}/readyz", timeout=5 * PATIENCE) as answer:
        assert not (difference := differs(guide.example("curl"), answer.read().decode())), difference
    monkeypatch.setitem(guide.kubectl.env, "HOME", str(tmp_path))
    without = guide.example("raytide operator", nth=1)
    printed = guide.type(f"unset KUBECONFIG; {without.command}")
    assert not (difference := differs(without, printed)), difference
