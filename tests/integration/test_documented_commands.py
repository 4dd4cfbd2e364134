"""The commands of the documentation, typed as they stand there, on a sandbox with the operator.

`documented_commands.SESSIONS` has the commands of each test, and a test fails if it leaves one out. Most of them only have to end
with the expected exit code; outputs are compared by test_user_guide.py and by the tests of the pages. The pods do not run Ray: the
image of the RayClusters does not exist, so that their heads have a running autoscaler and everything else has something to explain.
The kill commands of the pages need process namespaces.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.documented_commands import session
from support.kuberay import crds_without_schema
from support.ports import free_port
from support.sandbox_process import can_isolate, eventually
from support.terminal import Page, Terminal, environment

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
    pytest.mark.skipif(not can_isolate("ns"), reason="this machine does not allow process namespaces"),
]
ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = (0, 3, 4)
"""Exit codes of `raytide why`."""
FOUND_OR_NOT = (0, 1)
"""Exit codes of grep."""
PROGRAM = "import time; print({!r}, flush=True); time.sleep(3600)\n"


def raycluster(name: str, namespace: str = "default") -> str:
    """A RayCluster whose Ray never starts, with Raytide's autoscaler."""
    group = {"image": "registry.example.com/missing:1", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "rayVersion": "2.60.0",
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}},
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [{"name": "ray-head", **group}]}},
            },
            "workerGroupSpecs": [
                {
                    "groupName": "cpu",
                    "replicas": 1,
                    "minReplicas": 1,
                    "maxReplicas": 2,
                    "rayStartParams": {},
                    "template": {"spec": {"containers": [{"name": "ray-worker", **group}]}},
                }
            ],
        },
    }
    return yaml.safe_dump(manifest)


def pod(name: str, script: str, labels: dict[str, str] | None = None, where: str = "default", **spec: object) -> str:
    """A pod that runs a script."""
    container = {"name": "main", "image": "python:3.11", "command": ["sh", "-c", script]}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": where, "labels": labels or {}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }
    return yaml.safe_dump(manifest)


def trainingjob(name: str, namespace: str = "default") -> str:
    """The first job of docs/trainingjob.md under another name, with fewer trainers."""
    manifest = yaml.safe_load(files_of("docs/trainingjob.md")[0])
    manifest["metadata"] = {"name": name, "namespace": namespace}
    manifest["spec"]["trainer"]["max-instance"] = 2
    return yaml.safe_dump(manifest)


def files_of(page: str) -> list[str]:
    """The YAML blocks of a page."""
    return re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


