"""One of two operators: a pod that keeps its uid while its container is restarted, frozen or probed."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout

from acceptance.environment import SYSTEM, Env
from integration.embedded_cluster import Operator
from support.ports import free_port

LEASE_S, RENEW_S, RETRY_S = 6, 4, 1


class Replica:
    """Called `name`; its pod's uid is `uid-<name>`."""

    operator: Operator

    def __init__(self, env: Env, name: str, kubeconfig: Path) -> None:
        self.name = name
        self._env = env
        self._kubeconfig = kubeconfig
        self._port = free_port()

    async def start(self, **environ: str) -> None:
        """With a short lease."""
        flags = {
            "leader-election-lease-duration": f"{LEASE_S}s",
            "leader-election-renew-deadline": f"{RENEW_S}s",
            "leader-election-retry-period": f"{RETRY_S}s",
            "leader-election-namespace": SYSTEM,
            "health-probe-bind-address": f"127.0.0.1:{self._port}",
        }
        words = [word for flag, value in flags.items() for word in (f"--{flag}", value)]
        environ |= {"POD_UID": f"uid-{self.name}", "POD_NAME": f"raytide-{self.name}"}
        self.operator = await self._env.operator(self._kubeconfig, "--enable-leader-election", *words, **environ)

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.operator.process is not None and self.operator.process.returncode is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.operator.process
        with suppress(ProcessLookupError):
            self.operator.process.send_signal(number)

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """As long as this lasts."""
        self.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    async def is_alive(self) -> bool:
        """The result of a kubelet's liveness probe."""
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=5)) as session,
                session.get(f"http://127.0.0.1:{self._port}/healthz") as answer,
            ):
                return answer.status == 200
        except (ClientError, TimeoutError):
            return False
