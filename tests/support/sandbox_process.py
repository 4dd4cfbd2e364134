"""A real `raytide sandbox` for tests, used only through its command line and its API.

Everything waits for a state with a deadline; what a test starts is gone when its fixture ends, whatever happened.
"""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from support.deadlines import PATIENCE

Json = dict[str, Any]
Found = TypeVar("Found")


def eventually(check: Callable[[], Found], what: str, deadline_s: float = 10.0) -> Found:
    """The first true thing that `look` finds."""
    deadline_s *= PATIENCE
    end = time.monotonic() + deadline_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


class SandboxProcess:
    """One state directory and whatever runs in it."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rs"))
        self.state_dir = self.directory / "s"

    def call(self, *words: str, deadline_s: float = 100.0) -> subprocess.CompletedProcess[str]:
        """One `raytide sandbox` command."""
        return subprocess.run(
            [sys.executable, "-m", "raytide", "sandbox", *words, "--state-dir", str(self.state_dir)],
            capture_output=True,
            text=True,
            timeout=deadline_s * PATIENCE,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )

    def up(self, *options: str) -> str:
        """Start it; returns its output."""
        done = self.call("up", *options)
        assert done.returncode == 0, done.stdout + done.stderr + self.log()
        return done.stdout + done.stderr

    def log(self) -> str:
        path = self.state_dir / "sandbox.log"
        return path.read_text() if path.exists() else ""

    @property
    def kubeconfig(self) -> Path:
        return self.state_dir / "kubeconfig"

    @property
    def pid(self) -> int:
        return int(json.loads((self.state_dir / "sandbox.json").read_text())["pid"])

    @property
    def server(self) -> str:
        return str(json.loads((self.state_dir / "sandbox.json").read_text())["server"])

    @property
    def scratch(self) -> str:
        """Where pods keep their files while it runs."""
        return str(json.loads((self.state_dir / "sandbox.json").read_text())["scratch"])

    def end(self) -> None:
        """Nothing is left of it."""
        self.call("down")
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- its API -----------------------------------------------------------------------------------------------------
    def api(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> tuple[int, Any]:
        """Status and decoded answer; `token=""` sends none, a list with PATCH is a JSON patch."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
        token = config["users"][0]["user"]["token"] if token is None else token
        kind = "application/json-patch+json" if method == "PATCH" and isinstance(body, list) else "application/json"
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}
        raw = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(cluster["server"] + path, raw, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10 * PATIENCE, context=context) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, content = error.code, error.read()
        try:
            return status, json.loads(content)
        except ValueError:
            return status, content.decode()

    def get(self, path: str) -> Any:
        status, answer = self.api("GET", path)
        assert status == 200, answer
        return answer

    def run_pod(self, name: str, *command: str, labels: Json | None = None, **spec: Any) -> None:
        """Create a pod that runs a command."""
        container = {"name": "main", "image": "busybox", "command": list(command)}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"restartPolicy": "Never", "containers": [container], **spec},
        }
        status, answer = self.api("POST", "/api/v1/namespaces/default/pods", body)
        assert status == 201, answer

    def phase(self, name: str) -> str:
        return str(self.get(f"/api/v1/namespaces/default/pods/{name}").get("status", {}).get("phase", ""))

    def pod_log(self, name: str) -> str:
        _, answer = self.api("GET", f"/api/v1/namespaces/default/pods/{name}/log")
        return answer if isinstance(answer, str) else json.dumps(answer)


# kube-apiserver opens `exec` with an empty frame on the first output stream. kubectl may read the frame before it has registered
# that stream: it logs that it discards it, and loses no output.
DISCARDED_FRAME = re.compile(r'^E.*websocket\.go:\d+\] "?Unknown stream( id 1)?, discarding message.*\n', re.MULTILINE)


class Kubectl:
    """kubectl with the sandbox's kubeconfig."""

    def __init__(self, sandbox: SandboxProcess) -> None:
        self.env = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "KUBECACHEDIR": str(sandbox.directory / "c")}

    def __call__(self, *words: str, given: Any = None, exit_code: int = 0, **env: str) -> str:
        done = subprocess.run(
            ["kubectl", *words],
            input=given if given is None or isinstance(given, str) else yaml.safe_dump(given),
            capture_output=True,
            text=True,
            timeout=30 * PATIENCE,
            check=False,
            env={**self.env, **env},
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout + DISCARDED_FRAME.sub("", done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["kubectl", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env
        )


def processes_with(text: str, where: str = "cmdline") -> list[int]:
    """Living processes with this text in their command line, or in their `environ`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                is_alive = "State:\tZ" not in (entry / "status").read_text()
                if is_alive and text.encode() in (entry / where).read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def can_isolate(mode: str) -> bool:
    """Whether this machine allows the mode at all."""
    if mode == "plain":
        return True
    trial = ["unshare", "-Urnm", "ip", "link", "add", "br9", "type", "bridge"]
    return subprocess.run(trial, capture_output=True, timeout=10 * PATIENCE, check=False).returncode == 0


SANDBOXES = [
    pytest.param(("--isolation=ns",), id="ns"),
    pytest.param(("--isolation=plain",), id="plain"),
    pytest.param(("--isolation=ns", "--api=kubernetes"), id="kubernetes", marks=pytest.mark.kube),
]
"""Options of `up`, as parameters of tests that every sandbox has to pass."""


def running_sandbox(options: tuple[str, ...]) -> Iterator[SandboxProcess]:
    """The body of a fixture: up with these options, and nothing left at the end."""
    if not can_isolate("ns" if "--isolation=ns" in options else "plain"):
        pytest.skip(f"this machine does not allow {options[0]}")
    sandbox = SandboxProcess()
    try:
        sandbox.up(*options)
        yield sandbox
    finally:
        sandbox.end()