class Reader(Terminal):
    """A reader of the documentation, with a checkout whose sample needs no PaddlePaddle."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="rd"))
        variables = {
            "RAYTIDE_SANDBOX_DIR": str(folder / "s"),
            "RAYTIDE_METRICS_BIND_ADDRESS": "0",
            "RAYTIDE_METRICS_ADDR": "0",
            "RAYTIDE_HEALTH_PROBE_BIND_ADDRESS": f"127.0.0.1:{free_port()}",
        }
        super().__init__(folder, {**environment(folder, Path(sys.executable).parent), **variables})
        for name in ("crds", "tools", ".venv"):
            (folder / name).symlink_to(Path(sys.prefix) if name == ".venv" else ROOT / name)
        shutil.copytree(ROOT / "samples", folder / "samples")
        job, programs = yaml.safe_load_all((ROOT / "samples/trainingjob.yaml").read_text())
        lines = {"train.py": "pass 0 task 13 loss 2.0107", "master.py": "60 tasks, 5 passes, from the start"}
        programs["data"] = {name: PROGRAM.format(line) for name, line in lines.items()}
        job["spec"]["trainer"]["resources"] = job["spec"]["pserver"]["resources"] = job["spec"]["master"]["resources"]
        (folder / "samples/trainingjob.yaml").write_text(yaml.safe_dump_all([job, programs]))

    def kubectl(self, words: str, given: str = "") -> str:
        """A kubectl command of the test itself."""
        stdin = f" <<'END'\n{given}\nEND" if given else ""
        code, output = self.run(f"kubectl {words}{stdin}")
        assert code == 0, output
        return output

    def apply(self, *manifests: str) -> None:
        """Create or change objects."""
        self.kubectl("apply -f -", "\n---\n".join(manifests))

    def typing(self, page: str, **names: str):
        """The commands of this session on the page."""
        return self.page(session("sandbox", page), **names)

    def end(self) -> None:
        """Nothing is left."""
        self.close()
        self.run("raytide sandbox down")
        shutil.rmtree(self.folder, ignore_errors=True)


# --- the README and the page of the sandbox ----------------------------------------------------------------------------------


def test_the_readme_and_the_page_of_the_sandbox():
    reader = Reader()
    try:
        with reader.typing("README.md") as readme, reader.typing("docs/sandbox.md") as page:
            begin(reader, readme)
            show(reader, page)
            kill(reader, page)
            readme.type("raytide sandbox down", "The sandbox is down")
    finally:
        reader.end()


def begin(reader: Reader, page: Page) -> None:
    """From a clone to a RayCluster, and what the README shows of it."""
    page.type("git clone", **{"<this repository>": a_repository(reader)})
    page.type("make demo DOWN=1", "No demo is running", folder=ROOT)
    page.type("export PATH=")
    page.type("raytide sandbox up", "The sandbox is up")
    page.type("export KUBECONFIG=$(")
    page.start("raytide operator", "starting to reconcile")
    reader.apply(raycluster("autoscaled"))
    page.start("kubectl get raycluster -w", "autoscaled")
    reader.interrupt()
    page.type("kubectl get all", "autoscaled-head-svc")
    page.type("kubectl describe raycluster autoscaled", "CreatedHeadPod")
    head = eventually(lambda: reader.kubectl("get pods -l ray.io/node-type=head -o name").strip(), "there is a head")
    page.type("kubectl logs <head pod> -c autoscaler", **{"<head pod>": head})
    page.type("export KUBECONFIG=…", **{"…": reader.env["KUBECONFIG"]})


def a_repository(reader: Reader) -> str:
    """A git repository in place of the one on the web."""
    reader.run(
        "git init -q origin && cd origin && git -c user.name=a -c user.email=a@example.com commit -qm a --allow-empty"
    )
    return str(reader.folder / "origin")


def show(reader: Reader, page: Page) -> None:
    """Pods and services of the sandbox."""
    box = pod("box", "sleep 3600")
    web = pod("web", "exec python3 -m http.server 8000", labels={"app": "web"})
    operator = pod(
        "raytide-0", "sleep 3600", labels={"app": "raytide"}, securityContext={"runAsUser": 65532, "runAsGroup": 65532}
    )
    reader.apply(box, web, operator, SERVICE, DEPLOYMENT)
    reader.kubectl("wait --for=condition=Ready pod/box pod/web pod/raytide-0 --timeout=50s")
    node_port = reader.kubectl("get svc web -o jsonpath={.spec.ports[0].nodePort}")
    page.type("kubectl get nodes", "sandbox-3")
    page.type("raytide sandbox status", "isolation")
    page.type("kubectl run t ")
    page.type("kubectl describe pod t", 'no local command environment stands for the image "nothere"')
    page.type("kubectl exec box -- ls /", "etc")
    page.type("kubectl cp box:")
    assert "box" in (reader.folder / "hosts").read_text()
    page.type("kubectl exec deploy/raytide", "uid=65532")
    page.type("kubectl exec box -- python3", "10.88.")
    page.type("kubectl get svc web", "NodePort")
    page.type("curl -s -o /dev/null", "200", **{"30001": node_port})
    page.type("kubectl debug box", "does not implement pods/ephemeralcontainers", codes=(1,))


def kill(reader: Reader, page: Page) -> None:
    """The sandbox is killed, and the next one removes what is left of it."""
    found = json.loads((reader.folder / "s/sandbox.json").read_text())
    page.type("kill -9 ", **{"11729": str(found["pid"])})
    reader.run("raytide sandbox up")


SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 8000}]}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: raytide}
spec:
  selector: {matchLabels: {app: raytide}}
  template: {metadata: {labels: {app: raytide}}, spec: {containers: [{name: main, image: raytide}]}}
"""


# --- the other pages, on one sandbox -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """With the sandbox of docs/training.md, and the operator."""
    reader = Reader()
    (reader.folder / "paddle/bin").mkdir(parents=True)
    (reader.folder / "paddle/bin/python").symlink_to(sys.executable)
    try:
        yield reader
    finally:
        reader.end()


