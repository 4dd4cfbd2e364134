"""Set-up and clean-up for every scenario of this folder.

A namespace of its own on the control plane, a fleet with its kubelet, accounts for operators, fault proxies, and the audit
log as far as it is this namespace's. Background work that breaks fails the scenario at its end. Made by conftest.py.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from acceptance.audit import Seen, Step, read
from acceptance.fleet import Fleet, Pods, TinyKubelet, allowing, eventually
from integration.embedded_cluster import Operator
from support.faults.proxy import FaultProxy
from support.faults.script import Script
from support.faults.upstream import Upstream
from support.plane_admin import PlaneAdmin, token_of
from support.run_report import FIGURE

TAIL_BYTES = 1_000_000
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io"
SYSTEM = "raytide-system"
"""Where operators live: their accounts and their lease."""


class Plane(Protocol):
    """A running control plane."""

    server: str
    authority: bytes
    admin_token: str
    audit_log: Path


@dataclass(frozen=True, slots=True)
class Account:
    """A service account that an operator can use."""

    token: str
    user: str
    """What the audit log calls it."""


class Env:
    """One scenario's place."""

    def __init__(
        self,
        plane: Plane,
        admin: PlaneAdmin,
        folder: Path,
        record: Callable[[str, object], None],
        *,
        is_namespaced: bool = False,
    ) -> None:
        """`is_namespaced`: operators watch the scenario's namespace alone, with Roles there, as `watchNamespaces` has it."""
        self.is_namespaced = is_namespaced
        self.plane = plane
        self.admin = admin
        self.folder = folder
        self._record = record
        self.namespace = f"acceptance-{uuid4().hex[:8]}"
        self.lag_s = 0.0
        self.pods = Pods(admin, self.namespace)
        self.kubelet = TinyKubelet(admin, self.pods)
        self.fleet = Fleet(admin, self.namespace, self.pods)
        self._tasks: list[asyncio.Task[Any]] = []
        self._proxies: list[FaultProxy] = []
        self._operators: list[Operator] = []

    async def begin(self) -> None:
        """From nothing to a fleet without clusters."""
        if await allowing([404], self.admin.call("GET", DEFINITION)) is None:  # validating it again takes seconds
            await self.admin.install_crd()
        await self.admin.make_namespaces(SYSTEM, self.namespace)
        self.run(self.kubelet.run())

    async def end(self) -> None:
        """Take it down; whatever broke in the background breaks the test."""
        broken = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for number, operator in enumerate(self._operators):
            (self.folder / f"operator-{number}.log").write_text(operator.log)  # kept by pytest when the scenario fails
            if operator.process is not None and operator.process.returncode is None:
                await operator.kill()
        for proxy in self._proxies:
            await proxy.stop()
        await allowing([404, 409], self.admin.call("DELETE", f"/api/v1/namespaces/{self.namespace}"))
        for error in filter(None, broken):
            raise error

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """In the background until the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def account(self, name: str) -> Account:
        """With the operator's rights and no other."""
        if self.is_namespaced:
            made = await self.admin.namespaced_account(SYSTEM, self.folder, f"{name}-only", self.watched)
            return Account(token_of(made), f"system:serviceaccount:{SYSTEM}:{name}-only")
        token = token_of(await self.admin.operator_account(SYSTEM, self.folder, name))
        return Account(token, f"system:serviceaccount:{SYSTEM}:{name}")

    async def operator(self, kubeconfig: Path, *flags: str, **environ: str) -> Operator:
        """A process of the operator; ended with the scenario at the latest."""
        if self.is_namespaced:
            flags = (*flags, "--watch-namespace", ",".join(self.watched))
        operator = await Operator(*flags, is_forked=False).start(kubeconfig, **environ)
        self._operators.append(operator)
        return operator

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Those that were started."""
        return tuple(self._operators)

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces that operators look at where they do not look at all."""
        return (self.namespace,)

    def direct_kubeconfig(self, account: Account) -> Path:
        """For that account, past any proxy."""
        return self.admin.write_kubeconfig(self.folder / f"{account.token[-8:]}.kubeconfig", account.token)

    async def proxy(
        self, *, lag_s: Callable[[], float] = lambda: 0.0, on_kill: Callable[[str], None] = lambda _agent: None
    ) -> FaultProxy:
        """A way to the API that can be spoiled."""
        upstream = Upstream(self.plane.server, self.plane.authority, self.plane.admin_token)
        proxy = FaultProxy(upstream, Script(asyncio.get_running_loop().time), lag_s=lag_s, on_kill=on_kill)
        await proxy.start()
        self._proxies.append(proxy)
        return proxy

    async def history(self) -> list[Step]:
        """The audit log of the namespace and of the operators' own, once it has been written out."""
        marker = {"metadata": {"name": f"end-{uuid4().hex[:8]}"}, "spec": {"ports": [{"port": 1}], "clusterIP": "None"}}
        await self.admin.call("POST", f"/api/v1/namespaces/{self.namespace}/services", marker)

        async def is_written() -> bool:
            with self.plane.audit_log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
                return marker["metadata"]["name"].encode() in log.read()

        await eventually("the audit log is written out", is_written)
        return [
            step
            for step in read(self.plane.audit_log, Seen(self.pods.created, self.pods.doomed))
            if step.namespace in (self.namespace, SYSTEM)
        ]

    def record(self, figure: str) -> None:
        """A figure, to be read whether the scenario passes or not."""
        self._record(FIGURE, figure)
