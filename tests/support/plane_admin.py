"""Administrative set-up of a control plane before an operator can run there.

Takes a server, its authority and an admin's token; installs the CRD, makes a service account with the rights of the one
table (raytide/api/rbac_rules.py) and not one more, writes its kubeconfig, and makes fake nodes. Asynchronous, over one
session that also serves a bench's own requests. Used by `make golden` and the benches on a real control plane.
"""

import asyncio
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from raytide.api.config import AutoscalerMode
from raytide.api.rbac_rules import DEFAULT_FEATURES, Feature, Scope, permissions_for
from raytide_sandbox.connections import ClosingConnector
from support.deadlines import PATIENCE

CRD = Path(__file__).parents[2] / "crds" / "ray.io_rayclusters.yaml"
JOB_CRD = CRD.with_name("paddlepaddle.org_trainingjobs.yaml")
APPLY = "application/apply-patch+yaml"
RBAC_VERSION = "rbac.authorization.k8s.io/v1"
RBAC = f"/apis/{RBAC_VERSION}"
WITHIN_S = 60.0 * PATIENCE
FAKE_NODE = {"kwok.x-k8s.io/node": "fake"}

Json = dict[str, Any]


class ApiStatusError(Exception):
    """The API server's answer was a rejection."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class PlaneAdmin:
    """One API server, as an administrator, or as the user of another token."""

    def __init__(self, server: str, authority: bytes, token: str) -> None:
        self.server = server
        self.authority = authority
        self._token = token

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cadata=self.authority.decode())
        self.session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"},
            connector=ClosingConnector(ssl=tls, limit=0),
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.session.close()

    async def call(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Json:
        """One request; raises ApiStatusError for an error response."""
        sent = None if body is None else BytesIO(json.dumps(body).encode())
        headers = {"Content-Type": content}
        async with self.session.request(method, self.server + path, data=sent, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise ApiStatusError(answer.status, f"{method} {path}: {text[:500]}")
            return json.loads(text) if text.startswith("{") else {}

    async def apply(self, path: str, manifest: Json) -> Json:
        """Server-side apply of one object below that collection."""
        query = "?fieldManager=raytide-tests&force=true"
        return await self.call("PATCH", f"{path}/{manifest['metadata']['name']}{query}", manifest, content=APPLY)

    async def install_crd(self, crd: Path = CRD) -> None:
        """That CRD, RayCluster's by default; returns when the API server serves it."""
        manifest = _manifest(crd)
        await self.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest)
        spec = manifest["spec"]
        kind = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        await _eventually(lambda: self._is_served(kind), "the CRD is served")

    async def _is_served(self, path: str) -> bool:
        try:
            await self.call("GET", f"{path}?limit=1")
        except ApiStatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def make_namespaces(self, *names: str) -> None:
        """Namespaces in which pods can be made: each has its default service account."""
        for name in names:
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.apply("/api/v1/namespaces", manifest)
        await _eventually(lambda: self._have_accounts(names), "every namespace has its default service account")

    async def _have_accounts(self, names: Iterable[str]) -> bool:
        accounts = await self.call("GET", "/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault")
        return {item["metadata"]["namespace"] for item in accounts["items"]} >= set(names)

    async def make_fake_nodes(self, count: int, *, cpu: str = "512", memory: str = "4Ti", pods: str = "5000") -> None:
        """Nodes for kwok, with nothing on them but cores and memory; returns when they take pods."""
        amounts = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "4Ti"}
        for number in range(count):
            name = f"fake-{number}"
            metadata = {"name": name, "annotations": FAKE_NODE, "labels": {"kubernetes.io/hostname": name}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            node["status"] = {"capacity": amounts, "allocatable": amounts}
            await self.call("POST", "/api/v1/nodes", node)
        await _eventually(self._do_nodes_take_pods, "every node is Ready")

    async def _do_nodes_take_pods(self) -> bool:
        return all(map(_takes_pods, (await self.call("GET", "/api/v1/nodes"))["items"]))

    async def operator_account(
        self,
        namespace: str,
        folder: Path,
        name: str = "raytide-operator",
        mode: AutoscalerMode = "raytide",
        features: Collection[Feature] = DEFAULT_FEATURES,
    ) -> Path:
        """A service account with the operator's rights where that autoscaler is the rule; returns its kubeconfig."""
        everywhere = _rules(mode, Scope.WATCHED, Scope.CLUSTER, features=features)
        at_home = _rules(mode, Scope.OWN)
        for path, kind, rules in (("", "ClusterRole", everywhere), (f"/namespaces/{namespace}", "Role", at_home)):
            role = {"apiVersion": RBAC_VERSION, "kind": kind, "metadata": {"name": name}, "rules": rules}
            await self.apply(f"{RBAC}{path}/{kind.lower()}s", role)
            await self._bind(f"{RBAC}{path}", kind, name, namespace, name)
        return await self._account(namespace, folder, name)

    async def namespaced_account(self, namespace: str, folder: Path, name: str, watched: Iterable[str]) -> Path:
        """The same with the chart's `watchNamespaces`: a Role in each of them, and a ClusterRole for nodes alone."""
        rules = _rules("raytide", Scope.WATCHED)
        roles = [(f"/namespaces/{each}", "Role", rules) for each in watched]
        roles += [("", "ClusterRole", _rules("raytide", Scope.CLUSTER, Scope.EVERYWHERE))]
        roles += [(f"/namespaces/{namespace}", "Role", _rules("raytide", Scope.OWN))]
        for path, kind, given in roles:
            role = {"apiVersion": RBAC_VERSION, "kind": kind, "metadata": {"name": name}, "rules": given}
            await self.apply(f"{RBAC}{path}/{kind.lower()}s", role)
            await self._bind(f"{RBAC}{path}", kind, name, namespace, name)
        return await self._account(namespace, folder, name)

    async def powerful_account(self, namespace: str, folder: Path, name: str) -> Path:
        """A service account that may do everything, and yet is not exempt from priority and fairness."""
        await self._bind(RBAC, "ClusterRole", "cluster-admin", namespace, name)
        return await self._account(namespace, folder, name)

    async def _bind(self, path: str, kind: str, role: str, namespace: str, name: str) -> None:
        binding = {
            "apiVersion": RBAC_VERSION,
            "kind": f"{kind}Binding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        await self.apply(f"{path}/{kind.lower()}bindings", binding)

    async def _account(self, namespace: str, folder: Path, name: str) -> Path:
        own = f"/namespaces/{namespace}"
        manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await self.apply(f"/api/v1{own}/serviceaccounts", manifest)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        request["spec"] = {"expirationSeconds": 24 * 3600}
        answer = await self.call("POST", f"/api/v1{own}/serviceaccounts/{name}/token", request)
        return self.write_kubeconfig(folder / f"{name}.kubeconfig", answer["status"]["token"], namespace)

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> Path:
        """For the user of that token."""
        cluster = {"server": self.server, "certificate-authority-data": b64encode(self.authority).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "plane",
            "clusters": [{"name": "plane", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [
                {"name": "plane", "context": {"cluster": "plane", "user": "user", "namespace": namespace}},
            ],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path


async def _eventually(check: Callable[[], Awaitable[bool]], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not await check():
        assert time.monotonic() < end, f"not within {WITHIN_S:g} s: {what}"
        await asyncio.sleep(0.1)


def _manifest(file: Path) -> Json:
    manifest: Json = yaml.safe_load(file.read_text())
    return manifest


def _takes_pods(node: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _rules(mode: AutoscalerMode, *scopes: Scope, features: Collection[Feature] = DEFAULT_FEATURES) -> list[Json]:
    return [
        {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": list(permission.verbs)}
        for permission in permissions_for(mode, features=features)
        if permission.scope in scopes
    ]


def token_of(kubeconfig: Path) -> str:
    """The token in a kubeconfig written here."""
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token