def test_an_elastic_training(reader):
    with reader.typing("docs/training.md") as page:
        image = "$(.venv/bin/python tools/builders/paddle_env.py)"
        page.type("raytide sandbox up", "The sandbox is up", **{image: str(reader.folder / "paddle")})
        reader.run("export KUBECONFIG=$(raytide sandbox kubeconfig --path)")
        reader.start("raytide operator &")
        page.type("kubectl apply -f samples/trainingjob.yaml", "trainingjob.paddlepaddle.org/training created")
        page.type("kubectl get trainingjobs", "Running")
        page.type("kubectl logs training-trainer-3", "pass 0 task 13")
        page.type("kubectl scale trainingjob/training", "scaled")
        page.type("kubectl exec training-trainer-1", codes=(0, 137))  # its own shell has the name of the program, too
        page.type("kubectl exec training-master")
        page.type("kubectl logs training-master", "Killed")
        page.type("kubectl describe trainingjob training", "10→4 requested in spec.trainer.replicas")
    reader.kubectl("delete tj --all --wait=false")


def test_two_jobs_share_a_cluster(reader):
    first = files_of("docs/trainingjob.md")[0]
    (reader.folder / "first.yaml").write_text(first)
    (reader.folder / "second.yaml").write_text(first.replace("name: first", "name: second"))
    reader.apply(namespace("nlp"), namespace("vision"))
    with reader.typing("docs/trainingjob.md") as page:
        page.type("kubectl apply -f first.yaml", "first created")
        page.type("kubectl get tj,pods", "first-trainer-0")
        page.type("kubectl apply -f second.yaml", "second created")
        page.type("kubectl get tj", "second")
        page.type("kubectl describe tj first | tail", "ScaledUp")
        page.type("raytide why second", "TrainingJob default/second")
        page.type("kubectl label namespace nlp vision", "namespace/vision labeled")
    reader.kubectl("delete tj --all --wait=false")


def test_a_plan_of_the_cluster(reader):
    reader.apply(namespace("vision"), trainingjob("resnet", "vision"))
    (reader.folder / "new.yaml").write_text(files_of("docs/plan.md")[1])
    with reader.typing("docs/plan.md") as page:
        page.type("kubectl get nodes,pods,trainingjobs")
        assert "resnet" in (reader.folder / "cluster.yaml").read_text()
        page.type("raytide plan --submit", "gpt")
        page.rest()


def test_explanations(reader):
    of_team = (raycluster(name, "team-a") for name in ("demo", "autoscaled", "stuck"))
    reader.apply(namespace("team-a"), *(raycluster(name) for name in ("demo", "big")), *of_team)
    reader.apply(trainingjob("resnet"))
    eventually(
        lambda: "status" in reader.kubectl("get raycluster demo -n team-a -o json"), "the operator has seen it", 60
    )
    with reader.typing("docs/why.md") as page:
        if shutil.which("jq"):  # which nothing else here needs
            page.type("raytide why demo -o json | jq", "ImagePullFailed")
        else:
            page.left = [command for command in page.left if "jq" not in command.text]
        page.rest(codes=EXPLAINED)
    with reader.typing("docs/diagnose.md") as page:
        page.rest()
    assert (reader.folder / "demo.tar.gz").exists()
    with reader.typing("docs/ui.md") as page:
        page.start("raytide ui -A", "Ctrl-C ends it", " --port 0")
        reader.interrupt()
        reader.kubectl("create serviceaccount dev -n team-a")
        page.type("kubectl create token dev")
        reader.apply(namespace("raytide"), pod("ui", "sleep 3600", {"app": "ui"}, where="raytide"), UI)
        reader.kubectl("wait --for=condition=Ready pod/ui -n raytide --timeout=50s")
        page.start("kubectl -n raytide port-forward", "Forwarding from", **{" 8250": f" {free_port()}:8250"})
        reader.interrupt()


def test_the_guide(reader):
    reader.apply(raycluster("big"))
    with reader.typing("docs/user-guide.md") as page:
        page.type("kubectl apply -f crds/", "rayclusters.ray.io")
        page.type("raytide why big", "default/big", codes=EXPLAINED)
        page.type('eval "$(_RAYTIDE_COMPLETE=bash')
        # The half of the other shells is a function of bash: what raytide prints for them is not empty.
        page.type('eval "$(_RAYTIDE_COMPLETE=zsh', "compdef", **{"eval ": "printf %s "})
        page.type("_RAYTIDE_COMPLETE=fish", "complete", **{"| source": "| cat"})
        script = page.left.pop()
        (reader.folder / "kubectl_complete-raytide").write_text(script.text + "\n")
    code, output = reader.run("sh kubectl_complete-raytide w")
    assert (code, output.splitlines()) == (0, ["why", ":4"])


