"""A real control plane for tests marked `kube`: one per session, started here or named by the environment.

`RAYTIDE_TEST_KUBECONFIG` names a cluster that runs already; otherwise etcd, kube-apiserver, kube-controller-manager and
kube-scheduler are started, with an audit log, from KUBEBUILDER_ASSETS or from what `make tools` built. Each test
makes a namespace of its own and does not wait for it to be gone: that takes five seconds and more.
"""

import http.client
import json
import os
import secrets
import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from raytide_sandbox.certificates import Identity
from raytide_sandbox.controlplane.processes import ControlPlane, ControlPlaneError, PlaneSettings, find_binary
from support.deadlines import PATIENCE

Json = dict[str, Any]

KUBECONFIG_VARIABLE = "RAYTIDE_TEST_KUBECONFIG"
WORKLOADS = (("/apis/ray.io/v1", "rayclusters"), ("/apis/paddlepaddle.org/v1", "trainingjobs"), ("/api/v1", "pods"))
CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}


@dataclass(frozen=True)
class KubePlane:
    """A running cluster, and who its administrator is."""

    server: str
    authority: bytes
    admin_token: str
    """Empty if the administrator has a certificate only."""
    kubeconfig: Path
    audit_log: Path | None
    directory: Path | None
    identity: Identity | None = None
    control: ControlPlane | None = None
    """None for an existing cluster."""
    made: list[str] = field(default_factory=list)
    """Namespaces of the file of tests that runs now."""

    def request_json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "",
        token: str | None = None,
        timeout_s: float = 30.0,
    ) -> tuple[int, Any]:
        """Status and decoded answer, as the administrator or the user of `token`; patches are merge patches by default."""
        headers = {"Content-Type": content_type or CONTENT_TYPES.get(method, "application/json")}
        if token or (token is None and self.identity is None):
            headers["Authorization"] = f"Bearer {token or self.admin_token}"
        address = urlsplit(self.server)
        context = self._context(is_admin=token is None)
        client = http.client.HTTPSConnection(address.hostname, address.port, timeout=timeout_s, context=context)
        try:
            client.request(method, path, None if body is None else json.dumps(body), headers)
            answer = client.getresponse()
            content = answer.read()
        finally:
            client.close()
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, content.decode()

    def _context(self, *, is_admin: bool) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.decode())
        if self.identity is not None and is_admin:
            self.identity.load_into(context)
        return context

    def create(self, path: str, body: Json) -> Json:
        """POST that has to succeed."""
        status, answer = self.request_json("POST", path, body)
        assert status == 201, answer
        return answer

    def new_namespace(self, prefix: str = "test") -> str:
        """A namespace that no other test has, pods admitted."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.made.append(name)
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(lambda: self.request_json("GET", account)[0] == 200, f"{name} has its service account")
        return name

    def leave(self, namespace: str) -> None:
        """Delete what takes capacity of nodes, or would be planned; a cluster of ours is gone soon, namespaces and all."""
        if self.control is None:
            self.request_json("DELETE", f"/api/v1/namespaces/{namespace}")
            return
        for version, plural in WORKLOADS:
            self.request_json("DELETE", f"{version}/namespaces/{namespace}/{plural}", {"gracePeriodSeconds": 0})

    def leave_made(self) -> None:
        """Leave all namespaces of a file of tests that has ended."""
        while self.made:
            self.leave(self.made.pop())

    def token_of_role(self, namespace: str, rules: list[Json], works_at: str) -> str:
        """A token of a new account that has these rules in a namespace; a GET of the path `works_at` is permitted already."""
        core, rbac = f"/api/v1/namespaces/{namespace}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.create(f"{core}/serviceaccounts", {"metadata": {"name": "dev"}})
        self.create(f"{rbac}/roles", {"metadata": {"name": "dev"}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": "dev", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"}
        self.create(f"{rbac}/rolebindings", {"metadata": {"name": "dev"}, "subjects": [subject], "roleRef": role})
        token: str = self.create(f"{core}/serviceaccounts/dev/token", {"spec": {}})["status"]["token"]
        eventually(lambda: self.request_json("GET", works_at, token=token)[0] == 200, "the right has arrived")
        return token

    def audit_events(self) -> list[Json]:
        """All that is in the audit log so far."""
        assert self.audit_log is not None, "this cluster's audit log is not known"
        return [json.loads(line) for line in self.audit_log.read_bytes().split(b"\n")[:-1]]


def eventually(check: Callable[[], Any], what: str, deadline_s: float = 15.0) -> Any:
    """The first true thing that `look` finds."""
    deadline_s *= PATIENCE
    end = time.monotonic() + deadline_s
    while not (found := check()):
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.05)
    return found


def plane_of(control: ControlPlane) -> KubePlane:
    """What tests see of a control plane of ours."""
    return KubePlane(
        server=control.server,
        authority=control.authority,
        admin_token=control.admin_token,
        kubeconfig=control.kubeconfig,
        audit_log=control.audit_log,
        directory=control.directory,
        control=control,
    )


def plane_from_kubeconfig(path: Path) -> KubePlane:
    """A cluster that runs already, as its current context names it."""
    config = yaml.safe_load(path.read_text())
    context = _named(config, "context", config["current-context"])
    cluster, user = _named(config, "cluster", context["cluster"]), _named(config, "user", context["user"])
    identity = None
    if "token" not in user:
        identity = Identity(_pem(user, "client-certificate", path), _pem(user, "client-key", path))
    return KubePlane(
        server=cluster["server"],
        authority=_pem(cluster, "certificate-authority", path),
        admin_token=user.get("token", ""),
        kubeconfig=path.absolute(),
        audit_log=None,
        directory=None,
        identity=identity,
    )


def _named(config: Json, kind: str, name: str) -> Json:
    return next(entry[kind] for entry in config[f"{kind}s"] if entry["name"] == name)


def _pem(entry: Json, name: str, kubeconfig: Path) -> bytes:
    inline = entry.get(f"{name}-data")
    return b64decode(inline) if inline else (kubeconfig.parent / entry[name]).read_bytes()


RUNNING = pytest.StashKey[KubePlane]()
"""The session's control plane, once a test has asked for it."""


def find_plane_binary(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the control plane is, or one line that fails the test."""
    try:
        return find_binary(environ)
    except ControlPlaneError as error:
        missing = str(error)
    pytest.fail(f"{missing}, or {KUBECONFIG_VARIABLE} to a kubeconfig of a test cluster", pytrace=False)


@pytest.fixture(scope="session")
def kube_plane(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[KubePlane]:
    """The session's control plane; tests that kill components or read all of the audit log start their own."""
    if named := os.environ.get(KUBECONFIG_VARIABLE):
        pytestconfig.stash[RUNNING] = plane_from_kubeconfig(Path(named))
        yield pytestconfig.stash[RUNNING]
        return
    settings = PlaneSettings(has_audit=True, is_durable=False, gogc=400)
    with ControlPlane(tmp_path_factory.mktemp("kube-plane"), find_plane_binary(), settings) as control:
        pytestconfig.stash[RUNNING] = plane_of(control)
        yield pytestconfig.stash[RUNNING]
