"""Hooks, probes and end of one running container.

Takes a container that the runtime has just started; runs its postStart hook, its probes and the wait for its end as
tasks, and reports changes to the pod through `Listener`. The end is reported once, after the hook and the probes have
been cancelled. A stop sends SIGTERM to the main process only (SIGTERM to a whole process group leaves `ray start`
hanging). Owned by podworker.py.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from raytide_sandbox.container_runtime.interface import Container, ContainerRuntimeError, Exit, Runtime, Sandbox
from raytide_sandbox.kubelet.podspec import ContainerSpec, PodSpec
from raytide_sandbox.kubelet.probes import Checker, watch_probes

_POST_START_TIMEOUT_S: Final = 60.0


class Listener(Protocol):
    """Callbacks into the pod worker."""

    def on_exit(self, name: str, ended: Exit) -> None:
        """The container and everything it started have ended."""

    def on_probe(self, name: str, kind: str, *, verdict: bool) -> None:
        """A probe has reached its success or failure threshold."""

    def on_unhealthy(self, name: str, kind: str, message: str) -> None:
        """One check of a probe failed."""

    def on_hook_failed(self, name: str, hook: str, message: str) -> None:
        """A lifecycle hook failed."""


class RunningContainer:
    """One start of one container, until its end."""

    def __init__(
        self, runtime: Runtime, sandbox: Sandbox, spec: ContainerSpec, container: Container, listener: Listener
    ) -> None:
        self.spec = spec
        self.container = container
        self._runtime = runtime
        self._listener = listener
        self._checker = Checker(runtime, sandbox, spec, container)
        self._beside = [asyncio.create_task(coroutine) for coroutine in self._companions()]
        self._stop: asyncio.Task[None] | None = None
        self._end = asyncio.create_task(self._wait())

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._stop is not None

    def stop(self, grace_s: float) -> None:
        """Begin a graceful stop: preStop hook, SIGTERM, and SIGKILL of all processes after `grace_s` seconds."""
        if self._stop is None:
            self._cancel_companions()
            self._stop = asyncio.create_task(self._stop_gracefully(grace_s))

    async def kill(self) -> None:
        """SIGKILL all processes now and return when they are gone."""
        with contextlib.suppress(ContainerRuntimeError):
            await self._runtime.kill(self.container)
        await asyncio.gather(self._end, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all tasks; the processes of the container are left alone."""
        tasks = [*self._beside, self._end, *([self._stop] if self._stop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _companions(self) -> list[Any]:
        name, listener = self.spec.name, self._listener
        companions: list[Awaitable[None]] = []
        if self.spec.probes:
            companions.append(
                watch_probes(
                    self.spec,
                    self._checker.check,
                    lambda kind, verdict: listener.on_probe(name, kind, verdict=verdict),
                    lambda kind, message: listener.on_unhealthy(name, kind, message),
                )
            )
        if self.spec.post_start:
            companions.append(self._post_start())
        return companions

    async def _post_start(self) -> None:
        if self.spec.post_start is None:
            return
        result = await self._checker.run(self.spec.post_start, timeout_s=_POST_START_TIMEOUT_S)
        if not result.is_success:
            self._listener.on_hook_failed(self.spec.name, "PostStart", result.message)
            self.stop(0)

    async def _stop_gracefully(self, grace_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                if self.spec.pre_stop:
                    result = await self._checker.run(self.spec.pre_stop, timeout_s=grace_s)
                    if not result.is_success:
                        self._listener.on_hook_failed(self.spec.name, "PreStop", result.message)
                with contextlib.suppress(ContainerRuntimeError):
                    await self._runtime.signal(self.container, signal.SIGTERM)
                await self.container.wait()
        if self.container.exit is None:
            with contextlib.suppress(ContainerRuntimeError):
                await self._runtime.kill(self.container)

    async def _wait(self) -> None:
        ended = await self.container.wait()
        self._cancel_companions()
        self._listener.on_exit(self.spec.name, ended)

    def _cancel_companions(self) -> None:
        for task in self._beside:
            if task is not asyncio.current_task():
                task.cancel()


def grace_of(pod: PodSpec, spec: ContainerSpec, kind: str) -> float:
    """Grace period in seconds after the probe `kind` has failed: the probe's own, else the pod's."""
    probe = spec.probes.get(kind)
    return probe.grace_s if probe and probe.grace_s is not None else pod.grace_s
