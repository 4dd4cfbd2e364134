"""Manager: creates the controllers of all kinds and runs them as one.

Takes a client and the settings; creates the controller of every enabled kind and the sharing controller, and runs them under
one lease. A kind whose CRD is not installed, or that may not be read, is left out of readiness until that changes; the
others continue. Independent of kopf; makes no decisions. Created by main.py; architecture §9, D9–D11.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from raytide.api.constants import OPERATOR
from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS, Resource
from raytide.controller.base import BaseController, ControllerOptions
from raytide.fairshare.controller import FairShareController, FairShareOptions
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.manager.settings import Settings
from raytide.raycluster import controller as raycluster
from raytide.runtime.clock import Clock
from raytide.runtime.health import Stream
from raytide.trainingjob.controller import TrainingJobController

KNOWN_WITHIN_S: Final = 5.0
"""Time within which a working API server has answered which kinds it serves."""
SYNC_CHECK_INTERVAL_S: Final = 0.05
NATIVE_SIDECARS_SINCE: Final = 33
"""Minor version of Kubernetes since which native sidecars cannot be disabled. Before 1.29 an API server drops the field that makes
an init container one, and the pod would wait for that container for ever; in between that depends on a feature gate (D27)."""


class Watched(Stream, Protocol):
    """A stream with a name."""

    @property
    def name(self) -> str:
        """Name in probes and metrics."""


class Runnable(Protocol):
    """A component that watches all the time and works while this process leads."""

    @property
    def streams(self) -> tuple[Watched, ...]:
        """Its informers."""

    async def run_informers(self) -> None:
        """Run the informers until cancelled."""

    async def run_reconcilers(self) -> None:
        """Run one leadership term until stopped."""

    async def stop(self) -> None:
        """Let running work finish."""


class ControllerManager:
    """All controllers of one process.

    - `run_informers` and `run_reconcilers` end with the first error in any controller; `run_reconcilers` returns when all have stopped in order.
    - A kind is served when the API server permits listing it; before its answer that is unknown.
    """

    def __init__(self, client: Client, *, clock: Clock, settings: Settings) -> None:
        watches = SharedWatches(client, clock=clock, silence_s=settings.stream_silence_s)
        common: dict[str, Any] = {
            "namespaces": settings.watch_namespaces,
            "workers": settings.reconcile_concurrency,
            "instance": settings.pod_name or OPERATOR,
            "watches": watches,
        }
        kinds: list[BaseController] = []
        kinds_of_parts: list[tuple[Runnable, BaseController]] = []
        self._rayclusters: raycluster.RayClusterController | None = None
        self.sharing: FairShareController | None = None
        """Shares capacity among TrainingJobs; None without their controller."""
        if RAYCLUSTERS in settings.kinds:
            clusters = self._rayclusters = raycluster.RayClusterController(
                client,
                clock=clock,
                config=settings.cluster_config(),
                options=raycluster.RayClusterControllerOptions(**common),
            )
            kinds.append(clusters)
            kinds_of_parts.append((clusters, clusters))
        if TRAININGJOBS in settings.kinds:
            jobs = TrainingJobController(
                client, clock=clock, config=settings.job_config(), options=ControllerOptions(**common)
            )
            self.sharing = FairShareController(
                client,
                clock=clock,
                config=settings.sharing_config(),
                options=FairShareOptions(namespaces=settings.watch_namespaces, watches=watches),
            )
            kinds.append(jobs)
            kinds_of_parts += [(jobs, jobs), (self.sharing, jobs)]
        self.kinds: tuple[BaseController, ...] = tuple(kinds)
        """The controllers that reconcile, one per enabled kind."""
        self._parts: tuple[Runnable, ...] = tuple(part for part, _ in kinds_of_parts)
        self._kind_by_stream = {stream.name: kind for part, kind in kinds_of_parts for stream in part.streams}

    def use_api_version(self, minor: int) -> None:
        """Use what the API server of this minor version has; call before `run_reconcilers`."""
        if self._rayclusters is not None and minor >= NATIVE_SIDECARS_SINCE:
            self._rayclusters.reconciler.use_native_sidecars()

    # --- running -----------------------------------------------------------------------------------------------------

    async def run_informers(self) -> None:
        """Run all informers until cancelled."""
        await _side_by_side(part.run_informers for part in self._parts)

    async def run_reconcilers(self) -> None:
        """Run one leadership term of all controllers until stopped."""
        await _side_by_side(part.run_reconcilers for part in self._parts)

    async def stop(self) -> None:
        """Accept no more keys and let running passes finish."""
        await _side_by_side(part.stop for part in self._parts)

    # --- health -----------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> Mapping[str, Stream]:
        """All required informers, by name."""
        return {stream.name: stream for part in self._parts for stream in part.streams}

    @property
    def optional_streams(self) -> Mapping[str, Informer[Any]]:
        """Informers that run where the API server permits, by name; readiness does not depend on them."""
        return {stream.name: stream for controller in self.kinds for stream in controller.optional_streams}

    def is_optional_listed(self, stream: str) -> bool:
        """Whether an optional informer is synced without an error."""
        informer = self.optional_streams[stream]
        return informer.is_synced and not informer.error

    def optional_check(self, stream: str) -> tuple[bool, str]:
        """State of an optional informer; always passes (FD:REL-B)."""
        informer = self.optional_streams[stream]
        return True, informer.error or ("listed" if informer.is_synced else "not listed yet")

    def is_needed(self, stream: str) -> bool:
        """Whether readiness depends on that stream."""
        return self._kind_by_stream[stream].objects.is_listable is not False

    def is_served(self, kind: Resource) -> bool:
        """Whether the API server permits listing that kind, as far as is known."""
        return any(controller.resource == kind and controller.objects.is_listable for controller in self.kinds)

    def check(self) -> tuple[bool, str]:
        """Passes when at least one kind is served."""
        served = [_name(controller) for controller in self.kinds if controller.objects.is_listable]
        others = [controller.objects.error or f"{_name(controller)} not listed yet" for controller in self.kinds]
        left_out = [
            text for controller, text in zip(self.kinds, others, strict=True) if not controller.objects.is_listable
        ]
        return bool(served), "; ".join([", ".join(served) or "none served", *left_out])

    async def discover_kinds(self) -> None:
        """Return when it is known for every kind whether it may be listed, or after `KNOWN_WITHIN_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_WITHIN_S):
                while any(controller.objects.is_listable is None for controller in self.kinds):  # noqa: ASYNC110 - once, and short
                    await asyncio.sleep(SYNC_CHECK_INTERVAL_S)

    def oldest_pass_s(self) -> float:
        """Duration of the longest running pass in seconds."""
        sharing = () if self.sharing is None else (self.sharing.reconciler.oldest_running_s(),)
        return max(*sharing, *(r.reconcile_loop.oldest_running_s() for r in self.kinds), 0.0)

    def waiting(self) -> int:
        """Number of due keys that no worker has taken."""
        return sum(controller.reconcile_loop.waiting() for controller in self.kinds)


def _name(controller: BaseController) -> str:
    return f"{controller.resource.plural}.{controller.resource.group}"


async def _side_by_side(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(_run(work))


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
