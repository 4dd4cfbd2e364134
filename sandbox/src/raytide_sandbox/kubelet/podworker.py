"""Pod worker: runs one pod from its binding to a node until its removal from the API.

Takes the pod from watch events and carries out the decisions of compute_actions.py: volumes, sandbox, containers,
probes, and a graceful stop at the end. A failed start is retried and reported in status and events; only unexpected
exceptions leave `run`, and kubelet.py then builds a new worker. When `run` returns, no process of the pod is left. One
task per pod, started by kubelet.py.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from raytide_sandbox.container_runtime.interface import Container, ContainerRuntimeError, Exit, Image, Sandbox
from raytide_sandbox.kubelet import containers as record
from raytide_sandbox.kubelet.apiclient import Manifest
from raytide_sandbox.kubelet.compute_actions import (
    after_sandbox_loss,
    decide,
    initial_records,
    recovered_records,
)
from raytide_sandbox.kubelet.container_probes import RunningContainer, grace_of
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.podfiles import PodFiles
from raytide_sandbox.kubelet.podspec import ContainerSpec, PodSpec
from raytide_sandbox.kubelet.podvolumes import ERRORS, PodVolumes
from raytide_sandbox.kubelet.sandboxconfig import build_sandbox_config
from raytide_sandbox.kubelet.start_container import (
    ImageMissingError,
    Start,
    StartContainerError,
    find_image,
    start_container,
)
from raytide_sandbox.kubelet.status import FINAL_PHASES, Failure, PodFacts, build_status
from raytide_sandbox.kubelet.status_manager import Reporter
from raytide_sandbox.rfc3339 import parse_time

_SANDBOX_RETRY_S: Final = 5.0
DEADLINE_EXCEEDED: Final = Failure("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class PodWorker:
    """One pod on one node."""

    def __init__(self, host: Host, pod: PodSpec) -> None:
        self.pod = pod
        self.files = PodFiles(host.directory, pod.uid)
        self.records: dict[str, record.ContainerRecord] = self._first_records(host, pod)
        self.running: dict[str, RunningContainer] = {}
        self.sandbox: Sandbox | None = None
        self._host = host
        self._volumes = PodVolumes(host, self.files)
        self._facts = self._first_facts(host, pod)
        self._reporter: Reporter | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry_at: datetime | None = None
        self._is_vanished = False

    # --- watch events --------------------------------------------------------------------------------------------
    def update(self, raw: Manifest) -> None:
        """Store a new version of the pod and wake the worker."""
        self.pod = replace(self.pod, raw=raw)
        self._changed.set()

    def vanish(self) -> None:
        """The pod is gone from the API: end everything without a grace period."""
        self._is_vanished = True
        self._changed.set()

    @property
    def deletion_grace_s(self) -> float | None:
        """Grace period in seconds of a terminating pod; None while it is not terminating, 0 when gone from the API."""
        if self._is_vanished:
            return 0.0
        metadata = self.pod.raw["metadata"]
        if not metadata.get("deletionTimestamp"):
            return None
        grace_s = metadata.get("deletionGracePeriodSeconds")
        return float(self.pod.grace_s if grace_s is None else grace_s)

    @property
    def ip(self) -> str | None:
        """The pod IP while the sandbox is alive."""
        return self.sandbox.ip if self.sandbox and self.sandbox.is_alive else None

    def record_log_growth(self) -> None:
        """Record the current log sizes of the running containers."""
        for name, running in self.running.items():
            self.files.record_log_growth(name, running.container.config.attempt, self._host.now())

    # --- main loop -----------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Run the pod until it is removed; when this returns or is cancelled, no process of the pod is left."""
        self._reporter = Reporter(self._host.api, self.pod.raw["metadata"])
        try:
            while self.deletion_grace_s is None:
                self._changed.clear()
                wake_at = await self._step()
                await self._wait(wake_at)
            await self._end_everything()
            if not self._is_vanished:
                await self._reporter.finish(self._status())
        finally:
            await self._clean_up()

    async def _step(self) -> datetime | None:
        """Carry out one decision; returns the latest time of the next one, None to wait for a change."""
        if self._facts.is_final:
            self._report()
            return None
        if self.sandbox and not self.sandbox.is_alive:
            await self._lose_sandbox()
        if self._facts.failure or self._is_past_deadline():
            return await self._fail()
        decision = decide(self.pod, self.records, self._host.now())
        self._report_back_offs(decision.records)
        self.records = dict(decision.records)
        if decision.is_over:
            await self._be_over()
            return None
        for name in decision.stop[:1]:
            self._stop(name)
        starts = [self.pod.container(name) for name in decision.start]
        wakes = [decision.wake_at, self._deadline()]
        if starts:
            wakes.append(await self._start_all([spec for spec in starts if spec]))
        self._report()
        return min((wake for wake in wakes if wake), default=None)

    def _report_back_offs(self, records: Mapping[str, record.ContainerRecord]) -> None:
        """Record events for containers that have just entered a back-off."""
        for spec in self.pod.all_containers:
            before, after = self.records[spec.name], records[spec.name]
            if record.is_newly_waiting(before, after, record.CRASH_LOOP_BACK_OFF):
                message = f"Back-off restarting failed container {spec.name} in pod {self.pod.full_name}"
                self._host.events.warning(self.pod, "BackOff", message, spec.name)
            if record.is_newly_waiting(before, after, record.IMAGE_PULL_BACK_OFF):
                self._host.events.normal(self.pod, "BackOff", f'Back-off pulling image "{spec.image}"', spec.name)
                self._host.events.warning(self.pod, "Failed", f"Error: {record.IMAGE_PULL_BACK_OFF}", spec.name)

    async def _wait(self, wake_at: datetime | None) -> None:
        delay_s = None if wake_at is None else max(0.0, (wake_at - self._host.now()).total_seconds())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._changed.wait()

    # --- starting ------------------------------------------------------------------------------------------------
    async def _start_all(self, specs: list[ContainerSpec]) -> datetime | None:
        now = self._host.now()
        if self._retry_at and now < self._retry_at:
            return self._retry_at
        if not await self._has_ground():
            self._retry_at = self._host.now() + timedelta(seconds=_SANDBOX_RETRY_S)
            return self._retry_at
        self._report()
        for spec in specs:
            await self._start(spec)
        return self._host.now()

    async def _has_ground(self) -> bool:
        """Create volumes and sandbox if they are missing; False when that has failed."""
        if self.sandbox:
            return True
        try:
            await self._volumes.prepare(self.pod)
        except ERRORS as error:
            self._host.events.warning(self.pod, "FailedMount", f"MountVolume.SetUp failed: {error}")
            return False
        try:
            self.sandbox = await self._host.runtime.create_sandbox(
                build_sandbox_config(self.pod, self._volumes.in_memory)
            )
        except (ContainerRuntimeError, OSError) as error:
            self._host.events.warning(self.pod, "FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            return False
        self._facts = replace(self._facts, pod_ip=self.sandbox.ip, has_sandbox=True)
        self._spawn(self._watch_sandbox(self.sandbox))
        self._spawn(self._volumes.keep_fresh(self.pod))
        return True

    async def _start(self, spec: ContainerSpec) -> None:
        before = self.records[spec.name]
        attempt = before.restart_count + (1 if before.end else 0)
        try:
            self._begin(spec, await self._launch(spec, attempt))
        except ImageMissingError as error:
            self.records[spec.name] = record.cannot_pull(before, str(error), self._host.now())
            self._host.events.warning(self.pod, "Failed", f'Failed to pull image "{spec.image}": {error}', spec.name)
            self._host.events.warning(self.pod, "Failed", f"Error: {record.ERR_IMAGE_PULL}", spec.name)
        except StartContainerError as error:
            now = self._host.now()
            self.records[spec.name] = record.cannot_configure(before, error.reason, error.message, now)
            self._host.events.warning(self.pod, "Failed", f"Error: {error.message}", spec.name)
        except ContainerRuntimeError as error:
            end = record.Terminated(128, self._host.now(), reason=record.START_ERROR, message=str(error))
            self.records[spec.name] = record.never_began(before, end)
            self._host.events.warning(self.pod, "Failed", f"Error: {error}", spec.name)
        self._report()

    async def _launch(self, spec: ContainerSpec, attempt: int) -> tuple[Container, Image]:
        if self.sandbox is None:
            raise ContainerRuntimeError("the pod's sandbox is gone")
        image = find_image(self._host, spec)
        self.files.prepare()
        self.files.forget_attempt(spec.name, attempt - 2)
        start = Start(
            pod=self.pod,
            spec=spec,
            sandbox=self.sandbox,
            files=self.files,
            places=self._volumes.places,
            attempt=attempt,
        )
        return await start_container(self._host, start, image), image

    def _begin(self, spec: ContainerSpec, launched: tuple[Container, Image]) -> None:
        container, image = launched
        if self.sandbox is None:
            return
        self.records[spec.name] = record.begun(
            self.records[spec.name],
            record.Running(container.started_at, container.id),
            image_id=image.image_id,
            is_started=spec.startup is None,
            is_ready=not (spec.startup or spec.readiness) and (spec.is_sidecar or not spec.is_init),
        )
        self.running[spec.name] = RunningContainer(self._host.runtime, self.sandbox, spec, container, self)
        self._host.events.normal(self.pod, "Started", f"Started container {spec.name}", spec.name)

    # --- container callbacks (container_probes.Listener) ---------------------------------------------------------
    def on_exit(self, name: str, ended: Exit) -> None:
        """Record the termination and wake the worker."""
        running = self.running.pop(name)
        before = self.records[name]
        spec = running.spec
        message = self.files.read_message(spec, running.container.config.attempt, has_failed=ended.code != 0)
        end = record.Terminated(
            exit_code=ended.code,
            finished_at=ended.finished_at,
            started_at=running.container.started_at,
            reason=record.COMPLETED if ended.code == 0 else record.ERROR,
            message=message,
            container_id=running.container.id,
        )
        self.records[name] = record.exited(before, end)
        if spec.is_init and ended.code == 0:
            self.records[name] = replace(self.records[name], is_ready=True)
        self._changed.set()

    def on_probe(self, name: str, kind: str, *, verdict: bool) -> None:
        """Apply the result of a probe: started, ready or unready, or a stop for a restart."""
        running, before = self.running.get(name), self.records[name]
        if running is None:
            return
        if kind == "startup" and verdict:
            self.records[name] = replace(before, is_started=True, is_ready=running.spec.readiness is None)
        elif kind == "readiness":
            self.records[name] = replace(before, is_ready=verdict)
        elif not running.is_stopping:
            message = f"Container {name} failed {kind} probe, will be restarted"
            self._host.events.normal(self.pod, "Killing", message, name)
            running.stop(grace_of(self.pod, running.spec, kind))
        self._changed.set()

    def on_unhealthy(self, name: str, kind: str, message: str) -> None:
        """Record an event for one failed check."""
        self._host.events.warning(self.pod, "Unhealthy", f"{kind.capitalize()} probe failed: {message}", name)

    def on_hook_failed(self, name: str, hook: str, message: str) -> None:
        """Record an event for a failed hook; container_probes.py stops the container if necessary."""
        self._host.events.warning(self.pod, f"Failed{hook}Hook", f"{hook}Hook failed: {message}", name)

    # --- ending --------------------------------------------------------------------------------------------------
    def _stop(self, name: str) -> None:
        running = self.running.get(name)
        if running and not running.is_stopping:
            self._host.events.normal(self.pod, "Killing", f"Stopping container {name}", name)
            running.stop(self.pod.grace_s)

    async def _fail(self) -> datetime | None:
        """Fail a pod past activeDeadlineSeconds: stop its containers, then set the phase Failed permanently."""
        if not self._facts.failure:
            self._facts = replace(self._facts, failure=DEADLINE_EXCEEDED)
            self._host.events.normal(self.pod, DEADLINE_EXCEEDED.reason, DEADLINE_EXCEEDED.message)
        for name in list(self.running):
            self._stop(name)
        if not self.running:
            await self._be_over()
        self._report()
        return None

    async def _be_over(self) -> None:
        """Finish a pod that is over: remove its sandbox; its logs stay until it is deleted."""
        await self._remove_sandbox()
        self._facts = replace(self._facts, is_final=True)
        self._report()

    async def _end_everything(self) -> None:
        """Terminate a deleted pod: SIGTERM, grace period, SIGKILL; sidecars stop after the other containers."""
        begun_at = self._host.now()
        while self.running:
            self._changed.clear()
            grace_s = self.deletion_grace_s or 0.0
            kill_at = begun_at + timedelta(seconds=grace_s)
            if self._host.now() >= kill_at:
                await asyncio.gather(*(running.kill() for running in list(self.running.values())))
                break
            for name in self._next_to_stop():
                self._stop(name)
            await self._wait(kill_at)
            self._report()
        await self._remove_sandbox()
        self._facts = replace(self._facts, is_final=True)

    def _next_to_stop(self) -> list[str]:
        ordinary = [name for name, running in self.running.items() if not running.spec.is_sidecar]
        if ordinary:
            return ordinary
        return [c.name for c in reversed(self.pod.init_containers) if c.name in self.running][:1]

    async def _lose_sandbox(self) -> None:
        """Handle the unexpected end of the pod's first process, with which every other process has ended."""
        await self._remove_sandbox()
        self.records = after_sandbox_loss(self.pod, self.records)
        message = "Pod sandbox changed, it will be killed and re-created."
        self._host.events.normal(self.pod, "SandboxChanged", message)

    async def _remove_sandbox(self) -> None:
        if self.sandbox is None:
            return
        await self._host.runtime.remove_sandbox(self.sandbox)
        await asyncio.gather(*(running.kill() for running in list(self.running.values())))
        self.sandbox = None
        self._facts = replace(self._facts, has_sandbox=False)
        await self._cancel_tasks()

    async def _clean_up(self) -> None:
        await self._cancel_tasks()
        for running in list(self.running.values()):
            await running.close()
        self.running.clear()
        with contextlib.suppress(ContainerRuntimeError, OSError):
            await self._remove_sandbox()
        if self._reporter:
            await self._reporter.close()
        self.files.remove()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = list(self._tasks), set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch_sandbox(self, sandbox: Sandbox) -> None:
        await sandbox.wait()
        self._changed.set()

    # --- facts and status ----------------------------------------------------------------------------------------
    @staticmethod
    def _first_records(host: Host, pod: PodSpec) -> dict[str, record.ContainerRecord]:
        status = pod.raw.get("status") or {}
        if not status.get("containerStatuses") and not status.get("initContainerStatuses"):
            return initial_records(pod)
        return recovered_records(pod, status, host.now())

    @staticmethod
    def _first_facts(host: Host, pod: PodSpec) -> PodFacts:
        status = pod.raw.get("status") or {}
        return PodFacts(
            host_ip=host.figures.host_ip,
            pod_ip=status.get("podIP"),
            start_time=parse_time(status.get("startTime")) or host.now(),
            is_final=status.get("phase") in FINAL_PHASES,
        )

    def _deadline(self) -> datetime | None:
        if self.pod.active_deadline_s is None or self._facts.start_time is None:
            return None
        return self._facts.start_time + timedelta(seconds=self.pod.active_deadline_s)

    def _is_past_deadline(self) -> bool:
        deadline = self._deadline()
        return deadline is not None and self._host.now() >= deadline

    def _report(self) -> None:
        if self._reporter:
            self._reporter.report(self._status())

    def _status(self) -> Mapping[str, Any]:
        """Compute the status; the last written one precedes the watched one, except for conditions of other owners."""
        seen = self.pod.raw.get("status") or {}
        written = self._reporter.written if self._reporter else {}
        ours = {condition["type"]: condition for condition in written.get("conditions") or ()}
        theirs = [c for c in seen.get("conditions") or () if c.get("type") not in ours]
        previous = {"phase": written.get("phase") or seen.get("phase"), "conditions": [*ours.values(), *theirs]}
        status = build_status(self.pod, self.records, self._facts, previous, self._host.now())
        if seen.get("phase") in FINAL_PHASES and "reason" in seen and "reason" not in status:
            status |= {key: seen[key] for key in ("reason", "message") if key in seen}
        return status
