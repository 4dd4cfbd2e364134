"""A kind cluster for the end-to-end suite: created, loaded with images and deleted by the program kind.

Input: a `Docker` (kind_docker.py) and a folder for the files of the cluster. Images are loaded from docker-archives, without a
registry. If the nodes are of the image of kind_image.py, the routes between their pods are set here. Errors are KindError. Called by
tools/checks/e2e.py.
"""

import json
import shutil
import subprocess
import time
from pathlib import Path

import yaml

import kind_config
from kind_config import KIND_YAML
from kind_docker import Docker, KindError
from raytide_sandbox.controlplane.files import AUDIT_POLICY

NAME = "raytide-e2e"
AUDIT_FOLDER = Path("/var/log/raytide-audit")
"""Folder of the audit log in the root of a daemon of its own."""
CREATE_S = 600.0
READY_S = 180.0
_POLL_S = 0.5


class KindCluster:
    """A cluster with the nodes in e2e/kind.yaml."""

    def __init__(self, docker: Docker, folder: Path, kubectl: Path) -> None:
        self._docker = docker
        self._folder = folder
        self._kubectl = kubectl
        self._audit = docker.root / AUDIT_FOLDER.relative_to("/") if docker.own else folder / "audit"

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator; its server is on loopback in the network of the daemon."""
        return self._folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """Audit log of the API server."""
        return self._audit / "audit.log"

    def create(self) -> str:
        """Create the cluster and wait until its nodes are Ready; returns the duration of each part. Raises KindError."""
        started = time.monotonic()
        self._write_files()
        if self._docker.own is None:
            self.delete()  # of a killed run
        image = ("--image", self._docker.node_image)
        files = ("--config", self._folder / "kind.yaml", "--kubeconfig", self.kubeconfig)
        self._must(
            self._docker.kind, "create", "cluster", "--name", NAME, *image, *files, "--retain", deadline_s=CREATE_S
        )
        created = time.monotonic()
        if self._docker.own is not None:
            self._connect_pods()
        self._kubectl_must("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={READY_S:.0f}s")
        dns = ("rollout", "status", "deployment/coredns", "--namespace=kube-system", f"--timeout={READY_S:.0f}s")
        self._kubectl_must(*dns)
        return f"kind create {created - started:.1f} s, nodes and DNS Ready {time.monotonic() - created:.1f} s"

    def load(self, archive: Path) -> str:
        """Load the image of a docker-archive to all nodes; returns the duration. Raises KindError."""
        started = time.monotonic()
        self._must(self._docker.kind, "load", "image-archive", archive, "--name", NAME)
        return f"{archive.name} {time.monotonic() - started:.1f} s"

    def load_from_docker(self, image: str) -> None:
        """Load an image of Docker to all nodes; without effect if Docker does not have it. Raises KindError."""
        if self._run(self._docker.docker, "image", "inspect", image).returncode == 0:
            self._must(self._docker.kind, "load", "docker-image", image, "--name", NAME)

    def tag(self, image: str, name: str) -> None:
        """Tag an image on all nodes; raises KindError."""
        for node in self._must(self._docker.kind, "get", "nodes", "--name", NAME).split():
            words = ("ctr", "--namespace=k8s.io", "images", "tag", "--force", image, name)
            self._must(self._docker.docker, "exec", node, *words)

    def delete(self) -> None:
        """Delete the cluster if it exists; raises KindError."""
        self._must(self._docker.kind, "delete", "cluster", "--name", NAME, "--kubeconfig", self.kubeconfig)

    def export_logs(self) -> None:
        """Write the logs of the nodes to the folder of the cluster, and print its path."""
        logs = self._folder / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        self._run(self._docker.kind, "export", "logs", logs, "--name", NAME)
        print(f"logs of the nodes: {logs}", flush=True)

    def _write_files(self) -> None:
        for folder in (self._folder, self._audit):
            folder.mkdir(parents=True, exist_ok=True)
        (self._audit / "policy.yaml").write_text(yaml.safe_dump(dict(AUDIT_POLICY)))
        self.audit_log.write_text("")  # created by this user, who can then read what the API server appends
        audit = str(AUDIT_FOLDER if self._docker.own else self._audit)
        made = kind_config.cluster(KIND_YAML.read_text(), audit, self._docker.own)
        (self._folder / "kind.yaml").write_text(yaml.safe_dump(made))

    def _connect_pods(self) -> None:
        """Set the routes between the pods of the nodes when each node has a pod CIDR."""
        deadline = time.monotonic() + READY_S
        while True:
            nodes = json.loads(self._kubectl_must("get", "nodes", "--output=json"))["items"]
            try:
                routes = kind_config.routes(nodes)
                break
            except LookupError:
                if time.monotonic() > deadline:
                    raise KindError(f"a node has no pod CIDR after {READY_S:.0f} s") from None
            time.sleep(_POLL_S)
        for route in routes:
            self._must(self._docker.docker, "exec", route.node, *route.command)

    def _kubectl_must(self, *words: str) -> str:
        return self._must(self._kubectl, f"--kubeconfig={self.kubeconfig}", *words, deadline_s=READY_S + 10)

    def _must(self, *words: str | Path, deadline_s: float = READY_S) -> str:
        """Run a program that reaches the daemon and return its output; raises KindError if it fails."""
        done = self._run(*words, deadline_s=deadline_s)
        if done.returncode:
            raise KindError(f"{' '.join(map(str, words))} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def _run(self, *words: str | Path, deadline_s: float = READY_S) -> subprocess.CompletedProcess[str]:
        return self._docker.run(*words, deadline_s=deadline_s)