def test_runbooks(reader):
    lines = "level=WARNING lease watch kopf reconcile interrupted"
    serve = f"echo '{lines}'; mkdir /tmp/w && cd /tmp/w && echo ok >readyz && exec python3 -m http.server 8082"
    reader.apply(
        namespace("ops"),
        pod("raytide-1", serve, {"app.kubernetes.io/name": "raytide", "app": "raytide"}, where="ops"),
        DEPLOYMENT.replace("{name: raytide}", "{name: raytide, namespace: ops}", 1),
        LEASE,
        raycluster("same"),
        trainingjob("same"),
    )
    reader.kubectl("wait --for=condition=Ready pod/raytide-1 -n ops --timeout=50s")
    eventually(lambda: "status" in reader.kubectl("get raycluster same -o json"), "the operator has seen it", 60)
    names = {"NAMESPACE:SERVICEACCOUNT": "default:same", "NAMESPACE": "default", "OPERATOR": "ops", "NAME": "same"}
    with reader.typing("docs/runbooks.md", **names) as page:
        port = str(free_port())
        page.start("kubectl port-forward", "Forwarding from", **{"deploy/raytide 8082": f"deploy/raytide {port}:8082"})
        page.type("curl -s localhost:8082/readyz", "ok", **{"8082": port})
        reader.interrupt()
        page.type("raytide why raycluster/", codes=EXPLAINED)
        page.type("raytide why tj/", codes=EXPLAINED)
        page.rest()


def test_moving_from_kuberay(reader):
    kinds = [yaml.safe_dump(crd) for crd in crds_without_schema()]
    reader.apply(*kinds, namespace("moved"), raycluster("old", "moved"))
    head = "get pods -n moved -l ray.io/cluster=old,ray.io/node-type=head -o name"
    before = eventually(lambda: reader.kubectl(head).strip(), "there is a head", 60)
    with reader.typing("docs/migrating.md", NAMESPACE="moved", NAME="old") as page:
        page.type("kubectl get rayclusters,rayjobs", "raycluster.ray.io/old")
        page.type("kubectl get rayclusters -A -o yaml")
        assert "name: old" in (reader.folder / "rayclusters.yaml").read_text()
        page.type("kubectl get pods -A -l ray.io/is-ray-node")
        page.type("grep -nE '(enableIngress", codes=FOUND_OR_NOT)
        page.type("grep -nE '(ray.io", codes=FOUND_OR_NOT)
        page.type("kubectl apply --server-side", "rayclusters.ray.io serverside-applied")
        page.type("kubectl get pods -A -l ray.io/is-ray-node")
        page.type("diff ", codes=FOUND_OR_NOT)
        assert before.removeprefix("pod/") in (reader.folder / "pods-after.txt").read_text()
        page.type("kubectl get rayclusters -A", "READY WORKERS")
        page.type("kubectl get rayclusters -A -o custom", "WorkersMissing")
        page.type("kubectl get events -A", "CreatedHeadPod")
        page.type("raytide top -A --once", "old")
        page.type("raytide why raycluster/", "moved/old", codes=EXPLAINED)
        page.type("kubectl get pods -A -l ray.io/node-type=head", "raytide-")
        page.type("kubectl delete pod", "deleted")
    eventually(lambda: reader.kubectl(head).strip() not in ("", before), "there is another head", 60)
    eventually(lambda: "HeadPodLost" in reader.kubectl("get events -n moved"), "the loss of the head is recorded", 60)


UI = """
apiVersion: v1
kind: Service
metadata: {name: raytide-ui, namespace: raytide}
spec: {selector: {app: ui}, ports: [{port: 8250}]}
"""
LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: ray-operator-leader, namespace: ops}
spec: {holderIdentity: raytide-1}
"""


def namespace(name: str) -> str:
    """A namespace."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


# --- a real control plane ----------------------------------------------------------------------------------------------------


@pytest.mark.kube
def test_the_sandbox_on_a_real_control_plane():
    reader = Reader()
    reader.env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(
        Path.home() / ".cache"
    )  # has the control plane
    try:
        with reader.page(session("kubernetes", "docs/sandbox.md")) as page:
            page.type("raytide sandbox up --api kubernetes", "Audit log: ")
            reader.run("export KUBECONFIG=$(raytide sandbox kubeconfig --path)")
            page.type("kubectl create deployment web", "deployment.apps/web created")
            page.type("kubectl get pods", "web-")
        with reader.page(session("kubernetes", "docs/runbooks.md")) as page:
            page.rest(codes=FOUND_OR_NOT)
    finally:
        reader.end()
